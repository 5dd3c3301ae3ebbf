//! Builds the status of a NodeHardware from what the machine reports, then from the node's labels. The catalogue
//! explains the models. A model without a name stays unnamed, and the catalogue never decides which hardware a node
//! has.

mod vendor;

use super::pace::Power;
use super::publish::without_nulls;
use super::rows::NodeRow;
use crate::machine::{Found, FoundGpus};
use crate::plug::PlugView;
use host_kit::clock::Mono;
use jiff::Timestamp;
use joulie_api::condition::rfc3339;
use joulie_api::labels::node;
use joulie_api::node_hardware::METER_SILENT;
use joulie_api::number::Number;
use joulie_core::node::cap::CapRange;
use planner::catalog::Catalog;
use power_units::Watts;
use serde_json::{Value, json};

/// A model: its name as reported, and its key in the catalogue.
struct Named {
    raw: Option<String>,
    key: Option<String>,
}

impl Named {
    /// Takes the first name that is not empty, and the key of the first name that the catalogue knows.
    fn of<'a>(
        names: impl IntoIterator<Item = Option<&'a str>>,
        key: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let names: Vec<&str> =
            names.into_iter().flatten().map(str::trim).filter(|name| !name.is_empty()).collect();
        Self {
            raw: names.first().map(|name| (*name).to_owned()),
            key: names.iter().find_map(|name| key(name)),
        }
    }

    const fn exactness(&self) -> &'static str {
        match (&self.key, &self.raw) {
            (Some(_), _) => "exact",
            (None, Some(_)) => "proxy",
            (None, None) => "generic",
        }
    }

    fn warning(&self, what: &str) -> Option<String> {
        let raw = self.raw.as_ref().filter(|_| self.key.is_none())?;
        Some(format!("the hardware catalogue does not know the {what} model {raw:?}"))
    }
}

/// The power measurement that is published with the hardware.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sampled {
    pub(crate) power: Power,
    pub(crate) at: String,
    pub(crate) source: &'static str,
    pub(crate) plug: Option<PlugSaid>,
}

/// What is published of the node's own meter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlugSaid {
    /// The meter, or [`METER_SILENT`].
    source: &'static str,
    at: String,
}

impl PlugSaid {
    pub(crate) fn of(plug: PlugView, (now, wall): (Mono, Timestamp)) -> Self {
        let PlugView { source, watts, at, rest: _ } = plug;
        let source = if watts.is_some() { source.word() } else { METER_SILENT };
        let at = wall.checked_sub(now.since(at)).unwrap_or(wall);
        Self { source, at: rfc3339(at) }
    }
}

/// Builds the status, without the time at which it is written.
pub(crate) fn status(found: &Found, row: &NodeRow, catalog: &Catalog, power: Value) -> Value {
    let label = |key: &str| row.labels.get(key).map(String::as_str);
    let cpu_names = [found.cpu_model.as_deref(), label(node::CPU_MODEL), label(node::NFD_CPU_MODEL)];
    let cpu = Named::of(cpu_names, |name| catalog.cpu(name).map(|model| model.key.clone()));
    let products = node::GPU_PRODUCTS.iter().map(|key| label(key));
    let gpu_names = [found.gpus.as_ref().and_then(|gpus| gpus.model.as_deref()), label(node::GPU_MODEL)];
    let gpus = gpus(found, row);
    let gpu = match &gpus {
        Some(gpus) if gpus.count > 0 => Named::of(gpu_names.into_iter().chain(products), |name| {
            catalog.gpu(name).map(|it| it.key.clone())
        }),
        Some(_) | None => Named { raw: None, key: None },
    };
    let warnings = cpu.warning("CPU").into_iter().chain(gpu.warning("GPU"));
    let warnings: Vec<String> = warnings.chain(row.refused.words().iter().cloned()).collect();
    let control = gpus.as_ref().is_some_and(|gpus| gpus.control);
    let metered = gpus.as_ref().is_some_and(|gpus| gpus.metered);
    without_nulls(json!({
        "cpu": cpu_value(found, row, &cpu),
        "gpu": gpu_value(gpus.as_ref(), &gpu),
        "memory": found.memory_bytes.or(row.memory_bytes).map(|bytes| json!({"totalBytes": bytes})),
        "network": found.link_class.map(|class| json!({"linkClass": class})),
        "capabilities": {
            "cpuControl": found.cpu_control, "cpuTelemetry": found.cpu_metered,
            "gpuControl": control, "gpuTelemetry": metered,
        },
        "inventoryResolution": {
            "hardwareCatalogKey": {"cpu": cpu.key, "gpu": gpu.key},
            "exactness": {"cpu": cpu.exactness(), "gpu": gpu.exactness()},
        },
        "quality": {"overall": overall(&cpu, &gpu, gpus.as_ref()), "warnings": warnings},
        "power": power,
    }))
}

fn overall(cpu: &Named, gpu: &Named, gpus: Option<&FoundGpus>) -> &'static str {
    let no_gpus = gpus.is_none_or(|gpus| gpus.count == 0);
    if cpu.key.is_some() && (no_gpus || gpu.key.is_some()) {
        "exact"
    } else if cpu.raw.is_some() || gpu.raw.is_some() {
        "heuristic"
    } else {
        "unavailable"
    }
}

/// The GPUs as the machine lists them, else as many as the Node object offers.
fn gpus(found: &Found, row: &NodeRow) -> Option<FoundGpus> {
    let offered = || {
        let vendor = vendor::gpus(&row.labels).next();
        FoundGpus { count: row.gpus, vendor, ..FoundGpus::default() }
    };
    match &found.gpus {
        Some(gpus) if gpus.count > 0 => {
            let vendor = gpus.vendor.or_else(|| vendor::gpus(&row.labels).next());
            Some(FoundGpus { vendor, ..gpus.clone() })
        }
        Some(_) => Some(offered()),
        // The drivers have not answered yet, so it is not known that there are no GPUs.
        None => Some(offered()).filter(|gpus| gpus.count > 0),
    }
}

fn cpu_value(found: &Found, row: &NodeRow, named: &Named) -> Value {
    let sockets = found.packages.or(row.sockets).filter(|&sockets| sockets > 0);
    let cores = row.cores.or(found.cores);
    let per_socket = cores.zip(sockets).and_then(|(cores, sockets)| cores.checked_div(sockets));
    let range = found.package_range.map(|range| {
        json!({
            "type": "package",
            "minWattsPerSocket": range.min().map(Number::from),
            "maxWattsPerSocket": range.max().map(Number::from),
        })
    });
    let mhz = |khz: power_units::KiloHertz| khz.to_bits().checked_div(1000 << 32);
    let (lowest, highest) = found.frequencies.unzip();
    let knows_frequencies = lowest.is_some() || found.nominal_mhz.is_some() || found.nonlinear_mhz.is_some();
    json!({
        "rawModel": named.raw, "model": named.key, "vendor": vendor::cpu(found.cpu_vendor.as_deref(), &row.labels),
        "sockets": sockets, "totalCores": cores, "coresPerSocket": per_socket,
        "driverFamily": found.cpu_driver, "capRange": range,
        "landmarks": knows_frequencies.then(|| json!({
            "minFreqMHz": lowest.and_then(mhz), "nominalFreqMHz": found.nominal_mhz,
            "maxBoostMHz": highest.and_then(mhz), "lowestNonlinearFreqMHz": found.nonlinear_mhz,
        })),
        "controlAvailable": found.cpu_control, "telemetryAvailable": found.cpu_metered,
        "warnings": named.warning("CPU").map(|warning| vec![warning]),
    })
}

fn gpu_value(gpus: Option<&FoundGpus>, named: &Named) -> Value {
    let Some(gpus) = gpus else { return Value::Null };
    let watts = |watts: Option<Watts>| watts.map(Number::from);
    let end = |of: fn(CapRange) -> Option<Watts>| gpus.range.and_then(of);
    let range = gpus.range.map(|_| {
        json!({
            "minWatts": watts(end(CapRange::min)), "maxWatts": watts(end(CapRange::max)),
            "defaultWatts": watts(gpus.default_watts),
        })
    });
    let slicing = (!gpus.slicing.is_empty()).then(|| json!({"supported": true, "modes": gpus.slicing}));
    json!({
        "present": gpus.count > 0, "rawModel": named.raw, "model": named.key,
        "vendor": if gpus.count == 0 { Some("none") } else { gpus.vendor }, "count": gpus.count,
        "capRangePerGpu": range, "currentCapWatts": watts(gpus.current_watts), "slicing": slicing,
        "controlAvailable": gpus.control, "telemetryAvailable": gpus.metered,
        "warnings": named.warning("GPU").map(|warning| vec![warning]),
    })
}

impl Sampled {
    /// The measurement in the format of the status.
    pub(crate) fn value(&self) -> Value {
        let Self { power, at, source, plug } = self;
        let (plug_source, plug_at) = plug.as_ref().map(|plug| (plug.source, &plug.at)).unzip();
        let watts = |watts: Option<Watts>| watts.map(Number::from);
        json!({
            "cpuWatts": watts(power.cpu), "gpuWatts": watts(power.gpu), "nodeWatts": watts(power.node),
            "dramWatts": watts(power.dram),
            "nodeSource": plug_source, "nodeSampledAt": plug_at, "restWatts": watts(power.rest),
            "sampledAt": at, "source": source,
        })
    }
}
