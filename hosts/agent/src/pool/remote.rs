//! One node over HTTP: a task with its own period, which reads, decides, posts, and tells what came of it.
//!
//! ```text
//!  every period, and at each change of the desired state:
//!    telemetry ──▶ levers.step ──orders──▶ control ──outcomes──▶ levers.step … until nothing is to be posted
//! ```
//!
//! A node that does not answer is asked less often, so that many such nodes do not take the places of those that do, but
//! never less than once in five seconds: one that answers again is measured and capped from then on. A new desired state
//! is tried at once all the same.

use super::http::{Http, Standing, Trouble};
use super::levers::{Laws, Levers, Occasion, Order, Reach, Shape};
use super::wire::Telemetry;
use crate::machine::{Control, Details, Device, Drawn, Found, FoundGpus, LeaseState, Means, Part, View};
use crate::settings::Routing;
use host_kit::clock::Clock;
use joulie_api::condition::rfc3339;
use joulie_core::node::cap::{Backend, CapRange, Desired, Report};
use joulie_core::node::lease::{Caps, Lease, LeaseFacts, Phase};
use joulie_core::placement::freshness::UnixTime;
use node_kit::{Desire, LeaseTerms};
use planner::catalog::Catalog;
use power_units::{Micros, Stamp, Watts};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// What all nodes share.
pub(crate) struct Common {
    pub(super) routing: Routing,
    pub(super) http: Http,
    pub(super) laws: Laws,
    pub(super) period: Duration,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) catalog: Catalog,
    pub(super) simulate_only: bool,
}

/// What the labels of a node say of its hardware; telemetry wins where it says more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hints {
    pub(crate) cpu_model: Option<String>,
    pub(crate) sockets: Option<u32>,
    pub(crate) gpu_model: Option<String>,
    pub(crate) gpus: u32,
}

/// The front's end of a node. Clones are the same end.
#[derive(Clone)]
pub(crate) struct Remote {
    desires: Arc<watch::Sender<Desire>>,
    renewal: Arc<Mutex<Option<UnixTime>>>,
}

impl Control for Remote {
    fn desire(&self, desire: Desire) {
        self.desires.send_if_modified(|last| {
            let changed = *last != desire;
            *last = desire;
            changed
        });
    }

    fn renewed(&self, at: UnixTime) {
        *self.renewal.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
    }
}

/// The task of one node.
pub(crate) struct Task {
    node: String,
    common: Arc<Common>,
    hints: Hints,
    desires: watch::Receiver<Desire>,
    renewal: Arc<Mutex<Option<UnixTime>>>,
    views: watch::Sender<Option<View>>,
    lease: Option<(LeaseTerms, Lease)>,
    levers: Option<Levers>,
    telemetry: Option<Telemetry>,
    /// The last that came: what a node is made of does not go when it falls silent.
    described: Option<Telemetry>,
    found: Arc<Found>,
    counts: Counts,
    trouble: [Option<Trouble>; 2],
}

#[derive(Clone, Copy, Default)]
struct Counts {
    failures: u32,
    troubles: u64,
    blind: u64,
    late: u64,
}

/// Rounds of orders within one period: a limit, a throttle that is lifted after it, and what those bring about.
const ROUNDS: usize = 4;
/// Nodes that do not answer share a few places of their own (`http`), so what a long wait would save is little; what it
/// costs is that a node which is well again goes unmeasured for as long.
const WAIT_MOST: Duration = Duration::from_secs(5);

/// How long to wait after so many failures in a row.
fn wait(period: Duration, failures: u32) -> Duration {
    period.saturating_mul(1 << failures.min(8)).min(WAIT_MOST.max(period))
}

/// A node's task and the front's ends of it.
pub(crate) fn open(
    node: &str,
    common: Arc<Common>,
    hints: Hints,
    lease: Option<LeaseTerms>,
) -> (Task, Remote, watch::Receiver<Option<View>>) {
    let (desires, wanted) = watch::channel(Desire::UNKNOWN);
    let (views, seen) = watch::channel(None);
    let renewal = Arc::new(Mutex::new(None));
    let lease = lease.map(|terms| (terms, Lease::start(stamp(&common))));
    let task = Task {
        node: node.to_owned(),
        common,
        hints,
        desires: wanted,
        renewal: renewal.clone(),
        views,
        lease,
        levers: None,
        telemetry: None,
        described: None,
        found: Arc::default(),
        counts: Counts::default(),
        trouble: [None, None],
    };
    (task, Remote { desires: Arc::new(desires), renewal }, seen)
}

fn stamp(common: &Common) -> Stamp {
    Stamp::new(Micros::new(common.clock.mono().as_millis().saturating_mul(1000)))
}

impl Task {
    /// Runs until it is dropped.
    pub(crate) async fn run(&mut self) {
        loop {
            let failed = self.period().await;
            self.counts.failures = if failed { self.counts.failures.saturating_add(1) } else { 0 };
            let wait = wait(self.common.period, self.counts.failures);
            let changed = tokio::time::timeout(wait, self.desires.changed()).await;
            if matches!(changed, Ok(Err(_))) {
                return;
            }
        }
    }

    /// One period; whether the node did not answer.
    async fn period(&mut self) -> bool {
        let desire = *self.desires.borrow_and_update();
        let (common, node) = (self.common.clone(), self.node.clone());
        let mut failed = false;
        if let Some(source) = &common.routing.source {
            let telemetry = common.http.telemetry(source, &node, self.standing()).await;
            failed = telemetry.is_err();
            self.note(0, telemetry.as_ref().err());
            self.telemetry = telemetry.ok();
            if self.telemetry.is_some() {
                self.described = self.telemetry.clone();
            }
            self.counts.blind += u64::from(failed);
        }
        let shape = self.shape();
        let now = stamp(&common);
        if self.levers.is_none() {
            // A node that says nothing yet may be under a cap of ours: it is not known what is to be adopted.
            if failed && desire.cpu == Desired::Unknown && desire.gpu == Desired::Unknown {
                return true;
            }
            let found = self.telemetry.as_ref();
            self.levers = Some(Levers::adopt(self.reach(), shape, found));
        }
        if let Some(levers) = &mut self.levers {
            levers.reshape(shape);
        }
        let (caps, lease) = self.step_lease(now);
        let desired = match caps {
            Some((caps, terms)) if !common.simulate_only => {
                (caps.desired(desire.cpu, terms.safe_cpu), caps.desired(desire.gpu, terms.safe_gpu))
            }
            None if !common.simulate_only => (desire.cpu, desire.gpu),
            Some(_) | None => (Desired::Unknown, Desired::Unknown),
        };
        failed |= self.control(desired).await;
        self.tell(desire, lease);
        failed
    }

    /// Steps the laws and posts what they order, until they are content; whether a post failed.
    async fn control(&mut self, desired: (Desired, Desired)) -> bool {
        let common = self.common.clone();
        let mut failed = false;
        for round in 0..ROUNDS {
            let now = stamp(&common);
            let Some(levers) = &mut self.levers else { return failed };
            let occasion = if round == 0 {
                levers.sense(self.telemetry.as_ref(), now);
                Occasion::Period
            } else {
                Occasion::News
            };
            let orders = levers.step(&common.laws, (now, occasion), desired);
            levers.has_no_original();
            if orders.is_empty() {
                return failed;
            }
            for order in orders {
                let outcome = self.post(order).await;
                failed |=
                    outcome.as_ref().is_err_and(|trouble| trouble.kind == power_hal::ErrorKind::Timeout);
                self.note(1, outcome.as_ref().err());
                if let Some(levers) = &mut self.levers {
                    levers.land(order, outcome.as_ref().map(|read_back| *read_back));
                }
            }
        }
        failed
    }

    async fn post(&self, order: Order) -> Result<Option<Watts>, Trouble> {
        let Common { routing, http, clock, .. } = &*self.common;
        let template = match order {
            Order::Cap { .. } | Order::Throttle { .. } => &routing.cpu,
            Order::GpuCap { .. } => &routing.gpu,
        };
        let nowhere = || Trouble { kind: power_hal::ErrorKind::NotSupported, text: "no endpoint".to_owned() };
        let template = template.as_ref().ok_or_else(nowhere)?;
        let told = (order.action(), rfc3339(clock.wall()));
        http.control(template, &self.node, told, self.standing()).await
    }

    const fn standing(&self) -> Standing {
        if self.counts.failures == 0 { Standing::Sound } else { Standing::Suspect }
    }

    fn note(&mut self, which: usize, trouble: Option<&Trouble>) {
        if let Some(trouble) = trouble {
            self.counts.troubles += 1;
            self.counts.late += u64::from(trouble.kind == power_hal::ErrorKind::Timeout);
            if self.trouble[which].as_ref() != Some(trouble) {
                tracing::warn!(node = self.node, "{}", trouble.text);
            }
        }
        self.trouble[which] = trouble.cloned();
    }

    fn reach(&self) -> Reach {
        let Routing { source, cpu, gpu, .. } = &self.common.routing;
        Reach { meter: source.is_some(), cpu: cpu.is_some(), gpu: gpu.is_some() }
    }

    /// What the node has: by its telemetry, then by what the catalogue knows of the models that it or its labels name.
    fn shape(&self) -> Shape {
        let told = self.described.as_ref();
        let catalog = &self.common.catalog;
        let cpu_names = [told.and_then(|it| it.cpu_model.as_deref()), self.hints.cpu_model.as_deref()];
        let cpu = cpu_names.into_iter().flatten().find_map(|name| catalog.cpu(name));
        let gpu_names = [told.and_then(|it| it.gpu_product.as_deref()), self.hints.gpu_model.as_deref()];
        let gpu = gpu_names.into_iter().flatten().find_map(|name| catalog.gpu(name));
        let by_model = cpu.map(|model| {
            let (min, max) = model.configurable_tdp.unzip();
            (min, Some(max.unwrap_or(model.tdp)))
        });
        let gpu_by_model = gpu.map(|model| (model.min, Some(model.max)));
        Shape {
            packages: told.and_then(|it| it.sockets).or(self.hints.sockets).unwrap_or(1),
            range: range(told.map(|it| (it.cap_min, it.cap_max)), by_model),
            gpus: told.and_then(|it| it.gpus).unwrap_or(self.hints.gpus),
            gpu_range: range(told.map(|it| (it.gpu_cap_min, it.gpu_cap_max)), gpu_by_model),
        }
    }

    fn step_lease(&mut self, now: Stamp) -> (Option<(Caps, LeaseTerms)>, LeaseState) {
        let Some((terms, lease)) = &mut self.lease else { return (None, LeaseState::Desired) };
        let renewal = self.renewal.lock().unwrap_or_else(PoisonError::into_inner).take();
        let decision = terms.law.step(lease, &LeaseFacts { now, renewal });
        if let Some(event) = decision.event {
            tracing::warn!(node = self.node, "the lease of the desired state: {event:?}");
        }
        let state = match lease.phase() {
            Phase::Started { .. } | Phase::Renewed { .. } => LeaseState::Desired,
            Phase::Holding | Phase::Waiting { .. } => LeaseState::Held,
            Phase::Relaxed => LeaseState::Relaxed,
            Phase::Safe => LeaseState::Safe,
        };
        (Some((decision.caps, *terms)), state)
    }

    fn tell(&mut self, desire: Desire, lease: LeaseState) {
        let Some(levers) = &self.levers else { return };
        let shape = self.shape();
        let found = found(&self.hints, self.described.as_ref(), shape, self.reach());
        if *self.found != found {
            self.found = Arc::new(found);
        }
        let view = View {
            desire,
            cpu: self.cpu_part(levers, shape),
            gpu: self.gpu_part(levers, shape),
            node_power: self.telemetry.as_ref().and_then(|it| it.node.watts()),
            source: "http",
            found: self.found.clone(),
            lease,
            details: self.details(levers),
        };
        self.views.send_if_modified(|last| {
            let changed = last.as_ref() != Some(&view);
            *last = Some(view);
            changed
        });
    }

    fn cpu_part(&self, levers: &Levers, shape: Shape) -> Part {
        let status = levers.cpu.map(|cpu| cpu.status);
        let told = self.telemetry.as_ref();
        let (cap, _) = levers.in_force();
        let limit = cap.or_else(|| told.and_then(|it| it.cap));
        let package = |at: usize| Device {
            key: format!("package-{at}"),
            limit,
            range: shape.range.unwrap_or(CapRange::UNKNOWN),
            drawn: self.drawn(told.and_then(|it| it.packages.get(at)).and_then(|said| said.watts())),
            energy: None,
        };
        Part {
            means: match status.map(|status| status.backend) {
                None | Some(Backend::None) => Means::None,
                Some(Backend::Rapl) => Means::Rapl,
                Some(Backend::Dvfs) => Means::Dvfs,
            },
            report: status.map_or(Report::Pending, |status| status.report),
            devices: (0..usize::try_from(shape.packages).unwrap_or(1)).map(package).collect(),
            drawn: self.drawn(told.and_then(|it| it.cpu.watts())),
            trouble: self.words(),
        }
    }

    fn gpu_part(&self, levers: &Levers, shape: Shape) -> Part {
        let told = self.telemetry.as_ref();
        let (_, cap) = levers.in_force();
        let limit = cap.or_else(|| told.and_then(|it| it.gpu_cap));
        let range = shape.gpu_range.unwrap_or(CapRange::UNKNOWN);
        let gpu =
            |at: u32| Device { key: format!("gpu-{at}"), limit, range, drawn: Drawn::Unknown, energy: None };
        Part {
            means: if shape.gpus > 0 { Means::Http } else { Means::None },
            report: levers.gpus.map_or(Report::Pending, |gpus| gpus.report.of_all(shape.gpus)),
            devices: (0..shape.gpus).map(gpu).collect(),
            drawn: match shape.gpus {
                0 => Drawn::Unmetered,
                _ => self.drawn(told.and_then(|it| it.gpu.watts())),
            },
            trouble: self.words(),
        }
    }

    fn drawn(&self, watts: Option<Watts>) -> Drawn {
        match (watts, &self.common.routing.source) {
            (Some(watts), _) => Drawn::Is(watts),
            (None, Some(_)) => Drawn::Unknown,
            (None, None) => Drawn::Unmetered,
        }
    }

    fn words(&self) -> Option<String> {
        let texts: Vec<&str> = self.trouble.iter().flatten().map(|trouble| trouble.text.as_str()).collect();
        if texts.is_empty() { None } else { Some(texts.join("; ")) }
    }

    fn details(&self, levers: &Levers) -> Details {
        Details {
            mode: levers.cpu.map(|cpu| cpu.mode),
            law: levers.law,
            throttle_pct: levers.throttle.map(|throttle| throttle.get()),
            actions: levers.actions,
            moved: levers.moved,
            blind: self.counts.blind,
            late: self.counts.late,
            troubles: vec![("http", self.counts.failures == 0, self.counts.troubles)],
            ..Details::default()
        }
    }
}

/// The least and the most that can be set.
type Ends = (Option<Watts>, Option<Watts>);

/// A range as the node tells it; an end that it does not tell is that of its model, so that nothing is capped below what
/// it is built for.
fn range(told: Option<Ends>, model: Option<Ends>) -> Option<CapRange> {
    let ((told_min, told_max), (min, max)) = (told.unwrap_or_default(), model.unwrap_or_default());
    let max = told_max.or(max);
    max.map(|_| CapRange::new(told_min.or(min), max, None))
}

/// A verdict about one endpoint, as one about all GPUs behind it: the laws see one device, and sums are of all.
trait OfAll {
    fn of_all(self, count: u32) -> Self;
}

impl OfAll for Report {
    fn of_all(self, count: u32) -> Self {
        use joulie_core::node::cap::CapResult;
        match self {
            Self::Cap(CapResult::Applied { effective }) => {
                Self::Cap(CapResult::Applied { effective: effective.times(count) })
            }
            Self::Cap(CapResult::Clamped { requested, effective }) => Self::Cap(CapResult::Clamped {
                requested: requested.times(count),
                effective: effective.times(count),
            }),
            Self::NoIntent
            | Self::Pending
            | Self::Throttled(_)
            | Self::Cap(CapResult::Blocked(_) | CapResult::Failed(_)) => self,
        }
    }
}

fn found(hints: &Hints, told: Option<&Telemetry>, shape: Shape, reach: Reach) -> Found {
    let vendor = |text: &str| match text.to_ascii_lowercase().as_str() {
        "nvidia" => Some("nvidia"),
        "amd" => Some("amd"),
        "intel" => Some("intel"),
        _ => None,
    };
    Found {
        cpu_vendor: None,
        cpu_model: told.and_then(|it| it.cpu_model.clone()).or_else(|| hints.cpu_model.clone()),
        packages: told.and_then(|it| it.sockets).or(hints.sockets),
        cores: told.and_then(|it| it.cores),
        package_range: shape.range,
        cpu_driver: None,
        cpu_control: reach.cpu,
        cpu_metered: reach.meter,
        frequencies: None,
        memory_bytes: None,
        gpus: Some(FoundGpus {
            vendor: told.and_then(|it| it.gpu_vendor.as_deref()).and_then(vendor),
            model: told.and_then(|it| it.gpu_product.clone()).or_else(|| hints.gpu_model.clone()),
            count: shape.gpus,
            range: shape.gpu_range.filter(|_| shape.gpus > 0),
            default_watts: None,
            current_watts: None,
            control: reach.gpu && shape.gpus > 0,
            metered: reach.meter && shape.gpus > 0,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_does_not_answer_is_asked_less_often_and_never_less_than_once_in_five_seconds() {
        let seconds = |period: u64, failures| wait(Duration::from_secs(period), failures).as_secs();
        assert_eq!([0, 1, 2, 3, 20, u32::MAX].map(|failures| seconds(1, failures)), [1, 2, 4, 5, 5, 5]);
        assert_eq!([0, 3].map(|failures| seconds(20, failures)), [20, 20], "a longer period is kept");
    }

    #[test]
    fn an_end_of_a_range_that_a_node_does_not_tell_is_that_of_its_model() {
        let ends = |min: i32, max: i32| {
            let watts = |count: i32| Some(count).filter(|&count| count > 0).map(Watts::from_int);
            (watts(min), watts(max))
        };
        let of = |told, model| range(told, model).map(|range| (range.min(), range.max()));
        let model = Some(ends(320, 400));
        assert_eq!(of(None, model), model);
        assert_eq!(of(Some(ends(0, 0)), model), model, "a node that tells neither");
        assert_eq!(of(Some(ends(0, 380)), model), Some(ends(320, 380)));
        assert_eq!(of(Some(ends(100, 380)), model), Some(ends(100, 380)));
        assert_eq!(of(Some(ends(0, 250)), model), Some(ends(0, 250)), "of another model than it says");
        assert_eq!(of(Some(ends(100, 0)), None), None);
    }
}
