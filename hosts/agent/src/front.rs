//! The half of the agent that speaks Kubernetes, the same for every kind of machine.

pub(crate) mod armed;
mod asked;
pub(crate) mod demand;
pub(crate) mod drift;
pub(crate) mod events;
pub(crate) mod grants;
pub(crate) mod hardware;
pub(crate) mod inputs;
pub(crate) mod node;
pub(crate) mod outcome;
pub(crate) mod pace;
pub(crate) mod plan;
pub(crate) mod proof;
pub(crate) mod publish;
pub(crate) mod publisher;
pub(crate) mod receipt;
pub(crate) mod rows;
pub(crate) mod steady;
pub(crate) mod wanted;
pub(crate) mod watches;
pub(crate) mod yields;
