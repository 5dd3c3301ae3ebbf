//! What is tried: arms by name, on a mix, with a fault.

use crate::arms::{Divider, EarLaw, LawArm, LawParts, PlannedArm, SlurmLaw, SlurmParameters, ThreeBandLaw};
use crate::bounds::{clairvoyant, held, held_entitled};
use crate::cluster::{Experiment, LimitCut, run};
use crate::demand::{DemandMix, DemandTrace};
use crate::figures::Figures;
use crate::site::VirtualSite;
use joulie_core::budget::demand::TokenBucket;
use planner::budget::PowerSharing;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// A law of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArmName {
    /// The planner with the policy's split.
    Static,
    /// Slurm's power plugin.
    Slurm,
    /// EAR's global manager.
    Ear,
    /// Three bands over what is drawn; it gives out more than the limit.
    ThreeBand,
    /// The planner, with caps that follow the demand.
    Ours,
    /// Ours with 10,000 orders a minute for 5,000 machines in place of 3,000.
    MoreOrders,
    /// Ours with a limit for every instant that is higher than the one for the mean of a minute.
    TwoLimits,
    /// The core's law that ours is made of, without the planner around it.
    LawAlone,
    /// That law without a reserve.
    NoReserve,
    /// That law without a claim to the entitlement.
    NoGuarantee,
    /// That law, with every cap moved to its price at once.
    NotLazy,
    /// That law, where nodes give nothing back by themselves.
    NoYields,
    /// That law for one who knows at every moment what each machine will need in the next five seconds.
    Knows,
    /// The same with 10,000 orders a minute.
    KnowsMore,
}

/// In place of 3,000.
const MORE_ORDERS: u32 = 10_000;

impl ArmName {
    /// All of them, in the order of the tables.
    pub const ALL: [Self; 14] = [
        Self::Static,
        Self::Slurm,
        Self::Ear,
        Self::ThreeBand,
        Self::Ours,
        Self::MoreOrders,
        Self::TwoLimits,
        Self::LawAlone,
        Self::NoReserve,
        Self::NoGuarantee,
        Self::NotLazy,
        Self::NoYields,
        Self::Knows,
        Self::KnowsMore,
    ];

    /// Those that keep every count below its limit.
    pub const KEEPING: [Self; 11] = [
        Self::Static,
        Self::Ours,
        Self::MoreOrders,
        Self::TwoLimits,
        Self::LawAlone,
        Self::NoReserve,
        Self::NoGuarantee,
        Self::NotLazy,
        Self::NoYields,
        Self::Knows,
        Self::KnowsMore,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Slurm => "slurm",
            Self::Ear => "ear",
            Self::ThreeBand => "three-band",
            Self::Ours => "ours",
            Self::MoreOrders => "ours-10000",
            Self::TwoLimits => "ours-two-limits",
            Self::LawAlone => "law",
            Self::NoReserve => "law-no-reserve",
            Self::NoGuarantee => "law-no-guarantee",
            Self::NotLazy => "law-not-lazy",
            Self::NoYields => "law-no-yields",
            Self::Knows => "law-knows",
            Self::KnowsMore => "law-knows-10000",
        }
    }

    /// The part of the site's limit that its limit for every instant is.
    #[must_use]
    pub const fn instant(self) -> f64 {
        match self {
            Self::TwoLimits => 1.2,
            Self::Static
            | Self::Slurm
            | Self::Ear
            | Self::ThreeBand
            | Self::Ours
            | Self::MoreOrders
            | Self::LawAlone
            | Self::NoReserve
            | Self::NoGuarantee
            | Self::NotLazy
            | Self::NoYields
            | Self::Knows
            | Self::KnowsMore => 1.0,
        }
    }

    /// The law for a site; some know its demand.
    #[must_use]
    pub fn divider<'a>(self, site: &VirtualSite, trace: &'a DemandTrace) -> Box<dyn Divider + 'a> {
        let planned =
            |sharing, orders| Box::new(PlannedArm::new(sharing, orders, site)) as Box<dyn Divider + 'a>;
        let law = |parts| Box::new(LawArm::new(parts, site)) as Box<dyn Divider + 'a>;
        let knows = |parts| Box::new(LawArm::new(parts, site).knowing(trace)) as Box<dyn Divider + 'a>;
        match self {
            Self::Static => planned(PowerSharing::Static, TokenBucket::PER_MINUTE),
            Self::Slurm => Box::new(SlurmLaw::new(SlurmParameters::DEFAULT, site)),
            Self::Ear => Box::new(EarLaw::new(site)),
            Self::ThreeBand => Box::new(ThreeBandLaw::new(site)),
            Self::Ours => planned(PowerSharing::Demand, TokenBucket::PER_MINUTE),
            Self::MoreOrders => planned(PowerSharing::Demand, MORE_ORDERS),
            Self::TwoLimits => Box::new(PlannedArm::written(site)),
            Self::LawAlone => law(LawParts::ALL),
            Self::NoReserve => law(LawParts { reserve: false, ..LawParts::ALL }),
            Self::NoGuarantee => law(LawParts { guarantee: false, ..LawParts::ALL }),
            Self::NotLazy => law(LawParts { lazy: false, ..LawParts::ALL }),
            Self::NoYields => law(LawParts { yields: false, ..LawParts::ALL }),
            Self::Knows => knows(LawParts::ALL),
            Self::KnowsMore => knows(LawParts { orders: MORE_ORDERS, ..LawParts::ALL }),
        }
    }
}

/// What is done to the cluster beside its demand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TrialFault {
    /// Nothing.
    None,
    /// This part of the nodes is blind.
    Blind(f64),
    /// 30 % of every limit go away in the middle.
    Cut,
    /// An armed event takes 30 % of the limit in the middle.
    Armed,
    /// Two machines of six are eco nodes, and one is draining.
    Classes,
}

impl TrialFault {
    /// Its name; empty where nothing is done.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::None => String::new(),
            Self::Blind(part) => format!("{:.0} % blind", part * 100.0),
            Self::Cut => "limit −30 %".to_owned(),
            Self::Armed => "−30 % by an armed event".to_owned(),
            Self::Classes => "in classes".to_owned(),
        }
    }
}

/// Arms on one demand.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// What runs.
    pub mix: DemandMix,
    /// What is done beside it.
    pub fault: TrialFault,
    /// The seed of the demand and of the delays.
    pub seed: u64,
    /// Who divides the limit.
    pub arms: Vec<ArmName>,
    /// So many machines and minutes, where that is not for the command line to say.
    pub size: Option<(usize, usize)>,
}

/// A trial with its outcome.
#[derive(Debug)]
pub struct Tried {
    /// What was tried.
    pub trial: Trial,
    /// The fingerprint of the demand.
    pub hash: u64,
    /// The site's limit.
    pub limit: f64,
    /// What the clairvoyant serves.
    pub clairvoyant: f64,
    /// What is served with caps that stand for 30 s, by who knows the demand.
    pub held: f64,
    /// The same where nobody may be throttled below its entitlement.
    pub held_entitled: f64,
    /// The same with caps that stand for 100 s: 3,000 orders a minute.
    pub held_entitled_100: f64,
    /// What each arm has done.
    pub outcomes: Vec<(ArmName, Figures)>,
}

impl Tried {
    /// Runs a trial on so many machines for so many minutes.
    #[must_use]
    pub fn of(trial: Trial, machines: usize, minutes: usize) -> Self {
        let (machines, minutes) = trial.size.unwrap_or((machines, minutes));
        let site = VirtualSite::of(machines);
        let site = if trial.fault == TrialFault::Classes { site.in_classes() } else { site };
        let trace = DemandTrace::of(&site, trial.mix, trial.seed, minutes);
        let limit = trace.limit(&site, trial.mix);
        let limits = site.limits(limit);
        let less = Some(LimitCut { at_s: (minutes * 30) as f64, part: 0.7 });
        let (blind, cut, armed) = match trial.fault {
            TrialFault::None | TrialFault::Classes => (0.0, None, None),
            TrialFault::Blind(part) => (part, None, None),
            TrialFault::Cut => (0.0, less, None),
            TrialFault::Armed => (0.0, None, less),
        };
        let experiment = Experiment {
            site: &site,
            trace: &trace,
            limit,
            seed: trial.seed,
            blind,
            cut,
            armed,
            instant: 1.0,
        };
        let outcome = |&arm: &ArmName| {
            // Only a written limit can be armed.
            let mut divider: Box<dyn Divider + '_> = match (trial.fault, arm) {
                (TrialFault::Armed, ArmName::Ours) => Box::new(PlannedArm::written(&site)),
                _ => arm.divider(&site, &trace),
            };
            (arm, run(&Experiment { instant: arm.instant(), ..experiment }, &mut *divider))
        };
        let outcomes = trial.arms.iter().map(outcome).collect();
        Self {
            hash: trace.hash(),
            limit,
            clairvoyant: clairvoyant(&site, &trace, &limits),
            held: held(&site, &trace, &limits, 30),
            held_entitled: held_entitled(&site, &trace, &limits, 30),
            held_entitled_100: held_entitled(&site, &trace, &limits, 100),
            outcomes,
            trial,
        }
    }

    /// What an arm has done, if it took part.
    #[must_use]
    pub fn figures(&self, arm: ArmName) -> Option<&Figures> {
        self.outcomes.iter().find(|(name, _)| *name == arm).map(|(_, figures)| figures)
    }
}

/// The machines and the minutes of a day.
pub const DAY: (usize, usize) = (100, 1_440);

/// The experiments on faults and on hard demands.
#[must_use]
pub fn hard(seed: u64) -> Vec<Trial> {
    const FEW: [ArmName; 3] = [ArmName::Static, ArmName::Slurm, ArmName::Ours];
    let trial = |mix, fault, arms: &[ArmName]| Trial { mix, fault, seed, arms: arms.to_vec(), size: None };
    let mut all: Vec<Trial> = [2, 4, 10, 30, 60, 120, 240]
        .into_iter()
        .map(|period_s| trial(DemandMix::Square { period_s, anti: true }, TrialFault::None, &FEW))
        .collect();
    for mix in [
        DemandMix::Square { period_s: 60, anti: false },
        DemandMix::Gangs,
        DemandMix::Flash,
        DemandMix::Greedy,
        DemandMix::Steady,
    ] {
        all.push(trial(mix, TrialFault::None, &FEW));
    }
    let day = trial(DemandMix::Diurnal, TrialFault::None, &[ArmName::Static, ArmName::Ours]);
    all.push(Trial { size: Some(DAY), ..day });
    for fault in [TrialFault::Classes, TrialFault::Blind(0.1), TrialFault::Blind(1.0), TrialFault::Cut] {
        all.push(trial(DemandMix::C, fault, &[ArmName::Static, ArmName::Ours]));
    }
    all.push(trial(DemandMix::C, TrialFault::Armed, &[ArmName::Ours]));
    for mix in [DemandMix::Flash, DemandMix::Square { period_s: 120, anti: false }] {
        all.push(trial(mix, TrialFault::None, &[ArmName::TwoLimits]));
    }
    for fault in [TrialFault::Blind(0.1), TrialFault::Blind(1.0)] {
        all.push(trial(DemandMix::C, fault, &[ArmName::TwoLimits]));
    }
    all
}

/// Runs trials on so many threads; the results come in the order of the trials.
#[must_use]
pub fn run_all(trials: Vec<Trial>, (machines, minutes): (usize, usize), threads: usize) -> Vec<Tried> {
    let waiting = Mutex::new(trials.into_iter().enumerate().rev().collect::<Vec<_>>());
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop();
                    let Some((at, trial)) = next else { break };
                    let tried = Tried::of(trial, machines, minutes);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((at, tried));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, tried)| tried).collect()
}
