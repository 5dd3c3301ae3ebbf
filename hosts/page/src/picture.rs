//! What the page shows at one moment. What is not known is `None`, and is shown as unknown and never as 0.

use serde::Serialize;
use std::collections::BTreeMap;

/// Everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UiPicture {
    /// The time, in seconds since 1970.
    pub at: f64,
    /// The whole.
    pub site: UiSite,
    /// By name.
    pub budgets: BTreeMap<String, UiBudget>,
    /// By name.
    pub nodes: BTreeMap<String, UiNode>,
}

/// What is said of the whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UiSite {
    /// What the page is of.
    pub title: String,
    /// What the packages and GPUs of all measured nodes draw together; `None` while none is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watts: Option<f64>,
    /// What the nodes draw as wholes, with fans and losses; `None` unless a meter says it of each of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub whole: Option<f64>,
    /// How many nodes are not measured.
    pub unmeasured: usize,
    /// What all nodes may draw together, if enforced budgets say so of every node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
    /// What the operator counts under that limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted: Option<f64>,
    /// What the caps of all nodes allow together; `None` if that of one is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed: Option<f64>,
    /// Who has confirmed the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// How many seconds ago, by the clock of this program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_age: Option<u64>,
    /// The policy of the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The API server has said nothing for so many seconds, if that is long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_silent: Option<u64>,
    /// Pods with a node that have not ended.
    pub running: usize,
    /// Pods without a node.
    pub waiting: usize,
    /// How many of those ask for performance.
    pub waiting_performance: usize,
    /// What a person may do from the page; `None` where it only shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controls: Option<UiControls>,
}

/// What a person may change in the demo, as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UiControls {
    /// The policies that can be chosen.
    pub policies: Vec<String>,
    /// The one in force.
    pub policy: String,
    /// The limit that can be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<f64>,
    /// The zones.
    pub zones: Vec<String>,
    /// Those without cooling.
    pub hot: Vec<String>,
    /// Nodes whose telemetry is broken.
    pub silenced: Vec<String>,
    /// Whether the operator runs.
    pub operator: bool,
    /// What else can be broken.
    pub faults: Vec<UiFault>,
}

/// Something that a person can break and mend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UiFault {
    /// Its name in orders.
    pub name: &'static str,
    /// What is wrong then.
    pub about: &'static str,
    /// Whether it is broken now.
    pub on: bool,
}

/// A PowerBudget.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UiBudget {
    /// The one above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Whether the limit is enforced.
    pub enforced: bool,
    /// Nothing in it is raised.
    pub paused: bool,
    /// The limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
    /// What can be drawn at most, by the operator's account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted: Option<f64>,
    /// What its measured nodes draw together; where the page knows of none, what the operator says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<f64>,
    /// What its nodes are granted and do not draw.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unused: Option<f64>,
    /// By how much the limit cannot be kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub short: Option<f64>,
    /// Its nodes, those of the budgets below included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u64>,
    /// Whether it is kept; `None` while that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<bool>,
    /// What its conditions say, where something is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UiNode {
    /// Its hardware.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Its rack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
    /// Its cooling zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The deepest PowerBudget that it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<String>,
    /// `performance`, `eco`, `draining` or `unknown`.
    pub class: String,
    /// A person keeps it out of every plan.
    #[serde(skip_serializing_if = "is_false")]
    pub reserved: bool,
    /// A person has set its caps.
    #[serde(skip_serializing_if = "is_false")]
    pub by_hand: bool,
    /// Its kubelet does not answer.
    #[serde(skip_serializing_if = "is_false")]
    pub not_ready: bool,
    /// What its packages and GPUs draw; the whole node where only that is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watts: Option<f64>,
    /// What its caps allow; no more than its grant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed: Option<f64>,
    /// The most that it can draw.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most: Option<f64>,
    /// What its grant allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub granted: Option<f64>,
    /// The most that its devices hold by that grant, as its agent has read it back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<f64>,
    /// What its devices hold by that grant and do not draw.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unused: Option<f64>,
    /// The cap of each package that was read back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub package_cap: Option<f64>,
    /// The cap of each GPU that was read back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_cap: Option<f64>,
    /// Whether what is asked is in force: `yes`, `no` or `unknown`.
    pub enforced: &'static str,
    /// The reason of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Its twin: how much of its power is left, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headroom: Option<f64>,
    /// Its twin: how much of its cooling is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cooling: Option<f64>,
    /// Its twin: how much of its power supply is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub psu: Option<f64>,
    /// Its pods that have not ended.
    pub pods: usize,
    /// How many of them ask for performance.
    #[serde(skip_serializing_if = "is_zero")]
    pub performance: usize,
    /// Degrees Celsius, in the demo.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub celsius: Option<f64>,
    /// The extender's score for a standard pod, in the demo.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<i64>,
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(value: &usize) -> bool {
    *value == 0
}

/// A pod that got a node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UiPlacement {
    /// When, in seconds since 1970.
    pub at: f64,
    /// NAMESPACE/NAME
    pub pod: String,
    /// Whether it asks for performance.
    pub performance: bool,
    /// The node.
    pub node: String,
    /// Why there.
    pub why: String,
}

/// How serious a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum UiTone {
    /// As it should be.
    Good,
    /// For information.
    Plain,
    /// A problem that is handled.
    Warn,
    /// Something that must not be.
    Bad,
    /// What a person or the demo has done.
    Act,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UiLine {
    /// When, in seconds since 1970.
    pub at: f64,
    /// How serious it is.
    pub tone: UiTone,
    /// What it is.
    pub text: String,
}

/// A place of the curve: the time, what is drawn, the limit, and what is counted.
pub type UiPoint = (f64, Option<f64>, Option<f64>, Option<f64>);

/// Watts, or percent, in tenths: more is noise, and would be sent again and again.
#[must_use]
pub fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
