//! Functions that several stories use.

use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use system::register::RegisterFiles;
use system::world::{PATIENCE, RIG, TestSystem};
use system::{objects, until};
use tokio::task::JoinHandle;

/// Whether this is `cargo xtask test --long`.
#[expect(clippy::disallowed_methods, reason = "the one switch between short waits and long ones")]
pub(crate) fn is_long() -> bool {
    std::env::var_os("JOULIE_LONG").is_some()
}

/// For how long it is looked on that nothing happens: this long in `cargo xtask test --long`, else half of it.
pub(crate) fn looked_on(long: Duration) -> Duration {
    if is_long() { long } else { long / 2 }
}

/// How many compressed days nodes sleep through: three in `cargo xtask test --long`, else one.
pub(crate) fn days() -> u32 {
    if is_long() { 3 } else { 1 }
}

/// Waits for something, or fails.
pub(crate) async fn wait(what: &str, is_so: impl AsyncFnMut() -> bool) {
    if let Err(why) = until(what, PATIENCE, is_so).await {
        panic!("{why}");
    }
}

/// A file of a ConfigMap among rendered objects.
pub(crate) fn in_config_map<'o>(objects: &'o [Value], name: &str, file: &str) -> &'o str {
    let is = |one: &&Value| one["kind"] == "ConfigMap" && one["metadata"]["name"] == name;
    objects.iter().find(is).unwrap()["data"][file].as_str().unwrap()
}

/// Converts watts to microwatts.
pub(crate) fn uw(watts: u32) -> u64 {
    u64::from(watts) * 1_000_000
}

/// Waits until both packages are limited to this.
pub(crate) async fn limited(world: &TestSystem, watts: u32) {
    wait(&format!("both packages at {watts} W"), async || {
        world.registers.limits_uw().unwrap() == [uw(watts); 2]
    })
    .await;
}

/// Waits until the node's profile reports that this generation is enforced, with this cap on each package.
pub(crate) async fn reported(world: &TestSystem, generation: i64, watts: u32) -> Value {
    let mut seen = Value::Null;
    let is_so = async || {
        seen = objects::get(&world.client, "NodePowerProfile", RIG).await.unwrap();
        let enforced = objects::condition(&seen, "CapEnforced");
        enforced["status"] == "True"
            && enforced["observedGeneration"] == generation
            && seen["status"]["control"]["cpu"]["capWatts"].as_f64() == Some(f64::from(watts))
    };
    let outcome = until("the report", PATIENCE, is_so).await;
    assert!(outcome.is_ok(), "generation {generation}, {watts} W: {seen:#}");
    seen
}

/// Samples the limits until it is asked for the highest one.
pub(crate) struct Sampler {
    over: Arc<AtomicBool>,
    task: JoinHandle<(u64, u32)>,
}

impl Sampler {
    pub(crate) fn start(registers: &RegisterFiles) -> Self {
        let (registers, over) = (registers.clone(), Arc::new(AtomicBool::new(false)));
        let ended = Arc::clone(&over);
        let task = tokio::spawn(async move {
            let (mut most, mut looks) = (0, 0);
            while !ended.load(Ordering::Relaxed) {
                let limits = registers.limits_uw().unwrap();
                most = limits.into_iter().fold(most, u64::max);
                looks += 1;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            (most, looks)
        });
        Self { over, task }
    }

    /// The highest sampled limit, and the number of samples.
    pub(crate) async fn highest(self) -> (u64, u32) {
        self.over.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}
