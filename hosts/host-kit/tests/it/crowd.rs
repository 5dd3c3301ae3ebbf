//! Many clients at once: limits on connections, and on the memory for bodies.

use super::wire::{Running, answer, ask, at_once, closed, limits, post, serve, times, within};
use host_kit::server::Times;
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

const SHORT: Duration = Duration::from_millis(300);
const MIB: usize = 1 << 20;

impl Running {
    /// A connection from another address of this machine.
    async fn dial_from(&self, last: u8) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((Ipv4Addr::new(127, 0, 0, last), 0).into()).unwrap();
        socket.connect(self.address).await.unwrap()
    }

    async fn opened(&self, count: f64) {
        within(async {
            while self.count("joulie_http_connections{port=\"work\"}") != count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    }
}

/// Returns a connection on which one request was answered.
async fn used(mut client: TcpStream) -> TcpStream {
    assert_eq!(ask(&mut client, &post("/echo", "x")).await.0, 200);
    client
}

/// Sends the first byte of a body and not the rest.
async fn begin(client: &mut TcpStream, length: usize) {
    let head = format!("POST /large HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\nx");
    client.write_all(head.as_bytes()).await.unwrap();
}

#[tokio::test]
async fn a_connection_that_says_nothing_is_closed_long_before_one_that_was_used() {
    let server = serve(limits(Times { first_byte: SHORT, ..times() }), at_once()).await;
    let mut proven = used(server.dial().await).await;
    let mut silent = server.dial().await;
    closed(&mut silent).await;
    server.opened(1.0).await;
    assert_eq!(server.refused("silent"), 1.0);
    assert_eq!(ask(&mut proven, &post("/echo", "x")).await.0, 200);
}

#[tokio::test]
async fn silent_connections_give_way_first_and_then_the_one_that_was_idle_longest() {
    let server = serve(limits(times()), at_once()).await;
    let mut first = used(server.dial().await).await;
    let mut second = used(server.dial().await).await;
    let (mut silent, mut later) = (server.dial().await, server.dial().await);
    server.opened(4.0).await;
    // The port is full, but new clients are answered all the same.
    let _third = used(server.dial().await).await;
    closed(&mut silent).await;
    let _fourth = used(server.dial().await).await;
    closed(&mut later).await;
    // Only connections with a request are left, and the first one has just been used again.
    assert_eq!(ask(&mut first, &post("/echo", "x")).await.0, 200);
    let _fifth = used(server.dial().await).await;
    closed(&mut second).await;
    assert_eq!(ask(&mut first, &post("/echo", "x")).await.0, 200);
    assert_eq!((server.refused("gave_way"), server.refused("too_many_connections")), (3.0, 0.0));
}

#[tokio::test]
async fn a_drip_of_a_head_gives_way_too_and_a_request_never_does() {
    let server = serve(limits(times()), at_once()).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        let mut client = used(server.dial().await).await;
        client.write_all(post("/wait", "").as_bytes()).await.unwrap();
        held.push(client);
    }
    let mut drip = server.dial().await;
    drip.write_all(b"POST /ec").await.unwrap();
    server.opened(4.0).await;
    let mut next = used(server.dial().await).await;
    closed(&mut drip).await;
    next.write_all(post("/wait", "").as_bytes()).await.unwrap();
    // Until all four are being answered, the last one may still be closed for a new one.
    let refused = async {
        loop {
            let mut one_more = server.dial().await;
            let _may_be_closed = one_more.write_all(b"POST /ec").await;
            closed(&mut one_more).await;
            if server.refused("too_many_connections") >= 1.0 {
                return;
            }
        }
    };
    tokio::time::sleep(SHORT).await;
    within(refused).await;
    server.gate.add_permits(4);
    for client in held.iter_mut().chain([&mut next]) {
        assert_eq!(answer(client).await, (200, "waited".to_owned()));
    }
}

#[tokio::test]
async fn one_address_takes_no_more_than_its_part_of_the_places() {
    let server = serve(limits(times()).with_peer_max(2).unwrap(), at_once()).await;
    let mut other = used(server.dial_from(2).await).await;
    let mut busy = Vec::new();
    for _ in 0..2 {
        let mut client = used(server.dial().await).await;
        client.write_all(post("/wait", "").as_bytes()).await.unwrap();
        busy.push(client);
    }
    tokio::time::sleep(SHORT).await;
    let mut third = server.dial().await;
    closed(&mut third).await;
    assert_eq!(server.refused("too_many_of_peer"), 1.0);
    // An idle connection of the same address is closed for its new one, and none of another address.
    server.gate.add_permits(2);
    for client in &mut busy {
        assert_eq!(answer(client).await.0, 200);
    }
    let _more = used(server.dial().await).await;
    closed(&mut busy[0]).await;
    assert_eq!(ask(&mut other, &post("/echo", "x")).await.0, 200);
}

#[tokio::test]
async fn a_body_that_finds_no_room_beside_the_others_is_answered_503() {
    let limits = limits(Times { room: SHORT, ..times() }).with_bodies_max(4 * MIB).unwrap();
    let server = serve(limits, at_once()).await;
    let mut large = server.dial().await;
    begin(&mut large, 3 * MIB).await;
    let mut second = used(server.dial().await).await;
    tokio::time::sleep(SHORT / 3).await;
    let body = "x".repeat(2 * MIB);
    let (status, said) = ask(&mut second, &post("/large", &body)).await;
    assert_eq!((status, said.as_str()), (503, "too many large bodies are in flight; try again\n"));
    assert_eq!(server.refused("bodies_full"), 1.0);
    // Small bodies pass, and so does one that fits beside the large one.
    let mut third = used(server.dial().await).await;
    assert_eq!(ask(&mut third, &post("/large", &"x".repeat(MIB))).await.0, 200);
    large.write_all(&vec![b'x'; 3 * MIB - 1]).await.unwrap();
    assert_eq!(answer(&mut large).await.0, 200);
    assert_eq!(ask(&mut third, &post("/large", &body)).await.0, 200, "and its room is free again");
}

#[tokio::test]
async fn a_body_waits_a_while_for_the_room_of_another_one() {
    let server = serve(limits(times()).with_bodies_max(4 * MIB).unwrap(), at_once()).await;
    let (mut first, mut second) = (server.dial().await, server.dial().await);
    begin(&mut first, 3 * MIB).await;
    tokio::time::sleep(SHORT / 3).await;
    begin(&mut second, 3 * MIB).await;
    let mut one = [0];
    assert!(tokio::time::timeout(SHORT, second.read(&mut one)).await.is_err(), "no answer yet");
    // The first client leaves, and the memory that it held is free.
    drop(first);
    within(second.write_all(&vec![b'x'; 3 * MIB - 1])).await.unwrap();
    assert_eq!(answer(&mut second).await.0, 200);
}
