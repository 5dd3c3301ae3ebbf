//! The operator as it runs, on an API server in memory, with agents played by the test.

#[cfg(test)]
mod rig;
#[cfg(test)]
mod steady;
