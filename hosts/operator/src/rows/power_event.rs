//! A PowerEvent: which event it switches on and when, and what the operator has last reported of it.

use super::{Stamp, name};
use host_kit::reflect::Row;
use joulie_api::power_event::{PowerEventSpec, PowerEventStatus};
use joulie_core::budget::armed::ArmedTimes;
use serde::Deserialize;
use serde_json::Value;

/// What is kept of a PowerEvent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EventSeen {
    /// Its name.
    pub(crate) name: String,
    /// The identifier of the object.
    pub(crate) uid: String,
    /// The version of the object.
    pub(crate) version: String,
    /// The generation of its spec.
    pub(crate) generation: i64,
    /// The event, and when it is on, if it is not switched off; or why that cannot be read.
    pub(crate) times: Result<(String, Option<ArmedTimes>), String>,
    /// The name of the event, if that can be read.
    pub(crate) event: Option<String>,
    /// Its status.
    pub(crate) status: PowerEventStatus,
}

impl Row for EventSeen {
    const KIND: &'static str = "PowerEvent";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        let Stamp { uid, version } = Stamp::of(object);
        let spec = PowerEventSpec::deserialize(&object["spec"]).map_err(|error| format!("spec: {error}"));
        let times = spec.and_then(|spec| {
            let times = spec.times().map_err(|error| error.to_string())?;
            Ok((spec.event, times))
        });
        Ok(Self {
            name: name(object).to_owned(),
            uid,
            version,
            generation: object["metadata"]["generation"].as_i64().unwrap_or_default(),
            times,
            event: object["spec"]["event"].as_str().filter(|name| !name.is_empty()).map(str::to_owned),
            // The operator writes it; what another generation wrote there is written anew.
            status: PowerEventStatus::deserialize(&object["status"]).unwrap_or_default(),
        })
    }
}
