//! The plugin against an API server in memory, with a cluster in it that is well, and then is not.

mod doctor;
mod on_call;
mod orders;
mod scale;
mod shown;
mod world;
