//! One of the system's programs, in a runtime of its own, so that it can be killed like a process: all of its tasks
//! stop, and no shutdown code runs.

use host_kit::shutdown::{self, Ending, Stop, Tasks, Trigger};
use std::future::Future;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};

/// How long its tasks may take to stop after a request, so that the end of the demo is not delayed.
const END_WITHIN: Duration = Duration::from_secs(2);

/// A running program.
#[derive(Debug)]
pub(super) struct Host {
    name: &'static str,
    threads: Threads,
    trigger: Trigger,
    ended: oneshot::Receiver<Ending>,
}

/// A runtime that may be dropped inside another one, where blocking until its end would panic.
#[derive(Debug)]
struct Threads(Option<Runtime>);

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Host {
    /// Starts a program. `begin` starts its tasks and returns its addresses. It runs on a thread of its own, as a
    /// program's `main` does, because its future need not be `Send`; the futures of its tasks are.
    pub(super) async fn start<T, F>(
        name: &'static str,
        begin: impl FnOnce(Stop, Tasks) -> F + Send + 'static,
    ) -> Result<(Self, T), String>
    where
        T: Send + 'static,
        F: Future<Output = Result<(T, Tasks), String>>,
    {
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name(name).enable_all().build();
        let no_thread = |error| format!("the thread of the {name} cannot be started: {error}");
        let runtime = runtime.map_err(no_thread)?;
        let (trigger, stop) = shutdown::pair();
        let (began, begun) = oneshot::channel();
        let handle = runtime.handle().clone();
        // From here on, dropping this future ends the program.
        let threads = Threads(Some(runtime));
        let beginning = move || {
            // The receiver may have given up.
            let _told = began.send(handle.block_on(begin(stop, Tasks::new())));
        };
        std::thread::Builder::new().name(name.to_owned()).spawn(beginning).map_err(no_thread)?;
        let begun = begun.await;
        let (over, ended) = oneshot::channel();
        let host = Self { name, threads, trigger: trigger.clone(), ended };
        let (addresses, tasks) = match begun {
            Ok(Ok(begun)) => begun,
            Ok(Err(why)) => return Err(format!("the {name} did not start: {why}")),
            Err(_) => return Err(format!("the {name} failed while it started")),
        };
        if let Some(runtime) = &host.threads.0 {
            runtime.spawn(async move {
                let (_nobody, signals) = mpsc::channel(1);
                let _told = over.send(tasks.run(trigger, signals, END_WITHIN).await);
            });
        }
        Ok((host, addresses))
    }

    /// Why it has ended, if it ended without a request.
    pub(super) fn failure(&mut self) -> Option<String> {
        match self.ended.try_recv() {
            Ok(ending) => Some(format!("the {} has ended by itself: {ending}", self.name)),
            Err(oneshot::error::TryRecvError::Closed) => Some(format!("the {} broke", self.name)),
            Err(oneshot::error::TryRecvError::Empty) => None,
        }
    }

    /// Ends it at once, without a shutdown.
    pub(super) fn kill(self) {
        drop(self);
    }

    /// Requests a stop, and waits for a short time.
    pub(super) async fn stop(mut self) {
        self.trigger.request("the demo ends");
        // Remaining tasks end with its threads.
        let _ended = tokio::time::timeout(END_WITHIN, &mut self.ended).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A host that records whether it was told to stop.
    async fn host(told: Arc<AtomicBool>) -> Host {
        let begin = |stop: Stop, mut tasks: Tasks| async move {
            tasks.spawn("wait", async move {
                stop.requested().await;
                told.store(true, Ordering::SeqCst);
            });
            Ok((7, tasks))
        };
        let (host, given) = Host::start("tester", begin).await.unwrap();
        assert_eq!(given, 7);
        host
    }

    #[tokio::test]
    async fn whoever_is_killed_is_told_nothing_and_whoever_is_stopped_is() {
        let told = Arc::new(AtomicBool::new(false));
        let mut killed = host(told.clone()).await;
        assert_eq!(killed.failure(), None);
        killed.kill();
        assert!(!told.load(Ordering::SeqCst));
        host(told.clone()).await.stop().await;
        assert!(told.load(Ordering::SeqCst));
    }

    #[tokio::test]
    async fn a_start_that_nobody_waits_for_any_more_ends() {
        let never = |_: Stop, _: Tasks| std::future::pending::<Result<((), Tasks), String>>();
        let start = Host::start("tester", never);
        assert!(tokio::time::timeout(Duration::from_millis(50), start).await.is_err());
    }

    #[tokio::test]
    async fn who_does_not_start_says_why_and_who_ends_by_itself_is_noticed() {
        let refused =
            Host::start("tester", |_, _| async { Err::<((), Tasks), _>("no port".to_owned()) }).await;
        assert_eq!(refused.map(drop).unwrap_err(), "the tester did not start: no port");
        let quitter = |_: Stop, mut tasks: Tasks| async move {
            tasks.spawn("short", async {});
            Ok(((), tasks))
        };
        let (mut host, ()) = Host::start("tester", quitter).await.unwrap();
        let why = loop {
            match host.failure() {
                Some(why) => break why,
                None => tokio::task::yield_now().await,
            }
        };
        assert!(why.contains("ended by itself") && why.contains("short"), "{why}");
    }
}
