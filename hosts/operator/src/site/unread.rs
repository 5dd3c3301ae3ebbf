//! Objects that are there and cannot be read. What they say is unknown, which is not the same as if they were not there:
//! nothing is made over them, and their nodes are never raised.
//!
//! Whose object it is, the row tells that could be read before; of one that never could be, its name does, as far as it
//! has the name that Joulie gives.

use host_kit::closed_label;
use host_kit::reflect::{Row, Rows};
use joulie_api::names;
use std::collections::BTreeMap;

/// The objects of one kind that cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unread {
    /// Their names, and why.
    objects: BTreeMap<String, String>,
    /// Of those that could be read once, by their nodes: the objects' names.
    nodes: BTreeMap<String, String>,
}

impl Unread {
    /// What cannot be read now; `node` tells whose a row is.
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

    /// The object of a node that cannot be read, if there is one.
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

    /// The names of all of them, and why.
    pub(crate) const fn objects(&self) -> &BTreeMap<String, String> {
        &self.objects
    }
}

/// The objects that cannot be read, kind by kind. Nothing else that is watched can be unreadable.
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
}

impl Unreads {
    /// What cannot be read of a node.
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
    pub(crate) const fn kinds(&self) -> [(Kind, &Unread); 4] {
        [
            (Kind::Hardware, &self.hardware),
            (Kind::Profile, &self.profiles),
            (Kind::Twin, &self.twins),
            (Kind::Grant, &self.grants),
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
    }
}

/// Which of a node's objects cannot be read, by their names.
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
    /// In a sentence; nothing where all of them can be read.
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
