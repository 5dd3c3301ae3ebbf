//! The messages between kube-scheduler and an extender.
//!
//! kube-scheduler writes the keys with capitals and reads them in any casing; older callers write lower case. So keys
//! are matched without regard to case. A key that comes twice is refused, because it is not known which one the caller
//! meant. Names are borrowed from the body, and Node objects stay raw bytes.

pub mod bind;
pub mod deferral;
mod fields;
pub mod gpu_wish;
pub mod lacks;
pub mod members;
mod mig;
pub mod pod;
pub mod preempt;
pub mod preferences;
pub mod reply;
pub mod summary;
pub mod workload;

pub use deferral::PodDeferral;
pub use gpu_wish::GpuWish;
pub use lacks::LacksWatts;
pub use mig::instances_asked;
pub use pod::ExtenderPod;
pub use preferences::{IndifferentPod, PodPreference};
pub use reply::Keys;
pub use summary::PodSummary;
pub use workload::PodWorkload;

use serde::Deserialize;
use std::borrow::Cow;
use std::fmt;

/// A text of the body, borrowed where nothing in it is escaped.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl Name<'_> {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'a> From<Cow<'a, str>> for Name<'a> {
    fn from(text: Cow<'a, str>) -> Self {
        Self(text)
    }
}

/// A body that is no message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadBody {
    why: String,
}

impl BadBody {
    fn new(why: impl fmt::Display) -> Self {
        Self { why: why.to_string() }
    }
}

impl fmt::Display for BadBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed body: {}", self.why)
    }
}

impl std::error::Error for BadBody {}
