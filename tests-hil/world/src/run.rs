//! One hour with one seed, from the first start to the verdict.

use crate::armed::{self, ArmedHour};
use crate::budget::{CUT_DEADLINE, RESTORE_DEADLINE};
use crate::clock::wall;
use crate::cluster::Cluster;
use crate::disk::Disk;
use crate::log_capture::LogCapture;
use crate::network::{Line, Weather};
use crate::older::{self, OlderPart};
use crate::process::{NAMESPACE, Process, Start, Who};
use crate::scene::{Scene, boot_id};
use crate::script::{Act, EventKind, Script};
use crate::sleep::{Slumber, bmc_file};
use embedded_api::{ApiOptions, EmbeddedApi, Matching, Snapshot};
use judge::{Breach, Excess, Excuse};
use serde_json::{Value, json};
use simulator::fleet::{Fleet, Member};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct WorldPlan {
    /// The seed.
    pub seed: u64,
    /// How long it lasts.
    pub hour: Duration,
    /// The kinds of events.
    pub kinds: Vec<EventKind>,
    /// The nodes, in the simulator's format.
    pub fleet: &'static str,
    /// The limit in the operators' settings, relative to the real one. With more than 1 they cannot keep the real
    /// one.
    pub told: f64,
    /// Whether the whole story is printed, and not only the part around the first breach.
    pub whole: bool,
    /// Who does not know the fields that came with this version.
    pub older: OlderPart,
}

impl WorldPlan {
    /// The kinds of events in the daily tests.
    pub const EVERYDAY: &[EventKind] = &EventKind::ALL;

    /// An hour of two operators, six agents on their machines and an extender, with all kinds of events.
    #[must_use]
    pub fn full(seed: u64) -> Self {
        let hour = Duration::from_secs(3600);
        Self {
            seed,
            hour,
            kinds: EventKind::ALL.to_vec(),
            fleet: "xeon:2,epyc:2,gpu:2",
            told: 1.0,
            whole: false,
            older: OlderPart::Nobody,
        }
    }

    /// An hour in which nodes sleep, with the faults that sleep meets.
    #[must_use]
    pub fn asleep(seed: u64) -> Self {
        use EventKind::{Cuts, Kills, Roads, Sleeps, Weather};
        Self::with(seed, &[Weather, Cuts, Roads, Kills, Sleeps])
    }

    /// An hour of PowerEvents, with the faults that they must survive.
    #[must_use]
    pub fn armed(seed: u64) -> Self {
        use EventKind::{Armed, Budgets, Cuts, Kills, Pods};
        Self::with(seed, &[Pods, Budgets, Cuts, Kills, Armed])
    }

    /// An hour of [`Self::full`] in which a part is of the version before.
    #[must_use]
    pub fn skewed(seed: u64, older: OlderPart) -> Self {
        Self { older, ..Self::full(seed) }
    }

    /// The same hour with only these kinds of events.
    #[must_use]
    pub fn with(seed: u64, kinds: &[EventKind]) -> Self {
        Self { kinds: kinds.to_vec(), ..Self::full(seed) }
    }
}

/// The result of a run.
#[derive(Debug)]
pub struct WorldReport {
    /// The seed.
    pub seed: u64,
    /// The excess without an excuse.
    pub unexcused: Excess,
    /// The times of that excess.
    pub breaches: Vec<Breach>,
    /// The excess that was excused, by excuse.
    pub excused: BTreeMap<Excuse, Excess>,
    /// The number of events by kind.
    pub counts: BTreeMap<&'static str, u64>,
    /// The limits in force relative to the budget, at the end, after some minutes without faults.
    pub used: f64,
    /// The hash of all lines of the story.
    pub hash: u64,
    /// Programs that ended without a kill, and actions that failed.
    pub failures: Vec<String>,
    story: String,
}

impl WorldReport {
    /// Whether there was no breach and no failure, and the budget was used.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.breaches.is_empty() && self.failures.is_empty() && self.used > 0.5
    }

    /// The story around the first breach, or the whole story if there is none.
    #[must_use]
    pub fn story(&self) -> &str {
        &self.story
    }
}

/// Runs an hour on this thread.
///
/// # Panics
/// If no runtime can be created, or the fleet is invalid.
#[must_use]
pub fn run(plan: &WorldPlan) -> WorldReport {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.expect("a runtime of one thread");
    let outcome = runtime.block_on(async {
        let mut world = World::new(plan).expect("a fleet that can be");
        // The programs' log becomes a part of the story.
        let _told = tracing::subscriber::set_default(LogCapture::subscriber(&world.scene));
        world.play(plan).await;
        world.outcome(plan)
    });
    // Tasks that still wait end with the runtime.
    drop(runtime);
    outcome
}

/// The state of an hour.
pub(crate) struct World {
    seed: u64,
    pub(crate) scene: Arc<Scene>,
    api: EmbeddedApi,
    pub(crate) cluster: Cluster,
    disk: Disk,
    pub(crate) members: Vec<Member>,
    /// The limit with which operators are started.
    site_watts: f64,
    told: f64,
    processes: BTreeMap<Who, Process>,
    starts: BTreeMap<Who, u32>,
    lines: BTreeMap<Who, [Arc<Line>; 2]>,
    /// Nodes that were deleted.
    unregistered: BTreeSet<String>,
    /// Nodes that a person has excluded from the budget.
    apart: BTreeSet<String>,
    may_grant: bool,
    /// Nodes that cannot be informed: their agents or all operators have ended or are disconnected.
    untold: BTreeSet<String>,
    /// Those of them that were unreachable when the API server was restored.
    behind: BTreeSet<String>,
    restored_until: Duration,
    kept: Option<Snapshot>,
    pub(crate) failures: Vec<String>,
    /// Where nodes sleep.
    pub(crate) slumber: Option<Slumber>,
    bmcs: Option<PathBuf>,
    /// Where there are PowerEvents.
    pub(crate) armed: Option<ArmedHour>,
}

impl World {
    fn new(plan: &WorldPlan) -> Result<Self, String> {
        let mut members =
            Fleet::parse(plan.fleet).and_then(|fleet| fleet.members()).map_err(|error| error.to_string())?;
        members.sort_by(|one, other| one.name.cmp(&other.name));
        let site_watts = between(&members, 0.7);
        let scene = Scene::new(&members, plan.seed, site_watts).map_err(|error| error.to_string())?;
        let scene = Arc::new(scene);
        let hour = scene.hour();
        let options =
            ApiOptions { clock: Arc::new(move || wall(hour.elapsed())), ..older::api_options(plan.older) };
        let api = EmbeddedApi::new(&options).map_err(|error| error.to_string())?;
        let agents: Vec<Who> = members.iter().map(|member| Who::Agent(member.name.clone())).collect();
        let older = agents.iter().step_by(2).filter(|_| plan.older == OlderPart::Agents);
        let older: BTreeSet<Who> = older.cloned().collect();
        let all = [Who::Operator('a'), Who::Operator('b'), Who::Extender].into_iter().chain(agents);
        let lines: BTreeMap<_, _> = all
            .map(|who| {
                let (api, road) = (who.name(), format!("{}'s machine", who.name()));
                let api = Line::new(&api, plan.seed, &scene)
                    .of_an_older_program(older.contains(&who))
                    .with_older_definitions(plan.older == OlderPart::Definitions);
                let lines = [api, Line::new(&road, plan.seed, &scene)];
                (who, lines.map(Arc::new))
            })
            .collect();
        Ok(Self {
            seed: plan.seed,
            cluster: Cluster::new(&api),
            disk: Disk::new(),
            members,
            site_watts,
            told: plan.told,
            processes: BTreeMap::new(),
            starts: BTreeMap::new(),
            lines,
            unregistered: BTreeSet::new(),
            apart: BTreeSet::new(),
            may_grant: true,
            untold: BTreeSet::new(),
            behind: BTreeSet::new(),
            restored_until: Duration::ZERO,
            kept: None,
            failures: Vec::new(),
            slumber: plan.kinds.contains(&EventKind::Sleeps).then(|| Slumber::new(plan.seed)),
            bmcs: None,
            armed: plan.kinds.contains(&EventKind::Armed).then(ArmedHour::default),
            scene,
            api,
        })
    }

    async fn play(&mut self, plan: &WorldPlan) {
        let made = self.cluster.namespace(NAMESPACE).await;
        self.note(made);
        for member in self.members.clone() {
            let made = self.cluster.node(&member, &boot_id(&member.name, 1)).await;
            self.note(made);
        }
        if self.slumber.is_some() {
            self.may_sleep().await;
        }
        if self.armed.is_some() {
            let made = self.cluster.power_budget(&armed::budget()).await;
            self.note(made);
        }
        for who in self.lines.keys().cloned().collect::<Vec<_>>() {
            self.act(Act::Start(who)).await;
        }
        let mut acts = Script::of(plan.seed, plan.hour, &self.members, &plan.kinds).into_iter().peekable();
        let mut second = Duration::ZERO;
        while second < plan.hour {
            second += Duration::from_secs(1);
            while let Some((at, act)) = acts.next_if(|(at, _)| *at < second) {
                self.until(at).await;
                self.act(act).await;
                self.reach();
            }
            self.until(second).await;
            self.slumber().await;
            self.see_events();
            self.scene.look();
            self.look_after();
        }
    }

    /// Says of all nodes that they may sleep, and how their power is switched.
    async fn may_sleep(&mut self) {
        for member in self.members.clone() {
            let done = self.cluster.label(&member.name, "joulie.io/sleep", &json!("true")).await;
            self.note(done);
        }
        let folder = self.disk.of("operators");
        let file = folder.join("controllers.yaml");
        let text = bmc_file(self.members.iter().map(|member| &member.name));
        let written = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&file, text));
        self.note(written.map_err(|error| error.to_string()));
        self.bmcs = Some(file);
    }

    async fn until(&self, at: Duration) {
        tokio::time::sleep_until(self.scene.hour() + at).await;
    }

    pub(crate) fn note(&mut self, done: Result<(), String>) {
        if let Err(why) = done {
            self.failures.push(why);
        }
    }

    /// Checks for programs that ended without a kill.
    fn look_after(&mut self) {
        let ended: Vec<Who> = self
            .processes
            .iter()
            .filter(|(_, process)| process.has_ended())
            .map(|(who, _)| who.clone())
            .collect();
        for who in ended {
            self.processes.remove(&who);
            self.failures.push(format!("{} ended by itself at {:?}", who.name(), self.scene.now()));
        }
    }

    async fn act(&mut self, act: Act) {
        match act {
            Act::Kill(who) => self.kill(&who),
            Act::Start(who) => self.start(who).await,
            Act::Budget(part) => self.budget(part).await,
            Act::Weather(who, weather) => self.weather(&who, weather),
            Act::Road(node, weather) => {
                self.scene.remark(format!("** {node}: the way to the machine: {weather:?}"));
                if let Some([_, road]) = self.lines.get(&Who::Agent(node)) {
                    road.weather(weather);
                }
            }
            Act::Down(node) => {
                self.scene.count("reboots");
                self.scene.down(&node);
            }
            Act::Silent(node) if self.unregistered.contains(&node) => {}
            Act::Silent(node) => {
                let done = self.cluster.ready(&node, "Unknown", "NodeStatusUnknown").await;
                self.note(done);
            }
            Act::Up(node) => {
                self.scene.up(&node);
                self.kubelet(&node).await;
            }
            // Skip it: if an excluded node were deleted, nobody could know its power.
            Act::Unregister(node) if !self.cluster.is_in_the_budget(&node).await => {}
            Act::Unregister(node) => {
                self.scene.count("nodes deleted");
                self.scene.remark(format!("** Node {node} is deleted"));
                if self.unregistered.insert(node.clone()) {
                    let done = self.cluster.delete_node(&node).await;
                    self.note(done);
                }
            }
            Act::Register(node) if self.unregistered.contains(&node) => self.kubelet(&node).await,
            Act::Register(_) => {}
            Act::Wipe(node) => {
                self.kill(&Who::Agent(node.clone()));
                self.scene.count("machines replaced");
                self.scene.replace(&node);
                self.disk.wipe(&node);
            }
            Act::Rights(may) => {
                self.scene.remark(format!("** the operators may write grants: {may}"));
                self.may_grant = may;
                for (_, [api, _]) in self.lines.iter().filter(|(who, _)| matches!(who, Who::Operator(_))) {
                    api.may_grant(may);
                }
            }
            Act::Keep => self.kept = Some(self.api.snapshot()),
            Act::Restore => self.restore().await,
            Act::Controls(node, control) => {
                self.scene.count("changes of controls");
                self.scene.controls(&node, control);
            }
            Act::Job(name, lasts) => {
                let now = self.scene.now();
                if let Some(slumber) = &mut self.slumber {
                    self.scene.count("jobs");
                    slumber.job(&self.cluster, name, lasts, now).await;
                }
            }
            Act::Event(event) => self.announce(event).await,
            Act::EventEnds(name) => {
                self.scene.remark(format!("** {name} ends"));
                let done = self.cluster.forget("powerevents", &name).await;
                self.note(done);
            }
            Act::Bmc(node, fault) => self.scene.bmc(&node, fault),
            Act::Rival(node) => {
                self.scene.count("writes of rivals");
                self.scene.rival(&node);
            }
            act @ (Act::Pod { .. }
            | Act::PodEnds(_)
            | Act::Cap(..)
            | Act::Label { .. }
            | Act::Forget { .. }) => self.by_hand(act).await,
        }
    }

    /// Executes the actions of users. Deleting a missing object is not a failure.
    async fn by_hand(&mut self, act: Act) {
        self.scene.remark(format!("** {act:?}"));
        let cluster = &self.cluster;
        match act {
            Act::Pod { name, node, class } => drop(cluster.pod(&name, &node, class).await),
            Act::PodEnds(name) => drop(cluster.end_pod(&name).await),
            Act::Cap(node, part) => {
                self.scene.count("caps of persons");
                let member = self.members.iter().find(|member| member.name == node);
                let most = member.map_or(0.0, |member| member.hardware.package_cap.1);
                let spec = part.map_or(
                    json!({}),
                    |part| json!({"cpu": {"packagePowerCapWatts": (part * most).round()}}),
                );
                drop(cluster.cap(&node, &spec).await);
            }
            Act::Label { node, .. } if self.unregistered.contains(&node) => {}
            Act::Label { node, key, value } => {
                self.scene.count("labels of persons");
                let is_back = (key == "joulie.io/managed") == value.is_some();
                if !is_back {
                    self.apart.insert(node.clone());
                }
                let value = value.map_or(Value::Null, |value| json!(value));
                let done = cluster.label(&node, key, &value).await;
                // After a restore of the API the other label may keep it out.
                if is_back && cluster.is_in_the_budget(&node).await {
                    self.apart.remove(&node);
                }
                self.note(done);
            }
            // Skip it: for an excluded node nobody would write the object again or know its power.
            Act::Forget { plural: "nodehardwares", node } if !cluster.is_in_the_budget(&node).await => {}
            Act::Forget { plural, node } => {
                self.scene.count("objects deleted");
                drop(cluster.forget(plural, &node).await);
            }
            Act::Kill(_)
            | Act::Start(_)
            | Act::Budget(_)
            | Act::Weather(..)
            | Act::Road(..)
            | Act::Down(_)
            | Act::Silent(_)
            | Act::Up(_)
            | Act::Controls(..)
            | Act::Rival(_)
            | Act::Job(..)
            | Act::Bmc(..)
            | Act::Event(_)
            | Act::EventEnds(_)
            | Act::Unregister(_)
            | Act::Register(_)
            | Act::Wipe(_)
            | Act::Rights(_)
            | Act::Keep
            | Act::Restore => {}
        }
    }

    /// Updates a Node after a boot, as its kubelet does, or registers it if it does not exist.
    pub(crate) async fn kubelet(&mut self, node: &str) {
        let member = self.members.iter().find(|member| member.name == node).cloned();
        let (Some(member), Some(boot_id)) = (member, self.scene.boot_id(node)) else { return };
        let done = match self.unregistered.remove(node) {
            true => {
                self.scene.remark(format!("** Node {node} is registered"));
                self.apart.remove(node);
                self.cluster.node(&member, &boot_id).await
            }
            false => self.cluster.booted(node, &boot_id).await,
        };
        self.note(done);
    }

    /// Restores the API server to the saved state. Within ten seconds the kubelets find that their Nodes have the old
    /// state, or do not exist.
    async fn restore(&mut self) {
        let Some(kept) = self.kept.take() else { return };
        self.scene.count("restores of the API");
        self.scene.remark("** the API server is brought back to an older state".to_owned());
        self.api.restore(&kept);
        // Nodes that a person has excluded from the budget are not affected by the restore.
        self.behind = self.untold.difference(&self.apart).cloned().collect();
        self.restored_until = self.scene.now() + RESTORE_DEADLINE;
        self.tell_of_the_restore();
        tokio::time::sleep(Duration::from_secs(5)).await;
        for member in self.members.clone() {
            match self.cluster.has_node(&member.name).await {
                true => drop(self.unregistered.remove(&member.name)),
                false => drop(self.unregistered.insert(member.name.clone())),
            }
            self.kubelet(&member.name).await;
            match self.cluster.is_in_the_budget(&member.name).await {
                true => drop(self.apart.remove(&member.name)),
                false => drop(self.apart.insert(member.name.clone())),
            }
        }
    }

    fn tell_of_the_restore(&self) {
        self.scene.restored(if self.behind.is_empty() { self.restored_until } else { Duration::MAX });
    }

    /// Updates which nodes can be informed after an event: an agent and an operator must reach the API server, and
    /// the operator must have the right to write.
    pub(crate) fn reach(&mut self) {
        let is_there = |who: &Who| {
            self.processes.contains_key(who) && self.lines.get(who).is_some_and(|[api, _]| !api.is_cut())
        };
        let is_led = self.may_grant && ['a', 'b'].into_iter().any(|letter| is_there(&Who::Operator(letter)));
        // A new leader waits again for the answers of all nodes.
        let is_steady = self.may_grant
            && ['a', 'b'].into_iter().map(Who::Operator).all(|who| {
                self.processes.contains_key(&who)
                    && self.lines.get(&who).is_some_and(|[api, _]| api.is_fine())
            });
        self.scene.put_off(is_steady.then(|| self.scene.now() + CUT_DEADLINE));
        let agents = self.members.iter().map(|member| &member.name);
        let is_untold =
            |node: &&String| !is_led || self.apart.contains(*node) || !is_there(&Who::Agent((*node).clone()));
        let untold: BTreeSet<String> = agents.filter(is_untold).cloned().collect();
        let now = self.scene.now();
        for node in untold.difference(&self.untold) {
            self.scene.untold(node, Duration::MAX);
            // That a person takes a node out of the budget is seen at once.
            if !self.apart.contains(node) {
                self.scene.postpone_room(now + CUT_DEADLINE);
                if now < self.restored_until {
                    self.behind.insert(node.clone());
                }
            }
        }
        let again: Vec<&String> = self.untold.difference(&untold).collect();
        for node in &again {
            self.scene.untold(node, now + CUT_DEADLINE);
            if self.behind.remove(*node) {
                self.restored_until = now + RESTORE_DEADLINE;
            }
        }
        if self.restored_until > Duration::ZERO {
            self.tell_of_the_restore();
        }
        self.untold = untold;
    }

    /// Of an agent that runs, which start of it that is; and whether it reaches the API server.
    pub(crate) fn agent(&self, who: &Who) -> (Option<u32>, bool) {
        let runs = self.starts.get(who).copied().filter(|_| self.processes.contains_key(who));
        let is_cut = self.lines.get(who).is_none_or(|[api, _]| api.is_cut());
        (runs, runs.is_some() && !is_cut)
    }

    pub(crate) fn kill(&mut self, who: &Who) {
        if let Some(process) = self.processes.remove(who) {
            self.scene.count(who.kill());
            self.scene.remark(format!("** {} is killed", who.name()));
            process.kill();
            self.api.faults().drop_watches(&Matching::any().client(&who.name()));
        }
    }

    pub(crate) async fn start(&mut self, who: Who) {
        // No agent starts on a machine that is off.
        if let (Some(_), Who::Agent(node)) = (&self.slumber, &who)
            && self.scene.boot_id(node).is_none()
        {
            return;
        }
        let Some([api, road]) = self.lines.get(&who).filter(|_| !self.processes.contains_key(&who)) else {
            return;
        };
        let number = self.starts.entry(who.clone()).or_default();
        *number += 1;
        self.scene.remark(format!("** {} starts", who.name()));
        let start = Start {
            api: &self.api,
            scene: &self.scene,
            disk: &self.disk,
            seed: self.seed,
            site_watts: self.site_watts * self.told,
            bmcs: self.bmcs.as_deref(),
            number: *number,
            lines: (api, road),
        };
        match Process::start(&who, &start).await {
            Ok(process) => drop(self.processes.insert(who, process)),
            Err(why) => self.failures.push(format!("{}: {why}", who.name())),
        }
    }

    /// The limit is a setting of the operators, so both are restarted with it, one after the other, while time
    /// passes.
    async fn budget(&mut self, part: f64) {
        let (watts, before) = (between(&self.members, part), self.site_watts);
        self.site_watts = watts;
        let restarts = Duration::from_secs(6);
        self.scene.count(if watts < before { "limits cut" } else { "limits raised" });
        self.scene.budget(watts, self.scene.now() + restarts + CUT_DEADLINE);
        let began = Instant::now();
        for (letter, at) in [('a', 0), ('b', 4)] {
            tokio::time::sleep_until(began + Duration::from_secs(at)).await;
            self.kill(&Who::Operator(letter));
            self.reach();
            tokio::time::sleep_until(began + Duration::from_secs(at + 2)).await;
            self.start(Who::Operator(letter)).await;
        }
    }

    fn weather(&mut self, who: &Who, weather: Weather) {
        self.scene.remark(format!("** {}: the way to the API server: {weather:?}", who.name()));
        if let Some([api, _]) = self.lines.get(who) {
            api.weather(weather);
        }
        if weather.is_cut {
            self.scene.count("cuts from the API server");
            self.api.faults().drop_watches(&Matching::any().client(&who.name()));
        }
    }

    fn outcome(&mut self, plan: &WorldPlan) -> WorldReport {
        let in_force = self.scene.look();
        let (site_watts, failures) = (self.site_watts, std::mem::take(&mut self.failures));
        self.scene.read(|judge, story, counts| {
            let (unexcused, excused, breaches) = judge.verdict();
            let before = Duration::from_secs(90);
            let (from, to) =
                breaches.first().filter(|_| !plan.whole).map_or((Duration::ZERO, plan.hour), |breach| {
                    (breach.from.saturating_sub(before), breach.to.min(breach.from + before))
                });
            WorldReport {
                seed: plan.seed,
                unexcused,
                breaches,
                excused,
                counts: counts.clone(),
                used: in_force / site_watts,
                hash: story.hash(),
                failures,
                story: story.lines(from, to),
            }
        })
    }
}

/// A limit of the site, interpolated between the lowest and the highest limit of its machines.
fn between(members: &[Member], part: f64) -> f64 {
    let sum = |of: fn((f64, f64)) -> f64| -> f64 {
        let one = |member: &Member| {
            let hardware = &member.hardware;
            let boards = hardware.gpus.as_ref().map_or(0.0, |gpus| f64::from(gpus.count) * of(gpus.cap));
            f64::from(hardware.sockets) * of(hardware.package_cap) + boards
        };
        members.iter().map(one).sum()
    };
    let (low, high) = (sum(|range| range.0), sum(|range| range.1));
    (low + (high - low) * part).round()
}
