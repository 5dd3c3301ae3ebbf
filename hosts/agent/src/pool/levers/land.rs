//! What became of an order, taken in by the levers of a node; and what is in force by that.

use super::super::http::Trouble;
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
                self.back[0] = result.map_or(self.back[0], |read_back| Some(read_back.unwrap_or(watts)));
                self.cap_news = limit_news(watts, release, result);
                self.seen = Seen::Unknown;
            }
            Order::GpuCap { watts, release } => {
                self.back[1] = result.map_or(self.back[1], |read_back| Some(read_back.unwrap_or(watts)));
                self.gpu_news = limit_news(watts, release, result);
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

    /// The limits in force as they were read back, per package and per GPU.
    pub(in crate::pool) fn in_force(&self) -> (Option<Watts>, Option<Watts>) {
        (
            self.packages.first().and_then(|package| held(package.limiter())),
            self.gpu.and_then(|gpu| held(gpu.limiter())),
        )
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

fn limit_news(asked: Watts, release: bool, result: Result<Option<Watts>, ErrorKind>) -> LimitOutcome {
    if release {
        return LimitOutcome::Released(result.map(|_| ()));
    }
    LimitOutcome::Set { asked, read_back: result.map(|read_back| read_back.unwrap_or(asked)) }
}
