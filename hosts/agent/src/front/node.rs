//! The front of one node: it passes the desired state from the watches to the machine, and the machine's reports to the
//! API.
//!
//! ```text
//!  Inputs ──▶ wanted ──Desire──▶ machine ──View──▶ outcome ──Doc──▶ publisher ──▶ API
//! ```
//!
//! The path from the watches to the machine waits for nothing. The publisher is a future of its own, which takes the
//! newest documents when the API has answered. An API that is away delays only statuses.

use super::armed::{Armed, ArmedFacts, Moment};
use super::asked::AskedPower;
use super::demand::{GrantNow, GrantTeller};
use super::events::{self, Look, Teller};
use super::grants::{self, Ignored, Stands};
use super::hardware::{self, PlugSaid, Sampled};
use super::inputs::Inputs;
use super::outcome::{Outcome, Outcomes, RouteOutcome, RouteWhy, Terms, Verdict, Why};
use super::pace::{Pace, Pacer, Power};
use super::plan::PlanAsk;
use super::publish::{Content, Doc, Kind, Writer};
use super::publisher::{Docs, Publisher};
use super::receipt::{Receipts, Unkept};
use super::rows::{NodeRow, RouteRow};
use super::steady::Steady;
use super::wanted::{Unknown, Wanted, wanted};
use super::yields::{LEADS_FOR, Yields};
use crate::machine::{Control, Drawn, Found, LeaseState, View};
use crate::metrics::{HeldGrant, Metrics, PowerDetail};
use crate::pool::http::Http;
use crate::route::Standing;
use host_kit::clock::{HostClock, Mono};
use host_kit::events::Recorder;
use joulie_api::condition::rfc3339;
use joulie_api::number::Number;
use joulie_api::telemetry_profile::Audience;
use kube::core::Selector;
use planner::catalog::Catalog;
use power_units::Watts;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// What the fronts of all nodes share.
pub(crate) struct Shared {
    pub(crate) clock: Arc<dyn HostClock>,
    pub(crate) selector: Selector,
    /// The terms of a node whose parts are all controlled.
    pub(crate) terms: Terms,
    pub(crate) pace: Pace,
    /// The catalogue of hardware models.
    pub(crate) catalog: Catalog,
    pub(crate) writer: Writer,
    pub(crate) metrics: Metrics,
    /// Takes in what is to be posted as Events.
    pub(crate) events: Recorder,
    /// Asks when the operator last renewed its plan.
    pub(crate) plan: PlanAsk,
    /// How exactly the metrics show power.
    pub(crate) power_detail: PowerDetail,
}

impl Shared {
    /// The terms of a node that is reached in this way.
    fn terms(&self, route: &Standing) -> Terms {
        let (cpu, gpu) = route.reached.controls();
        Terms { cpu, gpu, ..self.terms }
    }
}

/// One node's front.
pub(crate) struct Front {
    pub(crate) node: String,
    pub(crate) shared: Arc<Shared>,
    pub(crate) control: Arc<dyn Control>,
    /// Asks Prometheus, where the route of the node says so.
    pub(crate) http: Arc<Http>,
    pub(crate) inputs: watch::Receiver<Inputs>,
    pub(crate) views: watch::Receiver<Option<View>>,
    /// The state of the grant before the start.
    pub(crate) stands: Stands,
    /// The file that keeps the last grant, if one is kept.
    pub(crate) kept: Option<PathBuf>,
}

impl Front {
    /// Follows the node until its watches end.
    pub(crate) async fn run(self) {
        let stands = self.stands.clone();
        match &stands {
            Stands::Nothing => {}
            Stands::Grant(_) | Stands::Released(_) => {
                tracing::info!(node = self.node, "from before the start: {}", stands.say());
            }
            Stands::Unreadable(_) => tracing::error!(node = self.node, "{}", stands.say()),
        }
        let (sender, docs) = watch::channel(Docs::new());
        let (first, receipts) = watch::channel(Docs::new());
        let (keeper, kept) = watch::channel(stands.clone());
        let publisher = Publisher::new(&self.node, self.shared.clone(), docs);
        // Receipts have their own publisher, so that they wait for no other write.
        let receipts = Publisher::new(&self.node, self.shared.clone(), receipts);
        let (told, on_disk) = watch::channel(stands.clone());
        let written = |stands: Stands| drop(told.send_replace(stands));
        let (node, file) = (self.node.clone(), self.kept.clone());
        let keep = grants::keep(node, file, kept, ("the grant", grants::write), written);
        let yields = Yields::kept(self.kept.as_ref().map(|_| on_disk));
        let armed = Armed::of_file(self.kept.as_deref(), self.shared.clock.begun());
        let (armed_keeper, kept) = watch::channel(armed.facts());
        let file = self.kept.as_deref().map(ArmedFacts::file);
        let write = |facts: Arc<ArmedFacts>, path: &Path| ArmedFacts::write(&facts, path);
        let keep_armed = grants::keep(self.node.clone(), file, kept, ("what is armed", write), drop);
        let memory = Memory { stands, armed, yields, ..Memory::default() };
        let follow = Follow { front: self, sender, first, keeper, armed_keeper, memory };
        // None of these ends while the node stays, so each is polled every time. The path to the machine comes first.
        tokio::select! {
            biased;
            () = follow.run() => {}
            () = publisher.run() => {}
            () = receipts.run() => {}
            () = keep => {}
            () = keep_armed => {}
        }
    }
}

/// Shorter than any interval at which something must be published.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// A measurement that is due but has no object to be published in must not make the loop busy.
const LOOK_LEAST: Duration = Duration::from_millis(100);

struct Follow {
    front: Front,
    sender: watch::Sender<Docs>,
    /// The documents of the receipts.
    first: watch::Sender<Docs>,
    keeper: watch::Sender<Stands>,
    armed_keeper: watch::Sender<Arc<ArmedFacts>>,
    memory: Memory,
}

/// What a node's front remembers.
struct Memory {
    wanted: Wanted,
    stands: Stands,
    armed: Armed,
    outcomes: Outcomes,
    steady: Steady,
    /// Since when the grant has been in force, as far as this process knows.
    granted: Option<Mono>,
    /// The grants that are not followed and the devices that do not keep to theirs, as they were last reported.
    ignored: BTreeSet<(String, u64, Ignored)>,
    unkept: Unkept,
    receipts: Receipts,
    yields: Yields,
    /// What the node has yielded and wants back while nobody leads.
    missed: Option<Watts>,
    grant: GrantTeller,
    teller: Teller,
    asked: AskedPower,
    pacer: Pacer,
    sampled: Option<Sampled>,
    described: Option<Described>,
}

/// The status of a NodeHardware as it was last built, and its inputs.
struct Described {
    found: Arc<Found>,
    row: Arc<NodeRow>,
    sampled: Option<Sampled>,
    /// Whether Prometheus is asked for processors and GPUs.
    asked: (bool, bool),
    /// The published power that is used until there is a measurement.
    before: Value,
    status: Arc<Value>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            wanted: Wanted::Unknown(Unknown::NotSynced),
            stands: Stands::Nothing,
            armed: Armed::default(),
            outcomes: Outcomes::default(),
            steady: Steady::default(),
            granted: None,
            ignored: BTreeSet::new(),
            unkept: Unkept::default(),
            receipts: Receipts::default(),
            yields: Yields::default(),
            missed: None,
            grant: GrantTeller::default(),
            teller: Teller::default(),
            asked: AskedPower::default(),
            pacer: Pacer::default(),
            sampled: None,
            described: None,
        }
    }
}

impl Follow {
    async fn run(mut self) {
        self.front.views.mark_changed();
        loop {
            self.step();
            let look = self.look();
            let Front { inputs, views, .. } = &mut self.front;
            // The order does not matter: each step looks at everything.
            let alive = tokio::select! {
                biased;
                changed = inputs.changed() => changed.is_ok(),
                changed = views.changed() => {
                    // To wait for a view is not to look at it: the step asks whether there is a new one.
                    views.mark_changed();
                    changed.is_ok()
                }
                // A power measurement that waits for its time to be published becomes due without any change.
                () = tokio::time::sleep(look) => true,
            };
            if !alive {
                return;
            }
        }
    }

    /// How long to wait if nothing changes: a measurement that has changed is published as soon as its interval allows.
    fn look(&self) -> Duration {
        let Self { front: Front { shared, views, .. }, memory, .. } = self;
        let now = shared.clock.mono();
        let power = views.borrow().as_ref().map(|view| memory.asked.instead_of(power(view), now));
        let wait = power.and_then(|power| memory.pacer.wait(power, now, shared.pace));
        let wait = [wait, memory.armed.stands_for()].into_iter().flatten().min();
        wait.map_or(LOOK_EVERY, |wait| wait.clamp(LOOK_LEAST, LOOK_EVERY))
    }

    fn step(&mut self) {
        let Self {
            front: Front { node, shared, control, http, inputs, views, .. },
            sender,
            first,
            keeper,
            armed_keeper,
            memory,
        } = self;
        let route = control.route();
        memory.asked.follow(node, &route.queries, http, &shared.clock);
        shared.metrics.asks(node, memory.asked.look(node, shared.clock.mono()));
        let mut inputs = inputs.borrow_and_update().clone();
        // Nothing is desired before it is decided of which machine.
        inputs.synced &= route.is_decided();
        let now_wanted = wanted(&inputs, &shared.selector, &memory.wanted);
        if now_wanted != memory.wanted {
            shared.metrics.wants(node, &now_wanted);
            tracing::info!(node, "{}", say(&now_wanted));
            memory.wanted = now_wanted;
        }
        let stands = grants::follow(&inputs, &memory.stands);
        if stands != memory.stands {
            tracing::info!(node, "{}", stands.say());
            memory.stands = stands;
            memory.granted = None;
        }
        memory.count_ignored(node, &inputs, shared);
        let terms = shared.terms(&route);
        let policy = memory.wanted.desire(terms.cpu, terms.gpu);
        let armed = memory.armed.follow(node, &inputs, &memory.stands, Moment::of(&*shared.clock));
        control.desire(memory.stands.over(policy, &armed));
        memory.receipts.arms(armed);
        // An error is the end of the machine, which ends this front too.
        let is_new = views.has_changed().unwrap_or(false);
        let view = views.borrow_and_update();
        // A grant of another agent's node is not kept: the next start would take the node for ours.
        if view.is_some() || control.is_ours() {
            keeper.send_if_modified(|kept| {
                let changed = *kept != memory.stands;
                kept.clone_from(&memory.stands);
                changed
            });
            armed_keeper.send_if_modified(|kept| {
                let Some(facts) = memory.armed.to_keep() else { return false };
                let changed = *kept != facts;
                *kept = facts;
                changed
            });
        }
        let Some(view) = view.as_ref() else { return };
        if is_new {
            shared.metrics.sees(node, view, (shared.clock.mono(), shared.power_detail));
        }
        put(first, memory.receipt(&inputs, view, (shared, &terms)));
        memory.give_way(node, &inputs, view, shared.clock.mono());
        if memory.yields.asks() {
            shared.plan.ask();
        }
        memory.tell_grant(node, shared);
        put(sender, memory.docs(node, &inputs, (view, &*route), (shared, &terms)));
    }
}

/// Why the node does not get back what it has yielded.
fn say_missed(watts: Watts) -> String {
    format!(
        "{watts} W of its grant were yielded and are wanted back, but no operator was seen to lead for {} s: only one \
         that knows what others were given can raise the node again",
        LEADS_FOR.as_secs()
    )
}

fn put(sender: &watch::Sender<Docs>, docs: Docs) {
    sender.send_if_modified(|last| {
        let changed = *last != docs;
        *last = docs;
        changed
    });
}

impl Memory {
    /// Counts each grant that is not followed once.
    fn count_ignored(&mut self, node: &str, inputs: &Inputs, shared: &Shared) {
        let ignored = grants::ignored(inputs, &self.stands);
        for (uid, serial, why) in ignored.difference(&self.ignored) {
            shared.metrics.ignores(node, *why);
            tracing::warn!(node, "grant {serial} of the object {uid} is not followed: {}", why.words());
        }
        self.ignored = ignored;
    }

    /// Reports the grant in force and its outcome, in the metrics and in the log.
    fn tell_grant(&mut self, node: &str, shared: &Shared) {
        let now = shared.clock.mono();
        let grant = self.stands.grant();
        let unkept = grant.map(|_| self.receipts.unkept().clone()).unwrap_or_default();
        if unkept != self.unkept {
            match unkept.words() {
                Some(words) => tracing::warn!(node, "{words}"),
                None => tracing::info!(node, "every device keeps to the grant again, or there is none"),
            }
            self.unkept = unkept;
        }
        self.granted = grant.map(|_| *self.granted.get_or_insert(now));
        let age = self.granted.map(|since| now.since(since));
        let held = HeldGrant {
            receipt: self.receipts.standing(),
            in_force: self.receipts.in_force(grant.map(|grant| grant.watts)),
            missed: self.missed,
            unkept: &self.unkept,
        };
        shared.metrics.grants(node, grant.zip(age), &held);
    }

    /// Yields what the node does not want any more: from the next step on it keeps to less.
    fn give_way(&mut self, node: &str, inputs: &Inputs, view: &View, now: Mono) {
        let object = grants::object(inputs, &self.stands);
        self.yields.hear(inputs.plan, object.map(|(_, row)| &**row), now);
        let missed = object.and_then(|(_, row)| self.yields.missed(&self.stands, row, view, now));
        if missed.is_some() != self.missed.is_some() {
            match missed {
                Some(watts) => tracing::warn!(node, "{}", say_missed(watts)),
                None => tracing::info!(node, "nothing that the node has yielded is missed any more"),
            }
        }
        self.missed = missed;
        // Nobody is raised during an event, not even a node that it leaves everything.
        let Some((_, row)) = object.filter(|_| !self.armed.is_on()) else { return };
        let floor = self.receipts.standing().and_then(|receipt| receipt.floor);
        if let Some(left) = self.yields.left(&self.stands, row, view, floor, now) {
            self.stands = self.stands.left(left);
            tracing::info!(node, "what it does not want any more is left to others: {}", self.stands.say());
        }
    }

    /// The receipt to publish for the grant.
    fn receipt(&mut self, inputs: &Inputs, view: &View, (shared, terms): (&Shared, &Terms)) -> Docs {
        let now = shared.clock.mono();
        let row = grants::object(inputs, &self.stands).map(|(_, row)| row);
        self.receipts.yields(row.and_then(|row| self.yields.told(&self.stands, row)));
        let receipt = self.receipts.of(&self.stands, inputs, view, terms, now);
        let followed = self.stands.followed().map(|kept| kept.uid.as_str());
        let object =
            grants::object(inputs, &self.stands).filter(|(_, row)| Some(row.uid.as_str()) == followed);
        let kept = self.stands.kept().map(|kept| kept.grant);
        let grant = kept.map(|kept| GrantNow {
            watts: kept.watts,
            is_highest: object.is_some_and(|(_, row)| row.is_highest && row.grant == kept),
        });
        let (receipt, demand) = self.grant.of(&view.wants, receipt, grant, now);
        let doc = receipt.zip(object).map(|(receipt, (name, row))| {
            let (object, seen) = (Some((name.to_owned(), row.uid.clone())), row.seen.clone());
            (Kind::Grant, Doc { object, seen, content: Content::Receipt(receipt, demand) })
        });
        doc.into_iter().collect()
    }

    /// The outcome of the desired state. A grant that cannot be read keeps the desired state from the machine.
    fn outcome(&mut self, view: &View, shared: &Shared, terms: &Terms) -> Outcome {
        let said = self.missed.map(|watts| format!("; {}", say_missed(watts)));
        let refused = match &self.stands {
            Stands::Unreadable(_) => {
                let generation = self.wanted.goal().and_then(|goal| goal.object.generation);
                let verdict = Verdict { why: Why::Failed, message: self.stands.say(), generation };
                return Outcome { verdict: Some(verdict), ..Outcome::default() };
            }
            Stands::Grant(_) if view.lease != LeaseState::Desired && terms.relax => {
                "; LEASE_EXPIRY=relax is refused while a grant stands"
            }
            Stands::Nothing | Stands::Grant(_) | Stands::Released(_) => "",
        };
        let now = shared.clock.mono();
        let outcome = self.outcomes.of(&self.wanted, view, terms, now);
        let mut outcome = self.steady.of(outcome, &self.wanted, view, now);
        if let Some(verdict) = &mut outcome.verdict {
            verdict.message.push_str(refused);
            verdict.message.push_str(said.as_deref().unwrap_or_default());
            verdict.exceeded_by(&self.unkept.above);
            if self.asked.parts() != (false, false) {
                verdict.unjudged(view);
            }
        }
        outcome
    }

    fn docs(
        &mut self,
        node: &str,
        inputs: &Inputs,
        (view, route): (&View, &Standing),
        (shared, terms): (&Shared, &Terms),
    ) -> Docs {
        let now = shared.clock.mono();
        let mut docs = Docs::new();
        let outcome = self.outcome(view, shared, terms);
        docs.extend(route_doc(node, inputs, route, &outcome).map(|doc| (Kind::Route, doc)));
        docs.extend(
            (0..RIVALS_MAX).zip(rival_docs(node, inputs, route)).map(|(at, doc)| (Kind::Rival(at), doc)),
        );
        shared.metrics.concludes(node, &outcome);
        self.post_events(node, inputs, (view, &outcome), (shared, terms));
        let subject = match &self.wanted {
            Wanted::Goal(goal) => Some(goal.object.uid.as_str()),
            Wanted::Unknown(Unknown::Malformed { object, .. }) => Some(object.uid.as_str()),
            // For a node that is not managed any more, the first object reports it.
            Wanted::Nothing(_) => inputs.goals.first().map(|(_, goal)| goal.uid()),
            Wanted::Unknown(Unknown::NotSynced | Unknown::NoNode) => None,
        };
        for (name, goal) in inputs.goals.iter().filter(|(_, goal)| Some(goal.uid()) == subject) {
            let kind = match goal {
                super::inputs::GoalOf::Profile(_) => Kind::Profile,
                super::inputs::GoalOf::Twin(_) => Kind::Twin,
            };
            let row = goal.row();
            let content = Content::Outcome(outcome.clone());
            let object = Some((name.clone(), row.uid.clone()));
            docs.insert(kind, Doc { object, seen: row.seen.clone(), content });
        }
        if let Some((name, twin)) = inputs.twins.first().filter(|_| !docs.contains_key(&Kind::Twin)) {
            let object = Some((name.clone(), twin.0.uid.clone()));
            let seen = twin.0.seen.clone();
            docs.insert(Kind::Twin, Doc { object, seen, content: Content::Outcome(outcome) });
        }
        docs.extend(self.hardware(node, inputs, view, shared, now).map(|doc| (Kind::Hardware, doc)));
        docs
    }

    /// Posts what has happened since the last look.
    fn post_events(
        &mut self,
        node: &str,
        inputs: &Inputs,
        (view, outcome): (&View, &Outcome),
        (shared, terms): (&Shared, &Terms),
    ) {
        let published = inputs.goals.first().map(|(_, goal)| (&*goal.row().seen, goal.control()));
        let now = shared.clock.mono();
        let look = Look { outcome, view, published, asked: self.asked.cpu(now), patience: terms.patience };
        for what in self.teller.look(&look, now) {
            shared.events.say(events::note(node, what));
        }
    }

    fn hardware(
        &mut self,
        node: &str,
        inputs: &Inputs,
        view: &View,
        shared: &Shared,
        now: Mono,
    ) -> Option<Doc> {
        let row = inputs.node.as_ref().filter(|_| inputs.hardware_known)?;
        let power = self.asked.instead_of(power(view), now);
        if self.pacer.is_due(power, now, shared.pace) {
            let wall = shared.clock.wall();
            let plug = view.plug.map(|plug| PlugSaid::of(plug, (now, wall)));
            let at = rfc3339(wall.checked_sub(self.asked.age(now)).unwrap_or(wall));
            let source = self.asked.source(power).unwrap_or(view.source);
            self.sampled = Some(Sampled { power, at, source, plug });
        }
        let there = inputs.hardware.first();
        // The measurement that the previous process published stays until there is a new one.
        let before = there.filter(|_| self.sampled.is_none()).map(|(_, there)| &there.seen.status["power"]);
        let status = self.described(&view.found, row, before.unwrap_or(&Value::Null), &shared.catalog);
        let content = Content::Hardware { node: (node.to_owned(), row.uid.clone()), status };
        Some(Doc {
            object: there.map(|(name, there)| (name.clone(), there.uid.clone())),
            seen: there.map(|(_, there)| there.seen.clone()).unwrap_or_default(),
            content,
        })
    }
}

impl Memory {
    /// The status of a NodeHardware. Every look needs it, so it is rebuilt only when an input has changed.
    fn described(
        &mut self,
        found: &Arc<Found>,
        row: &Arc<NodeRow>,
        before: &Value,
        catalog: &Catalog,
    ) -> Arc<Value> {
        let is_same = |last: &&Described| {
            let Described { found: same, row: of, sampled, asked, before: stood, status: _ } = last;
            let is_asked = *sampled == self.sampled && *asked == self.asked.parts();
            Arc::ptr_eq(same, found) && Arc::ptr_eq(of, row) && is_asked && stood == before
        };
        if let Some(last) = self.described.as_ref().filter(is_same) {
            return last.status.clone();
        }
        let power = self.sampled.as_ref().map_or_else(|| before.clone(), Sampled::value);
        let asked = self.asked.parts();
        let status = Arc::new(hardware::status(&found.metered_by(asked), row, catalog, power));
        let (found, row, before) = (found.clone(), row.clone(), before.clone());
        let sampled = self.sampled.clone();
        self.described = Some(Described { found, row, sampled, asked, before, status: status.clone() });
        status
    }
}

fn power(view: &View) -> Power {
    let dram = Drawn::sum(view.cpu.devices.iter().map(|device| device.beside.dram));
    Power {
        cpu: view.cpu.drawn.watts(),
        gpu: view.gpu.drawn.watts(),
        node: view.node_power,
        dram: dram.watts(),
        rest: view.rest,
    }
}

/// What is published in the TelemetryProfile of the node. One for the cluster has no outcome: each of its agents would overwrite that
/// of the others, and all have a NodePowerProfile or a NodeTwin to write to.
fn route_doc(node: &str, inputs: &Inputs, route: &Standing, outcome: &Outcome) -> Option<Doc> {
    let (profile, why, message) = match (&route.refused, &route.by) {
        (Some((profile, why)), _) => (profile, RouteWhy::Refused, why.clone()),
        (None, by) => (by.as_ref()?, RouteWhy::Followed, format!("the node is {}", route.way())),
    };
    let (name, row) =
        inputs.routes.all.iter().find(|(_, row)| row.uid == profile.uid && is_own(row, node))?;
    let Outcome { cpu, gpu, .. } = outcome.clone();
    let (node, generation) = (node.to_owned(), profile.generation);
    let content = Content::Route(RouteOutcome { node, why, message, generation, cpu, gpu });
    Some(Doc { object: Some((name.clone(), row.uid.clone())), seen: row.seen.clone(), content })
}

fn is_own(row: &RouteRow, node: &str) -> bool {
    row.audience.as_ref().is_ok_and(|audience| matches!(audience, Audience::Node(name) if name == node))
}

/// So many TelemetryProfiles of the node are told that another one comes before them; the log has them all.
const RIVALS_MAX: u8 = 8;

/// What is published in the TelemetryProfiles of the node that are not followed because another one comes first.
fn rival_docs(node: &str, inputs: &Inputs, route: &Standing) -> Vec<Doc> {
    let Some(first) = route.refused.as_ref().map(|(profile, _)| profile).or(route.by.as_ref()) else {
        return Vec::new();
    };
    let message = format!("TelemetryProfile {} is for the same node and comes first by name", first.name);
    let rivals =
        inputs.routes.all.iter().filter(|(name, row)| is_own(row, node) && route.rivals.contains(name));
    let doc = |(name, row): &(String, Arc<RouteRow>)| {
        let (node, message, generation) = (node.to_owned(), message.clone(), row.generation);
        let why = RouteWhy::Outranked;
        let content = Content::Route(RouteOutcome { node, why, message, generation, cpu: None, gpu: None });
        Doc { object: Some((name.clone(), row.uid.clone())), seen: row.seen.clone(), content }
    };
    rivals.map(doc).collect()
}

fn say(wanted: &Wanted) -> String {
    match wanted {
        Wanted::Unknown(Unknown::NotSynced) => "the desired state is not known yet".to_owned(),
        Wanted::Unknown(Unknown::NoNode) => {
            "there is no Node object of this name; the limits stay as they are".to_owned()
        }
        Wanted::Unknown(Unknown::Malformed { why, .. }) => {
            format!("the desired state cannot be read and no earlier one is known; the limits stay: {why}")
        }
        Wanted::Nothing(nothing) => format!("nothing is desired ({nothing:?}); the originals come back"),
        Wanted::Goal(goal) => {
            let bad = goal.malformed.as_ref().map(|why| format!("; at present it cannot be read: {why}"));
            let rivals = match goal.rivals.as_slice() {
                [] => String::new(),
                rivals => format!("; {} are for this node as well and are not followed", rivals.join(", ")),
            };
            format!(
                "desired by {} (generation {}): CPU {}, GPU {}{}{rivals}",
                goal.object.name,
                goal.object.generation.unwrap_or_default(),
                intent(goal.cpu),
                intent(goal.gpu),
                bad.unwrap_or_default()
            )
        }
    }
}

fn intent(intent: joulie_core::node::cap::CapIntent) -> String {
    match (intent.watts, intent.percent) {
        (Some(watts), _) => format!("{} W", Number::tenths(watts)),
        (None, Some(percent)) => format!("{percent} %"),
        (None, None) => "uncapped".to_owned(),
    }
}
