//! The account of one node: every order and receipt, in and out of order.

use super::*;

fn range() -> Range {
    Range::new(w(100), Some(w(600))).unwrap()
}

fn count(account: &Account) -> i32 {
    let count = account.count(range()).unwrap();
    (0..=600).find(|&watts| w(watts) == count).unwrap()
}

fn order((serial, cap): (u64, i32)) -> Order {
    Order { serial, cap: w(cap) }
}

fn receipt(taken: (u64, i32), read_back: i32) -> Receipt {
    Receipt { taken: Some(order(taken)), read_back: w(read_back) }
}

fn hear(account: &mut Account, taken: (u64, i32), read_back: i32) -> Heard {
    account.hear(receipt(taken, read_back))
}

fn find(account: &mut Account, read_back: i32) -> Heard {
    account.hear(Receipt { taken: None, read_back: w(read_back) })
}

#[test]
fn a_node_that_nobody_has_heard_of_counts_at_its_largest_draw() {
    let mut account = Account::unproven();
    assert_eq!(count(&account), 600);
    account.write(w(200), at(1));
    assert_eq!((count(&account), account.asked()), (600, Some(w(200))));
    let open = Range::new(w(100), None).unwrap();
    assert_eq!(
        account.count(open),
        None,
        "an unknown largest draw is unknown, not the cap that was asked for"
    );
    assert_eq!(hear(&mut account, (1, 200), 200), Heard::Confirmed);
    assert_eq!((count(&account), account.count(open)), (200, Some(w(200))));
}

#[test]
fn between_order_and_receipt_the_higher_of_old_and_new_counts() {
    let mut account = holding(300);
    account.write(w(200), at(5));
    assert_eq!((count(&account), account.awaited_since()), (300, Some(at(5))));
    account.write(w(450), at(6));
    assert_eq!((count(&account), account.awaited_since()), (450, Some(at(5))));
    account.write(w(250), at(7));
    assert_eq!(count(&account), 450, "any of the three may be in force");
    assert_eq!(hear(&mut account, (3, 450), 450), Heard::Earlier);
    assert_eq!(count(&account), 450);
    assert_eq!(hear(&mut account, (4, 250), 250), Heard::Confirmed);
    assert_eq!((count(&account), account.awaited_since()), (250, None));
}

#[test]
fn a_late_receipt_neither_lowers_nor_raises_anything() {
    let mut account = holding(300);
    account.write(w(200), at(1));
    assert_eq!(hear(&mut account, (2, 200), 200), Heard::Confirmed);
    assert_eq!(hear(&mut account, (1, 300), 300), Heard::Late);
    assert_eq!(count(&account), 200);
    account.write(w(400), at(2));
    assert_eq!(hear(&mut account, (1, 300), 600), Heard::Late);
    assert_eq!((count(&account), account.is_proven()), (400, false));
}

#[test]
fn after_a_reboot_no_receipt_from_before_is_believed() {
    let mut account = holding(300);
    account.lost();
    assert_eq!((count(&account), account.asked()), (600, None));
    assert_eq!(hear(&mut account, (1, 300), 300), Heard::Late);
    assert_eq!(count(&account), 600);
    let order = account.write(w(200), at(3));
    assert_eq!((order.serial, count(&account)), (2, 600));
    assert_eq!(hear(&mut account, (2, 200), 200), Heard::Confirmed);
    assert_eq!(count(&account), 200);
}

#[test]
fn a_cap_that_somebody_moved_counts_as_it_was_read_back() {
    let mut account = holding(300);
    assert_eq!(hear(&mut account, (1, 300), 500), Heard::Confirmed);
    assert_eq!(count(&account), 500);
    // Below the order it counts as ordered: the node may go back there by itself.
    assert_eq!(hear(&mut account, (1, 300), 150), Heard::Confirmed);
    assert_eq!(count(&account), 300);
}

#[test]
fn what_cannot_be_limited_any_lower_counts_at_the_floor_and_what_is_not_limiting_at_the_largest_draw() {
    let mut account = holding(0);
    assert_eq!(count(&account), 100);
    account.write(w(4095), at(1));
    assert_eq!(count(&account), 600);
    assert_eq!(hear(&mut account, (2, 4095), 4095), Heard::Confirmed);
    assert_eq!(count(&account), 600);
    assert_eq!(hear(&mut account, (2, 4095), -1), Heard::Impossible);
    assert_eq!(count(&account), 600);
}

#[test]
fn a_cap_that_is_found_counts_as_it_is_until_the_first_order() {
    let mut account = Account::unproven();
    assert_eq!(find(&mut account, 350), Heard::Confirmed);
    assert_eq!((count(&account), account.asked()), (350, None));
    assert_eq!(find(&mut account, 320), Heard::Confirmed);
    assert_eq!(count(&account), 320);
}

#[test]
fn orders_of_somebody_else_make_the_node_unknown_until_our_next_one_is_read_back() {
    let mut account = holding(300);
    assert_eq!(hear(&mut account, (5, 200), 200), Heard::Foreign);
    assert_eq!((count(&account), account.asked()), (600, None));
    assert_eq!(hear(&mut account, (5, 200), 200), Heard::Late);
    assert_eq!(account.write(w(250), at(1)).serial, 6);
    assert_eq!(hear(&mut account, (6, 250), 250), Heard::Confirmed);
    assert_eq!(count(&account), 250);
}

#[test]
fn a_new_leader_believes_what_the_objects_prove_and_no_more() {
    let resume = |standing: Option<(u64, i32)>, receipt| Account::resume(standing.map(order), receipt, at(9));
    let resumed = |standing, receipt| {
        let account = resume(standing, receipt);
        (count(&account), account.is_proven(), account.asked())
    };
    assert_eq!(resumed(None, None), (600, false, None));
    let found = Receipt { taken: None, read_back: w(350) };
    assert_eq!(resumed(None, Some(found)), (350, true, None));
    assert_eq!(resumed(Some((1, 200)), Some(found)), (350, false, Some(w(200))));
    let asked = Some(w(200));
    assert_eq!(resumed(Some((7, 200)), Some(receipt((7, 200), 200))), (200, true, asked));
    assert_eq!(resumed(Some((7, 200)), Some(receipt((6, 300), 300))), (300, false, asked));
    assert_eq!(resumed(Some((7, 400)), Some(receipt((6, 300), 300))), (400, false, Some(w(400))));
    // Orders 5 and 6 have left no trace: either may be in force.
    assert_eq!(resumed(Some((7, 200)), Some(receipt((4, 300), 300))), (600, false, asked));
    assert_eq!(resumed(Some((7, 200)), None), (600, false, asked));
    // The object is older than what the node has seen.
    assert_eq!(resumed(Some((7, 200)), Some(receipt((8, 200), 200))), (600, false, None));
    let mut account = resume(Some((7, 200)), Some(receipt((6, 300), 300)));
    assert_eq!(hear(&mut account, (7, 200), 200), Heard::Confirmed);
    assert_eq!((count(&account), account.write(w(300), at(9)).serial), (200, 8));
}

#[test]
fn what_an_order_asked_for_counts_after_a_change_of_leaders_as_it_did_before() {
    // Asked for 300, read back 250, then told 200: the node may still come up to 300.
    let mut live = holding(300);
    hear(&mut live, (1, 300), 250);
    let told = live.write(w(200), at(1));
    let resumed = Account::resume(Some(told), Some(receipt((1, 300), 250)), at(2));
    assert_eq!((count(&live), count(&resumed)), (300, 300));
    // Devices that stayed above what they were asked for count where they are.
    let resumed = Account::resume(Some(told), Some(receipt((1, 300), 350)), at(2));
    assert_eq!(count(&resumed), 350);
}

#[test]
fn another_cap_under_a_serial_of_ours_is_an_order_of_somebody_else() {
    let mut account = holding(300);
    assert_eq!(hear(&mut account, (1, 450), 450), Heard::Foreign);
    assert_eq!((count(&account), account.asked()), (600, None));
    assert_eq!(hear(&mut account, (1, 300), 300), Heard::Late);
    assert_eq!(account.write(w(250), at(1)).serial, 2);
    let resumed = Account::resume(Some(order((7, 200))), Some(receipt((7, 300), 200)), at(9));
    assert_eq!(count(&resumed), 600);
    let mut never = Account::unproven();
    assert_eq!(hear(&mut never, (0, 300), 300), Heard::Foreign);
}

#[test]
fn what_the_devices_refuse_is_remembered_until_they_go_lower() {
    let mut account = Account::unproven();
    account.write(w(200), at(0));
    hear(&mut account, (1, 200), 240);
    assert_eq!((count(&account), account.refused_below()), (240, Some(w(240))));
    account.write(w(300), at(1));
    hear(&mut account, (2, 300), 300);
    assert_eq!(account.refused_below(), Some(w(240)));
    account.write(w(240), at(2));
    hear(&mut account, (3, 240), 230);
    assert_eq!(account.refused_below(), None);
    hear(&mut account, (3, 240), 260);
    assert_eq!(account.refused_below(), Some(w(260)));
    account.forget_refusal();
    assert_eq!(account.refused_below(), None);
}
