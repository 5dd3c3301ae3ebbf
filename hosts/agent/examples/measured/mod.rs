//! The agent as a process of its own, what such a process costs, and the lines of the bars.

use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Child, Command};

pub(crate) type Any = Box<dyn Error + Send + Sync>;

/// A process that ends with its owner.
pub(crate) struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Killing fails if the process has already ended.
        let _killed = self.0.kill();
        let _waited = self.0.wait();
    }
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> Result<Self, Any> {
        Ok(Self(command.spawn()?))
    }

    /// Starts the agent of the node `node-a`, with its files in `folder` and the node's hardware below `host` there.
    pub(crate) fn agent(folder: &Path, host: &str, more: &[(&str, OsString)]) -> Result<Self, Any> {
        let own = std::env::current_exe()?;
        // As it ships: a page of it that was touched is memory, and the profile of this program makes twice as many.
        let bin = own.ancestors().nth(3).ok_or("this program lies in no folder")?.join("dist/joulie-agent");
        let path = |name: &str| folder.join(name).into_os_string();
        let mut command = Command::new(bin);
        command
            .env_clear()
            .env("KUBECONFIG", path("kubeconfig"))
            .env("NODE_NAME", "node-a")
            .env("HOST_ROOT", path(host))
            .env("STATE_DIR", path("state"))
            .env("METRICS_ADDR", "127.0.0.1:0")
            .env("LOG_LEVEL", "warn")
            .envs(more.iter().map(|(name, value)| (name, value)));
        Self::start(&mut command)
    }

    pub(crate) fn resident_mib(&self) -> Result<f64, Any> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
    }

    /// What all its threads have used, by the scheduler's count in nanoseconds.
    pub(crate) fn processor_ms(&self) -> Result<f64, Any> {
        let mut nanos = 0.0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.0.id()))? {
            let text = fs::read_to_string(thread?.path().join("schedstat"))?;
            nanos += text.split_whitespace().next().ok_or("schedstat is empty")?.parse::<f64>()?;
        }
        Ok(nanos / 1e6)
    }
}

/// Says whether each value is at most its limit.
pub(crate) fn bars(bars: &[(&str, f64, f64)]) {
    for (name, value, limit) in bars {
        let verdict = if value <= limit { "PASS" } else { "FAIL" };
        println!("BAR {name} {value:.1} {limit:.0} {verdict}");
    }
}
