//! What the agent, the operator and the extender share, so that all three behave alike at night.
//!
//! - [`config`]: settings from flags, environment and file into validated types; a typo never silently means a default.
//! - [`log`]: structured logs, a level that changes at run time, repeated lines said once with a count.
//! - [`metrics`]: OpenMetrics with closed label sets, build information and the process itself.
//! - [`health`]: `/livez` and `/readyz` with a reason per check.
//! - [`http_client`]: questions over HTTP with limits, to what is no API server.
//! - [`server`]: HTTP with limits, TLS, client certificates, reload of certificates and a graceful end.
//! - [`shutdown`]: one signal for all tasks, a deadline, and a second signal that means now.
//! - [`leader`]: election by Lease, judged by our own clock.
//! - [`reflect`]: watches that keep trimmed rows and that no malformed object stops.
//! - [`events`]: what people read with kubectl, said once and not once a second.
//! - [`clock`]: time, handed in.
//! - [`program`], [`ops`], [`connect`]: what a `main` does around a program's work, its port for metrics and health, its
//!   client of the API server.
//!
//! It knows Kubernetes and HTTP and nothing of power: no planning and no hardware.

pub mod clock;
pub mod config;
pub mod connect;
pub mod events;
pub mod health;
pub mod http_client;
pub mod leader;
pub mod log;
pub mod metrics;
pub mod ops;
pub mod program;
pub mod reflect;
pub mod server;
pub mod shutdown;
