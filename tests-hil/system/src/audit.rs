//! Which rights of the installed roles nobody has used, by the API server's log of requests.

use crate::SystemError;
use crate::rights::{self, NAMESPACE};
use cluster::ControlPlane;
use install::Helm;
use install::audited::AuditedPart;
use install::roles::{RoleRight, role_rights};
use serde_json::Value;
use std::time::Duration;

/// The group of all of Joulie's accounts, whose requests are logged.
pub const GROUP: &str = "system:serviceaccounts:joulie-system";
/// The log has a request a moment after its answer, and a program asks for some things a moment after its start.
const PATIENCE: Duration = Duration::from_secs(30);

/// A request that the API server allowed.
struct Request {
    account: String,
    namespace: String,
    /// The verbs that it needs: an apply that makes its object needs `create` beside `patch`.
    verbs: Vec<String>,
    group: String,
    /// With the part of the object, such as `nodes/status`.
    resource: String,
    name: String,
}

fn allows(right: &RoleRight, request: &Request) -> bool {
    right.accounts.contains(&request.account)
        && right.namespace.as_ref().is_none_or(|namespace| *namespace == request.namespace)
        && request.verbs.contains(&right.verb)
        && right.group == request.group
        && right.resource == request.resource
        && (right.names.is_empty() || right.names.contains(&request.name))
}

/// The requests of our accounts that an API server has allowed, by its log.
#[derive(Default)]
pub struct AuditLog(Vec<Request>);

impl AuditLog {
    /// What a control plane has logged so far.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn of(control_plane: &ControlPlane) -> Result<Self, SystemError> {
        Ok(Self(requests(control_plane)?))
    }
}

/// Waits until every right of a part was used since the control plane was started, and returns how many there are.
///
/// # Errors
/// With a line for each that nobody has used, or if the log or a manifest cannot be read.
pub async fn each_was_used(control_plane: &ControlPlane, part: AuditedPart) -> Result<usize, SystemError> {
    each_was_used_here_or(&AuditLog::default(), control_plane, part).await
}

/// The same, where what was asked of another control plane counts too.
///
/// # Errors
/// As for [`each_was_used`].
pub async fn each_was_used_here_or(
    elsewhere: &AuditLog,
    control_plane: &ControlPlane,
    part: AuditedPart,
) -> Result<usize, SystemError> {
    let (rights, installed) = (rights_of(part)?, role_rights(&rights::installed()?));
    if rights.is_empty() {
        return Err(format!("{part:?} adds no right").into());
    }
    let mut left = Ok(Vec::new());
    let is_so = async || {
        left = requests(control_plane)
            .map(|here| unused((&rights, &installed), here.iter().chain(&elsewhere.0)));
        left.as_ref().map_or(true, Vec::is_empty)
    };
    // What is left then says more than how long was waited.
    let _late = crate::until("every right was used", PATIENCE, is_so).await;
    let left = left?;
    if left.is_empty() {
        return Ok(rights.len());
    }
    Err(format!("of the {} rights of {part:?} nobody used these: {}", rights.len(), left.join("; ")).into())
}

/// The rights of a part. Where helm has to render it, those that no other part has, each for one account: a role is bound to another
/// account there.
fn rights_of(part: AuditedPart) -> Result<Vec<RoleRight>, SystemError> {
    let of_folders = |part: AuditedPart| {
        let mut objects = Vec::new();
        for folder in part.folders() {
            objects.extend(rights::objects(folder)?);
        }
        Ok::<_, SystemError>(role_rights(&objects))
    };
    if !part.folders().is_empty() {
        return of_folders(part);
    }
    let helm = Helm::or_skip().ok_or("no helm")?;
    let mut rights = Vec::new();
    for rendering in part.renderings() {
        rights.extend(role_rights(&install::objects(&helm.template("chart", rendering.flags)?)?));
    }
    let mut others = Vec::new();
    for other in AuditedPart::ALL {
        others.extend(of_folders(other)?.iter().flat_map(RoleRight::of_each_account));
    }
    let rights = rights.iter().flat_map(RoleRight::of_each_account);
    Ok(rights.filter(|right| !others.contains(right)).collect())
}

/// A line for each right that no request has used. What a role in the request's own namespace allows is no use of a right for all
/// namespaces.
fn unused<'r>(
    (rights, installed): (&[RoleRight], &[RoleRight]),
    requests: impl Iterator<Item = &'r Request> + Clone,
) -> Vec<String> {
    let narrow: Vec<&RoleRight> =
        installed.iter().chain(rights).filter(|right| right.namespace.is_some()).collect();
    let uses = |right: &RoleRight, request: &Request| {
        allows(right, request)
            && (right.namespace.is_some() || !narrow.iter().any(|narrow| allows(narrow, request)))
    };
    let idle = rights.iter().filter(|right| !requests.clone().any(|request| uses(right, request)));
    idle.map(line).collect()
}

fn line(right: &RoleRight) -> String {
    let RoleRight { role, accounts, namespace, verb, group, resource, names } = right;
    let namespace = namespace.as_deref().unwrap_or("*");
    format!("{verb} {resource} {names:?} of {group:?} in {namespace} for {accounts:?} by {role}")
}

fn requests(control_plane: &ControlPlane) -> Result<Vec<Request>, SystemError> {
    let log = std::fs::read_to_string(control_plane.audit_log())?;
    // A line that is being written has no end yet.
    let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().filter_map(|line| request(line).transpose()).collect()
}

/// The request in a line of the log, if it was allowed.
fn request(line: &str) -> Result<Option<Request>, SystemError> {
    let event: Value = serde_json::from_str(line)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let code = event["responseStatus"]["code"].as_u64().unwrap_or(0);
    let object = &event["objectRef"];
    if matches!(code, 401 | 403) || object.is_null() {
        return Ok(None);
    }
    let user = text(&event["user"]["username"]);
    let prefix = format!("system:serviceaccount:{NAMESPACE}:");
    let Some(account) = user.strip_prefix(&prefix) else { return Ok(None) };
    let mut verbs = vec![text(&event["verb"])];
    if verbs == ["patch"] && code == 201 {
        verbs.push("create".to_owned());
    }
    let mut resource = text(&object["resource"]);
    if let Some(part) = object["subresource"].as_str() {
        resource = format!("{resource}/{part}");
    }
    Ok(Some(Request {
        account: account.to_owned(),
        namespace: text(&object["namespace"]),
        verbs,
        group: text(&object["apiGroup"]),
        resource,
        name: text(&object["name"]),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn right(role: &str, namespace: Option<&str>) -> RoleRight {
        RoleRight {
            role: role.to_owned(),
            accounts: vec!["joulie-operator".to_owned()],
            namespace: namespace.map(str::to_owned),
            verb: "create".to_owned(),
            group: "events.k8s.io".to_owned(),
            resource: "events".to_owned(),
            names: Vec::new(),
        }
    }

    fn event_in(namespace: &str, code: u16) -> Option<Request> {
        let line = serde_json::json!({
            "user": {"username": "system:serviceaccount:joulie-system:joulie-operator"}, "verb": "create",
            "objectRef": {"resource": "events", "namespace": namespace, "apiGroup": "events.k8s.io"},
            "responseStatus": {"code": code},
        });
        request(&line.to_string()).ok().flatten()
    }

    #[test]
    fn what_a_role_of_the_namespace_allows_is_no_use_of_a_right_for_all() {
        let narrow = [right("own", Some("default"))];
        let wide = [right("all", None)];
        let left = |requests: Vec<Option<Request>>| {
            let requests: Vec<Request> = requests.into_iter().flatten().collect();
            unused((&wide, &narrow), requests.iter()).len()
        };
        assert_eq!(left(vec![]), 1);
        assert_eq!(left(vec![event_in("default", 201)]), 1);
        assert_eq!(left(vec![event_in("elsewhere", 403)]), 1, "it was refused");
        assert_eq!(left(vec![event_in("default", 201), event_in("elsewhere", 201)]), 0);
        assert_eq!(unused((&narrow, &[]), [event_in("default", 201).unwrap()].iter()).len(), 0);
    }
}
