//! What stands between the operators and the real Prometheus: it hands questions on, or misbehaves as a story says.

use crate::SystemError;
use crate::exporter::head;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// What it does with questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyMood {
    /// It hands them on. Where the server is away, the connection ends.
    Honest,
    /// It answers something else.
    Garbage,
    /// It hands them on half a minute later.
    Slow,
    /// It hands each question on twice. Where the same is asked again, the connection ends.
    Twice,
}

#[derive(Debug)]
struct Asked {
    mood: ProxyMood,
    /// How often each question was asked in this mood, by its first line.
    often: BTreeMap<String, u32>,
}

/// The proxy. Dropping it ends it.
#[derive(Debug)]
pub struct FaultyProxy {
    address: SocketAddr,
    asked: Arc<Mutex<Asked>>,
    task: JoinHandle<()>,
}

impl FaultyProxy {
    /// Starts it before the server at this address.
    ///
    /// # Errors
    /// If there is no port.
    pub async fn before(server: SocketAddr) -> Result<Self, SystemError> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let asked = Arc::new(Mutex::new(Asked { mood: ProxyMood::Honest, often: BTreeMap::new() }));
        let serving = asked.clone();
        let task = tokio::spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                // A connection that breaks off is the operator's or the server's.
                open.spawn(hand_on(stream, server, serving.clone()));
                while open.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, asked, task })
    }

    /// Does this with every question from now on.
    pub fn is(&self, mood: ProxyMood) {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Asked { mood, often: BTreeMap::new() };
    }

    /// Where it is.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for FaultyProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One question for each connection, so that another mood counts at once.
async fn hand_on(mut stream: TcpStream, server: SocketAddr, asked: Arc<Mutex<Asked>>) -> std::io::Result<()> {
    let question = String::from_utf8_lossy(&head(&mut stream).await?).into_owned();
    let (mood, often) = {
        let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        let line = question.lines().next().unwrap_or_default().to_owned();
        let often = asked.often.entry(line).or_default();
        *often += 1;
        let often = *often;
        (asked.mood, often)
    };
    match mood {
        ProxyMood::Garbage => {
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 15\r\nconnection: close\r\n\r\n<html>no</html>";
            stream.write_all(answer).await?;
            return stream.shutdown().await;
        }
        ProxyMood::Slow => tokio::time::sleep(Duration::from_secs(30)).await,
        ProxyMood::Twice if often > 2 => return Ok(()),
        ProxyMood::Twice | ProxyMood::Honest => {}
    }
    let mut server = TcpStream::connect(server).await?;
    server.write_all(question.replacen("\r\n", "\r\nconnection: close\r\n", 1).as_bytes()).await?;
    tokio::io::copy(&mut server, &mut stream).await?;
    stream.shutdown().await
}
