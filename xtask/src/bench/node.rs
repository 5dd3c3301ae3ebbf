//! What a control tick costs.

use super::{Row, measure};
use joulie_core::node::classic::{self, Classic};
use joulie_core::node::law::{Decision, Facts, FrequencyRange, Law, Outcome, PowerReading};
use joulie_core::node::tracking::{self, Tracking};
use power_units::{KiloHertz, Micros, Stamp, Watts};

/// The most that a tick may cost, ns.
const BAR: f64 = 100.0;
/// So many ticks are measured at once, of a node that is quiet, changes, and is quiet again.
const TICKS: u32 = 64;

/// The rows about one node's control.
pub(crate) fn rows() -> Vec<Row> {
    let (Ok(classic), Ok(tracking)) = (Classic::new(classic::DEFAULTS), Tracking::new(tracking::DEFAULTS))
    else {
        return Vec::new();
    };
    vec![
        ticks("control tick, classic", &classic, quiet),
        ticks("control tick, classic, power that moves", &classic, moving),
        ticks("control tick, tracking", &tracking, quiet),
        ticks("control tick, tracking, power that moves", &tracking, moving),
    ]
}

fn quiet(tick: u32) -> i32 {
    298 + i32::from(tick.is_multiple_of(2))
}

/// Every reading is far enough from the one before to be acted on.
fn moving(tick: u32) -> i32 {
    if tick.is_multiple_of(2) { 420 } else { 230 }
}

fn ticks<L: Law>(what: &str, law: &L, watts: fn(u32) -> i32) -> Row {
    let mut mode = law.start(None);
    let mut facts = Facts {
        now: Stamp::new(Micros::ZERO),
        cap: Some(Watts::from_int(300)),
        power: PowerReading::Missing,
        effective: Some(KiloHertz::from_int(2_400_000)),
        range: FrequencyRange::new(KiloHertz::from_int(800_000), KiloHertz::from_int(3_200_000)),
        outcome: Outcome::Unknown,
    };
    measure(what, Some(BAR), (TICKS, 2_000), || {
        let mut last: Option<Decision> = None;
        for tick in 0..TICKS {
            facts.now = facts.now + Micros::new(500_000);
            facts.power =
                PowerReading::Fresh { watts: Watts::from_int(watts(tick)), over: Micros::new(500_000) };
            let decision = law.step(&mut mode, &facts);
            facts.outcome = match decision.command {
                Some(asked) => Outcome::Applied { asked, in_effect: asked },
                None => Outcome::Unknown,
            };
            last = Some(decision);
        }
        last
    })
}
