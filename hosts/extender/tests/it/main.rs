//! The extender as its callers see it: HTTP on one side, an API server on the other.

#[cfg(test)]
mod answers;
#[cfg(test)]
mod burst;
#[cfg(test)]
#[path = "../../examples/load/churn.rs"]
mod churn;
#[cfg(test)]
mod claims;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod expected;
#[cfg(test)]
mod gpus;
#[cfg(test)]
mod instances;
#[cfg(test)]
#[path = "../../examples/load/lives.rs"]
mod lives;
#[cfg(test)]
mod ops;
#[cfg(test)]
mod outage;
#[cfg(test)]
mod profiles;
#[cfg(test)]
mod request_log;
#[cfg(test)]
mod rows;
#[cfg(test)]
mod shortlist;
#[cfg(test)]
mod soak;
#[cfg(test)]
mod world;
