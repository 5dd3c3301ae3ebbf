//! Which rights of the installed roles nobody has used, by the API server's log of requests.

use crate::SystemError;
use crate::rights::{self, NAMESPACE, ProgramAccount};
use cluster::ControlPlane;
use install::roles::{RoleRight, role_rights};
use serde_json::Value;

/// The group of all of Joulie's accounts, whose requests are logged.
pub const GROUP: &str = "system:serviceaccounts:joulie-system";

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

fn is_used_by(right: &RoleRight, request: &Request) -> bool {
    right.accounts.contains(&request.account)
        && right.namespace.as_ref().is_none_or(|namespace| *namespace == request.namespace)
        && request.verbs.contains(&right.verb)
        && right.group == request.group
        && right.resource == request.resource
        && (right.names.is_empty() || right.names.contains(&request.name))
}

/// The rights that no allowed request has used since the control plane was started, a line for each, and how many
/// there are in all.
///
/// # Errors
/// If the log or a manifest cannot be read.
pub fn unused_rights(control_plane: &ControlPlane) -> Result<(Vec<String>, usize), SystemError> {
    unused_of(control_plane, &role_rights(&rights::installed()?))
}

/// The same of the rights that one more folder of `hosts/deploy` gives to an account.
///
/// # Errors
/// As for [`unused_rights`].
pub fn unused_rights_of(
    control_plane: &ControlPlane,
    folder: &str,
    account: ProgramAccount,
) -> Result<(Vec<String>, usize), SystemError> {
    let mut rights = role_rights(&rights::objects(folder)?);
    rights.retain(|right| right.accounts.iter().any(|one| one == account.name()));
    unused_of(control_plane, &rights)
}

fn unused_of(
    control_plane: &ControlPlane,
    rights: &[RoleRight],
) -> Result<(Vec<String>, usize), SystemError> {
    let log = std::fs::read_to_string(control_plane.audit_log())?;
    // A line that is being written has no end yet.
    let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let requests =
        whole.lines().filter_map(|line| request(line).transpose()).collect::<Result<Vec<_>, _>>()?;
    let unused = rights.iter().filter(|right| !requests.iter().any(|request| is_used_by(right, request)));
    let line = |right: &RoleRight| {
        let RoleRight { accounts, namespace, verb, group, resource, names } = right;
        let namespace = namespace.as_deref().unwrap_or("*");
        format!("{verb} {resource} {names:?} of {group:?} in {namespace} for {accounts:?}")
    };
    Ok((unused.map(line).collect(), rights.len()))
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
