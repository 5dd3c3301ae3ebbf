//! The command line.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Parser, ValueEnum};
use node_kit::BackendKind;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

/// Check the contract of the power port on this machine: print a report, then PASS, FAIL or SKIP(reason) for each
/// rule.
///
/// Only reads, unless --write is given. Exit status: 0 if nothing failed, 1 if something did, 2 for an invalid
/// command line.
#[derive(Clone, Debug, Parser)]
#[command(name = "hil", version)]
pub(crate) struct Args {
    /// Fail if this hardware is missing, instead of skipping it; may be repeated, or be a list separated by commas
    #[arg(long, value_parser = hardware(), value_delimiter = ',', value_name = "HARDWARE")]
    pub(crate) require: Vec<String>,

    /// Lower limits and put them back; needs root, and never runs beside an agent
    #[arg(long)]
    pub(crate) write: bool,

    /// The folder that contains sys and dev, for virtual hardware or for a host's folders in a container
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,

    /// The folder of the lock and of the journal of originals, which an agent on this node uses too
    #[arg(long, value_name = "DIR", default_value = "/var/lib/joulie")]
    pub(crate) state: PathBuf,

    /// The NVML library; by default the one that the loader finds, and below --root lib/libnvidia-ml.so.1
    #[arg(long, value_name = "FILE")]
    pub(crate) nvml: Option<PathBuf>,

    /// With --write: after this many seconds in one driver call the worker is abandoned and originals are put back
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) patience: u64,

    /// The role in which the program has started itself
    #[arg(long, value_enum, hide = true)]
    pub(crate) role: Option<Role>,
}

/// The role in which the program has started itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// Run the contract and write.
    Worker,
    /// Put back the originals in the journal, under a guardian.
    Restorer,
    /// Put back the originals without a guardian, which has ended.
    Heir,
}

/// The names of hardware that can be required, from node-kit's table, each with its backends.
fn hardware() -> impl TypedValueParser<Value = String> {
    let words: BTreeSet<&str> = BackendKind::ALL.map(|kind| kind.facts().hardware).into();
    let value = |word: &'static str| {
        let ways =
            BackendKind::ALL.into_iter().map(BackendKind::facts).filter(|facts| facts.hardware == word);
        let mut help = ways.clone().map(|facts| facts.what).collect::<Vec<_>>().join(", or ");
        if let Some(why) = ways.filter_map(|facts| facts.opt_in).next() {
            help.push_str(&format!("; with --write only where this is required: {why}"));
        }
        PossibleValue::new(word).help(help)
    };
    PossibleValuesParser::new(words.into_iter().map(value))
}

impl Args {
    /// Whether it is a failure if this hardware is missing.
    pub(crate) fn requires(&self, hardware: &str) -> bool {
        self.require.iter().any(|required| required == hardware)
    }

    /// How long one call of a driver may take.
    pub(crate) const fn patience(&self) -> Duration {
        Duration::from_secs(self.patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn requirements_add_up_from_lists_and_repetitions() {
        let args = Args::try_parse_from(["hil", "--require", "rapl,amd", "--require", "nvidia"]).unwrap();
        assert_eq!(args.require, ["rapl", "amd", "nvidia"]);
        assert!(args.requires("amd") && !args.requires("msr"));
        assert!(!args.write);
    }

    #[test]
    fn what_it_does_not_know_is_refused_with_what_it_does() {
        let refused =
            |words: &[&str]| Args::try_parse_from(["hil"].iter().chain(words)).unwrap_err().to_string();
        assert!(refused(&["--require", "gpu"]).contains("nvidia"));
        assert!(refused(&["--patience", "0"]).contains("1..=3600"));
        assert!(refused(&["--wirte"]).contains("--write"));
        assert!(refused(&["write"]).contains("unexpected argument"));
    }
}
