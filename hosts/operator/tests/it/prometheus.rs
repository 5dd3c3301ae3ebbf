//! A Prometheus server for a test: it answers each query with the series of the metric that the query names, or
//! misbehaves as the test says.

use host_kit::clock::{HostClock, SystemClock};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// How the server behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    /// It answers.
    Well,
    /// It closes every connection.
    Away,
    /// It answers something else.
    Garbage,
    /// It answers half a minute later.
    Slow,
    /// It answers with a part of the series, and says so.
    Partial,
    /// It answers with series without an end.
    Endless,
}

struct State {
    mood: Mood,
    series: BTreeMap<String, Vec<(Value, String)>>,
    /// How many seconds ago the samples of metrics were taken; the others are of now.
    ages: BTreeMap<String, i64>,
    queries: usize,
}

/// The server. Its task ends with the test.
#[derive(Clone)]
pub(crate) struct FakePrometheus {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl FakePrometheus {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = State { mood: Mood::Well, series: BTreeMap::new(), ages: BTreeMap::new(), queries: 0 };
        let server = Self { address, state: Arc::new(Mutex::new(state)) };
        let serving = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let one = serving.clone();
                tokio::spawn(async move { one.serve(stream).await });
            }
        });
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn is(&self, mood: Mood) {
        self.state.lock().unwrap().mood = mood;
    }

    /// The series with which it answers queries for a metric.
    pub(crate) fn says(&self, metric: &str, series: &[(Value, &str)]) {
        let series = series.iter().map(|(labels, value)| (labels.clone(), (*value).to_owned())).collect();
        self.state.lock().unwrap().series.insert(metric.to_owned(), series);
    }

    /// The samples of a metric were taken so many seconds ago.
    pub(crate) fn sampled(&self, metric: &str, seconds_ago: i64) {
        self.state.lock().unwrap().ages.insert(metric.to_owned(), seconds_ago);
    }

    /// How many queries have come.
    pub(crate) fn queries(&self) -> usize {
        self.state.lock().unwrap().queries
    }

    async fn serve(&self, mut stream: TcpStream) {
        let mut read = Vec::new();
        let mut chunk = [0; 4096];
        loop {
            while !read.windows(4).any(|end| end == b"\r\n\r\n") {
                match stream.read(&mut chunk).await {
                    Ok(0) | Err(_) => return,
                    Ok(count) => read.extend_from_slice(&chunk[..count]),
                }
            }
            let request = String::from_utf8_lossy(&std::mem::take(&mut read)).into_owned();
            let (mood, body) = self.answer(&request);
            match mood {
                Mood::Away => return,
                Mood::Slow => tokio::time::sleep(Duration::from_secs(30)).await,
                Mood::Endless => return endless(stream).await,
                Mood::Well | Mood::Garbage | Mood::Partial => {}
            }
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            if stream.write_all(format!("{head}{body}").as_bytes()).await.is_err() {
                return;
            }
        }
    }

    fn answer(&self, request: &str) -> (Mood, String) {
        let mut state = self.state.lock().unwrap();
        state.queries += 1;
        let line = request.lines().next().unwrap_or_default();
        let now = SystemClock::new().wall().as_second();
        let known = state.series.iter().filter(|(metric, _)| line.contains(metric.as_str()));
        let asks_time = line.contains("query=timestamp%28");
        let result: Vec<Value> = known
            .flat_map(|(metric, series)| series.iter().map(move |one| (metric, one)))
            .map(|(metric, (labels, value))| {
                let taken = now - state.ages.get(metric).copied().unwrap_or_default();
                let value = if asks_time { taken.to_string() } else { value.clone() };
                json!({"metric": labels, "value": [now, value]})
            })
            .collect();
        let mut body = json!({"status": "success", "data": {"resultType": "vector", "result": result}});
        if state.mood == Mood::Partial {
            body["warnings"] = json!(["a store did not answer"]);
        }
        let body = if state.mood == Mood::Garbage { "<html>no</html>".to_owned() } else { body.to_string() };
        (state.mood, body)
    }
}

/// Answers with one series after another, as long as anybody reads.
async fn endless(mut stream: TcpStream) {
    let head = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n\
                {\"status\":\"success\",\"data\":{\"resultType\":\"vector\",\"result\":[";
    let series = r#"{"metric":{"namespace":"default","pod":"web-1"},"value":[1,"1"]},"#.repeat(1_000);
    let mut sent = stream.write_all(head.as_bytes()).await;
    while sent.is_ok() {
        sent = stream.write_all(series.as_bytes()).await;
    }
}
