//! Filters and scores nodes for kube-scheduler by their power.

fn main() {}
