//! The facts about a HAL for hosts.

/// The hardware that a HAL caps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HalTarget {
    /// The power of packages or sockets.
    Package,
    /// The frequency of policies.
    Policy,
    /// The power of GPUs.
    Gpu,
}

impl HalTarget {
    /// The target in one word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Package => "package",
            Self::Policy => "policy",
            Self::Gpu => "GPU",
        }
    }
}

/// The facts about a HAL for hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalFacts {
    /// Its name in the journal, in metric labels and in the output of `joulie node` and `hil`. It never changes, since
    /// journals of earlier versions contain it.
    pub label: &'static str,
    /// A short description for help texts.
    pub what: &'static str,
    /// The hardware that it caps.
    pub caps: HalTarget,
    /// The vendor of its GPUs, as in NodeHardware; `None` if it caps no GPUs.
    pub vendor: Option<&'static str>,
    /// The word `backend` in a status when it holds a cap, and the source of measured power.
    pub class: &'static str,
    /// Its name in `hil --require`; several HALs may access the same hardware.
    pub hardware: &'static str,
    /// What a process needs to set its limits.
    pub access: &'static str,
    /// Why it is used only if the configuration enables it.
    pub opt_in: Option<&'static str>,
}
