//! A proxy between the agents and the simulator. It records the limit in a machine's answer before the agent receives
//! the answer. So a raise that follows from a receipt is always recorded after the decrease that made room for it.

use super::truth::{Each, Truth};
use crate::SystemError;
use crate::http::Http;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::net::TcpListener;

/// See the module documentation.
pub(super) struct Gate {
    truth: Arc<Truth>,
    simulator: Http,
    /// Only one control of a machine at a time: answers that overtake each other would be recorded in the wrong
    /// order.
    turns: BTreeMap<String, tokio::sync::Mutex<()>>,
}

impl Gate {
    pub(super) fn new(truth: Arc<Truth>, simulator: Http) -> Self {
        let turns = truth.names().into_iter().map(|name| (name, tokio::sync::Mutex::default())).collect();
        Self { truth, simulator, turns }
    }

    /// Serves until the process ends.
    pub(super) async fn serve(self: Arc<Self>, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            // Without this option a connection is only slower.
            let _ = stream.set_nodelay(true);
            let gate = Arc::clone(&self);
            tokio::spawn(async move {
                let service = service_fn(move |request| Arc::clone(&gate).respond(request));
                // If the agent was killed during a request, its answer is not needed.
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    }

    async fn respond(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let path = request.uri().path().to_owned();
        let passed = match request.into_body().collect().await {
            Ok(body) => {
                // A separate task, which continues if the agent is killed, because the machine may execute the
                // request nevertheless.
                let passing = tokio::spawn(async move { self.pass(&path, body.to_bytes().to_vec()).await });
                passing.await.unwrap_or_else(|error| Err(error.into()))
            }
            Err(error) => Err(error.into()),
        };
        let (status, text) = match passed {
            Ok(answer) => (StatusCode::OK, answer.to_string()),
            Err(why) => (StatusCode::BAD_GATEWAY, why.to_string()),
        };
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = status;
        Ok(response)
    }

    async fn pass(&self, path: &str, body: Vec<u8>) -> Result<Value, SystemError> {
        let node = path.strip_prefix("/control/").ok_or("only controls pass here")?;
        let turn = self.turns.get(node).ok_or("nobody knows this machine")?;
        let _turn = turn.lock().await;
        let boot = self.truth.boot();
        let answer = self.simulator.post(path, body).await?;
        if let Some(each) = in_force(&answer["state"]) {
            self.truth.set(node, boot, each);
        }
        Ok(answer)
    }
}

/// The limits in force in a machine's answer.
fn in_force(state: &Value) -> Option<Each> {
    let gpu = state["gpuCapWattsPerGpuApplied"].as_f64()?;
    Some(Each { package: state["capWatts"].as_f64()?, gpu })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_answer_says_what_is_in_force() {
        let state = json!({"capWatts": 250.0, "gpuCapWattsPerGpuApplied": 0.0, "throttlePct": 0});
        assert_eq!(in_force(&state), Some(Each { package: 250.0, gpu: 0.0 }));
        assert_eq!(in_force(&Value::Null), None);
    }
}
