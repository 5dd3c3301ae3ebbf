use super::*;
use crate::node::cap::{CapRange, DesiredCap, Floor};
use power_units::{Micros, Percent};

fn w(watts: i32) -> Watts {
    Watts::from_int(watts)
}

fn at(second: u64) -> Stamp {
    Stamp::new(Micros::new(second * 1_000_000))
}

/// A GPU from 100 to 400 W with this limit.
fn holder(limit: Option<i32>) -> Holder {
    let range = CapRange::new(Some(w(100)), Some(w(400)), None);
    Holder::capped(range, Floor::NONE, DesiredCap::Gone, limit.map(w))
}

fn draw(watts: i32, throttled: ThrottleReading) -> DeviceDraw {
    DeviceDraw { watts: Some(w(watts)), throttled }
}

fn bite(draw: DeviceDraw, limit: Option<i32>) -> Option<BiteSource> {
    let mut demand = DeviceDemand::UNKNOWN;
    demand.draws(draw);
    assert!(!demand.learn(at(1), &holder(limit)));
    demand.bite()
}

#[test]
fn a_device_bites_where_its_limit_holds_it_back_and_it_could_have_more() {
    use ThrottleReading::{Counted, Instant, Lacking, Unknown};
    let percent = |count| Counted(Percent::from_int(count));
    for (watts, throttled, limit, expected) in [
        // Without a better sign: 97 % of 300 W are 291 W.
        (292, Lacking, Some(300), Some(BiteSource::Drawn)),
        (290, Lacking, Some(300), None),
        // A counter is better than that, also where it says no.
        (290, percent(10), Some(300), Some(BiteSource::Counter)),
        (300, percent(9), Some(300), None),
        (300, Unknown, Some(300), None),
        (200, Instant(true), Some(300), Some(BiteSource::Instant)),
        (300, Instant(false), Some(300), None),
        // At the device's own maximum, and where no limit is known.
        (400, percent(100), Some(400), None),
        (400, Lacking, None, None),
    ] {
        assert_eq!(bite(draw(watts, throttled), limit), expected, "{watts} W, {throttled:?}, {limit:?}");
    }
    let unmetered = DeviceDraw { watts: None, throttled: percent(100) };
    assert_eq!(bite(unmetered, Some(300)), None, "how much it draws is not known");
}

#[test]
fn what_was_read_once_counts_once_and_a_demand_of_long_ago_is_unknown() {
    let mut demand = DeviceDemand::UNKNOWN;
    demand.draws(draw(200, ThrottleReading::Lacking));
    demand.learn(at(1), &holder(Some(300)));
    // 200 W with 3 % and 10 W.
    assert_eq!(demand.report().map(DemandReport::highest), Some(w(216)));
    demand.learn(at(2), &holder(Some(300)));
    assert_eq!(demand.drawn(), None);
    assert!(demand.report().is_some());
    demand.learn(at(12), &holder(Some(300)));
    assert_eq!(demand.report(), None);
}

#[test]
fn a_node_bites_only_where_a_device_bites_that_has_its_share() {
    let mut demand = DeviceDemand::UNKNOWN;
    demand.draws(draw(250, ThrottleReading::Lacking));
    demand.learn(at(1), &holder(Some(250)));
    let of = |share: Option<i32>, watts: Option<i32>| {
        let mut sum = DemandSum::NOTHING;
        sum.add(&holder(Some(250)), Some(&demand), share.map(w));
        sum.add(&Holder::uncapped(Some(w(90))), None, None);
        let mut node = NodeDemand::UNKNOWN;
        node.learn(at(1), &sum, watts.map(w));
        (node.bite(), node.report().map(|report| (report.highest(), report.bites())))
    };
    // 250 W throttled are taken for 375 W; what cannot be capped is added.
    let bitten = (Some(BiteSource::Drawn), Some((w(465), true)));
    assert_eq!(of(Some(250), Some(340)), bitten);
    // A limit that is to be raised is no lack of watts: 250 W with 3 % and 10 W.
    assert_eq!(of(Some(300), Some(340)), (None, Some((w(358), false))));
    // Nor is one that no budget has set.
    assert_eq!(of(None, None), (None, Some((w(358), false))));
}

#[test]
fn a_device_says_that_its_limit_holds_it_back_only_for_a_tenth_of_a_period() {
    use ThrottleReading::{Counted, Instant, Lacking, Unknown};
    let counted = |percent| Counted(Percent::from_int(percent)).says_held();
    assert!(counted(100) && counted(10) && Instant(true).says_held());
    assert!(!counted(9) && !counted(0) && !Instant(false).says_held());
    assert!(!Lacking.says_held() && !Unknown.says_held(), "what is not known is no good news");
}
