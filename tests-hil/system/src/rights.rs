//! The objects of an installation: definitions, namespace, accounts, roles, the policy that restricts an agent to its
//! own node, and the settings of each program. They are read from the rendered chart, so that the tests use what is
//! shipped.

use crate::SystemError;
use cluster::ControlPlane;
use install::audited::AuditedPart;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The programs with an account. The account is named after the program, with the prefix `joulie-`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProgramAccount {
    /// `joulie-agent`, on a node.
    Agent,
    /// The same program, for many nodes.
    Pool,
    /// `joulie-operator`.
    Operator,
    /// `joulie-extender`.
    Extender,
    /// `joulie-simulator`.
    Simulator,
    /// The extender that only binds.
    Binder,
    /// The chart's own kube-scheduler.
    Scheduler,
}

/// The namespace of Joulie's accounts and Leases.
pub const NAMESPACE: &str = "joulie-system";
const FIELD_MANAGER: &str = "installation";
const PATIENCE: Duration = Duration::from_secs(60);

impl ProgramAccount {
    /// The name of the ServiceAccount.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Agent => "joulie-agent",
            Self::Pool => "joulie-agent-pool",
            Self::Operator => "joulie-operator",
            Self::Extender => "joulie-extender",
            Self::Simulator => "joulie-simulator",
            Self::Binder => "joulie-binder",
            Self::Scheduler => "joulie-scheduler",
        }
    }

    /// A kubeconfig with a token that the API has issued to the account.
    ///
    /// # Errors
    /// If the API issues no token.
    pub async fn kubeconfig(self, control_plane: &ControlPlane) -> Result<PathBuf, SystemError> {
        Ok(control_plane.service_account_kubeconfig(NAMESPACE, self.name()).await?)
    }

    /// The same with the token of a pod of the account on a node. There is at most one such pod.
    ///
    /// # Errors
    /// When the API issues none.
    pub async fn kubeconfig_on(
        self,
        control_plane: &ControlPlane,
        node: &str,
    ) -> Result<PathBuf, SystemError> {
        Ok(control_plane.pod_kubeconfig(NAMESPACE, self.name(), node).await?)
    }
}

/// The definitions, which are applied before anything else.
pub const KINDS: &str = "chart-crds/files";
/// The account of a Prometheus, which may read the metrics.
const SCRAPER: &str = "prometheus";
/// Workloads, whose pods would need a kubelet; the suites start the programs instead.
const WORKLOADS: [&str; 3] = ["DaemonSet", "Deployment", "StatefulSet"];

/// Installs all objects, by folder and file in the order of their names, as `kubectl apply -f` does, and returns when
/// the definitions are served. Workloads are only sent as a dry run.
///
/// # Errors
/// If a file cannot be read, or the API refuses its objects.
pub async fn install(client: &Client) -> Result<(), SystemError> {
    apply_all(client, installed()?).await
}

/// The same with these objects, in their order.
///
/// # Errors
/// If the API refuses one.
pub async fn apply_all(client: &Client, objects: Vec<Value>) -> Result<(), SystemError> {
    let mut definitions = Vec::new();
    for object in objects {
        let object: DynamicObject = serde_json::from_value(object)?;
        apply(client, &object).await?;
        if object.types.as_ref().is_some_and(|types| types.kind == "CustomResourceDefinition") {
            definitions.push(object);
        }
    }
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in &definitions {
        let name = definition.metadata.name.as_deref().unwrap_or_default();
        let established = await_condition(api.clone(), name, conditions::is_crd_established());
        tokio::time::timeout(PATIENCE, established).await??;
    }
    Ok(())
}

/// Makes an account that may read the metrics, and returns its token.
///
/// # Errors
/// If the API refuses.
pub async fn scraper(control_plane: &ControlPlane, client: &Client) -> Result<String, SystemError> {
    let metadata = json!({"name": SCRAPER, "namespace": NAMESPACE});
    for object in [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "prometheus-reads-joulie"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "joulie-metrics-reader"},
            "subjects": [{"kind": "ServiceAccount", "name": SCRAPER, "namespace": NAMESPACE}],
        }),
    ] {
        apply(client, &serde_json::from_value(object)?).await?;
    }
    Ok(control_plane.service_account_token(NAMESPACE, SCRAPER).await?)
}

/// The settings that the chart gives to the program of an account, without those that a kubelet fills in.
///
/// # Errors
/// If a file cannot be read, or there is no such program.
pub fn settings(account: ProgramAccount) -> Result<Vec<(String, String)>, SystemError> {
    settings_in(&installed()?, account)
}

/// The same in these objects.
///
/// # Errors
/// If there is no such program.
pub fn settings_in(objects: &[Value], account: ProgramAccount) -> Result<Vec<(String, String)>, SystemError> {
    let pods = objects.iter().map(|object| &object["spec"]["template"]["spec"]);
    let pod = pods.into_iter().find(|pod| pod["serviceAccountName"] == account.name());
    let pod = pod.ok_or_else(|| format!("no program has the account {}", account.name()))?;
    let variables = pod["containers"][0]["env"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    Ok(variables.filter_map(|one| Some((text(&one["name"])?, text(&one["value"])?))).collect())
}

/// The template of the pods of an account's program, as the chart has it.
///
/// # Errors
/// If a file cannot be read, or there is no such program.
pub fn template(account: ProgramAccount) -> Result<Value, SystemError> {
    let installed = installed()?;
    let mut templates = installed.iter().map(|object| &object["spec"]["template"]);
    let found = templates.find(|template| template["spec"]["serviceAccountName"] == account.name());
    Ok(found.ok_or_else(|| format!("no program has the account {}", account.name()))?.clone())
}

/// Installs the objects of one more folder of `hosts/deploy`, such as `kustomize/gpu-placement`.
///
/// # Errors
/// As for [`install`].
pub async fn install_also(client: &Client, folder: &str) -> Result<(), SystemError> {
    apply_all(client, objects(folder)?).await
}

/// All objects of an installation.
///
/// # Errors
/// If a file cannot be read.
pub(crate) fn installed() -> Result<Vec<Value>, SystemError> {
    let mut all = Vec::new();
    for folder in [KINDS].iter().chain(AuditedPart::Installed.folders()) {
        all.extend(objects(folder)?);
    }
    Ok(all)
}

/// All objects in a folder of `hosts/deploy`, in the order of the files' names.
pub(crate) fn objects(folder: &str) -> Result<Vec<Value>, SystemError> {
    let folder = install::deploy().join(folder);
    let told = |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let listed = std::fs::read_dir(&folder).map_err(|error| told(&folder, &error))?;
    let mut files = listed.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, std::io::Error>>()?;
    files.retain(|file| !file.ends_with("kustomization.yaml"));
    files.sort();
    let mut objects = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).map_err(|error| told(&file, &error))?;
        objects.extend(install::objects(&text).map_err(|error| told(&file, &error))?);
    }
    Ok(objects)
}

async fn apply(client: &Client, object: &DynamicObject) -> Result<(), SystemError> {
    let types = object.types.clone().ok_or("an object without a kind")?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?);
    let api: Api<DynamicObject> = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let mut by = PatchParams::apply(FIELD_MANAGER);
    by.dry_run = WORKLOADS.contains(&types.kind.as_str());
    let applied = api.patch(name, &by, &Patch::Apply(object)).await;
    applied.map(drop).map_err(|error| format!("{} {name}: {error}", types.kind).into())
}
