//! The agent as a process of its own, against an API in memory, on virtual hardware and over HTTP.

#[cfg(test)]
mod devices;
#[cfg(test)]
mod energy;
#[cfg(test)]
mod gpus;
#[cfg(test)]
mod grants;
#[cfg(test)]
mod host;
#[cfg(test)]
mod lease;
#[cfg(test)]
mod nodes;
#[cfg(test)]
mod plug;
#[cfg(test)]
mod pool;
#[cfg(test)]
mod prometheus;
#[cfg(test)]
#[path = "../../../operator/tests/it/rights.rs"]
mod rights;
#[cfg(test)]
mod route;
#[cfg(test)]
mod shard;
#[cfg(test)]
mod standalone;
#[cfg(test)]
mod status;
#[cfg(test)]
mod table;
#[cfg(test)]
mod test_machine;
