//! The cost of reading the hardware: each HAL's batch compared with the bare reads in it, the node's whole period,
//! and the resident memory and processor time of a node that samples every second.
//!
//! The files are in a plain folder, and the GPUs are behind the stub library, which reads a text for every call. So
//! the rows show the cost of our own code, and not that of a driver.

use super::{Row, measure, print};
use anyhow::{Context, Result, bail};
use hal_files::Root;
use hal_nvidia::{Library, LimitScope, Nvidia};
use hal_rapl::Powercap;
use node_kit::{Boot, Config, Desire, HardwareSources, NodeAccess, OpenNode, Time};
use nvml_stub::{StubGpu, StubMachine};
use power_hal::{OriginalsInMemory, PowerHal, Reading};
use power_units::Micros;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const SOCKETS: usize = 2;
const GPUS: usize = 8;
const PERIOD: Micros = Micros::new(1_000_000);
/// How long the node is measured, and the limits of the design.
const WATCHED: Duration = Duration::from_secs(20);
const RESIDENT_MIB: f64 = 16.0;
const MILLICORES: f64 = 5.0;

/// Prints the rows, and measures the node in a separate process.
pub(crate) fn run() -> Result<()> {
    let place = Place::new()?;
    print(&rows(&place)?);
    let node = Command::new(std::env::current_exe()?)
        .args(["bench", "--node-alone"])
        .arg(&place.0)
        .output()
        .context("starting the node by itself")?;
    if !node.status.success() {
        bail!("the node by itself: {}", String::from_utf8_lossy(&node.stderr));
    }
    print!("{}", String::from_utf8_lossy(&node.stdout));
    Ok(())
}

/// A folder with the files of the sockets and the library of the GPUs, which is removed at the end.
struct Place(PathBuf);

impl Place {
    fn new() -> Result<Self> {
        let place = Self(std::env::temp_dir().join(format!("joulie-bench-hal-{}", std::process::id())));
        for socket in 0..SOCKETS {
            let zone = place.0.join(format!("sys/class/powercap/intel-rapl:{socket}"));
            std::fs::create_dir_all(&zone)?;
            for (file, text) in [
                ("name", format!("package-{socket}").as_str()),
                ("enabled", "1"),
                ("energy_uj", "123456789"),
                ("max_energy_range_uj", "262143328850"),
                ("constraint_0_name", "long_term"),
                ("constraint_0_power_limit_uw", "250000000"),
                ("constraint_0_time_window_us", "499712"),
                ("constraint_0_max_power_uw", "270000000"),
                ("constraint_1_name", "short_term"),
                ("constraint_1_power_limit_uw", "300000000"),
                ("constraint_1_time_window_us", "2440"),
                ("constraint_1_max_power_uw", "0"),
            ] {
                std::fs::write(zone.join(file), format!("{text}\n"))?;
            }
        }
        let gpus = StubMachine::at(place.0.join("gpus"));
        gpus.library()?;
        gpus.put("driver", "570.86.16")?;
        for gpu in 0..GPUS {
            let uuid: &'static str = format!("GPU-{gpu}1111111-0b1c-4d7e-9a55-0123456789ab").leak();
            let pci: &'static str = format!("00000000:{gpu}1:00.0").leak();
            let card = StubGpu { uuid, pci, min_mw: 200_000, max_mw: 700_000, default_mw: 700_000 };
            gpus.add(&format!("gpu{gpu}"), &card)?;
        }
        Ok(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // If removing fails, the rest stays in the folder for temporary files.
        let _left = std::fs::remove_dir_all(&self.0);
    }
}

fn library(place: &Path) -> PathBuf {
    place.join("gpus/libnvidia-ml.so.1")
}

fn rows(place: &Place) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let zone = place.0.join("sys/class/powercap/intel-rapl:0");
    let file = File::open(zone.join("energy_uj"))?;
    let mut buffer = [0; 64];
    rows.push(measure("bare pread of an energy counter", None, (1, 1_000), || {
        file.read_at(&mut buffer, 0).unwrap_or(0)
    }));
    let mut rapl = Powercap::open(Root::at(&place.0), Time::real(), OriginalsInMemory::<4>::new())?;
    let mut batch: Vec<Reading> = rapl.domains().iter().map(|(handle, _)| Reading::new(handle)).collect();
    if batch.len() != SOCKETS {
        bail!("powercap lists {} packages instead of {SOCKETS}", batch.len());
    }
    rows.push(measure("powercap, a package of a batch of 2", None, (2, 200), || rapl.sample(&mut batch)));
    let library = Library::at(library(&place.0));
    let mut nvidia = Nvidia::open(library, LimitScope::Gpu, Time::real(), OriginalsInMemory::<8>::new())?;
    let mut batch: Vec<Reading> = nvidia.domains().iter().map(|(handle, _)| Reading::new(handle)).collect();
    if batch.len() != GPUS {
        bail!("the library lists {} GPUs instead of {GPUS}: {:?}", batch.len(), nvidia.absent());
    }
    rows.push(measure("NVML stub, a GPU of a batch of 8", None, (8, 20), || nvidia.sample(&mut batch)));
    let mut node = open(&place.0, Time::real())?;
    rows.push(measure("node, a steady period of 2 sockets and 8 GPUs", None, (1, 20), || node.period()));
    Ok(rows)
}

fn open(place: &Path, time: Time) -> Result<OpenNode> {
    let sources = HardwareSources { nvml: Some(library(place)), ..HardwareSources::below(place) };
    let config = Config::standard(sources, place.join("state"), NodeAccess::Control, PERIOD)?;
    let boot = Boot::new("bench").context("a boot has a name")?;
    let mut node = OpenNode::open_in(config, time, boot)?;
    if !node.wait_for_backends(Duration::from_secs(30)) {
        bail!("a backend does not open");
    }
    node.handle().desire(Desire::UNKNOWN);
    for _ in 0..3 {
        node.period();
    }
    let (packages, gpus) = (node.report().packages.len(), node.report().gpus.len());
    if (packages, gpus) != (SOCKETS, GPUS) {
        bail!("the node has {packages} packages and {gpus} GPUs");
    }
    Ok(node)
}

/// A node in a separate process, as in an agent.
#[expect(clippy::disallowed_methods, reason = "a benchmark is what the clock is for")]
pub(crate) fn node_alone(place: &Path) -> Result<()> {
    let mut node = open(place, Time::real())?;
    let handle = node.handle();
    let before = processor_time()?;
    let start = std::time::Instant::now();
    let stop = std::thread::spawn(move || {
        std::thread::sleep(WATCHED);
        handle.stop();
    });
    node.run();
    let lasted = start.elapsed().as_secs_f64();
    let used = processor_time()? - before;
    if stop.join().is_err() {
        bail!("the thread that ends the node has panicked");
    }
    let resident = resident_mib()?;
    let millicores = used / lasted * 1_000.0;
    println!("\n| node at a period of 1 s, {:.0} s | measured | bar |\n|---|---|---|", lasted);
    println!("| resident, at most, MiB | {resident:.1} | {RESIDENT_MIB} |");
    println!("| processor, millicores | {millicores:.2} | {MILLICORES} |");
    println!("| periods | {} | – |\n", node.report().counts.periods);
    for (name, value, limit) in
        [("node_resident_mib", resident, RESIDENT_MIB), ("node_millicores", millicores, MILLICORES)]
    {
        println!("BAR {name} {value:.2} {limit} {}", if value <= limit { "PASS" } else { "FAIL" });
    }
    Ok(())
}

/// The processor time of this process, in seconds.
fn processor_time() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    // The name in parentheses may contain spaces; after it, the 12th and 13th words are the user's and the system's
    // ticks.
    let (_, words) = text.rsplit_once(')').context("no name in /proc/self/stat")?;
    let ticks: u32 =
        words.split_whitespace().skip(11).take(2).filter_map(|word| word.parse::<u32>().ok()).sum();
    Ok(f64::from(ticks) / 100.0)
}

fn resident_mib() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    let kib: u32 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(f64::from(kib) / 1_024.0)
}
