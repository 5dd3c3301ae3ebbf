//! Tracks whether a limit that a control accepted is known to be in force.
//!
//! An endpoint may answer nothing (facts/agent.md section 12). Then success says only that the request arrived. A limit
//! that is not read back is not in force: the next telemetry must report it, or the drawn power must show it.
//!
//! ```text
//!  Known ──taken, telemetry tells limits──▶ Awaited ──told──▶ Known (a higher limit told twice: not taken)
//!    └─────taken, nobody tells them───────▶ Judged: Taken ──within the limit, and not throttled──▶ Shown
//!                                              │    ▲                                             │  │
//!                                              │    └──────────────── blind for long ─────────────┘  │
//!                                              └──above it for long──▶ Broken ◀──above it for long───┘
//! ```
//!
//! An accepted limit holds the node until the drawn power contradicts it. Then the limit counts as lost, and the closed
//! loop takes over. While a throttle holds the node, the drawn power shows nothing about the limit. Only limits that
//! are Known or Shown are reported as read back.

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
    /// It was read back, or no limit was accepted.
    #[default]
    Known,
    /// The next telemetry decides. A first report of a higher limit may date from before the order.
    Awaited { ticket: Ticket, asked: Watts, looked: bool },
    /// The drawn power decides.
    Judged { ticket: Ticket, asked: Watts, proof: Proof, judgement: Judgement },
}

/// What the drawn power shows about a limit that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// Nothing yet.
    Taken,
    /// It is kept.
    Shown,
    /// It is not kept. A load that ends for a moment does not prove the opposite.
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

/// How long more may be drawn than the limit, and how long the power may be unknown. Limits act on a mean over a
/// window, and telemetry is such a mean itself: 5 s, as for the reports.
const PATIENCE: Duration = Duration::from_secs(5);

impl Word {
    /// Records that a control accepted `asked` without a read-back. Returns what to tell the law; `None` if the law
    /// must wait.
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
            // The same limit, whoever ordered it: what was seen of it still counts.
            Self::Judged { asked: before, proof, judgement, .. } if before == asked => (proof, judgement),
            Self::Judged { proof, judgement: Judgement::Broken { .. }, .. } => (proof, BROKEN),
            Self::Judged { .. } | Self::Known | Self::Awaited { .. } => (Proof::default(), Judgement::Taken),
        };
        *self = Self::Judged { ticket, asked, proof, judgement };
        let holds = !matches!(judgement, Judgement::Broken { .. }) && !throttled;
        holds.then_some(LimitOutcome::Set { ticket, read_back: Ok(asked) })
    }

    /// Returns what to tell the law after telemetry was read.
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
            // From now on the law sees the limit in telemetry.
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

    /// Whether the law relies on a limit that was neither read back nor seen in the drawn power.
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
        // As with firmware that accepts a limit and ignores it.
        (Judgement::Taken | Judgement::Shown, Measured::Above) => (BROKEN, Some(Err(ErrorKind::Locked))),
        (Judgement::Broken { .. }, Measured::Above | Measured::Waiting | Measured::Unknown) => (BROKEN, None),
        (Judgement::Shown, Measured::Unknown) => (Judgement::Taken, None),
        (Judgement::Taken, Measured::Waiting | Measured::Unknown)
        | (Judgement::Shown, Measured::Within | Measured::Waiting) => (judgement, None),
    }
}

const BROKEN: Judgement = Judgement::Broken { within_since: None };
