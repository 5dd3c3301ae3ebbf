//! What the operator keeps of the objects that it watches. A row holds facts and does not interpret them: what a label
//! means depends on the settings, which are not known here.

mod bounds;
mod fresh;
mod grant;
mod hardware;
mod moving;
mod node;
mod owners;
mod plan_lease;
mod pod;
mod power_budget;
mod power_event;
mod response;
mod state;
mod workload_profile;

pub(crate) use fresh::FreshSeen;
pub(crate) use grant::{DemandFault, GrantSeen, RefusedDemand};
pub(crate) use hardware::{HardwareSeen, NodeMeter, PowerSeen};
pub(crate) use moving::MovingSeen;
pub(crate) use node::{NodeSeen, mark_text};
pub(crate) use owners::is_of_kubernetes;
pub(crate) use plan_lease::PlanLeaseSeen;
pub(crate) use pod::{PodSeen, keeps_node};
pub(crate) use power_budget::BudgetSeen;
pub(crate) use power_event::EventSeen;
pub(crate) use response::SignalSeen;
pub(crate) use state::{DeviceSeen, ProfileSeen, StateSeen, TwinSeen};
pub(crate) use workload_profile::{Leaf, WorkloadProfileSeen};

use joulie_api::quantity::Quantity;
use power_units::{Role, Watts};
use serde_json::Value;

/// A text that is not empty.
fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// A number in any form as watts; `None` if it is not a number or does not fit.
fn watts(value: &Value, role: Role) -> Option<Watts> {
    let number = value.as_number()?;
    Watts::parse(&number.to_string(), role).ok()
}

/// A whole count above zero, written as an integer or a float.
fn count(value: &Value) -> Option<u32> {
    let text = value.as_number()?.to_string();
    let whole = text.split_once('.').filter(|(_, zeros)| zeros.bytes().all(|zero| zero == b'0'));
    whole.map_or(text.as_str(), |(whole, _)| whole).parse().ok().filter(|&count| count > 0)
}

/// A quantity in whole units. An API server writes it as text; a test may write it as a number.
fn whole(value: &Value) -> Option<u64> {
    let number = value.as_number().map(ToString::to_string);
    let text = number.as_deref().or_else(|| value.as_str())?;
    u64::try_from(Quantity::parse(text).ok()?.value()).ok()
}

/// The name of an object.
fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Identifies an object among those of the same name, and one version of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// `metadata.uid`
    pub(crate) uid: String,
    /// `metadata.resourceVersion`
    pub(crate) version: String,
}

impl Stamp {
    fn of(object: &Value) -> Self {
        let field = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
        Self { uid: field("uid"), version: field("resourceVersion") }
    }
}
