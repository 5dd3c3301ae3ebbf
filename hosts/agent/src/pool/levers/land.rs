//! What became of an order, taken in by the levers of a node; and what is in force by that.

use super::super::http::Trouble;
use super::word::Word;
use super::{Flight, Levers, Order};
use joulie_core::node::backend::ThrottleOutcome;
use joulie_core::node::cap::CapRange;
use joulie_core::node::law::{self, Command};
use joulie_core::node::limiter::{LimitOrder, LimitOutcome, Seen};
use power_hal::ErrorKind;
use power_units::Watts;

impl Levers {
    /// Takes in what became of an order.
    pub(in crate::pool) fn land(&mut self, order: Order, outcome: Result<Option<Watts>, &Trouble>) {
        let result = outcome.map_err(|trouble| trouble.kind);
        match order {
            Order::Cap { watts, release } => {
                self.back[0] = result.ok().flatten().or(self.back[0]);
                let (tells, throttled) = (self.tells, self.is_throttled());
                let taken = |word: &mut Word| word.taken(watts, tells, throttled);
                self.cap_news = limit_news((watts, release), result, &mut self.word, taken);
                self.seen = Seen::Unknown;
            }
            Order::GpuCap { watts, release } => {
                self.back[1] = result.ok().flatten().or(self.back[1]);
                let tells = self.gpu_tells;
                let held = LimitOutcome::Set { asked: watts, read_back: Ok(watts) };
                let taken = |word: &mut Word| word.taken(watts, tells, false).or((!tells).then_some(held));
                self.gpu_news = limit_news((watts, release), result, &mut self.gpu_word, taken);
                self.gpu_seen = Seen::Unknown;
            }
            Order::Throttle { throttle, flight, .. } => {
                let done = result.map(|_| ());
                if done.is_ok() {
                    self.throttle = Some(throttle);
                }
                self.news = Some(match flight {
                    Flight::Fixed => ThrottleOutcome::Fixed { asked: throttle, outcome: done },
                    Flight::Release => ThrottleOutcome::Released(done),
                    Flight::Loop(regulation) => {
                        let asked = Command::Throttle(throttle);
                        self.landed = match done {
                            Ok(()) => law::Outcome::Applied { asked, in_effect: asked },
                            Err(_) => law::Outcome::Refused { asked },
                        };
                        ThrottleOutcome::Loop(done.map(|()| regulation))
                    }
                });
            }
        }
    }

    /// An order that cannot be carried out, because nobody knows the original.
    pub(in crate::pool) fn has_no_original(&mut self) {
        let wants_release = |order: LimitOrder| order == LimitOrder::Release;
        if self.packages.first().is_some_and(|package| wants_release(package.order()))
            && original(self.shape.range, self.original).is_none()
        {
            self.cap_news = LimitOutcome::Released(Err(ErrorKind::BadData));
        }
        if self.gpu.is_some_and(|gpu| wants_release(gpu.order()))
            && original(self.shape.gpu_range, self.gpu_original).is_none()
        {
            self.gpu_news = LimitOutcome::Released(Err(ErrorKind::BadData));
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
    (asked, release): (Watts, bool),
    result: Result<Option<Watts>, ErrorKind>,
    word: &mut Word,
    taken: impl FnOnce(&mut Word) -> Option<LimitOutcome>,
) -> LimitOutcome {
    if release {
        *word = Word::Known;
        return LimitOutcome::Released(result.map(|_| ()));
    }
    match result {
        Ok(None) => taken(word).unwrap_or(LimitOutcome::Unknown),
        Ok(Some(limit)) => {
            *word = Word::Known;
            LimitOutcome::Set { asked, read_back: Ok(limit) }
        }
        Err(kind) => LimitOutcome::Set { asked, read_back: Err(kind) },
    }
}
