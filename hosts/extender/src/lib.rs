//! Filters and scores nodes for kube-scheduler by their power.
#![forbid(unsafe_code)]
