//! The tables, the plot and the bars.

use crate::demand::DemandMix;
use crate::figures::{Figures, LimitParts};
use crate::trials::{ArmName, TrialFault, Tried};
use joulie_core::budget::Priority;

fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

fn or_dash(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "–".to_owned(), show)
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.fold((0.0, 0.0), |(count, sum), value| (count + 1.0, sum + value));
    (count > 0.0).then_some(sum / count)
}

/// An arm on one mix: the figures of all seeds, with their bounds.
struct Seeds<'a> {
    all: Vec<(&'a Figures, &'a Tried)>,
}

impl<'a> Seeds<'a> {
    fn of(tried: &'a [Tried], mix: DemandMix, fault: TrialFault, arm: ArmName) -> Option<Self> {
        let here = tried.iter().filter(|tried| tried.trial.mix == mix && tried.trial.fault == fault);
        let all: Vec<_> = here.filter_map(|tried| Some((tried.figures(arm)?, tried))).collect();
        (!all.is_empty()).then_some(Self { all })
    }

    fn each(&self, what: impl Fn(&Figures) -> f64) -> impl Iterator<Item = f64> {
        self.all.iter().map(move |(figures, _)| what(figures))
    }

    fn mean(&self, what: impl Fn(&Figures) -> f64) -> f64 {
        mean(self.each(what)).unwrap_or(f64::NAN)
    }

    fn most(&self, what: impl Fn(&Figures) -> f64) -> f64 {
        self.each(what).fold(f64::NEG_INFINITY, f64::max)
    }

    fn used(&self) -> Option<f64> {
        mean(self.all.iter().filter_map(|(figures, _)| figures.mean_use()))
    }

    fn used_p5(&self) -> Option<f64> {
        mean(self.all.iter().filter_map(|(figures, _)| figures.use_p5()))
    }

    fn of_clairvoyant(&self) -> f64 {
        let (served, bound) = self.sums(|tried| tried.clairvoyant);
        served / bound
    }

    fn of_held(&self) -> f64 {
        let (served, bound) = self.sums(|tried| tried.held);
        served / bound
    }

    fn sums(&self, bound: impl Fn(&Tried) -> f64) -> (f64, f64) {
        let add = |(served, bounds): (f64, f64), (figures, tried): &(&Figures, &Tried)| {
            (served + figures.served(), bounds + bound(tried))
        };
        self.all.iter().fold((0.0, 0.0), add)
    }

    /// Where the limit is while a cap limits somebody.
    fn parts_row(&self, arm: ArmName) -> String {
        let of = |what: fn(&LimitParts) -> f64| percent(self.mean(|figures| what(&figures.limit_parts())));
        format!(
            "| {} | {} | {} | {} | {} | {} | {} |\n",
            arm.name(),
            of(|parts| parts.drawn),
            of(|parts| parts.floors),
            of(|parts| parts.unneeded),
            of(|parts| parts.on_its_way),
            of(|parts| parts.room),
            of(|parts| parts.missing),
        )
    }

    fn classes_row(&self, arm: ArmName) -> String {
        let of = |class| percent(self.mean(|figures| figures.throttled_in(class)));
        let [performance, draining, eco] = [Priority::Performance, Priority::Draining, Priority::Eco].map(of);
        format!("| {} | {performance} | {draining} | {eco} |\n", arm.name())
    }

    fn row(&self, arm: ArmName) -> String {
        format!(
            "| {} | {} | {} | {:.3} | {:.3} | {} | {} | {:.1}, {:.1}, {:.0} | {:.2} | {:.0} | {:.0} | {:.1} | {} |",
            arm.name(),
            or_dash(self.used(), |part| format!("{part:.3}")),
            or_dash(self.used_p5(), |part| format!("{part:.3}")),
            self.of_clairvoyant(),
            self.of_held(),
            percent(self.mean(Figures::throttled)),
            percent(self.mean(Figures::below_entitled)),
            self.most(|figures| figures.below_entitled_for(0.9)),
            self.most(|figures| figures.below_entitled_for(0.99)),
            self.most(|figures| figures.below_entitled_for(1.0)),
            self.mean(Figures::fairness),
            self.mean(Figures::orders),
            self.mean(Figures::writes),
            self.most(Figures::above_s),
            percent(self.most(Figures::excess)),
        )
    }
}

const HEAD: &str = "\
| arm | use | p5 | served | of held 30 s | throttled | bitten below the entitlement | for s: p90, p99, longest | Jain \
| orders a minute | writes a minute | counts above, s | drawn above |
|---|---|---|---|---|---|---|---|---|---|---|---|---|
";

const PARTS_HEAD: &str = "\
| while somebody is throttled, of the limit | drawn | floors of devices without work | held and not needed | on its way \
| room | missing |
|---|---|---|---|---|---|---|
";

const CLASSES_HEAD: &str = "\
| throttled | performance | draining | eco |
|---|---|---|---|
";

/// Mixes with what was done to the cluster, in the order in which they ran.
fn kinds(all: &[Tried]) -> Vec<(DemandMix, TrialFault)> {
    let mut kinds: Vec<(DemandMix, TrialFault)> = Vec::new();
    for tried in all {
        let one = (tried.trial.mix, tried.trial.fault);
        if !kinds.contains(&one) {
            kinds.push(one);
        }
    }
    kinds
}

/// The tables of all trials, and the plot of one.
#[must_use]
pub fn text(all: &[Tried]) -> String {
    let mut text = String::new();
    for (mix, fault) in kinds(all) {
        let here = || all.iter().filter(|tried| (tried.trial.mix, tried.trial.fault) == (mix, fault));
        let of = |what: fn(&Tried) -> f64| mean(here().map(what)).unwrap_or(f64::NAN);
        let comma = if fault == TrialFault::None { "" } else { ", " };
        text.push_str(&format!(
            "### {}{comma}{}\n\nLimit {:.0} kW; held 30 s serves {:.3} of the clairvoyant. Where nobody is throttled below its entitlement, it is \
            {:.3} of that, and {:.3} with caps that stand for 100 s.\n\n",
            mix.name(),
            fault.name(),
            of(|tried| tried.limit) / 1e3,
            of(|tried| tried.held / tried.clairvoyant),
            of(|tried| tried.held_entitled / tried.held),
            of(|tried| tried.held_entitled_100 / tried.held),
        ));
        text.push_str(HEAD);
        for arm in ArmName::ALL {
            if let Some(seeds) = Seeds::of(all, mix, fault, arm) {
                text.push_str(&seeds.row(arm));
                text.push('\n');
            }
        }
        text.push('\n');
        let keeping =
            || ArmName::KEEPING.iter().filter_map(|&arm| Some((arm, Seeds::of(all, mix, fault, arm)?)));
        text.push_str(PARTS_HEAD);
        keeping().for_each(|(arm, seeds)| text.push_str(&seeds.parts_row(arm)));
        text.push('\n');
        if fault == TrialFault::Classes {
            text.push_str(CLASSES_HEAD);
            keeping().for_each(|(arm, seeds)| text.push_str(&seeds.classes_row(arm)));
            text.push('\n');
        }
    }
    let last = all.iter().find(|tried| tried.trial.mix == DemandMix::C);
    if let Some(tried) = last.or(all.first()) {
        text.push_str(&plot(tried));
    }
    text
}

/// The use of the limit over time; a row is 2 % of the limit.
fn plot(tried: &Tried) -> String {
    const MARKS: [(ArmName, char); 3] = [(ArmName::Static, 's'), (ArmName::Slurm, 'l'), (ArmName::Ours, 'o')];
    const COLUMNS: usize = 75;
    let mut lines: Vec<(char, Vec<f64>)> = Vec::new();
    for (arm, mark) in MARKS {
        let Some(figures) = tried.figures(arm) else { continue };
        let course = figures.course();
        let width = course.len().div_ceil(COLUMNS).max(1);
        let column = |part: &[f64]| (part.iter().sum::<f64>() / part.len() as f64 * 50.0).round();
        lines.push((mark, course.chunks(width).map(column).collect()));
    }
    let mut text = String::new();
    text.push_str(&format!(
        "Use of the limit, mix {}, seed {}: `s` static, `l` Slurm's law, `o` ours, `=` several of them:\n\n```text\n",
        tried.trial.mix.name(),
        tried.trial.seed
    ));
    let columns = lines.iter().map(|(_, line)| line.len()).max().unwrap_or(0);
    for row in (25..=51_u8).rev().map(f64::from) {
        let mark = |at: usize| {
            let mut here = lines.iter().filter(|(_, line)| line.get(at) == Some(&row)).map(|(mark, _)| *mark);
            match (here.next(), here.next()) {
                (Some(_), Some(_)) => '=',
                (Some(mark), None) => mark,
                (None, _) if row == 50.0 => '-',
                (None, _) => ' ',
            }
        };
        let marks: String = (0..columns).map(mark).collect();
        text.push_str(format!("{:>4.0} % |{marks}", row * 2.0).trim_end());
        text.push('\n');
    }
    let minutes = tried.outcomes.first().map_or(0, |(_, figures)| figures.course().len() / 6);
    let gap = columns.saturating_sub(8);
    text.push_str(&format!("       0 min{:gap$}{minutes} min\n```\n", ""));
    text
}

/// The window of the second limit.
const WINDOW_S: usize = 60;

/// A figure and what it must be.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// Its name.
    pub name: String,
    /// What was measured.
    pub value: f64,
    /// What it must not be above, or below.
    pub limit: f64,
    /// Whether that is so.
    pub passes: bool,
}

/// All bars.
#[derive(Clone, Debug, Default)]
pub struct Bars(pub Vec<Bar>);

impl Bars {
    /// The bars of which the figures are there.
    #[must_use]
    pub fn of(tried: &[Tried]) -> Self {
        let mut bars = Self::default();
        for mix in [DemandMix::A, DemandMix::B, DemandMix::C] {
            bars.mix(tried, mix);
        }
        bars.two_limits(tried);
        bars.everywhere(tried);
        bars.hard(tried);
        bars
    }

    fn mix(&mut self, tried: &[Tried], mix: DemandMix) {
        let of = |arm| Seeds::of(tried, mix, TrialFault::None, arm);
        let Some(ours) = of(ArmName::Ours) else { return };
        let name = mix.name().to_lowercase();
        self.at_least(&format!("budget_{name}_served_of_held_30s"), ours.of_held(), 0.95);
        if let Some(slurm) = of(ArmName::Slurm) {
            let more = (ours.of_clairvoyant() - slurm.of_clairvoyant()) * 100.0;
            self.at_least(&format!("budget_{name}_points_above_slurm"), more, 0.0);
        }
        self.at_most(
            &format!("budget_{name}_bitten_below_entitled_pct"),
            ours.mean(Figures::below_entitled) * 100.0,
            2.5,
        );
        let p90 = ours.most(|figures| figures.below_entitled_for(0.9));
        self.at_most(&format!("budget_{name}_bitten_below_entitled_p90_s"), p90, 4.0);
        self.at_most(&format!("budget_{name}_writes_a_minute"), ours.most(Figures::writes), 9_000.0);
        if let Some(used) = ours.used() {
            self.at_least(&format!("budget_{name}_use"), used, 0.90);
        }
    }

    /// No minute's mean is above the limit for the mean, while the limit for every instant is higher.
    fn two_limits(&mut self, tried: &[Tried]) {
        let all = || tried.iter().filter_map(|tried| Some((tried, tried.figures(ArmName::TwoLimits)?)));
        let worst =
            all().map(|(_, figures)| figures.window_excess(WINDOW_S)).fold(f64::NEG_INFINITY, f64::max);
        if worst.is_finite() {
            self.at_most("budget_two_limits_minute_above_sustained_pct", worst * 100.0, 0.0);
        }
        if let Some(used) = Seeds::of(tried, DemandMix::C, TrialFault::None, ArmName::TwoLimits)
            .and_then(|seeds| seeds.used())
        {
            self.at_least("budget_c_two_limits_use", used, 0.93);
        }
        if let Some(armed) = Seeds::of(tried, DemandMix::C, TrialFault::Armed, ArmName::Ours) {
            let p99 = armed.most(|figures| figures.armed_after(0.99).unwrap_or(f64::INFINITY));
            let (within, above) = (
                armed.most(|figures| figures.armed_within().map_or(f64::INFINITY, |(within, _)| within)),
                armed.most(|figures| figures.armed_within().map_or(f64::INFINITY, |(_, above)| above)),
            );
            self.at_most("budget_armed_cut_p99_s", p99, 2.0);
            self.at_most("budget_armed_cut_all_in_force_s", within, 2.0);
            self.at_most("budget_armed_cut_above_later_s", above, 0.0);
        }
    }

    /// What must hold in every trial.
    fn everywhere(&mut self, tried: &[Tried]) {
        let ours = || tried.iter().filter_map(|tried| Some((tried, tried.figures(ArmName::Ours)?)));
        if ours().next().is_none() {
            return;
        }
        let below = ours().filter_map(|(tried, ours)| {
            let least = tried.figures(ArmName::Static)?;
            Some((least.served() - ours.served()) / tried.clairvoyant * 100.0)
        });
        let below = below.fold(f64::NEG_INFINITY, f64::max);
        if below.is_finite() {
            self.at_most("budget_most_points_below_static", below, 2.0);
        }
        let above =
            tried.iter().flat_map(|tried| ArmName::KEEPING.iter().filter_map(|&arm| tried.figures(arm)));
        self.at_most("budget_counts_above_limit_s", above.map(Figures::above_s).sum(), 0.0);
    }

    fn hard(&mut self, tried: &[Tried]) {
        let of = |mix, fault| Seeds::of(tried, mix, fault, ArmName::Ours);
        if let Some(greedy) = of(DemandMix::Greedy, TrialFault::None) {
            let others = greedy.each(Figures::others_served).fold(f64::INFINITY, f64::min);
            self.at_least("budget_others_of_their_entitled_demand", others, 0.99);
        }
        if let Some(steady) = of(DemandMix::Steady, TrialFault::None) {
            let at_end = |what: fn((u64, u64)) -> u64| steady.most(|figures| what(figures.at_end()) as f64);
            self.at_most("budget_steady_orders", at_end(|(orders, _)| orders), 0.0);
            self.at_most("budget_steady_writes", at_end(|(_, writes)| writes), 0.0);
        }
        if let Some(classes) = of(DemandMix::C, TrialFault::Classes) {
            let of = |class| classes.mean(|figures| figures.throttled_in(class)) * 100.0;
            let (fast, eco) = (of(Priority::Performance), of(Priority::Eco));
            self.at_most("budget_classes_performance_throttled_pct_of_eco", fast / eco * 100.0, 100.0);
        }
        if let Some(cut) = of(DemandMix::C, TrialFault::Cut) {
            let after = cut.most(|figures| figures.within_after().unwrap_or(f64::INFINITY));
            self.at_most("budget_within_a_cut_limit_after_s", after, 10.0);
        }
        // Of the same seed.
        let one = |fault, arm| {
            let seed = tried.iter().find(|tried| tried.trial.fault == TrialFault::Cut)?.trial.seed;
            let same = |tried: &&Tried| {
                tried.trial.mix == DemandMix::C && tried.trial.fault == fault && tried.trial.seed == seed
            };
            tried.iter().find(same)?.figures(arm)?.mean_use()
        };
        if let Some((clear, blind)) =
            one(TrialFault::None, ArmName::Ours).zip(one(TrialFault::Blind(0.1), ArmName::Ours))
        {
            self.at_most("budget_points_of_use_lost_to_10pct_blind", (clear - blind) * 100.0, 1.5);
        }
        if let Some((least, blind)) =
            one(TrialFault::Blind(1.0), ArmName::Static).zip(one(TrialFault::Blind(1.0), ArmName::Ours))
        {
            self.at_least("budget_points_above_static_when_all_are_blind", (blind - least) * 100.0, -0.05);
        }
    }

    /// A value that must not be below the limit.
    pub fn at_least(&mut self, name: &str, value: f64, limit: f64) {
        self.0.push(Bar { name: name.to_owned(), value, limit, passes: value >= limit });
    }

    /// A value that must not be above the limit.
    pub fn at_most(&mut self, name: &str, value: f64, limit: f64) {
        self.0.push(Bar { name: name.to_owned(), value, limit, passes: value <= limit });
    }

    /// A line for each.
    #[must_use]
    pub fn lines(&self) -> String {
        let line = |Bar { name, value, limit, passes }: &Bar| {
            let verdict = if *passes { "PASS" } else { "FAIL" };
            format!("BAR {name} {value:.3} {limit} {verdict}\n")
        };
        self.0.iter().map(line).collect()
    }
}
