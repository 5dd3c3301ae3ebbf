//! The live page on the operator's port: whether it is served, to whom, and that what it watches needs no other rights than the operator's.

use super::rig::{Cluster, Operator};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

impl Operator {
    /// What is answered to this Host, up to this part of it or its end.
    async fn ui(&self, path: &str, host: &str, part: &str) -> String {
        let mut stream = TcpStream::connect(self.metrics).await.unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let reading = async {
            let mut some = [0; 4096];
            while !String::from_utf8_lossy(&answer).contains(part) {
                match stream.read(&mut some).await.unwrap() {
                    0 => break,
                    read => answer.extend_from_slice(&some[..read]),
                }
            }
        };
        let _late = tokio::time::timeout(Duration::from_secs(30), reading).await;
        String::from_utf8_lossy(&answer).into_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_is_served_where_it_is_asked_for_and_under_a_name_of_this_machine() {
    let cluster = Arc::new(Cluster::new().await);
    cluster.node("a").await;
    cluster.hardware("a", 200.0).await;
    let operator = cluster.operator(&[("UI", "read")]).await;
    let document = operator.ui("/ui/", "localhost:8081", "</html>").await;
    assert!(
        document.starts_with("HTTP/1.1 200 ")
            && document.contains("content-security-policy: default-src 'none'"),
        "{document}"
    );
    assert!(document.contains("name=\"joulie-token\" content=\"\""), "it takes no orders");
    let events = operator.ui("/ui/events", "127.0.0.1", "\"a\":{").await;
    assert!(events.contains("event: full") && events.contains("\"a\":{"), "{events}");
    for path in ["/ui/", "/ui/events", "/ui/explain?node=a"] {
        let refused = operator.ui(path, "evil.example", "HTTP/1.1 403").await;
        assert!(refused.starts_with("HTTP/1.1 403 "), "{path}: {refused}");
    }
    operator.stop().await;

    let without = cluster.operator(&[]).await;
    let answer = without.ui("/ui/", "localhost", "UI=read").await;
    assert!(answer.starts_with("HTTP/1.1 404 ") && answer.contains("set UI=read"), "{answer}");
    without.stop().await;
}
