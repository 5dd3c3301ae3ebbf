//! An extender that returns what it received: every node passes, and every node has the same score. Its cost is that
//! of the protocol, so no other extender can be faster with answers of that length.
//!
//! It searches for positions in the body and does not parse it. It relies on the format of kube-scheduler: its keys
//! in its order (`Pod`, `Nodes`, `NodeNames`), and metadata first in each node.

use bytes::{BufMut, Bytes, BytesMut};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use memchr::memmem::{find, rfind};
use std::convert::Infallible;
use tokio::net::TcpListener;

/// The scores that it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scores {
    /// The same for every node.
    Constant,
    /// None, which counts as 0 for every node.
    Empty,
    /// The same for every node, of which only the first [`FEW`] pass: what a shortlist costs if it costs nothing.
    Few,
}

/// As many as the extender's shortlist has.
const FEW: usize = 64;

/// Serves until the process ends.
///
/// # Errors
/// If the listener fails.
pub async fn serve(listener: TcpListener, scores: Scores) -> std::io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            let service = service_fn(move |request| respond(request, scores));
            // If the client closes the connection during a request, its answer is not needed.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn respond(request: Request<Incoming>, scores: Scores) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let is_post = request.method() == Method::POST;
    let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes);
    let answer = match (path.as_str(), body) {
        ("/filter", Ok(body)) if is_post => filter(&body, scores),
        ("/prioritize", Ok(body)) if is_post => Some(prioritize(&body, scores)),
        _ => None,
    };
    let (status, answer) = match answer {
        Some(answer) => (StatusCode::OK, answer),
        None => (StatusCode::BAD_REQUEST, Bytes::from_static(b"not a question of kube-scheduler")),
    };
    let mut response = Response::new(Full::new(answer));
    *response.status_mut() = status;
    Ok(response)
}

/// The nodes in the form in which they were received.
fn filter(body: &[u8], scores: Scores) -> Option<Bytes> {
    let mut answer = BytesMut::with_capacity(body.len());
    match names(body) {
        Some(names) => {
            let names = names.get(..names.len() - 1)?;
            answer.put_slice(b"{\"NodeNames\":");
            answer.put_slice(if scores == Scores::Few { few(names) } else { names });
            answer.put_slice(b"]");
        }
        None => {
            answer.put_slice(b"{\"Nodes\":");
            answer.put_slice(nodes(body)?);
        }
    }
    answer.put_slice(b"}");
    Some(answer.freeze())
}

/// The beginning of a list of names that ends before the comma after the last of them.
fn few(names: &[u8]) -> &[u8] {
    let end = memchr::memchr_iter(b',', names).nth(FEW - 1).unwrap_or(names.len());
    names.get(..end).unwrap_or(names)
}

fn prioritize(body: &[u8], scores: Scores) -> Bytes {
    if scores == Scores::Empty {
        return Bytes::from_static(b"[]");
    }
    let mut answer = BytesMut::with_capacity(body.len());
    let mut before: &[u8] = b"[{\"Host\":\"";
    let mut one = |name: &[u8]| {
        answer.put_slice(before);
        answer.put_slice(name);
        answer.put_slice(b"\",\"Score\":50}");
        before = b",{\"Host\":\"";
    };
    match names(body) {
        // Names contain neither commas nor quotes.
        Some(names) => {
            let inside = names.get(1..names.len().saturating_sub(1)).unwrap_or_default();
            let quoted = inside.split(|&byte| byte == b',').filter(|name| name.len() > 2);
            quoted.for_each(|name| one(name.get(1..name.len() - 1).unwrap_or_default()));
        }
        None => {
            let mut rest = nodes(body).unwrap_or_default();
            while let Some(at) = find(rest, NODE_BEGINS) {
                rest = rest.get(at + NODE_BEGINS.len()..).unwrap_or_default();
                let end = rest.iter().position(|&byte| byte == b'"').unwrap_or_default();
                one(rest.get(..end).unwrap_or_default());
            }
        }
    }
    if answer.is_empty() {
        return Bytes::from_static(b"[]");
    }
    answer.put_slice(b"]");
    answer.freeze()
}

const NODE_BEGINS: &[u8] = b"{\"metadata\":{\"name\":\"";
const NAMES_BEGIN: &[u8] = b"\"NodeNames\":[";
const NODES_BEGIN: &[u8] = b"\"Nodes\":{";
const NODES_END: &[u8] = b",\"NodeNames\":null}";

/// The list of names with its brackets. It is the last part of a body.
fn names(body: &[u8]) -> Option<&[u8]> {
    let end = memchr::memrchr(b']', body)?;
    // A body with full nodes also contains a list, but it does not end in the last bytes of the body.
    if body.len().saturating_sub(end) > 4 {
        return None;
    }
    let from = rfind(body, NAMES_BEGIN)? + NAMES_BEGIN.len() - 1;
    body.get(from..=end)
}

/// The list of full nodes.
fn nodes(body: &[u8]) -> Option<&[u8]> {
    let from = find(body, NODES_BEGIN)? + NODES_BEGIN.len() - 1;
    let end = rfind(body, NODES_END)?;
    body.get(from..end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const POD: &str = r#"{"metadata":{"name":"pod"},"spec":{"containers":[]}}"#;

    fn asked(nodes: &str, names: &str) -> Vec<u8> {
        format!("{{\"Pod\":{POD},\"Nodes\":{nodes},\"NodeNames\":{names}}}\n").into_bytes()
    }

    fn json(bytes: &Bytes) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn names_are_repeated_and_score_alike() {
        for names in [json!(["a"]), json!(["a", "node-1.example", "b"]), json!([])] {
            let body = asked("null", &names.to_string());
            assert_eq!(json(&filter(&body, Scores::Constant).unwrap()), json!({"NodeNames": names}));
            let scores: Vec<_> =
                names.as_array().unwrap().iter().map(|name| json!({"Host": name, "Score": 50})).collect();
            assert_eq!(json(&prioritize(&body, Scores::Constant)), json!(scores));
            assert_eq!(json(&prioritize(&body, Scores::Empty)), json!([]));
        }
    }

    #[test]
    fn few_names_are_the_first_64() {
        let names: Vec<String> = (0..100).map(|at| format!("node-{at}")).collect();
        let body = asked("null", &json!(names).to_string());
        assert_eq!(json(&filter(&body, Scores::Few).unwrap()), json!({"NodeNames": names[..64]}));
        let body = asked("null", &json!(names[..64]).to_string());
        assert_eq!(json(&filter(&body, Scores::Few).unwrap()), json!({"NodeNames": names[..64]}));
    }

    #[test]
    fn full_nodes_are_repeated_byte_for_byte_and_score_alike() {
        let node = |name: &str| format!(r#"{{"metadata":{{"name":"{name}"}},"status":{{"images":[{{}}]}}}}"#);
        let list = format!(r#"{{"metadata":{{}},"items":[{},{}]}}"#, node("a"), node("b"));
        let body = asked(&list, "null");
        assert_eq!(filter(&body, Scores::Constant).unwrap(), format!("{{\"Nodes\":{list}}}"));
        let scores = json!([{"Host": "a", "Score": 50}, {"Host": "b", "Score": 50}]);
        assert_eq!(json(&prioritize(&body, Scores::Constant)), scores);
    }

    #[test]
    fn what_is_no_question_gets_no_answer() {
        for body in [&b""[..], b"{}", b"[]", b"{\"Nodes\":null,\"NodeNames\":null}"] {
            assert_eq!(filter(body, Scores::Constant), None);
        }
    }
}
