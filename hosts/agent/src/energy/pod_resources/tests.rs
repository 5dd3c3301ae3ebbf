//! The client against a kubelet in this process that speaks the real protocol, and misbehaves.

use super::*;
use hyper::body::Incoming;
use hyper::service::service_fn;
use rig::test_machine::Folder;
use std::convert::Infallible;
use std::path::Path;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tonic::Response;
use tonic_prost::ProstCodec;

/// The messages with all fields that a kubelet sends.
mod sent {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct List {
        #[prost(message, repeated, tag = "1")]
        pub(super) pods: Vec<Pod>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Pod {
        #[prost(string, tag = "1")]
        pub(super) name: String,
        #[prost(string, tag = "2")]
        pub(super) namespace: String,
        #[prost(message, repeated, tag = "3")]
        pub(super) containers: Vec<Container>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Container {
        #[prost(string, tag = "1")]
        pub(super) name: String,
        #[prost(message, repeated, tag = "2")]
        pub(super) devices: Vec<Devices>,
        #[prost(int64, repeated, tag = "3")]
        pub(super) cpu_ids: Vec<i64>,
        #[prost(message, repeated, tag = "4")]
        pub(super) memory: Vec<Memory>,
        #[prost(message, repeated, tag = "5")]
        pub(super) claims: Vec<Claim>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Devices {
        #[prost(string, tag = "1")]
        pub(super) resource: String,
        #[prost(string, repeated, tag = "2")]
        pub(super) ids: Vec<String>,
        #[prost(message, optional, tag = "3")]
        pub(super) topology: Option<Topology>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Memory {
        #[prost(string, tag = "1")]
        pub(super) kind: String,
        #[prost(uint64, tag = "2")]
        pub(super) size: u64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Topology {
        #[prost(message, repeated, tag = "1")]
        pub(super) nodes: Vec<NumaNode>,
    }

    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub(super) struct NumaNode {
        #[prost(int64, tag = "1")]
        pub(super) id: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Claim {
        #[prost(string, tag = "2")]
        pub(super) name: String,
        #[prost(string, tag = "3")]
        pub(super) namespace: String,
        #[prost(message, repeated, tag = "4")]
        pub(super) resources: Vec<ClaimResource>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ClaimResource {
        #[prost(string, tag = "2")]
        pub(super) driver: String,
        #[prost(string, tag = "3")]
        pub(super) pool: String,
        #[prost(string, tag = "4")]
        pub(super) device: String,
    }

    /// What is no list of pods: its first field is a number.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub(super) struct Garbage {
        #[prost(uint64, tag = "1")]
        pub(super) number: u64,
    }
}

/// What the kubelet does with a connection.
#[derive(Clone)]
enum Does {
    Answer(sent::List),
    Refuse(Code),
    AnswerGarbage,
    SayNothing,
    Write(&'static [u8]),
    HangUp,
}

/// A kubelet that ends with the test.
struct StandIn(JoinHandle<()>);

impl Drop for StandIn {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl StandIn {
    fn at(socket: &Path, does: Does) -> Self {
        if socket.exists() {
            std::fs::remove_file(socket).unwrap();
        }
        let listener = UnixListener::bind(socket).unwrap();
        Self(tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, does.clone()));
            }
        }))
    }
}

async fn serve(mut stream: UnixStream, does: Does) {
    match does {
        Does::SayNothing => {
            let mut bytes = [0; 4_096];
            while stream.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
        }
        Does::Write(bytes) => {
            let _sent = stream.write_all(bytes).await;
            let _ended = stream.shutdown().await;
        }
        Does::HangUp => drop(stream),
        Does::Answer(_) | Does::Refuse(_) | Does::AnswerGarbage => {
            let service = service_fn(move |request: http::Request<Incoming>| {
                let does = does.clone();
                async move { Ok::<_, Infallible>(answer(does, request).await) }
            });
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ended = builder.serve_connection(TokioIo::new(stream), service).await;
        }
    }
}

async fn answer(does: Does, request: http::Request<Incoming>) -> http::Response<tonic::body::Body> {
    assert_eq!((request.method(), request.uri().path()), (&http::Method::POST, LIST));
    let answer = match does {
        Does::Answer(list) => Ok(Response::new(list)),
        Does::Refuse(code) => Err(Status::new(code, "not today")),
        Does::AnswerGarbage | Does::SayNothing | Does::Write(_) | Does::HangUp => {
            let service = tower::service_fn(|_: Request<proto::ListPodResourcesRequest>| async {
                Ok::<_, Status>(Response::new(sent::Garbage { number: 7 }))
            });
            return tonic::server::Grpc::new(ProstCodec::default()).unary(service, request).await;
        }
    };
    let service = tower::service_fn(move |_: Request<proto::ListPodResourcesRequest>| {
        std::future::ready(
            answer.as_ref().map(|list| Response::new(list.get_ref().clone())).map_err(Clone::clone),
        )
    });
    tonic::server::Grpc::new(ProstCodec::default()).unary(service, request).await
}

const UUID: &str = "GPU-8f1e2b30-0000-4000-8000-000000000001";

fn devices(resource: &str, ids: &[&str]) -> sent::Devices {
    let topology = Some(sent::Topology { nodes: vec![sent::NumaNode { id: 1 }] });
    let ids = ids.iter().map(|id| (*id).to_owned()).collect();
    sent::Devices { resource: resource.to_owned(), ids, topology }
}

fn pod(name: &str, devices: Vec<sent::Devices>, claims: Vec<sent::Claim>) -> sent::Pod {
    let container = sent::Container {
        name: "main".to_owned(),
        devices,
        cpu_ids: vec![0, 1, -1],
        memory: vec![sent::Memory { kind: "memory".to_owned(), size: 1 << 30 }],
        claims,
    };
    sent::Pod { name: name.to_owned(), namespace: "ml".to_owned(), containers: vec![container] }
}

fn name(name: &str) -> PodName {
    PodName { namespace: "ml".to_owned(), name: name.to_owned() }
}

async fn asked(does: Does) -> Result<Held, NoAnswer> {
    let folder = Folder::new();
    let socket = folder.0.join("kubelet.sock");
    let _kubelet = StandIn::at(&socket, does);
    Kubelet::at(socket, Duration::from_secs(30)).ask().await
}

#[tokio::test]
async fn the_kubelet_says_who_holds_which_gpu() {
    let claim = sent::Claim {
        name: "c".to_owned(),
        namespace: "ml".to_owned(),
        resources: vec![sent::ClaimResource {
            driver: "gpu.nvidia.com".to_owned(),
            pool: "node".to_owned(),
            device: "gpu-0".to_owned(),
        }],
    };
    let pods = vec![
        pod(
            "train",
            vec![devices("nvidia.com/gpu", &[UUID]), devices("example.com/nic", &["0000:3b:00.0"])],
            vec![],
        ),
        // Two shares of one card, by one pod and by another.
        pod(
            "a",
            vec![devices("nvidia.com/gpu.shared", &["GPU-8f1e2b30-0000-4000-8000-000000000002::0"])],
            vec![],
        ),
        pod("b", vec![devices("nvidia.com/gpu", &["GPU-8f1e2b30-0000-4000-8000-000000000002::3"])], vec![]),
        pod("amd", vec![devices("amd.com/gpu", &["0000:0c:00.0"])], vec![]),
        pod("none", vec![], vec![]),
    ];
    let held = asked(Does::Answer(sent::List { pods: pods.clone() })).await.unwrap();
    let key = |id| Key::gpu(id).unwrap();
    let expected = [
        (key(UUID), BTreeSet::from([name("train")])),
        (key("GPU-8f1e2b30-0000-4000-8000-000000000002"), BTreeSet::from([name("a"), name("b")])),
        (key("0000:0c:00.0"), BTreeSet::from([name("amd")])),
    ];
    assert_eq!(held, Held { of: BTreeMap::from(expected.clone()), ..Held::default() });
    // A slice, a card by its number and a claim are held, but of which GPU is not said.
    let mut more = pods;
    let slice = devices("nvidia.com/mig-1g.10gb", &["MIG-11111111-0000-4000-8000-000000000001"]);
    more.push(pod("slices", vec![slice, devices("gpu.intel.com/i915", &["card0-0"])], vec![claim]));
    let held = asked(Does::Answer(sent::List { pods: more })).await.unwrap();
    let [driver, pool, device] = ["gpu.nvidia.com", "node", "gpu-0"].map(str::to_owned);
    let device = DeviceName { driver, pool, device };
    let claims = vec![(device.clone(), name("slices"))];
    let instances = BTreeMap::from([(
        "MIG-11111111-0000-4000-8000-000000000001".to_owned(),
        BTreeSet::from([name("slices")]),
    )]);
    assert_eq!(held, Held { of: BTreeMap::from(expected.clone()), elsewhere: 3, claims, instances });
    // Whose card an instance is may be known.
    assert_eq!(held.clone().with_instances(|id| id == "MIG-2").elsewhere, 3);
    assert_eq!(held.clone().with_instances(|_| true).elsewhere, 2);
    // Which GPU a claim's device is may be known.
    assert_eq!(held.clone().with_claims(|_| None).elsewhere, 3);
    let known =
        held.with_claims(|one| (*one == device).then(|| key("GPU-8f1e2b30-0000-4000-8000-000000000009")));
    assert_eq!((known.elsewhere, known.of.len()), (2, expected.len() + 1));
    let of = &known.of[&key("GPU-8f1e2b30-0000-4000-8000-000000000009")];
    assert_eq!(*of, BTreeSet::from([name("slices")]));
    assert_eq!(asked(Does::Answer(sent::List::default())).await, Ok(Held::default()));
}

#[tokio::test]
async fn a_kubelet_that_misbehaves_gives_no_answer_and_says_which_way() {
    let huge = sent::List { pods: vec![pod(&"x".repeat(BYTES_MOST), vec![], vec![])] };
    let ids = vec![UUID; DEVICES_MOST + 1];
    let many = sent::List { pods: vec![pod("p", vec![devices("nvidia.com/gpu", &ids)], vec![])] };
    for (does, look) in [
        (Does::Refuse(Code::Unimplemented), Look::Refused),
        (Does::Refuse(Code::ResourceExhausted), Look::Refused),
        (Does::AnswerGarbage, Look::Malformed),
        (Does::Answer(huge), Look::Malformed),
        (Does::Answer(many), Look::Malformed),
        (Does::Write(b"HTTP/1.1 400 Bad Request\r\n\r\n"), Look::Malformed),
        (Does::Write(&[0xff; 4_096]), Look::Malformed),
        (Does::HangUp, Look::Malformed),
    ] {
        let none = asked(does).await.unwrap_err();
        assert_eq!(none.look, look, "{none}");
        assert!(none.to_string().len() < 300, "{none}");
    }
    let folder = Folder::new();
    let socket = folder.0.join("kubelet.sock");
    let kubelet = |timeout| Kubelet::at(socket.clone(), timeout);
    let none = kubelet(Duration::from_secs(30)).ask().await.unwrap_err();
    assert_eq!(none.look, Look::Unreachable, "{none}");
    let silent = StandIn::at(&socket, Does::SayNothing);
    let none = kubelet(Duration::from_millis(50)).ask().await.unwrap_err();
    assert_eq!(none.look, Look::Late, "{none}");
    // It is started again, and its socket is a new file.
    drop(silent);
    let _kubelet = StandIn::at(&socket, Does::Answer(sent::List::default()));
    assert_eq!(kubelet(Duration::from_secs(30)).ask().await, Ok(Held::default()));
}

#[test]
fn an_answer_has_an_age_and_is_not_used_when_it_is_too_old() {
    let at = |seconds| Mono::at(Duration::from_secs(seconds));
    let mut last = LastAnswer::default();
    assert_eq!((last.age(at(5)), last.held(at(5))), (None, None));
    last.set(at(10), Held::default());
    assert_eq!(last.age(at(70)), Some(Duration::from_secs(60)));
    assert!(last.held(at(70)).is_some() && last.held(at(71)).is_none());
}
