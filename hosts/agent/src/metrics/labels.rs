//! The labels of the agent's metrics: the closed words, and the sets of them.

use crate::front::publish::Kind;
use host_kit::{closed_label, label_set};
use joulie_core::node::demand::BiteSource;
use node_kit::LoopCause;
use power_hal::Slowdown;

closed_label! {
    /// What a closed loop did.
    pub(crate) enum Move {
        /// It throttled more.
        Up = "throttle_up",
        /// It throttled less.
        Down = "throttle_down",
    }
}

closed_label! {
    /// The outcome of a write to the API.
    pub(crate) enum Written {
        /// It is done.
        Done = "done",
        /// The object was not there.
        Gone = "gone",
        /// It failed, and is tried again.
        Failed = "failed",
    }
}

closed_label! {
    /// What holds the clocks of a GPU down.
    pub(crate) enum Cause {
        /// Its power limit.
        PowerLimit = "power_limit",
        /// The largest current of its supply.
        Current = "current",
        /// Heat.
        Heat = "heat",
        /// A signal from outside, or an emergency stop of the hardware.
        Hardware = "hardware",
        /// A clock that somebody has fixed.
        Setting = "setting",
    }
}

impl Cause {
    pub(super) const fn slowdown(self) -> Slowdown {
        match self {
            Self::PowerLimit => Slowdown::PowerLimit,
            Self::Current => Slowdown::Current,
            Self::Heat => Slowdown::Heat,
            Self::Hardware => Slowdown::Hardware,
            Self::Setting => Slowdown::Setting,
        }
    }
}

closed_label! {
    /// Why a closed loop holds a GPU by its clock instead of its power limit.
    pub(crate) enum ClockCause {
        /// It has no power limit.
        NoLimit = "no_limit",
        /// The cap is outside of the range of its limit.
        OutOfRange = "out_of_range",
        /// The limit is refused, or cannot be read back.
        Refused = "refused",
        /// The limit is read back as it was set, and more is drawn.
        NotKept = "not_kept",
    }
}

impl ClockCause {
    pub(super) const fn cause(self) -> LoopCause {
        match self {
            Self::NoLimit => LoopCause::NoLimit,
            Self::OutOfRange => LoopCause::OutOfRange,
            Self::Refused => LoopCause::Refused,
            Self::NotKept => LoopCause::NotKept,
        }
    }
}

closed_label! {
    /// The watts of a grant.
    pub(crate) enum GrantWatts {
        /// The most that it allows.
        Granted = "granted",
        /// The most that the devices draw, by what was read back.
        Held = "held",
        /// The most that may be held: of the grant that was last in force on every device, or of one on its way if that is more.
        InForce = "in_force",
        /// The least that they can be held to.
        Floor = "floor",
        /// What the node has yielded of it and wants back while no operator leads.
        Missed = "missed",
    }
}

closed_label! {
    /// The serials of grants.
    pub(crate) enum GrantSerial {
        /// That of the grant that stands.
        Granted = "granted",
        /// That of the last one that was in force on every device.
        Held = "held",
    }
}

closed_label! {
    /// How a device does not keep to its grant.
    pub(crate) enum GrantUnkept {
        /// It does not go down to its share.
        Refused = "refused",
        /// It draws above its limit.
        Above = "above",
    }
}

closed_label! {
    /// Why a grant is not followed.
    pub(crate) enum GrantIgnored {
        /// The object said a later one before.
        Older = "older",
        /// Another object is followed.
        Other = "other",
    }
}

closed_label! {
    /// For which part of the time a demand is exceeded.
    pub(crate) enum DemandLevel {
        /// Never.
        Highest = "highest",
        /// For half of it.
        Median = "median",
        /// Nearly always.
        Lowest = "lowest",
    }
}

closed_label! {
    /// By what it is seen that a power limit holds a device back.
    pub(crate) enum BiteBy {
        /// By a counter of the device.
        Counter = "counter",
        /// By what it says when it is asked.
        Instant = "instant",
        /// By the power, which is at the limit.
        Drawn = "drawn",
    }
}

impl BiteBy {
    pub(super) const fn source(self) -> BiteSource {
        match self {
            Self::Counter => BiteSource::Counter,
            Self::Instant => BiteSource::Instant,
            Self::Drawn => BiteSource::Drawn,
        }
    }
}

closed_label! {
    /// What is written.
    pub(crate) enum Object {
        /// The status of a NodePowerGrant.
        Grant = "nodepowergrant",
        /// The status of a NodePowerProfile.
        Profile = "nodepowerprofile",
        /// The status of a NodeTwin.
        Twin = "nodetwin",
        /// A NodeHardware.
        Hardware = "nodehardware",
        /// The status of a TelemetryProfile.
        Route = "telemetryprofile",
    }
}

impl Object {
    pub(super) const fn of(kind: Kind) -> Self {
        match kind {
            Kind::Grant => Self::Grant,
            Kind::Profile => Self::Profile,
            Kind::Twin => Self::Twin,
            Kind::Hardware => Self::Hardware,
            Kind::Route | Kind::Rival(_) => Self::Route,
        }
    }
}

label_set! {
    pub(super) struct Node {
        pub(super) node: String,
    }

    pub(super) struct NodeMode {
        pub(super) node: String,
        pub(super) mode: &'static str,
    }

    pub(super) struct NodePolicy {
        pub(super) node: String,
        pub(super) policy: String,
    }

    pub(super) struct NodeZone {
        pub(super) node: String,
        pub(super) zone: String,
    }

    pub(super) struct NodeGpu {
        pub(super) node: String,
        pub(super) gpu: String,
    }

    pub(super) struct NodeGpuCause {
        pub(super) node: String,
        pub(super) gpu: String,
        pub(super) cause: Cause,
    }

    pub(super) struct NodeGpuClock {
        pub(super) node: String,
        pub(super) gpu: String,
        pub(super) cause: ClockCause,
    }

    pub(super) struct NodeDevice {
        pub(super) node: String,
        pub(super) device: String,
    }

    pub(super) struct NodeCpu {
        pub(super) node: String,
        pub(super) cpu: u16,
    }

    pub(super) struct NodeMove {
        pub(super) node: String,
        pub(super) action: Move,
    }

    pub(super) struct NodeBackend {
        pub(super) node: String,
        pub(super) backend: &'static str,
    }

    pub(super) struct NodeGrantWatts {
        pub(super) node: String,
        pub(super) what: GrantWatts,
    }

    pub(super) struct NodeGrantSerial {
        pub(super) node: String,
        pub(super) what: GrantSerial,
    }

    pub(super) struct NodeGrantUnkept {
        pub(super) node: String,
        pub(super) what: GrantUnkept,
    }

    pub(super) struct NodeGrantIgnored {
        pub(super) node: String,
        pub(super) reason: GrantIgnored,
    }

    pub(super) struct NodeDemandLevel {
        pub(super) node: String,
        pub(super) exceeded: DemandLevel,
    }

    pub(super) struct NodeBite {
        pub(super) node: String,
        pub(super) by: BiteBy,
    }

    pub(super) struct Write {
        pub(super) object: Object,
        pub(super) outcome: Written,
    }

    pub(super) struct WhichObject {
        pub(super) object: Object,
    }
}
