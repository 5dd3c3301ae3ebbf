//! What a pod requests: its class, cores, memory and GPUs, as numbers.
//!
//! The text of quantities is parsed elsewhere. This module computes what a pod's containers request *while it runs*,
//! because that is what it will draw. Main containers and sidecars are added. The cores of an init container are free
//! before that, but its GPUs are held for the pod's whole life. In a container a request above zero counts, else the
//! limit. Nothing here depends on a node.

use super::class::WorkloadClass;

/// Thousandths of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MilliCores(u32);

impl MilliCores {
    /// This many thousandths of a core.
    #[must_use]
    pub const fn new(thousandths: u32) -> Self {
        Self(thousandths)
    }

    /// How many thousandths of a core.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// The vendor of a GPU, as the names of Kubernetes resources tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GpuVendor {
    /// `nvidia.com/gpu`
    Nvidia,
    /// `amd.com/gpu`
    Amd,
    /// `gpu.intel.com/i915` and `gpu.intel.com/xe`, by the driver
    Intel,
}

impl GpuVendor {
    /// All of them, in the order in which a container's resources are searched.
    pub const ALL: [Self; 3] = [Self::Nvidia, Self::Amd, Self::Intel];

    /// Reads a hardware record's vendor; `None` for an unknown one.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let is = |name: &str| text.trim().eq_ignore_ascii_case(name);
        match () {
            () if is("nvidia") => Some(Self::Nvidia),
            () if is("amd") => Some(Self::Amd),
            () if is("intel") => Some(Self::Intel),
            () => None,
        }
    }
}

/// What a resource's name means for GPUs.
///
/// The watts of whole GPUs are known. A part of a GPU (a MIG instance, a time slice of a shared one) draws something, but
/// no record contains how much. It is to count too much rather than too little: an instance counts with a quarter of a GPU for
/// each of its slices, since models have four or seven of them and the first one wakes what all share; anything else with
/// a whole GPU, because a pod may have a shared one to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GpuResource {
    /// Each is one GPU. The amounts of one vendor's names add up.
    Whole(GpuVendor),
    /// Each is a part of a GPU.
    Part {
        /// Whose.
        vendor: GpuVendor,
        /// Which part of the watts of a GPU it may add, in quarters.
        quarters: u32,
    },
}

impl GpuResource {
    /// Reads the name of an extended resource; names are exact.
    #[must_use]
    pub fn read(name: &str) -> Option<Self> {
        match name {
            "nvidia.com/gpu" => Some(Self::Whole(GpuVendor::Nvidia)),
            "amd.com/gpu" => Some(Self::Whole(GpuVendor::Amd)),
            "gpu.intel.com/i915" | "gpu.intel.com/xe" => Some(Self::Whole(GpuVendor::Intel)),
            "nvidia.com/gpu.shared" => Some(Self::Part { vendor: GpuVendor::Nvidia, quarters: WHOLE_GPU }),
            _ => {
                let profile = name.strip_prefix("nvidia.com/mig-")?;
                Some(Self::Part { vendor: GpuVendor::Nvidia, quarters: quarters_of(profile) })
            }
        }
    }
}

/// The quarters of a whole GPU.
pub(crate) const WHOLE_GPU: u32 = 4;

/// The quarters of an instance of this profile, such as `3g.40gb`; one that cannot be read counts as a whole GPU.
fn quarters_of(profile: &str) -> u32 {
    match () {
        () if profile.starts_with("1g.") => 1,
        () if profile.starts_with("2g.") => 2,
        () if profile.starts_with("3g.") => 3,
        () => WHOLE_GPU,
    }
}

/// GPUs of one vendor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuDemand {
    /// How many.
    pub count: u32,
    /// Their vendor.
    pub vendor: GpuVendor,
}

/// What a pod requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodDemand {
    /// Its class.
    pub class: WorkloadClass,
    /// Cores; never zero.
    pub cpu: MilliCores,
    /// Memory.
    pub memory_bytes: u64,
    /// GPUs, if it requests any.
    pub gpus: Option<GpuDemand>,
    /// Beside them, which part of the watts of NVIDIA's GPUs its parts of GPUs may add, in quarters of one.
    pub gpu_quarters: u32,
}

impl PodDemand {
    /// A pod that requests no cores still runs: the cores that it is assumed to use.
    #[must_use]
    pub const fn least_cpu(class: WorkloadClass) -> MilliCores {
        match class {
            WorkloadClass::Performance => MilliCores(500),
            WorkloadClass::Standard => MilliCores(250),
        }
    }
}

/// What a container specifies of one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceRequest {
    /// `resources.requests`
    pub request: Option<u64>,
    /// `resources.limits`
    pub limit: Option<u64>,
}

impl ResourceRequest {
    /// A request of zero requests nothing, so the limit counts.
    #[must_use]
    pub fn amount(self) -> u64 {
        let request = self.request.filter(|&request| request > 0);
        request.or(self.limit).unwrap_or(0)
    }
}

/// When a container runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// As long as the pod.
    Main,
    /// To its end, before the main containers start.
    Init,
    /// An init container that is restarted: from its start on, as long as the pod.
    Sidecar,
}

/// One container's resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Container {
    /// When it runs.
    pub runs: Runs,
    /// Thousandths of a core.
    pub cpu_milli: ResourceRequest,
    /// Bytes of memory.
    pub memory_bytes: ResourceRequest,
    /// Whole GPUs ([`GpuResource::Whole`]), in the order of [`GpuVendor::ALL`].
    pub gpus: [ResourceRequest; 3],
    /// Parts of GPUs ([`GpuResource::Part`]), in quarters of one; only NVIDIA has any.
    pub gpu_quarters: ResourceRequest,
}

impl Container {
    /// A container has GPUs of one vendor: the first that its requests name, else the first that its limits name.
    fn gpus(&self) -> Option<GpuDemand> {
        let first = |of: fn(&ResourceRequest) -> Option<u64>| {
            let named = GpuVendor::ALL.into_iter().zip(&self.gpus);
            let mut counted = named.filter_map(|(vendor, ask)| of(ask).map(|count| (vendor, count)));
            counted.find(|&(_, count)| count > 0)
        };
        let (vendor, count) = first(|ask| ask.request).or_else(|| first(|ask| ask.limit))?;
        Some(GpuDemand { count: u32::try_from(count).unwrap_or(u32::MAX), vendor })
    }
}

/// Adds a pod's containers up, in the order in which its spec lists them: init containers first.
#[derive(Clone, Copy, Debug, Default)]
pub struct DemandSum {
    cpu_milli: u64,
    memory_bytes: u64,
    gpus_running: u32,
    gpus_at_start: u32,
    quarters_running: u32,
    quarters_at_start: u32,
    vendor: Option<GpuVendor>,
    pod_cpu_milli: u64,
    pod_memory_bytes: u64,
    overhead_milli: u64,
    overhead_bytes: u64,
}

impl DemandSum {
    /// Adds a container.
    pub fn add(&mut self, container: &Container) {
        let gpus = container.gpus();
        let count = gpus.map_or(0, |gpus| gpus.count);
        let quarters = u32::try_from(container.gpu_quarters.amount()).unwrap_or(u32::MAX);
        self.vendor = gpus.map(|gpus| gpus.vendor).or(self.vendor);
        if container.runs == Runs::Init {
            self.gpus_at_start = self.gpus_at_start.max(self.gpus_running.saturating_add(count));
            self.quarters_at_start =
                self.quarters_at_start.max(self.quarters_running.saturating_add(quarters));
            return;
        }
        self.gpus_running = self.gpus_running.saturating_add(count);
        self.quarters_running = self.quarters_running.saturating_add(quarters);
        self.cpu_milli = self.cpu_milli.saturating_add(container.cpu_milli.amount());
        self.memory_bytes = self.memory_bytes.saturating_add(container.memory_bytes.amount());
    }

    /// `spec.resources` of the pod itself. It replaces the sum of its containers where it specifies an amount.
    pub fn pod_level(&mut self, cpu_milli: ResourceRequest, memory_bytes: ResourceRequest) {
        self.pod_cpu_milli = cpu_milli.amount();
        self.pod_memory_bytes = memory_bytes.amount();
    }

    /// `spec.overhead`: what the sandbox uses besides the containers.
    pub fn overhead(&mut self, cpu_milli: u64, memory_bytes: u64) {
        self.overhead_milli = cpu_milli;
        self.overhead_bytes = memory_bytes;
    }

    /// The whole pod.
    #[must_use]
    pub fn total(&self, class: WorkloadClass) -> PodDemand {
        let or = |pod: u64, containers: u64| if pod > 0 { pod } else { containers };
        let cpu = match or(self.pod_cpu_milli, self.cpu_milli) {
            0 => u64::from(PodDemand::least_cpu(class).0),
            asked => asked,
        };
        let cpu = cpu.saturating_add(self.overhead_milli);
        let memory = or(self.pod_memory_bytes, self.memory_bytes).saturating_add(self.overhead_bytes);
        let count = self.gpus_running.max(self.gpus_at_start);
        let gpus = self.vendor.map(|vendor| GpuDemand { count, vendor }).filter(|gpus| gpus.count > 0);
        let cpu = MilliCores(u32::try_from(cpu).unwrap_or(u32::MAX));
        let gpu_quarters = self.quarters_running.max(self.quarters_at_start);
        PodDemand { class, cpu, memory_bytes: memory, gpus, gpu_quarters }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn asks(request: u64) -> ResourceRequest {
        ResourceRequest { request: Some(request), limit: None }
    }

    pub(crate) fn limited(limit: u64) -> ResourceRequest {
        ResourceRequest { request: None, limit: Some(limit) }
    }

    pub(crate) fn container(runs: Runs, cpu_milli: ResourceRequest) -> Container {
        Container {
            runs,
            cpu_milli,
            memory_bytes: ResourceRequest::default(),
            gpus: [ResourceRequest::default(); 3],
            gpu_quarters: ResourceRequest::default(),
        }
    }

    pub(crate) fn pod(class: WorkloadClass, containers: &[Container]) -> PodDemand {
        let mut sum = DemandSum::default();
        for container in containers {
            sum.add(container);
        }
        sum.total(class)
    }

    fn cpu(containers: &[Container]) -> u32 {
        pod(WorkloadClass::Standard, containers).cpu.get()
    }

    #[test]
    fn a_request_speaks_before_a_limit_and_containers_add_up() {
        // Extender table, row 18.
        // The powerest table: req 2/lim 4 → 2; lim 4 → 4; 500m → 0.5; 1+2 → 3; number 4 → 4.
        let both = ResourceRequest { request: Some(2000), limit: Some(4000) };
        let zero = ResourceRequest { request: Some(0), limit: Some(4000) };
        let main = |ask| container(Runs::Main, ask);
        assert_eq!(cpu(&[main(both)]), 2000);
        assert_eq!(cpu(&[main(limited(4000))]), 4000);
        assert_eq!(cpu(&[main(zero)]), 4000);
        assert_eq!(cpu(&[main(asks(500))]), 500);
        assert_eq!(cpu(&[main(asks(1000)), main(asks(2000))]), 3000);
        assert_eq!(cpu(&[main(asks(1000)), main(ResourceRequest::default())]), 1000);
    }

    #[test]
    fn a_pod_that_asks_for_nothing_gets_its_class_s_least() {
        assert_eq!(pod(WorkloadClass::Performance, &[]).cpu.get(), 500);
        assert_eq!(pod(WorkloadClass::Standard, &[]).cpu.get(), 250);
        assert_eq!(pod(WorkloadClass::Standard, &[]).memory_bytes, 0);
        assert_eq!(pod(WorkloadClass::Standard, &[]).gpus, None);
    }

    #[test]
    fn gpus_are_found_in_requests_and_limits_of_every_vendor() {
        // Extender table, row 20. Seed table, row 4.
        let with = |gpus| Container { gpus, ..container(Runs::Main, ResourceRequest::default()) };
        let none = ResourceRequest::default();
        let gpus = |containers: &[Container]| pod(WorkloadClass::Standard, containers).gpus;
        let of = |count, vendor| Some(GpuDemand { count, vendor });
        let nvidia = ResourceRequest { request: Some(2), limit: Some(2) };
        assert_eq!(gpus(&[with([nvidia, none, none])]), of(2, GpuVendor::Nvidia));
        assert_eq!(gpus(&[with([none, limited(1), none])]), of(1, GpuVendor::Amd));
        assert_eq!(gpus(&[with([none, none, limited(1)])]), of(1, GpuVendor::Intel));
        // A container with two vendors counts the first.
        assert_eq!(gpus(&[with([asks(1), asks(3), none])]), of(1, GpuVendor::Nvidia));
        assert_eq!(gpus(&[with([asks(0), none, none])]), None);
        assert_eq!(gpus(&[with([asks(u64::MAX), none, none])]), of(u32::MAX, GpuVendor::Nvidia));
    }

    #[test]
    fn what_starts_and_ends_before_the_pod_runs_holds_gpus_but_draws_no_cores() {
        // Fix list extender B22.
        let with = |runs, cpu, count| Container {
            gpus: [asks(count), ResourceRequest::default(), ResourceRequest::default()],
            ..container(runs, asks(cpu))
        };
        let demand = pod(WorkloadClass::Standard, &[with(Runs::Init, 64_000, 4), with(Runs::Main, 4000, 1)]);
        assert_eq!((demand.cpu.get(), demand.gpus.unwrap().count), (4000, 4));
        let two_inits = [with(Runs::Init, 0, 2), with(Runs::Init, 0, 3), container(Runs::Main, asks(1000))];
        assert_eq!(pod(WorkloadClass::Standard, &two_inits).gpus.unwrap().count, 3);
    }

    #[test]
    fn parts_of_gpus_add_up_beside_whole_ones_and_start_before_the_pod_runs() {
        let with = |runs, quarters, count| Container {
            gpus: [asks(count), ResourceRequest::default(), ResourceRequest::default()],
            gpu_quarters: quarters,
            ..container(runs, asks(1000))
        };
        let parts = |containers: &[Container]| pod(WorkloadClass::Standard, containers).gpu_quarters;
        assert_eq!(parts(&[with(Runs::Main, asks(2), 0), with(Runs::Main, limited(3), 1)]), 5);
        assert_eq!(parts(&[with(Runs::Init, asks(4), 0), with(Runs::Main, asks(1), 0)]), 4);
        assert_eq!(parts(&[with(Runs::Sidecar, asks(1), 0), with(Runs::Init, asks(4), 0)]), 5);
        assert_eq!(parts(&[with(Runs::Main, asks(u64::MAX), 0), with(Runs::Main, asks(1), 0)]), u32::MAX);
        assert_eq!(pod(WorkloadClass::Standard, &[with(Runs::Main, asks(2), 0)]).gpus, None);
    }

    #[test]
    fn a_sidecar_runs_beside_everything_that_comes_after_it() {
        // Fix list extender B22.
        let with = |runs, cpu, count| Container {
            gpus: [asks(count), ResourceRequest::default(), ResourceRequest::default()],
            ..container(runs, asks(cpu))
        };
        let demand = pod(
            WorkloadClass::Standard,
            &[
                with(Runs::Init, 0, 3),
                with(Runs::Sidecar, 500, 1),
                with(Runs::Init, 0, 4),
                with(Runs::Main, 1000, 2),
            ],
        );
        // Side by side: 3; then 1 + 4; then 1 + 2.
        assert_eq!((demand.cpu.get(), demand.gpus.unwrap().count), (1500, 5));
    }

    #[test]
    fn the_pod_s_own_resources_and_its_overhead_count() {
        // Fix list extender B22.
        let mut sum = DemandSum::default();
        sum.add(&container(Runs::Main, asks(1000)));
        sum.overhead(250, 64);
        assert_eq!(sum.total(WorkloadClass::Standard).cpu.get(), 1250);
        assert_eq!(sum.total(WorkloadClass::Standard).memory_bytes, 64);
        sum.pod_level(asks(3000), limited(4096));
        assert_eq!(sum.total(WorkloadClass::Standard).cpu.get(), 3250);
        assert_eq!(sum.total(WorkloadClass::Standard).memory_bytes, 4160);
    }

    #[test]
    fn absurd_sums_saturate() {
        let huge = container(Runs::Main, asks(u64::MAX));
        assert_eq!(cpu(&[huge, huge]), u32::MAX);
    }

    #[test]
    fn both_intel_drivers_are_intel_and_parts_of_gpus_are_told_apart_from_whole_ones() {
        // Fix list extender B22.
        use GpuResource::Whole;
        let part = |quarters| Some(GpuResource::Part { vendor: GpuVendor::Nvidia, quarters });
        for (name, expected) in [
            ("nvidia.com/gpu", Some(Whole(GpuVendor::Nvidia))),
            ("amd.com/gpu", Some(Whole(GpuVendor::Amd))),
            ("gpu.intel.com/i915", Some(Whole(GpuVendor::Intel))),
            ("gpu.intel.com/xe", Some(Whole(GpuVendor::Intel))),
            ("nvidia.com/mig-1g.10gb", part(1)),
            ("nvidia.com/mig-1g.10gb.me", part(1)),
            ("nvidia.com/mig-2g.20gb", part(2)),
            ("nvidia.com/mig-3g.20gb.shared", part(3)),
            // Of an A30 and of an A100: all, and more than half.
            ("nvidia.com/mig-4g.24gb", part(4)),
            ("nvidia.com/mig-7g.80gb", part(4)),
            // What cannot be read may be a whole GPU.
            ("nvidia.com/mig-", part(4)),
            ("nvidia.com/mig-1c.1g.10gb", part(4)),
            ("nvidia.com/mig-01g.10gb", part(4)),
            ("nvidia.com/gpu.shared", part(4)),
            ("gpu.intel.com/i915_monitoring", None),
            ("nvidia.com/gpu.count", None),
            ("NVIDIA.com/gpu", None),
            ("nvidia.com/", None),
            ("cpu", None),
            ("", None),
        ] {
            assert_eq!(GpuResource::read(name), expected, "{name}");
        }
    }

    #[test]
    fn a_vendor_is_read_in_any_case_and_an_unknown_one_is_unknown() {
        assert_eq!(GpuVendor::read("NVIDIA"), Some(GpuVendor::Nvidia));
        assert_eq!(GpuVendor::read(" amd "), Some(GpuVendor::Amd));
        assert_eq!(GpuVendor::read("Intel"), Some(GpuVendor::Intel));
        assert_eq!(GpuVendor::read("tenstorrent"), None);
        assert_eq!(GpuVendor::read(""), None);
    }
}
