//! What the agent, the operator and the extender share, so that all three behave alike.
//!
//! - [`config`]: settings from flags, environment and file into validated types; a typo never silently means a default.
//! - [`log`]: structured logs, a level that changes at run time, repeated lines logged once with a count.
//! - [`metrics`]: metrics with closed label sets, build information and the process itself.
//! - [`health`]: `/livez` and `/readyz` with a reason per check.
//! - [`bearer`]: tokens in requests and in files.
//! - [`login`]: who asks a server over HTTP.
//! - [`http_client`]: questions over HTTP with limits, to what is no API server.
//! - [`prometheus`]: queries to a Prometheus server, and what its answers say.
//! - [`server`]: HTTP with limits, TLS, client certificates, reload of certificates and a graceful end.
//! - [`shutdown`]: one signal for all tasks, a deadline, and a second signal that ends the program at once.
//! - [`leader`]: election by Lease, which compares no clocks of two machines.
//! - [`reflect`]: watches that keep trimmed rows, and that no malformed object stops.
//! - [`events`]: Kubernetes Events, posted once and then counted.
//! - [`clock`]: time, passed in.
//! - [`program`], [`ops`], [`connect`]: the parts of a `main` around a program's work, the port for metrics and
//!   health, and the client of the API server.
//!
//! It knows Kubernetes and HTTP, but nothing of power: no planning and no hardware.

pub mod bearer;
pub mod clock;
pub mod config;
pub mod connect;
pub mod events;
pub mod health;
pub mod http_client;
pub mod leader;
pub mod log;
pub mod login;
pub mod metrics;
pub mod ops;
pub mod program;
pub mod prometheus;
pub mod reflect;
pub mod server;
pub mod shutdown;
