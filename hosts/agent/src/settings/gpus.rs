//! The settings of GPU objects.

use super::energy;
use crate::gpus::GpuSettings;
use host_kit::config::{ConfigSetting, Refusals, Values, parse};

pub(super) const OBJECTS: ConfigSetting<bool> = ConfigSetting::with_default(
    "GPU_OBJECTS",
    "off",
    |text| parse::one_of(text, &[("off", false), ("on", true)]),
    "off or on",
    "Whether the agent keeps a GPU object for each card of its node, and writes who holds it, as the kubelet says \
     (ENERGY_POD_RESOURCES_SOCKET); the extender places pods by them. For the agent's own node only",
);

pub(super) fn read(values: &Values) -> Result<Option<GpuSettings>, Refusals> {
    let settings = GpuSettings { socket: values.get(&energy::SOCKET)? };
    Ok(values.get(&OBJECTS)?.then_some(settings))
}
