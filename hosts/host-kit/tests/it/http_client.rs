//! Questions, and what a server can do to who asks.

use super::files::Folder;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use host_kit::http_client::{Carrier, ClientLimits, HttpClient, NoAnswer, Trust};
use http::{Request, Response, StatusCode, header};
use rustls::pki_types::PrivateKeyDer;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

const LIMITS: ClientLimits = ClientLimits { timeout: Duration::from_secs(10), bytes_max: 100, idle_max: 1 };

fn asks() -> HttpClient {
    HttpClient::new("tester", LIMITS, Trust::Nobody).unwrap()
}

fn get(url: &str) -> Request<Bytes> {
    Request::get(url).body(Bytes::new()).unwrap()
}

/// Reads one question, and answers so.
async fn converse(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &str) -> String {
    let mut question = Vec::new();
    while !question.ends_with(b"\r\n\r\n") {
        question.push(stream.read_u8().await.unwrap());
    }
    stream.write_all(answer.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    String::from_utf8(question).unwrap().to_ascii_lowercase()
}

/// What the client says of this answer, and what it asked.
async fn met(
    request: impl Fn(SocketAddr) -> Request<Bytes>,
    answer: &str,
) -> (Result<Bytes, NoAnswer>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = asks();
    let asked = client.ask(request(listener.local_addr().unwrap()));
    tokio::join!(asked, async { converse(listener.accept().await.unwrap().0, answer).await })
}

fn plain(address: SocketAddr) -> Request<Bytes> {
    get(&format!("http://{address}/there?a=b"))
}

#[tokio::test]
async fn an_answer_comes_whole_and_the_question_says_who_asks() {
    let (answer, question) = met(plain, "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").await;
    assert_eq!(answer, Ok(Bytes::from("hello")));
    assert!(question.starts_with("get /there?a=b http/1.1\r\n"), "{question}");
    assert!(question.contains("user-agent: tester\r\n"), "{question}");

    let own = |address| {
        let mut request = plain(address);
        for (name, value) in [(header::USER_AGENT, "another"), (header::AUTHORIZATION, "bearer x")] {
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        request
    };
    let (_, question) = met(own, "HTTP/1.1 204 No Content\r\n\r\n").await;
    for line in ["user-agent: another\r\n", "authorization: bearer x\r\n"] {
        assert!(question.contains(line), "{question}");
    }
}

#[tokio::test]
async fn an_answer_without_success_is_none_and_a_redirect_is_not_followed() {
    for (answer, status) in [
        ("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", StatusCode::NOT_FOUND),
        ("HTTP/1.1 302 Found\r\nlocation: /here\r\ncontent-length: 0\r\n\r\n", StatusCode::FOUND),
    ] {
        assert_eq!(met(plain, answer).await.0, Err(NoAnswer::Refused(status)));
    }
    assert_eq!(NoAnswer::Refused(StatusCode::NOT_FOUND).to_string(), "it answers 404 Not Found");
}

#[tokio::test]
async fn an_answer_that_is_too_large_or_breaks_off_is_none() {
    let large = format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(101));
    let broken = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhel";
    for (answer, why) in [(large.as_str(), "its answer: length limit exceeded"), (broken, "its answer: ")] {
        let told = met(plain, answer).await.0.unwrap_err();
        assert!(matches!(told, NoAnswer::Unreadable(_)), "{told:?}");
        assert!(told.to_string().starts_with(why), "{told}");
    }
    let all = format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(100));
    assert_eq!(met(plain, &all).await.0.map(|body| body.len()), Ok(100), "the limit itself is fine");
}

#[tokio::test]
async fn who_does_not_answer_or_is_not_there_is_told_from_the_other() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let timeout = Duration::from_millis(50);
    let client = HttpClient::new("tester", ClientLimits { timeout, ..LIMITS }, Trust::Nobody).unwrap();
    let late = client.ask(plain(address)).await.unwrap_err();
    assert_eq!((&late, late.to_string().as_str()), (&NoAnswer::Late(timeout), "no answer in 50ms"));
    drop(listener);
    let gone = asks().ask(plain(address)).await.unwrap_err();
    assert!(matches!(&gone, NoAnswer::Failed(why) if why.contains("refused")), "{gone:?}");
}

#[tokio::test]
async fn a_server_with_tls_is_believed_by_the_authorities_in_the_file_alone() {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let folder = Folder::new();
    let file = folder.write("ca.pem", &made.cert.pem());
    for (trust, believed) in [(Trust::File(&file), true), (Trust::Nobody, false)] {
        let client = HttpClient::new("tester", LIMITS, trust).unwrap();
        let serve = async {
            // A client that does not believe breaks the handshake off.
            let Ok(stream) = acceptor.accept(listener.accept().await.unwrap().0).await else { return };
            converse(stream, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
        };
        let (answer, ()) = tokio::join!(client.ask(get(&url)), serve);
        match answer {
            Ok(body) => assert!(believed && body == "ok"),
            Err(why) => assert!(!believed && why.to_string().contains("invalid peer certificate"), "{why}"),
        }
    }
}

/// Carries a question nowhere, or for as long as anybody waits.
struct Nowhere {
    hangs: bool,
}

impl Carrier for Nowhere {
    fn carry(&self, request: Request<Bytes>) -> BoxFuture<'static, io::Result<Response<Bytes>>> {
        let hangs = self.hangs;
        async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            Ok(Response::new(request.uri().path().to_owned().into()))
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_carried_meets_the_same_limits() {
    let by = |hangs| HttpClient::carried("tester", LIMITS, Arc::new(Nowhere { hangs }));
    assert_eq!(by(false).ask(get("http://x/path")).await, Ok(Bytes::from("/path")));
    let long = get(&format!("http://x/{}", "y".repeat(100)));
    assert!(matches!(by(false).ask(long).await, Err(NoAnswer::Unreadable(_))));
    assert_eq!(by(true).ask(get("http://x/")).await, Err(NoAnswer::Late(LIMITS.timeout)));
}
