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
pub(crate) struct Bell(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    rung: AtomicU64,
    waiting: Notify,
}

impl Bell {
    /// One more.
    pub(crate) fn ring(&self) {
        self.0.rung.fetch_add(1, Ordering::SeqCst);
        self.0.waiting.notify_waiters();
    }

    /// Somebody who has heard everything until now.
    pub(crate) fn listen(&self) -> Ear {
        Ear { bell: self.clone(), heard: self.0.rung.load(Ordering::SeqCst) }
    }
}

/// A bell for each resource: who waits for leases is not woken for pods.
#[derive(Debug, Default)]
pub(crate) struct Bells(Mutex<BTreeMap<Arc<str>, Bell>>);

impl Bells {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Bell>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something has happened to an object of this resource.
    pub(crate) fn ring(&self, resource: &str) {
        // Nobody waits for one that has none.
        let bell = self.all().get(resource).cloned();
        if let Some(bell) = bell {
            bell.ring();
        }
    }

    /// Something has happened to all of them.
    pub(crate) fn ring_all(&self) {
        self.all().values().for_each(Bell::ring);
    }

    /// Somebody who has heard everything of this resource until now.
    pub(crate) fn listen(&self, resource: &Arc<str>) -> Ear {
        self.all().entry(resource.clone()).or_default().listen()
    }
}

/// The end that waits.
#[derive(Debug)]
pub(crate) struct Ear {
    bell: Bell,
    heard: u64,
}

impl Ear {
    /// What has rung until now needs no waking any more.
    pub(crate) fn hear(&mut self) {
        self.heard = self.bell.0.rung.load(Ordering::SeqCst);
    }

    /// Waits until it has rung since it was last heard.
    pub(crate) async fn rung(&mut self) {
        loop {
            let mut waiting = pin!(self.bell.0.waiting.notified());
            // Before the look, so that no ring falls between the two.
            waiting.as_mut().enable();
            let rung = self.bell.0.rung.load(Ordering::SeqCst);
            if rung != self.heard {
                self.heard = rung;
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
        let (bell, woken) = (Bell::default(), Arc::new(Mutex::new(Vec::new())));
        let mut tasks = Vec::new();
        for number in 0..40 {
            let (mut ear, woken) = (bell.listen(), woken.clone());
            tasks.push(tokio::spawn(async move {
                ear.rung().await;
                woken.lock().unwrap().push(number);
            }));
        }
        tokio::task::yield_now().await;
        bell.ring();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*woken.lock().unwrap(), (0..40).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn what_rang_before_somebody_waits_is_heard_once() {
        let bell = Bell::default();
        let mut ear = bell.listen();
        bell.ring();
        bell.ring();
        ear.rung().await;
        let again = tokio::time::timeout(std::time::Duration::from_millis(10), ear.rung()).await;
        assert!(again.is_err(), "nothing rang since");
        bell.ring();
        ear.hear();
        let again = tokio::time::timeout(std::time::Duration::from_millis(10), ear.rung()).await;
        assert!(again.is_err(), "it was heard");
    }
}
