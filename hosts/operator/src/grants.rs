//! The grants that were sent and whose outcome is not known yet: all that a process may remember of what it ordered.
//!
//! Every grant names the object and the serial that it replaces, so that at most one of several grants over one serial
//! lands. A sent grant counts until it is definitely refused, or until a higher serial is seen, which voids it; a
//! timeout does not end it.
//!
//! Each write has a [`Ticket`], which goes with the write and comes back with its answer. The ticket is consumed when
//! the answer is taken in, so that no answer is counted twice or for another write.
//!
//! It also records when a node may be sent another grant: not while one is in progress, not within five seconds after
//! one that landed and does not show in the watch yet, and after a failure only after a wait that grows up to five
//! seconds.

use crate::rows::GrantSeen;
use crate::writes::Trouble;
use host_kit::clock::Mono;
use joulie_core::budget::Grant;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Identifies one write to one node's grant. It is unique: [`Grants`] creates it, and takes it back.
#[derive(Debug)]
#[must_use = "a write whose ticket is lost is under way for ever"]
pub(crate) struct Ticket {
    node: Arc<str>,
    number: u64,
}

/// A grant whose outcome is not known yet.
#[derive(Clone, Debug)]
struct Sent {
    /// The number of its ticket.
    number: u64,
    /// The object that it replaces; `None` if it creates one.
    over: Option<(String, u64)>,
    grant: Grant,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It is being sent.
    UnderWay,
    /// The server has it, and the watch does not show it yet.
    Landed(Mono),
    /// It is not known whether it landed.
    Unknown,
}

/// What was sent to one node.
#[derive(Clone, Debug)]
struct OfNode {
    sent: Vec<Sent>,
    /// The number of the ticket of a deletion in progress.
    deleting: Option<u64>,
    failures: u32,
    not_before: Mono,
}

impl Default for OfNode {
    fn default() -> Self {
        Self { sent: Vec::new(), deleting: None, failures: 0, not_before: Mono::START }
    }
}

/// The sent grants of all nodes.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    nodes: BTreeMap<Arc<str>, OfNode>,
    tickets: u64,
}

/// A write that landed shows in the watch within this time; if the watch is even later, sending again does no harm.
const ECHO_MAX: Duration = Duration::from_secs(5);
/// The first wait after a failure. Every further failure doubles it.
const FIRST: Duration = Duration::from_millis(250);
/// The longest wait: a node that must be lowered waits no longer.
const MOST: Duration = Duration::from_secs(5);
/// The most sent grants that are kept for one node. Only a hanging server leaves more over one serial without an
/// answer; then no more are sent.
const SENT_MAX: usize = 64;

impl Sent {
    /// Whether it cannot land any more, given the node's object as it is seen now.
    fn is_void(&self, seen: Option<&GrantSeen>) -> bool {
        match (&self.over, seen) {
            (None, Some(_)) | (Some(_), None) => true,
            (None, None) => false,
            (Some((uid, serial)), Some(seen)) => seen.uid != *uid || seen.serial > *serial,
        }
    }
}

impl Grants {
    /// Takes in the nodes' objects, and forgets nodes about which nothing matters any more. A grant for a name without
    /// a Node and without an object does not count.
    pub(crate) fn observe<'a>(
        &mut self,
        seen: impl Fn(&str) -> Option<&'a GrantSeen>,
        is_node: impl Fn(&str) -> bool,
        now: Mono,
    ) {
        self.nodes.retain(|node, of| {
            let seen = seen(node);
            of.sent.retain(|sent| !sent.is_void(seen));
            let matters = !of.sent.is_empty() && (seen.is_some() || is_node(node));
            // A failure is remembered until well after its wait, because the next attempt comes only then and must not
            // count as the first.
            let failed = of.failures > 0 && now < of.not_before.plus(MOST);
            matters || of.deleting.is_some() || failed
        });
    }

    /// The grants that may still land at a node.
    pub(crate) fn sent(&self, node: &str) -> Vec<Grant> {
        self.nodes.get(node).map(|of| of.sent.iter().map(|sent| sent.grant).collect()).unwrap_or_default()
    }

    /// Whether a node may be sent a grant at `now`.
    pub(crate) fn is_free(&self, node: &str, now: Mono) -> bool {
        self.nodes.get(node).is_none_or(|of| {
            let waits = |sent: &Sent| match sent.stage {
                Stage::UnderWay => true,
                Stage::Landed(at) => now < at.plus(ECHO_MAX),
                Stage::Unknown => false,
            };
            of.deleting.is_none()
                && now >= of.not_before
                && of.sent.len() < SENT_MAX
                && !of.sent.iter().any(waits)
        })
    }

    fn ticket(&mut self, node: &Arc<str>) -> Ticket {
        self.tickets += 1;
        Ticket { node: node.clone(), number: self.tickets }
    }

    /// Records that a grant is about to be sent over the object that is seen.
    pub(crate) fn send(&mut self, node: &Arc<str>, seen: Option<&GrantSeen>, grant: Grant) -> Ticket {
        let ticket = self.ticket(node);
        let over = seen.map(|seen| (seen.uid.clone(), seen.serial));
        let sent = Sent { number: ticket.number, over, grant, stage: Stage::UnderWay };
        self.nodes.entry(node.clone()).or_default().sent.push(sent);
        ticket
    }

    /// Records that a node's grant is about to be deleted.
    pub(crate) fn delete(&mut self, node: &Arc<str>) -> Ticket {
        let ticket = self.ticket(node);
        self.nodes.entry(node.clone()).or_default().deleting = Some(ticket.number);
        ticket
    }

    /// Takes in the outcome of a write. Returns how long its node is left alone after a failure.
    pub(crate) fn ended(&mut self, ticket: Ticket, failed: Option<&Trouble>, now: Mono) -> Option<Duration> {
        let Ticket { node, number } = ticket;
        let of = self.nodes.get_mut(&node)?;
        if of.deleting == Some(number) {
            of.deleting = None;
        }
        let at = of.sent.iter().position(|sent| sent.number == number);
        let Some(trouble) = failed else {
            of.failures = 0;
            if let Some(sent) = at.and_then(|at| of.sent.get_mut(at)) {
                sent.stage = Stage::Landed(now);
            }
            return None;
        };
        if let Some(at) = at {
            match trouble {
                // It is not known whether the server accepted it.
                Trouble::Away(..) => of.sent[at].stage = Stage::Unknown,
                Trouble::Owned(_)
                | Trouble::Stale(_)
                | Trouble::Gone
                | Trouble::Refused(_)
                | Trouble::NotLeading => drop(of.sent.remove(at)),
            }
        }
        let wait = FIRST.saturating_mul(1 << of.failures.min(10)).min(MOST);
        of.failures = of.failures.saturating_add(1);
        of.not_before = now.plus(wait);
        Some(wait)
    }

    /// When nodes that may not be sent a grant now may be sent one again.
    pub(crate) fn untils(&self) -> impl Iterator<Item = Mono> {
        self.nodes.values().flat_map(|of| {
            let echoes = of.sent.iter().filter_map(|sent| match sent.stage {
                Stage::Landed(at) => Some(at.plus(ECHO_MAX)),
                Stage::UnderWay | Stage::Unknown => None,
            });
            echoes.chain([of.not_before])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host_kit::reflect::Row;
    use power_units::Watts;
    use serde_json::json;

    fn grant(serial: u64, watts: i32) -> Grant {
        Grant { serial, watts: Watts::from_int(watts), ceiling: Watts::from_int(watts) }
    }

    fn seen(uid: &str, serial: u64) -> GrantSeen {
        let spec = json!({"nodeName": "a", "serial": serial, "watts": 1, "ceiling": 1});
        GrantSeen::read(&json!({"metadata": {"name": "a", "uid": uid}, "spec": spec})).unwrap()
    }

    fn look(grants: &mut Grants, seen: Option<&GrantSeen>) {
        grants.observe(|_| seen, |_| true, at(1));
    }

    fn at(second: u64) -> Mono {
        Mono::at(Duration::from_secs(second))
    }

    #[test]
    fn what_was_sent_counts_until_it_is_refused_or_a_higher_serial_is_seen() {
        let (mut grants, node) = (Grants::default(), Arc::from("a"));
        let now = seen("u", 7);
        let first = grants.send(&node, Some(&now), grant(8, 500));
        assert!(!grants.is_free("a", at(1)), "one is under way");
        // No answer in time: it may still land.
        grants.ended(first, Some(&Trouble::Away("late".to_owned(), None)), at(1));
        assert!(grants.is_free("a", at(2)));
        let second = grants.send(&node, Some(&now), grant(8, 300));
        grants.ended(second, Some(&Trouble::Refused("no".to_owned())), at(2));
        assert_eq!(grants.sent("a"), [grant(8, 500)]);
        look(&mut grants, Some(&now));
        assert_eq!(grants.sent("a").len(), 1, "the same serial says nothing");
        look(&mut grants, Some(&seen("u", 8)));
        assert_eq!(grants.sent("a"), []);
    }

    #[test]
    fn an_answer_is_that_of_its_own_write_however_late_and_in_whatever_order_it_comes() {
        let (mut grants, node) = (Grants::default(), Arc::from("a"));
        let now = seen("u", 7);
        let first = grants.send(&node, Some(&now), grant(8, 500));
        let second = grants.send(&node, Some(&now), grant(8, 300));
        let third = grants.send(&node, Some(&now), grant(8, 400));
        grants.ended(second, None, at(1));
        grants.ended(third, Some(&Trouble::Refused("no".to_owned())), at(1));
        assert_eq!(grants.sent("a"), [grant(8, 500), grant(8, 300)], "what landed counts until it is seen");
        grants.ended(first, Some(&Trouble::NotLeading), at(2));
        assert_eq!(grants.sent("a"), [grant(8, 300)]);
    }

    #[test]
    fn an_object_that_was_made_anew_voids_what_was_sent_over_the_old_one() {
        let (mut grants, node) = (Grants::default(), Arc::from("a"));
        let late = grants.send(&node, Some(&seen("u", 7)), grant(8, 500));
        look(&mut grants, Some(&seen("v", 1)));
        assert_eq!(grants.sent("a"), []);
        // A grant that was to be created is void as soon as an object exists, whoever created it.
        let made = grants.send(&node, None, grant(1, 400));
        grants.ended(late, None, at(1));
        assert_eq!(grants.sent("a"), [grant(1, 400)], "the old one's answer is not that of the new one");
        look(&mut grants, None);
        assert_eq!(grants.sent("a").len(), 1);
        look(&mut grants, Some(&seen("w", 1)));
        assert_eq!(grants.sent("a"), []);
        grants.ended(made, None, at(1));
        assert_eq!(grants.sent("a"), []);
    }

    #[test]
    fn a_node_that_refuses_waits_longer_each_time_and_no_longer_than_five_seconds() {
        let (mut grants, node) = (Grants::default(), Arc::from("a"));
        let mut now = at(1);
        // Each pass observes, and sends as soon as it may.
        let waits: Vec<u128> = (0..12)
            .map(|_| {
                grants.observe(|_| None, |_| true, now);
                assert!(grants.is_free("a", now));
                let ticket = grants.send(&node, None, grant(1, 1));
                let refused = Trouble::Refused("no".to_owned());
                let wait = grants.ended(ticket, Some(&refused), now).unwrap();
                now = now.plus(wait);
                wait.as_millis()
            })
            .collect();
        assert_eq!((waits[0], waits[1], waits[11]), (250, 500, 5000));
        let ticket = grants.send(&node, None, grant(1, 1));
        grants.ended(ticket, None, now);
        let after = |seconds| now.plus(Duration::from_secs(seconds));
        assert!(
            !grants.is_free("a", after(4)) && grants.is_free("a", after(5)),
            "the watch does not show it"
        );
    }

    #[test]
    fn a_failure_after_which_nothing_was_to_be_sent_is_forgotten() {
        let (mut grants, node) = (Grants::default(), Arc::from("a"));
        let mut fail = |now| {
            grants.observe(|_| None, |_| true, now);
            let ticket = grants.send(&node, None, grant(1, 1));
            grants.ended(ticket, Some(&Trouble::Refused("no".to_owned())), now).unwrap().as_millis()
        };
        assert_eq!([at(1), at(2), at(8)].map(&mut fail), [250, 500, 250]);
    }
}
