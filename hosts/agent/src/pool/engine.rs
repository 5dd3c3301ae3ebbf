//! The engine of a node over HTTP, and the facts that it gets from the node's endpoints.
//!
//! One endpoint stands for all packages of a node and one for all its GPUs, so all devices of a kind have the same
//! limit. The engine still has an entry for each package, because caps are per package and the closed loop compares
//! with the sum. The throttle of an endpoint is one policy that stands for all policies of the node. A throttle that
//! was set over HTTP is lifted over HTTP: nothing here ever touches the host of the agent.

mod land;
mod word;

use super::wire::{Action, Said, Telemetry};
use crate::machine::Drawn;
use joulie_core::node::backend::{Package, PackageFacts, Route, ThrottleOrder};
use joulie_core::node::cap::CapRange;
use joulie_core::node::demand::{DeviceDraw, ThrottleReading};
use joulie_core::node::energy::{Gap, MeterReading, Oddity};
use joulie_core::node::engine::{
    Desire, EngineFacts, EngineLaws, EngineOrder, FrequencyPolicy, FrequencyPolicyFacts, Instruction,
    LeaseTerms, Occasion, PolicyLimit, PolicyOutcome, PoolEngine, Scale, TargetId, Wiring,
};
use joulie_core::node::gpu_cap::{CappedGpu, GpuFacts, GpuLimits};
use joulie_core::node::lease::LeaseEvent;
use joulie_core::node::limiter::{LimitFacts, LimitOutcome, LimitReading};
use joulie_core::node::throttle::{PolicyLocation, ThrottlePercent};
use joulie_core::node::ticket::Ticket;
use joulie_core::placement::freshness::UnixTime;
use land::original;
use power_hal::ErrorKind;
use power_units::{Amount, Micros, Percent, Role, Stamp, Watts};
use word::{Glance, Word};

/// The devices of a node, as far as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) packages: u32,
    pub(super) range: Option<CapRange>,
    pub(super) gpus: u32,
    pub(super) gpu_range: Option<CapRange>,
}

/// Which parts of a node can be reached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reach {
    pub(super) meter: bool,
    pub(super) gpu_meter: bool,
    pub(super) cpu: bool,
    pub(super) gpu: bool,
}

/// What to post, and whether it is the original.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Order {
    pub(super) ticket: Ticket,
    pub(super) action: Action,
    pub(super) release: bool,
}

/// When a node is stepped, and the last renewal of its lease until then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) now: Stamp,
    pub(super) occasion: Occasion,
    pub(super) renewal: Option<UnixTime>,
}

/// The memory of one node.
pub(super) struct NodeEngine {
    engine: Box<PoolEngine>,
    reach: Reach,
    shape: Shape,
    /// The limits that were found at the start.
    original: Option<Watts>,
    gpu_original: Option<Watts>,
    cap_news: LimitOutcome,
    gpu_news: LimitOutcome,
    throttle_news: PolicyOutcome,
    /// The limits as they were last read, and when.
    seen: LimitReading,
    gpu_seen: LimitReading,
    /// What is known of a limit that was accepted, and whether telemetry reports limits at all.
    word: Word,
    gpu_word: Word,
    tells: bool,
    gpu_tells: bool,
    power: MeterReading,
    /// What a package and a GPU drew in the last period.
    draws: [DeviceDraw; 2],
    /// The limits that were last read back.
    back: [Option<Watts>; 2],
    /// The throttle in force, as far as it is known.
    pub(super) throttle: Option<ThrottlePercent>,
}

impl NodeEngine {
    /// Adopts a node as it is found. A limit below the maximum is taken for Joulie's own, from before a restart: nobody
    /// else sets the limits of such a node. The lease runs since `started`.
    pub(super) fn adopt(
        reach: Reach,
        shape: Shape,
        found: Option<&Telemetry>,
        lease: Option<LeaseTerms>,
        started: Stamp,
    ) -> Self {
        let below =
            |limit: Option<Watts>, range: Option<CapRange>| match (limit, range.and_then(CapRange::max)) {
                (Some(limit), Some(max)) => limit < max,
                // It is not known whether the limit is Joulie's, so it is restored once when nothing is desired.
                (_, _) => true,
            };
        let throttle = found.and_then(|found| found.throttle).and_then(ThrottlePercent::new);
        let (cap, gpu_cap) = (found.and_then(|it| it.cap), found.and_then(|it| it.gpu_cap));
        let mut node = Self {
            engine: Box::new(PoolEngine::start(Route::Remote, Wiring::OneForAll, lease, started)),
            reach,
            shape,
            original: cap,
            gpu_original: gpu_cap,
            cap_news: LimitOutcome::Unknown,
            gpu_news: LimitOutcome::Unknown,
            throttle_news: PolicyOutcome::Unknown,
            seen: LimitReading::Unknown,
            gpu_seen: LimitReading::Unknown,
            word: Word::Known,
            gpu_word: Word::Known,
            tells: false,
            gpu_tells: false,
            power: MeterReading::Missing(Gap::Unread),
            draws: [DeviceDraw::default(); 2],
            back: [None, None],
            throttle,
        };
        let (package, gpu) = (node.package_facts(), node.gpu_facts());
        let capped = below(cap, shape.range);
        node.list_packages(if capped { Package::adopted(package) } else { Package::untouched(package) });
        let capped = below(gpu_cap, shape.gpu_range);
        node.list_gpus(if capped { CappedGpu::adopted(gpu) } else { CappedGpu::untouched(gpu) });
        if reach.cpu {
            let policy = FrequencyPolicy::listed(
                Scale::Share,
                PolicyLocation { package: 0, core: 0 },
                node.policy_facts(),
            );
            node.engine.list_policies(&[policy]);
        }
        node
    }

    /// Changes the devices when they turn out to differ from what was known. What is remembered of one package applies
    /// to all of them.
    pub(super) fn reshape(&mut self, shape: Shape) {
        let before = std::mem::replace(&mut self.shape, shape);
        if before.packages != shape.packages
            && let Some(package) = self.engine.packages().first().copied()
        {
            self.list_packages(package);
        }
        if shape.gpus > 0 && before.gpus != shape.gpus {
            let known = self.engine.gpus().first().copied();
            self.list_gpus(known.unwrap_or_else(|| CappedGpu::adopted(self.gpu_facts())));
        }
    }

    fn list_packages(&mut self, mut package: Package) {
        package.facts = self.package_facts();
        let count = usize::try_from(self.shape.packages.max(1)).unwrap_or(1);
        self.engine.list_packages(&vec![package; count]);
    }

    fn list_gpus(&mut self, mut gpu: CappedGpu) {
        gpu.facts = self.gpu_facts();
        let count = usize::try_from(self.shape.gpus).unwrap_or(0);
        self.engine.list_gpus(&vec![gpu; count]);
    }

    /// The engine as of its last step.
    pub(super) const fn engine(&self) -> &PoolEngine {
        &self.engine
    }

    /// Takes in telemetry at the beginning of a period: nothing if there is no source, and an error if the source of the
    /// processors or that of the GPUs did not answer. After an error no limit there is known to be in force any more.
    pub(super) fn sense(
        &mut self,
        telemetry: Option<&Telemetry>,
        failed: [Option<ErrorKind>; 2],
        now: Stamp,
    ) {
        let at = |limit: fn(&Telemetry) -> Option<Watts>, failed| match (failed, telemetry.and_then(limit)) {
            (Some(kind), _) => LimitReading::Unread(kind),
            (None, Some(limit)) => LimitReading::At { limit, read: now },
            (None, None) => LimitReading::Unknown,
        };
        let [cpu_failed, gpu_failed] = failed;
        (self.seen, self.gpu_seen) = (at(|it| it.cap, cpu_failed), at(|it| it.gpu_cap, gpu_failed));
        let [back, gpu_back] = &mut self.back;
        *back = telemetry.and_then(|it| it.cap).or(*back);
        *gpu_back = telemetry.and_then(|it| it.gpu_cap).or(*gpu_back);
        self.power = match telemetry.map(|it| it.cpu) {
            Some(Said::Watts(watts)) => MeterReading::Fresh { watts, over: Micros::ZERO },
            Some(Said::Impossible) => MeterReading::Impossible(Oddity::AboveRange),
            Some(Said::Nothing) | None => MeterReading::Missing(Gap::Unread),
        };
        self.draws = [
            draw(telemetry.map(|it| (it.cpu, it.packages.as_slice())), self.shape.packages),
            draw(telemetry.map(|it| (it.gpu, it.gpu_devices.as_slice())), self.shape.gpus),
        ];
        self.judge(telemetry, failed, now);
    }

    /// Judges limits that a control accepted without a read-back, by what telemetry says.
    fn judge(&mut self, telemetry: Option<&Telemetry>, failed: [Option<ErrorKind>; 2], now: Stamp) {
        let [cpu_failed, gpu_failed] = failed;
        if cpu_failed.is_none() {
            self.tells = telemetry.is_some_and(|it| it.cap.is_some());
        }
        if gpu_failed.is_none() {
            self.gpu_tells = telemetry.is_some_and(|it| it.gpu_cap.is_some());
        }
        let drawn = |said: Option<Said>, has_meter| match said.and_then(Said::watts) {
            Some(watts) => Drawn::Is(watts),
            None if has_meter => Drawn::Unknown,
            None => Drawn::Unmetered,
        };
        let cpu = Glance {
            told: telemetry.and_then(|it| it.cap),
            drawn: drawn(telemetry.map(|it| it.cpu), self.reach.meter),
            count: self.shape.packages,
            throttled: self.is_throttled(),
            now,
        };
        let gpus = Glance {
            told: telemetry.and_then(|it| it.gpu_cap),
            drawn: drawn(telemetry.map(|it| it.gpu), self.reach.gpu_meter),
            count: self.shape.gpus,
            throttled: false,
            now,
        };
        if let Some(news) = self.word.look(&cpu) {
            self.cap_news = news;
        }
        let awaited = matches!(self.gpu_word, Word::Awaited { .. });
        // Nothing else could hold the GPUs, so a limit that does not show in the power stays set. It is only not
        // reported as in force.
        if let Some(news) = self.gpu_word.look(&gpus).filter(|_| awaited) {
            self.gpu_news = news;
        }
    }

    /// Whether a throttle of ours is known to be in force.
    fn is_throttled(&self) -> bool {
        self.throttle.is_some_and(|throttle| throttle != ThrottlePercent::NONE)
    }

    /// Makes one step of the engine. Returns what to post, with requests that lower power before those that release it,
    /// and what happened to the lease.
    pub(super) fn step(
        &mut self,
        laws: &EngineLaws,
        Turn { now, occasion, renewal }: Turn,
        desire: Desire,
    ) -> (Vec<Order>, Option<LeaseEvent>) {
        self.tell();
        if occasion == Occasion::Period {
            let [package, gpu] = self.draws;
            self.engine.drew(TargetId::Package(0), package);
            self.engine.drew(TargetId::Gpu(0), gpu);
        }
        let (power, has_meter) = (self.power, self.reach.meter);
        let events =
            self.engine.step(laws, &EngineFacts { now, occasion, desire, power, has_meter, renewal });
        let given: Vec<EngineOrder> = self.engine.orders().collect();
        let orders = given.into_iter().filter_map(|order| self.order(order)).collect();
        (orders, events.lease)
    }

    /// Passes what is known of each device to the engine.
    fn tell(&mut self) {
        let take = |news: &mut LimitOutcome| std::mem::replace(news, LimitOutcome::Unknown);
        let mut package = self.package_facts();
        package.limit.outcome = take(&mut self.cap_news);
        self.engine.packages_mut().iter_mut().for_each(|it| it.facts = package);
        let mut gpu = self.gpu_facts();
        gpu.limit.outcome = take(&mut self.gpu_news);
        self.engine.gpus_mut().iter_mut().for_each(|it| it.facts = gpu);
        let mut policy = self.policy_facts();
        policy.outcome = std::mem::replace(&mut self.throttle_news, PolicyOutcome::Unknown);
        self.engine.policies_mut().iter_mut().for_each(|it| it.facts = policy);
    }

    fn package_facts(&self) -> PackageFacts {
        PackageFacts {
            range: self.shape.range.unwrap_or(CapRange::UNKNOWN),
            has_limit: self.reach.cpu,
            limit: LimitFacts { outcome: LimitOutcome::Unknown, seen: self.seen },
            in_force: self.back[0],
        }
    }

    fn gpu_facts(&self) -> GpuFacts {
        GpuFacts {
            limits: GpuLimits::Range(self.shape.gpu_range.unwrap_or(CapRange::UNKNOWN)),
            limit: LimitFacts { outcome: LimitOutcome::Unknown, seen: self.gpu_seen },
            in_force: self.back[1],
        }
    }

    /// The original of a throttle is no throttle. A throttle that nobody reports may be Joulie's own.
    fn policy_facts(&self) -> FrequencyPolicyFacts {
        FrequencyPolicyFacts {
            limit: self.throttle.map(PolicyLimit::Throttle),
            original: Some(PolicyLimit::Throttle(ThrottlePercent::NONE)),
            touched: self.throttle != Some(ThrottlePercent::NONE),
            ..FrequencyPolicyFacts::UNKNOWN
        }
    }

    /// The request to post for an order. An original that is not known cannot be restored, and the law is told so.
    fn order(&mut self, EngineOrder { target, ticket, instruction }: EngineOrder) -> Option<Order> {
        let release = instruction == Instruction::Release;
        let unknown = LimitOutcome::Released { ticket, outcome: Err(ErrorKind::BadData) };
        let action = match (target, instruction) {
            (TargetId::Package(_), Instruction::Power(watts)) => Action::Cap(watts),
            (TargetId::Package(_), _) => match original(self.shape.range, self.original) {
                Some(watts) => Action::Cap(watts),
                None => {
                    self.cap_news = unknown;
                    return None;
                }
            },
            (TargetId::Gpu(_), Instruction::Power(watts)) => Action::GpuCap(watts),
            (TargetId::Gpu(_), _) => match original(self.shape.gpu_range, self.gpu_original) {
                Some(watts) => Action::GpuCap(watts),
                None => {
                    self.gpu_news = unknown;
                    return None;
                }
            },
            (TargetId::Policy(_), Instruction::Limit(PolicyLimit::Throttle(throttle))) => {
                Action::Throttle { percent: throttle.get(), cap: self.cap_of_throttle() }
            }
            // No clock of a GPU is listed here: the contract has none.
            (TargetId::Clock(_), _) => return None,
            (TargetId::Policy(_), _) => Action::Throttle { percent: ThrottlePercent::NONE.get(), cap: None },
        };
        Some(Order { ticket, action, release })
    }

    /// The cap that a throttle is for. A fixed throttle has none, so it is the share of the present power that the
    /// throttle leaves; that is for information only.
    fn cap_of_throttle(&self) -> Option<Watts> {
        match (self.engine.cpu()?.throttle, self.power) {
            (ThrottleOrder::RunLoop { cap }, _) => Some(cap),
            (ThrottleOrder::Set(throttle), MeterReading::Fresh { watts, .. }) => {
                let kept = Percent::HUNDRED - throttle.to_percent();
                Some(watts.scale(kept.to_ratio(Role::Nearest), Role::Nearest))
            }
            (ThrottleOrder::Set(_) | ThrottleOrder::Leave | ThrottleOrder::Release, _) => None,
        }
    }
}

/// What one of these devices drew. They have one limit, which must suffice for the one that draws most; where they are
/// not reported one by one, all draw the same. The contract has no counter of throttled time, so the power is compared
/// with the limit.
fn draw(told: Option<(Said, &[Said])>, count: u32) -> DeviceDraw {
    let watts = told.and_then(|(all, each)| {
        let known: Option<Vec<Watts>> = each.iter().map(|said| said.watts()).collect();
        let most = known.and_then(|all| all.into_iter().max());
        most.or_else(|| all.watts()?.part(1, u64::from(count), Role::Demand))
    });
    DeviceDraw { watts, throttled: ThrottleReading::Lacking }
}

#[cfg(test)]
mod tests;
