//! The decisions alone.

use super::{Any, SIZES, bodies, tell};
use bytes::Bytes;
use extender::probe::{self, Picture};
use extender::settings::Placement;
use joulie_core::placement::class::SchedulableClass;
use joulie_core::placement::estimate::{Coefficients, Hardware};
use joulie_core::placement::filter::PowerFit;
use joulie_core::placement::score::{Formula, PowerMeasurement, ScoreMax, Scoring, Twin, UnknownScore};
use power_units::{Percent, Watts, WattsPerMinute};
use std::hint::black_box;
use std::time::Duration;

/// At least so many, and for so long: the machine is shared.
const ROUNDS: u32 = 30;
const TIME: Duration = Duration::from_millis(400);

pub(crate) fn run() -> Result<(), Any> {
    tell("\n### Decisions alone, in one thread\n")?;
    tell("| nodes | form | MB | what | ms, best | MB/s | allocations | of memchr |")?;
    tell("|---|---|---|---|---|---|---|---|")?;
    for count in SIZES {
        for form in ["names", "nodes"] {
            table(count, form)?;
        }
    }
    Ok(())
}

fn table(count: usize, form: &str) -> Result<(), Any> {
    let make: fn(&str, usize) -> Bytes = if form == "names" { bodies::names } else { bodies::nodes };
    let (standard, performance) = (make("standard", count), make("performance", count));
    let picture = |fit| picture(count, fit).with_pod_of(&standard);
    let (score, fit) = (picture(PowerFit::Score)?, picture(PowerFit::Filter)?);
    let megabytes = f64::from(u32::try_from(standard.len())?) / 1e6;
    let mut copy = vec![0_u8; standard.len()];
    let absent = 0_u8;
    let memchr = best(|| memchr::memchr(absent, black_box(&standard)).is_some());
    let rounds = [
        ("memcpy", best(|| black_box(&mut copy).copy_from_slice(black_box(&standard)))),
        ("memchr of a byte that is not there", memchr),
        ("scan", best(|| probe::count(black_box(&standard)).unwrap_or(0))),
        ("filter, standard pod", best(|| score.filter(black_box(&standard)).is_ok())),
        ("filter, performance pod, half rejected", best(|| score.filter(black_box(&performance)).is_ok())),
        ("filter, POWER_FIT=filter", best(|| fit.filter(black_box(&standard)).is_ok())),
        ("prioritize", best(|| score.prioritize(black_box(&standard)).is_ok())),
    ];
    for (what, (took, allocations)) in rounds {
        let (seconds, base) = (took.as_secs_f64(), memchr.0.as_secs_f64());
        tell(&format!(
            "| {count} | {form} | {megabytes:.2} | {what} | {:.4} | {:.0} | {allocations} | {:.2} |",
            seconds * 1e3,
            megabytes / seconds,
            seconds / base
        ))?;
    }
    Ok(())
}

/// The best time of a few rounds, and the allocations of one.
#[expect(clippy::disallowed_methods, reason = "a measurement is what the clock is for")]
fn best<T>(mut operation: impl FnMut() -> T) -> (Duration, u64) {
    black_box(operation());
    let mut best = Duration::MAX;
    let (begun, mut rounds) = (std::time::Instant::now(), 0);
    while rounds < ROUNDS || begun.elapsed() < TIME {
        let began = std::time::Instant::now();
        black_box(operation());
        best = best.min(began.elapsed());
        rounds += 1;
    }
    let counted = allocation_counter::measure(|| drop(black_box(operation())));
    (best, counted.count_total)
}

/// Half of the nodes are eco; all are measured.
fn picture(count: usize, power_fit: PowerFit) -> Picture {
    let scoring = Scoring {
        formula: Formula::Headroom,
        facility_metrics: false,
        unknown: UnknownScore::Cautious,
        max: ScoreMax::Hundred,
        coefficients: Coefficients::REFERENCE,
    };
    let nodes: Vec<_> = (0..count)
        .map(|number| {
            let vary = |range: usize| i32::try_from(number * 37 % range).unwrap_or(0);
            let class =
                if bodies::is_eco(number) { SchedulableClass::Eco } else { SchedulableClass::Performance };
            let power = PowerMeasurement {
                measured: Some(Watts::from_int(200 + vary(500))),
                capped: Some(Watts::from_int(900)),
                trend: Some(WattsPerMinute::from_int(vary(100) - 50)),
            };
            let (headroom, cooling) = (Some(Percent::from_int(vary(100))), Some(Percent::from_int(vary(90))));
            let twin = Twin { headroom, cooling, power: Some(power), ..Twin::silent(class) };
            let hardware = Hardware { cpu_max: Some(Watts::from_int(720)), cores: Some(96), gpus: None };
            (bodies::name(number), twin, hardware)
        })
        .collect();
    Picture::of(&nodes, Placement { scoring, power_fit })
}
