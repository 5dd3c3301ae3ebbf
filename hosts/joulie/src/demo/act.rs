//! What the demo does to its system. `cluster` does it; `chaos`, `heat` and a person at the page decide when.

use super::fault::DemoFault;
use power_units::Watts;

/// An action on the system, with the node's name if it affects one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// The node's telemetry answers 500.
    Blind(String),
    /// The telemetry works again.
    See(String),
    /// A person reserves the node, which excludes it from every plan.
    Reserve(String),
    /// The reservation ends.
    Return(String),
    /// A person sets the node's caps, as with kubectl.
    CapByHand(String),
    /// The person gives the caps back to the operator.
    HandBack(String),
    /// A cooling zone gets hot.
    Heat(String),
    /// It is mild again.
    Cool(String),
    /// The operator is killed.
    KillOperator,
    /// It is started again.
    StartOperator,
    /// The extender is killed.
    KillExtender,
    /// It is started again.
    StartExtender,
    /// The limit of the site changes.
    Budget(Watts),
    /// The policy of the plan changes.
    Policy(&'static str),
    /// Something else breaks.
    Break(DemoFault),
    /// It is mended.
    Mend(DemoFault),
}

/// The policies that a person can choose at the page; the third, which swaps nodes by the clock, would swap them in each pass here.
pub(crate) const POLICIES: [&str; 2] = ["queue_aware_v1", "static_partition"];

/// The package cap that a person sets, in watts. It is in the range of every kind of package in the demo.
pub(crate) const BY_HAND_WATTS: u32 = 210;
/// The temperature of a zone without cooling: 56 % of what its machines can draw can be cooled there.
pub(crate) const HOT_CELSIUS: u32 = 42;

impl Act {
    /// The same, where a person at the page does it.
    pub(crate) fn told_of_a_person(&self) -> String {
        let told = self.told();
        format!("by hand: {}", told.strip_prefix("chaos: ").unwrap_or(&told))
    }

    /// The action and its expected effect, in words.
    pub(crate) fn told(&self) -> String {
        match self {
            Self::Blind(node) => {
                format!(
                    "chaos: the telemetry of {node} answers 500; its cap must hold, its score becomes that of an unknown node"
                )
            }
            Self::See(node) => format!("chaos: the telemetry of {node} works again"),
            Self::Reserve(node) => {
                format!("chaos: kubectl label node {node} joulie.io/reserved=true; its caps must be released")
            }
            Self::Return(node) => format!("chaos: kubectl label node {node} joulie.io/reserved-"),
            Self::CapByHand(node) => format!(
                "chaos: a person caps {node} at {BY_HAND_WATTS} W a package with kubectl; the operator must leave that alone"
            ),
            Self::HandBack(node) => format!("chaos: the person gives the cap of {node} back"),
            Self::Heat(zone) => format!(
                "the cooling of {zone} fails: {HOT_CELSIUS} degrees Celsius there; pods must go elsewhere, and be advised to leave"
            ),
            Self::Cool(zone) => format!("the cooling of {zone} works again"),
            Self::KillOperator => {
                "chaos: kill -9 of the operator; caps and labels must stay as they are".to_owned()
            }
            Self::StartOperator => "chaos: the operator is started again".to_owned(),
            Self::KillExtender => {
                "chaos: kill -9 of the extender; pods must wait and not be placed blindly".to_owned()
            }
            Self::StartExtender => "chaos: the extender is started again".to_owned(),
            Self::Budget(watts) => format!(
                "chaos: kubectl patch powerbudget site: {watts:.0} W; caps are lowered before others are raised"
            ),
            Self::Break(fault) => format!("chaos: {fault}"),
            Self::Mend(fault) => format!("chaos: it is not so any more that {fault}"),
            Self::Policy(name) => {
                format!(
                    "chaos: the operator is started again with POLICY_TYPE={name}; caps must stay meanwhile"
                )
            }
        }
    }
}
