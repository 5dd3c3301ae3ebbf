//! Power follows demand: pods of all families come and go, others wait, and three fifths of what the machines can draw are
//! allowed. How much of that is drawn.

use super::bars::Bar;
use super::pods::NAMESPACE;
use super::{Run, STEADY_WITHIN};
use crate::SystemError;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use std::time::Duration;
use tokio::time::Instant;

/// The limit of the site, as a part of the most that all machines may draw.
pub(super) const DEMAND_LIMIT_PART: f64 = 0.6;
/// Pods are placed and started for so long before it is measured.
const BEGINS: Duration = Duration::from_secs(90);
/// How long it is measured, and how often.
const LASTS: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The most of the limit that may stay unused while pods wait, in percent.
const UNUSED_PCT: f64 = 10.0;

/// What is seen at one moment, in watts.
struct Sample {
    drawn: f64,
    /// The sum of the limits in force.
    held: f64,
    waiting: usize,
}

impl Run {
    pub(super) async fn demand(&mut self) -> Result<(), SystemError> {
        crate::until("the limits hold", STEADY_WITHIN, async || {
            let look = self.truth.look();
            look.sum <= look.limit + 0.5
        })
        .await?;
        let above = self.above();
        tokio::time::sleep(BEGINS).await;
        let begun = Instant::now();
        let mut samples = Vec::new();
        while begun.elapsed() < LASTS {
            let sample = self.sample().await?;
            println!(
                "  {:.0} s: {:.0} W are drawn, {:.0} of {} W are in force, {} pods wait",
                begun.elapsed().as_secs_f64(),
                sample.drawn,
                sample.held,
                self.limit,
                sample.waiting
            );
            samples.push(sample);
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let limit = f64::from(self.limit);
        let mut parts: Vec<f64> =
            samples.iter().filter(|it| it.waiting > 0).map(|it| it.drawn / limit).collect();
        parts.sort_by(f64::total_cmp);
        let Some(lowest) = parts.get(parts.len() / 20) else { return Err("no pod waited".into()) };
        let count = f64::from(u32::try_from(parts.len())?);
        let mean = parts.iter().sum::<f64>() / count;
        let held = samples.iter().map(|it| it.held).fold(f64::INFINITY, f64::min);
        println!("  used while pods waited: {mean:.3} of the limit, at the 5th percentile {lowest:.3}");
        self.unused_pct = (limit - held) / limit * 100.0;
        self.bars.push(Bar::new("chaos_demand_unused_pct", (1.0 - mean) * 100.0, UNUSED_PCT));
        self.bars.push(Bar::none_above("chaos_demand_seconds_above", self.above() - above));
        Ok(())
    }

    async fn sample(&self) -> Result<Sample, SystemError> {
        let told = self.site.telemetry().await?;
        let drawn = told.values().filter_map(|told| told["packagePowerWatts"].as_f64()).sum();
        let pods: Api<Pod> = Api::namespaced(self.site.client.clone(), NAMESPACE);
        let listed = pods.list(&ListParams::default().fields("spec.nodeName=")).await?;
        Ok(Sample { drawn, held: self.truth.look().sum, waiting: listed.items.len() })
    }
}
