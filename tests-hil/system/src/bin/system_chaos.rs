//! The program of `cargo xtask bench chaos`: kills, an outage of the API server, a boot of all machines and a cut of
//! the limit on the real control plane, with the limits that must hold meanwhile.
#![expect(clippy::print_stdout, reason = "it talks to the person who started it")]

use std::process::ExitCode;
use std::time::Duration;
use system::SystemError;
use system::chaos::{self, ChaosPhase, ChaosPlan, ChaosPrograms};

const USAGE: &str = "usage: system-chaos [--nodes N] [--kills SECONDS] [--outage SECONDS] \
                     [--only kills,swaps,outage,reboot,feed,cut | --only demand] [--seed N] [--election LEASE,RENEWAL,RETRY]";

fn main() -> ExitCode {
    match answer() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(trouble) => {
            println!("system-chaos: {trouble}");
            ExitCode::FAILURE
        }
    }
}

fn answer() -> Result<bool, SystemError> {
    let plan = plan(std::env::args().skip(1))?;
    let this = std::env::current_exe()?;
    let beside = |name: &str| this.with_file_name(name);
    let programs = ChaosPrograms {
        agent: beside("system-agent"),
        operator: beside("system-operator"),
        extender: beside("system-extender"),
        simulator: beside("system-simulator"),
    };
    for program in [&programs.agent, &programs.operator, &programs.extender, &programs.simulator] {
        if !program.exists() {
            return Err(
                format!("{} is not built; `cargo xtask bench chaos` builds it", program.display()).into()
            );
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(chaos::run(&programs, &plan, &beside("chaos-logs")))
}

fn plan(mut words: impl Iterator<Item = String>) -> Result<ChaosPlan, SystemError> {
    let mut plan = ChaosPlan::whole();
    while let Some(word) = words.next() {
        let value = words.next().ok_or(USAGE)?;
        match word.as_str() {
            "--nodes" => plan.nodes = value.parse()?,
            "--kills" => plan.kills = Duration::from_secs(value.parse()?),
            "--outage" => plan.outage = Duration::from_secs(value.parse()?),
            "--seed" => plan.seed = value.parse()?,
            "--only" => {
                let phases = value.split(',').map(ChaosPhase::of).collect::<Option<Vec<_>>>();
                plan.phases = phases.ok_or(USAGE)?;
            }
            "--election" => {
                let times: Vec<String> = value.split(',').map(str::to_owned).collect();
                plan.election = Some(times.try_into().map_err(|_| USAGE)?);
            }
            _ => return Err(USAGE.into()),
        }
    }
    Ok(plan)
}
