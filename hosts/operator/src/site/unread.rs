//! Objects that exist but cannot be read. Their content is unknown, which is not the same as if they did not exist:
//! nothing overwrites them, and their nodes are never raised.
//!
//! The node of such an object is known from the row that was read before. If it was never read, its name identifies the
//! node, provided that it has the name that Joulie gives.

use host_kit::closed_label;
use host_kit::reflect::{Row, Rows};
use joulie_api::names;
use std::collections::BTreeMap;

/// The objects of one kind that cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unread {
    /// Their names, with the reasons.
    objects: BTreeMap<String, String>,
    /// The names of the objects that could be read before, by their nodes.
    nodes: BTreeMap<String, String>,
}

impl Unread {
    /// The objects that cannot be read now; `node` returns the node of a row.
    pub(super) fn of<R: Row>(rows: &Rows<R>, node: impl Fn(&R) -> &str) -> Self {
        let malformed = rows.malformed();
        if malformed.is_empty() {
            return Self::default();
        }
        let nodes = rows.with(|rows| {
            let known = malformed.keys().filter_map(|key| Some((key, rows.get(key)?)));
            known.map(|(key, held)| (node(&held.row).to_owned(), key.name.clone())).collect()
        });
        Self { objects: malformed.into_iter().map(|(key, why)| (key.name, why)).collect(), nodes }
    }

    /// The unreadable object of a node, if there is one.
    pub(crate) fn of_node(&self, node: &str) -> Option<&str> {
        if self.objects.is_empty() {
            return None;
        }
        let by_name = || {
            let named = |name: String| self.objects.get_key_value(&name).map(|(name, _)| name.as_str());
            named(names::plain(node)).or_else(|| named(names::hashed(node)))
        };
        self.nodes.get(node).map(String::as_str).or_else(by_name)
    }

    /// The names of all unreadable objects, with the reasons.
    pub(crate) const fn objects(&self) -> &BTreeMap<String, String> {
        &self.objects
    }
}

/// The objects that cannot be read, by kind. Objects of other watched kinds can always be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unreads {
    /// NodeHardwares.
    pub(crate) hardware: Unread,
    /// NodePowerProfiles.
    pub(crate) profiles: Unread,
    /// NodeTwins.
    pub(crate) twins: Unread,
    /// NodePowerGrants.
    pub(crate) grants: Unread,
    /// PowerBudgets, which are of no node.
    pub(crate) budgets: Unread,
}

impl Unreads {
    /// The objects of a node that cannot be read.
    pub(super) fn of_node(&self, node: &str) -> Unreadable {
        let of = |unread: &Unread| unread.of_node(node).map(str::to_owned);
        Unreadable {
            hardware: of(&self.hardware),
            profile: of(&self.profiles),
            twin: of(&self.twins),
            grant: of(&self.grants),
        }
    }

    /// All of them with their kinds.
    pub(crate) const fn kinds(&self) -> [(Kind, &Unread); 5] {
        [
            (Kind::Hardware, &self.hardware),
            (Kind::Profile, &self.profiles),
            (Kind::Twin, &self.twins),
            (Kind::Grant, &self.grants),
            (Kind::Budget, &self.budgets),
        ]
    }
}

closed_label! {
    /// A kind of which an object may be unreadable.
    pub(crate) enum Kind {
        /// NodeHardware.
        Hardware = "NodeHardware",
        /// NodePowerProfile.
        Profile = "NodePowerProfile",
        /// NodeTwin.
        Twin = "NodeTwin",
        /// NodePowerGrant.
        Grant = "NodePowerGrant",
        /// PowerBudget.
        Budget = "PowerBudget",
    }
}

impl Kind {
    /// What is done while an object of this kind cannot be read.
    pub(crate) const fn meanwhile(self) -> &'static str {
        match self {
            Self::Hardware | Self::Profile | Self::Twin | Self::Grant => {
                "nothing is written over it and its node is not raised"
            }
            Self::Budget => "its last readable limit is kept and no grant is raised anywhere",
        }
    }
}

/// The names of a node's objects that cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unreadable {
    /// Its NodeHardware.
    pub(crate) hardware: Option<String>,
    /// Its NodePowerProfile.
    pub(crate) profile: Option<String>,
    /// Its NodeTwin.
    pub(crate) twin: Option<String>,
    /// Its NodePowerGrant.
    pub(crate) grant: Option<String>,
}

impl Unreadable {
    /// The names in a sentence; `None` if all objects can be read.
    pub(crate) fn said(&self) -> Option<String> {
        let named = |kind: &str, name: &Option<String>| name.as_ref().map(|name| format!("{kind} {name}"));
        let all = [
            named("NodeHardware", &self.hardware),
            named("NodePowerProfile", &self.profile),
            named("NodeTwin", &self.twin),
            named("NodePowerGrant", &self.grant),
        ];
        let all: Vec<String> = all.into_iter().flatten().collect();
        let what = all.join(", ");
        (!all.is_empty()).then(|| {
            format!("{what}: there and cannot be read, so that what it says is unknown; the operator's log and Events say why")
        })
    }
}
