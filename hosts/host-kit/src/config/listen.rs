//! The address on which a server listens, in Go's notation: `:8080`, `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080`.

use super::Wrong;
use super::parse::wrong;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// An address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// Every address of the machine, of both families if it has both.
    Everywhere {
        /// The port; 0 lets the kernel choose.
        port: u16,
    },
    /// One address.
    At(SocketAddr),
}

impl Listen {
    /// The addresses to try, in order: a kernel without IPv6 uses the second.
    pub(crate) fn candidates(self) -> Vec<SocketAddr> {
        match self {
            Self::Everywhere { port } => vec![
                SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port),
                SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port),
            ],
            Self::At(address) => vec![address],
        }
    }
}

impl FromStr for Listen {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        let text = text.trim();
        let Some((host, port)) = text.rsplit_once(':') else {
            return wrong("it has no ':' before the port");
        };
        // The standard parser also accepts a sign.
        let Some(port) = port.parse::<u16>().ok().filter(|_| port.bytes().all(|byte| byte.is_ascii_digit()))
        else {
            return wrong("its port is not a number from 0 to 65535");
        };
        if host.is_empty() {
            return Ok(Self::Everywhere { port });
        }
        if host == "localhost" {
            return Ok(Self::At(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)));
        }
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let address = match bare {
            Some(v6) => v6.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
            None => host.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        };
        address.map_or_else(
            || wrong("its host is not an IP address (an IPv6 address stands in brackets)"),
            |address| Ok(Self::At(SocketAddr::new(address, port))),
        )
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everywhere { port } => write!(f, ":{port}"),
            Self::At(address) => write!(f, "{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_go_reads_it() {
        for (text, shown) in [
            (":8080", ":8080"),
            (" :0 ", ":0"),
            ("0.0.0.0:1", "0.0.0.0:1"),
            ("127.0.0.1:65535", "127.0.0.1:65535"),
            ("[::1]:80", "[::1]:80"),
            ("localhost:80", "127.0.0.1:80"),
        ] {
            assert_eq!(
                text.parse::<Listen>().map(|listen| listen.to_string()).as_deref(),
                Ok(shown),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            "8080",
            ":",
            ":65536",
            ":-1",
            ":+1",
            "host:80",
            "::1:80",
            "[127.0.0.1]:80",
            "[::1:80",
            "1.2.3:80",
        ] {
            assert!(text.parse::<Listen>().is_err(), "{text:?}");
        }
    }
}
