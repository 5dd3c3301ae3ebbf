//! host-kit as its users meet it: real sockets, real certificates, and the lines that a person reads.

mod files;
mod lines;
mod log;
mod server;
mod shutdown;
mod tls;
mod wire;
