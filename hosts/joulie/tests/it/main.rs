//! `joulie` on virtual hardware: the built binary as a process of its own, on a machine that this process serves.

#[cfg(test)]
mod cap;
#[cfg(test)]
mod demo;
#[cfg(test)]
mod line;
#[cfg(test)]
mod service;
#[cfg(test)]
mod show;
#[cfg(test)]
mod test_machine;
