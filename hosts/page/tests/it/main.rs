//! The page of a cluster, from an API server to the stream, and over HTTP as the operator serves it.

#[cfg(test)]
mod shown;
