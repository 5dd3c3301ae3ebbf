//! A server under test, and clients that send and read raw bytes.

use bytes::Bytes;
use host_kit::clock::{HostClock, SystemClock};
use host_kit::metrics::{BuildInfo, MetricsBuilder, Page};
use host_kit::server::{Certificates, Drain, HttpServer, Port, Routes, ServerLimits, ServerMetrics, Times};
use host_kit::shutdown::{self, Trigger};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// So long that only a failing test waits for it.
pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// The answers of the server under test.
pub(crate) struct Handlers {
    /// `/wait` answers when there is a permit.
    pub(crate) gate: Arc<Semaphore>,
}

impl Routes for Handlers {
    type Body = Full<Bytes>;

    fn body_max(&self, head: &http::request::Parts) -> Option<usize> {
        (head.uri.path() == "/large").then_some(4 << 20)
    }

    async fn answer(&self, request: Request<Bytes>, _peer: SocketAddr) -> Response<Full<Bytes>> {
        match request.uri().path() {
            "/echo" => Response::new(Full::from(request.into_body())),
            "/large" => Response::new(Full::from(request.body().len().to_string())),
            "/flood" => Response::new(Full::from(vec![b'x'; 16 << 20])),
            "/panic" => panic!("on purpose"),
            "/wait" => {
                self.gate.acquire().await.expect("the gate is never closed").forget();
                Response::new(Full::from("waited"))
            }
            _ => {
                let mut response = Response::new(Full::from("no such path"));
                *response.status_mut() = StatusCode::NOT_FOUND;
                response
            }
        }
    }
}

pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) gate: Arc<Semaphore>,
    pub(crate) page: Page,
    pub(crate) trigger: Trigger,
    pub(crate) ended: JoinHandle<usize>,
}

/// Long times; a test shortens the one that it is about.
pub(crate) fn times() -> Times {
    Times { handshake: LONG, first_byte: LONG, head: LONG, room: LONG, body: LONG, idle: LONG, write: LONG }
}

pub(crate) fn limits(times: Times) -> ServerLimits {
    // All clients are on this machine, so one address may have all connections.
    ServerLimits::new(1000, 4).unwrap().with_peer_max(5).unwrap().with_times(times).unwrap()
}

pub(crate) async fn serve(limits: ServerLimits, drain: Drain) -> Running {
    let mut metrics = MetricsBuilder::of(&BuildInfo { component: "test", version: "0", revision: "0" });
    let servers = ServerMetrics::register(metrics.registry());
    serve_with(limits, drain, metrics, &servers, None).await
}

pub(crate) async fn serve_with(
    limits: ServerLimits,
    drain: Drain,
    metrics: MetricsBuilder,
    servers: &ServerMetrics,
    tls: Option<Certificates>,
) -> Running {
    let clock: Arc<dyn HostClock> = Arc::new(SystemClock::new());
    let gate = Arc::new(Semaphore::new(0));
    let routes = Handlers { gate: gate.clone() };
    let listen = "localhost:0".parse().unwrap();
    let server = HttpServer::bind(listen, Port::Work, routes, limits, servers, clock).await.unwrap();
    let server = server.with_tls(tls);
    let address = server.address().unwrap();
    let (trigger, stop) = shutdown::pair();
    Running { address, gate, page: metrics.page(), trigger, ended: tokio::spawn(server.run(stop, drain)) }
}

impl Running {
    pub(crate) async fn dial(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// The value of a series, found by the start of its line.
    pub(crate) fn count(&self, series: &str) -> f64 {
        let page = self.page.render().unwrap();
        let value = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("{series} is not in\n{page}")).parse().unwrap()
    }

    pub(crate) fn refused(&self, reason: &str) -> f64 {
        self.count(&format!("joulie_http_refused_total{{port=\"work\",reason=\"{reason}\"}}"))
    }
}

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future).await.expect("it takes too long")
}

/// Reads one answer: its status and its body.
pub(crate) async fn answer(stream: &mut (impl AsyncRead + Unpin)) -> (u16, String) {
    let mut text = Vec::new();
    loop {
        let end = text.windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8(text[..end].to_vec()).unwrap();
            let length: usize = head
                .lines()
                .find_map(|line| {
                    line.to_ascii_lowercase().strip_prefix("content-length: ").map(str::to_owned)
                })
                .map_or(0, |length| length.parse().unwrap());
            if text.len() >= end + 4 + length {
                let status = head.split(' ').nth(1).unwrap().parse().unwrap();
                return (status, String::from_utf8(text[end + 4..end + 4 + length].to_vec()).unwrap());
            }
        }
        let mut buffer = [0; 65_536];
        let count = within(stream.read(&mut buffer)).await.unwrap();
        assert!(count > 0, "the server closed after {:?}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&buffer[..count]);
    }
}

pub(crate) fn post(path: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

pub(crate) async fn ask(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), request: &str) -> (u16, String) {
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    answer(stream).await
}

/// Waits until the server has closed the connection.
pub(crate) async fn closed(stream: &mut (impl AsyncRead + Unpin)) {
    let mut rest = Vec::new();
    // A reset also counts as closed.
    let _either = within(stream.read_to_end(&mut rest)).await;
}

pub(crate) fn at_once() -> Drain {
    Drain::new(Duration::ZERO, LONG)
}
