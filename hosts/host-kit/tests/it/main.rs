//! host-kit as its users meet it: real sockets, real certificates, and the lines that a person reads.

#[cfg(test)]
mod crowd;
mod events;
#[cfg(test)]
mod fake;
#[cfg(test)]
mod files;
#[cfg(test)]
mod http_client;
#[cfg(test)]
mod leader;
#[cfg(test)]
mod lines;
#[cfg(test)]
mod log;
#[cfg(test)]
mod reflect;
#[cfg(test)]
mod scrapers;
#[cfg(test)]
mod server;
#[cfg(test)]
mod shutdown;
#[cfg(test)]
mod tls;
#[cfg(test)]
mod wire;
