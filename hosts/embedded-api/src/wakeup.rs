//! A counter and the tasks that wait for it to increase.
//!
//! Tasks are woken in the order in which they began to wait. tokio's `watch` wakes tasks in a random order: then many
//! tasks on one thread that use the server would not run in the same order twice.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The notifying side. Clones share the counter.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wakeup(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    count: AtomicU64,
    waiting: Notify,
}

impl Wakeup {
    /// Increments the counter and wakes the waiting tasks.
    pub(crate) fn notify(&self) {
        self.0.count.fetch_add(1, Ordering::SeqCst);
        self.0.waiting.notify_waiters();
    }

    /// A waiter that has seen all notifications so far.
    pub(crate) fn subscribe(&self) -> Waiter {
        Waiter { wakeup: self.clone(), heard: self.0.count.load(Ordering::SeqCst) }
    }
}

/// A wakeup for each resource, so that a task that waits for leases is not woken for pods.
#[derive(Debug, Default)]
pub(crate) struct Wakeups(Mutex<BTreeMap<Arc<str>, Wakeup>>);

impl Wakeups {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Wakeup>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notifies the waiters of one resource.
    pub(crate) fn notify(&self, resource: &str) {
        // Without an entry there is no waiter.
        let wakeup = self.all().get(resource).cloned();
        if let Some(wakeup) = wakeup {
            wakeup.notify();
        }
    }

    /// Notifies the waiters of all resources.
    pub(crate) fn notify_all(&self) {
        self.all().values().for_each(Wakeup::notify);
    }

    /// A waiter that has seen all notifications of this resource so far.
    pub(crate) fn subscribe(&self, resource: &Arc<str>) -> Waiter {
        self.all().entry(resource.clone()).or_default().subscribe()
    }
}

/// The waiting side.
#[derive(Debug)]
pub(crate) struct Waiter {
    wakeup: Wakeup,
    heard: u64,
}

impl Waiter {
    /// Marks all notifications so far as seen.
    pub(crate) fn catch_up(&mut self) {
        self.heard = self.wakeup.0.count.load(Ordering::SeqCst);
    }

    /// Waits for a notification that this waiter has not seen.
    pub(crate) async fn notified(&mut self) {
        loop {
            let mut waiting = pin!(self.wakeup.0.waiting.notified());
            // Register before reading the counter, so that no notification is lost in between.
            waiting.as_mut().enable();
            let count = self.wakeup.0.count.load(Ordering::SeqCst);
            if count != self.heard {
                self.heard = count;
                return;
            }
            waiting.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[tokio::test]
    async fn whoever_waits_longer_is_woken_earlier() {
        // This test fails with a `watch` channel, which has eight lists of waiters and picks one at random.
        let (wakeup, woken) = (Wakeup::default(), Arc::new(Mutex::new(Vec::new())));
        let mut tasks = Vec::new();
        for number in 0..40 {
            let (mut waiter, woken) = (wakeup.subscribe(), woken.clone());
            tasks.push(tokio::spawn(async move {
                waiter.notified().await;
                woken.lock().unwrap().push(number);
            }));
        }
        tokio::task::yield_now().await;
        wakeup.notify();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*woken.lock().unwrap(), (0..40).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn what_rang_before_somebody_waits_is_heard_once() {
        let wakeup = Wakeup::default();
        let mut waiter = wakeup.subscribe();
        wakeup.notify();
        wakeup.notify();
        waiter.notified().await;
        let again = tokio::time::timeout(std::time::Duration::from_millis(10), waiter.notified()).await;
        assert!(again.is_err(), "nothing rang since");
        wakeup.notify();
        waiter.catch_up();
        let again = tokio::time::timeout(std::time::Duration::from_millis(10), waiter.notified()).await;
        assert!(again.is_err(), "it was heard");
    }
}
