//! The embedded API from outside. What a real API server must answer alike is in `cases`; the rest is about this one.

mod cases;
mod smoke;

use embedded_api::{EmbeddedApi, Options};

/// A server that knows the kind of the cases.
fn server() -> EmbeddedApi {
    EmbeddedApi::new(&Options::with(vec![cases::definition()])).unwrap()
}
