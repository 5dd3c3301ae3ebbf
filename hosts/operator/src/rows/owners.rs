//! Whose fields they are: `metadata.managedFields`, as far as it concerns what the operator would write.
//!
//! A field that neither this operator nor one of another generation owns is a person's, or another program's. It is
//! known before anything is written, so that nothing is tried that the server would refuse, and a restart changes
//! nothing about it.

use joulie_api::labels::manager;
use serde_json::Value;

/// Under what names operators of other generations wrote: their fields are taken over.
const FORMER: [&str; 2] = ["operator", manager::OPERATOR];

/// Who else owns which part of a desired state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Foreign {
    /// `spec.profile`
    pub(crate) profile: bool,
    /// Anything under `spec.cpu`.
    pub(crate) cpu: bool,
    /// Anything under `spec.gpu`.
    pub(crate) gpu: bool,
    /// `spec.policy`
    pub(crate) policy: bool,
    /// `spec.scheduling`
    pub(crate) scheduling: bool,
    /// Whose; the first one by name.
    pub(crate) who: Option<String>,
}

impl Foreign {
    /// Anything that a plan would write is somebody else's.
    pub(crate) const fn any(&self) -> bool {
        self.profile || self.cpu || self.gpu || self.scheduling
    }
}

/// A label that somebody else owns.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LabelOwner {
    /// Its key.
    pub(crate) key: String,
    /// Who.
    pub(crate) who: String,
}

/// What the owners of an object say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owners {
    /// This operator has applied to it.
    pub(crate) ours: bool,
    /// An operator of another generation wrote to it.
    pub(crate) former: bool,
    /// What is somebody else's.
    pub(crate) foreign: Foreign,
}

struct Entry<'a> {
    who: &'a str,
    fields: &'a Value,
}

/// The entries for the main resource that are neither ours nor an earlier operator's; and whether there were such.
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

/// The owners of an object that carries a desired state.
pub(super) fn of_state(object: &Value) -> Owners {
    let (others, ours, former) = others(object);
    let mut foreign = Foreign::default();
    for Entry { who, fields } in others {
        let spec = &fields["f:spec"];
        let has = |field: &str| spec.get(field).is_some();
        let found = [has("f:profile"), has("f:cpu"), has("f:gpu"), has("f:policy"), has("f:scheduling")];
        if !found.contains(&true) {
            continue;
        }
        foreign.profile |= found[0];
        foreign.cpu |= found[1];
        foreign.gpu |= found[2];
        foreign.policy |= found[3];
        foreign.scheduling |= found[4];
        let first = foreign.who.as_deref().is_none_or(|known| who < known);
        if first {
            foreign.who = Some(who.to_owned());
        }
    }
    Owners { ours, former, foreign }
}

/// Who else owns labels of Joulie's on a node, and whether an earlier operator wrote some.
pub(super) fn of_labels(object: &Value) -> (Vec<LabelOwner>, bool) {
    let (others, _, former) = others(object);
    let mut owners = Vec::new();
    for Entry { who, fields } in others {
        let labels = fields["f:metadata"]["f:labels"].as_object();
        let keys = labels.into_iter().flatten().filter_map(|(key, _)| key.strip_prefix("f:"));
        for key in keys.filter(|key| key.starts_with("joulie.io/")) {
            owners.push(LabelOwner { key: key.to_owned(), who: who.to_owned() });
        }
    }
    owners.sort();
    (owners, former)
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
        let foreign = Foreign { cpu: true, who: Some("kubectl-edit".to_owned()), ..Foreign::default() };
        assert_eq!(owners, Owners { ours: true, former: false, foreign });
    }

    #[test]
    fn an_object_of_an_earlier_operator_is_taken_over_and_a_persons_is_not() {
        let spec = json!({"f:spec": {"f:profile": {}, "f:cpu": {}}});
        let former = of_state(&object(&[entry("operator", "Update", "", spec.clone())]));
        assert_eq!((former.ours, former.former, former.foreign.any()), (false, true, false));
        let persons = of_state(&object(&[entry("kubectl-create", "Update", "", spec)]));
        assert_eq!((persons.ours, persons.former, persons.foreign.any()), (false, false, true));
        assert_eq!(of_state(&json!({})), Owners::default());
    }

    #[test]
    fn labels_of_others_are_noticed_only_where_they_are_joulies() {
        let labels =
            json!({"f:metadata": {"f:labels": {"f:joulie.io/power-profile": {}, "f:zone": {}, ".": {}}}});
        let (owners, former) = of_labels(&object(&[entry("kubectl-label", "Update", "", labels)]));
        let one = LabelOwner { key: "joulie.io/power-profile".to_owned(), who: "kubectl-label".to_owned() };
        assert_eq!((owners, former), (vec![one], false));
    }
}
