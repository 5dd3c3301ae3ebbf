use super::*;
use proptest::prelude::*;
use std::vec::Vec;

fn w(watts: i32) -> Watts {
    Watts::from_int(watts)
}

fn capped(count: u32, floor: i32, want: i32) -> Holder {
    let max = Some(w(want));
    Holder { count, capped: true, floor: w(floor), want: Some(w(want)), max, in_force: max, ..Holder::NONE }
}

fn uncapped(count: u32, max: Option<i32>) -> Holder {
    Holder { count, max: max.map(w), ..Holder::NONE }
}

fn divide(watts: Watts, holders: &mut [Holder]) {
    let mut division = Division::of(watts);
    holders.iter().for_each(|holder| division.count(holder));
    holders.iter_mut().for_each(|holder| holder.share = division.even(holder));
}

fn pace(watts: Watts, holders: &mut [Holder]) {
    let mut division = Division::of(watts);
    holders.iter().for_each(|holder| division.count(holder));
    holders.iter_mut().for_each(|holder| holder.may = division.pace(holder));
}

fn shares(watts: i32, holders: &[Holder]) -> Vec<Watts> {
    let mut holders = holders.to_vec();
    divide(w(watts), &mut holders);
    holders.iter().map(|holder| holder.share).collect()
}

fn sum(holders: &[Holder], each: impl Fn(&Holder) -> Watts) -> Watts {
    holders.iter().map(|holder| each(holder).times(holder.count)).fold(Watts::ZERO, |sum, part| sum + part)
}

#[test]
fn what_is_above_the_floors_is_divided_by_the_way_to_what_is_wanted() {
    // Two packages from 100 to 250 W, four GPUs from 200 to 400 W: floors 1000 W, spans 300 and 800 W. Of 1550 W half
    // of each span is left: 175 and 300 W.
    let node = [capped(2, 100, 250), capped(4, 200, 400)];
    assert_eq!(shares(1550, &node), [w(175), w(300)]);
    // A third of the spans is 366.67 W: 150 and 266.67 W, rounded down to whole watts.
    assert_eq!(shares(1366, &node), [w(149), w(266)]);
    assert_eq!(shares(2100, &node), [w(250), w(400)], "all that is wanted");
    assert_eq!(shares(9000, &node), [w(250), w(400)], "and no more");
    for short in [1000, 999, 0, -5] {
        assert_eq!(shares(short, &node), [w(100), w(200)], "a floor is not undercut");
    }
}

#[test]
fn what_nobody_can_cap_counts_with_the_most_that_it_draws_before_anything_is_divided() {
    let node = [capped(2, 100, 250), uncapped(2, Some(75))];
    // The uncapped ones take 150 W of 500 W, so 150 W are left above the floors: half of the span.
    assert_eq!(shares(500, &node), [w(175), w(75)]);
    assert_eq!(shares(500, &[capped(2, 100, 250), uncapped(2, None)])[0], w(250), "nobody knows how much");
    let unknown = Holder { want: None, max: None, ..capped(1, 50, 0) };
    // The unknown one wants all 450 W: a span of 400 W beside one of 150 W; 300 W are left for 550 W.
    assert_eq!(shares(450, &[unknown, capped(1, 100, 250)]), [w(268), w(181)]);
}

#[test]
fn two_dies_of_a_package_have_its_watts_once() {
    // Before, each die had the 200 W of the package: 400 W in force for 200 W granted.
    let dies = [capped(1, 50, 200), capped(1, 50, 200)];
    assert_eq!(shares(200, &dies), [w(100), w(100)]);
}

/// What a device wants that reports this, from the highest level down; the last number counts for the others.
fn wants(watts: &[i32]) -> Option<DemandReport> {
    let watts: Vec<Watts> = watts.iter().map(|&watts| w(watts)).collect();
    Some(DemandReport::new(&watts, false).unwrap())
}

/// What a device wants that its limit throttles.
fn bites(watts: &[i32]) -> Option<DemandReport> {
    let watts: Vec<Watts> = watts.iter().map(|&watts| w(watts)).collect();
    Some(DemandReport::new(&watts, true).unwrap())
}

/// A holder, what it wants, and the share that it has.
type Asking = (Holder, Option<DemandReport>, Option<i32>);

fn needs(all: &[Asking]) -> impl Iterator<Item = (Holder, Need<'_>)> {
    all.iter().map(|(holder, report, standing)| {
        (*holder, Need { report: report.as_ref(), standing: standing.map(w) })
    })
}

fn by_demand(watts: i32, all: &[Asking]) -> Vec<Watts> {
    let mut division = Division::of(w(watts));
    all.iter().for_each(|(holder, _, _)| division.count(holder));
    let split = division.split(|| needs(all));
    needs(all).map(|(holder, need)| division.share(&holder, &need, &split)).collect()
}

fn gpu() -> Holder {
    capped(1, 100, 700)
}

#[test]
fn one_busy_gpu_gets_what_the_others_do_not_need() {
    // The even share is 200 W. All that the first may have, 700 W, is too much beside three floors; it asks for 300 W,
    // which leaves 200 W, and these are its.
    let idle = (gpu(), wants(&[93]), Some(200));
    let four = [(gpu(), bites(&[300]), Some(200)), idle, idle, idle];
    assert_eq!(by_demand(800, &four), [500, 100, 100, 100].map(w));
    // Of eight with 2400 W the busy one gets its maximum, and the others a seventh of 1700 W.
    let mut eight = [(gpu(), wants(&[93]), Some(300)); 8];
    eight[3].1 = bites(&[450]);
    let shares = [242, 242, 242, 700, 242, 242, 242, 242].map(w);
    assert_eq!(by_demand(2400, &eight), shares);
    // Nobody is throttled: nobody needs another division than the even one.
    eight[3].1 = wants(&[290]);
    assert_eq!(by_demand(2400, &eight), [w(300); 8]);
}

#[test]
fn where_not_all_demand_fits_each_is_held_below_its_own_for_the_same_part_of_the_time() {
    // The even share is 250 W. 600, 580, 560 and 520 W are too much; at the fifth level 480 W are asked for. Half of the
    // way back to the fourth fits.
    let swings = (capped(1, 50, 500), wants(&[400, 380, 360, 320, 280, 200, 120, 60]), None);
    let steady = (capped(1, 50, 500), wants(&[200]), None);
    assert_eq!(by_demand(500, &[swings, steady]), [w(300), w(200)]);
}

#[test]
fn where_even_the_lowest_demand_is_too_much_those_above_their_even_share_are_cut_alike() {
    // The even share is 300 W.
    let (busy, idle) = ((gpu(), bites(&[700]), Some(300)), (gpu(), wants(&[93]), Some(300)));
    assert_eq!(by_demand(900, &[busy, busy, idle]), [400, 400, 100].map(w));
    assert_eq!(by_demand(900, &[busy, busy, busy]), [w(300); 3], "everybody wants everything");
    for short in [300, 299, 0, -5] {
        assert_eq!(by_demand(short, &[busy, busy, idle]), [w(100); 3], "a floor is not undercut");
    }
}

#[test]
fn a_throttled_device_has_its_even_share_whatever_others_ask() {
    // The even share is 400 W; the first asks for 250 W, or for 600 W.
    let greedy = (gpu(), wants(&[600]), Some(600));
    assert_eq!(by_demand(800, &[(gpu(), bites(&[250, 120]), Some(200)), greedy]), [w(250), w(550)]);
    assert_eq!(by_demand(800, &[(gpu(), bites(&[600, 120]), Some(200)), greedy]), [w(400), w(400)]);
}

#[test]
fn a_device_whose_demand_is_unknown_keeps_its_share_unless_others_lack_theirs() {
    // The even share is 333 W.
    let (busy, idle) = ((gpu(), bites(&[700]), Some(300)), (gpu(), wants(&[50]), Some(200)));
    assert_eq!(by_demand(1000, &[(gpu(), None, Some(500)), busy, idle]), [500, 400, 100].map(w));
    // A small share of it is as good as none: it gets the even one.
    assert_eq!(by_demand(1000, &[(gpu(), None, Some(120)), busy, idle]), [333, 567, 100].map(w));
    // 500 W would leave 250 W for each of two that are entitled to 333 W.
    assert_eq!(by_demand(1000, &[(gpu(), None, Some(500)), busy, busy]), [w(333); 3]);
    let unknown = (gpu(), None, Some(500));
    assert_eq!(by_demand(1000, &[unknown; 3]), [w(333); 3], "nothing is known of anybody");
}

#[test]
fn devices_under_one_limit_count_with_their_number() {
    // As a node over HTTP: two packages that draw 250 W each, and four GPUs that want 216 W.
    let cpu = (capped(2, 80, 250), wants(&[250]), None);
    let gpus = (capped(4, 200, 400), wants(&[216]), None);
    assert_eq!(by_demand(1550, &[cpu, gpus]), [w(250), w(262)]);
    // Even shares are 105 and 229 W. The packages have what 864 W for the GPUs leave.
    assert_eq!(by_demand(1130, &[cpu, gpus]), [w(133), w(216)]);
}

#[test]
fn a_share_is_changed_for_a_throttled_device_that_gains_more_than_the_band() {
    let mut division = Division::of(w(800));
    let four = [gpu(); 4];
    four.iter().for_each(|holder| division.count(holder));
    let (report, idle) = (bites(&[300]), wants(&[93]));
    let short = |standing: i32| {
        let need = Need { report: report.as_ref(), standing: Some(w(standing)) };
        division.is_short(&gpu(), &need)
    };
    assert_eq!(short(150), (true, true), "less than its 200 W");
    assert_eq!(short(197), (true, false));
    assert_eq!(short(294), (true, false), "2 % of 294 W are 5.88 W");
    assert_eq!(short(295), (false, false));
    let content = Need { report: idle.as_ref(), standing: Some(w(100)) };
    assert_eq!(division.is_short(&gpu(), &content), (false, false));
    let stands =
        |standing: Option<i32>| division.can_stand(&gpu(), &Need { report: None, standing: standing.map(w) });
    assert_eq!(
        [None, Some(99), Some(100), Some(700), Some(701)].map(stands),
        [false, false, true, true, false]
    );
}

#[test]
fn what_rises_waits_until_what_falls_is_read_back() {
    let mut node = [capped(1, 50, 300), capped(1, 50, 300)];
    (node[0].share, node[1].share) = (w(100), w(300));
    (node[0].in_force, node[1].in_force) = (Some(w(300)), Some(w(100)));
    pace(w(400), &mut node);
    assert_eq!([node[0].may, node[1].may], [w(100), w(100)]);
    (node[0].ordered, node[0].highest_order) = (Some(w(100)), Some(w(100)));
    pace(w(400), &mut node);
    assert_eq!(node[1].may, w(100), "ordered, and not read back");
    node[0].in_force = Some(w(100));
    pace(w(400), &mut node);
    assert_eq!([node[0].may, node[1].may], [w(100), w(300)]);
    // An order of 300 W that is on its way counts, whatever the reading is.
    (node[0].ordered, node[0].highest_order) = (Some(w(300)), Some(w(300)));
    pace(w(400), &mut node);
    assert_eq!(node[1].may, w(100));
    // So does one that may have been carried out before the next was given.
    node[0].ordered = Some(w(100));
    pace(w(400), &mut node);
    assert_eq!(node[1].may, w(100));
    (node[0].in_force, node[0].ordered, node[0].highest_order, node[0].max) = (None, None, None, None);
    pace(w(400), &mut node);
    assert_eq!([node[0].may, node[1].may], [w(100), w(100)], "of one nothing is known at all");
}

#[test]
fn what_is_free_is_given_once() {
    let mut node = [capped(1, 50, 100), capped(1, 50, 150), capped(1, 50, 150)];
    for (holder, (share, held)) in node.iter_mut().zip([(100, 250), (150, 50), (150, 50)]) {
        (holder.share, holder.in_force, holder.max) = (w(share), Some(w(held)), Some(w(300)));
    }
    pace(w(400), &mut node);
    assert_eq!(node.map(|holder| holder.may), [w(100), w(100), w(50)], "the first is not lowered yet");
}

#[test]
fn a_device_wants_what_the_policy_asks_of_it_and_what_takes_no_cap_counts_as_it_is() {
    let range = CapRange::new(Some(w(100)), Some(w(400)), None);
    let half = DesiredCap::Cap(CapIntent::of_percent(Percent::from_int(50)));
    let of = |range, floor, desired| Holder::capped(range, floor, desired, Some(w(300)));
    let is = |holder: Holder| (holder.capped, holder.floor, holder.want);
    assert_eq!(is(of(range, Floor::NONE, half)), (true, w(100), Some(w(200))));
    for nothing in [DesiredCap::Unknown, DesiredCap::Gone, DesiredCap::Cap(CapIntent::NONE)] {
        assert_eq!(is(of(range, Floor::NONE, nothing)), (true, w(100), Some(w(400))));
        assert_eq!(is(of(range.below(Some(w(350))), Floor::NONE, nothing)).2, Some(w(350)), "its owner's");
        assert_eq!(is(of(CapRange::UNKNOWN, Floor::NONE, nothing)), (true, w(1), None));
    }
    let floor = |watts| Floor::new(w(watts)).unwrap();
    assert_eq!(is(of(range, floor(250), half)), (true, w(250), Some(w(250))));
    assert_eq!(of(range, floor(500), half), Holder::uncapped(Some(w(400))), "no cap may be as low");
    assert_eq!(of(range.below(Some(w(80))), Floor::NONE, half), Holder::uncapped(Some(w(80))));
}

/// Hardware that carries out orders late, or not at all.
#[derive(Clone, Debug)]
struct Device {
    holder: Holder,
    limit: Watts,
    order: Option<Watts>,
    is_read: bool,
    report: Option<DemandReport>,
}

impl Device {
    /// The order is carried out and confirmed; the limit was not read since.
    fn carry_out(&mut self, order: Watts) {
        self.limit = order;
        self.holder.highest_order = Some(order);
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Grant(i32),
    /// The order of a device is carried out.
    Lands(usize),
    /// The order of a device is carried out, and nothing confirms it.
    LandsUnheard(usize),
    /// The order of a device is refused.
    Refused(usize),
    /// The limit of a device is read.
    Read(usize),
    /// A device reports a demand, and whether its limit throttles it.
    Asks(usize, i32, bool),
    Step,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let one = prop_oneof![
        1 => (0..2000).prop_map(Event::Grant),
        4 => (0..4_usize).prop_map(Event::Lands),
        1 => (0..4_usize).prop_map(Event::LandsUnheard),
        1 => (0..4_usize).prop_map(Event::Refused),
        4 => (0..4_usize).prop_map(Event::Read),
        3 => (0..4_usize, 0..600, any::<bool>()).prop_map(|(at, watts, bites)| Event::Asks(at, watts, bites)),
        6 => Just(Event::Step),
    ];
    proptest::collection::vec(one, 1..120)
}

fn devices() -> impl Strategy<Value = Vec<Device>> {
    let one = (1..3_u32, 0..100, 0..400, any::<bool>()).prop_map(|(count, floor, way, is_read)| {
        let holder = Holder { in_force: None, ..capped(count, floor, floor + way) };
        Device { holder, limit: w(floor + way), order: None, is_read, report: None }
    });
    proptest::collection::vec(one, 1..4)
}

/// One step of the agent, with laws that order at once.
fn step(watts: Watts, devices: &mut [Device]) {
    let mut holders: Vec<Holder> = devices.iter().map(|device| device.holder).collect();
    let mut division = Division::of(watts);
    holders.iter().for_each(|holder| division.count(holder));
    let all: Vec<Asking> = devices.iter().map(|device| (device.holder, device.report, None)).collect();
    let split = division.split(|| needs(&all));
    for (holder, (_, report, _)) in holders.iter_mut().zip(&all) {
        let need = Need { report: report.as_ref(), standing: None };
        let share = division.share(holder, &need, &split);
        let (share, may) = division.give(holder, share);
        assert_eq!((share, may), (Some(holder.share), Some(holder.may)));
    }
    for (device, holder) in devices.iter_mut().zip(holders) {
        device.holder = holder;
        // As the actuations do: one order at a time, and none for a limit that is in force and confirmed.
        let confirmed = (holder.ordered, holder.highest_order) == (Some(holder.may), Some(holder.may));
        if device.order.is_none() && !(confirmed && holder.in_force == Some(holder.may)) {
            device.order = Some(holder.may);
            device.holder.ordered = Some(holder.may);
            device.holder.highest_order = device.holder.highest_order.max(Some(holder.may));
        }
    }
}

/// What the devices count for together.
fn counted(devices: &[Device]) -> Watts {
    devices
        .iter()
        .filter_map(|it| Some(it.holder.held()?.times(it.holder.count)))
        .fold(Watts::ZERO, |sum, all| sum + all)
}

proptest! {
    #[test]
    fn no_sum_of_shares_is_above_the_grant_unless_the_floors_are(
        watts in -10..3000_i32,
        parts in proptest::collection::vec((any::<bool>(), 0..5_u32, 0..300_i32, 0..500_i32, 0..3_u8), 0..8),
    ) {
        let holder = |&(is_capped, count, floor, way, known): &(bool, u32, i32, i32, u8)| Holder {
            capped: is_capped,
            want: (known > 0).then(|| w(floor + way)),
            max: (known > 1).then(|| w(floor + way)),
            ..capped(count, floor, floor + way)
        };
        let mut holders: Vec<Holder> = parts.iter().map(holder).collect();
        divide(w(watts), &mut holders);
        let least = sum(&holders, |it| if it.capped { it.floor } else { it.max.unwrap_or(Watts::ZERO) });
        prop_assert!(sum(&holders, |it| it.share) <= w(watts).max(least));
        for holder in holders.iter().filter(|holder| holder.capped) {
            prop_assert!(holder.share >= holder.floor);
            prop_assert!(holder.want.is_none_or(|want| holder.share <= want.max(holder.floor)));
        }
    }

    #[test]
    fn no_sum_of_shares_by_demand_is_above_the_grant_and_the_order_changes_nothing(
        watts in 0..3000_i32,
        parts in proptest::collection::vec(
            (0..4_u32, 0..300_i32, 1..500_i32, proptest::option::of(0..900_i32), any::<bool>(), 0..9_i32),
            1..8,
        ),
    ) {
        let asking = |&(count, floor, way, highest, is_bitten, fall): &(u32, i32, i32, Option<i32>, bool, i32)| {
            let level = |highest: i32, level: i32| w(highest - highest * level * fall / 64);
            let levels: Vec<Watts> =
                highest.map_or_else(Vec::new, |highest| (0..8).map(|at| level(highest, at)).collect());
            let report = DemandReport::new(&levels, is_bitten).ok();
            (capped(count, floor, floor + way), report, None)
        };
        let mut all: Vec<Asking> = parts.iter().map(asking).collect();
        let shares = by_demand(watts, &all);
        let mut division = Division::of(w(watts));
        all.iter().for_each(|(holder, _, _)| division.count(holder));
        let floors = sum(&all.iter().map(|(holder, _, _)| *holder).collect::<Vec<_>>(), |it| it.floor);
        let given = all.iter().zip(&shares).map(|((holder, _, _), share)| share.times(holder.count));
        prop_assert!(given.fold(Watts::ZERO, |sum, all| sum + all) <= w(watts).max(floors));
        for ((holder, report, _), share) in all.iter().zip(&shares) {
            prop_assert!(*share >= holder.floor && Some(*share) <= holder.want);
            // Who is throttled has what it is entitled to, but for the rounding.
            if let Some(report) = report.as_ref().filter(|report| report.bites()) {
                let entitled = report.highest().min(division.even(holder)).max(holder.floor);
                prop_assert!(*share > entitled - w(1), "{share} of {entitled}");
            }
        }
        all.reverse();
        let mut reversed = by_demand(watts, &all);
        reversed.reverse();
        prop_assert_eq!(reversed, shares);
    }

    #[test]
    fn no_limits_in_force_are_above_the_grant_together_once_they_were_below(
        devices in devices(),
        events in events(),
    ) {
        let mut devices = devices;
        let devices = &mut devices;
        let mut watts = w(1000);
        // What the devices count for never rises above the grant, and no limit in force is above what its device counts
        // for: a late, lost or refused order may leave it lower.
        let mut bound = counted(devices);
        for event in events {
            match event {
                Event::Grant(to) => watts = w(to),
                Event::Lands(at) => {
                    if let Some(device) = devices.get_mut(at) && let Some(order) = device.order.take() {
                        device.carry_out(order);
                    }
                }
                Event::Refused(at) => {
                    if let Some(device) = devices.get_mut(at) {
                        device.order = None;
                    }
                }
                Event::LandsUnheard(at) => {
                    if let Some(device) = devices.get_mut(at) && let Some(order) = device.order.take() {
                        device.limit = order;
                    }
                }
                Event::Read(at) => {
                    if let Some(device) = devices.get_mut(at).filter(|device| device.is_read) {
                        device.holder.in_force = Some(device.limit);
                    }
                }
                Event::Asks(at, highest, bites) => {
                    if let Some(device) = devices.get_mut(at) {
                        device.report = DemandReport::new(&[w(highest), w(highest / 2)], bites).ok();
                    }
                }
                Event::Step => step(watts, devices),
            }
            for device in devices.iter() {
                prop_assert!(device.holder.held() >= Some(device.limit), "{device:?}");
            }
            let floors = devices.iter().fold(w(0), |sum, it| sum + it.holder.floor.times(it.holder.count));
            let now = counted(devices);
            prop_assert!(now <= bound.max(watts.max(floors)), "{now:?} above {bound:?}");
            bound = now;
        }
        // With hardware that obeys, every device reaches its share.
        for device in devices.iter_mut() {
            device.is_read = true;
        }
        for _ in 0..20 {
            step(watts, devices);
            for device in devices.iter_mut() {
                if let Some(order) = device.order.take() {
                    device.carry_out(order);
                }
                device.holder.in_force = Some(device.limit);
            }
        }
        for device in devices.iter() {
            prop_assert_eq!(device.limit, device.holder.share);
        }
    }
}
