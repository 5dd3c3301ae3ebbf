//! Runs a campaign and prints its results. Needs root and FUSE.

use campaign::{CampaignPlan, MachineKind, Sabotage, Tally};
use std::io::Write;
use std::process::ExitCode;

const USAGE: &str =
    "usage: campaign [--points N] [--seed N] [--scenario SEED] [--free PERCENT] [--kind NAME]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some((first, rest)) = arguments.split_first()
        && first == "node"
    {
        return campaign::serve(rest);
    }
    match plan(&arguments).and_then(|(plan, one)| hold(&plan, one)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            say(&why);
            ExitCode::from(2)
        }
    }
}

fn say(line: &str) {
    // The output may be closed.
    let _said = writeln!(std::io::stdout(), "{line}");
}

/// The small machines are drawn most often, because a point on them takes a tenth of the time.
fn kinds() -> Vec<MachineKind> {
    let mut kinds = [MachineKind::Limits, MachineKind::Locked, MachineKind::Half].repeat(6);
    kinds.extend([
        MachineKind::Client,
        MachineKind::Client,
        MachineKind::Xeon,
        MachineKind::XeonLocked,
        MachineKind::MultiDie,
    ]);
    kinds
}

fn plan(arguments: &[String]) -> Result<(CampaignPlan, bool), String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut plan = CampaignPlan {
        program,
        seed: 1,
        points: 1000,
        kinds: kinds(),
        free_percent: 15,
        sabotage: Sabotage::None,
    };
    let mut one = false;
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let value = words.next().ok_or(USAGE)?;
        let number =
            || value.parse::<u64>().map_err(|_| format!("{word} takes a number, not {value:?}\n{USAGE}"));
        match word.as_str() {
            "--points" => plan.points = number()?,
            "--seed" => plan.seed = number()?,
            "--scenario" => (plan.seed, one) = (number()?, true),
            "--free" => plan.free_percent = usize::try_from(number()?).unwrap_or(100),
            "--kind" => {
                let kind = MachineKind::ALL.into_iter().find(|kind| kind.label() == value);
                plan.kinds = vec![kind.ok_or_else(|| format!("there is no machine {value:?}"))?];
            }
            _ => return Err(format!("{word:?} is not known\n{USAGE}")),
        }
    }
    Ok((plan, one))
}

fn hold(plan: &CampaignPlan, one: bool) -> Result<bool, String> {
    say(&format!("seed {}, {} points", plan.seed, plan.points));
    let progress = |seed: u64, tally: &Tally| say(&format!("scenario {seed}, {} points", tally.all_points()));
    let (tally, failures) = if one {
        let (tally, failure) = campaign::scenario(plan, plan.seed)?;
        (tally, Vec::from_iter(failure))
    } else {
        campaign::run(plan, 10, progress)?
    };
    for failure in &failures {
        say(&format!(
            "FAILED: scenario {} on {}, free: {}",
            failure.seed,
            failure.kind.label(),
            failure.free
        ));
        failure.log.iter().for_each(|line| say(&format!("  {line}")));
        failure.recent.iter().for_each(|line| say(&format!("    {line}")));
        failure.wrong.iter().for_each(|line| say(&format!("  WRONG {line}")));
    }
    say(&tally.to_string());
    say(&format!("failures {}", failures.len()));
    Ok(failures.is_empty())
}
