//! The phases: what is done to the system, and what is measured.

use super::bars::Bar;
use super::seen::{Takeover, takeover};
use super::site::Part;
use super::{Run, STEADY_WITHIN, whole_watts};
use crate::SystemError;
use cluster::Component;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// In each interval of this length leader, agent and extender are killed once.
const ROUND: Duration = Duration::from_secs(8);
/// The leader is killed only once in this many rounds, if the operator must be able to raise grants between two
/// kills.
const LEADER_ROUNDS: u64 = 6;
/// The time limit for a new leader to hold the Lease and to have planned.
pub(super) const TAKEOVER_S: f64 = 15.0;
/// How long after an outage of the API server nodes may count as dead.
const AFTER_OUTAGE: Duration = Duration::from_secs(20);
/// How long a booting machine is off.
const OFF: Duration = Duration::from_secs(3);
/// After a boot each program starts at a random time within this limit.
const COMES_UP_MS: u64 = 3_000;
/// How long after a cut, once every operator was informed of it, the limits may still be above it: a new leader waits
/// 13 s, an agent without a connection has `BUDGET_ANSWER_WITHIN`, 30 s, and then the others have 10 s to make up for
/// it.
const CUT_DEADLINE: Duration = Duration::from_secs(53);
/// How long the limits are checked after that.
const AFTER_DEADLINE: Duration = Duration::from_secs(15);
/// The least part of their limits that machines under full load draw.
const LOADED_PART: f64 = 0.8;
/// The new limit as a part of the old one.
pub(super) const CUT_TO: f64 = 0.6;

/// The program to kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    /// The holder of the Lease.
    Leader,
    Agent,
    Extender,
}

impl Run {
    pub(super) async fn kills(&mut self) -> Result<(), SystemError> {
        let (begun, above) = (Instant::now(), self.above());
        let leaders = self.killed(1).await?;
        let settled = self.steady("the kills").await;
        self.bars.push(Bar::none_above("chaos_kills_seconds_above", self.above() - above));
        self.lowered(begun);
        self.takeovers(&leaders);
        settled
    }

    /// The same while the operator continuously lowers and raises grants. A new leader raises nothing for twenty
    /// seconds, so leaders live longer here.
    pub(super) async fn swaps(&mut self) -> Result<(), SystemError> {
        let above = self.above();
        self.site.swaps(true);
        self.rolled_out().await?;
        let leaders = self.killed(LEADER_ROUNDS).await;
        // Wait until the new leader acts, before it is asked to stop.
        self.acts(Instant::now()).await?;
        self.site.swaps(false);
        self.rolled_out().await?;
        let settled = self.steady("the swaps").await;
        self.bars.push(Bar::none_above("chaos_swaps_seconds_above", self.above() - above));
        self.takeovers(&leaders?);
        settled
    }

    /// Waits until there is a leader that has planned since then.
    async fn acts(&self, since: Instant) -> Result<(), SystemError> {
        crate::until("a leader that plans", STEADY_WITHIN, async || {
            self.seen.has_planned_since(since) && self.site.leader().await.is_some()
        })
        .await
    }

    /// Restarts both operators, one after the other, with the current settings.
    async fn rolled_out(&self) -> Result<(), SystemError> {
        for part in Part::OPERATORS {
            self.site.end(part).await?;
            self.site.run(part)?;
            self.truth.note(&format!("{} has other settings", part.name()));
        }
        Ok(())
    }

    /// Runs the planned kills, with the leader only once in `leader_rounds` rounds. Returns the killed leaders and
    /// the times.
    async fn killed(&mut self, leader_rounds: u64) -> Result<Vec<(String, Instant)>, SystemError> {
        let (begun, falls) = (Instant::now(), self.truth.falls());
        let mut leaders = Vec::new();
        for (at, victim) in self.due(leader_rounds) {
            tokio::time::sleep_until(begun + at).await;
            let (part, holder) = match victim {
                Victim::Agent => (Part::Agent, None),
                Victim::Extender => (Part::Extender, None),
                Victim::Leader => match self.site.leader().await {
                    Some((part, holder)) => (part, Some(holder)),
                    // The killed leader has no successor yet.
                    None => continue,
                },
            };
            let at = Instant::now();
            self.site.kill(part);
            let leads = holder.as_deref().unwrap_or("");
            self.truth.note(&format!("{} is killed {leads}", part.name()));
            leaders.extend(holder.map(|holder| (holder, at)));
            self.site.run(part)?;
        }
        tokio::time::sleep_until(begun + self.plan.kills).await;
        println!("  limits in force fell {} times by more than a watt", self.truth.falls() - falls);
        Ok(leaders)
    }

    /// The times of the kills, and their victims.
    fn due(&mut self, leader_rounds: u64) -> Vec<(Duration, Victim)> {
        let rounds = (self.plan.kills.as_secs() / ROUND.as_secs()).max(1);
        let mut due = Vec::new();
        for round in 0..rounds {
            for victim in [Victim::Leader, Victim::Agent, Victim::Extender] {
                let within = Duration::from_millis(self.draw.below(8_000));
                if victim == Victim::Leader && (round + 1) % leader_rounds != 0 {
                    continue;
                }
                due.push((ROUND * u32::try_from(round).unwrap_or(u32::MAX) + within, victim));
            }
        }
        due.sort_by_key(|(at, _)| *at);
        due
    }

    fn takeovers(&mut self, leaders: &[(String, Instant)]) {
        let reigns = self.seen.reigns();
        for (holder, at) in leaders {
            let took = match takeover(&reigns, holder, *at) {
                Some(Takeover { held, acted: Some(acted) }) => {
                    println!(
                        "  a leader is killed: another has the Lease after {:.1} s and has planned after {:.1} s",
                        held.as_secs_f64(),
                        acted.as_secs_f64()
                    );
                    acted.as_secs_f64()
                }
                Some(Takeover { held, acted: None }) => {
                    println!(
                        "  a leader is killed: another has the Lease after {:.1} s and is killed before it has planned",
                        held.as_secs_f64()
                    );
                    held.as_secs_f64()
                }
                None => {
                    println!("  a leader is killed, and no other has the Lease");
                    f64::INFINITY
                }
            };
            self.takeovers_s.push(took);
        }
    }

    pub(super) async fn outage(&mut self) -> Result<(), SystemError> {
        let (begun, above) = (Instant::now(), self.above());
        self.truth.note("the API server is stopped");
        tokio::task::block_in_place(|| self.site.control_plane.stop(Component::ApiServer));
        tokio::time::sleep(self.plan.outage).await;
        let ended = self.site.ended();
        tokio::task::block_in_place(|| self.site.control_plane.run(Component::ApiServer))?;
        self.truth.note("the API server is back");
        tokio::time::sleep(AFTER_OUTAGE).await;
        let settled = self.steady("the API server is back").await;
        self.bars.push(Bar::none_above("chaos_outage_seconds_above", self.above() - above));
        self.lowered(begun);
        match ended {
            Some(ended) => Err(ended.into()),
            None => settled,
        }
    }

    pub(super) async fn reboot(&mut self) -> Result<(), SystemError> {
        let above = self.above();
        for part in Part::ALL {
            self.site.kill(part);
        }
        self.truth.down();
        self.seen.booted(BTreeMap::new());
        self.truth.note("all machines are rebooted, with everything that runs on them");
        tokio::time::sleep(OFF).await;
        self.truth.booted();
        let begun = Instant::now();
        // The nodes have new boot ids from now on.
        self.site.machines().await?;
        self.booted().await?;
        for part in self.draw.shuffled([Part::Agent, Part::OperatorA, Part::OperatorB, Part::Extender]) {
            tokio::time::sleep(Duration::from_millis(self.draw.below(COMES_UP_MS / 4))).await;
            self.truth.note(&format!("{} is up", part.name()));
            self.site.run(part)?;
        }
        let count = self.truth.names().len();
        let heard = crate::until("receipts", STEADY_WITHIN, async || self.seen.receipts() == count).await;
        if heard.is_ok() {
            println!("  every machine has a receipt {:.1} s after it is on", begun.elapsed().as_secs_f64());
        }
        let settled = self.steady("every receipt").await;
        self.bars.push(Bar::none_above("chaos_reboot_seconds_above_without_excuse", self.above() - above));
        settled
    }

    /// Waits until the machines draw most of their limits, because a cut at a lower load proves nothing. Returns the
    /// power.
    async fn loaded(&self) -> Result<f64, SystemError> {
        let mut drawn = 0.0;
        let outcome = crate::until("", STEADY_WITHIN, async || {
            let told = self.site.telemetry().await.unwrap_or_default();
            drawn = told.values().filter_map(|told| told["packagePowerWatts"].as_f64()).sum();
            drawn >= self.truth.look().sum * LOADED_PART
        })
        .await;
        match outcome {
            Ok(()) => Ok(drawn),
            Err(_) => Err(format!("the machines are not loaded any more: they draw {drawn:.0} W").into()),
        }
    }

    pub(super) async fn cut(&mut self) -> Result<(), SystemError> {
        let above = self.above();
        let before = self.limit;
        self.limit = whole_watts(f64::from(before) * CUT_TO);
        let drawn = self.loaded().await?;
        println!("  {before} → {} W, while the machines draw {drawn:.0} W", self.limit);
        self.site.limit(self.limit);
        let begun = Instant::now();
        self.rolled_out().await?;
        self.truth.cut(f64::from(self.limit), CUT_DEADLINE);
        let told = Instant::now();
        let kept = crate::until("the limits", CUT_DEADLINE, async || {
            let look = self.truth.look();
            look.sum <= look.limit + 0.5
        })
        .await;
        let after = begun.elapsed().as_secs_f64();
        match kept {
            Ok(()) => println!("  kept {after:.1} s after the first operator was told of it"),
            Err(_) => println!("  not kept {after:.1} s after the first operator was told of it"),
        }
        tokio::time::sleep_until(told + CUT_DEADLINE + AFTER_DEADLINE).await;
        let settled = self.steady("the cut").await;
        self.bars.push(Bar::none_above("chaos_cut_seconds_above_after_deadline", self.above() - above));
        settled
    }
}
