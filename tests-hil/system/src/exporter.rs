//! An exporter for the real Prometheus: it shows the lines that a story gives it.

use crate::SystemError;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The exporter. Dropping it ends it.
#[derive(Debug)]
pub struct Exporter {
    address: SocketAddr,
    shown: Arc<Mutex<String>>,
    task: JoinHandle<()>,
}

impl Exporter {
    /// Starts it, with nothing to show.
    ///
    /// # Errors
    /// If there is no port.
    pub async fn start() -> Result<Self, SystemError> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, shown) = (listener.local_addr()?, Arc::<Mutex<String>>::default());
        let serving = shown.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let text = serving.lock().unwrap_or_else(PoisonError::into_inner).clone();
                // A scrape that breaks off is the scraper's.
                let _ = answer(stream, &text).await;
            }
        });
        Ok(Self { address, shown, task })
    }

    /// Shows these lines from now on, in the text format.
    pub fn show(&self, lines: &str) {
        lines.clone_into(&mut self.shown.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Where it is.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The head of a request: to its empty line.
pub(crate) async fn head(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") && request.len() < 64 * 1024 {
        request.push(stream.read_u8().await?);
    }
    Ok(request)
}

async fn answer(mut stream: TcpStream, text: &str) -> std::io::Result<()> {
    head(&mut stream).await?;
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\nconnection: close\r\n";
    stream.write_all(format!("{head}content-length: {}\r\n\r\n{text}", text.len()).as_bytes()).await?;
    stream.shutdown().await
}
