//! What the cluster should do: pure planning over facts.
