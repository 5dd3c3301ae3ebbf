//! A feed is lost at full load: seven tenths of the limit are left. How long until the limits in force are below that, by an
//! armed event and by grants.

use super::bars::Bar;
use super::truth::Truth;
use super::{Run, STEADY_WITHIN, whole_watts};
use crate::SystemError;
use crate::objects;
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

/// The PowerBudget and the event.
const FEED: &str = "feed";
/// What is left of the limit.
const LEFT: f64 = 0.7;
/// How often each way is tried. The longest time counts, which is at least the 99th percentile.
const BY_EVENT: u32 = 10;
const BY_GRANTS: u32 = 5;
/// The time limits.
const EVENT_S: f64 = 2.0;
const GRANTS_S: f64 = 10.0;
/// The limits in force are up again at this part of what they were.
const BACK: f64 = 0.95;
/// How long the sum must be watched between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// What has come back is left alone for so long.
const REST: Duration = Duration::from_secs(3);

impl Run {
    pub(super) async fn feed(&mut self) -> Result<(), SystemError> {
        let above = self.above();
        let (limit, held) = (self.limit, self.truth.look().sum);
        let left = whole_watts(f64::from(limit) * LEFT);
        let (least, most) = self.range;
        // Rounded down, as a limit.
        let share = ((f64::from(left) - least) / (most - least) * 100.0).floor() / 100.0;
        if share < 0.0 {
            return Err(format!("these machines cannot be held to {left} W").into());
        }
        // Else nothing would have to come down, and every time would be 0.
        if held * BACK <= f64::from(left) + 0.5 {
            return Err(format!("only {held:.0} W are in force, and {left} W are left").into());
        }
        self.allow(limit, share).await?;
        crate::until("every grant says what the event leaves", STEADY_WITHIN, async || {
            let grants = objects::list(&self.site.client, "NodePowerGrant").await.unwrap_or_default();
            !grants.is_empty() && grants.iter().all(|grant| grant["spec"]["armed"][0]["event"] == FEED)
        })
        .await?;
        self.steady("the feed is armed").await?;
        let (mut event, mut grants) = (0.0_f64, 0.0_f64);
        for _ in 0..BY_EVENT {
            let begun = Instant::now();
            objects::write(&self.site.client, "PowerEvent", FEED, json!({"event": FEED})).await?;
            event = event.max(below(&self.truth, left, begun).await?);
            objects::delete(&self.site.client, "PowerEvent", FEED).await?;
            self.back(held).await?;
        }
        println!("  {limit} W, then {left} W: {event:.2} s at most of {BY_EVENT} times by an armed event");
        for _ in 0..BY_GRANTS {
            let begun = Instant::now();
            self.allow(left, share).await?;
            self.truth.cut(f64::from(left), Duration::from_secs_f64(GRANTS_S));
            grants = grants.max(below(&self.truth, left, begun).await?);
            self.truth.cut(f64::from(limit), Duration::ZERO);
            self.allow(limit, share).await?;
            self.back(held).await?;
        }
        println!("  {limit} W, then {left} W: {grants:.2} s at most of {BY_GRANTS} times by grants");
        objects::delete(&self.site.client, "PowerBudget", FEED).await?;
        let settled = self.steady("the feed").await;
        self.bars.push(Bar::new("chaos_feed_event_s_max", event, EVENT_S));
        self.bars.push(Bar::new("chaos_feed_grants_s_max", grants, GRANTS_S));
        self.bars.push(Bar::none_above("chaos_feed_seconds_above", self.above() - above));
        settled
    }

    /// Limits all machines together, and says what the event leaves of each.
    async fn allow(&self, watts: u32, share: f64) -> Result<(), SystemError> {
        let shares = json!({"performance": share, "draining": share, "eco": share});
        let armed = json!([{"event": FEED, "shares": shares}]);
        let spec = json!({"watts": watts, "mode": "enforce", "armed": armed});
        objects::write(&self.site.client, "PowerBudget", FEED, spec).await.map(drop)
    }

    async fn back(&self, held: f64) -> Result<(), SystemError> {
        crate::until("the limits rise again", STEADY_WITHIN, async || self.truth.look().sum >= held * BACK)
            .await?;
        tokio::time::sleep(REST).await;
        Ok(())
    }
}

/// How many seconds after `begun` all limits together were at most so much.
async fn below(truth: &Truth, watts: u32, begun: Instant) -> Result<f64, SystemError> {
    while truth.look().sum > f64::from(watts) + 0.5 {
        if begun.elapsed() > STEADY_WITHIN {
            return Err(format!("the limits are {:.0} W, and {watts} W are left", truth.look().sum).into());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(begun.elapsed().as_secs_f64())
}
