//! Caps CPUs and GPUs of a node as its desired state says, and reports what really happened.
#![forbid(unsafe_code)]
