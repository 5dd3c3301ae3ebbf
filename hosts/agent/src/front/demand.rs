//! When a node tells what it wants to draw: at once when its grant begins to hold it back, with each receipt that is written
//! anyway, and otherwise when it has changed much for long. A steady node tells nothing.

use super::receipt::Receipt;
use host_kit::clock::Mono;
use joulie_api::node_power_grant::{GrantDemand, ThrottleEvidence};
use joulie_core::budget::demand::{DemandReport, is_news};
use joulie_core::node::demand::BiteSource;
use node_kit::NodeWants;
use power_units::Micros;

/// What was told last.
#[derive(Clone, Debug, Default)]
pub(crate) struct DemandTeller {
    told: Option<Told>,
    /// By what the last bite was seen.
    seen: Option<BiteSource>,
    /// The receipt that it was told with.
    receipt: Option<Receipt>,
}

#[derive(Clone, Copy, Debug)]
struct Told {
    report: Option<DemandReport>,
    by: Option<BiteSource>,
    at: Mono,
}

impl DemandTeller {
    /// What to tell now with this receipt; `None` while the demand is not known.
    pub(crate) fn of(
        &mut self,
        wants: &NodeWants,
        receipt: Option<&Receipt>,
        now: Mono,
    ) -> Option<GrantDemand> {
        self.seen = wants.bite.or(self.seen);
        let before = self.told.and_then(|told| told.report);
        let ago = self.told.map_or(Micros::MAX, |told| {
            Micros::new(u64::try_from(now.since(told.at).as_micros()).unwrap_or(u64::MAX))
        });
        let is_written = self.receipt.as_ref() != receipt;
        if is_written || is_news(wants.report.as_ref(), before.as_ref(), ago) {
            self.receipt = receipt.cloned();
            let by = self.seen.filter(|_| wants.report.is_some_and(|report| report.bites()));
            self.told = Some(Told { report: wants.report, by, at: now });
        }
        let told = self.told?;
        Some(GrantDemand::of(&told.report?, told.by.map(evidence)))
    }
}

const fn evidence(by: BiteSource) -> ThrottleEvidence {
    match by {
        BiteSource::Counter => ThrottleEvidence::Counter,
        BiteSource::Instant => ThrottleEvidence::Instant,
        BiteSource::Drawn => ThrottleEvidence::Drawn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use power_units::Watts;
    use std::time::Duration;

    fn wants(watts: i32, bites: bool) -> NodeWants {
        NodeWants {
            report: DemandReport::new(&[Watts::from_int(watts)], bites).ok(),
            bite: bites.then_some(BiteSource::Drawn),
            ..NodeWants::default()
        }
    }

    /// The highest demand that is told, and whether the node bites.
    fn told(teller: &mut DemandTeller, wants: &NodeWants, millis: u64) -> Option<(f64, bool)> {
        let told = teller.of(wants, None, Mono::at(Duration::from_millis(millis)))?;
        Some((told.quantiles_watts[0].get(), told.biting))
    }

    #[test]
    fn a_steady_node_tells_its_demand_once_and_a_change_when_it_has_stood() {
        let mut it = DemandTeller::default();
        assert_eq!(told(&mut it, &NodeWants::default(), 0), None, "nothing is known");
        assert_eq!(told(&mut it, &wants(1000, false), 1_000), Some((1000.0, false)));
        for second in 2..600 {
            // 4 % are within the smallest band.
            let about = wants(1000 + i32::from(second % 2 == 0) * 40, false);
            assert_eq!(told(&mut it, &about, second * 1000), Some((1000.0, false)), "at {second} s");
        }
        assert_eq!(told(&mut it, &wants(500, false), 600_000), Some((500.0, false)), "half of it");
        assert_eq!(told(&mut it, &wants(1000, false), 629_900), Some((500.0, false)), "too soon");
        assert_eq!(told(&mut it, &wants(1000, false), 630_000), Some((1000.0, false)));
    }

    #[test]
    fn a_bite_is_told_at_once_and_its_end_is_not() {
        let mut it = DemandTeller::default();
        assert_eq!(told(&mut it, &wants(1000, false), 0), Some((1000.0, false)));
        let bite = it.of(&wants(1500, true), None, Mono::at(Duration::from_millis(100))).unwrap();
        assert_eq!((bite.biting, bite.throttled_by), (true, Some(ThrottleEvidence::Drawn.into())));
        assert_eq!(told(&mut it, &wants(1000, false), 200), Some((1500.0, true)));
        assert_eq!(told(&mut it, &wants(1500, true), 300), Some((1500.0, true)), "it is told already");
        assert_eq!(told(&mut it, &wants(1000, false), 30_000), Some((1500.0, true)), "it may come back");
        let ended = it.of(&wants(1000, false), None, Mono::at(Duration::from_millis(30_100))).unwrap();
        assert_eq!((ended.biting, ended.throttled_by), (false, None));
    }

    #[test]
    fn a_receipt_that_is_written_carries_the_demand_of_that_moment() {
        let receipt = |serial| Receipt {
            serial,
            boot: "b-1".to_owned(),
            node: "n-1".to_owned(),
            holds: None,
            floor: None,
            armed: Vec::new(),
        };
        let mut it = DemandTeller::default();
        let mut told = |watts, serial| {
            let demand =
                it.of(&wants(watts, false), Some(&receipt(serial)), Mono::at(Duration::from_secs(1)))?;
            Some(demand.quantiles_watts[0].get())
        };
        assert_eq!(told(1000, 1), Some(1000.0));
        assert_eq!(told(1200, 1), Some(1000.0));
        assert_eq!(told(1200, 2), Some(1200.0));
        assert_eq!(told(1300, 2), Some(1200.0));
    }

    #[test]
    fn a_demand_that_is_not_known_any_more_is_no_demand() {
        let mut it = DemandTeller::default();
        assert_eq!(told(&mut it, &wants(1000, true), 0), Some((1000.0, true)));
        assert_eq!(told(&mut it, &NodeWants::default(), 1_000), Some((1000.0, true)), "too soon");
        assert_eq!(told(&mut it, &NodeWants::default(), 2_000), None);
        assert_eq!(told(&mut it, &wants(1000, true), 2_100), Some((1000.0, true)), "a bite");
    }
}
