//! Which pod holds which device, by the kubelet's PodResources: gRPC over a unix socket, version 1.
//!
//! Each look is a connection of its own with a limit on its time and on the size of the answer, so a kubelet that restarts, hangs or
//! answers garbage costs one look. The last answer has an age, and is not used when it is too old: then nobody knows who holds what.

mod proto;
#[cfg(test)]
mod tests;

use host_kit::clock::Mono;
use host_kit::closed_label;
use http::uri::PathAndQuery;
use hyper_util::rt::{TokioExecutor, TokioIo};
use joulie_api::dra::DeviceName;
use power_hal::Key;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::UnixStream;
use tonic::{Code, Request, Status};

/// How long the kubelet has for an answer.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);
/// An answer about 250 pods with eight devices each has some hundred KiB.
const BYTES_MOST: usize = 4 << 20;
/// More devices than any node has.
const DEVICES_MOST: usize = 4_096;
/// An answer that is older says nothing any more: pods have come and gone.
const AGE_MOST: Duration = Duration::from_secs(60);
const LIST: &str = "/v1.PodResourcesLister/List";
/// What the names of MIG instances begin with.
const INSTANCE: &str = "MIG-";
/// What marks a resource, or a driver of claims, as one of GPUs.
const GPU_WORDS: [&str; 3] = ["gpu", "nvidia.com/mig-", "gpu.intel.com"];

closed_label! {
    /// The outcome of asking the kubelet who holds devices.
    pub(super) enum Look {
        /// It answered.
        Answered = "answered",
        /// Its socket is not there, or nobody listens.
        Unreachable = "unreachable",
        /// It did not answer in time.
        Late = "late",
        /// It refused.
        Refused = "refused",
        /// The answer is no answer, or is too large.
        Malformed = "malformed",
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoAnswer {
    pub(super) look: Look,
    why: String,
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { look, why } = self;
        f.write_str(match look {
            Look::Answered => "an answer",
            Look::Unreachable => "its socket cannot be opened (is the folder of the socket mounted?)",
            Look::Late => "it does not answer in time",
            Look::Refused => "it refuses",
            Look::Malformed => "its answer cannot be used",
        })?;
        write!(f, ": {}", why.chars().take(200).collect::<String>())
    }
}

/// A pod by its name, as the kubelet tells it: there is no UID in an answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PodName {
    pub(super) namespace: String,
    pub(super) name: String,
}

/// Who holds which GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// The holders of each GPU by its key.
    pub(super) of: BTreeMap<Key, BTreeSet<PodName>>,
    /// How many GPUs, or parts of one, are held under names that are not known here (slices, claims, cards by number).
    pub(super) elsewhere: u64,
    /// The GPUs of them that are held by claims.
    pub(super) claims: Vec<(DeviceName, PodName)>,
    /// The holders of MIG instances by what the device plugin calls these.
    pub(super) instances: BTreeMap<String, BTreeSet<PodName>>,
}

impl Held {
    /// The holders of each GPU, by namespace and name.
    pub(crate) fn by_card(&self) -> impl Iterator<Item = (Key, impl Iterator<Item = (&str, &str)>)> {
        self.of.iter().map(|(key, holders)| {
            (*key, holders.iter().map(|name| (name.namespace.as_str(), name.name.as_str())))
        })
    }

    /// Whether somebody holds a GPU, or a part of one, that cannot be told from the others.
    pub(crate) const fn has_elsewhere(&self) -> bool {
        self.elsewhere > 0
    }

    /// The same with the GPUs that claims hold, as far as `card` knows which one a device is.
    pub(crate) fn with_claims(mut self, card: impl Fn(&DeviceName) -> Option<Key>) -> Self {
        for (device, name) in std::mem::take(&mut self.claims) {
            if let Some(key) = card(&device) {
                self.of.entry(key).or_default().insert(name);
                self.elsewhere = self.elsewhere.saturating_sub(1);
            }
        }
        self
    }

    /// The same where `is_known` tells the MIG instances of the node's cards.
    pub(crate) fn with_instances(mut self, is_known: impl Fn(&str) -> bool) -> Self {
        let known = self.instances.iter().filter(|(id, _)| is_known(id));
        let holders = known.map(|(_, names)| u64::try_from(names.len()).unwrap_or(u64::MAX));
        let holders = holders.fold(0, u64::saturating_add);
        self.elsewhere = self.elsewhere.saturating_sub(holders);
        self
    }

    /// The holders of each MIG instance, by namespace and name.
    pub(crate) fn by_instance(&self) -> impl Iterator<Item = (&str, impl Iterator<Item = (&str, &str)>)> {
        self.instances.iter().map(|(id, holders)| {
            (id.as_str(), holders.iter().map(|name| (name.namespace.as_str(), name.name.as_str())))
        })
    }

    /// An answer by hand.
    #[cfg(test)]
    pub(crate) fn of(cards: &[(&str, &[(&str, &str)])], elsewhere: u64) -> Self {
        let name = |(namespace, name): &(&str, &str)| PodName {
            namespace: (*namespace).to_owned(),
            name: (*name).to_owned(),
        };
        let of = cards.iter().map(|(id, names)| (key(id).unwrap(), names.iter().map(name).collect()));
        Self { of: of.collect(), elsewhere, ..Self::default() }
    }

    /// An answer by hand in which a pod has a MIG instance.
    #[cfg(test)]
    pub(crate) fn of_instance(id: &str, (namespace, name): (&str, &str)) -> Self {
        let name = PodName { namespace: namespace.to_owned(), name: name.to_owned() };
        let instances = BTreeMap::from([(id.to_owned(), BTreeSet::from([name]))]);
        Self { instances, elsewhere: 1, ..Self::default() }
    }
}

/// The kubelet of this node.
#[derive(Clone, Debug)]
pub(crate) struct Kubelet {
    socket: PathBuf,
    timeout: Duration,
}

impl Kubelet {
    pub(crate) const fn at(socket: PathBuf, timeout: Duration) -> Self {
        Self { socket, timeout }
    }

    /// Asks who holds which GPUs.
    pub(crate) async fn ask(&self) -> Result<Held, NoAnswer> {
        let late = |_| NoAnswer { look: Look::Late, why: format!("{:?} have passed", self.timeout) };
        tokio::time::timeout(self.timeout, self.list()).await.map_err(late)?.and_then(|answer| held(&answer))
    }

    async fn list(&self) -> Result<proto::ListPodResourcesResponse, NoAnswer> {
        let unreachable = |why: String| NoAnswer { look: Look::Unreachable, why };
        let malformed = |why: String| NoAnswer { look: Look::Malformed, why };
        let stream = UnixStream::connect(&self.socket).await;
        let stream = stream.map_err(|error| unreachable(format!("{}: {error}", self.socket.display())))?;
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .map_err(|error| malformed(error.to_string()))?;
        // Dropping the set ends the connection, whatever the kubelet does.
        let mut driver = tokio::task::JoinSet::new();
        driver.spawn(async move {
            // The call reports how it failed.
            let _ended = connection.await;
        });
        let service = tower::service_fn(move |request| {
            let mut sender = sender.clone();
            async move { sender.send_request(request).await }
        });
        let origin = http::Uri::from_static("http://localhost");
        let mut grpc =
            tonic::client::Grpc::with_origin(service, origin).max_decoding_message_size(BYTES_MOST);
        let ready = grpc.ready().await;
        ready.map_err(|error: hyper::Error| malformed(error.to_string()))?;
        let request = Request::new(proto::ListPodResourcesRequest {});
        let codec = tonic_prost::ProstCodec::default();
        let answer = grpc.unary(request, PathAndQuery::from_static(LIST), codec).await;
        answer.map(tonic::Response::into_inner).map_err(|status| refused(&status))
    }
}

/// A status of the kubelet's own is a refusal; what the library makes of bytes that are no answer is another thing.
fn refused(status: &Status) -> NoAnswer {
    let look = match status.code() {
        Code::Internal | Code::OutOfRange | Code::Unknown | Code::DataLoss => Look::Malformed,
        Code::Unavailable => Look::Unreachable,
        Code::DeadlineExceeded | Code::Cancelled => Look::Late,
        Code::Ok
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::Unimplemented
        | Code::Unauthenticated => Look::Refused,
    };
    NoAnswer { look, why: format!("{:?}: {}", status.code(), status.message()) }
}

/// For fuzz targets: how many GPUs of an answer of the kubelet are held by somebody, and how many more are held under names
/// that are not known. `None` where the bytes are no answer.
#[doc(hidden)]
#[must_use]
pub fn held_devices(answer: &[u8]) -> Option<(usize, u64)> {
    let answer = <proto::ListPodResourcesResponse as prost::Message>::decode(answer).ok()?;
    held(&answer).ok().map(|held| (held.of.values().map(BTreeSet::len).sum(), held.elsewhere))
}

fn held(answer: &proto::ListPodResourcesResponse) -> Result<Held, NoAnswer> {
    let mut held = Held::default();
    let mut devices = 0_usize;
    for pod in &answer.pod_resources {
        let name = || PodName { namespace: pod.namespace.clone(), name: pod.name.clone() };
        for container in &pod.containers {
            for device in &container.devices {
                devices = devices.saturating_add(device.device_ids.len());
                for id in device.device_ids.iter().filter(|_| is_gpu(&device.resource_name)) {
                    match key(id) {
                        Some(key) => drop(held.of.entry(key).or_default().insert(name())),
                        // The same pod twice is one holder.
                        None if id.starts_with(INSTANCE) => {
                            let is_new = held.instances.entry(id.clone()).or_default().insert(name());
                            held.elsewhere = held.elsewhere.saturating_add(u64::from(is_new));
                        }
                        None => held.elsewhere = held.elsewhere.saturating_add(1),
                    }
                }
            }
            for claim in container.dynamic_resources.iter().flat_map(|claim| &claim.claim_resources) {
                devices = devices.saturating_add(1);
                if is_gpu(&claim.driver_name) {
                    held.elsewhere = held.elsewhere.saturating_add(1);
                    let [driver, pool, device] =
                        [&claim.driver_name, &claim.pool_name, &claim.device_name].map(Clone::clone);
                    held.claims.push((DeviceName { driver, pool, device }, name()));
                }
            }
        }
        if devices > DEVICES_MOST {
            let why = format!("it names more than {DEVICES_MOST} devices");
            return Err(NoAnswer { look: Look::Malformed, why });
        }
    }
    Ok(held)
}

fn is_gpu(name: &str) -> bool {
    GPU_WORDS.iter().any(|word| name.contains(word))
}

/// The key of the GPU that a device plugin calls this: NVIDIA's by UUID, AMD's by address; what follows `::` is the number of a share.
fn key(id: &str) -> Option<Key> {
    let id = id.split_once("::").map_or(id, |(id, _)| id);
    Key::gpu(id).ok()
}

/// The last answer, and when it came.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastAnswer(Option<(Mono, Held)>);

impl LastAnswer {
    pub(crate) fn set(&mut self, at: Mono, held: Held) {
        self.0 = Some((at, held));
    }

    /// Its age.
    pub(super) fn age(&self, now: Mono) -> Option<Duration> {
        self.0.as_ref().map(|(at, _)| now.since(*at))
    }

    /// Who holds what, unless that is too old.
    pub(crate) fn held(&self, now: Mono) -> Option<&Held> {
        self.0.as_ref().filter(|(at, _)| now.since(*at) <= AGE_MOST).map(|(_, held)| held)
    }
}
