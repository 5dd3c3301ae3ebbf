//! The energy and the limits of all nodes together, from the true state and not from measurements of the system under
//! test: the counters and registers of the virtual hardware, and the energy and limits of each simulated machine.
//!
//! The energy is that of whole nodes. Between two samples only the mean power is known. There are some five samples a
//! second, and a limit averages over one second.

use crate::SystemError;
use crate::world::TestSystem;
use futures::{StreamExt, TryStreamExt};
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;

/// The time between two samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    /// Its start.
    pub from: Instant,
    /// Its length.
    pub took: Duration,
    /// The mean power of all nodes together.
    pub watts: f64,
    /// The sum of the limits of all packages and GPUs at its end.
    pub limits: f64,
}

/// Takes samples.
pub struct EnergySampler {
    names: Vec<String>,
    range_uj: u64,
    last: Option<Look>,
}

/// A sample: its time, the counters of the hardware, and the time and energy of each simulated node.
struct Look {
    at: Instant,
    rig_uj: u64,
    simulated: Vec<(f64, f64)>,
    limits: f64,
}

impl EnergySampler {
    /// A sampler for all nodes of a world.
    ///
    /// # Errors
    /// If the simulator does not list its nodes.
    pub async fn new(world: &TestSystem) -> Result<Self, SystemError> {
        let listed = world.simulator.get("/nodes").await?;
        let names = listed["nodes"].as_array().into_iter().flatten();
        let names = names.filter_map(|name| name.as_str().map(str::to_owned)).collect();
        Ok(Self { names, range_uj: world.registers.energy_range_uj()?, last: None })
    }

    /// Takes a sample, and returns the time since the last one.
    ///
    /// # Errors
    /// If a node does not answer.
    pub async fn look(&mut self, world: &TestSystem) -> Result<Option<Stretch>, SystemError> {
        let states = futures::stream::iter(self.names.clone())
            .map(|name| async move { world.simulator.get(&format!("/state/{name}")).await })
            .buffered(8)
            .try_collect::<Vec<_>>()
            .await?;
        let simulated = states.iter().map(joules).collect::<Result<Vec<_>, SystemError>>()?;
        let rig = world.registers.limits_uw()?.map(|limit| limit as f64 / 1e6);
        let limits = rig.iter().sum::<f64>() + states.iter().map(limits).sum::<f64>();
        let now = Look { at: Instant::now(), rig_uj: world.registers.energy_uj()?, simulated, limits };
        let stretch = self.last.as_ref().map(|last| self.between(last, &now));
        self.last = Some(now);
        Ok(stretch)
    }

    fn between(&self, last: &Look, now: &Look) -> Stretch {
        let took = now.at - last.at;
        let rig = self.counted(last.rig_uj, now.rig_uj) as f64 / 1e6 / took.as_secs_f64();
        // Use each machine's own time, so that a slow sample does not blur the result.
        let simulated = last.simulated.iter().zip(&now.simulated).map(|(last, now)| {
            let seconds = now.0 - last.0;
            if seconds > 0.0 { (now.1 - last.1) / seconds } else { 0.0 }
        });
        Stretch { from: last.at, took, watts: rig + simulated.sum::<f64>(), limits: now.limits }
    }

    /// The difference of two readings of a counter, which may have wrapped.
    fn counted(&self, last: u64, now: u64) -> u64 {
        if now >= last { now - last } else { self.range_uj.saturating_sub(last).saturating_add(now) }
    }
}

fn joules(state: &Value) -> Result<(f64, f64), SystemError> {
    let state = &state["state"];
    let read = |field: &str| state[field].as_f64().ok_or_else(|| format!("no {field} in {state}"));
    Ok((read("simulatedSeconds")?, read("joules")?))
}

/// The limits of all packages and GPUs of a simulated machine; one that is off draws nothing through them.
fn limits(state: &Value) -> f64 {
    if state["state"]["power"] == "off" {
        return 0.0;
    }
    let (cpu, gpu) = (&state["state"]["telemetry"]["cpu"], &state["state"]["telemetry"]["gpu"]);
    let product = |part: &Value, each: &str, count: &str| {
        part[each].as_f64().unwrap_or_default() * part[count].as_f64().unwrap_or_default()
    };
    product(cpu, "capWatts", "sockets") + product(gpu, "capWattsPerGpuApplied", "count")
}
