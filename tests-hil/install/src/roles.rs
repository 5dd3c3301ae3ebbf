//! What the roles among rendered objects allow, and whom.

use serde_json::Value;

/// What a rule of a role allows, taken apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RoleRight {
    /// The name of the role.
    pub role: String,
    /// Of whom: the accounts that are bound to the role.
    pub accounts: Vec<String>,
    /// `None` for all namespaces.
    pub namespace: Option<String>,
    /// What may be done.
    pub verb: String,
    /// The API group.
    pub group: String,
    /// The kind, with the part of the object, such as `nodes/status`.
    pub resource: String,
    /// One of these; empty for each name.
    pub names: Vec<String>,
}

impl RoleRight {
    /// The same right of each account that has it.
    pub fn of_each_account(&self) -> impl Iterator<Item = Self> {
        self.accounts.iter().map(|account| Self { accounts: vec![account.clone()], ..self.clone() })
    }
}

/// What all roles of these objects allow.
#[must_use]
pub fn role_rights(objects: &[Value]) -> Vec<RoleRight> {
    let kind = |object: &Value, kind: &str| object["kind"] == kind;
    let texts = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut all = Vec::new();
    for role in objects.iter().filter(|one| kind(one, "Role") || kind(one, "ClusterRole")) {
        let (name, namespace) = (&role["metadata"]["name"], &role["metadata"]["namespace"]);
        let bound = |binding: &&Value| {
            (kind(binding, "RoleBinding") || kind(binding, "ClusterRoleBinding"))
                && binding["roleRef"]["kind"] == role["kind"]
                && binding["roleRef"]["name"] == *name
                && (namespace.is_null() || binding["metadata"]["namespace"] == *namespace)
        };
        let subjects =
            objects.iter().filter(bound).flat_map(|one| one["subjects"].as_array().into_iter().flatten());
        let accounts: Vec<String> =
            subjects.filter_map(|one| one["name"].as_str()).map(str::to_owned).collect();
        for rule in role["rules"].as_array().into_iter().flatten() {
            let names = texts(&rule["resourceNames"]);
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for verb in texts(&rule["verbs"]) {
                        all.push(RoleRight {
                            role: name.as_str().unwrap_or_default().to_owned(),
                            accounts: accounts.clone(),
                            namespace: namespace.as_str().map(str::to_owned),
                            verb,
                            group: group.clone(),
                            resource: resource.clone(),
                            names: names.clone(),
                        });
                    }
                }
            }
        }
    }
    all
}
