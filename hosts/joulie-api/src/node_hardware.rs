//! NodeHardware: what a node is made of and what can be controlled there, published by its agent.

use crate::condition::Condition;
use crate::field::{FieldError, count, quantity};
use crate::macros::{part, vocabulary};
use crate::node_twin::unix_time;
use crate::number::{Number, Whole};
use crate::word::Word;
use joulie_core::node::cap::CapRange;
use joulie_core::placement::demand::GpuVendor;
use joulie_core::placement::estimate::{HardwareRecord, NodeGpus};
use joulie_core::placement::freshness::UnixTime;
use kube::CustomResource;
use power_units::{Role, Watts};
use serde::{Deserialize, Serialize};

/// Which node the hardware is of.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, kube::KubeSchema)]
#[kube(
    group = "joulie.io",
    version = "v1alpha1",
    kind = "NodeHardware",
    doc = "What a node is made of and what can be controlled there.",
    plural = "nodehardwares",
    status = "NodeHardwareStatus",
    derive = "PartialEq",
    shortname = "nhw",
    category = "joulie",
    selectable = ".spec.nodeName",
    printcolumn(name = "Node", type_ = "string", json_path = ".spec.nodeName"),
    printcolumn(name = "CPU", type_ = "string", json_path = ".status.cpu.model"),
    printcolumn(name = "GPU", type_ = "string", json_path = ".status.gpu.model"),
    printcolumn(name = "GPUCount", type_ = "integer", json_path = ".status.gpu.count"),
    printcolumn(name = "Quality", type_ = "string", json_path = ".status.quality.overall")
)]
#[serde(rename_all = "camelCase")]
pub struct NodeHardwareSpec {
    /// The name of the node, which is what identifies this object.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = kube::core::Rule::new("self == oldSelf").message("nodeName is immutable: an object stays with its node"))]
    pub node_name: String,
}

part! {
    /// What was discovered.
    pub struct NodeHardwareStatus {
        /// The processors.
        cpu: CpuStatus,
        /// The GPUs.
        gpu: NodeGpuStatus,
        /// The memory.
        memory: MemoryStatus,
        /// The network.
        network: NetworkStatus,
        /// Where the names of the models come from.
        inventory_resolution: InventoryResolution,
        /// What can be controlled and measured.
        capabilities: Capabilities,
        /// How much of this is known for certain.
        quality: Quality,
        /// What the node draws, as its agent last measured it.
        power: PowerStatus,
        /// When this was written, RFC 3339.
        updated_at: String,
        /// The generation of the spec that this status speaks of.
        observed_generation: Whole,
        /// How the discovery stands.
        #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
        conditions: Vec<Condition>,
    }
}

/// In `status.power.nodeSource`: there was a meter of the whole node, and it says nothing now.
pub const METER_SILENT: &str = "silent";
/// In `status.power.source`: the agent asks Prometheus, and nobody knows for sure when its value was measured.
pub const ASKED: &str = "prometheus";

part! {
    /// What a node draws, as its agent measured it.
    pub struct PowerStatus {
        /// All packages together.
        cpu_watts: Number,
        /// All GPUs together.
        gpu_watts: Number,
        /// The whole node at its plug, where a meter of the node says it. Packages and GPUs are contained in it.
        node_watts: Number,
        /// The memory of all packages together; cpuWatts does not contain it.
        dram_watts: Number,
        /// Which meter of the node that was (acpi, dcmi, redfish). It is silent where there was one that says nothing now.
        node_source: String,
        /// When the meter of the node was read, RFC 3339.
        node_sampled_at: String,
        /// What the node draws beside packages and GPUs, by its meter.
        rest_watts: Number,
        /// When it was measured, RFC 3339.
        sampled_at: String,
        /// Who measured: rapl, hsmp, http and the like.
        source: String,
    }
}

part! {
    /// A node's processors.
    pub struct CpuStatus {
        /// The model as the system names it.
        raw_model: String,
        /// The model as the hardware catalogue names it.
        model: String,
        /// AuthenticAMD, GenuineIntel, or what the system says.
        vendor: String,
        /// How many packages.
        sockets: Whole,
        /// Logical processors over all packages.
        total_cores: Whole,
        /// Logical processors of one package.
        cores_per_socket: Whole,
        /// The cpufreq driver.
        driver_family: String,
        /// What the power limit of one package can be set to.
        cap_range: CpuCapRange,
        /// Frequencies that matter to a control law.
        landmarks: CpuLandmarks,
        /// A power limit or a frequency limit can be set.
        control_available: bool,
        /// Its power can be measured.
        telemetry_available: bool,
        /// What a person should know.
        warnings: Vec<String>,
        /// The lowest power limit of one package, as the agents up to v0.0.5 wrote it.
        #[serde(rename = "capMinWatts")]
        cap_min_watts: Number,
        /// The highest power limit of one package, as the agents up to v0.0.5 wrote it.
        #[serde(rename = "capMaxWatts")]
        cap_max_watts: Number,
        /// How much is known for certain: exact, heuristic or unavailable, as the agents up to v0.0.5 wrote it.
        quality: String,
    }
}

part! {
    /// What the power limit of one package can be set to.
    pub struct CpuCapRange {
        /// What the range is of: package.
        #[serde(rename = "type")]
        type_: String,
        /// The lowest limit.
        min_watts_per_socket: Number,
        /// The highest limit.
        max_watts_per_socket: Number,
    }
}

part! {
    /// Frequencies in MHz.
    pub struct CpuLandmarks {
        /// The lowest.
        #[serde(rename = "minFreqMHz")]
        min_freq_mhz: Number,
        /// The highest without boost.
        #[serde(rename = "nominalFreqMHz")]
        nominal_freq_mhz: Number,
        /// The highest.
        #[serde(rename = "maxBoostMHz")]
        max_boost_mhz: Number,
        /// The lowest at which power still falls faster than speed.
        #[serde(rename = "lowestNonlinearFreqMHz")]
        lowest_nonlinear_freq_mhz: Number,
    }
}

part! {
    /// A node's GPUs, all of one model.
    pub struct NodeGpuStatus {
        /// There are some; false is a denial, missing is not.
        present: bool,
        /// The model as the driver names it.
        raw_model: String,
        /// The model as the hardware catalogue names it.
        model: String,
        /// nvidia, amd, intel or none.
        vendor: String,
        /// How many.
        count: Whole,
        /// What the power limit of one GPU can be set to.
        cap_range_per_gpu: GpuCapRange,
        /// The limit of the first GPU as it was found.
        current_cap_watts: Number,
        /// How they can be divided.
        slicing: Slicing,
        /// A power limit can be set.
        control_available: bool,
        /// Their power can be measured.
        telemetry_available: bool,
        /// What a person should know.
        warnings: Vec<String>,
        /// The lowest power limit of one GPU, as the agents up to v0.0.5 wrote it.
        cap_min_watts: Number,
        /// The highest power limit of one GPU, as the agents up to v0.0.5 wrote it.
        cap_max_watts: Number,
        /// How much is known for certain: exact, heuristic or unavailable, as the agents up to v0.0.5 wrote it.
        quality: String,
    }
}

part! {
    /// What the power limit of one GPU can be set to.
    pub struct GpuCapRange {
        /// The lowest limit.
        min_watts: Number,
        /// The highest limit.
        max_watts: Number,
        /// The limit that the driver starts with.
        default_watts: Number,
    }
}

part! {
    /// How GPUs can be divided.
    pub struct Slicing {
        /// They can.
        supported: bool,
        /// In which ways, among them mig, dra-timeslice.
        modes: Vec<String>,
    }
}

part! {
    /// A node's memory.
    pub struct MemoryStatus {
        /// All of it.
        total_bytes: Whole,
    }
}

part! {
    /// A node's network.
    pub struct NetworkStatus {
        /// How fast its fastest link is.
        link_class: String,
    }
}

vocabulary! {
    /// How sure a model's name is.
    pub enum Exactness {
        /// The catalogue knows the model.
        Exact = "exact",
        /// Only the system's name is known.
        Proxy = "proxy",
        /// Nothing is known.
        Generic = "generic",
    }
}

part! {
    /// Where the names of the models come from.
    pub struct InventoryResolution {
        /// The catalogue's keys.
        hardware_catalog_key: CatalogKeys,
        /// How sure the names are.
        exactness: ExactnessOf,
    }
}

part! {
    /// The keys of the hardware catalogue.
    pub struct CatalogKeys {
        /// Of the processors.
        cpu: String,
        /// Of the GPUs.
        gpu: String,
    }
}

part! {
    /// How sure the names of the models are.
    pub struct ExactnessOf {
        /// Of the processors.
        #[schemars(with = "Option<String>")]
        cpu: Word<Exactness>,
        /// Of the GPUs.
        #[schemars(with = "Option<String>")]
        gpu: Word<Exactness>,
    }
}

part! {
    /// What can be controlled and measured.
    pub struct Capabilities {
        /// A power or frequency limit of the processors can be set.
        cpu_control: bool,
        /// A power limit of the GPUs can be set.
        gpu_control: bool,
        /// The power of the processors can be measured.
        cpu_telemetry: bool,
        /// The power of the GPUs can be measured.
        gpu_telemetry: bool,
    }
}

part! {
    /// How much of a status is known for certain.
    pub struct Quality {
        /// exact, heuristic or unavailable.
        overall: String,
        /// What a person should know.
        warnings: Vec<String>,
    }
}

/// What a node drew at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrawnSample {
    /// The moment.
    pub at: UnixTime,
    /// The power.
    pub watts: Watts,
}

/// What a node draws, by its parts: the whole node where a meter measures it, else packages and GPUs. If a part does not
/// report, the power of the node as a whole is not known.
#[must_use]
pub fn drawn([cpu, gpu, node]: [Option<Watts>; 3], has_gpus: bool) -> Option<Watts> {
    node.or_else(|| match (cpu, gpu) {
        (Some(cpu), Some(gpu)) => cpu.checked_add(gpu),
        (Some(cpu), None) if !has_gpus => Some(cpu),
        (Some(_), None) | (None, _) => None,
    })
}

impl NodeHardwareStatus {
    /// What the node drew when its agent last measured it; `None` where a number is missing or impossible. While a meter of
    /// the whole node is silent, what is beside packages and GPUs is not known.
    #[must_use]
    pub fn sample(&self) -> Option<DrawnSample> {
        let power = self.power.as_ref()?;
        let watts = |number: Option<Number>| Watts::parse(&number?.to_string(), Role::Demand).ok();
        let says =
            |gpu: &NodeGpuStatus| gpu.present == Some(true) || gpu.count.is_some_and(|count| count.get() > 0);
        let parts = [power.cpu_watts, power.gpu_watts, power.node_watts].map(watts);
        let watts = drawn(parts, self.gpu.as_ref().is_some_and(says))?;
        let is_whole = power.node_source.as_deref() != Some(METER_SILENT) && watts > Watts::ZERO;
        let at = power.sampled_at.as_deref().and_then(unix_time).filter(|_| is_whole)?;
        // A meter of the whole node is asked less often than its devices: the sample is as old as the older of the two.
        let of_node = power.node_watts.and(power.node_sampled_at.as_deref());
        let at = match of_node {
            Some(of_node) => at.min(unix_time(of_node)?),
            None => at,
        };
        Some(DrawnSample { at, watts })
    }

    /// The range of the power limit of one package.
    ///
    /// # Errors
    /// If a number does not fit.
    pub fn cpu_range(&self) -> Result<CapRange, FieldError> {
        let Some(cpu) = &self.cpu else { return Ok(CapRange::UNKNOWN) };
        let range = cpu.cap_range.as_ref();
        let min = range.and_then(|range| range.min_watts_per_socket).or(cpu.cap_min_watts);
        let min = quantity("status.cpu.capRange.minWattsPerSocket", min, Role::Demand, Watts::parse)?;
        Ok(CapRange::new(min, cpu.max_watts(Role::Limit)?, None))
    }

    /// The range of the power limit of one GPU.
    ///
    /// # Errors
    /// If a number does not fit.
    pub fn gpu_range(&self) -> Result<CapRange, FieldError> {
        let Some(gpu) = &self.gpu else { return Ok(CapRange::UNKNOWN) };
        let range = gpu.cap_range_per_gpu.as_ref();
        let min = range.and_then(|range| range.min_watts).or(gpu.cap_min_watts);
        let min = quantity("status.gpu.capRangePerGpu.minWatts", min, Role::Demand, Watts::parse)?;
        Ok(CapRange::new(min, gpu.max_watts(Role::Limit)?, None))
    }
}

impl CpuStatus {
    /// The highest power limit of one package, in the form of any generation.
    fn max_watts(&self, role: Role) -> Result<Option<Watts>, FieldError> {
        let max = self.cap_range.as_ref().and_then(|range| range.max_watts_per_socket);
        quantity("status.cpu.capRange.maxWattsPerSocket", max.or(self.cap_max_watts), role, Watts::parse)
    }
}

impl NodeGpuStatus {
    /// The highest power limit of one GPU, in the form of any generation.
    fn max_watts(&self, role: Role) -> Result<Option<Watts>, FieldError> {
        let max = self.cap_range_per_gpu.as_ref().and_then(|range| range.max_watts);
        quantity("status.gpu.capRangePerGpu.maxWatts", max.or(self.cap_max_watts), role, Watts::parse)
    }

    /// The data for the estimate of a pod's watts; `None` if there are no GPUs.
    fn for_estimate(&self) -> Result<Option<NodeGpus>, FieldError> {
        let count = count("status.gpu.count", self.count)?;
        if self.present == Some(false) || (count.is_none() && self.present.is_none()) {
            return Ok(None);
        }
        let vendor = self.vendor.as_deref().and_then(GpuVendor::read);
        Ok(Some(NodeGpus { count, max: self.max_watts(Role::Demand)?, vendor, adds: None }))
    }
}

impl TryFrom<&NodeHardwareStatus> for HardwareRecord {
    type Error = FieldError;

    /// The data for the estimate of a pod's watts. The watts are an upper bound, so they round up.
    fn try_from(status: &NodeHardwareStatus) -> Result<Self, FieldError> {
        let gpus = status.gpu.as_ref().map_or(Ok(None), NodeGpuStatus::for_estimate)?;
        let Some(cpu) = &status.cpu else { return Ok(Self { gpus, ..Self::EMPTY }) };
        let sockets = count("status.cpu.sockets", cpu.sockets)?;
        let cpu_max = cpu.max_watts(Role::Demand)?.map(|max| Self::packages(max, sockets));
        Ok(Self { cpu_max, cores: count("status.cpu.totalCores", cpu.total_cores)?, gpus })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn status(json: Value) -> NodeHardwareStatus {
        serde_json::from_value(json).unwrap()
    }

    fn hardware(json: Value) -> HardwareRecord {
        HardwareRecord::try_from(&status(json)).unwrap()
    }

    fn watts(text: &str) -> Option<Watts> {
        Some(Watts::parse(text, Role::Nearest).unwrap())
    }

    #[test]
    fn ranges_of_every_generation_are_read() {
        // Fix list operator B2: the current form, and the flat one of v0.0.5.
        for json in [
            json!({"cpu": {"sockets": 2, "totalCores": 64,
                           "capRange": {"minWattsPerSocket": 90, "maxWattsPerSocket": 360}},
                   "gpu": {"present": true, "count": 8, "vendor": "nvidia",
                           "capRangePerGpu": {"minWatts": 100, "maxWatts": 400.0}}}),
            json!({"cpu": {"sockets": 2.0, "totalCores": 64, "capMinWatts": 90, "capMaxWatts": 360.0},
                   "gpu": {"count": 8, "vendor": "NVIDIA", "capMinWatts": 100.0, "capMaxWatts": 400}}),
        ] {
            let read = status(json.clone());
            assert_eq!(read.cpu_range(), Ok(CapRange::new(watts("90"), watts("360"), None)));
            assert_eq!(read.gpu_range(), Ok(CapRange::new(watts("100"), watts("400"), None)));
            let read = hardware(json);
            assert_eq!((read.cpu_max, read.cores), (watts("720"), Some(64)));
            let gpus = read.gpus.unwrap();
            assert_eq!((gpus.count, gpus.max, gpus.vendor), (Some(8), watts("400"), Some(GpuVendor::Nvidia)));
        }
    }

    #[test]
    fn a_whole_maximum_is_a_maximum() {
        // Fix list operator B3: 360 is read as 360.5 is.
        let max = |max: Value| hardware(json!({"cpu": {"capRange": {"maxWattsPerSocket": max}}})).cpu_max;
        assert_eq!(max(json!(360)), watts("360"));
        assert_eq!(max(json!(360.5)), watts("360.5"));
    }

    #[test]
    fn what_is_not_known_is_not_zero() {
        assert_eq!(hardware(json!({})), HardwareRecord::EMPTY);
        assert_eq!(
            hardware(json!({"cpu": {"sockets": 0, "totalCores": 0}, "gpu": null})),
            HardwareRecord::EMPTY
        );
        assert_eq!(status(json!({})).cpu_range(), Ok(CapRange::UNKNOWN));
        // An explicit denial, an unknown number, and a number without `present`.
        let gpus = |gpu: Value| hardware(json!({"gpu": gpu})).gpus.map(|gpus| gpus.count);
        assert_eq!(gpus(json!({"present": false, "count": 2})), None);
        assert_eq!(gpus(json!({"present": true})), Some(None));
        assert_eq!(gpus(json!({"count": 2})), Some(Some(2)));
        assert_eq!(gpus(json!({"vendor": "none", "count": 0})), None);
    }

    #[test]
    fn a_sample_is_of_the_whole_node_and_of_a_moment_or_there_is_none() {
        let at = "1970-01-01T00:00:02Z";
        let sample = |power: Value, gpus: u32| {
            let sample = status(json!({"gpu": {"count": gpus}, "power": power})).sample();
            sample.map(|sample| (sample.at, sample.watts))
        };
        let is = |watts| Some((UnixTime::from_micros(2_000_000), Watts::from_int(watts)));
        let both = json!({"cpuWatts": 200, "gpuWatts": 300, "sampledAt": at});
        assert_eq!(sample(both.clone(), 4), is(500));
        let whole = json!({"cpuWatts": 200, "nodeWatts": 640, "nodeSource": "dcmi", "sampledAt": at});
        assert_eq!(sample(whole, 4), is(640));
        let read_at = |node: &str| {
            let power =
                json!({"nodeWatts": 640, "nodeSource": "dcmi", "nodeSampledAt": node, "sampledAt": at});
            sample(power, 4).map(|(at, _)| at)
        };
        let second = |second: i64| Some(UnixTime::from_micros(second * 1_000_000));
        assert_eq!(read_at("1970-01-01T00:00:01Z"), second(1), "it was asked before the devices");
        assert_eq!(read_at("1970-01-01T00:00:03Z"), second(2));
        assert_eq!(read_at("yesterday"), None);
        let of_cpus = json!({"cpuWatts": 200, "sampledAt": at});
        assert_eq!((sample(of_cpus.clone(), 0), sample(of_cpus.clone(), 4)), (is(200), None));
        for (field, value) in [
            ("nodeSource", json!(METER_SILENT)),
            ("sampledAt", json!(null)),
            ("sampledAt", json!("yesterday")),
            ("cpuWatts", json!(null)),
            ("cpuWatts", json!(1e30)),
            ("cpuWatts", json!(-300)),
            ("gpuWatts", json!(null)),
        ] {
            let mut power = both.clone();
            power[field] = value;
            assert_eq!(sample(power.clone(), 4), None, "{power}");
        }
        let nothing = json!({"cpuWatts": 0, "sampledAt": at});
        assert_eq!(
            (sample(nothing, 0), status(json!({})).sample()),
            (None, None),
            "no running node draws 0 W"
        );
    }

    #[test]
    fn a_number_that_cannot_be_names_its_field() {
        for (json, field) in [
            (json!({"cpu": {"totalCores": -1}}), "status.cpu.totalCores"),
            (json!({"cpu": {"sockets": 5_000_000_000_u64}}), "status.cpu.sockets"),
            (json!({"gpu": {"count": -2}}), "status.gpu.count"),
            (json!({"cpu": {"capMaxWatts": 1e30}}), "status.cpu.capRange.maxWattsPerSocket"),
        ] {
            assert_eq!(HardwareRecord::try_from(&status(json)).unwrap_err().field(), field);
        }
    }
}
