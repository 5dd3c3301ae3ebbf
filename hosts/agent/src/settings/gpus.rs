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

pub(super) const DRA: ConfigSetting<bool> = ConfigSetting::with_default(
    "GPU_DRA",
    "off",
    |text| parse::one_of(text, &[("off", false), ("read", true)]),
    "off or read",
    "Whether the ResourceSlices of the node are read, which say which card a claim of a pod holds; without it a claim on any GPU \
     leaves no free card of the node. Needs GPU_OBJECTS=on; where the API server has none nothing changes",
);

pub(super) fn read(values: &Values) -> Result<Option<GpuSettings>, Refusals> {
    let settings = GpuSettings { socket: values.get(&energy::SOCKET)?, reads_slices: values.get(&DRA)? };
    let is_on = values.get(&OBJECTS)?;
    if settings.reads_slices && !is_on {
        let why = "slices are read for GPU objects, which GPU_OBJECTS=off does not keep";
        return Err(values.conflict(&[DRA.name(), OBJECTS.name()], why));
    }
    Ok(is_on.then_some(settings))
}
