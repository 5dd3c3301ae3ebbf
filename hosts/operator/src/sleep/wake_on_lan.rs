//! Wakes a machine by the magic packet: six bytes of ones, and its address sixteen times, as a broadcast. Nothing answers to
//! it; whether the machine is on is read elsewhere.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::net::UdpSocket;

/// The address of a network card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MacAddress([u8; 6]);

/// How a node is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LanWake {
    pub(super) mac: MacAddress,
    /// Where the packet goes.
    pub(super) to: SocketAddr,
}

impl MacAddress {
    /// Reads `0c:c4:7a:12:34:56`, also with dashes.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 6];
        let mut parts = text.trim().split([':', '-']);
        for byte in &mut bytes {
            let part =
                parts.next().filter(|part| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit()))?;
            *byte = u8::from_str_radix(part, 16).ok()?;
        }
        parts.next().is_none().then_some(Self(bytes))
    }

    fn packet(self) -> [u8; 102] {
        let mut packet = [0xff; 102];
        for (at, byte) in packet.iter_mut().enumerate().skip(6) {
            *byte = self.0.get(at % 6).copied().unwrap_or(0);
        }
        packet
    }
}

impl LanWake {
    pub(super) async fn wake(&self) -> Result<(), String> {
        let told = |error: std::io::Error| format!("the packet to {}: {error}", self.to);
        let any: SocketAddr = match self.to.is_ipv4() {
            true => (Ipv4Addr::UNSPECIFIED, 0).into(),
            false => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any).await.map_err(told)?;
        socket.set_broadcast(true).map_err(told)?;
        socket.send_to(&self.mac.packet(), self.to).await.map(drop).map_err(told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_six_bytes() {
        let mac = MacAddress([0x0c, 0xc4, 0x7a, 0x12, 0x34, 0x56]);
        assert_eq!(MacAddress::parse("0C:c4:7a:12:34:56"), Some(mac));
        assert_eq!(MacAddress::parse(" 0c-c4-7a-12-34-56 "), Some(mac));
        for bad in ["", "0c:c4:7a:12:34", "0c:c4:7a:12:34:56:78", "0c:c4:7a:12:34:5g", "+c:c4:7a:12:34:56"] {
            assert_eq!(MacAddress::parse(bad), None, "{bad}");
        }
    }

    #[tokio::test]
    async fn the_packet_has_six_ones_and_the_address_sixteen_times() {
        let there = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let mac = MacAddress::parse("0c:c4:7a:12:34:56").unwrap();
        LanWake { mac, to: there.local_addr().unwrap() }.wake().await.unwrap();
        let mut heard = [0; 200];
        let length = there.recv(&mut heard).await.unwrap();
        assert_eq!(length, 102);
        assert_eq!(heard[..6], [0xff; 6]);
        assert!(heard[6..102].chunks(6).all(|part| part == [0x0c, 0xc4, 0x7a, 0x12, 0x34, 0x56]));
    }
}
