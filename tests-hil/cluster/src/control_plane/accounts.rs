//! Kubeconfigs of ServiceAccounts, with tokens that the API issues. Joulie's programs run with them, so that roles
//! and policies apply to them.

use super::ControlPlane;
use crate::error::ClusterError;
use crate::kubeconfig::{self, Login};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ServiceAccount};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use std::path::PathBuf;

/// The lifetime of a ServiceAccount's token.
const TOKEN_SECONDS: i64 = 24 * 3600;

impl ControlPlane {
    /// The kubeconfig of an existing ServiceAccount, with a token for one day.
    ///
    /// # Errors
    /// If the API issues no token.
    pub async fn service_account_kubeconfig(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<PathBuf, ClusterError> {
        self.token_kubeconfig((namespace, name), None, &format!("service-account-{namespace}-{name}")).await
    }

    /// A client of a ServiceAccount.
    ///
    /// # Errors
    /// As for [`Self::service_account_kubeconfig`].
    pub async fn service_account_client(&self, namespace: &str, name: &str) -> Result<Client, ClusterError> {
        kubeconfig::client(&self.service_account_kubeconfig(namespace, name).await?).await
    }

    /// The kubeconfig of a new pod with this ServiceAccount on a node. Its token is the one that a kubelet would
    /// request, so the API server knows from which node every request comes.
    ///
    /// # Errors
    /// If such a pod exists already, or the API issues no token.
    pub async fn pod_kubeconfig(
        &self,
        namespace: &str,
        account: &str,
        node: &str,
    ) -> Result<PathBuf, ClusterError> {
        let name = format!("{account}-{node}");
        let container =
            Container { name: "main".to_owned(), image: Some("none".to_owned()), ..Container::default() };
        let pod = Pod {
            metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
            spec: Some(PodSpec {
                service_account_name: Some(account.to_owned()),
                node_name: Some(node.to_owned()),
                containers: vec![container],
                ..PodSpec::default()
            }),
            status: None,
        };
        let pods: Api<Pod> = Api::namespaced(self.client().await?, namespace);
        let made = pods.create(&PostParams::default(), &pod).await;
        let pod = made.map_err(ClusterError::api("making the pod of a token"))?;
        let bound = BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: pod.metadata.name,
            uid: pod.metadata.uid,
        };
        self.token_kubeconfig((namespace, account), Some(bound), &format!("pod-{namespace}-{name}")).await
    }

    /// A token of an existing ServiceAccount for one day.
    ///
    /// # Errors
    /// If the API issues none.
    pub async fn service_account_token(&self, namespace: &str, name: &str) -> Result<String, ClusterError> {
        self.token((namespace, name), None).await
    }

    async fn token_kubeconfig(
        &self,
        account: (&str, &str),
        bound: Option<BoundObjectReference>,
        file: &str,
    ) -> Result<PathBuf, ClusterError> {
        let token = self.token(account, bound).await?;
        kubeconfig::write(&self.folder, file, self.ports.api_server, "ca", &Login::Token(&token))
    }

    async fn token(
        &self,
        (namespace, name): (&str, &str),
        bound: Option<BoundObjectReference>,
    ) -> Result<String, ClusterError> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client().await?, namespace);
        let spec = TokenRequestSpec {
            expiration_seconds: Some(TOKEN_SECONDS),
            bound_object_ref: bound,
            ..TokenRequestSpec::default()
        };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let issued = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .map_err(ClusterError::api("requesting a token for a ServiceAccount"))?;
        Ok(issued.status.map(|status| status.token).unwrap_or_default())
    }
}
