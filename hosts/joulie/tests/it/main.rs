//! `joulie` on virtual hardware: the built binary as a separate process, on a machine that this process provides; what a
//! Prometheus makes of the demo, and its page in a browser.

// The longest tests are here. Tests begin in the order of their names.
#[cfg(test)]
mod alerts;
#[cfg(test)]
mod cap;
#[cfg(test)]
mod demo;
#[cfg(test)]
mod line;
#[cfg(test)]
mod page;
#[cfg(test)]
mod prometheus;
#[cfg(test)]
mod service;
#[cfg(test)]
mod show;
#[cfg(test)]
mod simulate;
#[cfg(test)]
mod test_machine;
