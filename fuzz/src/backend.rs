//! Property: whatever the packages and GPUs report, no ordered limit is below the node's floor or one watt, above the
//! maximum that the device reports, or different from the result of a desired state of this run; if nothing is
//! desired nothing is set; and the same facts give the same decision.

use crate::feed::Feed;
use joulie_core::node::actuation::ActuationLaw;
use joulie_core::node::backend::{
    BackendLaw, BackendPreference, Facts, Mode, Package, PackageFacts, Regulation, Route, ThrottleOrder,
    ThrottleOutcome,
};
use joulie_core::node::backoff::Backoff;
use joulie_core::node::cap::{CAP_LEAST, CapIntent, CapRange, DesiredCap, Floor, Resolution};
use joulie_core::node::drift::DriftLaw;
use joulie_core::node::gpu_cap::{CappedGpu, GpuFacts, GpuLaw, GpuLimits};
use joulie_core::node::limiter::{LimitFacts, LimitOrder, LimitOutcome, LimitReading, LimiterLaw};
use joulie_core::node::ticket::Ticket;
use power_hal::ErrorKind;
use power_units::{Micros, Percent, Stamp, Watts};
use std::collections::BTreeSet;

const STEPS_MAX: usize = 48;

pub(crate) fn run(bytes: &[u8]) {
    let mut feed = Feed::new(bytes);
    let Some((limits, actuation)) = laws(&mut feed) else { return };
    let Ok(floor) = Floor::new(if feed.is_set() { feed.watts() } else { Watts::ZERO }) else { return };
    if feed.is_set() {
        gpus(&GpuLaw { limits, floor }, &mut feed);
    } else {
        let settle = Micros::new(u64::from(feed.word()));
        let preference = feed.pick(&[BackendPreference::LimitFirst, BackendPreference::ThrottleOnly]);
        node(&BackendLaw { limits, throttle: actuation, settle, floor, preference }, &mut feed);
    }
}

fn laws(feed: &mut Feed<'_>) -> Option<(LimiterLaw, ActuationLaw)> {
    let span = |feed: &mut Feed<'_>| Micros::new(u64::from(feed.half()) * 1_000);
    let (first, more) = (span(feed), span(feed));
    let backoff = Backoff::new(first, first + more).ok()?;
    let actuation = ActuationLaw::new(span(feed), backoff).ok()?;
    let drift = DriftLaw::new(backoff, u32::from(feed.byte()), first + more + span(feed)).ok()?;
    Some((LimiterLaw { actuation, drift }, actuation))
}

fn intent(feed: &mut Feed<'_>) -> CapIntent {
    let kind = feed.byte();
    let watts = (kind & 1 == 0).then(|| feed.watts());
    let percent = (kind & 2 != 0).then(|| Percent::from_int(i32::from(feed.byte()) - 20));
    CapIntent { watts, percent }
}

fn desired(feed: &mut Feed<'_>, before: DesiredCap) -> DesiredCap {
    match feed.byte() & 7 {
        0 => DesiredCap::Unknown,
        1 => DesiredCap::Gone,
        2 | 3 => DesiredCap::Cap(intent(feed)),
        _ => before,
    }
}

fn range(feed: &mut Feed<'_>) -> CapRange {
    let mut maybe = || (feed.byte() & 3 != 0).then(|| feed.watts());
    let (min, max, original) = (maybe(), maybe(), maybe());
    CapRange::new(min, max, original)
}

fn verdict<T>(feed: &mut Feed<'_>, fine: T) -> Result<T, ErrorKind> {
    if feed.byte() & 3 == 0 { Err(feed.pick(&ErrorKind::ALL)) } else { Ok(fine) }
}

/// The report on the last order: usually its outcome, and occasionally one for an unknown order.
fn limit(feed: &mut Feed<'_>, (order, ticket): (LimitOrder, Ticket), now: Stamp) -> LimitFacts {
    let kind = feed.byte();
    let outcome = match (kind & 7, order) {
        (0, _) | (_, LimitOrder::Leave) => LimitOutcome::Unknown,
        (1, _) => {
            let (ticket, found) = (feed.pick(&[ticket, ticket.next()]), feed.watts());
            LimitOutcome::Set { ticket, read_back: verdict(feed, found) }
        }
        (2, _) | (_, LimitOrder::Release) => LimitOutcome::Released { ticket, outcome: verdict(feed, ()) },
        (3, LimitOrder::Set(_)) => {
            let found = feed.watts();
            LimitOutcome::Set { ticket, read_back: verdict(feed, found) }
        }
        (_, LimitOrder::Set(asked)) => LimitOutcome::Set { ticket, read_back: verdict(feed, asked) },
    };
    let seen = match kind >> 4 & 7 {
        0 => LimitReading::Unknown,
        1 => LimitReading::Off { read: now },
        2 => LimitReading::Gone,
        3 => LimitReading::Unread(feed.pick(&ErrorKind::ALL)),
        _ => LimitReading::At { limit: feed.watts(), read: now },
    };
    LimitFacts { outcome, seen }
}

fn time(feed: &mut Feed<'_>, now: Stamp) -> Stamp {
    match feed.byte() {
        0 => Stamp::new(Micros::new(feed.long())),
        1 => now,
        more => now + Micros::new(u64::from(more) * 200_000),
    }
}

/// Checks an order to set a limit against everything that was desired so far.
fn check(order: LimitOrder, targets: &BTreeSet<Watts>, floor: Floor) {
    if let LimitOrder::Set(limit) = order {
        assert!(limit >= CAP_LEAST && limit >= floor.watts(), "{limit} is below the floor {floor:?}");
        assert!(targets.contains(&limit), "nobody ever wanted {limit}: {targets:?}");
    }
}

/// The limit for an intent on a device, by the rule: not below the floor, and not above the device's maximum.
fn target(intent: CapIntent, range: CapRange, floor: Floor) -> Option<Watts> {
    let target = match intent.resolve(range, floor) {
        Resolution::Watts(target) => target,
        Resolution::Percent(_) | Resolution::Blocked(_) => return None,
    };
    let (asked, cap) = (target.requested(), target.effective());
    assert!(cap >= floor.watts() && cap >= CAP_LEAST);
    assert!(range.max().is_none_or(|max| cap <= max), "{cap} is above {range:?}");
    assert!(
        cap <= asked || Some(cap) == range.min() || cap == floor.watts() || cap == CAP_LEAST,
        "{target:?}"
    );
    Some(cap)
}

fn node(law: &BackendLaw, feed: &mut Feed<'_>) {
    let mut mode = Mode::start(feed.pick(&[Route::Host, Route::Remote]), feed.is_set());
    let count = usize::from(feed.byte() % 4);
    let mut packages: Vec<Package> = (0..count)
        .map(|_| {
            let facts =
                PackageFacts { range: range(feed), has_limit: feed.byte() != 0, ..PackageFacts::UNKNOWN };
            if feed.byte() == 0 { Package::adopted(facts) } else { Package::untouched(facts) }
        })
        .collect();
    let mut targets = BTreeSet::new();
    let (mut wanted, mut now) = (DesiredCap::Unknown, Stamp::new(Micros::ZERO));
    let mut order = (ThrottleOrder::Leave, Ticket::NONE);
    for _ in 0..STEPS_MAX {
        if feed.is_empty() {
            break;
        }
        now = time(feed, now);
        wanted = desired(feed, wanted);
        for package in &mut packages {
            package.facts.limit = limit(feed, (package.order(), package.limiter().ticket()), now);
            if feed.byte() == 0 {
                package.facts.range = range(feed);
            }
            if let DesiredCap::Cap(intent) = wanted {
                targets.extend(target(intent, package.facts.range, law.floor));
            }
        }
        let throttle = (feed.byte() != 0).then(|| throttled(feed, order));
        let facts =
            Facts { now, desired: wanted, throttle, has_meter: feed.byte() != 0, beyond: Watts::ZERO };
        let (mut twin, mut others) = (mode, packages.clone());
        let decision = law.step(&mut mode, &mut packages, &facts);
        assert_eq!(law.step(&mut twin, &mut others, &facts), decision);
        assert!(twin == mode && others == packages, "the same facts, another memory");
        for package in &packages {
            check(package.order(), &targets, law.floor);
            let refused = !package.facts.has_limit || law.preference == BackendPreference::ThrottleOnly;
            assert!(!(refused && matches!(package.order(), LimitOrder::Set(_))), "{package:?}");
        }
        if let ThrottleOrder::RunLoop { cap } = decision.throttle {
            assert!(cap >= law.floor.watts() && cap >= CAP_LEAST, "the loop is to hold {cap}");
        }
        assert!(decision.node_cap.is_none_or(|cap| cap >= law.floor.watts()), "{decision:?}");
        order = (decision.throttle, decision.ticket);
    }
}

fn throttled(feed: &mut Feed<'_>, (order, ticket): (ThrottleOrder, Ticket)) -> ThrottleOutcome {
    if feed.byte() & 7 == 0 {
        return ThrottleOutcome::Unknown;
    }
    match order {
        ThrottleOrder::Leave => ThrottleOutcome::Unknown,
        ThrottleOrder::RunLoop { cap } => {
            let blind = Regulation::Blind(feed.pick(&ErrorKind::ALL));
            let regulation = feed.pick(&[Regulation::Keeping, Regulation::AtBound { drawn: cap }, blind]);
            ThrottleOutcome::Loop { ticket, outcome: verdict(feed, regulation) }
        }
        ThrottleOrder::Set(_) => {
            let ticket = if feed.byte() == 0 { ticket.next() } else { ticket };
            ThrottleOutcome::Fixed { ticket, outcome: verdict(feed, ()) }
        }
        ThrottleOrder::Release => ThrottleOutcome::Released { ticket, outcome: verdict(feed, ()) },
    }
}

fn gpus(law: &GpuLaw, feed: &mut Feed<'_>) {
    let count = usize::from(feed.byte() % 4);
    let mut gpus: Vec<CappedGpu> = (0..count)
        .map(|_| {
            let mut maybe = || (feed.byte() & 3 != 0).then(|| feed.watts());
            let limits = GpuLimits::new(maybe(), maybe());
            let facts = GpuFacts { limits, ..GpuFacts::UNKNOWN };
            if feed.byte() == 0 { CappedGpu::adopted(facts) } else { CappedGpu::untouched(facts) }
        })
        .collect();
    let mut targets = BTreeSet::new();
    let (mut wanted, mut now) = (DesiredCap::Unknown, Stamp::new(Micros::ZERO));
    for _ in 0..STEPS_MAX {
        if feed.is_empty() {
            break;
        }
        now = time(feed, now);
        wanted = desired(feed, wanted);
        for gpu in &mut gpus {
            gpu.facts.limit = limit(feed, (gpu.order(), gpu.limiter().ticket()), now);
            if let (DesiredCap::Cap(intent), GpuLimits::Range(range)) = (wanted, gpu.facts.limits) {
                targets.extend(target(intent, range, law.floor));
            }
        }
        let mut others = gpus.clone();
        let decision = law.step(&mut gpus, now, wanted);
        assert_eq!(law.step(&mut others, now, wanted), decision);
        assert_eq!(others, gpus, "the same facts, another memory");
        for gpu in &gpus {
            check(gpu.order(), &targets, law.floor);
            let no_target = gpu.facts.limits == GpuLimits::NotATarget;
            assert!(!(no_target && matches!(gpu.order(), LimitOrder::Set(_))), "{gpu:?}");
        }
    }
}
