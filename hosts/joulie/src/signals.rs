//! The signals that end a command, for code that waits for them.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// Signals to this process, in the order of arrival.
#[derive(Debug)]
pub(crate) struct Interrupts(Receiver<i32>);

impl Interrupts {
    /// Installs handlers, because the kernel's default action would end the process.
    ///
    /// # Errors
    /// If the handlers cannot be installed.
    pub(crate) fn new() -> io::Result<Self> {
        let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
        let (send, receive) = channel();
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for signal in signals.forever() {
                if send.send(signal).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self(receive))
    }

    /// Waits for this time; returns true if a signal arrived.
    pub(crate) fn within(&self, wait: Duration) -> bool {
        match self.0.recv_timeout(wait) {
            Ok(_) => true,
            Err(RecvTimeoutError::Timeout) => false,
            // The signal thread never ends before this object does. If it did, the process could not be stopped
            // gracefully, so this counts as a signal.
            Err(RecvTimeoutError::Disconnected) => true,
        }
    }
}
