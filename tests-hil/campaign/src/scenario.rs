//! A scenario: a machine, a node, and a series of points drawn from a seed.

mod strike;

use crate::MachineKind;
use crate::node::PERIOD;
use crate::point::PointKind;
use crate::process::{self, unfinished_journal};
use crate::random::Draw;
use crate::tally::Tally;
use crate::world::{self, Wish, World};
use std::path::PathBuf;
use std::time::Duration;

/// The parameters of a campaign.
#[derive(Clone, Debug)]
pub struct CampaignPlan {
    /// The program whose `node` command runs a node.
    pub program: PathBuf,
    /// The first seed.
    pub seed: u64,
    /// The least number of points.
    pub points: u64,
    /// The machines to draw from; a repeated entry is drawn more often.
    pub kinds: Vec<MachineKind>,
    /// The percentage of scenarios that run free.
    pub free_percent: usize,
    /// A deliberate defect, to check that it is detected.
    pub sabotage: Sabotage,
}

/// A deliberate defect of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// Nothing.
    None,
    /// The journal is deleted after a kill.
    LostJournal,
    /// Every limit is raised after every period, without the scenario's knowledge.
    SecretRival,
    /// The sub-zones are written through their files.
    Meddler,
}

/// A scenario that found a defect.
#[derive(Clone, Debug)]
pub struct FailedScenario {
    /// Its seed: `campaign --scenario SEED` runs it again.
    pub seed: u64,
    /// Its machine.
    pub kind: MachineKind,
    /// Whether it ran free.
    pub free: bool,
    /// The requirements that were violated.
    pub wrong: Vec<String>,
    /// The points up to the failure.
    pub log: Vec<String>,
    /// The last writes, and the power and the node's status of the last seconds.
    pub recent: Vec<String>,
}

/// Runs scenarios until there were enough points or `enough` failures. An error says why none can run here.
///
/// # Errors
/// If virtual hardware cannot be mounted; the text says why.
pub fn run(
    plan: &CampaignPlan,
    enough: usize,
    mut each: impl FnMut(u64, &Tally),
) -> Result<(Tally, Vec<FailedScenario>), String> {
    let (mut tally, mut failures) = (Tally::default(), Vec::new());
    let mut seed = plan.seed;
    while tally.all_points() < plan.points && failures.len() < enough {
        let (of_it, failure) = scenario(plan, seed)?;
        tally.add(&of_it);
        failures.extend(failure);
        each(seed, &tally);
        seed = seed.wrapping_add(1);
    }
    Ok((tally, failures))
}

/// Runs one scenario.
///
/// # Errors
/// As [`run`].
pub fn scenario(plan: &CampaignPlan, seed: u64) -> Result<(Tally, Option<FailedScenario>), String> {
    let mut draw = Draw::new(seed);
    let kind = *draw.pick(&plan.kinds);
    let free = draw.percent(plan.free_percent);
    let points = draw.within(20, 50);
    let world = World::new(kind, free, draw, &plan.program)?;
    let mut stage = Stage { world, log: Vec::new(), offline: Vec::new(), sabotage: plan.sabotage };
    stage.play(points);
    let (tally, wrong, recent) = stage.world.close();
    let log = stage.log;
    let failure = (!wrong.is_empty()).then_some(FailedScenario { seed, kind, free, wrong, log, recent });
    Ok((tally, failure))
}

struct Stage {
    world: World,
    log: Vec<String>,
    /// Processors that are offline.
    offline: Vec<usize>,
    sabotage: Sabotage,
}

impl Stage {
    fn play(&mut self, points: u32) {
        self.world.start();
        self.tell_another_cap();
        self.ticks(4);
        for _ in 0..points {
            let kind = PointKind::draw(&mut self.world.draw);
            *self.world.tally.points.entry(kind).or_default() += 1;
            self.log.push(format!("{} ms: {}", self.world.now_us / 1000, kind.label()));
            self.strike(kind);
            self.heal();
            self.spoil();
            if !self.world.is_up() {
                self.come_back();
            }
            let rest = self.world.draw.within(0, 8);
            self.ticks(rest);
            // Only the first error counts, because later ones are usually its consequences.
            if !self.world.wrong.is_empty() || !self.world.ledger().wrong.is_empty() {
                return;
            }
        }
        self.end();
    }

    fn note(&mut self, what: impl Into<String>) {
        self.log.push(format!("    {}", what.into()));
    }

    fn ticks(&mut self, count: u32) {
        for _ in 0..count {
            self.world.tick();
            if self.sabotage == Sabotage::SecretRival {
                self.raise_everything();
            }
        }
    }

    /// Starts a node after a while without one, and sends it the desired state.
    fn come_back(&mut self) {
        let without = self.world.draw.within(0, 4);
        self.ticks(without);
        self.world.start();
        if self.world.draw.percent(20) {
            self.ticks(2);
        }
        self.world.tell();
    }

    fn another_cap(&mut self) -> Wish {
        let (low, high) = self.world.kind.caps();
        Wish::Cap(self.world.draw.within(low, high))
    }

    fn tell_another_cap(&mut self) {
        self.wish(None);
        self.world.tell();
    }

    /// Changes the desired state, or the cap. The node is not informed yet.
    fn wish(&mut self, wish: Option<Wish>) {
        let wish = match wish {
            Some(wish) => wish,
            None => self.another_cap(),
        };
        self.note(format!("{wish:?}"));
        self.world.wish = wish;
        self.world.disturb();
    }

    fn heal(&mut self) {
        self.world.open_gates();
        self.world.machine.lock().faults().heal();
        let beside = unfinished_journal(&self.world.state());
        if beside.is_dir() {
            let _removed = std::fs::remove_dir(&beside);
        }
        self.world.heal();
    }

    fn end(&mut self) {
        self.log.push(format!("{} ms: end", self.world.now_us / 1000));
        let offline = std::mem::take(&mut self.offline);
        offline.into_iter().for_each(|cpu| self.online(cpu, true));
        self.ticks(2);
        if self.world.draw.percent(40) {
            self.restore();
        } else {
            self.wish(Some(Wish::Gone));
            self.world.tell();
            // A zone that came back is found within a minute, and a refused write is repeated within a minute.
            let mut left = 400;
            while self.world.ledger().held() > 0 && left > 0 && self.world.is_up() {
                self.ticks(1);
                left -= 1;
            }
        }
        self.world.stop();
        let machine = self.world.machine.clone();
        self.world.ledger().everything_is_back(&machine.lock());
    }

    /// Restores with another process, as an administrator does.
    fn restore(&mut self) {
        self.note("restored by another process");
        self.world.kill();
        let free = std::mem::replace(&mut self.world.free, true);
        self.world.start();
        self.world.free = free;
        let answer = self.world.ask("restore");
        if answer.as_deref() != Some("restored") {
            self.world.accuse(format!("told to restore, the node answered {answer:?}"));
        }
        self.world.kill();
    }

    /// Applies the deliberate defect of the scenario.
    fn spoil(&mut self) {
        match self.sabotage {
            Sabotage::None | Sabotage::SecretRival => {}
            Sabotage::LostJournal if !self.world.is_up() => {
                let _removed = std::fs::remove_file(self.world.state().join("originals.json"));
            }
            Sabotage::LostJournal => {}
            Sabotage::Meddler => self.meddle(),
        }
    }

    fn lag(&mut self, most: Duration) -> Duration {
        most.mul_f64(self.world.draw.unit())
    }

    fn kill_in_write(&mut self) {
        let Some(killer) = self.world.killer() else { return };
        let writes = self.world.draw.within(1, 12);
        self.note(format!("in write {writes}"));
        self.world.ledger().kill_in(writes, killer);
        self.tell_another_cap();
        let mut left = 3;
        while self.world.is_up() && left > 0 {
            self.ticks(1);
            left -= 1;
        }
        self.world.kill();
    }

    fn kill_in_period(&mut self) {
        if self.world.draw.percent(50) {
            self.wish(None);
            let Wish::Cap(watts) = self.world.wish else { return };
            self.world.say(&format!("cap {watts}"));
        }
        if !self.world.free {
            self.world.say(&world::tick(PERIOD.get(), None));
        }
        let lag = self.lag(Duration::from_millis(4));
        process::pause(lag);
        self.world.kill();
    }

    /// The journal is replaced when a control is touched for the first time, or released.
    fn kill_in_journal(&mut self) {
        let gone = self.world.wish != Wish::Gone && self.world.draw.percent(50);
        self.wish(Some(Wish::Gone));
        if !gone {
            self.world.tell();
            self.ticks(2);
            self.wish(None);
        }
        let line = match self.world.wish {
            Wish::Gone => "gone".to_owned(),
            Wish::Cap(watts) => format!("cap {watts}"),
        };
        self.world.say(&line);
        if !self.world.free {
            self.world.say(&world::tick(PERIOD.get(), None));
        }
        let beside = unfinished_journal(&self.world.state());
        let mut looks = 20_000;
        while !beside.exists() && looks > 0 {
            looks -= 1;
        }
        let lag = self.lag(Duration::from_micros(300));
        process::pause(lag);
        self.world.kill();
    }

    fn kill_at_start(&mut self) {
        self.world.kill();
        for _ in 0..self.world.draw.within(1, 3) {
            let lag = self.lag(Duration::from_millis(15));
            match self.world.spawn(Duration::from_secs(10)) {
                Ok(process) => {
                    process::pause(lag);
                    process.killer().kill();
                    self.world.tally.kills += 1;
                    if !process.bury() {
                        self.world.accuse("the killed node does not go away".to_owned());
                    }
                }
                Err(error) => self.world.accuse(format!("the node cannot be started: {error}")),
            }
        }
        self.world.audit();
    }

    fn kill_after_cap(&mut self) {
        self.wish(None);
        self.world.tell();
        self.world.kill();
    }
}
