//! What an installation brings along: definitions, namespace, accounts, roles and the policy that keeps an agent to its own
//! node, read from `hosts/deploy`, so that what is tested is what ships.

use crate::Trouble;
use cluster::ControlPlane;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The programs that have an account, each named after itself with `joulie-` in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Account {
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
}

/// Where Joulie's accounts and Leases are.
pub const NAMESPACE: &str = "joulie-system";
const FIELD_MANAGER: &str = "installation";
const PATIENCE: Duration = Duration::from_secs(60);

impl Account {
    /// Of the ServiceAccount.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Agent => "joulie-agent",
            Self::Pool => "joulie-agent-pool",
            Self::Operator => "joulie-operator",
            Self::Extender => "joulie-extender",
            Self::Simulator => "joulie-simulator",
        }
    }

    /// A kubeconfig with a token that the API has issued to it.
    ///
    /// # Errors
    /// When the API issues none.
    pub async fn kubeconfig(self, control_plane: &ControlPlane) -> Result<PathBuf, Trouble> {
        Ok(control_plane.service_account_kubeconfig(NAMESPACE, self.name()).await?)
    }

    /// The same with the token of a pod of it on a node, of which there is one at most.
    ///
    /// # Errors
    /// When the API issues none.
    pub async fn kubeconfig_on(self, control_plane: &ControlPlane, node: &str) -> Result<PathBuf, Trouble> {
        Ok(control_plane.pod_kubeconfig(NAMESPACE, self.name(), node).await?)
    }
}

/// Installs all of it, folder by folder and file by file in the order of their names, as `kubectl apply -f` does, and
/// returns when the definitions serve.
///
/// # Errors
/// When a file cannot be read, or the API refuses what is in it.
pub async fn install(client: &Client) -> Result<(), Trouble> {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hosts/deploy");
    let mut definitions = Vec::new();
    let mut rest = Vec::new();
    for folder in ["crds", "rbac", "optional", "admission"] {
        for object in objects(&deploy.join(folder))? {
            let is_definition = folder == "crds";
            if is_definition { &mut definitions } else { &mut rest }.push(object);
        }
    }
    for object in definitions.iter().chain(&rest) {
        apply(client, object).await?;
    }
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in &definitions {
        let name = definition.metadata.name.as_deref().unwrap_or_default();
        let established = await_condition(api.clone(), name, conditions::is_crd_established());
        tokio::time::timeout(PATIENCE, established).await??;
    }
    Ok(())
}

/// Every object of every file, in the order of the files' names.
fn objects(folder: &Path) -> Result<Vec<DynamicObject>, Trouble> {
    let told = |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let listed = std::fs::read_dir(folder).map_err(|error| told(folder, &error))?;
    let mut files = listed.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, std::io::Error>>()?;
    files.sort();
    let mut objects = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).map_err(|error| told(&file, &error))?;
        for document in text.split("\n---\n") {
            objects.push(serde_saphyr::from_str(document).map_err(|error| told(&file, &error))?);
        }
    }
    Ok(objects)
}

async fn apply(client: &Client, object: &DynamicObject) -> Result<(), Trouble> {
    let types = object.types.clone().ok_or("an object without a kind")?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?);
    let api: Api<DynamicObject> = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let applied = api.patch(name, &PatchParams::apply(FIELD_MANAGER), &Patch::Apply(object)).await;
    applied.map(drop).map_err(|error| format!("{} {name}: {error}", types.kind).into())
}
