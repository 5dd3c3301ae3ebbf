//! A meter that blocks, in a thread of its own. Only one question is ever open: while it is not answered the meter is
//! busy, and no second thread is put on it.

use super::Trouble;
use hal_plug::{PlugError, PlugReading};
use power_hal::ErrorKind;
use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;
use tokio::sync::oneshot;

type Said = Result<PlugReading, PlugError>;

/// The asking side. The thread ends after it, when its last question is answered.
pub(super) struct Worker {
    asks: SyncSender<oneshot::Sender<Said>>,
    /// A question that was given up and is not answered yet.
    open: Option<oneshot::Receiver<Said>>,
}

impl Worker {
    /// Starts the thread.
    pub(super) fn start(
        name: &'static str,
        mut read: impl FnMut() -> Said + Send + 'static,
    ) -> io::Result<Self> {
        let (asks, asked) = sync_channel::<oneshot::Sender<Said>>(1);
        let thread = std::thread::Builder::new().name(name.to_owned());
        thread.spawn(move || {
            while let Ok(answer) = asked.recv() {
                // Nobody may wait for it any more.
                let _sent = answer.send(read());
            }
        })?;
        Ok(Self { asks, open: None })
    }

    /// Asks, and waits this long.
    pub(super) async fn read(&mut self, patience: Duration) -> Result<PlugReading, Trouble> {
        if let Some(open) = &mut self.open {
            // What was measured long ago is thrown away.
            if open.try_recv() == Err(oneshot::error::TryRecvError::Empty) {
                return Err(Trouble::new(ErrorKind::Busy, "the last question is not answered yet"));
            }
            self.open = None;
        }
        let (answer, mut answered) = oneshot::channel();
        if self.asks.try_send(answer).is_err() {
            return Err(Trouble::new(ErrorKind::Io, "its thread has ended"));
        }
        match tokio::time::timeout(patience, &mut answered).await {
            Ok(Ok(said)) => said.map_err(Trouble::from),
            Ok(Err(_)) => Err(Trouble::new(ErrorKind::Io, "its thread has ended")),
            Err(_) => {
                self.open = Some(answered);
                Err(Trouble::new(ErrorKind::Timeout, format!("no answer in {} s", patience.as_secs())))
            }
        }
    }
}
