//! The mock keeps the contract in every layout, and each fault is detected by its own rule.

mod layouts;
mod mutants;
