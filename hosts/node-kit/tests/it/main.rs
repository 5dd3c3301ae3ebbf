//! A node on virtual hardware that answers as the drivers do.

#[cfg(test)]
mod first;
#[cfg(test)]
mod reload;
#[cfg(test)]
mod room;
