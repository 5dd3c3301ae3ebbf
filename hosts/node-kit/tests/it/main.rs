//! A node on virtual hardware that behaves like the drivers, and on folders whose files a test writes.

#[cfg(test)]
mod caps;
#[cfg(test)]
mod cost;
#[cfg(test)]
mod gpu_clocks;
#[cfg(test)]
mod gpus;
#[cfg(test)]
mod grants;
#[cfg(test)]
mod laws;
#[cfg(test)]
mod reload;
mod report;
#[cfg(test)]
mod restarts;
#[cfg(test)]
mod rivals;
#[cfg(test)]
mod test_machine;
#[cfg(test)]
mod trouble;
