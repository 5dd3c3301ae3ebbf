//! A count that grows, and those who wait for it to grow.
//!
//! Who waits is woken in the order in which the waiting began. tokio's `watch` wakes in an order drawn by chance, and a
//! server that many tasks of one thread stand on would then not do the same thing twice.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The end that grows. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wakeup(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    count: AtomicU64,
    waiting: Notify,
}

impl Wakeup {
    /// One more.
    pub(crate) fn notify(&self) {
        self.0.count.fetch_add(1, Ordering::SeqCst);
        self.0.waiting.notify_waiters();
    }

    /// Somebody who has heard everything until now.
    pub(crate) fn subscribe(&self) -> Waiter {
        Waiter { wakeup: self.clone(), heard: self.0.count.load(Ordering::SeqCst) }
    }
}

/// A wakeup for each resource: who waits for leases is not woken for pods.
#[derive(Debug, Default)]
pub(crate) struct Wakeups(Mutex<BTreeMap<Arc<str>, Wakeup>>);

impl Wakeups {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Wakeup>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something has happened to an object of this resource.
    pub(crate) fn notify(&self, resource: &str) {
        // Nobody waits for one that has none.
        let wakeup = self.all().get(resource).cloned();
        if let Some(wakeup) = wakeup {
            wakeup.notify();
        }
    }

    /// Something has happened to all of them.
    pub(crate) fn notify_all(&self) {
        self.all().values().for_each(Wakeup::notify);
    }

    /// Somebody who has heard everything of this resource until now.
    pub(crate) fn subscribe(&self, resource: &Arc<str>) -> Waiter {
        self.all().entry(resource.clone()).or_default().subscribe()
    }
}

/// The end that waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    wakeup: Wakeup,
    heard: u64,
}

impl Waiter {
    /// What has been notified until now needs no waking any more.
    pub(crate) fn catch_up(&mut self) {
        self.heard = self.wakeup.0.count.load(Ordering::SeqCst);
    }

    /// Waits until it has been notified since it was last heard.
    pub(crate) async fn notified(&mut self) {
        loop {
            let mut waiting = pin!(self.wakeup.0.waiting.notified());
            // Before the look, so that no notification falls between the two.
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
        // Red with a `watch` channel, which has eight lists of waiters and draws one of them.
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
