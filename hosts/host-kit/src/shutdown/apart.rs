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
use tokio::task::JoinHandle;

/// A task that ends with whoever waits for it, as the tasks of the program do.
struct Running<T>(JoinHandle<T>);

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The thread. It ends when the last clone is gone, and with it what still runs there.
#[derive(Clone, Debug)]
pub struct Apart {
    handle: Handle,
    /// The other end is what the thread waits for; none where there is no thread.
    _alive: Option<Arc<oneshot::Sender<()>>>,
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
        Ok(Self { handle, _alive: Some(Arc::new(alive)) })
    }

    /// No thread: tasks run where the others do. For a test in one thread, whose time must not run on meanwhile.
    ///
    /// # Panics
    /// Outside of a runtime.
    #[must_use]
    pub fn here() -> Self {
        Self { handle: Handle::current(), _alive: None }
    }

    /// Runs a task there. What is returned waits for it, and says whether it came to its end without a panic.
    pub(super) fn run(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> impl Future<Output = bool> + Send + 'static {
        let mut running = Running(self.handle.spawn(AssertUnwindSafe(task).catch_unwind()));
        let apart = self.clone();
        async move {
            let ended = (&mut running.0).await;
            drop(apart);
            ended.is_ok_and(|ended| ended.is_ok())
        }
    }
}
