//! What a client can do to a server, and what is logged and counted.

use super::lines::Lines;
use super::wire::{LONG, Running, SECOND, answer, ask, at_once, closed, limits, post, serve, times, within};
use host_kit::server::{Drain, Times};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const SHORT: Duration = Duration::from_millis(300);

async fn plain() -> Running {
    serve(limits(times()), at_once()).await
}

#[tokio::test]
async fn requests_are_answered_one_after_the_other_on_one_connection() {
    let server = plain().await;
    let mut client = server.dial().await;
    for body in ["one", "", "three"] {
        assert_eq!(ask(&mut client, &post("/echo", body)).await, (200, body.to_owned()));
    }
    assert_eq!(ask(&mut client, "GET /none HTTP/1.1\r\nHost: x\r\n\r\n").await.0, 404);
    assert_eq!(server.count("joulie_http_requests_total{port=\"work\",code=\"2xx\"}"), 3.0);
    assert_eq!(server.count("joulie_http_requests_total{port=\"work\",code=\"4xx\"}"), 1.0);
    assert_eq!(server.count("joulie_http_connections{port=\"work\"}"), 1.0);
}

#[tokio::test]
async fn a_body_over_the_limit_is_answered_413_and_named_in_the_log() {
    let (lines, _guard) = Lines::catch();
    let server = plain().await;
    let mut client = server.dial().await;
    assert_eq!(ask(&mut client, &post("/echo", &"x".repeat(1000))).await.0, 200, "the limit itself is fine");
    assert_eq!(ask(&mut client, &post("/echo", &"x".repeat(1001))).await.0, 413);
    closed(&mut client).await;
    let line = lines
        .wait_for(&["POST /echo from 127.0.0.1 is over the limit of 1000 bytes; it was answered 413"])
        .await;
    assert!(line.contains("WARN") && line.contains("reason=\"body_too_large\""), "{line}");
    assert_eq!(server.refused("body_too_large"), 1.0);
}

#[tokio::test]
async fn a_body_that_does_not_say_how_large_it_is_meets_the_same_limit() {
    let server = plain().await;
    let mut client = server.dial().await;
    let mut request = "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned();
    for _ in 0..20 {
        request.push_str(&format!("40\r\n{}\r\n", "x".repeat(64)));
    }
    request.push_str("0\r\n\r\n");
    assert_eq!(ask(&mut client, &request).await.0, 413);
}

#[tokio::test]
async fn a_body_without_end_is_neither_kept_nor_read_for_ever() {
    let (lines, _guard) = Lines::catch();
    let server = plain().await;
    let mut client = server.dial().await;
    let head = "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    within(async { while client.write_all(chunk.as_bytes()).await.is_ok() {} }).await;
    lines.wait_for(&["POST /echo from 127.0.0.1 is over the limit of 1000 bytes"]).await;
    assert_eq!(server.refused("body_too_large"), 1.0);
}

#[tokio::test]
async fn a_client_that_asks_first_is_told_before_it_sends_too_much() {
    let server = plain().await;
    let mut client = server.dial().await;
    let request = "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5000000\r\n\r\n";
    assert_eq!(ask(&mut client, request).await.0, 413);
}

#[tokio::test]
async fn a_path_may_take_larger_bodies_than_the_others() {
    let server = plain().await;
    let mut client = server.dial().await;
    let large = "x".repeat(3 << 20);
    assert_eq!(ask(&mut client, &post("/large", &large)).await, (200, (3 << 20).to_string()));
    assert_eq!(ask(&mut client, &post("/echo", &large)).await.0, 413, "and the client still sees the answer");
}

/// Sends one byte at a time until the server answers or closes.
async fn drip(client: &mut tokio::net::TcpStream, bytes: &str) {
    for byte in bytes.bytes().cycle() {
        if client.write_all(&[byte]).await.is_err() {
            return;
        }
        let mut one = [0];
        // The server has answered or closed.
        if tokio::time::timeout(Duration::from_millis(10), client.peek(&mut one)).await.is_ok() {
            return;
        }
    }
}

#[tokio::test]
async fn a_client_that_drips_its_head_is_cut_off_and_named_in_the_log() {
    let (lines, _guard) = Lines::catch();
    let server = serve(limits(Times { head: SHORT, ..times() }), at_once()).await;
    let mut slow = server.dial().await;
    within(drip(&mut slow, "GET /echo HTTP/1.1\r\nX-Endless: ")).await;
    closed(&mut slow).await;
    let line =
        lines.wait_for(&["127.0.0.1 sent", "bytes of a request's head in 300ms and no end of it"]).await;
    assert!(line.contains("reason=\"head_slow\"") && !line.contains("sent 0 bytes"), "{line}");
    assert_eq!(server.refused("head_slow"), 1.0);
    let mut next = server.dial().await;
    assert_eq!(ask(&mut next, &post("/echo", "fine")).await.0, 200, "nobody else is troubled");
}

#[tokio::test]
async fn a_client_that_drips_its_body_is_answered_408_and_named_in_the_log() {
    let (lines, _guard) = Lines::catch();
    let server = serve(limits(Times { body: SHORT, ..times() }), at_once()).await;
    let mut slow = server.dial().await;
    slow.write_all(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n").await.unwrap();
    within(drip(&mut slow, "x")).await;
    assert_eq!(answer(&mut slow).await.0, 408);
    let line = lines
        .wait_for(&["the body of POST /echo from 127.0.0.1 did not come in 300ms", "answered 408"])
        .await;
    assert!(line.contains("reason=\"body_slow\""), "{line}");
    assert_eq!(server.refused("body_slow"), 1.0);
}

#[tokio::test]
async fn a_client_that_takes_no_answer_is_cut_off_and_named_in_the_log() {
    let (lines, _guard) = Lines::catch();
    let server = serve(limits(Times { write: SHORT, ..times() }), at_once()).await;
    let mut slow = server.dial().await;
    slow.write_all(post("/flood", "").as_bytes()).await.unwrap();
    lines.wait_for(&["127.0.0.1 took nothing of its answer for 300ms; the connection is closed"]).await;
    assert_eq!(server.refused("answer_slow"), 1.0);
}

#[tokio::test]
async fn a_client_that_reads_slowly_but_reads_gets_its_answer() {
    let server = serve(limits(Times { idle: SHORT, ..times() }), at_once()).await;
    let mut client = server.dial().await;
    client.write_all(post("/flood", "").as_bytes()).await.unwrap();
    // The server waits for the client to read, for longer than a connection may be idle.
    tokio::time::sleep(3 * SHORT).await;
    // At most 1 MiB in 40 ms: twice as long as a connection may be idle.
    let (mut total, mut buffer) = (0, vec![0; 1 << 20]);
    while total < 16 << 20 {
        let count = within(client.read(&mut buffer)).await.unwrap();
        assert!(count > 0, "cut off after {total} bytes");
        total += count;
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
}

#[tokio::test]
async fn an_idle_connection_is_closed_without_a_complaint() {
    let (lines, _guard) = Lines::catch();
    let server = serve(limits(Times { idle: SHORT, first_byte: SHORT, ..times() }), at_once()).await;
    let mut fresh = server.dial().await;
    closed(&mut fresh).await;
    let mut used = server.dial().await;
    assert_eq!(ask(&mut used, &post("/echo", "x")).await.0, 200);
    closed(&mut used).await;
    assert_eq!(lines.with(&["WARN"]), [""; 0]);
}

#[tokio::test]
async fn a_handler_may_take_longer_than_any_time_of_a_client() {
    let server =
        serve(limits(Times { idle: SHORT, head: SHORT, body: SHORT, write: SHORT, ..times() }), at_once())
            .await;
    let mut client = server.dial().await;
    client.write_all(post("/wait", "").as_bytes()).await.unwrap();
    tokio::time::sleep(3 * SHORT).await;
    server.gate.add_permits(1);
    assert_eq!(answer(&mut client).await, (200, "waited".to_owned()));
}

#[tokio::test]
async fn the_same_trouble_with_the_same_client_is_said_once_and_counted_each_time() {
    let (lines, _guard) = Lines::catch();
    let server = plain().await;
    for _ in 0..5 {
        let mut client = server.dial().await;
        assert_eq!(ask(&mut client, &post("/echo", &"x".repeat(2000))).await.0, 413);
    }
    assert_eq!((lines.with(&["over the limit"]).len(), server.refused("body_too_large")), (1, 5.0));
}

#[tokio::test]
async fn a_handler_that_panics_answers_500_and_the_server_lives_on() {
    let (lines, _guard) = Lines::catch();
    let server = plain().await;
    let mut client = server.dial().await;
    assert_eq!(ask(&mut client, &post("/panic", "")).await, (500, "internal error\n".to_owned()));
    assert_eq!(ask(&mut client, &post("/echo", "x")).await.0, 200);
    lines.wait_for(&["ERROR", "the handler of POST /panic panicked; it was answered 500"]).await;
    assert_eq!(server.count("joulie_http_panics_total{port=\"work\"}"), 1.0);
}

#[tokio::test]
async fn what_is_not_http_is_turned_away_and_named_in_the_log() {
    let (lines, _guard) = Lines::catch();
    let server = plain().await;
    let mut client = server.dial().await;
    client.write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n").await.unwrap();
    closed(&mut client).await;
    lines.wait_for(&["127.0.0.1 sent what is not HTTP"]).await;
    assert_eq!(server.refused("not_http"), 1.0);
}

#[tokio::test]
async fn a_drain_answers_what_has_begun_and_takes_nothing_new() {
    let server = plain().await;
    let (mut busy, mut idle) = (server.dial().await, server.dial().await);
    assert_eq!(ask(&mut idle, &post("/echo", "x")).await.0, 200);
    busy.write_all(post("/wait", "").as_bytes()).await.unwrap();
    // It is answered after the previous request on the server's task, so that one has begun.
    assert_eq!(ask(&mut idle, &post("/echo", "x")).await.0, 200);
    server.trigger.request("the test");
    closed(&mut idle).await;
    assert!(within(tokio::net::TcpStream::connect(server.address)).await.is_err());
    assert!(!server.ended.is_finished());
    server.gate.add_permits(1);
    assert_eq!(answer(&mut busy).await, (200, "waited".to_owned()));
    assert_eq!(within(server.ended).await.unwrap(), 0);
}

#[tokio::test]
async fn a_server_that_lingers_still_accepts_after_it_was_asked_to_stop() {
    let server = serve(limits(times()), Drain::new(SECOND, LONG)).await;
    server.trigger.request("the test");
    tokio::task::yield_now().await;
    let mut late = server.dial().await;
    assert_eq!(ask(&mut late, &post("/echo", "late")).await.0, 200);
    assert_eq!(within(server.ended).await.unwrap(), 0);
}

#[tokio::test]
async fn a_request_that_never_ends_is_cut_off_at_the_deadline_and_counted() {
    let (lines, _guard) = Lines::catch();
    let server = serve(limits(times()), Drain::new(Duration::ZERO, SHORT)).await;
    let (mut stuck, mut other) = (server.dial().await, server.dial().await);
    stuck.write_all(post("/wait", "").as_bytes()).await.unwrap();
    assert_eq!(ask(&mut other, &post("/echo", "x")).await.0, 200);
    server.trigger.request("the test");
    assert_eq!(within(server.ended).await.unwrap(), 1);
    lines.wait_for(&["1 connections were cut off at the end of the drain"]).await;
}

#[tokio::test]
async fn a_port_that_is_taken_is_said_with_its_address() {
    use host_kit::clock::SystemClock;
    use host_kit::metrics::{BuildInfo, MetricsBuilder};
    use host_kit::server::{HttpServer, Port, ServerMetrics};
    let server = plain().await;
    let mut metrics = MetricsBuilder::of(&BuildInfo { component: "test", version: "0", revision: "0" });
    let servers = ServerMetrics::register(metrics.registry());
    let routes = super::wire::Handlers { gate: server.gate.clone() };
    let listen = server.address.to_string().parse().unwrap();
    let clock = std::sync::Arc::new(SystemClock::new());
    let refused = HttpServer::bind(listen, Port::Metrics, routes, limits(times()), &servers, clock).await;
    let said = refused.err().unwrap().to_string();
    assert!(said.starts_with(&format!("cannot listen on {} (metrics): ", server.address)), "{said}");
}
