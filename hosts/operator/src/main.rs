//! Plans which nodes run at full power and which capped, guards the transitions, and keeps the digital twins.

fn main() {}
