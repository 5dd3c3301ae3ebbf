//! The signals that end a command, as something that can be waited for.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// Interrupts of this process, in the order in which they came.
#[derive(Debug)]
pub(crate) struct Interrupts(Receiver<i32>);

impl Interrupts {
    /// Takes the signals over from the kernel's default, which would end the process.
    ///
    /// # Errors
    /// When the kernel does not hand them over.
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

    /// Waits for so long; true if a signal came.
    pub(crate) fn within(&self, wait: Duration) -> bool {
        match self.0.recv_timeout(wait) {
            Ok(_) => true,
            Err(RecvTimeoutError::Timeout) => false,
            // The thread of the signals never ends before this does; without it nobody could end us kindly.
            Err(RecvTimeoutError::Disconnected) => true,
        }
    }
}
