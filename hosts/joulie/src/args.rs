//! The command line of `joulie`, parsed once.

use crate::pages::ClusterProgram;
use crate::value::{Budget, Cap, PageAt, Period, Span};
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use kubectl_joulie::args::PluginCli;
use std::path::PathBuf;
use std::sync::LazyLock;

/// In the format of every program of this workspace: the version, and the commit in parentheses.
static VERSION: LazyLock<String> =
    LazyLock::new(|| format!("{} ({})", env!("CARGO_PKG_VERSION"), host_kit::metrics::REVISION));

/// Keeps machines inside their power limits.
///
/// Without a command it is `joulie demo`.
#[derive(Debug, Parser)]
#[command(name = "joulie", version = VERSION.as_str(), args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) demo: Demo,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The whole system on simulated nodes, in this process: look at it, reach it with kubectl, break it
    Demo(Demo),
    /// This one machine: look at its power, cap it, put it back.
    Node(Node),
    /// Placement laws on the same jobs in virtual time: energy, drops, waits, and the work that was done
    Simulate(Simulate),
    /// The jobs of a trace file under the same placement laws
    Replay(Replay),
    /// How a second result of simulate differs from a first one, in percent
    Compare {
        /// The JSON of the first
        #[arg(value_name = "FIRST")]
        first: PathBuf,
        /// The JSON of the second
        #[arg(value_name = "SECOND")]
        second: PathBuf,
    },
    /// What kubectl joulie does, for where the plugin is not installed
    Kubectl(PluginCli),
    /// The completions of a shell, to standard output
    Completion {
        /// Which shell
        shell: Shell,
        /// Those of a program of a cluster instead of joulie's
        #[arg(long, value_name = "NAME")]
        program: Option<ClusterProgram>,
    },
    /// The man pages of joulie and of the programs of a cluster, into a folder
    Man {
        /// The folder
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Demo {
    /// End after this time, with a table of the whole run; without it Ctrl-C ends
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) lasting: Option<Span>,
    /// Break things while it runs: telemetry, the operator, the extender, a node that a person takes away
    #[arg(long)]
    pub(crate) chaos: bool,
    /// What the packages and GPUs of all nodes may draw together: 9kW or 9000W
    #[arg(long, value_name = "POWER", default_value = "9kW", allow_hyphen_values = true)]
    pub(crate) budget: Budget,
    /// Lines instead of the live view, as where the output is no terminal
    #[arg(long)]
    pub(crate) plain: bool,
    /// Where to write the file by which kubectl finds the cluster; the default is a private folder that goes with the demo
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Where to write the logs of all parts; without it they are not kept
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// Where to write the addresses of all metrics, for file_sd_configs of a Prometheus; the file goes with the demo
    #[arg(long, value_name = "FILE")]
    pub(crate) targets: Option<PathBuf>,
    /// Where the live page is served: an address of this machine alone, with port 0 for any free one, or off. A person can
    /// change policy and budget there, and break things
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub(crate) page: PageAt,
    /// Where to write a picture (SVG) of the live view as it is at the end
    #[arg(long, value_name = "FILE")]
    pub(crate) picture: Option<PathBuf>,
    /// What chance begins with: the same number gives the same machines and workload
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) seed: u64,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Simulate {
    /// compat is upstream's experiment 04, which drops jobs; fair has the same jobs run to completion under each law; ablation leaves
    /// out each part of ours; caps adds caps
    #[arg(long, value_name = "NAME", default_value = "compat")]
    pub(crate) experiment: Trial,
    /// The seeds; without any, upstream's eight
    #[arg(long, value_name = "NUMBER,...", value_delimiter = ',')]
    pub(crate) seeds: Vec<u64>,
    /// The laws; without any, all
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) arms: Vec<String>,
    #[command(flatten)]
    pub(crate) result: ResultArgs,
}

/// How a result is told.
#[derive(Clone, Debug, Args)]
pub(crate) struct ResultArgs {
    /// Print the result as JSON, which compare reads, instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a page with plots, which needs no network
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write the plots into a folder, a file each
    #[arg(long, value_name = "DIR")]
    pub(crate) plots: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Replay {
    /// Upstream's trace (JSON lines), or the pod list of Alibaba's cluster-trace-gpu-v2023 (CSV)
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,
    /// Work units that a core or a GPU does in a second, for upstream's traces
    #[arg(long, value_name = "UNITS", default_value = "2", value_parser = speed)]
    pub(crate) speed: f64,
    /// The laws; without any, all of fair
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) arms: Vec<String>,
    #[command(flatten)]
    pub(crate) result: ResultArgs,
}

fn speed(text: &str) -> Result<f64, String> {
    let speed: f64 = text.parse().map_err(|_| "no number".to_owned())?;
    match (1.0e-3..=1.0e6).contains(&speed) {
        true => Ok(speed),
        false => Err("not from 0.001 to 1000000".to_owned()),
    }
}

/// The experiments of `joulie simulate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Trial {
    /// Upstream's experiment under its own assumptions
    Compat,
    /// The same work under each law
    Fair,
    /// As fair, with processors that draw what was published of one model
    Curves,
    /// Our law without each of its parts
    Ablation,
    /// Caps with and without our law
    Caps,
}

#[derive(Debug, Args)]
#[command(after_help = crate::node::exit_codes())]
pub(crate) struct Node {
    #[command(subcommand)]
    pub(crate) verb: Verb,
    #[command(flatten)]
    pub(crate) place: Place,
}

/// Where the hardware is, and how it is reached.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// The folder that holds `sys`, `dev` and `proc`, for virtual hardware; the default is this machine
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// The folder of the journal of originals and of the writer's lock; the default is /var/lib/joulie, and with --root
    /// the folder DIR.joulie beside it
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// The file of NVML; the default is the system's, and with --root the one in its folder lib
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) nvml: Option<PathBuf>,
    /// The file of ROCm SMI; the default is the system's, and with --root the one in its folder lib
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) rocm: Option<PathBuf>,
    /// Whether model-specific registers are used where powercap does not have the limits
    #[arg(long, global = true, value_name = "WAY", default_value = "off")]
    pub(crate) registers: Registers,
    /// The closed loop that holds a cap by frequencies where no power limit can be set
    #[arg(long, global = true, value_name = "LAW", default_value = "tracking")]
    pub(crate) law: Law,
    /// How often the hardware is read
    #[arg(long, global = true, value_name = "TIME", default_value = "1s", allow_hyphen_values = true)]
    pub(crate) period: Period,
    /// Say more on standard error
    #[arg(long, short, global = true)]
    pub(crate) verbose: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Registers {
    /// Never
    Off,
    /// By the kernel's driver; writing taints the kernel
    Msr,
    /// By msr-safe
    MsrSafe,
    /// As msr, through the crate msru: this machine only, without --root
    Msru,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Law {
    /// Models the machine
    Tracking,
    /// Takes steps, with thresholds and a cooldown
    Classic,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Show the hardware: ranges, limits, power, and who writes to it. Writes nothing
    Show {
        /// As one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Cap each package or GPU, and say what was read back
    Cap(CapArgs),
    /// Watch the power. Writes nothing
    Watch {
        /// End after this time
        #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true)]
        lasting: Option<Span>,
    },
    /// Look for what is wrong with this machine, and say what to do. Writes nothing; exit code 1 if there is anything
    Doctor,
    /// Put back what was in force before the first cap
    Restore,
}

#[derive(Debug, Args)]
pub(crate) struct CapArgs {
    #[command(flatten)]
    pub(crate) caps: Caps,
    /// Hold the caps for this time and then put back what was in force; without it, and without --hold, the caps stay after the command
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) lasting: Option<Span>,
    /// Hold the caps until a signal ends the command, and then put back what was in force; for a service
    #[arg(long, conflicts_with = "lasting")]
    pub(crate) hold: bool,
}

#[derive(Clone, Copy, Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct Caps {
    /// The cap of each CPU package: 120W, 0.5kW, or 80% of its maximum
    #[arg(long, value_name = "CAP", allow_hyphen_values = true)]
    pub(crate) package: Option<Cap>,
    /// The cap of each GPU: 300W, or 80% of its maximum
    #[arg(long, value_name = "CAP", allow_hyphen_values = true)]
    pub(crate) gpu: Option<Cap>,
}
