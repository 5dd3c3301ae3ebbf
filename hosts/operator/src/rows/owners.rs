//! The owners of fields: `metadata.managedFields`, as far as it concerns what the operator would write.
//!
//! A field that is owned neither by this operator nor by one of another generation belongs to a person or to another
//! program. This is known before anything is written, so that no write is tried that the server would refuse. A restart
//! changes nothing about it.

use joulie_api::labels::manager;
use planner::node::Theirs;
use serde_json::Value;
use std::sync::Arc;

/// The most labels of a node whose other owners are remembered, Joulie's own labels first. Discovery of GPUs writes
/// about forty beside those of Kubernetes; more are not remembered, because there are thousands of nodes.
const LABELS_MAX: usize = 128;
/// The domains of Kubernetes' own labels, including their subdomains: a node has a hundred such labels, and no setting
/// may name one.
const KUBERNETES: [&str; 2] = ["kubernetes.io", "k8s.io"];

/// The field managers of operators of other generations: their fields are taken over.
pub(super) const FORMER: [&str; 2] = ["operator", manager::OPERATOR];

/// A label that somebody else owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LabelOwner {
    /// Its key.
    pub(crate) key: Box<str>,
    /// The owner.
    pub(crate) who: Arc<str>,
}

/// The ownership of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owners {
    /// Whether this operator has applied to it.
    pub(crate) ours: bool,
    /// Whether an operator of another generation wrote to it.
    pub(crate) former: bool,
    /// The parts that somebody else owns.
    pub(crate) theirs: Theirs,
    /// The owner of those; the first one by name.
    pub(crate) who: Option<String>,
    /// The caps that somebody else owns were all set by `kubectl joulie`, which may have set an end to them.
    pub(crate) by_plugin: bool,
}

struct Entry<'a> {
    who: &'a str,
    fields: &'a Value,
}

/// The entries for the main resource that belong to others; then whether this operator, and whether an earlier one, has
/// an entry.
fn others(object: &Value) -> (Vec<Entry<'_>>, bool, bool) {
    let (mut others, mut ours, mut former) = (Vec::new(), false, false);
    for entry in object["metadata"]["managedFields"].as_array().into_iter().flatten() {
        let who = entry["manager"].as_str().unwrap_or_default();
        let main = entry["subresource"].as_str().unwrap_or_default().is_empty();
        if !main {
            continue;
        }
        let applied = entry["operation"].as_str() == Some("Apply");
        if who == manager::OPERATOR && applied {
            ours = true;
        } else if FORMER.contains(&who) {
            former = true;
        } else {
            others.push(Entry { who, fields: &entry["fieldsV1"] });
        }
    }
    (others, ours, former)
}

/// Whether somebody else owns the advice on dividing a node's GPUs.
pub(super) fn is_slicing_theirs(twin: &Value) -> bool {
    twin["metadata"]["managedFields"].as_array().into_iter().flatten().any(|entry| {
        let is_ours = entry["manager"].as_str().is_some_and(|who| FORMER.contains(&who));
        !is_ours && !entry["fieldsV1"]["f:status"]["f:gpuSlicingRecommendation"].is_null()
    })
}

/// The ownership of an object that carries a desired state.
pub(super) fn of_state(object: &Value) -> Owners {
    let (others, ours, former) = others(object);
    let (mut theirs, mut first) = (Theirs::default(), None);
    let (mut by_plugin, mut by_others) = (false, false);
    for Entry { who, fields } in others {
        let spec = &fields["f:spec"];
        let has = |field: &str| spec.get(field).is_some();
        if has("f:cpu") || has("f:gpu") {
            *(if who == manager::KUBECTL { &mut by_plugin } else { &mut by_others }) = true;
        }
        let Theirs { profile, cpu, gpu, policy, scheduling } = &mut theirs;
        let found = [
            (profile, has("f:profile")),
            (cpu, has("f:cpu")),
            (gpu, has("f:gpu")),
            (policy, has("f:policy")),
            (scheduling, has("f:scheduling")),
        ];
        let mut any = false;
        for (is_theirs, has) in found {
            *is_theirs |= has;
            any |= has;
        }
        if any && first.is_none_or(|known| who < known) {
            first = Some(who);
        }
    }
    Owners { ours, former, theirs, who: first.map(str::to_owned), by_plugin: by_plugin && !by_others }
}

/// Whether a label with this key belongs to Kubernetes.
pub(crate) fn is_of_kubernetes(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else { return false };
    let is_below =
        |of: &str| domain.strip_suffix(of).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    KUBERNETES.iter().any(|of| is_below(of))
}

/// The other owners of a node's labels that a setting may name, and whether an earlier operator wrote some.
pub(super) fn of_labels(object: &Value) -> (Vec<LabelOwner>, bool) {
    let (others, _, former) = others(object);
    let mut owners = Vec::new();
    for Entry { who, fields } in others {
        let who: Arc<str> = who.into();
        let labels = fields["f:metadata"]["f:labels"].as_object();
        let keys = labels.into_iter().flatten().filter_map(|(key, _)| key.strip_prefix("f:"));
        for key in keys.filter(|key| !is_of_kubernetes(key)) {
            owners.push(LabelOwner { key: key.into(), who: who.clone() });
        }
    }
    owners.sort_by(|a, b| (place(&a.key), &a.who).cmp(&(place(&b.key), &b.who)));
    owners.truncate(LABELS_MAX);
    (owners, former)
}

/// The order in which the owners of a node's labels are kept.
fn place(key: &str) -> (bool, &str) {
    (!key.starts_with("joulie.io/"), key)
}

/// The other owner of a label, among those that [`of_labels`] has found; the first one by name.
pub(super) fn owner_of<'a>(owners: &'a [LabelOwner], key: &str) -> Option<&'a str> {
    let at = owners.partition_point(|owner| place(&owner.key) < place(key));
    owners.get(at).filter(|owner| &*owner.key == key).map(|owner| &*owner.who)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(manager: &str, operation: &str, subresource: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": operation, "subresource": subresource, "fieldsV1": fields})
    }

    fn object(entries: &[Value]) -> Value {
        json!({"metadata": {"managedFields": entries}})
    }

    #[test]
    fn what_a_person_set_is_theirs_and_what_an_operator_set_is_not() {
        let owners = of_state(&object(&[
            entry("joulie-operator", "Apply", "", json!({"f:spec": {"f:profile": {}, "f:gpu": {}}})),
            entry("kubectl-edit", "Update", "", json!({"f:spec": {"f:cpu": {"f:packagePowerCapWatts": {}}}})),
            entry("joulie-agent", "Apply", "status", json!({"f:status": {"f:control": {}}})),
        ]));
        let theirs = Theirs { cpu: true, ..Theirs::default() };
        let who = Some("kubectl-edit".to_owned());
        assert_eq!(owners, Owners { ours: true, former: false, theirs, who, by_plugin: false });
    }

    #[test]
    fn an_object_of_an_earlier_operator_is_taken_over_and_a_persons_is_not() {
        let spec = json!({"f:spec": {"f:profile": {}, "f:cpu": {}}});
        let former = of_state(&object(&[entry("operator", "Update", "", spec.clone())]));
        assert_eq!((former.ours, former.former, former.theirs.any()), (false, true, false));
        let persons = of_state(&object(&[entry("kubectl-create", "Update", "", spec)]));
        assert_eq!((persons.ours, persons.former, persons.theirs.any()), (false, false, true));
        assert_eq!(of_state(&json!({})), Owners::default());
    }

    #[test]
    fn caps_have_an_end_only_while_nobody_but_the_plugin_has_set_them() {
        let cap = |who: &str, field: &str| entry(who, "Update", "", json!({"f:spec": {field: {}}}));
        let by_plugin = |entries: &[Value]| of_state(&object(entries)).by_plugin;
        assert!(by_plugin(&[cap("kubectl-joulie", "f:cpu"), cap("kubectl-edit", "f:policy")]));
        assert!(!by_plugin(&[cap("kubectl-joulie", "f:cpu"), cap("kubectl-edit", "f:gpu")]));
        assert!(!by_plugin(&[cap("joulie-operator", "f:cpu")]));
        assert!(!by_plugin(&[]));
    }

    #[test]
    fn labels_of_others_are_noticed_where_a_setting_may_name_them() {
        let labels = json!({"f:metadata": {"f:labels": {"f:joulie.io/power-profile": {}, "f:example.com/power": {},
            "f:zone": {}, "f:topology.kubernetes.io/zone": {}, "f:kubernetes.io/os": {}, "f:notkubernetes.io/x": {}, ".": {}}}});
        let (owners, former) = of_labels(&object(&[entry("kubectl-label", "Update", "", labels)]));
        let keys: Vec<&str> = owners.iter().map(|owner| &*owner.key).collect();
        assert_eq!(keys, ["joulie.io/power-profile", "example.com/power", "notkubernetes.io/x", "zone"]);
        assert!(owners.iter().all(|owner| &*owner.who == "kubectl-label") && !former);
        for key in keys {
            assert_eq!(owner_of(&owners, key), Some("kubectl-label"), "{key}");
        }
        assert_eq!((owner_of(&owners, "kubernetes.io/os"), owner_of(&owners, "a")), (None, None));
    }

    #[test]
    fn a_node_full_of_labels_costs_a_bounded_row_that_still_knows_joulies_own() {
        let many: serde_json::Map<String, Value> =
            (0..5_000).map(|n| (format!("f:a.example/{n}"), json!({}))).collect();
        let mut labels = json!({"f:metadata": {"f:labels": many}});
        labels["f:metadata"]["f:labels"]["f:joulie.io/draining"] = json!({});
        let (owners, _) = of_labels(&object(&[entry("discovery", "Apply", "", labels)]));
        assert_eq!((owners.len(), &*owners[0].key), (LABELS_MAX, "joulie.io/draining"));
    }
}
