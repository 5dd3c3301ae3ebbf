//! The simulator from outside: through its port and through the API server.
//!
//! The clock is manual: a test advances it and then waits for the expected result.
#![expect(clippy::unwrap_used, reason = "all of it is tests: what is not expected fails them")]

mod contract;
mod lab;
mod life;
