//! A real Kubernetes control plane on loopback, for the end-to-end suites and for manual use.
//!
//! [`ControlPlane::start`] starts etcd, kube-apiserver, kube-scheduler and kube-controller-manager with certificates,
//! RBAC and a kubeconfig in a folder of its own. [`life`] registers nodes without machines and runs the pods that are
//! bound to them. [`Program`] is a suite's program that runs beside it. [`assets`] finds the binaries; [`CertManager`] is
//! built as they are, [`prometheus`] and [`chromium`] are packages of the distribution, [`sushy`] is a
//! package of Python.
//!
//! It must never outlive its user: dropping the handle, the end of the process and a SIGKILL of it all end every
//! child and remove the folder. It must never touch a cluster that it did not start, and it listens on loopback only.
//!
//! Nothing here is shipped.
#![deny(unsafe_code)]

pub mod assets;
mod cert_manager;
pub mod chromium;
mod component;
mod control_plane;
mod error;
#[expect(unsafe_code, reason = "the system calls about processes that std does not have")]
mod ffi;
mod folder;
mod kubeconfig;
pub mod life;
mod pki;
mod ports;
mod processes;
mod program;
pub mod prometheus;
mod recipe;
mod suite;
pub mod sushy;

pub use cert_manager::CertManager;
pub use chromium::Chromium;
pub use component::{Component, Extender, NodeForm, Scheduler};
pub use control_plane::{ControlPlane, ControlPlaneOptions};
pub use error::ClusterError;
pub use ffi::ProcessSignal;
pub use pki::{MutualTls, PemPair};
pub use program::Program;
pub use prometheus::PrometheusServer;
pub use suite::start_or_skip;
pub use sushy::SushyEmulator;
