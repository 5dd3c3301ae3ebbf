//! host-kit as its users meet it: real sockets, real certificates, and the lines that a person reads.

mod events;
mod fake;
mod files;
mod leader;
mod lines;
mod log;
mod reflect;
mod server;
mod shutdown;
mod tls;
mod wire;
