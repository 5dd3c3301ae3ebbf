//! A kubelet that gives the devices of a virtual NVML to the pods of its node, and says who has which by PodResources: gRPC over a
//! unix socket, as the agent asks real ones.

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use nvml_stub::StubMachine;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tonic_prost::ProstCodec;

const EVERY: Duration = Duration::from_millis(100);
/// What device plugins call a whole card.
const WHOLE: &str = "nvidia.com/gpu";
/// What they put before the profile of an instance.
const PART: &str = "nvidia.com/mig-";

/// The messages of PodResources, as far as devices are in them.
mod message {
    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub(super) struct Question {}

    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub(super) struct List {
        #[prost(message, repeated, tag = "1")]
        pub(super) pods: Vec<PodDevices>,
    }

    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub(super) struct PodDevices {
        #[prost(string, tag = "1")]
        pub(super) name: String,
        #[prost(string, tag = "2")]
        pub(super) namespace: String,
        #[prost(message, repeated, tag = "3")]
        pub(super) containers: Vec<ContainerDevices>,
    }

    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub(super) struct ContainerDevices {
        #[prost(string, tag = "1")]
        pub(super) name: String,
        #[prost(message, repeated, tag = "2")]
        pub(super) devices: Vec<Devices>,
    }

    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub(super) struct Devices {
        #[prost(string, tag = "1")]
        pub(super) resource: String,
        #[prost(string, repeated, tag = "2")]
        pub(super) ids: Vec<String>,
    }
}

/// What a pod was given.
#[derive(Clone, Debug)]
struct Given {
    namespace: String,
    name: String,
    resource: String,
    ids: Vec<String>,
}

#[derive(Default)]
struct Truth {
    /// By the pods' UIDs.
    given: BTreeMap<String, Given>,
    /// Pods that came and found no device.
    short: BTreeSet<String>,
}

/// The kubelet of one node.
pub(crate) struct Kubelet {
    truth: Arc<Mutex<Truth>>,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Kubelet {
    /// Starts it. The devices are those of this machine, whoever changes them.
    pub(crate) fn start(client: &Client, node: &str, stub: &StubMachine, socket: &Path) -> Self {
        let truth: Arc<Mutex<Truth>> = Arc::default();
        let listener = UnixListener::bind(socket).unwrap();
        let tells = tokio::spawn(tell(listener, Arc::clone(&truth)));
        let gives = tokio::spawn(tend(client.clone(), node.to_owned(), stub.clone(), Arc::clone(&truth)));
        Self { truth, tasks: [tells, gives] }
    }

    /// The devices that a pod has.
    pub(crate) fn has(&self, pod: &str) -> Vec<String> {
        let truth = self.truth.lock().unwrap();
        truth.given.values().find(|one| one.name == pod).map(|one| one.ids.clone()).unwrap_or_default()
    }

    /// The pods that were put on the node and found no device.
    pub(crate) fn short(&self) -> BTreeSet<String> {
        self.truth.lock().unwrap().short.clone()
    }
}

async fn tell(listener: UnixListener, truth: Arc<Mutex<Truth>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let truth = Arc::clone(&truth);
        tokio::spawn(async move {
            let service = service_fn(move |request: ::http::Request<Incoming>| {
                let list = list(&truth.lock().unwrap());
                async move { Ok::<_, Infallible>(answer(list, request).await) }
            });
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            // Whoever asks ends the connection.
            let _ended = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(
    list: message::List,
    request: ::http::Request<Incoming>,
) -> ::http::Response<tonic::body::Body> {
    assert_eq!(request.uri().path(), "/v1.PodResourcesLister/List");
    let service = tower::service_fn(move |_: tonic::Request<message::Question>| {
        std::future::ready(Ok::<_, tonic::Status>(tonic::Response::new(list.clone())))
    });
    tonic::server::Grpc::new(ProstCodec::default()).unary(service, request).await
}

fn list(truth: &Truth) -> message::List {
    let pods = truth.given.values().map(|one| {
        let devices = message::Devices { resource: one.resource.clone(), ids: one.ids.clone() };
        let container = message::ContainerDevices { name: "main".to_owned(), devices: vec![devices] };
        message::PodDevices {
            name: one.name.clone(),
            namespace: one.namespace.clone(),
            containers: vec![container],
        }
    });
    message::List { pods: pods.collect() }
}

async fn tend(client: Client, node: String, stub: StubMachine, truth: Arc<Mutex<Truth>>) {
    let here = ListParams::default().fields(&format!("spec.nodeName={node}"));
    loop {
        // What fails, as while the API server is busy, is done in the next round.
        if let Ok(pods) = Api::<Pod>::all(client.clone()).list(&here).await {
            give(&mut truth.lock().unwrap(), &stub, &pods.items);
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Gives devices to pods that have come, and takes back those of pods that have left.
fn give(truth: &mut Truth, stub: &StubMachine, pods: &[Pod]) {
    let uid = |pod: &Pod| pod.metadata.uid.clone().unwrap_or_default();
    let uids: BTreeSet<String> = pods.iter().map(uid).collect();
    truth.given.retain(|uid, _| uids.contains(uid));
    for pod in pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        let Some((resource, count)) = asks(pod).filter(|_| !truth.given.contains_key(&uid(pod))) else {
            continue;
        };
        let name = pod.metadata.name.clone().unwrap_or_default();
        let mut free = devices(stub, &resource);
        free.retain(|id| !truth.given.values().any(|one| one.ids.contains(id)));
        if free.len() < count {
            truth.short.insert(name);
            continue;
        }
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        // The last ones: no order that anybody else has.
        let ids = free.split_off(free.len() - count);
        truth.given.insert(uid(pod), Given { namespace, name, resource, ids });
    }
}

/// The devices that a pod asks for.
fn asks(pod: &Pod) -> Option<(String, usize)> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut limits = containers.filter_map(|one| one.resources.as_ref()?.limits.as_ref()).flatten();
    let (resource, count) = limits.find(|(name, _)| *name == WHOLE || name.starts_with(PART))?;
    Some((resource.clone(), count.0.parse().ok()?))
}

/// The devices of a resource that the driver lists now, in the order of their names.
fn devices(stub: &StubMachine, resource: &str) -> Vec<String> {
    let listing = std::fs::read_dir(stub.root().join("gpus")).into_iter().flatten();
    let names = listing.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let of = |name: &str, file: &str| stub.get(&format!("gpus/{name}/{file}")).unwrap_or_default();
    let is = |name: &str| match resource.strip_prefix(PART) {
        Some(profile) => {
            !of(name, "parent").is_empty() && of(name, "name").ends_with(&format!(" MIG {profile}"))
        }
        None => of(name, "mig") == "0",
    };
    let mut ids: Vec<String> = names.filter(|name| is(name)).map(|name| of(&name, "uuid")).collect();
    ids.sort();
    ids
}
