//! Whether the accounts of the programs have the rights of the parts that are switched on, as the API server's own authorizer says.
//! What is off is not asked for.

use super::{Check, Findings, Seen};
use crate::remote::ProgramPod;
use crate::rights::{ProgramRight, ProgramSettings, RightScope, RightsPart};
use crate::run::PluginSession;
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// Reviews that are asked at the same time.
const AT_ONCE: usize = 16;

const BASE: &str =
    "upgrade the chart, whose roles are those of the programs; a role that was changed by hand loses that";
const OPTION: &str = "switch it on by its value of the chart, whose roles come with it, and not by the setting alone; or upgrade the \
     chart, whose roles are those of the programs";

/// An account in whose name a part does something.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Actor {
    component: String,
    account: String,
    part: RightsPart,
}

/// One question to the authorizer: may this account do that with this?
#[derive(Clone, Debug)]
struct Question {
    actor: Actor,
    scope: RightScope,
    group: &'static str,
    resource: &'static str,
    /// The only object that is meant; all of them where this is empty.
    name: &'static str,
    verb: &'static str,
}

/// Asks for each account of each program.
pub(super) async fn of_programs(asked: &PluginSession, seen: &Seen, found: &mut Findings) {
    let space = &asked.common.joulie_namespace;
    let files = files(asked, &seen.programs, found).await;
    let questions: Vec<Question> =
        actors(&seen.programs, &files, found).into_iter().flat_map(questions).collect();
    let answers: Vec<_> = stream::iter(&questions)
        .map(|question| async move { asked.api.post(REVIEWS, &review(space, question)).await })
        .buffered(AT_ONCE)
        .collect()
        .await;
    let mut missing: BTreeMap<(Actor, String), Vec<&str>> = BTreeMap::new();
    for (question, answer) in questions.iter().zip(answers) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return found.skipped.push(format!("the rights of the programs: {error}")),
        };
        if answer["status"]["allowed"] != true {
            missing.entry((question.actor.clone(), what(space, question))).or_default().push(question.verb);
        }
    }
    for ((Actor { component, account, part }, what), verbs) in missing {
        let of = match part.word() {
            "" => String::new(),
            word => format!(", for {word}"),
        };
        found.add(
            Check::ProgramRights,
            format!("{component}: its account {account} may not {} {what}{of}", verbs.join(", ")),
            "what needs it is not done, and its log says that it is forbidden",
            if of.is_empty() { BASE } else { OPTION },
        );
    }
    found.made(Check::ProgramRights);
}

/// The settings in the files of the programs, by ConfigMap and key.
async fn files(
    asked: &PluginSession,
    programs: &[ProgramPod],
    found: &mut Findings,
) -> BTreeMap<(String, String), BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    let places: BTreeSet<&(String, String)> = programs.iter().filter_map(|pod| pod.file.as_ref()).collect();
    for (map, key) in places {
        let path = format!("/api/v1/namespaces/{}/configmaps/{map}", asked.common.joulie_namespace);
        match asked.api.get(&path).await {
            Ok(object) => {
                let text = object["data"][key].as_str().unwrap_or_default();
                drop(files.insert((map.clone(), key.clone()), lines(text)));
            }
            Err(error) => found.skipped.push(format!(
                "what ConfigMap {map} switches on, so the rights for that are not asked for: {error}"
            )),
        }
    }
    files
}

/// The lines `NAME=VALUE` of a file of settings.
fn lines(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
        .collect()
}

/// Who acts for which part. The pods of one program may differ while it is rolled out: then what is on in any of them counts.
fn actors(
    programs: &[ProgramPod],
    files: &BTreeMap<(String, String), BTreeMap<String, String>>,
    found: &mut Findings,
) -> BTreeSet<Actor> {
    let (mut actors, mut unknown) = (BTreeSet::new(), BTreeSet::new());
    for pod in programs {
        let file = pod.file.as_ref().and_then(|place| files.get(place)).cloned().unwrap_or_default();
        let settings = ProgramSettings { file, ..pod.settings.clone() };
        for part in RightsPart::ALL {
            match part.is_on(&pod.component, &settings) {
                Ok(true) => {
                    let (component, account) = (pod.component.clone(), pod.account.clone());
                    actors.insert(Actor { component, account, part });
                }
                Ok(false) => {}
                Err(setting) => drop(unknown.insert((pod.component.as_str(), setting))),
            }
        }
    }
    found.skipped.extend(unknown.into_iter().map(|(component, setting)| {
        format!("the rights for {setting} of {component}: its value is not in the pod")
    }));
    actors
}

fn questions(actor: Actor) -> Vec<Question> {
    let mut all = Vec::new();
    for &ProgramRight { scope, group, resources, names, verbs } in actor.part.rights() {
        let names = if names.is_empty() { &[""] } else { names };
        for (resource, name) in resources.iter().flat_map(|one| names.iter().map(move |name| (one, name))) {
            all.extend(verbs.iter().map(|verb| Question {
                actor: actor.clone(),
                scope,
                group,
                resource,
                name,
                verb,
            }));
        }
    }
    all
}

/// The object of a question, in words.
fn what(space: &str, question: &Question) -> String {
    let Question { scope, resource, name, .. } = question;
    let name = if name.is_empty() { String::new() } else { format!(" {name}") };
    match namespace(space, *scope) {
        Some(space) => format!("{resource}{name} in {space}"),
        None => format!("{resource}{name}"),
    }
}

fn namespace(space: &str, scope: RightScope) -> Option<&str> {
    match scope {
        RightScope::Cluster => None,
        RightScope::Installation => Some(space),
        RightScope::Default => Some("default"),
    }
}

fn review(space: &str, question: &Question) -> Value {
    let Question { actor, scope, group, resource, name, verb } = question;
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let mut attributes = json!({"group": group, "resource": resource, "verb": verb});
    let namespace = namespace(space, *scope).unwrap_or_default();
    for (field, value) in [("subresource", subresource), ("name", *name), ("namespace", namespace)] {
        if !value.is_empty() {
            attributes[field] = json!(value);
        }
    }
    // The groups that a service account is in; a role may name them.
    let groups = [
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{space}"),
        "system:authenticated".to_owned(),
    ];
    let user = format!("system:serviceaccount:{space}:{}", actor.account);
    json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": groups, "resourceAttributes": attributes}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(part: RightsPart) -> Vec<Value> {
        let actor = Actor { component: "operator".to_owned(), account: "a".to_owned(), part };
        let all = questions(actor);
        let all = all.iter().map(|one| review("joulie-system", one));
        all.map(|review| review["spec"]["resourceAttributes"].clone()).collect()
    }

    #[test]
    fn a_review_names_the_part_the_object_and_the_namespace_where_there_is_one() {
        let of = asked(RightsPart::Operator);
        for expected in [
            json!({"group": "joulie.io", "resource": "nodetwins", "subresource": "status", "verb": "patch"}),
            json!({"group": "coordination.k8s.io", "resource": "leases", "name": "joulie-plan", "verb": "patch", "namespace": "joulie-system"}),
            json!({"group": "events.k8s.io", "resource": "events", "verb": "create", "namespace": "default"}),
            json!({"group": "", "resource": "nodes", "verb": "patch"}),
        ] {
            assert!(of.contains(&expected), "{expected} is not in {of:#?}");
        }
        // Three verbs on nodes, two on pods, 3·2 and 4·5 on kinds, five statuses, 1 + 3 + 4 on Leases, 2·2 on Events.
        assert_eq!(of.len(), 3 + 2 + 6 + 20 + 5 + 8 + 4);
    }

    #[test]
    fn a_file_of_settings_is_read_by_its_lines() {
        let read = lines("# UI=read\n\n GPU_REPAIR_AFTER = 2m\nno line\nA=b=c\n");
        assert_eq!(
            read.into_iter().collect::<Vec<_>>(),
            [("A".to_owned(), "b=c".to_owned()), ("GPU_REPAIR_AFTER".to_owned(), "2m".to_owned())]
        );
    }
}
