//! The plugin against an API server in memory, with a cluster in it that is well, and then is not.

#[cfg(test)]
mod doctor;
#[cfg(test)]
mod on_call;
#[cfg(test)]
mod orders;
#[cfg(test)]
mod scale;
#[cfg(test)]
mod shown;
#[cfg(test)]
mod world;
