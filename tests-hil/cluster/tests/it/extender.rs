//! A scheduler with a configured extender asks it, in the configured form.

use crate::support::{alone, pod, until};
use cluster::life::{FakeNode, Life};
use cluster::{Component, ControlPlaneOptions, Extender, NodeForm, Scheduler, start_or_skip};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// The paths and bodies of the requests.
type Questions = Arc<Mutex<Vec<(String, Value)>>>;

/// An extender that passes only the preferred node, in either form, and records the requests.
fn serve(preferred: &'static str) -> (String, Questions) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/ext/", listener.local_addr().unwrap());
    let asked = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let heard = Arc::clone(&heard);
            std::thread::spawn(move || answer(&stream, preferred, &heard));
        }
    });
    (url, asked)
}

fn answer(stream: &TcpStream, preferred: &str, heard: &Mutex<Vec<(String, Value)>>) {
    let mut lines = BufReader::new(stream);
    let mut head = String::new();
    while lines.read_line(&mut head).unwrap_or(0) > 2 {}
    let length = head
        .lines()
        .find_map(|line| line.to_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    lines.read_exact(&mut body).unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let path = head.split_whitespace().nth(1).unwrap_or_default().to_owned();
    let keep = |nodes: &Value| {
        let kept = nodes.as_array().unwrap().iter().filter(|node| node["metadata"]["name"] == preferred);
        json!({"items": kept.collect::<Vec<_>>()})
    };
    let said = match (path.as_str(), &body["NodeNames"], &body["Nodes"]["items"]) {
        ("/ext/filter", Value::Array(_), _) => json!({"NodeNames": [preferred]}),
        ("/ext/filter", _, nodes) => json!({"Nodes": keep(nodes)}),
        _ => json!([]),
    };
    let said = said.to_string();
    heard.lock().unwrap().push((path, body));
    let mut stream = stream;
    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\n";
    write!(stream, "{head}Content-Length: {}\r\n\r\n{said}", said.len()).unwrap();
}

#[tokio::test]
async fn an_extender_is_asked_in_both_forms_and_decides() {
    let _alone = alone().await;
    let options =
        ControlPlaneOptions { scheduler: Some(Scheduler::plain()), ..ControlPlaneOptions::api_only() };
    let Some(cluster) = start_or_skip(&options) else { return };
    let client = cluster.client().await.unwrap();
    let _life = Life::start(client.clone(), FakeNode::many("node", 3)).await.unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    let account = serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client, "default");

    for (name, form, preferred) in
        [("by-name", NodeForm::Names, "node-1"), ("whole", NodeForm::Full, "node-2")]
    {
        let (url, asked) = serve(preferred);
        let before = cluster.pid(Component::Scheduler);
        cluster.start_scheduler(&Scheduler::with(Extender::new(&url, form).unwrap())).unwrap();
        assert_ne!(cluster.pid(Component::Scheduler), before);
        pods.create(&PostParams::default(), &pod(name, json!({}))).await.unwrap();
        until("the pod runs", || async {
            pods.get(name).await.unwrap().status.unwrap().phase.as_deref() == Some("Running")
        })
        .await;
        assert_eq!(pods.get(name).await.unwrap().spec.unwrap().node_name.as_deref(), Some(preferred));
        let asked = asked.lock().unwrap();
        let (_, filter) = asked.iter().find(|(path, _)| path == "/ext/filter").unwrap();
        assert_eq!(filter["Pod"]["metadata"]["name"], name);
        assert_eq!(filter["NodeNames"].is_array(), form == NodeForm::Names, "{filter}");
        assert_eq!(filter["Nodes"]["items"].is_array(), form == NodeForm::Full, "{filter}");
    }
}

#[test]
fn an_extender_without_a_plain_address_is_refused() {
    for url in ["", "127.0.0.1:80", "https://127.0.0.1", "http://", "/filter", "ftp://host"] {
        let told = Extender::new(url, NodeForm::Names).unwrap_err().to_string();
        assert!(told.contains(&format!("{url:?}")) && told.contains("http://HOST:PORT"), "{told}");
    }
}
