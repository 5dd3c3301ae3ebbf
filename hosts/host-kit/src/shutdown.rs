//! Ends a program: one request to all tasks, a deadline, and a second signal that ends it at once.
//!
//! [`Tasks::run`] waits for the first reason to end (a signal, or a task that ended unexpectedly), notifies every task
//! through [`Stop`], and waits for them until the deadline. In every case `main` returns the exit status of the ending.

mod apart;
pub mod status;
pub use apart::Apart;

use std::fmt;
use std::future::Future;
use std::io;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use tokio::signal::unix::SignalKind;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// Requests all tasks to end.
#[derive(Clone, Debug)]
pub struct Trigger(watch::Sender<bool>);

/// Receives the request to end.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

/// Creates a trigger and the stop that it notifies.
pub fn pair() -> (Trigger, Stop) {
    let (sender, receiver) = watch::channel(false);
    (Trigger(sender), Stop(receiver))
}

impl Trigger {
    /// Requests the end, and logs why; a second request changes nothing.
    pub fn request(&self, why: &str) {
        if !self.quietly() {
            tracing::info!("shutting down: {why}");
        }
    }

    /// Requests the end without a log line; returns whether it was requested before.
    pub(crate) fn quietly(&self) -> bool {
        self.0.send_replace(true)
    }
}

impl Stop {
    /// Whether the end has been requested.
    pub fn is_requested(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the end is requested; dropping the trigger counts as a request.
    pub async fn requested(&self) {
        let mut asked = self.0.clone();
        // An error means that the trigger was dropped.
        drop(asked.wait_for(|asked| *asked).await);
    }

    /// Waits for `time`; returns true early if the end is requested.
    pub async fn requested_within(&self, time: Duration) -> bool {
        tokio::time::timeout(time, self.requested()).await.is_ok()
    }
}

/// A signal that ends programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownSignal {
    /// SIGTERM, which the kubelet sends.
    Terminate,
    /// SIGINT, which a person at a terminal sends.
    Interrupt,
}

/// Starts to listen for SIGTERM and SIGINT.
pub fn signals() -> io::Result<mpsc::Receiver<ShutdownSignal>> {
    let mut terminate = tokio::signal::unix::signal(SignalKind::terminate())?;
    let mut interrupt = tokio::signal::unix::signal(SignalKind::interrupt())?;
    let (sender, receiver) = mpsc::channel(4);
    tokio::spawn(async move {
        loop {
            let signal = tokio::select! {
                _ = terminate.recv() => ShutdownSignal::Terminate,
                _ = interrupt.recv() => ShutdownSignal::Interrupt,
            };
            if sender.send(signal).await.is_err() {
                return;
            }
        }
    });
    Ok(receiver)
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It was requested, and every task ended in time.
    Clean,
    /// A second signal came.
    Forced(ShutdownSignal),
    /// These tasks had not ended at the deadline.
    Unfinished(Vec<&'static str>),
    /// This task ended by itself, or panicked.
    Failed(&'static str),
}

impl Ending {
    /// The exit status of the process.
    pub fn code(&self) -> u8 {
        let status = match self {
            Self::Clean => status::CLEAN,
            Self::Unfinished(_) | Self::Failed(_) => status::FAILED,
            Self::Forced(ShutdownSignal::Interrupt) => status::INTERRUPTED,
            Self::Forced(ShutdownSignal::Terminate) => status::TERMINATED,
        };
        status.code
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clean => f.write_str("every task has ended"),
            Self::Forced(signal) => write!(f, "a second signal ({signal:?}) ended the program at once"),
            Self::Unfinished(tasks) => {
                write!(f, "the deadline passed while these still ran: {}", tasks.join(", "))
            }
            Self::Failed(task) => write!(f, "the task {task} ended although nobody asked it to"),
        }
    }
}

/// The tasks of a program. If one of them ends before it was asked to, all end.
#[derive(Debug)]
pub struct Tasks {
    set: JoinSet<(&'static str, bool)>,
    running: Vec<&'static str>,
}

impl Tasks {
    /// Starts without tasks.
    #[expect(clippy::new_without_default, reason = "an empty program is made on purpose")]
    pub fn new() -> Self {
        Self { set: JoinSet::new(), running: Vec::new() }
    }

    /// Starts a task, which must end when its [`Stop`] requests it and not before.
    pub fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.running.push(name);
        self.set.spawn(async move { (name, AssertUnwindSafe(task).catch_unwind().await.is_ok()) });
    }

    /// Starts a task on a separate thread, as [`Tasks::spawn`] does on the program's threads.
    pub fn spawn_on(
        &mut self,
        apart: &Apart,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        self.running.push(name);
        let running = apart.run(task);
        self.set.spawn(async move { (name, running.await) });
    }

    /// Runs until the program ends.
    pub async fn run(
        mut self,
        trigger: Trigger,
        mut signals: mpsc::Receiver<ShutdownSignal>,
        deadline: Duration,
    ) -> Ending {
        let asked = Stop(trigger.0.subscribe());
        // In this order: a task that ended because it was asked to is not a failure, even if both are seen at once.
        let failed = tokio::select! {
            biased;
            Some(signal) = signals.recv() => {
                trigger.request(&format!("signal {signal:?}; a second one ends the program at once"));
                None
            }
            () = asked.requested() => None,
            Some(name) = self.next() => Some(name),
        };
        // The end of a task that was asked to end may be seen before the request is.
        let failed = failed.filter(|_| !asked.is_requested());
        if let Some(name) = failed {
            tracing::error!(
                "the task {name} ended although nobody asked it to; the program ends so that it is restarted"
            );
            trigger.request("a task ended");
        }
        let ending = tokio::select! {
            biased;
            () = self.all() => failed.map_or(Ending::Clean, Ending::Failed),
            Some(signal) = signals.recv() => Ending::Forced(signal),
            () = tokio::time::sleep(deadline) => Ending::Unfinished(self.running.clone()),
        };
        match &ending {
            Ending::Clean => tracing::info!("{ending}"),
            Ending::Forced(_) | Ending::Unfinished(_) | Ending::Failed(_) => tracing::error!("{ending}"),
        }
        ending
    }

    /// The next task that ends; `None` when there is none any more.
    async fn next(&mut self) -> Option<&'static str> {
        // A task that was aborted has no name, but tasks are never aborted.
        let (name, sound) = self.set.join_next().await?.ok()?;
        if !sound {
            tracing::error!("the task {name} panicked; this is a defect of the program");
        }
        if let Some(at) = self.running.iter().position(|one| *one == name) {
            self.running.remove(at);
        }
        Some(name)
    }

    async fn all(&mut self) {
        while self.next().await.is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(20);
    const LATE: Duration = Duration::from_secs(60);

    async fn end(tasks: Tasks, trigger: Trigger, said: &[ShutdownSignal], deadline: Duration) -> Ending {
        let (sender, receiver) = mpsc::channel(4);
        for signal in said {
            sender.send(*signal).await.unwrap();
        }
        tokio::time::timeout(LATE, tasks.run(trigger, receiver, deadline)).await.expect("it ends")
    }

    #[tokio::test]
    async fn a_signal_reaches_every_task_and_the_program_ends_when_the_last_has() {
        let (trigger, stop) = pair();
        let mut tasks = Tasks::new();
        for name in ["watch", "serve"] {
            let stop = stop.clone();
            tasks.spawn(name, async move { stop.requested().await });
        }
        assert_eq!(end(tasks, trigger, &[ShutdownSignal::Terminate], LATE).await, Ending::Clean);
    }

    #[tokio::test]
    async fn a_task_that_ends_as_it_was_asked_is_no_failure_whoever_is_noticed_first() {
        for _ in 0..64 {
            let (trigger, stop) = pair();
            let mut tasks = Tasks::new();
            tasks.spawn("quick", async move { stop.requested().await });
            trigger.request("a test");
            tokio::task::yield_now().await;
            assert_eq!(end(tasks, trigger, &[], LATE).await, Ending::Clean);
        }
    }

    #[tokio::test]
    async fn a_second_signal_does_not_wait() {
        let (trigger, _stop) = pair();
        let mut tasks = Tasks::new();
        tasks.spawn("stubborn", std::future::pending());
        let ending = end(tasks, trigger, &[ShutdownSignal::Terminate, ShutdownSignal::Interrupt], LATE).await;
        assert_eq!((ending.code(), ending), (130, Ending::Forced(ShutdownSignal::Interrupt)));
    }

    #[tokio::test]
    async fn a_task_that_does_not_end_is_named_at_the_deadline() {
        let (trigger, stop) = pair();
        let mut tasks = Tasks::new();
        tasks.spawn("quick", async move { stop.requested().await });
        tasks.spawn("stubborn", std::future::pending());
        assert_eq!(
            end(tasks, trigger, &[ShutdownSignal::Terminate], SOON).await,
            Ending::Unfinished(vec!["stubborn"])
        );
    }

    #[tokio::test]
    async fn a_task_that_breaks_ends_the_program_and_not_only_itself() {
        for panics in [true, false] {
            let (trigger, stop) = pair();
            let mut tasks = Tasks::new();
            tasks.spawn("watch", async move { stop.requested().await });
            tasks.spawn("broken", async move { assert!(!panics, "on purpose") });
            assert_eq!(end(tasks, trigger, &[], LATE).await, Ending::Failed("broken"));
        }
    }

    #[tokio::test]
    async fn a_task_apart_is_one_of_the_program_s_on_another_thread() {
        let (trigger, stop) = pair();
        let (mut tasks, apart) = (Tasks::new(), Apart::start("apart").unwrap());
        let (told, names) = mpsc::unbounded_channel();
        let mut names = names;
        for name in ["watch", "keep"] {
            let (stop, told) = (stop.clone(), told.clone());
            tasks.spawn_on(&apart, name, async move {
                // It may start others, and use the clock.
                let here = async { std::thread::current().name().map(str::to_owned) };
                told.send(tokio::spawn(here).await.unwrap()).unwrap();
                tokio::time::sleep(Duration::from_millis(1)).await;
                stop.requested().await;
            });
        }
        drop(apart);
        for _ in 0..2 {
            assert_eq!(names.recv().await.unwrap().as_deref(), Some("apart"));
        }
        assert_eq!(end(tasks, trigger, &[ShutdownSignal::Terminate], LATE).await, Ending::Clean);

        for panics in [true, false] {
            let ((trigger, _stop), mut tasks) = (pair(), Tasks::new());
            let apart = Apart::start("apart").unwrap();
            tasks.spawn_on(&apart, "broken", async move { assert!(!panics, "on purpose") });
            assert_eq!(end(tasks, trigger, &[], LATE).await, Ending::Failed("broken"));
        }
    }

    #[tokio::test]
    async fn a_task_apart_ends_with_the_tasks_of_its_program() {
        let (held, mut gone) = mpsc::channel::<()>(1);
        let mut tasks = Tasks::new();
        tasks.spawn_on(&Apart::here(), "watch", async move {
            std::future::pending::<()>().await;
            drop(held);
        });
        tokio::task::yield_now().await;
        drop(tasks);
        // Fails if the task is only waited for: it then continues to run.
        assert_eq!(tokio::time::timeout(LATE, gone.recv()).await, Ok(None));
    }

    #[tokio::test]
    async fn tasks_that_end_because_they_were_asked_to_are_no_failure_however_late_that_is_seen() {
        for _ in 0..64 {
            let (trigger, stop) = pair();
            let mut tasks = Tasks::new();
            tasks.spawn("watch", async move { stop.requested().await });
            trigger.request("a test");
            tokio::task::yield_now().await;
            assert_eq!(end(tasks, trigger, &[], LATE).await, Ending::Clean);
        }
    }

    #[tokio::test]
    async fn a_trigger_that_is_gone_has_asked() {
        let (trigger, stop) = pair();
        assert!(!stop.requested_within(SOON).await);
        drop(trigger);
        assert!(stop.requested_within(LATE).await);
    }
}
