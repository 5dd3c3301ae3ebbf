//! Nodes that sleep: the machines' management controllers with their faults, a scheduler, and people who press buttons. Judged here:
//! no machine goes off with a pod on it, and no pod waits for ever.

use crate::cluster::Cluster;
use crate::draw::Draw;
use crate::process::Who;
use crate::run::World;
use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::Value;
use simulator::redfish::{self, BmcPower, ResetType};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// What is wrong with a management controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ControllerFault {
    /// Nothing.
    #[default]
    None,
    /// It does not answer.
    Silent,
    /// It accepts orders and does nothing.
    LosesOrders,
    /// It says that its machine is off.
    SaysOff,
    /// It says that its machine is on.
    SaysOn,
}

impl ControllerFault {
    /// The faults that are drawn.
    pub(crate) const ALL: [Self; 4] = [Self::Silent, Self::LosesOrders, Self::SaysOff, Self::SaysOn];
}

/// The controller of a machine.
#[derive(Debug, Default)]
pub(crate) struct MachineBmc {
    pub(crate) fault: ControllerFault,
    /// What the machine is on its way to, and when it gets there.
    pub(crate) going: Option<(bool, Duration)>,
}

impl MachineBmc {
    /// Executes a request; `None` if there is no answer.
    pub(crate) fn ask(
        &mut self,
        (method, body): (&Method, &[u8]),
        node: &str,
        is_on: bool,
        now: Duration,
    ) -> Option<(StatusCode, Bytes)> {
        if self.fault == ControllerFault::Silent {
            return None;
        }
        if *method == Method::POST {
            let body: Value = serde_json::from_slice(body).unwrap_or_default();
            let on = body["ResetType"].as_str() == Some("On");
            if self.fault != ControllerFault::LosesOrders && self.going.is_none() && on != is_on {
                self.going = Some((on, now + Duration::from_secs(if on { 1 } else { 15 })));
            }
            return Some((StatusCode::NO_CONTENT, Bytes::new()));
        }
        let power = match (self.fault, is_on, self.going) {
            (ControllerFault::SaysOff, ..) => BmcPower::Off,
            (ControllerFault::SaysOn, ..) => BmcPower::On,
            (_, true, Some((false, _))) => BmcPower::PoweringOff,
            (_, false, Some((true, _))) => BmcPower::PoweringOn,
            (_, true, _) => BmcPower::On,
            (_, false, _) => BmcPower::Off,
        };
        let allowed = [ResetType::On, ResetType::GracefulShutdown];
        Some((StatusCode::OK, Bytes::from(redfish::system(node, power, &allowed, false).to_string())))
    }
}

/// The settings of an operator that lets nodes sleep, in minutes where a site has hours.
pub(crate) fn operator(file: &Path) -> Vec<(&'static str, String)> {
    let times = [
        ("SLEEP", "on"),
        ("SLEEP_POLL", "5s"),
        ("SLEEP_IDLE_FOR", "1m"),
        ("SLEEP_MIN_ON", "1m"),
        ("SLEEP_SETTLE", "20s"),
        ("SLEEP_OFF_WITHIN", "2m"),
        ("SLEEP_WAKE_TAKES", "20s"),
        ("SLEEP_WAKE_WITHIN", "4m"),
        ("SLEEP_WARM_QUANTILE", "0.5"),
    ];
    let times = times.into_iter().map(|(name, value)| (name, value.to_owned()));
    times.chain([("SLEEP_BMC_FILE", file.display().to_string())]).collect()
}

/// The file of the controllers of these nodes.
pub(crate) fn bmc_file<'a>(nodes: impl Iterator<Item = &'a String>) -> String {
    let entries =
        nodes.map(|node| format!("  {node}: {{redfish: 'http://machine/redfish/v1/Systems/{node}'}}\n"));
    format!("nodes:\n{}", entries.collect::<String>())
}

/// A pod that the scheduler places.
struct Job {
    since: Duration,
    lasts: Duration,
    /// Its node, and when it is bound there.
    bound: Option<(String, Duration)>,
    is_there: bool,
}

/// What sleep adds to an hour.
pub(crate) struct Slumber {
    jobs: BTreeMap<String, Job>,
    /// When the node controller notices that a node is silent.
    silent: Vec<(Duration, String)>,
    /// When agents start on machines that are on again.
    begin: Vec<(Duration, String)>,
    draw: Draw,
}

/// Two pods run on a node.
const JOBS_EACH: usize = 2;
/// No pod waits longer.
const WAITS_MOST: Duration = Duration::from_secs(1_800);

impl Slumber {
    pub(crate) fn new(seed: u64) -> Self {
        let draw = Draw::new(seed, "scheduler");
        Self { jobs: BTreeMap::new(), silent: Vec::new(), begin: Vec::new(), draw }
    }

    pub(crate) async fn job(&mut self, cluster: &Cluster, name: String, lasts: Duration, now: Duration) {
        if cluster.waiting_pod(&name).await.is_ok() {
            self.jobs.insert(name, Job { since: now, lasts, bound: None, is_there: false });
        }
    }

    /// The names of pods that have waited for longer than this.
    pub(crate) fn waiting(&self, now: Duration, than: Duration) -> Vec<String> {
        let waits = |job: &Job| job.bound.is_none() && now.saturating_sub(job.since) > than;
        self.jobs.iter().filter(|(_, job)| waits(job)).map(|(name, _)| name.clone()).collect()
    }

    /// Places pods on nodes that take them, and ends those that are done. A binding comes some seconds after its decision.
    async fn schedule(&mut self, cluster: &Cluster, now: Duration) {
        let open = cluster.open_nodes().await;
        let mut ended = Vec::new();
        let mut taken: BTreeMap<String, usize> = BTreeMap::new();
        for job in self.jobs.values() {
            if let Some((node, _)) = &job.bound {
                *taken.entry(node.clone()).or_default() += 1;
            }
        }
        for (name, job) in &mut self.jobs {
            match &job.bound {
                None => {
                    let has_room = |node: &&String| taken.get(*node).copied().unwrap_or(0) < JOBS_EACH;
                    if let Some(node) = open.iter().find(has_room) {
                        *taken.entry(node.clone()).or_default() += 1;
                        job.bound = Some((node.clone(), now + self.draw.millis(0, 5_000)));
                    }
                }
                Some((node, at)) if !job.is_there && now >= *at => {
                    job.is_there = cluster.bind(name, node).await.is_ok();
                }
                Some((_, at)) if job.is_there && now >= *at + job.lasts => {
                    if cluster.end_pod(name).await.is_ok() {
                        ended.push(name.clone());
                    }
                }
                Some(_) => {}
            }
        }
        ended.iter().for_each(|name| drop(self.jobs.remove(name)));
    }
}

/// The entries whose time has come.
fn due(all: &mut Vec<(Duration, String)>, now: Duration) -> Vec<String> {
    let (come, later): (Vec<_>, Vec<_>) = std::mem::take(all).into_iter().partition(|(at, _)| now >= *at);
    *all = later;
    come.into_iter().map(|(_, node)| node).collect()
}

impl World {
    /// A second of machines that go off and on, of the scheduler and of people.
    pub(crate) async fn slumber(&mut self) {
        let Some(mut slumber) = self.slumber.take() else { return };
        let now = self.scene.now();
        for (node, on) in self.scene.switched(now) {
            if on {
                self.scene.woken(&node);
                self.kubelet(&node).await;
                slumber.begin.push((now + slumber.draw.millis(500, 8_000), node));
            } else {
                let lost = self.cluster.pods_on(&node).await;
                if !lost.is_empty() {
                    self.failures.push(format!("{node} is off at {now:?} with {lost:?} on it"));
                }
                self.scene.count("sleeps");
                self.kill(&Who::Agent(node.clone()));
                self.scene.down(&node);
                // The timeout of the node controller.
                slumber.silent.push((now + Duration::from_secs(40), node));
            }
            self.reach();
        }
        for node in due(&mut slumber.silent, now) {
            if self.scene.boot_id(&node).is_none() {
                let done = self.cluster.ready(&node, "Unknown", "NodeStatusUnknown").await;
                self.note(done);
            }
        }
        for node in due(&mut slumber.begin, now) {
            self.start(Who::Agent(node)).await;
            self.reach();
        }
        slumber.schedule(&self.cluster, now).await;
        for pod in slumber.waiting(now, WAITS_MOST) {
            self.failures.push(format!("{pod} waits at {now:?}"));
            slumber.jobs.remove(&pod);
        }
        // A person looks each two minutes after what was left to people.
        if now.as_secs().is_multiple_of(120) {
            for node in self.cluster.left_nodes().await {
                self.scene.press(&node, now);
            }
        }
        self.slumber = Some(slumber);
    }
}
