//! The way back from a shortlist, with the real kube-scheduler: somebody behind the extender refuses every node of the shortlist.
//! The pod is told of these nodes alone, nobody is preempted, and when kube-scheduler tries it again it has every candidate.

use crate::gpus::stand_in::message;
use crate::{ONE_BESIDE, shipped};
use cluster::{ControlPlaneOptions, Extender, NodeForm, Program, Scheduler, start_or_skip};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use system::field::{self, Field};
use system::rights::{self, ProgramAccount};
use system::{http, ports, until};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

const NODES: u32 = 8;
const SIZE: usize = 2;
const PATIENCE: Duration = Duration::from_secs(90);
const WHY: &str = "somebody else refuses it";

/// What was seen between kube-scheduler and the extender.
#[derive(Default)]
struct Seen {
    /// How many nodes each answer to filter kept.
    kept: Vec<usize>,
    /// The nodes of the first answer, which are refused from then on.
    refused: BTreeSet<String>,
}

/// Passes on what is asked, and refuses the nodes of the first shortlist as an extender behind ours would.
async fn pass_on(mut from: TcpStream, to: SocketAddr, seen: &Mutex<Seen>) -> std::io::Result<()> {
    let mut to = TcpStream::connect(to).await?;
    while let Some(question) = message(&mut from).await? {
        to.write_all(&question).await?;
        let Some(answer) = message(&mut to).await? else { return Ok(()) };
        let is_filter = question.starts_with(b"POST /filter ");
        from.write_all(&if is_filter { refused(&answer, seen) } else { answer }).await?;
    }
    Ok(())
}

fn refused(answer: &[u8], seen: &Mutex<Seen>) -> Vec<u8> {
    let body = answer.windows(4).position(|four| four == b"\r\n\r\n").map_or(0, |end| end + 4);
    let mut said: Value = serde_json::from_slice(&answer[body..]).unwrap();
    let names: Vec<String> = serde_json::from_value(said["nodenames"].clone()).unwrap();
    let mut seen = seen.lock().unwrap();
    if seen.kept.is_empty() {
        seen.refused = names.iter().cloned().collect();
    }
    seen.kept.push(names.len());
    let (bad, good): (Vec<String>, Vec<String>) =
        names.into_iter().partition(|name| seen.refused.contains(name));
    said["nodenames"] = json!(good);
    for name in bad {
        said["failedNodes"][name] = json!(WHY);
    }
    let body = said.to_string();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.into_bytes(), body.into_bytes()].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_shortlist_is_refused_has_every_candidate_when_it_is_tried_again() {
    let _alone = ONE_BESIDE.lock().await;
    let options = ControlPlaneOptions { controller_manager: false, ..ControlPlaneOptions::whole() };
    let Some(control_plane) = start_or_skip(&options) else { return };
    let client = control_plane.client().await.unwrap();
    rights::install(&client).await.unwrap();
    field::nodes(&client, NODES).await.unwrap();
    let address = ports::free().unwrap();
    let kubeconfig = ProgramAccount::Extender.kubeconfig(&control_plane).await.unwrap();
    let program = Program::new("extender", &shipped().extender)
        .variable("KUBECONFIG", kubeconfig.to_string_lossy())
        .variable("EXTENDER_ADDR", address.to_string())
        .variable("METRICS_ADDR", "127.0.0.1:0")
        .variable("SHORTLIST", "all")
        .variable("SHORTLIST_SIZE", SIZE.to_string());
    control_plane.start_program(&program).unwrap();
    let extender = http::at(address).unwrap();
    let synced = async || extender.get("/debug/scoring").await.is_ok_and(|page| page["synced"] == true);
    until("the extender has read everything", PATIENCE, synced).await.unwrap();

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let relay = listener.local_addr().unwrap();
    let seen: Arc<Mutex<Seen>> = Arc::default();
    let between = Arc::clone(&seen);
    let passing = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let seen = Arc::clone(&between);
            // Whoever asks sees a connection that was closed.
            tokio::spawn(async move { drop(pass_on(stream, address, &seen).await) });
        }
    });
    let scheduler = Scheduler::with(Extender::new(&format!("http://{relay}"), NodeForm::Names).unwrap());
    tokio::task::block_in_place(|| control_plane.start_scheduler(&scheduler)).unwrap();

    let pods = Field::new(&client, "shortlist").await.unwrap().pods();
    let pod: Pod = serde_json::from_value(field::pod("unlucky")).unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let events: Api<Event> = Api::namespaced(client.clone(), "shortlist");
    // The pod itself says it only until it is tried again.
    let why_not = async || {
        let all = events.list(&ListParams::default()).await.unwrap().items;
        let failed = all.into_iter().filter(|event| event.reason.as_deref() == Some("FailedScheduling"));
        failed.filter_map(|event| event.note).collect::<String>()
    };
    // kube-scheduler names the nodes of the shortlist, and says nothing of the others.
    let told = format!("{SIZE} {WHY}");
    let outcome = until("the pod is told", PATIENCE, async || why_not().await.contains(&told)).await;
    assert!(outcome.is_ok(), "it was told: {}; kept: {:?}", why_not().await, seen.lock().unwrap().kept);
    assert_eq!(seen.lock().unwrap().kept.first(), Some(&SIZE));
    assert_eq!(
        pods.get("unlucky").await.unwrap().status.unwrap().nominated_node_name,
        None,
        "nobody is preempted"
    );

    // kube-scheduler tries a refused pod again with the next change of a node, or after five minutes.
    let nodes: Api<Node> = Api::all(client.clone());
    let mut nudges = 0;
    until("the pod has a node", PATIENCE, async || {
        nudges += 1;
        let label = json!({"metadata": {"labels": {"nudge": format!("{nudges}")}}});
        nodes.patch("node-0", &PatchParams::default(), &Patch::Merge(&label)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        pods.get("unlucky").await.unwrap().spec.unwrap().node_name.is_some()
    })
    .await
    .unwrap();
    let node = pods.get("unlucky").await.unwrap().spec.unwrap().node_name.unwrap();
    {
        let seen = seen.lock().unwrap();
        assert!(!seen.refused.contains(&node), "{node} was refused");
        assert_eq!(seen.kept.get(1).copied(), usize::try_from(NODES).ok(), "{:?}", seen.kept);
    }
    passing.abort();
}
