//! The settings of the energy ledger.

use crate::energy::{EnergyPrices, EnergySettings};
use host_kit::config::{ConfigSetting, Refusals, Values, parse};
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

/// The ledger's settings, if there is to be one.
pub(super) fn read(values: &Values) -> Result<Option<EnergySettings>, Refusals> {
    let prices = EnergyPrices { cost: values.get(&PRICE)?, co2_grams: values.get(&CO2)? };
    let settings = EnergySettings { socket: values.get(&SOCKET)?, prices };
    Ok(values.get(&LEDGER)?.then_some(settings))
}
