//! A hundred and fifty points a day, three hundred in the long run, and a test that each check can fail.

use campaign::{CampaignPlan, MachineKind, Sabotage};
use std::path::PathBuf;

fn plan(points: u64, kinds: &[MachineKind], sabotage: Sabotage) -> CampaignPlan {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_campaign"));
    CampaignPlan { program, seed: 20_000, points, kinds: kinds.to_vec(), free_percent: 15, sabotage }
}

/// `None`, with a message, if virtual hardware cannot be mounted.
fn run(plan: &CampaignPlan, enough: usize) -> Option<(campaign::Tally, Vec<campaign::FailedScenario>)> {
    match campaign::run(plan, enough, |_, _| ()) {
        Ok(seen) => Some(seen),
        Err(skip) => {
            println!("{skip}");
            None
        }
    }
}

const SMALL: [MachineKind; 4] =
    [MachineKind::Limits, MachineKind::Locked, MachineKind::Half, MachineKind::Client];

/// How many points are played: twice as many in `cargo xtask test --long`.
#[expect(clippy::disallowed_methods, reason = "the one switch between the everyday run and the long one")]
fn points() -> u64 {
    if std::env::var_os("JOULIE_LONG").is_some() { 300 } else { 150 }
}

#[test]
fn whatever_goes_wrong_originals_are_kept_and_caps_hold() {
    let Some((tally, failures)) = run(&plan(points(), &SMALL, Sabotage::None), 1) else { return };
    println!("{tally}");
    assert!(failures.is_empty(), "{failures:#?}");
    assert!(tally.kills > 15 && tally.writes > 500 && tally.originals > 25, "{tally}");
    assert!(tally.judged_us > tally.excused_us.values().map(|(all, _)| all).sum::<u64>(), "{tally}");
}

#[test]
fn a_journal_that_is_lost_is_noticed() {
    let Some((_, failures)) = run(&plan(500, &SMALL, Sabotage::LostJournal), 1) else { return };
    // Or what stands is kept as an original that never was one.
    let tells = |wrong: &String| wrong.contains("is lost") || wrong.contains("the journal holds");
    assert!(failures[0].wrong.iter().any(tells), "{failures:#?}");
}

#[test]
fn a_cap_that_somebody_keeps_raising_is_noticed() {
    let Some((_, failures)) = run(&plan(500, &SMALL[..3], Sabotage::SecretRival), 1) else { return };
    assert!(failures[0].wrong.iter().any(|wrong| wrong.contains("W at a cap of")), "{failures:#?}");
}

#[test]
fn a_write_outside_of_package_zones_is_noticed() {
    let Some((_, failures)) = run(&plan(500, &SMALL[..1], Sabotage::Meddler), 1) else { return };
    assert!(failures[0].wrong.iter().any(|wrong| wrong.contains("was written to")), "{failures:#?}");
}
