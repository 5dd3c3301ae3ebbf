//! The log lines of one test, caught on its thread: tests here run on a runtime of one thread.

use std::io::Write;
use std::sync::{Arc, Mutex};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;

/// What has been logged so far.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    /// Catches what this thread logs from now on, down to debug.
    pub(crate) fn catch() -> (Self, DefaultGuard) {
        let lines = Self::default();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(lines.clone())
            .with_ansi(false)
            .with_max_level(tracing::Level::DEBUG)
            .finish();
        (lines, tracing::subscriber::set_default(subscriber))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// The lines with all of these parts.
    pub(crate) fn with(&self, parts: &[&str]) -> Vec<String> {
        let all = self.text();
        all.lines().filter(|line| parts.iter().all(|part| line.contains(part))).map(str::to_owned).collect()
    }

    /// Waits until there is a line with all of these parts, and returns it.
    pub(crate) async fn wait_for(&self, parts: &[&str]) -> String {
        for _ in 0..6000 {
            if let Some(line) = self.with(parts).first() {
                return line.clone();
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        panic!("no line with {parts:?} in\n{}", self.text());
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}
