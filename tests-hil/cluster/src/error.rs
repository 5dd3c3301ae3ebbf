//! The errors of a control plane, worded for a person who reads a test's output.

use crate::component::Component;
use std::fmt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// Why there is no control plane, or why it did not do what was requested.
#[derive(Debug)]
pub enum ClusterError {
    /// There are neither binaries nor a way to build them. Only in this case a suite skips.
    Absent(String),
    /// The environment names files that are missing or incomplete.
    Assets(String),
    /// The build was possible, but failed.
    Build(String),
    /// An error of a file or folder.
    File {
        /// What was attempted.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A process, a thread or a port was not available.
    System {
        /// What was attempted.
        doing: &'static str,
        /// The cause.
        source: std::io::Error,
    },
    /// A certificate could not be created.
    Certificate(rcgen::Error),
    /// A component ended before it was ready.
    Ended {
        /// The component.
        component: Component,
        /// Its exit status.
        status: ExitStatus,
        /// The last lines of its log.
        log: String,
    },
    /// A component did not become ready in time.
    NotReady {
        /// The component.
        component: Component,
        /// How long it was waited for.
        waited: Duration,
        /// Its last answer.
        answer: String,
        /// The last lines of its log.
        log: String,
    },
    /// The API, or etcd, refused or could not be reached.
    Api {
        /// What was attempted.
        doing: &'static str,
        /// The cause.
        source: Box<kube::Error>,
    },
    /// A kubeconfig could not be used.
    Kubeconfig(Box<kube::config::KubeconfigError>),
    /// The request needs something that this control plane does not have.
    Asked(String),
}

impl ClusterError {
    pub(crate) fn file(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { doing, path, source }
    }

    pub(crate) fn system(doing: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::System { doing, source }
    }

    pub(crate) fn api(doing: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Api { doing, source: Box::new(source) }
    }

    /// Whether another process took a port between its selection and its use.
    pub(crate) fn is_lost_port(&self) -> bool {
        matches!(self, Self::Ended { log, .. } if log.contains("address already in use"))
    }
}

impl fmt::Display for ClusterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent(reason) => write!(f, "no control plane: {reason}"),
            Self::Assets(what) => f.write_str(what),
            Self::Build(what) => write!(f, "building the control plane: {what}"),
            Self::File { doing, path, source } => write!(f, "{doing} {}: {source}", path.display()),
            Self::System { doing, source } => write!(f, "{doing}: {source}"),
            Self::Certificate(source) => write!(f, "making a certificate: {source}"),
            Self::Ended { component, status, log } => {
                write!(f, "{component} ended ({status}) before it was ready; its last lines:\n{log}")
            }
            Self::NotReady { component, waited, answer, log } => write!(
                f,
                "{component} was not ready after {} s (last answer: {answer}); its last lines:\n{log}",
                waited.as_secs()
            ),
            Self::Api { doing, source } => write!(f, "{doing}: {source}"),
            Self::Kubeconfig(source) => write!(f, "the kubeconfig: {source}"),
            Self::Asked(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for ClusterError {}

impl From<rcgen::Error> for ClusterError {
    fn from(source: rcgen::Error) -> Self {
        Self::Certificate(source)
    }
}
