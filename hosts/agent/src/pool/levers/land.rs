//! What became of an order, taken in by the levers of a node; and what is in force by that.

use super::super::http::Trouble;
use super::word::Word;
use super::{Flight, Levers, Order};
use joulie_core::node::backend::ThrottleOutcome;
use joulie_core::node::cap::CapRange;
use joulie_core::node::law::{self, Command};
use joulie_core::node::limiter::{LimitOrder, LimitOutcome, Seen};
use joulie_core::node::ticket::Ticket;
use power_hal::ErrorKind;
use power_units::Watts;

impl Levers {
    /// Takes in what became of an order.
    pub(in crate::pool) fn land(&mut self, order: Order, outcome: Result<Option<Watts>, &Trouble>) {
        let result = outcome.map_err(|trouble| trouble.kind);
        match order {
            Order::Cap { ticket, watts, release } => {
                self.back[0] = result.ok().flatten().or(self.back[0]);
                let (tells, throttled) = (self.tells, self.is_throttled());
                let taken = |word: &mut Word| word.taken((ticket, watts), tells, throttled);
                self.cap_news = limit_news((ticket, release), result, &mut self.word, taken);
                self.seen = Seen::Unknown;
            }
            Order::GpuCap { ticket, watts, release } => {
                self.back[1] = result.ok().flatten().or(self.back[1]);
                let tells = self.gpu_tells;
                let held = LimitOutcome::Set { ticket, read_back: Ok(watts) };
                let taken =
                    |word: &mut Word| word.taken((ticket, watts), tells, false).or((!tells).then_some(held));
                self.gpu_news = limit_news((ticket, release), result, &mut self.gpu_word, taken);
                self.gpu_seen = Seen::Unknown;
            }
            Order::Throttle { ticket, throttle, flight, .. } => {
                let done = result.map(|_| ());
                if done.is_ok() {
                    self.throttle = Some(throttle);
                }
                self.news = Some(match flight {
                    Flight::Fixed => ThrottleOutcome::Fixed { ticket, outcome: done },
                    Flight::Release => ThrottleOutcome::Released { ticket, outcome: done },
                    Flight::Loop(regulation) => {
                        let asked = Command::Throttle(throttle);
                        self.landed = match done {
                            Ok(()) => law::Outcome::Applied { asked, in_effect: asked },
                            Err(_) => law::Outcome::Refused { asked },
                        };
                        ThrottleOutcome::Loop { ticket, outcome: done.map(|()| regulation) }
                    }
                });
            }
        }
    }

    /// An order that cannot be carried out, because nobody knows the original.
    pub(in crate::pool) fn has_no_original(&mut self) {
        let refused = |ticket| LimitOutcome::Released { ticket, outcome: Err(ErrorKind::BadData) };
        if let Some(package) = self.packages.first()
            && package.order() == LimitOrder::Release
            && original(self.shape.range, self.original).is_none()
        {
            self.cap_news = refused(package.limiter().ticket());
        }
        if let Some(gpu) = &self.gpu
            && gpu.order() == LimitOrder::Release
            && original(self.shape.gpu_range, self.gpu_original).is_none()
        {
            self.gpu_news = refused(gpu.limiter().ticket());
        }
    }

    /// The limits in force as they were read back or seen, per package and per GPU.
    pub(in crate::pool) fn in_force(&self) -> (Option<Watts>, Option<Watts>) {
        let cpu = self.packages.first().filter(|_| !self.word.hides());
        let gpu = self.gpu.filter(|_| !self.gpu_word.hides());
        (cpu.and_then(|package| held(package.limiter())), gpu.and_then(|gpu| held(gpu.limiter())))
    }
}

fn held(limiter: &joulie_core::node::limiter::Limiter) -> Option<Watts> {
    use joulie_core::node::lever::Standing;
    match limiter.lever().standing() {
        Standing::At(target) => Some(target.effective()),
        Standing::Nothing | Standing::Unknown => None,
    }
}

/// The most that can be set: what a node has that nobody caps. What was found there may have been a cap of ours.
pub(super) fn original(range: Option<CapRange>, found: Option<Watts>) -> Option<Watts> {
    range.and_then(CapRange::max).or(found)
}

/// What the law hears of a limit; `taken` says it of one that was taken without a word of what is in force.
fn limit_news(
    (ticket, release): (Ticket, bool),
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
