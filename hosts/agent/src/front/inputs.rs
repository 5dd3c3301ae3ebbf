//! Everything that the watches say of one node, at one moment.

use super::plan::{Plan, PlanSeen};
use super::rows::{
    CONTROL_OF_PROFILE, CONTROL_OF_TWIN, EventRow, GoalRow, GrantRow, HardwareRow, NodeRow, ProfileRow,
    RouteRow, TwinRow,
};
use crate::route::Profiles;
use host_kit::reflect::{CachedRow, ObjectKey, Rows};
use joulie_api::caps::DesiredSpec;
use joulie_api::power_event::PowerEventSpec;
use joulie_api::telemetry_profile::Audience;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

/// What the watches say of one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Inputs {
    /// Whether all objects that existed at some moment have been read.
    pub(crate) synced: bool,
    pub(crate) node: Option<Arc<NodeRow>>,
    /// The objects that carry a desired state for it, by name.
    pub(crate) goals: Vec<(String, GoalOf)>,
    /// Its twins, by name.
    pub(crate) twins: Vec<(String, Arc<TwinRow>)>,
    /// Its NodeHardwares, by name.
    pub(crate) hardware: Vec<(String, Arc<HardwareRow>)>,
    /// Whether the list above is all there are.
    pub(crate) hardware_known: bool,
    /// The grants for it, by name.
    pub(crate) grants: Vec<(String, Arc<GrantRow>)>,
    /// Whether the list above is all there are.
    pub(crate) grants_known: bool,
    /// The PowerEvents, by the identifiers of their objects, and `None` for one that cannot be read; no map while they were not
    /// read.
    pub(crate) events: Option<Arc<BTreeMap<String, Option<PowerEventSpec>>>>,
    /// When the operator was last seen to have renewed its plan.
    pub(crate) plan: Option<PlanSeen>,
    /// The TelemetryProfiles that may hold for it.
    pub(crate) routes: Profiles,
}

/// An object of either kind that carries a desired state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum GoalOf {
    Profile(Arc<ProfileRow>),
    Twin(Arc<TwinRow>),
}

impl GoalOf {
    pub(crate) fn row(&self) -> &GoalRow {
        match self {
            Self::Profile(row) => &row.0,
            Self::Twin(row) => &row.0,
        }
    }

    /// The field of its status that holds the outcome.
    pub(crate) const fn control(&self) -> &'static str {
        match self {
            Self::Profile(_) => CONTROL_OF_PROFILE,
            Self::Twin(_) => CONTROL_OF_TWIN,
        }
    }

    pub(crate) fn desired(&self) -> Result<&DesiredSpec, &String> {
        self.row().desired.as_ref()
    }

    pub(crate) fn uid(&self) -> &str {
        &self.row().uid
    }

    pub(crate) fn generation(&self) -> Option<i64> {
        self.row().generation
    }
}

/// The rows of all watches.
#[derive(Clone)]
pub(crate) struct Watched {
    pub(crate) nodes: Rows<NodeRow>,
    /// Present if profiles carry the desired state; otherwise the twins carry it.
    pub(crate) profiles: Option<Rows<ProfileRow>>,
    pub(crate) twins: Rows<TwinRow>,
    pub(crate) hardware: Rows<HardwareRow>,
    pub(crate) grants: Rows<GrantRow>,
    /// Whether the server does not know the kind of the grants. Then there are none.
    pub(crate) no_grants: watch::Receiver<bool>,
    /// The PowerEvents. Nothing waits for them: they only lower.
    pub(crate) events: Rows<EventRow>,
    /// The plan's Lease. Nothing waits for it: it says only whether somebody leads.
    pub(crate) plan: Plan,
    /// The TelemetryProfiles of the node, or all where the agent works for many.
    pub(crate) routes: Rows<RouteRow>,
    /// Those of the cluster, where they are not among the others.
    pub(crate) routes_of_all: Option<Rows<RouteRow>>,
    /// Whether the server does not know the kind TelemetryProfile. Then there are none.
    pub(crate) no_routes: watch::Receiver<bool>,
}

/// The rows of every node, sorted by node.
#[derive(Debug, Default)]
pub(crate) struct ByNode {
    synced: bool,
    hardware_known: bool,
    nodes: BTreeMap<ObjectKey, CachedRow<NodeRow>>,
    goals: BTreeMap<String, Vec<(String, GoalOf)>>,
    twins: BTreeMap<String, Vec<(String, Arc<TwinRow>)>>,
    hardware: BTreeMap<String, Vec<(String, Arc<HardwareRow>)>>,
    grants: BTreeMap<String, Vec<(String, Arc<GrantRow>)>>,
    grants_known: bool,
    events: Option<Arc<BTreeMap<String, Option<PowerEventSpec>>>>,
    plan: Option<PlanSeen>,
    /// The TelemetryProfiles of single nodes.
    routes: BTreeMap<String, Vec<(String, Arc<RouteRow>)>>,
    /// Those of the cluster, and those for a target that cannot be read.
    routes_of_all: Vec<(String, Arc<RouteRow>)>,
    routes_known: bool,
}

impl Watched {
    /// Waits for the next change of any row; returns false once the watches have ended.
    pub(crate) async fn changed(&mut self) -> bool {
        let Self {
            nodes,
            profiles,
            twins,
            hardware,
            grants,
            no_grants,
            events,
            plan,
            routes,
            routes_of_all,
            no_routes,
        } = self;
        let profile = async {
            match profiles {
                Some(profiles) => profiles.changed().await,
                None => std::future::pending().await,
            }
        };
        let of_all = async {
            match routes_of_all {
                Some(routes) => routes.changed().await,
                None => std::future::pending().await,
            }
        };
        let kind = async |absent: &mut watch::Receiver<bool>| {
            // The task that looks for the kind ends with the program.
            if absent.changed().await.is_err() {
                std::future::pending().await
            }
        };
        // The order does not matter: the caller then looks at all of them.
        tokio::select! {
            biased;
            alive = nodes.changed() => alive,
            alive = profile => alive,
            alive = twins.changed() => alive,
            alive = hardware.changed() => alive,
            alive = grants.changed() => alive,
            alive = events.changed() => alive,
            alive = plan.changed() => alive,
            alive = routes.changed() => alive,
            alive = of_all => alive,
            () = kind(no_grants) => true,
            () = kind(no_routes) => true,
        }
    }

    /// Whether the desired states, the nodes that they are for, the grants and the routes have been read. Objects that are
    /// only compared with are not waited for.
    pub(crate) fn is_synced(&self) -> bool {
        let goals = self.profiles.as_ref().map_or_else(|| self.twins.is_synced(), Rows::is_synced);
        self.nodes.is_synced() && goals && self.grants_known() && self.routes_known()
    }

    fn grants_known(&self) -> bool {
        self.grants.is_synced() || *self.no_grants.borrow()
    }

    fn events(&self) -> Option<Arc<BTreeMap<String, Option<PowerEventSpec>>>> {
        let each = |rows: &BTreeMap<ObjectKey, CachedRow<EventRow>>| {
            rows.values().map(|held| (held.row.uid.clone(), held.row.spec.clone())).collect()
        };
        self.events.is_synced().then(|| Arc::new(self.events.with(each)))
    }

    fn routes_known(&self) -> bool {
        let of_all = self.routes_of_all.as_ref().is_none_or(Rows::is_synced);
        self.routes.is_synced() && of_all || *self.no_routes.borrow()
    }

    pub(crate) fn by_node(&self) -> ByNode {
        let mut all = ByNode {
            synced: self.is_synced(),
            hardware_known: self.hardware.is_synced(),
            grants_known: self.grants_known(),
            events: self.events(),
            plan: self.plan.seen(),
            routes_known: self.routes_known(),
            nodes: self.nodes.all(),
            ..ByNode::default()
        };
        self.twins.with(|rows| {
            for (key, held) in rows {
                let twin = (key.name.clone(), held.row.clone());
                if self.profiles.is_none() {
                    let goal = (key.name.clone(), GoalOf::Twin(held.row.clone()));
                    all.goals.entry(held.row.0.node.clone()).or_default().push(goal);
                }
                all.twins.entry(held.row.0.node.clone()).or_default().push(twin);
            }
        });
        if let Some(profiles) = &self.profiles {
            profiles.with(|rows| {
                for (key, held) in rows {
                    let goal = (key.name.clone(), GoalOf::Profile(held.row.clone()));
                    all.goals.entry(held.row.0.node.clone()).or_default().push(goal);
                }
            });
        }
        self.grants.with(|rows| {
            for (key, held) in rows {
                let one = (key.name.clone(), held.row.clone());
                all.grants.entry(held.row.node.clone()).or_default().push(one);
            }
        });
        for routes in [Some(&self.routes), self.routes_of_all.as_ref()].into_iter().flatten() {
            routes.with(|rows| {
                for (key, held) in rows {
                    let one = (key.name.clone(), held.row.clone());
                    match &held.row.audience {
                        Ok(Audience::Node(node)) => all.routes.entry(node.clone()).or_default().push(one),
                        Ok(Audience::Cluster) | Err(_) => all.routes_of_all.push(one),
                    }
                }
            });
        }
        self.hardware.with(|rows| {
            for (key, held) in rows {
                let one = (key.name.clone(), held.row.clone());
                all.hardware.entry(held.row.node.clone()).or_default().push(one);
            }
        });
        all
    }
}

impl ByNode {
    /// The names of all nodes.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&str, &NodeRow)> {
        self.nodes.iter().map(|(key, held)| (key.name.as_str(), &*held.row))
    }

    /// Whether a node is under a grant.
    pub(crate) fn is_granted(&self, node: &str) -> bool {
        self.grants.get(node).is_some_and(|all| all.iter().any(|(_, row)| !row.released))
    }

    /// The names of the nodes that are under a grant.
    pub(crate) fn granted(&self) -> impl Iterator<Item = &str> {
        self.grants.keys().map(String::as_str).filter(|node| self.is_granted(node))
    }

    /// What is known of one node.
    pub(crate) fn of(&self, node: &str) -> Inputs {
        Inputs {
            synced: self.synced,
            hardware_known: self.hardware_known,
            node: self.nodes.get(&ObjectKey::cluster(node)).map(|held| held.row.clone()),
            goals: self.goals.get(node).cloned().unwrap_or_default(),
            twins: self.twins.get(node).cloned().unwrap_or_default(),
            hardware: self.hardware.get(node).cloned().unwrap_or_default(),
            grants: self.grants.get(node).cloned().unwrap_or_default(),
            grants_known: self.grants_known,
            events: self.events.clone(),
            plan: self.plan,
            routes: self.routes(node),
        }
    }

    /// The TelemetryProfiles that may hold for a node.
    pub(crate) fn routes(&self, node: &str) -> Profiles {
        let own = self.routes.get(node).into_iter().flatten();
        let all = own.chain(&self.routes_of_all).cloned().collect();
        Profiles { known: self.routes_known, all }
    }
}
