//! The interface of a control law of the DVFS fallback: facts in, decision out.
//!
//! The loop of each tick is *sense → [`Facts`] → [`Law::step`] → [`Decision`] → act → report*. A law does no I/O and
//! reads no clock. It never assumes that a command was carried out: what it decided stays pending in its `Mode` until
//! the facts bring the [`CommandOutcome`], and only then does its state advance.
//!
//! Words: a *command* is what is to be written; it is *in effect* once it was read back. A *reading* is *fresh*,
//! *missing*, *stale* or *impossible*. The last three all leave the law without a reading: it then holds for
//! [`BLIND_STEPS_HELD`] steps and after that moves to the safe side, one decision at a time.

mod flight;
mod visibility;

pub(crate) use flight::{Actuator, Landing};
pub(crate) use visibility::{Look, Visibility};

use crate::node::energy::MeterReading;
use crate::node::throttle::ThrottlePercent;
use power_units::{KiloHertz, Micros, Stamp, Watts};

/// A control law. `Self` is validated tuning and never changes; all memory is in the `Mode`.
pub trait Law {
    /// What the law remembers between two steps.
    type Mode;

    /// The state of a loop that starts now. `found` is what is already in effect on the node: a cap survives a restart
    /// of the agent, so a law takes over what it finds. A switch of the backend also starts with a new state, from
    /// what the new backend has in effect.
    fn start(&self, found: Option<Command>) -> Self::Mode;

    /// One tick of the loop.
    fn step(&self, mode: &mut Self::Mode, facts: &Facts) -> Decision;
}

/// All that a law may know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The time of this step.
    pub now: Stamp,
    /// The most that the node's packages may draw together; `None` without a cap.
    pub cap: Option<Watts>,
    /// What the node's packages draw together.
    pub power: PowerReading,
    /// The mean frequency at which the policies really ran since the last step, where it can be measured.
    pub effective: Option<KiloHertz>,
    /// The bounds in which the frequency can be limited, where it can be limited.
    pub range: Option<FrequencyRange>,
    /// The outcome of the last command.
    pub outcome: CommandOutcome,
}

impl Facts {
    /// The cap, if there is one to keep. A machine cannot run under a limit of zero or less, so such a limit counts as
    /// none, and the decision reports it.
    pub(crate) fn cap_to_keep(&self) -> Option<Watts> {
        self.cap.filter(|&cap| cap > Watts::ZERO)
    }
}

/// One reading of the power sensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerReading {
    /// A value to act on.
    Fresh {
        /// The mean power, all packages together.
        watts: Watts,
        /// The time until now over which the sensor formed this mean; zero for an instantaneous value.
        over: Micros,
    },
    /// The sensor gave nothing.
    Missing,
    /// The sensor returned a value that is too old to act on.
    Stale,
    /// The sensor returned a value that is impossible.
    Impossible,
}

impl From<MeterReading> for PowerReading {
    fn from(reading: MeterReading) -> Self {
        match reading {
            MeterReading::Fresh { watts, over } => Self::Fresh { watts, over },
            MeterReading::Missing(_) => Self::Missing,
            MeterReading::Stale { .. } => Self::Stale,
            MeterReading::Impossible(_) => Self::Impossible,
        }
    }
}

/// What is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Limit this part of the frequency policies to their lowest frequency and leave the others free.
    Throttle(ThrottlePercent),
    /// Limit all frequency policies so that their limits have this mean.
    MeanFrequency(KiloHertz),
}

/// The outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandOutcome {
    /// Not known yet, or nothing was commanded.
    Unknown,
    /// It was written.
    Applied {
        /// The command that this is about.
        asked: Command,
        /// What was read back, as the hardware rounded it.
        in_effect: Command,
    },
    /// It was not written: the earlier command is still in effect.
    Refused {
        /// The command that this is about.
        asked: Command,
    },
}

/// The bounds of a frequency limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrequencyRange {
    min: KiloHertz,
    max: KiloHertz,
}

impl FrequencyRange {
    /// The range, if it is valid: above zero, and the minimum not above the maximum.
    #[must_use]
    pub fn new(min: KiloHertz, max: KiloHertz) -> Option<Self> {
        (min > KiloHertz::ZERO && min <= max).then_some(Self { min, max })
    }

    /// The lowest limit.
    #[must_use]
    pub const fn min(self) -> KiloHertz {
        self.min
    }

    /// The highest limit.
    #[must_use]
    pub const fn max(self) -> KiloHertz {
        self.max
    }
}

/// The decision of a step, and what it is based on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What this step does.
    pub action: LawAction,
    /// What is to be written; `None` leaves everything as it is.
    pub command: Option<Command>,
    /// What was in effect when this was decided, as last read back.
    pub in_effect: Option<Command>,
    /// The fresh reading on which this was decided; `None` without one, and then nothing was controlled.
    pub observed: Option<Watts>,
    /// The smoothed power; `None` before the first reading.
    pub smoothed: Option<Watts>,
    /// How long the smoothed power was beyond a threshold, in a law that counts.
    pub counts: Option<TripCounts>,
    /// Whether the cap can be kept.
    pub reach: Reach,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LawAction {
    /// Less power: a higher throttle, a lower frequency.
    ThrottleUp,
    /// More power: a lower throttle, a higher frequency.
    ThrottleDown,
    /// Less power because the draw is unknown.
    FailSafe,
    /// Nothing.
    Hold(Hold),
}

/// Why a step does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// There is nothing to do.
    Steady,
    /// The last action was too recent.
    Cooldown,
    /// The last command has no outcome yet.
    Pending,
    /// The last command does not show its effect yet.
    Settling,
    /// The throttle is at the end of its range.
    AtBound,
    /// There is no reading, but not for long enough to act on that.
    Blind,
    /// There is no cap to keep.
    NoCap,
    /// There is no frequency that could be limited.
    NoRange,
}

impl LawAction {
    /// The words of logs, metrics and status.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ThrottleUp => "throttle-up",
            Self::ThrottleDown => "throttle-down",
            Self::FailSafe => "fail-safe",
            Self::Hold(Hold::Steady) => "hold",
            Self::Hold(Hold::Cooldown) => "hold(cooldown)",
            Self::Hold(Hold::Pending) => "hold(pending)",
            Self::Hold(Hold::Settling) => "hold(settling)",
            Self::Hold(Hold::AtBound) => "hold(at-bound)",
            Self::Hold(Hold::Blind) => "hold(blind)",
            Self::Hold(Hold::NoCap) => "hold(no-cap)",
            Self::Hold(Hold::NoRange) => "hold(no-range)",
        }
    }
}

/// The number of steps in a row with the smoothed power beyond a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TripCounts {
    /// Above the upper one.
    pub above: u32,
    /// Below the lower one.
    pub below: u32,
}

impl TripCounts {
    /// No step in a row yet.
    pub const ZERO: Self = Self { above: 0, below: 0 };
}

/// Whether the cap can be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// There is no evidence against it.
    Achievable,
    /// Everything is throttled, and the node still draws more.
    NotAchievable,
    /// There is no cap, or no reading to judge by.
    Unknown,
}

/// How many steps without a reading a law holds before it moves to the safe side. Three steps bridge a lost sample and
/// its retry, and are short enough that a load step behind a failed sensor is limited within a few periods.
pub const BLIND_STEPS_HELD: u8 = 3;
