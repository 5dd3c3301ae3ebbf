//! Passes the outcome of an order to the engine of a node, and derives which limits are in force.

use super::super::http::Trouble;
use super::super::wire::Action;
use super::word::Word;
use super::{NodeEngine, Order};
use joulie_core::node::cap::CapRange;
use joulie_core::node::engine::{PolicyLimit, PolicyOutcome};
use joulie_core::node::limiter::{LimitOutcome, LimitReading};
use joulie_core::node::throttle::ThrottlePercent;
use joulie_core::node::ticket::Ticket;
use power_hal::ErrorKind;
use power_units::Watts;

impl NodeEngine {
    /// Takes in the outcome of an order.
    pub(in crate::pool) fn land(&mut self, order: Order, outcome: Result<Option<Watts>, &Trouble>) {
        let result = outcome.map_err(|trouble| trouble.kind);
        let Order { ticket, action, release } = order;
        match action {
            Action::Cap(watts) => {
                self.back[0] = result.ok().flatten().or(self.back[0]);
                let (tells, throttled) = (self.tells, self.is_throttled());
                let taken = |word: &mut Word| word.taken(ticket, watts, tells, throttled);
                self.cap_news = limit_news(ticket, release, result, &mut self.word, taken);
                self.seen = LimitReading::Unknown;
            }
            Action::GpuCap(watts) => {
                self.back[1] = result.ok().flatten().or(self.back[1]);
                let tells = self.gpu_tells;
                let held = LimitOutcome::Set { ticket, read_back: Ok(watts) };
                let taken =
                    |word: &mut Word| word.taken(ticket, watts, tells, false).or((!tells).then_some(held));
                self.gpu_news = limit_news(ticket, release, result, &mut self.gpu_word, taken);
                self.gpu_seen = LimitReading::Unknown;
            }
            Action::Throttle { percent, .. } => {
                let throttle = ThrottlePercent::new(i64::from(percent)).unwrap_or(ThrottlePercent::ALL);
                if result.is_ok() {
                    self.throttle = Some(throttle);
                }
                self.throttle_news = if release {
                    PolicyOutcome::Released { ticket, outcome: result.map(|_| ()) }
                } else {
                    PolicyOutcome::Set { ticket, read_back: result.map(|_| PolicyLimit::Throttle(throttle)) }
                };
            }
        }
    }

    /// The limits in force as they were read back or seen, per package and per GPU.
    pub(in crate::pool) fn in_force(&self) -> (Option<Watts>, Option<Watts>) {
        let cpu = self.engine.packages().first().filter(|_| !self.word.hides());
        let gpu = self.engine.gpus().first().filter(|_| !self.gpu_word.hides());
        (cpu.and_then(|package| held(package.limiter())), gpu.and_then(|gpu| held(gpu.limiter())))
    }
}

fn held(limiter: &joulie_core::node::limiter::Limiter) -> Option<Watts> {
    use joulie_core::node::actuation::InForce;
    match limiter.actuation().standing() {
        InForce::At(target) => Some(target.effective()),
        InForce::Nothing | InForce::Unknown => None,
    }
}

/// The highest limit that can be set, which is that of a node without caps. The limit found at the start may have been
/// a cap of Joulie's.
pub(super) fn original(range: Option<CapRange>, found: Option<Watts>) -> Option<Watts> {
    range.and_then(CapRange::max).or(found)
}

/// What the law is told of a limit. `taken` handles a limit that was accepted without a read-back.
fn limit_news(
    ticket: Ticket,
    release: bool,
    result: Result<Option<Watts>, ErrorKind>,
    word: &mut Word,
    taken: impl FnOnce(&mut Word) -> Option<LimitOutcome>,
) -> LimitOutcome {
    if release {
        *word = Word::Known;
        return LimitOutcome::Released { ticket, outcome: result.map(|_| ()) };
    }
    match result {
        Ok(None) => taken(word).unwrap_or(LimitOutcome::Unknown),
        Ok(Some(limit)) => {
            *word = Word::Known;
            LimitOutcome::Set { ticket, read_back: Ok(limit) }
        }
        Err(kind) => LimitOutcome::Set { ticket, read_back: Err(kind) },
    }
}
