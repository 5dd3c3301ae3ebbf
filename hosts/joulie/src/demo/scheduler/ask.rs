//! The two requests to the extender in the format of kube-scheduler: capitalised keys, node names only.

use crate::demo::state::clean;
use crate::demo::web::Web;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The extender, over HTTP.
#[derive(Clone)]
pub(crate) struct Extender {
    web: Web,
}

/// The result of filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Passed {
    pub(crate) names: Vec<String>,
    /// The rejected nodes, and why.
    pub(crate) refused: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct FilterResult {
    #[serde(rename = "NodeNames", alias = "nodenames")]
    names: Option<Vec<String>>,
    #[serde(rename = "FailedNodes", alias = "failedNodes")]
    failed: Option<BTreeMap<String, String>>,
    #[serde(rename = "FailedAndUnresolvableNodes", alias = "failedAndUnresolvableNodes")]
    unresolvable: Option<BTreeMap<String, String>>,
    #[serde(rename = "Error", alias = "error")]
    error: Option<String>,
}

#[derive(Deserialize)]
struct HostPriority {
    #[serde(rename = "Host", alias = "host")]
    host: String,
    #[serde(rename = "Score", alias = "score")]
    score: i64,
}

impl Extender {
    /// The extender at this address.
    pub(crate) const fn at(web: Web) -> Self {
        Self { web }
    }

    /// The nodes among these that may take the pod.
    pub(crate) async fn filter(&self, pod: &Value, names: &[&str]) -> Result<Passed, String> {
        passed(&self.web.post("/filter", &request(pod, names)).await?, names)
    }

    /// The scores of these nodes.
    pub(crate) async fn prioritize(
        &self,
        pod: &Value,
        names: &[&str],
    ) -> Result<BTreeMap<String, i64>, String> {
        scores(&self.web.post("/prioritize", &request(pod, names)).await?)
    }
}

fn request(pod: &Value, names: &[&str]) -> Value {
    json!({"Pod": pod, "Nodes": null, "NodeNames": names})
}

fn passed(text: &str, asked: &[&str]) -> Result<Passed, String> {
    let answer: FilterResult =
        serde_json::from_str(text).map_err(|error| format!("the extender's answer to filter: {error}"))?;
    if let Some(error) = answer.error.filter(|error| !error.is_empty()) {
        return Err(clean(&format!("the extender says: {error}")));
    }
    let names = answer.names.unwrap_or_default();
    if let Some(stranger) = names.iter().find(|name| !asked.contains(&name.as_str())) {
        return Err(clean(&format!("the extender lets {stranger} pass, which it was not asked about")));
    }
    let mut refused = answer.failed.unwrap_or_default();
    refused.extend(answer.unresolvable.unwrap_or_default());
    Ok(Passed { names, refused })
}

fn scores(text: &str) -> Result<BTreeMap<String, i64>, String> {
    let list: Option<Vec<HostPriority>> = serde_json::from_str(text)
        .map_err(|error| format!("the extender's answer to prioritize: {error}"))?;
    let mut scores = BTreeMap::new();
    for HostPriority { host, score } in list.unwrap_or_default() {
        // As in kube-scheduler, the scores of a repeated node are added.
        let sum: &mut i64 = scores.entry(host).or_default();
        *sum = sum.saturating_add(score);
    }
    Ok(scores)
}

impl Passed {
    /// The reasons of the rejections, the most frequent first.
    pub(crate) fn refusals(&self) -> String {
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for why in self.refused.values() {
            *reasons.entry(why).or_default() += 1;
        }
        let mut reasons: Vec<(&str, usize)> = reasons.into_iter().collect();
        reasons.sort_by(|(a, left), (b, right)| right.cmp(left).then(a.cmp(b)));
        if reasons.is_empty() {
            return "the extender lets no node pass".to_owned();
        }
        let said = reasons.iter().map(|(why, count)| format!("{count} refused ({})", clean(why)));
        said.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_casings_are_read_and_both_maps_of_refusals() {
        for text in [
            r#"{"NodeNames":["a"],"FailedNodes":{"b":"full"},"FailedAndUnresolvableNodes":{"c":"eco"},"Error":""}"#,
            r#"{"nodenames":["a"],"failedNodes":{"b":"full"},"failedAndUnresolvableNodes":{"c":"eco"}}"#,
        ] {
            let answer = passed(text, &["a", "b", "c"]).unwrap();
            assert_eq!(answer.names, ["a"]);
            assert_eq!(answer.refusals(), "1 refused (eco), 1 refused (full)");
        }
        assert_eq!(scores(r#"[{"Host":"a","Score":41},{"host":"a","score":1}]"#).unwrap()["a"], 42);
        assert!(scores("null").unwrap().is_empty());
    }

    #[test]
    fn an_answer_that_kube_scheduler_would_not_take_is_an_error() {
        for (text, why) in [
            (r#"{"NodeNames":["z"]}"#, "z pass"),
            (r#"{"NodeNames":null,"Error":"no cache"}"#, "no cache"),
            ("[]", "invalid"),
        ] {
            let error = passed(text, &["a"]).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        assert!(scores(r#"[{"Host":"a","Score":1.5}]"#).is_err());
        assert_eq!(passed("{}", &["a"]).unwrap(), Passed::default());
    }
}
