//! The embedded API from outside. The cases in which a real API server must answer alike are in `conformance`; these
//! are about this server only.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "all of it is tests: what is not expected fails them"
)]

mod faults;
mod history;
mod hostile;
mod in_process;
mod kubectl;
mod served;

use embedded_api::{ApiOptions, EmbeddedApi};
use futures::Future;
use std::time::Duration;

/// A server that knows the kind that the cases use.
fn server() -> EmbeddedApi {
    EmbeddedApi::new(&ApiOptions::with(vec![conformance::definition()])).unwrap()
}

/// Long enough for a busy machine. A wait that does not end fails with a message.
async fn soon<T>(what: &str, wait: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), wait)
        .await
        .unwrap_or_else(|_| panic!("{what}: still waiting"))
}

/// Waits until a condition holds.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    soon(what, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}
