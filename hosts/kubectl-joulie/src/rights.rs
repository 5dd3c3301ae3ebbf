//! The rights of the programs' accounts, by the parts of an installation that have some. They are those of the chart's roles: a test
//! of `install` renders the chart part by part and compares. Without one of them that part is not done.
//!
//! Sleeping nodes (`SLEEP`) have no part of their own: cordon, taint and annotation are patches of nodes, which the operator may send
//! anyway, and the credentials of the nodes' controllers are a mounted Secret, which no account reads. Nor have PowerEvents, which are
//! always watched.

use host_kit::config::parse;
use joulie_api::labels;
use std::collections::{BTreeMap, BTreeSet};

/// Where a right holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RightScope {
    /// For objects without a namespace, and in every namespace.
    Cluster,
    /// In the namespace of the installation.
    Installation,
    /// In the namespace `default`, where Events about objects without a namespace are.
    Default,
}

/// What a part does with objects of some kinds.
#[derive(Clone, Copy, Debug)]
pub struct ProgramRight {
    /// Where.
    pub scope: RightScope,
    /// The API group of the kinds.
    pub group: &'static str,
    /// The kinds, each with the part of the object that is meant, as `nodetwins/status`.
    pub resources: &'static [&'static str],
    /// The only objects that are meant; empty for all.
    pub names: &'static [&'static str],
    /// What is done with them.
    pub verbs: &'static [&'static str],
}

type Words = &'static [&'static str];

const fn cluster(group: &'static str, resources: Words, verbs: Words) -> ProgramRight {
    ProgramRight { scope: RightScope::Cluster, group, resources, names: &[], verbs }
}

const fn events(scope: RightScope) -> ProgramRight {
    ProgramRight { scope, ..cluster("events.k8s.io", &["events"], &["create", "patch"]) }
}

const fn leases(names: Words, verbs: Words) -> ProgramRight {
    ProgramRight {
        scope: RightScope::Installation,
        names,
        ..cluster("coordination.k8s.io", &["leases"], verbs)
    }
}

const READ: Words = &["list", "watch"];
const GPU_GROUP: &str = "gpu.mle.com";

const OPERATOR: &[ProgramRight] = &[
    cluster("", &["nodes"], &["list", "watch", "patch"]),
    cluster("", &["pods"], READ),
    cluster(labels::GROUP, &["nodehardwares", "powerbudgets", "powerevents"], READ),
    cluster(
        labels::GROUP,
        &["nodepowerprofiles", "nodepowergrants", "nodetwins", "workloadprofiles"],
        &["list", "watch", "create", "patch", "delete"],
    ),
    cluster(
        labels::GROUP,
        &[
            "nodepowerprofiles/status",
            "nodetwins/status",
            "powerbudgets/status",
            "powerevents/status",
            "workloadprofiles/status",
        ],
        &["patch"],
    ),
    leases(&[], &["create"]),
    leases(&[labels::LEADER_LEASE], &["get", "update", "patch"]),
    leases(&[labels::PLAN_LEASE], &["get", "list", "watch", "patch"]),
    events(RightScope::Installation),
    events(RightScope::Default),
];
const PAGE: &[ProgramRight] =
    &[cluster("", &["nodes", "pods"], &["get"]), cluster("", &["events"], &["list"])];
const EVICTIONS: &[ProgramRight] = &[
    cluster("", &["pods/eviction"], &["create"]),
    cluster("apps", &["deployments", "replicasets", "statefulsets"], &["get", "patch"]),
    cluster("batch", &["jobs"], &["get", "patch"]),
    events(RightScope::Cluster),
];
const GPU_REPAIR: &[ProgramRight] =
    &[cluster(GPU_GROUP, &["gpus"], READ), cluster(GPU_GROUP, &["gpus/status"], &["patch"])];
const AGENT: &[ProgramRight] = &[
    cluster("", &["nodes"], &["get", "list", "watch"]),
    cluster(labels::GROUP, &["nodehardwares"], &["get", "list", "watch", "create", "patch"]),
    cluster(
        labels::GROUP,
        &["nodepowerprofiles", "nodepowergrants", "nodetwins", "powerevents", "telemetryprofiles"],
        READ,
    ),
    cluster(
        labels::GROUP,
        &[
            "nodehardwares/status",
            "nodepowerprofiles/status",
            "nodepowergrants/status",
            "nodetwins/status",
            "telemetryprofiles/status",
        ],
        &["patch"],
    ),
    leases(&[], &["get", "list", "watch"]),
    events(RightScope::Default),
];
// The other replicas have Leases of their own, which are in the same rule.
const POOL: &[ProgramRight] = &[leases(&[], &["create"]), leases(&["joulie-agent-pool-0"], &["update"])];
const CARDS: &[ProgramRight] = &[
    cluster(GPU_GROUP, &["gpus"], &["list", "watch", "create", "patch", "delete"]),
    cluster(GPU_GROUP, &["gpus/status"], &["patch"]),
    cluster("", &["pods"], READ),
];
const EXTENDER: &[ProgramRight] = &[
    cluster("", &["nodes", "pods", "services"], READ),
    cluster(labels::GROUP, &["nodehardwares", "nodetwins", "powerbudgets", "workloadprofiles"], READ),
    leases(&[], READ),
];
const BIND: &[ProgramRight] =
    &[cluster(GPU_GROUP, &["gpus/status"], &["patch"]), cluster("", &["pods/binding"], &["create"])];
const SCRAPERS: &[ProgramRight] = &[
    cluster("authentication.k8s.io", &["tokenreviews"], &["create"]),
    cluster("authorization.k8s.io", &["subjectaccessreviews"], &["create"]),
];
const BOUNDS: &[ProgramRight] = &[events(RightScope::Cluster)];
const LEDGER: &[ProgramRight] = &[cluster("", &["pods"], READ)];
const SLICES: &[ProgramRight] = &[cluster("resource.k8s.io", &["resourceslices"], READ)];
const PLACEMENT: &[ProgramRight] = &[cluster(GPU_GROUP, &["gpus"], READ)];
const CLAIMS: &[ProgramRight] = &[cluster("resource.k8s.io", &["resourceclaims", "resourceslices"], READ)];
const VICTIMS: &[ProgramRight] = &[cluster("policy", &["poddisruptionbudgets"], READ)];

/// A part of an installation whose rights are given together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RightsPart {
    /// What every operator does.
    Operator,
    /// The operator's live page.
    Page,
    /// The operator's bounds on performance.
    Bounds,
    /// The operator's evictions.
    Evictions,
    /// The operator frees cards that nobody confirmed.
    GpuRepair,
    /// What every agent does.
    Agent,
    /// The agents of a pool share nodes among them.
    Pool,
    /// The agent's energy ledger.
    Ledger,
    /// The agent's GPU objects.
    Cards,
    /// The agent reads ResourceSlices.
    Slices,
    /// What every extender does.
    Extender,
    /// The extender places by GPU objects.
    Placement,
    /// The extender reads claims.
    Claims,
    /// The extender names victims.
    Victims,
    /// The extender binds pods with GPUs.
    Bind,
    /// Tokens of those who ask for metrics are reviewed.
    Scrapers,
}

impl RightsPart {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::Operator,
        Self::Page,
        Self::Bounds,
        Self::Evictions,
        Self::GpuRepair,
        Self::Agent,
        Self::Pool,
        Self::Ledger,
        Self::Cards,
        Self::Slices,
        Self::Extender,
        Self::Placement,
        Self::Claims,
        Self::Victims,
        Self::Bind,
        Self::Scrapers,
    ];

    /// The setting that switches it on; empty for what is always on.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Operator | Self::Agent | Self::Pool | Self::Extender => "",
            Self::Page => "UI=read",
            Self::Bounds => "PERFORMANCE_NAMESPACES or PERFORMANCE_NODES_MAX",
            Self::Evictions => "ENABLE_ACTIVE_RESCHEDULING",
            Self::GpuRepair => "GPU_REPAIR_AFTER",
            Self::Ledger => "ENERGY_LEDGER=on",
            Self::Cards => "GPU_OBJECTS=on",
            Self::Slices | Self::Claims => "GPU_DRA=read",
            Self::Placement => "GPU_PLACEMENT",
            Self::Victims | Self::Bind => "GPU_BIND",
            Self::Scrapers => "METRICS_AUTH=token",
        }
    }

    /// The components of whose pods it is a part.
    const fn components(self) -> Words {
        match self {
            Self::Operator | Self::Page | Self::Bounds | Self::Evictions | Self::GpuRepair => &["operator"],
            Self::Agent => &["agent", "agent-pool"],
            Self::Pool => &["agent-pool"],
            Self::Ledger | Self::Cards | Self::Slices => &["agent"],
            Self::Extender | Self::Placement | Self::Claims | Self::Victims | Self::Bind => {
                &["scheduler-extender", "scheduler-binder"]
            }
            Self::Scrapers => &["operator", "agent", "agent-pool", "scheduler-extender", "scheduler-binder"],
        }
    }

    /// The settings that say whether it is on.
    const fn settings(self) -> Words {
        match self {
            Self::Operator | Self::Agent | Self::Pool | Self::Extender => &[],
            Self::Page => &["UI"],
            Self::Bounds => &["PERFORMANCE_NAMESPACES", "PERFORMANCE_NODES_MAX"],
            Self::Evictions => &["ENABLE_ACTIVE_RESCHEDULING"],
            Self::GpuRepair => &["GPU_REPAIR_AFTER"],
            Self::Ledger => &["ENERGY_LEDGER"],
            Self::Cards => &["GPU_OBJECTS"],
            Self::Slices => &["GPU_OBJECTS", "GPU_DRA"],
            Self::Placement => &["GPU_PLACEMENT"],
            Self::Claims => &["GPU_PLACEMENT", "GPU_DRA"],
            Self::Victims | Self::Bind => &["GPU_BIND"],
            Self::Scrapers => &["METRICS_AUTH"],
        }
    }

    /// What its roles give.
    #[must_use]
    pub const fn rights(self) -> &'static [ProgramRight] {
        match self {
            Self::Operator => OPERATOR,
            Self::Page => PAGE,
            Self::Bounds => BOUNDS,
            Self::Evictions => EVICTIONS,
            Self::GpuRepair => GPU_REPAIR,
            Self::Agent => AGENT,
            Self::Pool => POOL,
            Self::Ledger => LEDGER,
            Self::Cards => CARDS,
            Self::Slices => SLICES,
            Self::Extender => EXTENDER,
            Self::Placement => PLACEMENT,
            Self::Claims => CLAIMS,
            Self::Victims => VICTIMS,
            Self::Bind => BIND,
            Self::Scrapers => SCRAPERS,
        }
    }

    /// Whether it is on in a pod of this component with these settings; the name of a setting, where only that could say so and its
    /// value is not known.
    pub(crate) fn is_on(self, component: &str, of: &ProgramSettings) -> Result<bool, &'static str> {
        if !self.components().contains(&component) {
            return Ok(false);
        }
        let is = |name: &str, word: &str| of.get(name) == word;
        let yes = |name: &str| parse::boolean(of.get(name)).unwrap_or(false);
        let places = || !matches!(of.get("GPU_PLACEMENT"), "" | "off");
        let on = match self {
            Self::Operator | Self::Agent | Self::Pool | Self::Extender => true,
            Self::Page => is("UI", "read"),
            Self::Bounds => self.settings().iter().any(|name| !of.get(name).is_empty()),
            Self::Evictions => yes("ENABLE_ACTIVE_RESCHEDULING"),
            Self::GpuRepair => !of.get("GPU_REPAIR_AFTER").is_empty(),
            Self::Ledger => is("ENERGY_LEDGER", "on"),
            Self::Cards => is("GPU_OBJECTS", "on"),
            Self::Slices => is("GPU_OBJECTS", "on") && is("GPU_DRA", "read"),
            Self::Placement => places(),
            Self::Claims => places() && is("GPU_DRA", "read"),
            Self::Victims => is("GPU_BIND", "apart") || yes("GPU_BIND"),
            Self::Bind => yes("GPU_BIND"),
            Self::Scrapers => is("METRICS_AUTH", "token"),
        };
        match self.settings().iter().find(|name| of.elsewhere.contains(**name)) {
            Some(name) if !on => Err(*name),
            Some(_) | None => Ok(on),
        }
    }
}

/// The settings of a program, as far as its pod and its file say them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProgramSettings {
    /// A variable wins over a line of the file.
    pub(crate) variables: BTreeMap<String, String>,
    pub(crate) file: BTreeMap<String, String>,
    /// Variables whose values come from elsewhere, as from a Secret.
    pub(crate) elsewhere: BTreeSet<String>,
}

impl ProgramSettings {
    /// The value, without spaces around it; empty where there is none.
    fn get(&self, name: &str) -> &str {
        self.variables.get(name).or_else(|| self.file.get(name)).map_or("", |value| value.trim())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)], file: &[(&str, &str)]) -> ProgramSettings {
        let map = |all: &[(&str, &str)]| {
            all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        ProgramSettings { variables: map(variables), file: map(file), elsewhere: BTreeSet::new() }
    }

    fn on(component: &str, of: &ProgramSettings) -> Vec<RightsPart> {
        RightsPart::ALL.into_iter().filter(|part| part.is_on(component, of) == Ok(true)).collect()
    }

    #[test]
    fn a_part_is_on_by_its_settings_and_in_its_programs_alone() {
        use RightsPart::*;
        let none = settings(&[], &[]);
        for (component, always) in [
            ("operator", &[Operator][..]),
            ("agent", &[Agent]),
            ("agent-pool", &[Agent, Pool]),
            ("scheduler-extender", &[Extender]),
            ("scheduler-binder", &[Extender]),
            ("simulator", &[]),
        ] {
            assert_eq!(on(component, &none), always, "{component}");
        }
        let gpus = [("GPU_PLACEMENT", "annotated"), ("GPU_DRA", "read"), ("GPU_OBJECTS", "on")];
        assert_eq!(on("agent", &settings(&gpus, &[])), [Agent, Cards, Slices]);
        assert_eq!(on("scheduler-extender", &settings(&gpus, &[])), [Extender, Placement, Claims]);
        for (bind, with) in [("false", &[][..]), ("apart", &[Victims]), ("true", &[Victims, Bind])] {
            let of = settings(&[("GPU_BIND", bind)], &[]);
            assert_eq!(on("scheduler-binder", &of), [&[Extender][..], with].concat(), "{bind}");
        }
        let file = [("GPU_REPAIR_AFTER", "2m"), ("ENABLE_ACTIVE_RESCHEDULING", "true"), ("UI", "off")];
        assert_eq!(
            on("operator", &settings(&[("UI", "read"), ("METRICS_AUTH", "token")], &file)),
            [Operator, Page, Evictions, GpuRepair, Scrapers],
            "a variable wins over the file"
        );
    }

    #[test]
    fn a_value_from_elsewhere_is_not_known_and_is_named() {
        let mut of = settings(&[("GPU_PLACEMENT", "all")], &[]);
        of.elsewhere.insert("GPU_BIND".to_owned());
        assert_eq!(RightsPart::Bind.is_on("scheduler-extender", &of), Err("GPU_BIND"));
        assert_eq!(RightsPart::Placement.is_on("scheduler-extender", &of), Ok(true));
    }
}
