//! When a node tells what it holds and what it wants to draw, both with one write: a receipt that lowers what the node counts
//! at once, and a bite at once; the demand otherwise when it has changed much for long. The receipt of a mere raise changes
//! nothing that counts, and waits for the next of these, but not for long. A steady node tells nothing.

use super::receipt::Receipt;
use host_kit::clock::Mono;
use joulie_api::node_power_grant::{GrantDemand, ThrottleEvidence};
use joulie_core::budget::demand::{DemandReport, is_news};
use joulie_core::node::demand::BiteSource;
use node_kit::NodeWants;
use power_units::{Micros, Watts};
use std::time::Duration;

/// What was told last.
#[derive(Clone, Debug, Default)]
pub(crate) struct GrantTeller {
    told: Option<Told>,
    /// By what the last bite was seen.
    seen: Option<BiteSource>,
    /// The receipt that it was told with.
    receipt: Option<Receipt>,
    /// Since when another receipt waits.
    waits: Option<Mono>,
}

/// For how long the receipt of a raise waits: meanwhile the operator raises the node only towards its entitlement.
const WAITS: Duration = Duration::from_secs(120);
/// The same while the node is throttled at the new grant: by then the last seconds say nothing of the one before.
const BITING_WAITS: Duration = Duration::from_secs(40);

/// What is known of the grant to which a receipt belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GrantNow {
    pub(crate) watts: Watts,
    /// The receipt lowers nothing that is counted, see [`GrantRow`](super::rows::GrantRow).
    pub(crate) is_highest: bool,
}

#[derive(Clone, Copy, Debug)]
struct Told {
    report: Option<DemandReport>,
    by: Option<BiteSource>,
    at: Mono,
}

impl GrantTeller {
    /// The receipt to tell now, and the demand with it; `None` while that is not known. `grant` is the one that is followed.
    pub(crate) fn of(
        &mut self,
        wants: &NodeWants,
        receipt: Option<Receipt>,
        grant: Option<GrantNow>,
        now: Mono,
    ) -> (Option<Receipt>, Option<GrantDemand>) {
        self.seen = wants.bite.or(self.seen);
        let before = self.told.and_then(|told| told.report);
        let ago = self.told.map_or(Micros::MAX, |told| {
            Micros::new(u64::try_from(now.since(told.at).as_micros()).unwrap_or(u64::MAX))
        });
        let cap = grant.map(|grant| grant.watts);
        let bites = wants.report.is_some_and(|report| report.bites());
        let longest = if bites { BITING_WAITS } else { WAITS };
        let is_due = self.is_due(receipt.as_ref(), grant, before.map(|_| longest), now);
        if is_due || is_news(wants.report.as_ref(), before.as_ref(), ago, cap) {
            (self.receipt, self.waits) = (receipt, None);
            let by = self.seen.filter(|_| wants.report.is_some_and(|report| report.bites()));
            self.told = Some(Told { report: wants.report, by, at: now });
        }
        let demand = self.told.and_then(|told| Some(GrantDemand::of(&told.report?, told.by.map(evidence))));
        (self.receipt.clone(), demand)
    }

    /// Whether a receipt must be written for its own sake now. `waits` is for how long one may wait; without it, none may.
    fn is_due(
        &mut self,
        receipt: Option<&Receipt>,
        grant: Option<GrantNow>,
        waits: Option<Duration>,
        now: Mono,
    ) -> bool {
        if self.receipt.as_ref() == receipt {
            self.waits = None;
            return false;
        }
        let known = receipt.zip(self.receipt.as_ref()).zip(grant).zip(waits);
        // A node of which nobody knows what it wants has nothing else to tell.
        let Some((((receipt, told), grant), waits)) = known else { return true };
        // Of another object, the serials begin anew.
        let is_same_machine =
            receipt.boot == told.boot && receipt.node == told.node && receipt.serial >= told.serial;
        let keeps = |said: &Receipt| said.holds.is_some_and(|holds| holds <= grant.watts);
        let is_same_event = receipt.armed == told.armed;
        if !(grant.is_highest && is_same_machine && is_same_event && keeps(receipt) && keeps(told)) {
            return true;
        }
        now.since(*self.waits.get_or_insert(now)) >= waits
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

    fn wants(watts: i32, bites: bool) -> NodeWants {
        NodeWants {
            report: DemandReport::new(&[Watts::from_int(watts)], bites).ok(),
            bite: bites.then_some(BiteSource::Drawn),
            ..NodeWants::default()
        }
    }

    /// The highest demand that is told, and whether the node bites.
    fn told(teller: &mut GrantTeller, wants: &NodeWants, millis: u64) -> Option<(f64, bool)> {
        let (_, told) = teller.of(wants, None, None, Mono::at(Duration::from_millis(millis)));
        let told = told?;
        Some((told.quantiles_watts[0].get(), told.biting))
    }

    #[test]
    fn a_steady_node_tells_its_demand_once_and_a_change_when_it_has_stood() {
        let mut it = GrantTeller::default();
        assert_eq!(told(&mut it, &NodeWants::default(), 0), None, "nothing is known");
        assert_eq!(told(&mut it, &wants(1000, false), 1_000), Some((1000.0, false)));
        for second in 2..600 {
            // 4 % are within the smallest band.
            let about = wants(1000 + i32::from(second % 2 == 0) * 40, false);
            assert_eq!(told(&mut it, &about, second * 1000), Some((1000.0, false)), "at {second} s");
        }
        assert_eq!(told(&mut it, &wants(500, false), 600_000), Some((500.0, false)), "half of it");
        assert_eq!(told(&mut it, &wants(1000, false), 779_900), Some((500.0, false)), "too soon");
        assert_eq!(told(&mut it, &wants(1000, false), 780_000), Some((1000.0, false)));
    }

    #[test]
    fn a_bite_is_told_at_once_and_its_end_is_not() {
        let mut it = GrantTeller::default();
        assert_eq!(told(&mut it, &wants(1000, false), 0), Some((1000.0, false)));
        let bite = it.of(&wants(1500, true), None, None, Mono::at(Duration::from_millis(100))).1.unwrap();
        assert_eq!((bite.biting, bite.throttled_by), (true, Some(ThrottleEvidence::Drawn.into())));
        assert_eq!(told(&mut it, &wants(1000, false), 200), Some((1500.0, true)));
        assert_eq!(told(&mut it, &wants(1500, true), 300), Some((1500.0, true)), "it is told already");
        // 500 W less are a change that is told after three minutes, and the end goes with it.
        assert_eq!(told(&mut it, &wants(1000, false), 180_000), Some((1500.0, true)), "it may come back");
        let ended =
            it.of(&wants(1000, false), None, None, Mono::at(Duration::from_millis(180_100))).1.unwrap();
        assert_eq!((ended.biting, ended.throttled_by), (false, None));
    }

    #[test]
    fn a_receipt_that_is_written_carries_the_demand_of_that_moment() {
        let mut it = GrantTeller::default();
        let mut told = |watts, serial| {
            let receipt = Some(receipt(serial, 500));
            let (_, demand) = it.of(&wants(watts, false), receipt, None, Mono::at(Duration::from_secs(1)));
            Some(demand?.quantiles_watts[0].get())
        };
        assert_eq!(told(1000, 1), Some(1000.0));
        assert_eq!(told(1200, 1), Some(1000.0));
        assert_eq!(told(1200, 2), Some(1200.0));
        assert_eq!(told(1300, 2), Some(1200.0));
    }

    fn receipt(serial: u64, holds: i32) -> Receipt {
        Receipt {
            serial,
            boot: "b-1".to_owned(),
            node: "n-1".to_owned(),
            holds: Some(Watts::from_int(holds)),
            floor: None,
            yields: None,
            armed: Vec::new(),
        }
    }

    /// The serial of the receipt that is told at this second.
    fn serial(
        it: &mut GrantTeller,
        wants: &NodeWants,
        receipt: Receipt,
        (watts, is_highest): (i32, bool),
        second: u64,
    ) -> u64 {
        let grant = GrantNow { watts: Watts::from_int(watts), is_highest };
        it.of(wants, Some(receipt), Some(grant), Mono::at(Duration::from_secs(second))).0.unwrap().serial
    }

    #[test]
    fn the_receipt_of_a_raise_waits_for_something_else_to_tell() {
        let quiet = wants(400, false);
        let mut it = GrantTeller::default();
        assert_eq!(serial(&mut it, &quiet, receipt(1, 500), (500, true), 0), 1, "the first one");
        assert_eq!(serial(&mut it, &quiet, receipt(2, 600), (600, true), 10), 1);
        assert_eq!(serial(&mut it, &quiet, receipt(2, 600), (600, true), 129), 1);
        assert_eq!(serial(&mut it, &quiet, receipt(2, 600), (600, true), 130), 2, "two minutes");
        // A bite is told at once, and the receipt with it.
        assert_eq!(serial(&mut it, &quiet, receipt(3, 700), (700, true), 140), 2);
        assert_eq!(serial(&mut it, &wants(900, true), receipt(3, 700), (700, true), 141), 3);
        // Who is throttled still tells of it after 40 s.
        assert_eq!(serial(&mut it, &wants(900, true), receipt(4, 900), (900, true), 150), 3);
        assert_eq!(serial(&mut it, &wants(900, true), receipt(4, 900), (900, true), 189), 3);
        assert_eq!(serial(&mut it, &wants(900, true), receipt(4, 900), (900, true), 190), 4);
    }

    #[test]
    fn a_receipt_that_changes_what_counts_is_told_at_once() {
        let quiet = wants(400, false);
        let told = |next: Receipt, grant| {
            let mut it = GrantTeller::default();
            serial(&mut it, &quiet, receipt(1, 500), (500, true), 0);
            serial(&mut it, &quiet, next, grant, 1)
        };
        assert_eq!(told(receipt(2, 600), (600, true)), 1, "a raise");
        assert_eq!(told(receipt(2, 400), (400, false)), 2, "the operator counts the former grant until then");
        assert_eq!(told(receipt(2, 602), (600, true)), 2, "the devices hold more");
        assert_eq!(
            told(Receipt { holds: None, ..receipt(2, 600) }, (600, true)),
            2,
            "nobody knows what they hold"
        );
        assert_eq!(told(Receipt { boot: "b-2".to_owned(), ..receipt(2, 600) }, (600, true)), 2, "a boot");
        assert_eq!(
            told(Receipt { node: "n-2".to_owned(), ..receipt(2, 600) }, (600, true)),
            2,
            "another machine"
        );
        assert_eq!(told(receipt(0, 500), (500, true)), 0, "another object");
        let armed = Receipt { armed: vec!["grid-25".to_owned()], ..receipt(2, 600) };
        assert_eq!(told(armed, (600, true)), 2, "an event is followed");
        assert_eq!(told(receipt(2, 400), (400, true)), 2, "what was told was more");
        // A node whose demand is not known has nothing else to tell.
        let (mut it, unknown) = (GrantTeller::default(), NodeWants::default());
        assert_eq!(serial(&mut it, &unknown, receipt(1, 500), (500, true), 0), 1);
        assert_eq!(serial(&mut it, &unknown, receipt(2, 600), (600, true), 1), 2);
    }

    #[test]
    fn a_demand_that_is_not_known_any_more_is_no_demand() {
        let mut it = GrantTeller::default();
        assert_eq!(told(&mut it, &wants(1000, true), 0), Some((1000.0, true)));
        assert_eq!(told(&mut it, &NodeWants::default(), 1_000), Some((1000.0, true)), "too soon");
        assert_eq!(told(&mut it, &NodeWants::default(), 2_000), None);
        assert_eq!(told(&mut it, &wants(1000, true), 2_100), Some((1000.0, true)), "a bite");
    }
}
