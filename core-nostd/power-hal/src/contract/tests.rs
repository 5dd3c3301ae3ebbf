//! The mock keeps the contract in every layout, and each way of breaking it is found out under its own name.

mod layouts;
mod mutants;
