//! Free ports on loopback. Another process may take a free port before it is used; the start is then repeated with
//! other ports.

use crate::error::ClusterError;
use std::net::{Ipv4Addr, TcpListener};

/// The ports of one start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ports {
    pub(crate) etcd: u16,
    pub(crate) etcd_peer: u16,
    pub(crate) api_server: u16,
    pub(crate) controller_manager: u16,
    pub(crate) scheduler: u16,
}

impl Ports {
    /// Holds all ports at once, so that they differ, then releases them.
    pub(crate) fn pick() -> Result<Self, ClusterError> {
        let mut held = Vec::new();
        let mut next = || {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let port = listener.local_addr()?.port();
            held.push(listener);
            Ok::<u16, std::io::Error>(port)
        };
        let mut pick = || {
            Ok(Self {
                etcd: next()?,
                etcd_peer: next()?,
                api_server: next()?,
                controller_manager: next()?,
                scheduler: next()?,
            })
        };
        pick().map_err(ClusterError::system("finding a free port on 127.0.0.1"))
    }
}
