//! The cases in which the embedded API differs from a real one.

/// The server that a suite runs against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerKind {
    /// The embedded API in memory.
    Embedded,
    /// etcd and kube-apiserver.
    Real,
}

/// A case that one server may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The name of the case.
    pub case: &'static str,
    /// The server that differs.
    pub server: ServerKind,
    /// A part of the case's failure message: another failure is not accepted.
    pub says: &'static str,
    /// Why the difference is right, or acceptable.
    pub why: &'static str,
}

/// All differences. If a listed case passes, the suite fails, because its line must be removed.
pub const DIFFERENCES: &[Difference] = &[Difference {
    case: "joulie::rules_refuse_in_their_words",
    server: ServerKind::Embedded,
    says: "23 of 23 are taken",
    why: "it evaluates no CEL: an object that only a rule refuses is taken",
}];
