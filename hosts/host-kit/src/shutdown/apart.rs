//! A separate thread for tasks that compute, so that answers to requests do not wait behind them.
//!
//! On tokio's threads, one task runs after the other. A task that computes for some milliseconds would delay every
//! connection that the same thread serves.

use futures::FutureExt;
use std::future::Future;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A task that is aborted when nothing waits for it any more, like the tasks of the program.
struct Running<T>(JoinHandle<T>);

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The thread. When the last clone is dropped, the thread ends, with everything that still runs on it.
#[derive(Clone, Debug)]
pub struct Apart {
    handle: Handle,
    /// The thread waits for this sender to be dropped; `None` if there is no thread.
    _alive: Option<Arc<oneshot::Sender<()>>>,
}

impl Apart {
    /// Starts it.
    ///
    /// # Errors
    /// If the system cannot create a thread.
    pub fn start(name: &str) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (alive, gone) = oneshot::channel::<()>();
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            // Nobody sends anything: an error means that all clones are dropped.
            drop(runtime.block_on(gone));
            runtime.shutdown_background();
        })?;
        Ok(Self { handle, _alive: Some(Arc::new(alive)) })
    }

    /// Uses no thread: tasks run where the others do. For a test in one thread, whose clock must not advance meanwhile.
    ///
    /// # Panics
    /// Outside of a runtime.
    #[must_use]
    pub fn here() -> Self {
        Self { handle: Handle::current(), _alive: None }
    }

    /// Runs a task there. The future that is returned waits for it, and tells whether it ended without a panic.
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
