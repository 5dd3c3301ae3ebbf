//! Whether the accounts of the programs have the rights that the programs cannot do without, as the API server's own
//! authorizer says. What only options need is not asked for.

use super::{Check, Findings, Seen};
use crate::run::PluginSession;
use joulie_api::labels;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// What a program does with objects of one kind.
struct Need {
    group: &'static str,
    resource: &'static str,
    subresource: &'static str,
    /// The only object that is meant; all of them where this is empty.
    name: &'static str,
    verbs: &'static [&'static str],
}

const fn need(group: &'static str, resource: &'static str, verbs: &'static [&'static str]) -> Need {
    Need { group, resource, subresource: "", name: "", verbs }
}

const fn status(resource: &'static str) -> Need {
    Need { subresource: "status", ..need(labels::GROUP, resource, &["patch"]) }
}

const fn lease(name: &'static str, verbs: &'static [&'static str]) -> Need {
    Need { name, ..need(LEASES, "leases", verbs) }
}

const LEASES: &str = "coordination.k8s.io";

const OPERATOR: [Need; 14] = [
    need("", "nodes", &["watch", "patch"]),
    need("", "pods", &["watch"]),
    need(labels::GROUP, "nodehardwares", &["watch"]),
    need(labels::GROUP, "nodepowerprofiles", &["watch", "patch"]),
    need(labels::GROUP, "nodetwins", &["watch", "patch"]),
    need(labels::GROUP, "nodepowergrants", &["watch", "create", "patch"]),
    need(labels::GROUP, "powerbudgets", &["watch"]),
    need(labels::GROUP, "powerevents", &["watch"]),
    status("nodepowerprofiles"),
    status("nodetwins"),
    status("powerbudgets"),
    status("powerevents"),
    lease(labels::LEADER_LEASE, &["update"]),
    lease(labels::PLAN_LEASE, &["patch"]),
];

const AGENT: [Need; 10] = [
    need("", "nodes", &["watch"]),
    need(labels::GROUP, "nodehardwares", &["watch", "patch"]),
    need(labels::GROUP, "nodepowerprofiles", &["watch"]),
    need(labels::GROUP, "nodepowergrants", &["watch"]),
    need(labels::GROUP, "powerevents", &["watch"]),
    need(labels::GROUP, "telemetryprofiles", &["watch"]),
    status("nodehardwares"),
    status("nodepowerprofiles"),
    status("nodepowergrants"),
    status("telemetryprofiles"),
];

const EXTENDER: [Need; 5] = [
    need("", "pods", &["watch"]),
    need(labels::GROUP, "nodehardwares", &["watch"]),
    need(labels::GROUP, "nodetwins", &["watch"]),
    need(labels::GROUP, "powerbudgets", &["watch"]),
    need(LEASES, "leases", &["watch"]),
];

fn needs(component: &str) -> &'static [Need] {
    match component {
        "operator" => &OPERATOR,
        "agent" | "agent-pool" => &AGENT,
        "scheduler-extender" => &EXTENDER,
        _ => &[],
    }
}

/// Asks for each account of each program.
pub(super) async fn of_programs(asked: &PluginSession, seen: &Seen, found: &mut Findings) {
    let space = &asked.common.joulie_namespace;
    let accounts: BTreeSet<(&str, &str)> =
        seen.programs.iter().map(|pod| (pod.component.as_str(), pod.account.as_str())).collect();
    for (component, account) in accounts {
        let user = format!("system:serviceaccount:{space}:{account}");
        for need in needs(component) {
            for verb in need.verbs {
                let review = review(&user, space, need, verb);
                let answer = match asked.api.post(REVIEWS, &review).await {
                    Ok(answer) => answer,
                    Err(error) => return found.skipped.push(format!("the rights of the programs: {error}")),
                };
                if answer["status"]["allowed"] != true {
                    let Need { resource, subresource, .. } = need;
                    let what = match subresource.is_empty() {
                        true => (*resource).to_owned(),
                        false => format!("{resource}/{subresource}"),
                    };
                    found.add(
                        Check::ProgramRights,
                        format!("{component}: its account {account} may not {verb} {what}"),
                        "what needs it is not done, and its log says that it is forbidden",
                        "upgrade the chart, whose roles are those of the programs; a role that was changed by hand loses that",
                    );
                }
            }
        }
    }
    found.made(Check::ProgramRights);
}

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

fn review(user: &str, space: &str, need: &Need, verb: &str) -> Value {
    let Need { group, resource, subresource, name, .. } = need;
    let mut attributes = json!({"group": group, "resource": resource, "verb": verb});
    for (field, value) in [("subresource", subresource), ("name", name)] {
        if !value.is_empty() {
            attributes[field] = json!(value);
        }
    }
    if *group == LEASES {
        attributes["namespace"] = json!(space);
    }
    // The groups that a service account is in; a role may name them.
    let groups = [
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{space}"),
        "system:authenticated".to_owned(),
    ];
    json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": groups, "resourceAttributes": attributes}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_review_names_the_part_the_object_and_the_namespace_where_there_is_one() {
        let of =
            |need: &Need| review("u", "joulie-system", need, "patch")["spec"]["resourceAttributes"].clone();
        assert_eq!(
            of(&status("nodetwins")),
            json!({"group": "joulie.io", "resource": "nodetwins", "subresource": "status", "verb": "patch"})
        );
        assert_eq!(
            of(&lease("joulie-plan", &["patch"])),
            json!({"group": "coordination.k8s.io", "resource": "leases", "name": "joulie-plan", "verb": "patch", "namespace": "joulie-system"})
        );
        assert_eq!(
            of(&need("", "nodes", &["patch"])),
            json!({"group": "", "resource": "nodes", "verb": "patch"})
        );
    }
}
