//! What hosts say of a HAL.

/// What a HAL caps.
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
    /// In one word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Package => "package",
            Self::Policy => "policy",
            Self::Gpu => "GPU",
        }
    }
}

/// What hosts say of a HAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalFacts {
    /// Its name in the journal, in metric labels and in what `joulie node` and `hil` print. It never changes: a journal
    /// of an earlier version is read by it.
    pub label: &'static str,
    /// What it is, in a few words for help texts.
    pub what: &'static str,
    /// What it caps.
    pub caps: HalTarget,
    /// Who made the GPUs, as NodeHardware names them; none where it caps no GPUs.
    pub vendor: Option<&'static str>,
    /// The word `backend` of a status where it holds a cap, and the source of measured power.
    pub class: &'static str,
    /// What `hil --require` calls it; several HALs may reach the same hardware.
    pub hardware: &'static str,
    /// What a process needs to set its limits.
    pub access: &'static str,
    /// Why it is used only where the configuration says so.
    pub opt_in: Option<&'static str>,
}
