//! The settings of the energy ledger.

use crate::energy::{EnergyPrices, EnergySettings};
use host_kit::config::{ConfigSetting, Refusals, UrlTemplate, Values, Wrong, parse};
use std::path::PathBuf;

/// More than anybody pays, or emits, for a kilowatt-hour in any currency or unit.
const PER_KWH_MOST: f64 = 1e6;

pub(super) const LEDGER: ConfigSetting<bool> = ConfigSetting::with_default(
    "ENERGY_LEDGER",
    "off",
    |text| parse::one_of(text, &[("off", false), ("on", true)]),
    "off or on",
    "Whether the joules of packages and GPUs are charged to the workloads of pods (joulie_energy_joules_total); it reads the \
     cgroups of pods below HOST_ROOT, the pods of the node from the API and, on a node with GPUs, the kubelet's PodResources. \
     For the agent's own node only",
);
pub(super) const SOCKET: ConfigSetting<PathBuf> = ConfigSetting::with_default(
    "ENERGY_POD_RESOURCES_SOCKET",
    "/var/lib/kubelet/pod-resources/kubelet.sock",
    parse::path,
    "the path of a socket",
    "Where the kubelet says which pod holds which GPU (PodResources v1)",
);
pub(super) const PRICE: ConfigSetting<Option<f64>> = ConfigSetting::optional(
    "ENERGY_PRICE_PER_KWH",
    |text| parse::real(text, 0.0..=PER_KWH_MOST).map(Some),
    "a number from 0 to 1000000",
    "With it the ledger shows costs too (joulie_energy_cost_total), in the currency of this price",
);
pub(super) const CO2: ConfigSetting<Option<f64>> = ConfigSetting::optional(
    "ENERGY_CO2_GRAMS_PER_KWH",
    |text| parse::real(text, 0.0..=PER_KWH_MOST).map(Some),
    "a number from 0 to 1000000",
    "With it the ledger shows emissions too (joulie_energy_co2_grams_total)",
);
pub(super) const PODS: ConfigSetting<bool> = ConfigSetting::with_default(
    "ENERGY_PODS",
    "off",
    |text| parse::one_of(text, &[("off", false), ("on", true)]),
    "off or on",
    "Whether the ledger shows each pod too (joulie_energy_pod_joules_total), beside its workload: up to 2,048 series of a node, and a \
     new one for each pod that comes",
);

pub(super) const KEPLER: ConfigSetting<Option<UrlTemplate>> = ConfigSetting::optional(
    "ENERGY_KEPLER_URL",
    |text| kepler_url(text).map(Some),
    "an http URL such as http://{node}:9102/metrics",
    "With it packages are divided by what the Kepler of this node says that pods use, while it counts; else by processor time. It must lead to the Kepler of the same node: {node} is the name of the node, and a Service with internalTrafficPolicy Local does it too",
);

fn kepler_url(text: &str) -> Result<UrlTemplate, Wrong> {
    let template = parse::url_template(text)?;
    if template.has_tls() || template.server().contains('@') {
        return Err(Wrong(
            "Kepler is asked on its own node by http, without TLS and without a user".to_owned(),
        ));
    }
    Ok(template)
}

/// The ledger's settings, if there is to be one.
pub(super) fn read(values: &Values) -> Result<Option<EnergySettings>, Refusals> {
    let prices = EnergyPrices { cost: values.get(&PRICE)?, co2_grams: values.get(&CO2)? };
    let (has_ledger, kepler) = (values.get(&LEDGER)?, values.get(&KEPLER)?);
    if kepler.is_some() && !has_ledger {
        return Err(values.conflict(&[LEDGER.name(), KEPLER.name()], "Kepler is asked for the ledger only"));
    }
    let pods = values.get(&PODS)?;
    if pods && !has_ledger {
        return Err(values.conflict(&[LEDGER.name(), PODS.name()], "pods are shown of the ledger only"));
    }
    let settings = EnergySettings { socket: values.get(&SOCKET)?, prices, pods, kepler };
    Ok(has_ledger.then_some(settings))
}
