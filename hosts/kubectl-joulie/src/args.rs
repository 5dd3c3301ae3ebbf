//! The command line, parsed once.

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use host_kit::config::parse;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

/// In the format of every program of this workspace: the version, and the commit in parentheses.
static VERSION: LazyLock<String> =
    LazyLock::new(|| format!("{} ({})", env!("CARGO_PKG_VERSION"), host_kit::metrics::REVISION));

const EXITS: &str = "Exit codes:\n  0    done; of doctor: nothing is wrong\n  1    not done, or something is wrong; the \
                     output says what\n  2    the command line cannot be used; nothing was asked";

/// What is capped, why, since when and by whom; what is wrong; and what may be done.
#[derive(Clone, Debug, Parser)]
#[command(name = "kubectl-joulie", bin_name = "kubectl joulie", version = VERSION.as_str(), after_help = EXITS)]
pub struct PluginCli {
    /// What to do.
    #[command(subcommand)]
    pub command: PluginCommand,
    /// For every command.
    #[command(flatten)]
    pub common: Common,
}

/// The flags of every command.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// The kubeconfig; without it KUBECONFIG, then ~/.kube/config, then the pod's service account
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// The namespace of pods that are named without one
    #[arg(long, short, global = true, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Where Joulie is installed
    #[arg(long, global = true, value_name = "NAME", default_value = "joulie-system")]
    pub joulie_namespace: String,
    /// How to show it; without it a table or a text for people
    #[arg(long, short, global = true, value_name = "FORMAT")]
    pub output: Option<OutputFormat>,
    /// A file with the DEBUG_TOKEN of the operator and the extender, for their debugging pages
    #[arg(long, global = true, value_name = "FILE")]
    pub debug_token_file: Option<PathBuf>,
}

/// The formats of `-o`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// One JSON document
    Json,
    /// One YAML document
    Yaml,
    /// The table with more columns
    Wide,
    /// KIND/NAME, one a line
    Name,
}

/// The commands.
#[derive(Clone, Debug, Subcommand)]
pub enum PluginCommand {
    /// All nodes: class, headroom, stress, use, pods and caps
    Status {
        /// Show it again every 2 s, until interrupted
        #[arg(long, short = 'W')]
        watch: bool,
    },
    /// The nodes that draw most, live, and the budgets above them
    Top {
        /// Show it once, and end
        #[arg(long)]
        once: bool,
        /// End after this time; it is then followed also where the output is no terminal
        #[arg(long = "for", value_name = "TIME", value_parser = span)]
        lasting: Option<Duration>,
        /// How many nodes
        #[arg(long, value_name = "NUMBER", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
        nodes: u16,
    },
    /// Why a node is capped as it is, or a pod is where it is: who decided, by what, since when
    Explain {
        /// What to explain
        #[command(subcommand)]
        what: Explained,
    },
    /// Where a pod would go, why, and what it would draw. Nothing is created
    Simulate {
        /// What to simulate
        #[command(subcommand)]
        what: Simulated,
    },
    /// Cap a node by hand, for a time, or hand it back to the plan. Without --yes it only says what it would write
    Cap(CapOrder),
    /// The power budgets: limit, counted, measured, unused and where, short; and their mode
    Budget {
        /// What to do with one; without it they are listed
        #[command(subcommand)]
        change: Option<BudgetOrder>,
    },
    /// Whose energy it is: of namespaces, or of workloads
    Energy {
        /// By what the joules are added up
        #[arg(long, value_name = "BY", default_value = "namespace")]
        by: EnergyBy,
        /// The agents of so many pods are asked at most
        #[arg(long, value_name = "NUMBER", default_value_t = 500, value_parser = clap::value_parser!(u16).range(1..=5000))]
        agents: u16,
    },
    /// Looks for what is wrong, and says why it matters and what to do. Exit code 1 if there is anything
    Doctor(DoctorOrder),
    /// Pods that would better run elsewhere, and GPUs that would better be divided
    Recommend,
    /// The completions of a shell, to standard output
    Completion {
        /// Which shell
        shell: Shell,
    },
    /// The man pages, into a folder
    Man {
        /// The folder
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

/// What is explained.
#[derive(Clone, Debug, Subcommand)]
pub enum Explained {
    /// A pod
    Pod {
        /// NAMESPACE/NAME, or NAME
        #[arg(value_name = "POD")]
        name: String,
    },
    /// A node
    Node {
        /// Its name
        #[arg(value_name = "NODE")]
        name: String,
    },
}

/// What is simulated.
#[derive(Clone, Debug, Subcommand)]
pub enum Simulated {
    /// A pod, from a manifest or from flags
    Pod(PodShape),
}

/// A pod that does not exist.
#[derive(Clone, Debug, Args)]
pub struct PodShape {
    /// A manifest of a Pod, or of an object with a template of pods; - is standard input
    #[arg(long, short, value_name = "FILE", conflicts_with_all = ["cpu", "memory", "gpus", "class"])]
    pub filename: Option<PathBuf>,
    /// Its processors
    #[arg(long, value_name = "QUANTITY", default_value = "1")]
    pub cpu: String,
    /// Its memory
    #[arg(long, value_name = "QUANTITY", default_value = "1Gi")]
    pub memory: String,
    /// Its GPUs
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub gpus: u16,
    /// The resource that its GPUs are
    #[arg(long, value_name = "NAME", default_value = "nvidia.com/gpu")]
    pub gpu_resource: String,
    /// Its joulie.io/workload-class
    #[arg(long, value_name = "CLASS", default_value = "standard")]
    pub class: PodClass,
}

/// The classes of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PodClass {
    /// It needs full power
    Performance,
    /// It does not
    Standard,
}

/// A cap of a person.
#[derive(Clone, Debug, Args)]
pub struct CapOrder {
    /// The node
    #[arg(value_name = "NODE")]
    pub node: String,
    /// The cap of each package: 120W, 0.5kW, or 80% of its maximum
    #[arg(long, value_name = "CAP", required_unless_present_any = ["gpu", "off"])]
    pub package: Option<CapFlag>,
    /// The cap of each GPU: 300W, or 80% of its maximum
    #[arg(long, value_name = "CAP")]
    pub gpu: Option<CapFlag>,
    /// When it ends: the operator then hands the node back to the plan
    #[arg(long = "for", value_name = "TIME", value_parser = span)]
    pub lasting: Option<Duration>,
    /// Why, for whoever finds it
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Take the cap off, and hand the node back to the plan
    #[arg(long, conflicts_with_all = ["package", "gpu", "lasting", "reason"])]
    pub off: bool,
    /// Write it
    #[arg(long)]
    pub yes: bool,
}

/// A change of a budget.
#[derive(Clone, Debug, Subcommand)]
pub enum BudgetOrder {
    /// Grant power so that the limit is kept
    Enforce(OneBudget),
    /// Only compute what would be granted
    Observe(OneBudget),
    /// Raise and release nothing in it until it is resumed
    Pause(OneBudget),
    /// Raise and release again
    Resume(OneBudget),
}

/// Which budget.
#[derive(Clone, Debug, Args)]
pub struct OneBudget {
    /// Its name
    #[arg(value_name = "BUDGET")]
    pub name: String,
    /// Write it; without it is only said what would change
    #[arg(long)]
    pub yes: bool,
}

/// By what joules are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EnergyBy {
    /// By namespace
    Namespace,
    /// By workload
    Workload,
}

/// What doctor looks at.
#[derive(Clone, Debug, Args)]
pub struct DoctorOrder {
    /// The configuration of kube-scheduler, as a file
    #[arg(long, value_name = "FILE")]
    pub scheduler_config: Option<PathBuf>,
    /// The labels of the nodes that Joulie manages
    #[arg(long, value_name = "SELECTOR", default_value = "joulie.io/managed=true")]
    pub node_selector: String,
}

/// A cap on the command line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CapFlag {
    /// Watts of each device.
    Watts(f64),
    /// A percentage of the device's maximum.
    Percent(f64),
}

/// More than any package or GPU accepts: a higher value has a wrong unit.
const WATTS_MAX: f64 = 10_000.0;

impl std::str::FromStr for CapFlag {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("kW", 1000.0), ("W", 1.0), ("%", 1.0)];
        let unit = units.iter().find_map(|&(unit, each)| Some((unit, each, text.strip_suffix(unit)?)));
        let (unit, each, number) = unit
            .ok_or("a cap needs its unit: W, kW or % (of the device's maximum), as in 120W, 0.5kW or 80%")?;
        let is_plain = number.starts_with(|c: char| c.is_ascii_digit())
            && number.chars().all(|c| c.is_ascii_digit() || c == '.');
        let value: Option<f64> = is_plain.then(|| number.parse().ok()).flatten();
        let value = value.ok_or("expected a number and its unit without a space: 120W, 0.5kW or 80%")? * each;
        match unit {
            "%" if (1.0..=100.0).contains(&value) => Ok(Self::Percent(value)),
            "%" => Err("expected a percentage from 1% to 100% of the device's maximum".to_owned()),
            _ if (1.0..=WATTS_MAX).contains(&value) => Ok(Self::Watts(value)),
            _ => Err("expected a cap from 1W to 10kW for each device".to_owned()),
        }
    }
}

/// A month is more than a person keeps in mind.
const SPAN_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

fn span(text: &str) -> Result<Duration, String> {
    parse::duration(text, Duration::from_secs(1)..=SPAN_MAX).map_err(|wrong| wrong.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        PluginCli::command().debug_assert();
    }

    #[test]
    fn a_cap_has_a_unit_and_a_range() {
        let read = |text: &str| text.parse::<CapFlag>();
        assert_eq!(read("200W"), Ok(CapFlag::Watts(200.0)));
        assert_eq!(read("0.5kW"), Ok(CapFlag::Watts(500.0)));
        assert_eq!(read("80%"), Ok(CapFlag::Percent(80.0)));
        for bad in
            ["200", "", "W", "-5W", "1e3W", "NaNW", "infW", "0W", "11kW", "0%", "101%", "8 %", "1.2.3W"]
        {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_cap_is_for_something_and_a_time_has_a_bound() {
        let read =
            |words: &[&str]| PluginCli::try_parse_from([&["x", "cap", "n"][..], words].concat()).is_ok();
        assert!(read(&["--package", "200W", "--for", "2h"]) && read(&["--off"]) && read(&["--gpu", "50%"]));
        for bad in [
            &[][..],
            &["--off", "--gpu", "50%"],
            &["--gpu", "50%", "--for", "0s"],
            &["--gpu", "50%", "--for", "60d"],
        ] {
            assert!(!read(bad), "{bad:?}");
        }
    }
}
