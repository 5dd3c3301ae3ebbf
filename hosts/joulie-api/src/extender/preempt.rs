//! The request and the answer of preempt: which pods would be evicted on which nodes.

use super::members::{Members, elements, text};
use super::reply::{Keys, key, list, number, separated, string};
use super::{BadBody, Name, fields};
use serde_json::value::RawValue;

/// The request, in either form.
#[derive(Clone, Debug)]
pub struct PreemptArgs<'a> {
    /// The pod that needs room, as it is in the body.
    pub pod: Option<&'a RawValue>,
    /// The candidate nodes.
    pub nodes: Vec<Victims<'a>>,
}

/// The pods that would be evicted on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victims<'a> {
    /// The node.
    pub node: Name<'a>,
    /// The UIDs of the pods.
    pub uids: Vec<Name<'a>>,
    /// How many disruption budgets that would violate.
    pub pdb_violations: i64,
}

impl<'a> PreemptArgs<'a> {
    /// Reads a request: whole pods, or only their UIDs if the extender keeps its own cache.
    ///
    /// # Errors
    /// If the body is not JSON, has a key twice, or a victim has no UID: an unknown pod cannot be judged.
    pub fn parse(body: &'a [u8]) -> Result<Self, BadBody> {
        let names = ["Pod", "NodeNameToVictims", "NodeNameToMetaVictims"];
        let [pod, whole, meta] = fields::read(body, &names)?;
        let nodes = match (whole, meta) {
            (Some(whole), _) => victims(names[1], whole, |pod| {
                let metadata = Members::of(pod)?.find_named("metadata")?;
                Members::of(metadata)?.find_named("uid").and_then(text)
            })?,
            (None, Some(meta)) => {
                victims(names[2], meta, |pod| Members::of(pod)?.find_named("UID").and_then(text))?
            }
            (None, None) => Vec::new(),
        };
        Ok(Self { pod, nodes })
    }
}

/// The victims on all nodes; `uid` finds the UID of one.
fn victims<'a>(
    name: &str,
    map: &'a RawValue,
    uid: impl Fn(&'a str) -> Option<std::borrow::Cow<'a, str>>,
) -> Result<Vec<Victims<'a>>, BadBody> {
    let bad = |node: &str, why: &str| BadBody::new(format_args!("{name}[{node}]: {why}"));
    let members = Members::of(map.get()).ok_or_else(|| bad("", "expected an object"))?;
    let mut nodes = Vec::new();
    for (node, value) in members {
        let mut victims = Victims { node: node.into(), uids: Vec::new(), pdb_violations: 0 };
        let fields = Members::of(value).ok_or_else(|| bad(victims.node.as_str(), "expected an object"))?;
        for (field, value) in fields {
            if field.eq_ignore_ascii_case("Pods") {
                for pod in elements(value) {
                    let uid = uid(pod).filter(|uid| !uid.is_empty());
                    let uid = uid.ok_or_else(|| bad(victims.node.as_str(), "a pod has no UID"))?;
                    victims.uids.push(uid.into());
                }
            } else if field.eq_ignore_ascii_case("NumPDBViolations") {
                let number = serde_json::from_str(value);
                victims.pdb_violations = number
                    .map_err(|_| bad(victims.node.as_str(), "NumPDBViolations: expected a whole number"))?;
            }
        }
        nodes.push(victims);
    }
    Ok(nodes)
}

/// Writes the answer: the nodes that remain candidates, always in the form with UIDs.
pub fn write_preempt(keys: Keys, nodes: &[Victims<'_>], out: &mut Vec<u8>) {
    let of = |capital, small| match keys {
        Keys::Capital => capital,
        Keys::Small => small,
    };
    out.push(b'{');
    key(out, of("NodeNameToMetaVictims", "nodeNameToMetaVictims"));
    out.push(b'{');
    separated(out, nodes, |out, victims| {
        string(out, victims.node.as_str());
        out.extend_from_slice(b":{");
        key(out, of("Pods", "pods"));
        list(out, &victims.uids, |out, uid| {
            out.push(b'{');
            key(out, of("UID", "uid"));
            string(out, uid.as_str());
            out.push(b'}');
        });
        out.push(b',');
        key(out, of("NumPDBViolations", "numPDBViolations"));
        number(out, victims.pdb_violations);
        out.push(b'}');
    });
    out.extend_from_slice(b"}}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_say_the_same_and_the_answer_has_uids() {
        let answer = r#"{"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"1"},{"UID":"2"}],"NumPDBViolations":1},"b":{"Pods":[],"NumPDBViolations":0}}}"#;
        for body in [
            r#"{"Pod":{},"NodeNameToVictims":{"a":{"Pods":[{"metadata":{"uid":"1"}},{"spec":{},"metadata":{"name":"x","uid":"2"}}],"NumPDBViolations":1},"b":{"Pods":null}}}"#,
            r#"{"pod":{},"NodeNameToVictims":null,"nodeNameToMetaVictims":{"a":{"pods":[{"uid":"1"},{"uid":"2"}],"numPDBViolations":1},"b":{}}}"#,
            answer,
        ] {
            let args = PreemptArgs::parse(body.as_bytes()).unwrap();
            let mut out = Vec::new();
            write_preempt(Keys::Capital, &args.nodes, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), answer);
        }
    }

    #[test]
    fn a_victim_that_nobody_can_name_is_refused() {
        for (body, why) in [
            (r#"{"NodeNameToMetaVictims":{"a":{"Pods":[{}]}}}"#, "[a]: a pod has no UID"),
            (r#"{"NodeNameToVictims":{"a":{"Pods":[{"metadata":{"uid":""}}]}}}"#, "[a]: a pod has no UID"),
            (r#"{"NodeNameToVictims":{"a":{"Pods":[7]}}}"#, "[a]: a pod has no UID"),
            (r#"{"NodeNameToVictims":{"a":[]}}"#, "[a]: expected an object"),
            (r#"{"NodeNameToVictims":[]}"#, "expected an object"),
            (r#"{"NodeNameToMetaVictims":{"a":{"NumPDBViolations":"1"}}}"#, "NumPDBViolations"),
            (r#"{"Pod":{},"pod":{}}"#, "duplicate field `Pod`"),
        ] {
            let error = PreemptArgs::parse(body.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(why), "{body}: {error}");
        }
    }
}
