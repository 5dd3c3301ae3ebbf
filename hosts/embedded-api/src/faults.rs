//! Faults on demand: what an unreliable network, a busy API server and its restarts do to a client.

use crate::failure::{Failure, Reason};
use crate::request::Verb;
use crate::wakeup::{Waiter, Wakeup};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Selects the requests that a fault affects. A condition that is not set matches everything.
#[derive(Debug, Clone, Default)]
pub struct Matching {
    verb: Option<Verb>,
    resource: Option<String>,
    client: Option<String>,
}

impl Matching {
    /// Every request for objects.
    pub fn any() -> Self {
        Self::default()
    }

    /// Only requests with this verb.
    pub fn verb(mut self, verb: Verb) -> Self {
        self.verb = Some(verb);
        self
    }

    /// Only requests for this resource, by its plural: `nodetwins`.
    pub fn resource(mut self, plural: &str) -> Self {
        self.resource = Some(plural.to_owned());
        self
    }

    /// Only a client whose user agent begins with this name, or whose field manager has it.
    pub fn client(mut self, name: &str) -> Self {
        self.client = Some(name.to_owned());
        self
    }

    fn meets(&self, origin: &Origin) -> bool {
        self.verb.is_none_or(|verb| origin.verb == Some(verb))
            && self.resource.as_ref().is_none_or(|plural| *plural == origin.resource)
            && self.client.as_ref().is_none_or(|name| origin.is(name))
    }
}

/// What happens to a request instead of its regular answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InjectedResponse {
    /// 429 with `Retry-After`.
    TooManyRequests {
        /// Seconds.
        retry_after: u64,
    },
    /// 500.
    InternalError,
    /// 403: the role of the client does not allow it.
    Forbidden,
    /// 409: the object has been modified.
    Conflict,
    /// The connection is dropped before the request is executed.
    ConnectionLost,
    /// The request is executed and its answer is lost.
    AnswerLost,
}

/// How a client is disconnected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// Connections are refused; open watches end.
    Refused,
    /// No request is answered until the partition heals; then the waiting requests fail. Open watches are silent.
    Silent,
}

/// The client and the target of a request.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    /// The user agent.
    pub(crate) client: String,
    pub(crate) manager: Option<String>,
    pub(crate) verb: Option<Verb>,
    pub(crate) resource: String,
}

impl Origin {
    fn is(&self, name: &str) -> bool {
        self.client.starts_with(name) || self.manager.as_deref() == Some(name)
    }
}

/// What a fault did to a request.
pub(crate) enum Injected {
    Answer(Failure),
    /// Execute the request and lose the answer.
    Lost,
}

/// Whether a watch may send events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    Flows,
    Stalled,
    Ended,
}

/// The handle for the faults of a server. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct ApiFaults(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Wakeup,
}

#[derive(Debug, Default)]
struct State {
    latency: Duration,
    planned: Vec<(Matching, InjectedResponse, usize)>,
    partitions: BTreeMap<String, Loss>,
    stalled: Vec<Matching>,
    /// The open watches, and whether a fault has ended them.
    watches: BTreeMap<u64, (Origin, bool)>,
    opened: u64,
}

impl State {
    fn loss(&self, origin: &Origin) -> Option<Loss> {
        self.partitions.iter().find(|(name, _)| origin.is(name)).map(|(_, loss)| *loss)
    }
}

impl ApiFaults {
    /// Delays every request by this time.
    pub fn latency(&self, latency: Duration) {
        self.change(|state| state.latency = latency);
    }

    /// The next `times` requests that match get `answer`.
    pub fn fail(&self, matching: Matching, answer: InjectedResponse, times: usize) {
        self.change(|state| state.planned.push((matching, answer, times)));
    }

    /// Ends the open watches that match.
    pub fn drop_watches(&self, matching: &Matching) {
        self.change(|state| {
            for (origin, ended) in state.watches.values_mut() {
                *ended |= matching.meets(origin);
            }
        });
    }

    /// Silences the matching watches, present and future, until [`ApiFaults::heal`].
    pub fn stall_watches(&self, matching: Matching) {
        self.change(|state| state.stalled.push(matching));
    }

    /// Disconnects a client, selected by the beginning of its user agent or by its field manager.
    pub fn partition(&self, client: &str, loss: Loss) {
        self.change(|state| {
            state.partitions.insert(client.to_owned(), loss);
            for (origin, ended) in state.watches.values_mut() {
                *ended |= loss == Loss::Refused && origin.is(client);
            }
        });
    }

    /// Puts the faults that were set on another handle in place of all that are here. Of those that are on both none is off for a
    /// moment.
    pub fn replace(&self, others: &Self) {
        let State { latency, planned, partitions, stalled, .. } = std::mem::take(&mut *others.state());
        self.change(|state| {
            for (origin, ended) in state.watches.values_mut() {
                *ended |= partitions.iter().any(|(name, loss)| *loss == Loss::Refused && origin.is(name));
            }
            (state.latency, state.planned) = (latency, planned);
            (state.partitions, state.stalled) = (partitions, stalled);
        });
    }

    /// Ends all faults.
    pub fn heal(&self) {
        self.change(|state| {
            state.latency = Duration::ZERO;
            state.planned.clear();
            state.partitions.clear();
            state.stalled.clear();
        });
    }

    /// The number of open watches that match.
    pub fn open_watches(&self, matching: &Matching) -> usize {
        self.state().watches.values().filter(|(origin, ended)| !ended && matching.meets(origin)).count()
    }

    /// How many planned answers are still outstanding.
    pub fn left(&self) -> usize {
        self.state().planned.iter().map(|(_, _, times)| times).sum()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.0.changed.notify();
    }

    /// A waiter that is notified whenever the faults change.
    pub(crate) fn changes(&self) -> Waiter {
        self.0.changed.subscribe()
    }

    /// Applies the faults of a request before it is executed.
    pub(crate) async fn before(&self, origin: &Origin) -> io::Result<Option<Injected>> {
        let latency = self.state().latency;
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        let mut changes = self.changes();
        loop {
            let loss = self.state().loss(origin);
            match loss {
                None => break,
                Some(Loss::Refused) => return Err(io::ErrorKind::ConnectionRefused.into()),
                Some(Loss::Silent) => {
                    changes.notified().await;
                    if self.state().loss(origin).is_none() {
                        return Err(io::ErrorKind::ConnectionReset.into());
                    }
                }
            }
        }
        let Some(answer) = self.take(origin) else { return Ok(None) };
        Ok(Some(match answer {
            InjectedResponse::ConnectionLost => return Err(io::ErrorKind::ConnectionReset.into()),
            InjectedResponse::AnswerLost => Injected::Lost,
            InjectedResponse::TooManyRequests { retry_after } => {
                let message = "too many requests, please try again later";
                Injected::Answer(Failure::new(Reason::TooManyRequests, message).retry_after(retry_after))
            }
            InjectedResponse::InternalError => {
                Injected::Answer(Failure::new(Reason::InternalError, "Internal error occurred: injected"))
            }
            InjectedResponse::Forbidden => Injected::Answer(Failure::new(
                Reason::Forbidden,
                "forbidden: the role of this client does not allow it",
            )),
            InjectedResponse::Conflict => Injected::Answer(Failure::new(
                Reason::Conflict,
                "Operation cannot be fulfilled: the object has been modified; please apply your changes to the \
                 latest version and try again",
            )),
        }))
    }

    /// The next planned answer for a request.
    fn take(&self, origin: &Origin) -> Option<InjectedResponse> {
        // Faults do not apply to requests for discovery, health and schemas.
        origin.verb?;
        let mut state = self.state();
        let planned =
            state.planned.iter_mut().find(|(matching, _, times)| *times > 0 && matching.meets(origin))?;
        planned.2 -= 1;
        Some(planned.1)
    }

    /// Registers a watch.
    pub(crate) fn open(&self, origin: Origin) -> OpenWatch {
        let mut state = self.state();
        state.opened += 1;
        let id = state.opened;
        state.watches.insert(id, (origin, false));
        OpenWatch { faults: self.clone(), id }
    }
}

/// An open watch; dropping it closes it.
#[derive(Debug)]
pub(crate) struct OpenWatch {
    faults: ApiFaults,
    id: u64,
}

impl OpenWatch {
    pub(crate) fn flow(&self) -> Flow {
        let state = self.faults.state();
        match state.watches.get(&self.id) {
            None | Some((_, true)) => Flow::Ended,
            Some((origin, false)) => {
                let silent = state.loss(origin) == Some(Loss::Silent);
                let stalled = silent || state.stalled.iter().any(|matching| matching.meets(origin));
                if stalled { Flow::Stalled } else { Flow::Flows }
            }
        }
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.faults.state().watches.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn origin(client: &str) -> Origin {
        let (client, resource) = (client.to_owned(), "nodetwins".to_owned());
        Origin { client, manager: None, verb: Some(Verb::Get), resource }
    }

    #[test]
    fn a_fault_that_stays_is_at_no_moment_off_while_others_come_and_go() {
        let (faults, is_over) = (ApiFaults::default(), AtomicBool::new(false));
        let set = |is_cut_off: bool| {
            let wanted = ApiFaults::default();
            wanted.fail(Matching::any().resource("nodetwins"), InjectedResponse::Forbidden, 1 << 30);
            if is_cut_off {
                wanted.partition("agent", Loss::Silent);
            }
            faults.replace(&wanted);
        };
        set(true);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (0..20_000).for_each(|time| set(time % 2 == 0));
                is_over.store(true, Ordering::Release);
            });
            while !is_over.load(Ordering::Acquire) {
                assert_eq!(faults.take(&origin("extender")), Some(InjectedResponse::Forbidden));
            }
        });
        assert_eq!(faults.state().loss(&origin("agent")), None, "the last one had none");
    }

    #[test]
    fn what_is_put_in_place_is_all_that_is_left() {
        let (faults, wanted) = (ApiFaults::default(), ApiFaults::default());
        faults.latency(Duration::from_secs(9));
        faults.stall_watches(Matching::any());
        faults.partition("agent", Loss::Silent);
        let (watch, other) = (faults.open(origin("extender")), faults.open(origin("operator")));
        assert_eq!(watch.flow(), Flow::Stalled);
        wanted.partition("extender", Loss::Refused);
        faults.replace(&wanted);
        assert_eq!((watch.flow(), other.flow()), (Flow::Ended, Flow::Flows));
        assert_eq!(faults.state().loss(&origin("agent")), None);
        assert!(faults.state().latency.is_zero());
        assert_eq!(faults.open_watches(&Matching::any()), 1, "watches are those of the server");
    }
}
