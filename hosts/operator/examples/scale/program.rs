//! The shipped program in a process of its own: the passes that it logs, and what it costs.

use super::Any;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// The operator process, which is killed when this is dropped.
pub(crate) struct Program {
    child: Child,
    kubeconfig: PathBuf,
    passes: Receiver<Duration>,
}

impl Drop for Program {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _reaped = self.child.wait();
        let _left_behind = std::fs::remove_file(&self.kubeconfig);
    }
}

/// The resident memory, in MiB.
pub(crate) struct Resident {
    pub(crate) now: f64,
    pub(crate) most: f64,
}

impl Program {
    /// Starts the program at `path`, else the one that was built together with this example.
    pub(crate) fn start(
        path: Option<OsString>,
        api: SocketAddr,
        settings: &[(&str, &str)],
    ) -> Result<Self, Any> {
        let beside = || Some(std::env::current_exe().ok()?.parent()?.parent()?.join("joulie-operator"));
        let path = path.map(PathBuf::from).or_else(beside);
        let kubeconfig = std::env::temp_dir().join(format!("joulie-scale-{}.yaml", std::process::id()));
        std::fs::write(
            &kubeconfig,
            format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: 'http://{api}'}}}}]\n\
                 users: [{{name: u, user: {{}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
            ),
        )?;
        let mut child = Command::new(path.ok_or("the folder of this program")?)
            .env("KUBECONFIG", &kubeconfig)
            .env("METRICS_ADDR", "127.0.0.1:0")
            .envs(settings.iter().copied())
            .env("LOG_LEVEL", "warn,operator::lead=debug")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let says = child.stderr.take().ok_or("its standard error")?;
        let (sender, passes) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(says).lines().map_while(Result::ok) {
                match pass(&line) {
                    Some(took) => drop(sender.send(took)),
                    None => eprintln!("{line}"),
                }
            }
        });
        Ok(Self { child, kubeconfig, passes })
    }

    /// The durations of the passes since the last call.
    pub(crate) fn passes(&self) -> Vec<Duration> {
        self.passes.try_iter().collect()
    }

    pub(crate) fn resident(&self) -> Result<Resident, Any> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.split_whitespace().next()?.parse::<f64>().ok()? / 1024.0)
        };
        let both = field("VmRSS:").zip(field("VmHWM:"));
        both.map(|(now, most)| Resident { now, most }).ok_or_else(|| "no VmRSS".into())
    }

    /// The processor time that the program has used, in milliseconds.
    pub(crate) fn processor_ms(&self) -> Result<f64, Any> {
        let mut nanos = 0.0;
        // The hundredths of a second in stat are too coarse for one pass; the scheduler counts nanoseconds for each
        // thread.
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
            nanos += text.split_whitespace().next().ok_or("schedstat is empty")?.parse::<f64>()?;
        }
        Ok(nanos / 1e6)
    }
}

/// Parses `... pass 12 took 8123us ...`
fn pass(line: &str) -> Option<Duration> {
    let (_, took) = line.split_once(" took ")?;
    let (micros, _) = took.split_once("us")?;
    micros.parse().ok().map(Duration::from_micros)
}
