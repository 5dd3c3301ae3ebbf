//! How far a limit that a control took is known to be in force.
//!
//! An endpoint may answer nothing (facts/agent.md section 12), and then its success says only that the request came. What
//! is not read back is not in force: the next telemetry must tell the limit, or what is drawn must show it.
//!
//! ```text
//!  Known ──taken, telemetry tells limits──▶ Awaited ──told──▶ Known (what is told higher, twice, was not taken)
//!    └─────taken, nobody tells them───────▶ Judged: Taken ──within the limit, and not throttled──▶ Shown
//!                                              │    ▲                                             │  │
//!                                              │    └──────────────── blind for long ─────────────┘  │
//!                                              └──above it for long──▶ Broken ◀──above it for long───┘
//! ```
//!
//! A limit that is taken holds the node until what is drawn speaks against it; then it is lost, and the closed loop takes
//! over. While a throttle holds the node, what is drawn shows nothing of the limit. Nothing is said to be read back but
//! what is Known or Shown.

use crate::front::proof::{Measured, Proof};
use crate::machine::Drawn;
use host_kit::clock::Mono;
use joulie_core::node::limiter::LimitOutcome;
use joulie_core::node::ticket::Ticket;
use power_hal::ErrorKind;
use power_units::{Stamp, Watts};
use std::time::Duration;

/// What is known of the limit of all packages, or of all GPUs; `asked` is what the order with the ticket set.
#[derive(Clone, Debug, Default)]
pub(super) enum Word {
    /// It was read back, or none was taken.
    #[default]
    Known,
    /// The next telemetry tells. A first one that tells a higher limit may be of the time before it.
    Awaited { ticket: Ticket, asked: Watts, looked: bool },
    /// What is drawn tells.
    Judged { ticket: Ticket, asked: Watts, proof: Proof, judgement: Judgement },
}

/// What is drawn says of a limit that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// Nothing yet.
    Taken,
    /// That it is kept.
    Shown,
    /// That it is not; a load that ends for a moment does not make up for that.
    Broken { within_since: Option<Mono> },
}

/// What telemetry says, for one kind of device.
pub(super) struct Glance {
    /// The limit of each.
    pub(super) told: Option<Watts>,
    /// What all of them draw.
    pub(super) drawn: Drawn,
    pub(super) count: u32,
    pub(super) throttled: bool,
    pub(super) now: Stamp,
}

/// For how long more may be drawn, and for how long nobody may say what is. Limits work on a mean over a window, and
/// telemetry is itself one: 5 s, as for whoever reports.
const PATIENCE: Duration = Duration::from_secs(5);

impl Word {
    /// A control took `asked`, and did not say what is in force. What the law hears of it; nothing where it must wait.
    pub(super) fn taken(
        &mut self,
        ticket: Ticket,
        asked: Watts,
        tells: bool,
        throttled: bool,
    ) -> Option<LimitOutcome> {
        if tells {
            *self = Self::Awaited { ticket, asked, looked: false };
            return None;
        }
        let (proof, judgement) = match std::mem::take(self) {
            // It is the same limit, whoever ordered it: what showed of it still holds.
            Self::Judged { asked: before, proof, judgement, .. } if before == asked => (proof, judgement),
            Self::Judged { proof, judgement: Judgement::Broken { .. }, .. } => (proof, BROKEN),
            Self::Judged { .. } | Self::Known | Self::Awaited { .. } => (Proof::default(), Judgement::Taken),
        };
        *self = Self::Judged { ticket, asked, proof, judgement };
        let holds = !matches!(judgement, Judgement::Broken { .. }) && !throttled;
        holds.then_some(LimitOutcome::Set { ticket, read_back: Ok(asked) })
    }

    /// What the law hears, now that telemetry was read.
    pub(super) fn look(&mut self, glance: &Glance) -> Option<LimitOutcome> {
        match self {
            Self::Known => None,
            Self::Awaited { ticket, asked, looked } => {
                let (ticket, told) = (*ticket, glance.told?);
                if told > *asked && !*looked {
                    *looked = true;
                    return None;
                }
                *self = Self::Known;
                Some(LimitOutcome::Set { ticket, read_back: Ok(told) })
            }
            // From now on the law sees it.
            Self::Judged { .. } if glance.told.is_some() => {
                *self = Self::Known;
                None
            }
            Self::Judged { ticket, asked, proof, judgement } => {
                if glance.throttled {
                    proof.forget();
                    return None;
                }
                let now = Mono::at(Duration::from_micros(glance.now.since_start().get()));
                let measured = proof.look(asked.times(glance.count.max(1)), glance.drawn, now, PATIENCE);
                let (next, read_back) = judge(*asked, *judgement, measured, now);
                *judgement = next;
                read_back.map(|read_back| LimitOutcome::Set { ticket: *ticket, read_back })
            }
        }
    }

    /// Whether the limit that the law counts on is one that nobody has read back or seen.
    pub(super) const fn hides(&self) -> bool {
        match self {
            Self::Known | Self::Awaited { .. } | Self::Judged { judgement: Judgement::Shown, .. } => false,
            Self::Judged { judgement: Judgement::Taken | Judgement::Broken { .. }, .. } => true,
        }
    }
}

fn judge(
    asked: Watts,
    judgement: Judgement,
    measured: Measured,
    now: Mono,
) -> (Judgement, Option<Result<Watts, ErrorKind>>) {
    match (judgement, measured) {
        (Judgement::Taken, Measured::Within) => (Judgement::Shown, Some(Ok(asked))),
        (Judgement::Broken { within_since }, Measured::Within) => match within_since {
            Some(since) if now.since(since) >= PATIENCE => (Judgement::Shown, Some(Ok(asked))),
            since => (Judgement::Broken { within_since: since.or(Some(now)) }, None),
        },
        // As of firmware that takes a limit and ignores it.
        (Judgement::Taken | Judgement::Shown, Measured::Above) => (BROKEN, Some(Err(ErrorKind::Locked))),
        (Judgement::Broken { .. }, Measured::Above | Measured::Waiting | Measured::Unknown) => (BROKEN, None),
        (Judgement::Shown, Measured::Unknown) => (Judgement::Taken, None),
        (Judgement::Taken, Measured::Waiting | Measured::Unknown)
        | (Judgement::Shown, Measured::Within | Measured::Waiting) => (judgement, None),
    }
}

const BROKEN: Judgement = Judgement::Broken { within_since: None };
