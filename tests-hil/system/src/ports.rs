//! Requirements on the machine: a free port, and a kernel that allows mounts.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// An address on loopback with a free port. The port may be taken before it is used; the program that starts there
/// then reports it.
///
/// # Errors
/// If there is none.
pub fn free() -> std::io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// Whether virtual hardware can be mounted.
///
/// # Errors
/// If it cannot, with the reason.
pub fn fuse() -> Result<(), String> {
    let device = std::fs::File::options().read(true).write(true).open("/dev/fuse");
    device.map(drop).map_err(|error| format!("no virtual hardware: /dev/fuse: {error}"))?;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let user = status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().nth(1));
    if user == Some("0") {
        Ok(())
    } else {
        Err("no virtual hardware: only root may mount it for others".to_owned())
    }
}
