//! What one node counts: every combination of grant and receipt.

use super::*;

fn range() -> Range {
    Range::new(w(100), Some(w(600))).unwrap()
}

fn count(account: GrantAccount) -> i32 {
    let count = account.count(range()).unwrap();
    (0..=600).find(|&watts| w(watts) == count).unwrap()
}

fn grant(serial: u64, watts: i32, ceiling: i32) -> Option<Grant> {
    Some(Grant { serial, watts: w(watts), ceiling: w(ceiling) })
}

fn receipt(serial: u64, holds: i32) -> Option<GrantReceipt> {
    Some(GrantReceipt { serial, holds: w(holds), floor: Watts::ZERO, yields: None })
}

fn of(grant: Option<Grant>, receipt: Option<GrantReceipt>) -> i32 {
    count(GrantAccount::observed(grant, receipt))
}

#[test]
fn the_table_of_what_a_node_counts() {
    // No matching receipt: the largest draw, whatever was granted.
    assert_eq!(of(None, None), 600);
    assert_eq!(of(grant(7, 200, 200), None), 600);
    assert_eq!(of(None, receipt(0, 300)), 600, "a receipt of nothing");
    // A receipt of the current grant.
    assert_eq!(of(grant(7, 200, 450), receipt(7, 180)), 200);
    assert_eq!(of(grant(7, 200, 450), receipt(7, 240)), 240, "the devices hold more");
    // A receipt of an earlier grant.
    assert_eq!(of(grant(7, 200, 450), receipt(6, 180)), 450);
    assert_eq!(of(grant(7, 200, 450), receipt(1, 500)), 500);
    // A receipt of a later grant: the API server was restored to an older state.
    assert_eq!(of(grant(7, 200, 450), receipt(8, 180)), 600);
    // No limit below the floor or above the largest draw is effective.
    assert_eq!(of(grant(7, 20, 20), receipt(7, 20)), 100);
    assert_eq!(of(grant(7, 4095, 4095), receipt(7, 4095)), 600);
    assert_eq!(of(grant(7, 200, 200), receipt(7, -1)), 600, "less than nothing is no reading");
}

#[test]
fn the_receipt_of_a_raise_changes_nothing_that_counts() {
    let raised = |grant, receipt| GrantAccount::observed(grant, receipt).is_only_raised();
    assert!(raised(grant(7, 300, 300), receipt(6, 200)));
    // Of it, of a lowering, and where the devices hold more or nothing is known.
    assert!(!raised(grant(7, 300, 300), receipt(7, 300)), "it has arrived");
    assert!(!raised(grant(7, 200, 300), receipt(6, 300)), "a lowering");
    assert!(!raised(grant(7, 300, 300), receipt(6, 301)), "the devices hold more");
    assert!(!raised(grant(7, 300, 300), receipt(8, 300)), "a later grant");
    assert!(!raised(grant(7, 300, 300), None) && !raised(None, receipt(6, 200)));
    let sent = Grant { serial: 8, watts: w(400), ceiling: w(400) };
    let account = GrantAccount::observed(grant(7, 300, 300), receipt(6, 200)).after_sending(&[sent]);
    assert!(!account.is_only_raised(), "a write without an answer");
    // What it counts is the same before and after.
    assert_eq!(of(grant(7, 300, 300), receipt(6, 200)), of(grant(7, 300, 300), receipt(7, 300)));
}

#[test]
fn an_unknown_largest_draw_is_unknown_and_not_the_grant() {
    let open = Range::new(w(100), None).unwrap();
    let told = GrantAccount::observed(grant(1, 200, 200), None);
    assert_eq!((told.count(open), told.asked()), (None, Some(w(200))));
    let heard = GrantAccount::observed(grant(1, 200, 200), receipt(1, 200));
    assert_eq!(heard.count(open), Some(w(200)));
}

#[test]
fn the_ceiling_covers_what_the_node_may_still_hold() {
    let next =
        |grant, receipt, watts: i32| GrantAccount::observed(grant, receipt).ceiling_of(w(watts), range());
    // Without a receipt that fits, the node may hold its largest draw.
    assert_eq!(next(None, None, 300), w(600));
    // The last grant was read back: it holds until the next one is read back.
    assert_eq!(next(grant(7, 200, 450), receipt(7, 200), 150), w(200));
    assert_eq!(next(grant(7, 200, 450), receipt(7, 200), 300), w(300));
    // The last grant was not read back: all that its ceiling covers may still be in force.
    assert_eq!(next(grant(7, 200, 450), receipt(6, 450), 150), w(450));
    assert_eq!(next(grant(7, 200, 450), None, 500), w(600));
    // 300 → 500 → 300 within a period: the old 300 does not confirm the new one.
    let back = GrantAccount::NONE
        .granted(w(300), open())
        .heard(w(300))
        .granted(w(500), open())
        .granted(w(300), open());
    assert_eq!((count(back), back.is_proven()), (500, false));
    assert_eq!((count(back.heard(w(300))), back.heard(w(300)).is_proven()), (300, true));
}

#[test]
fn a_node_that_has_booted_gets_its_grant_again_with_a_ceiling_of_all_that_it_may_draw() {
    let booted = |ceiling| GrantAccount::observed(grant(7, 200, ceiling), None);
    assert!(booted(200).has_strayed(range()));
    assert!(!booted(600).has_strayed(range()), "once is enough");
    let open = Range::new(w(100), None).unwrap();
    assert!(!booted(200).has_strayed(open), "nobody knows how much that is");
    // Whoever never saw the boot finds a receipt of the grant before, and counts the ceiling.
    assert_eq!(of(grant(8, 200, 600), receipt(7, 200)), 600);
    assert_eq!(of(grant(8, 200, 600), receipt(8, 200)), 200);
}

#[test]
fn what_was_sent_without_an_answer_counts_until_a_higher_serial_is_seen() {
    let held = GrantAccount::observed(grant(7, 200, 200), receipt(7, 200));
    assert_eq!((held.is_awaited(), held.has_strayed(range())), (false, false));
    let sent = |watts, ceiling| [Grant { serial: 8, watts: w(watts), ceiling: w(ceiling) }];
    let more = held.after_sending(&sent(350, 350));
    assert_eq!(
        (count(more), more.is_proven(), more.is_awaited(), more.has_strayed(range())),
        (350, false, true, true)
    );
    let less = held.after_sending(&sent(150, 200));
    assert_eq!((count(less), less.has_strayed(range())), (200, true));
    assert!(!held.after_sending(&sent(200, 200)).has_strayed(range()));
    // Sent before the receipt of 7 arrived, when 450 W could still be in force: with it that ceiling would
    // land.
    assert_eq!(count(held.after_sending(&sent(150, 450))), 450);
    assert_eq!(count(GrantAccount::observed(grant(7, 200, 200), None).after_sending(&sent(300, 300))), 600);
    assert_eq!(held.after_sending(&[]), held);
}

#[test]
fn what_the_devices_refuse_is_seen_as_long_as_they_do() {
    let refuses = GrantAccount::observed(grant(3, 200, 200), receipt(3, 240));
    assert_eq!(refuses.refused_below(), Some(w(240)));
    assert!(refuses.is_as_low_as(w(220)) && !refuses.is_as_low_as(w(190)) && !refuses.is_as_low_as(w(250)));
    let fits = GrantAccount::observed(grant(3, 200, 200), receipt(3, 190));
    assert_eq!(fits.refused_below(), Some(Watts::ZERO));
    assert_eq!(
        GrantAccount::observed(grant(4, 150, 200), receipt(3, 240)).refused_below(),
        Some(Watts::ZERO),
        "not asked yet"
    );
    // The floor that the node reported counts although nothing lower is asked now.
    let floor = Some(GrantReceipt { serial: 3, holds: w(300), floor: w(240), yields: None });
    assert_eq!(GrantAccount::observed(grant(3, 300, 300), floor).refused_below(), Some(w(240)));
}

#[test]
fn what_a_node_yields_counts_no_more_until_it_is_granted_again() {
    let said = |serial, holds, left| {
        let yields = Some(w(left));
        Some(GrantReceipt { yields, ..receipt(serial, holds).unwrap() })
    };
    let seen = |grant, receipt| GrantAccount::observed(grant, receipt);
    let yielded = seen(grant(7, 400, 450), said(7, 240, 250));
    assert_eq!((count(yielded), yielded.asked(), yielded.is_proven()), (250, Some(w(250)), true));
    assert_eq!(of(grant(7, 400, 450), said(7, 300, 250)), 300, "the devices hold more");
    // The next grant may find the node at what it has left, or at that grant itself.
    assert_eq!(yielded.ceiling_of(w(350), range()), w(350));
    assert_eq!(yielded.ceiling_of(w(150), range()), w(250));
    // Granted again: the yield was of the serial before.
    let again = seen(grant(8, 350, 350), said(7, 240, 250));
    assert_eq!((count(again), again.asked(), again.is_only_raised()), (350, Some(w(350)), true));
    // A yield of a later serial, in another boot, of nothing, of more than the grant.
    assert_eq!(of(grant(6, 400, 450), said(7, 240, 250)), 600);
    assert_eq!(of(grant(7, 400, 450), None), 600);
    assert_eq!(of(grant(7, 400, 450), said(7, 240, -1)), 400);
    assert_eq!(of(grant(7, 400, 450), said(7, 240, 500)), 400);
    // What was sent before the yield was known may still land.
    let sent = Grant { serial: 8, watts: w(380), ceiling: w(400) };
    assert_eq!(count(yielded.after_sending(&[sent])), 400);
}
