//! What the embedded API does not do as a real one does, line by line.

/// Which server a suite runs against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerKind {
    /// The one in memory.
    Embedded,
    /// etcd and kube-apiserver.
    Real,
}

/// A case that one server is allowed not to pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The name of the case.
    pub case: &'static str,
    /// Who differs.
    pub server: ServerKind,
    /// Part of what the case says when it fails: another failure is not excused.
    pub says: &'static str,
    /// Why that is right, or bearable.
    pub why: &'static str,
}

/// All of them. A line whose case passes fails the suite: it is to be taken out.
pub const DIFFERENCES: &[Difference] = &[Difference {
    case: "joulie::rules_refuse_in_their_words",
    server: ServerKind::Embedded,
    says: "17 of 17 are taken",
    why: "it evaluates no CEL: an object that only a rule refuses is taken",
}];
