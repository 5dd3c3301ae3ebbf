//! The HAL on plain folders, and on virtual hardware that answers as the drivers do.

#[cfg(test)]
mod clock;
#[cfg(test)]
mod contract;
#[cfg(test)]
mod cost;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod plain;
#[cfg(test)]
mod support;
