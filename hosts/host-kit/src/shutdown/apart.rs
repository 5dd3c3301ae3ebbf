//! A thread for tasks that work something out: whoever answers requests must not wait behind them.
//!
//! tokio's threads take turns task by task, so a task that reckons for some milliseconds keeps every connection that the
//! same thread happens to serve waiting for as long.

use futures::FutureExt;
use std::future::Future;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// The thread. It ends when the last clone is gone, and with it what still runs there.
#[derive(Clone, Debug)]
pub struct Apart {
    handle: Handle,
    /// The other end is what the thread waits for.
    _alive: Arc<oneshot::Sender<()>>,
}

impl Apart {
    /// Starts it.
    ///
    /// # Errors
    /// When the system has no thread left.
    pub fn start(name: &str) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (alive, gone) = oneshot::channel::<()>();
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            // Nobody sends anything: an error is the word that all clones are gone.
            drop(runtime.block_on(gone));
            runtime.shutdown_background();
        })?;
        Ok(Self { handle, _alive: Arc::new(alive) })
    }

    /// Runs a task there. What is returned waits for it, and says whether it came to its end without a panic.
    pub(super) fn run(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> impl Future<Output = bool> + Send + 'static {
        let running = self.handle.spawn(AssertUnwindSafe(task).catch_unwind());
        let apart = self.clone();
        async move {
            let ended = running.await;
            drop(apart);
            ended.is_ok_and(|ended| ended.is_ok())
        }
    }
}
