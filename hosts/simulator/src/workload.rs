//! A generated workload: pods whose sizes, classes and durations are drawn from a seed.
//!
//! The same seed and mix give the same pods in the same order. When each pod is created also depends on how many pods
//! wait for a node.

mod driver;

pub(crate) use driver::{create, keep_waiting, watch};

use crate::hardware::Vendor;
use crate::work::{CPU_CLASS, CPU_UTIL, DURATION, GPU_CLASS, GPU_UTIL, LoadBottleneck};
use host_kit::config::parse;
use joulie_api::labels::pod::WORKLOAD_CLASS;
use plant::Random;
use serde_json::{Value, json};
use std::time::Duration;

/// The label of every pod of the workload, as upstream's trace driver sets it.
pub const PART_OF: (&str, &str) = ("app.kubernetes.io/part-of", "joulie-sim-workload");
/// The label with the family of a pod.
pub const FAMILY: &str = "sim.joulie.io/family";
/// The random stream of the workload.
const SOURCE: u64 = 7_000;
/// The standard deviation of the logarithm of durations, and the longest and shortest duration relative to the mean.
const SPREAD: f64 = 0.6;
const LONGEST: f64 = 6.0;
const SHORTEST: f64 = 0.1;

/// The composition of a workload. Times are simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    /// The mean time between two pods.
    pub gap: Duration,
    /// The mean duration at full speed.
    pub duration: Duration,
    /// The GPUs that pods request. `None` leaves out the families that request GPUs.
    pub gpus: Option<WorkloadGpus>,
}

/// The GPUs that the pods of a workload request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkloadGpus {
    /// Their vendor.
    pub vendor: Vendor,
    /// A pod requests no more than one node has: it would wait for ever.
    pub most: u32,
}

impl Mix {
    /// Reads `none` or `MEAN-GAP/MEAN-DURATION`, as in `2s/60s`.
    ///
    /// # Errors
    /// If it is neither.
    pub fn parse(text: &str) -> Result<Option<Self>, String> {
        if text.trim() == "none" {
            return Ok(None);
        }
        let (gap, duration) = text.split_once('/').ok_or("it is neither none nor GAP/DURATION")?;
        let time = |text: &str| {
            let range = Duration::from_millis(10)..=Duration::from_secs(30 * 86_400);
            parse::duration(text.trim(), range).map_err(|wrong| wrong.to_string())
        };
        Ok(Some(Self {
            gap: time(gap)?,
            duration: time(duration)?,
            gpus: Some(WorkloadGpus { vendor: Vendor::Nvidia, most: 8 }),
        }))
    }
}

/// A family of pods (based on facts/simulator.md section 4.3).
struct Family {
    name: &'static str,
    /// Its share in percent.
    part: f64,
    cpus: &'static [u32],
    gpus: &'static [u32],
    cpu_util: (f64, f64),
    gpu_util: (f64, f64),
    class: LoadBottleneck,
    /// The share of performance pods.
    performance: f64,
    /// Its duration relative to the mean.
    longer: f64,
}

const FAMILIES: [Family; 5] = [
    Family {
        name: "small",
        part: 35.0,
        cpus: &[1, 2, 4, 8],
        gpus: &[],
        cpu_util: (30.0, 80.0),
        gpu_util: (0.0, 0.0),
        class: LoadBottleneck::Mixed,
        performance: 0.0,
        longer: 0.5,
    },
    Family {
        name: "medium",
        part: 25.0,
        cpus: &[8, 16, 32],
        gpus: &[],
        cpu_util: (40.0, 90.0),
        gpu_util: (0.0, 0.0),
        class: LoadBottleneck::Memory,
        performance: 0.3,
        longer: 1.0,
    },
    Family {
        name: "training",
        part: 20.0,
        cpus: &[8, 16],
        gpus: &[1, 2, 4, 8],
        cpu_util: (30.0, 60.0),
        gpu_util: (60.0, 95.0),
        class: LoadBottleneck::Compute,
        performance: 1.0,
        longer: 2.0,
    },
    Family {
        name: "inference",
        part: 12.0,
        cpus: &[4, 8],
        gpus: &[1, 2],
        cpu_util: (30.0, 60.0),
        gpu_util: (30.0, 70.0),
        class: LoadBottleneck::Mixed,
        performance: 0.0,
        longer: 0.7,
    },
    Family {
        name: "large",
        part: 8.0,
        cpus: &[32, 64],
        gpus: &[],
        cpu_util: (50.0, 95.0),
        gpu_util: (0.0, 0.0),
        class: LoadBottleneck::Compute,
        performance: 1.0,
        longer: 1.5,
    },
];

/// How many processors batch work asks for, and how busy it keeps them; some pods are small, so that they fill what others leave.
const BATCH_CPUS: [u32; 3] = [2, 4, 8];
const BATCH_UTIL: &str = "95";
/// How many processors batch work on a GPU asks for beside it, and how busy it keeps them.
const BATCH_GPU_CPUS: u32 = 2;
const BATCH_GPU_CPU_UTIL: &str = "50";

/// What batch work runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Batch {
    Cpus,
    /// One GPU.
    Gpu,
}

impl Batch {
    /// Its family.
    const fn family(self) -> &'static str {
        match self {
            Self::Cpus => "batch",
            Self::Gpu => "gpu-batch",
        }
    }

    fn read(family: &str) -> Option<Self> {
        [Self::Cpus, Self::Gpu].into_iter().find(|batch| batch.family() == family)
    }
}

/// Draws the pods.
#[derive(Clone, Debug)]
pub struct Generator {
    mix: Mix,
    random: Random,
}

/// A pod to be created.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// The time since the pod before, in simulated time.
    pub after: Duration,
    /// The object, without a namespace.
    pub pod: Value,
}

impl Generator {
    /// A generator with this seed.
    #[must_use]
    pub fn new(mix: Mix, seed: u64) -> Self {
        Self { mix, random: Random::stream(seed, SOURCE) }
    }

    /// The next pod. The sequence never ends.
    pub fn draw(&mut self) -> Job {
        // 1 − u is above 0: the gap is finite.
        let gap = -(1.0 - self.random.unit()).ln();
        let after = self.mix.gap.mul_f64(gap.clamp(0.0, 10.0));
        let family = self.family();
        let cpus = self.one_of(family.cpus);
        let most = self.mix.gpus.map_or(0, |gpus| gpus.most);
        let within = family.gpus.partition_point(|&gpus| gpus <= most);
        let gpus = self.one_of(family.gpus.get(..within).unwrap_or_default());
        let performance = self.random.unit() < family.performance;
        let cpu_util = self.between(family.cpu_util);
        let gpu_util = self.between(family.gpu_util);
        let spread = (SPREAD * self.random.normal()).exp().clamp(SHORTEST, LONGEST);
        let duration = self.mix.duration.mul_f64(family.longer * spread);
        let mut annotations = json!({
            WORKLOAD_CLASS: if performance { "performance" } else { "standard" },
            DURATION: format!("{}ms", duration.as_millis().max(10)),
            CPU_CLASS: family.class.word(),
            CPU_UTIL: format!("{cpu_util:.0}"),
        });
        let mut resources = json!({"cpu": cpus.to_string(), "memory": format!("{cpus}Gi")});
        if let Some(WorkloadGpus { vendor, .. }) = self.mix.gpus.filter(|_| gpus > 0) {
            annotations[GPU_UTIL] = json!(format!("{gpu_util:.0}"));
            annotations[GPU_CLASS] = json!(family.class.word());
            resources[vendor.resource()] = json!(gpus.to_string());
        }
        Job { after, pod: pod(family.name, &annotations, &resources) }
    }

    /// The next pod of batch work, whatever the mix; none on a GPU where no pod may ask for one.
    pub(crate) fn draw_batch(&mut self, batch: Batch) -> Option<Value> {
        let spread = (SPREAD * self.random.normal()).exp().clamp(SHORTEST, LONGEST);
        let duration = self.mix.duration.mul_f64(spread).as_millis().max(10);
        let mut annotations = json!({
            WORKLOAD_CLASS: "standard",
            DURATION: format!("{duration}ms"),
            CPU_CLASS: LoadBottleneck::Compute.word(),
            CPU_UTIL: BATCH_UTIL,
        });
        let cpus = match batch {
            Batch::Cpus => self.one_of(&BATCH_CPUS),
            Batch::Gpu => BATCH_GPU_CPUS,
        };
        let mut resources = json!({"cpu": cpus.to_string(), "memory": format!("{cpus}Gi")});
        if batch == Batch::Gpu {
            annotations[CPU_UTIL] = json!(BATCH_GPU_CPU_UTIL);
            annotations[GPU_UTIL] = json!(BATCH_UTIL);
            annotations[GPU_CLASS] = json!(LoadBottleneck::Compute.word());
            resources[self.mix.gpus?.vendor.resource()] = json!("1");
        }
        Some(pod(batch.family(), &annotations, &resources))
    }

    /// A generator of batch work, which does not change what another one with this seed draws.
    #[must_use]
    pub(crate) fn of_batch(mix: Mix, seed: u64, batch: Batch) -> Self {
        let own = match batch {
            Batch::Cpus => 1,
            Batch::Gpu => 2,
        };
        Self { mix, random: Random::stream(seed, SOURCE + own) }
    }

    /// Without GPUs the families that need them are not drawn.
    fn family(&mut self) -> &'static Family {
        let possible = |family: &&Family| self.mix.gpus.is_some() || family.gpus.is_empty();
        let all: f64 = FAMILIES.iter().filter(possible).map(|family| family.part).sum();
        let mut left = self.random.unit() * all;
        let gpus = self.mix.gpus.is_some();
        let mut chosen = &FAMILIES[0];
        for family in FAMILIES.iter().filter(|family| gpus || family.gpus.is_empty()) {
            chosen = family;
            left -= family.part;
            if left < 0.0 {
                break;
            }
        }
        chosen
    }

    /// One of the numbers, all equally likely; 0 if there is none.
    fn one_of(&mut self, of: &[u32]) -> u32 {
        let drawn = self.random.bits();
        let count = u64::try_from(of.len()).unwrap_or(1).max(1);
        let at = usize::try_from(drawn % count).unwrap_or(0);
        of.get(at).copied().unwrap_or(0)
    }

    fn between(&mut self, (low, high): (f64, f64)) -> f64 {
        low + (high - low) * self.random.unit()
    }
}

fn pod(family: &str, annotations: &Value, resources: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": format!("sim-{family}-"),
            "labels": {PART_OF.0: PART_OF.1, FAMILY: family},
            "annotations": annotations,
        },
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 5,
            "containers": [{
                "name": "work",
                "image": "registry.k8s.io/pause:3.9",
                "resources": {"requests": resources, "limits": resources},
            }],
        },
    })
}

#[cfg(test)]
mod tests;
