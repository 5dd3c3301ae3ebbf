//! Which processes compute on AMD GPUs, by the kernel's KFD.
//!
//! ROCm gives work to a GPU past the kernel, so the times in `fdinfo` do not contain it. What the kernel does tell is how many
//! compute units each process occupies at a moment (`/sys/class/kfd/kfd/proc/PID/stats_GPU/cu_occupancy`); units that are
//! occupied for a tenth of the looks count a tenth. GPUs of which the kernel cannot tell it (it does for Instinct) have no such file.
//! A GPU that is divided into partitions has several entries, each with units of its own.
//!
//! All of it is read as text and nothing is set. It needs no capability; drivers that check the devices of the reader refuse it
//! to one that may not open the GPU, as in a container that is not privileged. Where an entry of the list, or the folder of a
//! process, cannot be read, it is not known of any GPU who computes on it.

use hal_files::{Root, text};
use power_hal::Key;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

/// The properties of one entry have about a KiB.
const BYTES_MOST: u64 = 16 << 10;
/// More entries than a machine has; a larger list is not believed.
const NODES_MOST: usize = 1_024;
/// More processes than compute on a machine.
const PROCESSES_MOST: usize = 4_096;
/// More units than a GPU has.
const UNITS_MOST: u64 = 100_000;

/// Who computes on a GPU at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KfdUse {
    /// How many compute units it has.
    pub units: u64,
    /// The processes that occupy some, and how many; `None` if that is not known.
    pub occupied: Option<Vec<(u32, u64)>>,
}

/// A GPU, or a partition of one, as KFD lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KfdNode {
    /// The key of the whole GPU.
    pub gpu: Key,
    /// Its compute units.
    pub units: u64,
}

impl KfdNode {
    /// Reads the properties of an entry; `None` if it is a processor, or does not say where it is.
    #[must_use]
    pub fn read(properties: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(properties).ok()?;
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
            line.trim().parse::<u64>().ok()
        };
        let units = value("simd_count")?.checked_div(value("simd_per_cu")?)?;
        // Bits 28 and up are the number of the partition.
        let (location, domain) = (value("location_id")? & 0xffff, value("domain").unwrap_or(0));
        let address =
            format!("{domain:04x}:{:02x}:{:02x}.{}", location >> 8, (location >> 3) & 0x1f, location & 7);
        let is_one = (1..=UNITS_MOST).contains(&units) && domain <= u64::from(u32::MAX);
        is_one.then_some(Self { gpu: Key::gpu(&address).ok()?, units })
    }
}

/// The GPUs that KFD lists, and the processes on them.
#[derive(Debug)]
pub struct KfdProcesses {
    root: Root,
    /// The number of the list that was read.
    generation: Option<u64>,
    /// Whether all of the list could be read.
    is_whole: bool,
    /// The entries by their number.
    nodes: BTreeMap<u64, KfdNode>,
}

impl KfdProcesses {
    /// Of the machine below `root`.
    #[must_use]
    pub const fn below(root: Root) -> Self {
        Self { root, generation: None, is_whole: false, nodes: BTreeMap::new() }
    }

    /// Who computes now. A GPU that KFD does not list is not in it. `None` if its list cannot be read: then anybody may compute
    /// on any GPU.
    pub fn look(&mut self) -> Option<BTreeMap<Key, KfdUse>> {
        self.list();
        self.is_whole.then(|| self.uses())
    }

    fn uses(&self) -> BTreeMap<Key, KfdUse> {
        let mut uses: BTreeMap<Key, KfdUse> = BTreeMap::new();
        for node in self.nodes.values() {
            let of_gpu = uses.entry(node.gpu).or_insert(KfdUse { units: 0, occupied: Some(Vec::new()) });
            of_gpu.units += node.units;
        }
        if uses.is_empty() {
            return uses;
        }
        let folder = self.root.join("sys/class/kfd/kfd/proc");
        let processes = std::fs::metadata(&folder).is_ok().then(|| self.root.names(&folder).ok()).flatten();
        let Some(processes) = processes.filter(|all| all.len() <= PROCESSES_MOST) else {
            uses.values_mut().for_each(|of_gpu| of_gpu.occupied = None);
            return uses;
        };
        for (name, pid) in processes.iter().filter_map(|name| Some((name, name.parse().ok()?))) {
            self.process(&folder.join(name), pid, &mut uses);
        }
        uses
    }

    /// Adds what one process occupies. One that has just ended occupies nothing, and one that cannot be seen may occupy all.
    fn process(&self, own: &Path, pid: u32, uses: &mut BTreeMap<Key, KfdUse>) {
        let Ok(names) = self.root.names(own) else {
            uses.values_mut().for_each(|of_gpu| of_gpu.occupied = None);
            return;
        };
        let numbers = names.iter().filter_map(|name| name.strip_prefix("vram_")?.parse().ok());
        for (number, node) in numbers.filter_map(|number: u64| Some((number, self.nodes.get(&number)?))) {
            let Some(of_gpu) = uses.get_mut(&node.gpu) else { continue };
            match read(&own.join(format!("stats_{number}/cu_occupancy"))).map(|text| text::whole(&text)) {
                Ok(Some(0)) => {}
                Ok(Some(units)) => {
                    if let Some(occupied) = &mut of_gpu.occupied {
                        occupied.push((pid, units.min(node.units)));
                    }
                }
                Err(ErrorKind::NotFound) if !own.exists() => {}
                Ok(None) | Err(_) => of_gpu.occupied = None,
            }
        }
    }

    /// Reads the list of entries, where it is another one than before.
    fn list(&mut self) {
        let topology = self.root.join("sys/class/kfd/kfd/topology");
        let number = |path: &Path| read(path).ok().and_then(|text| text::whole(&text));
        let generation = number(&topology.join("generation_id"));
        if generation.is_some() && generation == self.generation {
            return;
        }
        let folder = topology.join("nodes");
        let names = self.root.names(&folder).ok().filter(|names| names.len() <= NODES_MOST);
        self.is_whole = names.is_some();
        self.nodes.clear();
        for name in names.unwrap_or_default() {
            let own = folder.join(name);
            let node = || KfdNode::read(&read(&own.join("properties")).ok()?);
            match number(&own.join("gpu_id")) {
                // A processor.
                Some(0) => {}
                Some(id) => match node() {
                    Some(node) => {
                        self.nodes.insert(id, node);
                    }
                    None => self.is_whole = false,
                },
                None => self.is_whole = false,
            }
        }
        // What could not be read is looked for again.
        self.generation = generation.filter(|_| self.is_whole);
    }
}

fn read(path: &Path) -> Result<Vec<u8>, ErrorKind> {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(BYTES_MOST).read_to_end(&mut text));
    read.map(|_| text).map_err(|error| error.kind())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    /// The lines that matter of an entry of an MI300X, and some that do not.
    fn properties(location: u64, simds: u64) -> String {
        format!(
            "cpu_cores_count 0\nsimd_count {simds}\nmem_banks_count 1\nmax_waves_per_simd 8\nsimd_per_cu 4\n\
             vendor_id 4098\nlocation_id {location}\ndomain 0\nunique_id 1234\n"
        )
    }

    /// A GPU's key, its units, and who occupies them.
    type Seen = (String, u64, Option<Vec<(u32, u64)>>);

    struct Machine(PathBuf);

    impl Machine {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("hal-amd-kfd-{name}-{}", std::process::id()));
            let _left = fs::remove_dir_all(&folder);
            fs::create_dir_all(folder.join("sys/class/kfd/kfd/proc")).unwrap();
            Self(folder)
        }

        fn write(&self, path: &str, text: &str) {
            let file = self.0.join("sys/class/kfd/kfd").join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }

        fn node(&self, number: u32, id: u64, properties: &str) {
            self.write(&format!("topology/nodes/{number}/gpu_id"), &format!("{id}\n"));
            self.write(&format!("topology/nodes/{number}/properties"), properties);
        }

        fn process(&self, pid: u32, gpu: u64, occupancy: &str) {
            self.write(&format!("proc/{pid}/vram_{gpu}"), "4096\n");
            self.write(&format!("proc/{pid}/stats_{gpu}/cu_occupancy"), occupancy);
        }

        fn look(&self) -> Vec<Seen> {
            let all = KfdProcesses::below(Root::at(&self.0)).look().unwrap();
            let one = |(key, used): (Key, KfdUse)| (key.as_str().to_owned(), used.units, used.occupied);
            all.into_iter().map(one).collect()
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            let _gone = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn an_entry_is_a_gpu_with_its_address_and_units() {
        // c1:00.0 is 0xc100; the second partition of it has bit 28 set.
        for location in [0xc100, 0xc100 | 1 << 28] {
            let node = KfdNode::read(properties(location, 1_216).as_bytes()).unwrap();
            assert_eq!((node.gpu.as_str(), node.units), ("gpu-0000:c1:00.0", 304));
        }
        let device_3 = KfdNode::read(properties(0xc119, 8).as_bytes()).unwrap();
        assert_eq!(device_3.gpu.as_str(), "gpu-0000:c1:03.1");
        for text in [
            "",
            "simd_count 0\nsimd_per_cu 0\nlocation_id 1\n",
            "simd_count 8\nsimd_per_cu 4\n",
            "simd_count 8\nsimd_per_cu 4\nlocation_id -1\n",
            "simd_count 18446744073709551615\nsimd_per_cu 1\nlocation_id 1\n",
            "simd_count 8\nsimd_per_cu 4\nlocation_id 1\ndomain 18446744073709551615\n",
        ] {
            assert_eq!(KfdNode::read(text.as_bytes()), None, "{text}");
        }
        assert_eq!(KfdNode::read(b"\xff"), None);
    }

    #[test]
    fn who_occupies_units_is_told_for_each_gpu_and_partitions_are_one() {
        let machine = Machine::new("told");
        assert_eq!(machine.look(), [], "there is no KFD");
        machine.node(0, 0, "simd_count 0\n");
        machine.node(1, 11, &properties(0xc100, 160));
        machine.node(2, 12, &properties(0xc100 | 1 << 28, 160));
        machine.node(3, 13, &properties(0xc200, 416));
        machine.process(7, 11, "30\n");
        machine.process(7, 12, "0\n");
        machine.process(8, 12, "99\n");
        machine.process(8, 99, "5\n");
        machine.write("proc/9/queues", "");
        let of = |gpu: &str| format!("gpu-0000:{gpu}:00.0");
        // Of 40 and 40 units 30 and, as a partition has no more, 40; of 104 none.
        let expected = [(of("c1"), 80, Some(vec![(7, 30), (8, 40)])), (of("c2"), 104, Some(vec![]))];
        assert_eq!(machine.look(), expected);
    }

    #[test]
    fn what_is_not_told_is_unknown_for_that_gpu_alone() {
        let machine = Machine::new("unknown");
        machine.node(1, 11, &properties(0xc100, 160));
        machine.node(2, 12, &properties(0xc200, 160));
        machine.process(7, 11, "30\n");
        // This kernel cannot tell it of this GPU.
        machine.write("proc/8/vram_12", "4096\n");
        let unknown = |machine: &Machine| {
            machine.look().into_iter().map(|(_, _, told)| told.is_none()).collect::<Vec<_>>()
        };
        assert_eq!(unknown(&machine), [false, true]);
        machine.process(7, 11, "many\n");
        assert_eq!(unknown(&machine), [true, true]);
        machine.process(7, 11, "30\n");
        assert_eq!(unknown(&machine), [false, true]);
        // A process whose folder cannot be listed.
        machine.write("proc/9", "");
        assert_eq!(unknown(&machine), [true, true]);
        fs::remove_dir_all(machine.0.join("sys/class/kfd/kfd/proc")).unwrap();
        assert_eq!(unknown(&machine), [true, true], "and without a list of processes all are");
    }

    #[test]
    fn the_list_is_read_again_when_its_number_changes() {
        let machine = Machine::new("list");
        machine.write("topology/generation_id", "1\n");
        machine.node(1, 11, &properties(0xc100, 160));
        let mut kfd = KfdProcesses::below(Root::at(&machine.0));
        assert_eq!(kfd.look().unwrap().len(), 1);
        machine.node(2, 12, &properties(0xc200, 160));
        assert_eq!(kfd.look().unwrap().len(), 1);
        machine.write("topology/generation_id", "2\n");
        assert_eq!(kfd.look().unwrap().len(), 2);
    }

    #[test]
    fn a_list_that_cannot_be_read_says_of_no_gpu_that_nobody_computes() {
        let machine = Machine::new("refused");
        machine.write("topology/generation_id", "1\n");
        machine.node(0, 0, "cpu_cores_count 64\n");
        machine.node(1, 11, &properties(0xc100, 160));
        machine.node(2, 12, "simd_count 160\n");
        let mut kfd = KfdProcesses::below(Root::at(&machine.0));
        assert_eq!(kfd.look(), None, "a GPU that does not say where it is");
        // It is read again, though the number of the list is the same.
        machine.node(2, 12, &properties(0xc200, 160));
        assert_eq!(kfd.look().unwrap().len(), 2);
        machine.write("topology/generation_id", "2\n");
        fs::remove_file(machine.0.join("sys/class/kfd/kfd/topology/nodes/1/gpu_id")).unwrap();
        assert_eq!(kfd.look(), None, "an entry that does not say what it is");
    }
}
