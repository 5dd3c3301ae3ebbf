//! The HAL on a library whose GPUs are folders of files.

#[cfg(test)]
mod contract;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod support;
#[cfg(test)]
mod survey;
