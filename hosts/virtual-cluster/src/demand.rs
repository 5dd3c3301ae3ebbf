//! What the devices of a site would draw if nothing limited them, second by second, made from a seed.
//!
//! The generator is frozen: a test holds a hash of what it makes. A change of it changes every figure ever measured.

mod jobs;

use crate::numbers::{short, whole};
use crate::site::{MachineModel, VirtualSite};
use crate::{STEP_S, STEPS_A_SECOND};
use jobs::{Batch, Busy, Gang, Inference, Job, Occasional};
use plant::Random;

/// What runs on the machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DemandMix {
    /// More inference than training; the site's demand is 0.81 of its limit.
    A,
    /// As much of both: 0.88.
    B,
    /// More training than inference: 1.00.
    C,
    /// A day: inference and batch follow the hours.
    Diurnal,
    /// All machines are busy for half of the period and idle for the other half, `anti`: half of them the other way round.
    Square {
        /// The period, in seconds.
        period_s: u32,
        /// Half of the machines are idle while the others are busy.
        anti: bool,
    },
    /// Short jobs on gangs of 64 machines.
    Gangs,
    /// As B; twice, all inference machines are busy at once for two minutes.
    Flash,
    /// As C; a fifth of the machines belong to one tenant, who always draws all that he can.
    Greedy,
    /// Every machine draws the same all the time.
    Steady,
}

/// What a mix consists of.
struct Parts {
    /// The part of the GPU machines that train in gangs.
    training: f64,
    /// The part that answers requests; the others work now and then.
    inference: f64,
    /// The machines of a gang.
    gang: (usize, usize),
    /// The mean demand, of the limit.
    of_limit: f64,
}

impl DemandMix {
    /// The mix of this name: `A`, `B`, `C`, `diurnal`, `gangs`, `flash`, `greedy`, `steady`, and with a period in
    /// seconds `square-30` and `antiphase-30`.
    #[must_use]
    pub fn read(name: &str) -> Option<Self> {
        let square = |period: &str, anti| {
            let period_s = period.parse().ok().filter(|period_s| (2..=3_600).contains(period_s))?;
            Some(Self::Square { period_s, anti })
        };
        match name {
            "A" => Some(Self::A),
            "B" => Some(Self::B),
            "C" => Some(Self::C),
            "diurnal" => Some(Self::Diurnal),
            "gangs" => Some(Self::Gangs),
            "flash" => Some(Self::Flash),
            "greedy" => Some(Self::Greedy),
            "steady" => Some(Self::Steady),
            _ => match name.split_once('-') {
                Some(("square", period)) => square(period, false),
                Some(("antiphase", period)) => square(period, true),
                Some(_) | None => None,
            },
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::A => "A".to_owned(),
            Self::B => "B".to_owned(),
            Self::C => "C".to_owned(),
            Self::Diurnal => "diurnal".to_owned(),
            Self::Square { period_s, anti: false } => format!("square-{period_s}"),
            Self::Square { period_s, anti: true } => format!("antiphase-{period_s}"),
            Self::Gangs => "gangs".to_owned(),
            Self::Flash => "flash".to_owned(),
            Self::Greedy => "greedy".to_owned(),
            Self::Steady => "steady".to_owned(),
        }
    }

    fn parts(self) -> Parts {
        let (training, inference, of_limit) = match self {
            Self::A => (0.35, 0.45, 0.81),
            Self::B | Self::Flash => (0.42, 0.42, 0.88),
            Self::C | Self::Greedy => (0.50, 0.35, 1.00),
            Self::Diurnal => (0.35, 0.50, 0.85),
            Self::Gangs => (0.90, 0.0, 0.90),
            Self::Square { .. } => (0.0, 0.0, 1.0),
            Self::Steady => (0.0, 0.0, 0.95),
        };
        let gang = match self {
            Self::Gangs => (64, 64),
            // Few of them, so that the sum of all demand moves too.
            Self::B | Self::Flash => (8, 32),
            Self::A | Self::C | Self::Diurnal | Self::Greedy | Self::Square { .. } | Self::Steady => (2, 16),
        };
        Parts { training, inference, gang, of_limit }
    }

    /// The mean demand, of the limit.
    #[must_use]
    pub fn of_limit(self) -> f64 {
        self.parts().of_limit
    }
}

/// What a machine would do in a step, in watts of its devices together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MachineDemand {
    /// What they would draw.
    pub drawn: f64,
    /// The lowest cap that does not limit them.
    pub needed: f64,
    /// The most that the devices which work could ask for; an idle device asks for its floor.
    pub most: f64,
}

/// The demand of every machine at every step, in whole watts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DemandTrace {
    machines: usize,
    /// By step and machine.
    cells: Vec<[u16; 3]>,
    /// By step: the machines on which a job starts.
    starts: Vec<Vec<usize>>,
    /// The machines of the tenant who draws all that he can.
    greedy: Vec<bool>,
}

impl DemandTrace {
    /// The demand of a site for so many minutes.
    #[must_use]
    pub fn of(site: &VirtualSite, mix: DemandMix, seed: u64, minutes: usize) -> Self {
        let steps = minutes * 60 * STEPS_A_SECOND;
        let machines = site.machines.len();
        let mut jobs = Tenancy::of(site, mix, seed);
        let mut cells = Vec::with_capacity(steps * machines);
        let mut starts = Vec::with_capacity(steps);
        for step in 0..steps {
            // The middle of the step.
            let at = (step as f64 + 0.5) * STEP_S;
            starts.push(jobs.advance(at));
            for (machine, one) in site.machines.iter().enumerate() {
                cells.push(cell(one.kind, jobs.busy(machine, at)));
            }
        }
        Self { machines, cells, starts, greedy: jobs.greedy }
    }

    /// How many steps there are.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.starts.len()
    }

    /// What each machine would do at a step.
    pub fn at(&self, step: usize) -> impl Iterator<Item = MachineDemand> {
        let cells = self.cells.get(step * self.machines..(step + 1) * self.machines).unwrap_or_default();
        cells.iter().map(|cell| {
            let [drawn, needed, most] = cell.map(f64::from);
            MachineDemand { drawn, needed, most }
        })
    }

    /// The machines on which a job starts at a step.
    #[must_use]
    pub fn starts(&self, step: usize) -> &[usize] {
        self.starts.get(step).map_or(&[], Vec::as_slice)
    }

    /// Whether a machine belongs to the tenant who draws all that he can.
    #[must_use]
    pub fn is_greedy(&self, machine: usize) -> bool {
        self.greedy.get(machine) == Some(&true)
    }

    /// The mean of what all devices together would draw.
    #[must_use]
    pub fn mean(&self) -> f64 {
        let sum: f64 = self.cells.iter().map(|&[drawn, ..]| f64::from(drawn)).sum();
        sum / self.steps().max(1) as f64
    }

    /// The limit of a site under which the mix is what it says: the mean demand with all that nobody controls, divided by
    /// the part of the limit that it is.
    #[must_use]
    pub fn limit(&self, site: &VirtualSite, mix: DemandMix) -> f64 {
        ((self.mean() + site.whole_base()) / mix.of_limit()).floor()
    }

    /// A fingerprint of all of it (64-bit FNV-1a).
    #[must_use]
    pub fn hash(&self) -> u64 {
        let words = self.cells.iter().flatten().flat_map(|word| word.to_le_bytes());
        words.fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
        })
    }
}

/// What a machine draws with this much work, the lowest cap that does not limit it, and the most that it could ask for.
fn cell(kind: &MachineModel, busy: Busy) -> [u16; 3] {
    let Busy { gpus, gpu, cpu } = busy;
    let active = gpus * f64::from(kind.gpus.count);
    let (gpu, cpu) = (kind.gpus.at(gpu), kind.packages.at(cpu));
    let packages = f64::from(kind.packages.count);
    let idle = (f64::from(kind.gpus.count) - active) * kind.gpus.idle;
    let drawn = active * gpu + idle + packages * cpu;
    let above = active * (gpu - kind.gpus.floor).max(0.0) + packages * (cpu - kind.packages.floor).max(0.0);
    let more = if gpu > kind.gpus.floor { active * (kind.gpus.max - kind.gpus.floor) } else { 0.0 };
    // Packages ask for a little more than they draw.
    let package = (cpu * 1.03 + 10.0).min(kind.packages.max).max(kind.packages.floor);
    let most = kind.floor() + more + packages * (package - kind.packages.floor);
    [short(drawn), short(kind.floor() + above), short(most)]
}

/// Which job is on which machine.
struct Tenancy {
    gangs: Vec<Gang>,
    on: Vec<Job>,
    greedy: Vec<bool>,
}

impl Tenancy {
    fn of(site: &VirtualSite, mix: DemandMix, seed: u64) -> Self {
        let parts = mix.parts();
        let mut random = Random::stream(seed, 0);
        let machines = site.machines.len();
        let mut greedy = vec![false; machines];
        let mut on: Vec<Job> = Vec::with_capacity(machines);
        for (at, machine) in site.machines.iter().enumerate() {
            let stream = Random::stream(seed, 1_000_000 + at as u64);
            on.push(if machine.kind.gpus.count == 0 {
                Job::Batch(Batch::new(stream))
            } else {
                Job::Occasional(Occasional::new(stream))
            });
        }
        match mix {
            DemandMix::Square { period_s, anti } => {
                for (at, job) in on.iter_mut().enumerate() {
                    *job = Job::Square { period: f64::from(period_s), shifted: anti && at % 2 == 1 };
                }
            }
            DemandMix::Steady => on.iter_mut().for_each(|job| *job = Job::Steady(0.1 + 0.9 * random.unit())),
            DemandMix::A
            | DemandMix::B
            | DemandMix::C
            | DemandMix::Diurnal
            | DemandMix::Gangs
            | DemandMix::Flash
            | DemandMix::Greedy => {}
        }
        let mut gpus: Vec<usize> =
            (0..machines).filter(|&at| site.machines[at].kind.gpus.count > 0).collect();
        if mix == DemandMix::Greedy {
            // Every fifth machine of any kind.
            for at in (0..machines).step_by(5) {
                greedy[at] = true;
                on[at] = Job::Steady(1.0);
            }
            gpus.retain(|&at| !greedy[at]);
        }
        shuffle(&mut gpus, &mut random);
        let count = gpus.len() as f64;
        let training = whole(count * parts.training);
        let inference = whole(count * parts.inference).min(gpus.len() - training);
        let gangs = form(&gpus[..training], &parts, seed, &mut random, &mut on);
        for &at in &gpus[training..training + inference] {
            let stream = Random::stream(seed, 1_000_000 + at as u64);
            on[at] =
                Job::Inference(Inference::new(stream, mix == DemandMix::Flash, mix == DemandMix::Diurnal));
        }
        if mix == DemandMix::Diurnal {
            for job in &mut on {
                if let Job::Batch(batch) = job {
                    batch.follow_the_hours();
                }
            }
        }
        Self { gangs, on, greedy }
    }

    /// Goes on to a time; returns the machines on which a job starts.
    fn advance(&mut self, at: f64) -> Vec<usize> {
        let begun: Vec<bool> = self.gangs.iter_mut().map(|gang| gang.advance(at)).collect();
        let starts = self.on.iter_mut().enumerate().filter_map(|(machine, job)| {
            let starts = match job {
                Job::Gang { gang, .. } => begun.get(*gang) == Some(&true),
                // A service goes on; it is no new job.
                Job::Inference(job) => {
                    job.advance(at);
                    false
                }
                Job::Batch(job) => job.advance(at),
                Job::Occasional(job) => job.advance(at),
                Job::Square { .. } | Job::Steady(_) => false,
            };
            starts.then_some(machine)
        });
        starts.collect()
    }

    fn busy(&self, machine: usize, at: f64) -> Busy {
        match &self.on[machine] {
            Job::Gang { gang, lag, level } => self.gangs[*gang].busy(at, *lag, *level),
            Job::Inference(job) => job.busy(at),
            Job::Batch(job) => job.busy(),
            Job::Occasional(job) => job.busy(),
            Job::Square { period, shifted } => jobs::square(at, *period, *shifted),
            Job::Steady(level) => Busy { gpus: 1.0, gpu: *level, cpu: *level },
        }
    }
}

/// Divides the machines among gangs.
fn form(machines: &[usize], parts: &Parts, seed: u64, random: &mut Random, on: &mut [Job]) -> Vec<Gang> {
    let (least, most) = parts.gang;
    let mut gangs = Vec::new();
    let mut left = machines;
    while !left.is_empty() {
        let size = least + whole((most - least) as f64 * random.unit());
        let (gang, others) = left.split_at(size.min(left.len()));
        for &at in gang {
            on[at] =
                Job::Gang { gang: gangs.len(), lag: 0.5 * random.unit(), level: 0.97 + 0.06 * random.unit() };
        }
        let stream = Random::stream(seed, 2_000_000 + gangs.len() as u64);
        gangs.push(Gang::new(stream, least == most));
        left = others;
    }
    gangs
}

fn shuffle(all: &mut [usize], random: &mut Random) {
    for last in (1..all.len()).rev() {
        let other = whole(random.unit() * (last + 1) as f64 - 0.5).min(last);
        all.swap(last, other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_its_mix_and_nothing_else_is() {
        let all = [
            DemandMix::A,
            DemandMix::B,
            DemandMix::C,
            DemandMix::Diurnal,
            DemandMix::Gangs,
            DemandMix::Flash,
            DemandMix::Greedy,
            DemandMix::Steady,
            DemandMix::Square { period_s: 30, anti: true },
            DemandMix::Square { period_s: 240, anti: false },
        ];
        for mix in all {
            assert_eq!(DemandMix::read(&mix.name()), Some(mix));
        }
        for name in
            ["", "a", "D", "square-", "square-1", "square-3601", "antiphase--3", "steady-3", "square-x"]
        {
            assert_eq!(DemandMix::read(name), None, "{name}");
        }
    }

    #[test]
    fn the_lowest_cap_that_does_not_limit_counts_idle_devices_at_their_floors() {
        // One GPU of eight at 700 W: 700 + 7 · 70 + 2 · 90 = 1370 drawn; floors 2 · 125 + 8 · 200 = 1850, and 500 more.
        let one = Busy { gpus: 0.125, gpu: 1.0, cpu: 0.0 };
        // It could ask for that much.
        assert_eq!(cell(&crate::site::GPU8, one), [1370, 2350, 2350]);
        // Without work: 560 + 180 drawn, and the floors.
        let none = Busy { gpus: 1.0, gpu: 0.0, cpu: 0.0 };
        assert_eq!(cell(&crate::site::GPU8, none), [740, 1850, 1850]);
    }
}
