//! Free resources of a node, and what a pod takes of them.

/// Resources that pods request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestedResources {
    /// Thousandths of a core.
    pub cpu_milli: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Graphics processors.
    pub gpus: u32,
    /// Pods; a pod takes one.
    pub pods: u32,
}

impl RequestedResources {
    pub(in crate::migration) const fn plus(self, more: Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.saturating_add(more.cpu_milli),
            memory_bytes: self.memory_bytes.saturating_add(more.memory_bytes),
            gpus: self.gpus.saturating_add(more.gpus),
            pods: self.pods.saturating_add(more.pods),
        }
    }

    pub(crate) const fn holds(self, needs: Self) -> bool {
        self.cpu_milli >= needs.cpu_milli
            && self.memory_bytes >= needs.memory_bytes
            && self.gpus >= needs.gpus
            && self.pods >= needs.pods
    }

    /// What is left without what pods need; at least nothing.
    #[must_use]
    pub const fn less(self, needs: Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.saturating_sub(needs.cpu_milli),
            memory_bytes: self.memory_bytes.saturating_sub(needs.memory_bytes),
            gpus: self.gpus.saturating_sub(needs.gpus),
            pods: self.pods.saturating_sub(needs.pods),
        }
    }
}
