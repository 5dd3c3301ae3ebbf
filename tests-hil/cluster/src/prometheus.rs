//! A real Prometheus server: the one on `PATH`, otherwise the distribution's package, downloaded once and unpacked in the
//! cache. Nothing is installed.

use crate::assets::Environment;
use crate::control_plane::ControlPlane;
use crate::error::ClusterError;
use crate::folder::last_lines;
use crate::program::Program;
use std::fmt::Write as _;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The package and its program.
const NAME: &str = "prometheus";

/// The server's program.
///
/// # Errors
/// [`ClusterError::Absent`] if there is none and none can be had.
pub fn obtain(environment: &Environment) -> Result<PathBuf, ClusterError> {
    if let Some(installed) = environment.find(NAME) {
        return Ok(installed);
    }
    let cache = environment.cache()?;
    let folder = cache.join(NAME);
    let program = folder.join("usr/bin").join(NAME);
    if program.is_file() {
        return Ok(program);
    }
    std::fs::create_dir_all(&cache).map_err(ClusterError::file("making the cache folder", &cache))?;
    let lock = cache.join("prometheus.lock");
    let alone = File::create(&lock).map_err(ClusterError::file("opening the lock", &lock))?;
    alone.lock().map_err(ClusterError::file("locking", &lock))?;
    if !program.is_file() {
        unpack(&cache.join("prometheus.new"), &folder)?;
    }
    Ok(program)
}

/// The program that tests rules, which comes with the server.
///
/// # Errors
/// [`ClusterError::Absent`] if it is not beside the server, or there is no server.
pub fn promtool(environment: &Environment) -> Result<PathBuf, ClusterError> {
    let program = obtain(environment)?.with_file_name("promtool");
    if program.is_file() {
        return Ok(program);
    }
    Err(ClusterError::Absent(format!("there is no {}", program.display())))
}

/// Downloads the package, and puts what is in it at its place by a rename.
fn unpack(new: &Path, folder: &Path) -> Result<(), ClusterError> {
    // Remove what a killed download left.
    let _ = std::fs::remove_dir_all(new);
    std::fs::create_dir_all(new).map_err(ClusterError::file("making the folder", new))?;
    let absent = |why: String| {
        ClusterError::Absent(format!("there is no prometheus on PATH, and the package cannot be had: {why}"))
    };
    let download = ["-q", "-o", "APT::Sandbox::User=root", "download", NAME];
    run(Command::new("apt-get").args(download).current_dir(new)).map_err(absent)?;
    run(Command::new("sh").args(["-c", "dpkg-deb -x *.deb . && rm *.deb"]).current_dir(new))
        .map_err(absent)?;
    std::fs::rename(new, folder).map_err(ClusterError::file("moving the package to", folder))
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(last_lines(&String::from_utf8_lossy(&[output.stdout, output.stderr].concat())).replace('\n', " "))
}

/// A server that scrapes exporters on loopback every second.
#[derive(Clone, Debug)]
pub struct PrometheusServer {
    program: Program,
    address: SocketAddr,
}

impl PrometheusServer {
    /// The name of its process and log.
    pub const NAME: &'static str = NAME;

    /// Writes its configuration into the control plane's folder; `exporters` are names of jobs with their addresses.
    ///
    /// # Errors
    /// If there is no program, or the folder cannot be written.
    pub fn new(
        environment: &Environment,
        beside: &ControlPlane,
        exporters: &[(&str, SocketAddr)],
    ) -> Result<Self, ClusterError> {
        let program = obtain(environment)?;
        let folder = beside.folder().join(NAME);
        std::fs::create_dir_all(&folder).map_err(ClusterError::file("making the folder", &folder))?;
        let mut text = "global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n".to_owned();
        for (job, address) in exporters {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "- {{job_name: {job}, static_configs: [{{targets: ['{address}']}}]}}");
        }
        let config = folder.join("prometheus.yml");
        std::fs::write(&config, text).map_err(ClusterError::file("writing", &config))?;
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr());
        let address = port.map_err(ClusterError::system("finding a free port on 127.0.0.1"))?;
        let program = Program::new(NAME, &program)
            .argument(format!("--config.file={}", config.display()))
            .argument(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .argument(format!("--web.listen-address={address}"))
            .argument("--log.level=warn");
        Ok(Self { program, address })
    }

    /// Starts it, or starts it again.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn start(&self, beside: &ControlPlane) -> Result<(), ClusterError> {
        beside.start_program(&self.program)
    }

    /// Where it is.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}
