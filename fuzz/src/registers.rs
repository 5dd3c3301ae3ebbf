//! Property: whatever a register returns, a write to it is a cap in the fields of a cap, not above the wish, over
//! half a second at most, with the short-term limit not raised; a locked register is never written; a release
//! restores every bit; and invalid text for the location of a processor is an error that names the file.

use crate::feed::Feed;
use crate::port::{check_domains, check_names, clock, microwatts, sample};
use crate::tree::{File, Script, Tree, file, with};
use hal_files::{Access, Root, text};
use hal_rapl::msr::{MsrFault, MsrIo};
use hal_rapl::{MsrRapl, RaplError};
use power_hal::{
    ErrorKind, Handle, Measured, Meter, OriginalsInMemory, PortError, PowerHal, Released, Setting,
};
use power_units::{MicroWatts, Stamp};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

const FILES: &[File] = &[
    file("sys/devices/system/cpu/modalias", "cpu:type:x86,ven0000fam0006mod0055:feature:,0000,0001\n"),
    file("sys/devices/system/cpu/cpu0/topology/physical_package_id", "0\n"),
    file("sys/devices/system/cpu/cpu0/topology/die_id", "0\n"),
    file("sys/devices/system/cpu/cpu1/topology/physical_package_id", "1\n"),
    file("sys/devices/system/cpu/cpu1/topology/die_id", "0\n"),
];
const PLACES: [usize; 4] = [1, 2, 3, 4];

const UNIT: u32 = 0x606;
const LIMIT: u32 = 0x610;
/// A server's values: 1/8 W, 61 µJ, 976 µs; 250 W over 28 s and 300 W; a count; 250 W and a minimum; and the
/// time for which the limit held the package back.
const HEALTHY: [(u32, u64); 7] = [
    (UNIT, 0x000a_0e03),
    (LIMIT, 0x0003_8960_00dd_87d0),
    (0x611, 0x1234_5678),
    (0x614, 0x0258_07d0),
    (0xc001_0299, 0x000a_1003),
    (0xc001_029b, 0x1_0000),
    (0x613, 0x4000),
];
const CPUS: u16 = 2;

/// The power, window, enable and clamp fields of a limit, in both halves.
const FIELDS: u64 = 0x00ff_ffff_00ff_ffff;
const LOCK: u64 = 1 << 63;

/// The registers of a machine as the input defines them.
#[derive(Clone, Debug)]
struct Cells {
    cells: Vec<(u16, u32, Result<u64, ErrorKind>)>,
    /// The effect of a write on the hardware.
    takes: Takes,
    /// For each write to a limit register: the processor, the old value, and the new one.
    written: Vec<(u16, u64, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    All,
    Nothing,
    Zero,
    Refuses(ErrorKind),
}

impl Cells {
    fn of(feed: &mut Feed<'_>) -> Self {
        let mut cells = Vec::new();
        for cpu in 0..CPUS {
            for (register, healthy) in HEALTHY {
                let value = match feed.byte() & 0xf {
                    1 => Ok(feed.long()),
                    2 => Ok(healthy ^ 1 << (feed.byte() & 63)),
                    3 => Err(ErrorKind::Io),
                    4 => Err(feed.pick(&ErrorKind::ALL)),
                    5 => Ok(0),
                    _ => Ok(healthy),
                };
                cells.push((cpu, register, value));
            }
        }
        let takes = match feed.byte() & 0xf {
            1 => Takes::Nothing,
            2 => Takes::Zero,
            3 => Takes::Refuses(feed.pick(&ErrorKind::ALL)),
            _ => Takes::All,
        };
        Self { cells, takes, written: Vec::new() }
    }

    fn cell(&mut self, cpu: u16, register: u32, access: Access) -> Result<&mut u64, MsrFault> {
        let fault = |kind| MsrFault { cpu, register, access, kind, errno: None };
        let found = self.cells.iter_mut().find(|(of, at, _)| (*of, *at) == (cpu, register));
        match found {
            Some((_, _, Ok(value))) => Ok(value),
            Some((_, _, Err(kind))) => Err(fault(*kind)),
            None => Err(fault(ErrorKind::Io)),
        }
    }
}

/// The same registers, shared by the HAL and the check.
#[derive(Clone, Debug)]
struct Shared(Rc<RefCell<Cells>>);

impl MsrIo for Shared {
    fn read(&mut self, cpu: u16, register: u32) -> Result<u64, MsrFault> {
        self.0.borrow_mut().read(cpu, register)
    }

    fn write(&mut self, cpu: u16, register: u32, value: u64) -> Result<(), MsrFault> {
        self.0.borrow_mut().write(cpu, register, value)
    }
}

impl Cells {
    fn read(&mut self, cpu: u16, register: u32) -> Result<u64, MsrFault> {
        self.cell(cpu, register, Access::Read).copied()
    }

    fn write(&mut self, cpu: u16, register: u32, value: u64) -> Result<(), MsrFault> {
        assert_eq!(register, LIMIT, "no other register is ever written");
        let takes = self.takes;
        let cell = self.cell(cpu, register, Access::ReadWrite)?;
        let before = *cell;
        match takes {
            Takes::All => *cell = value,
            Takes::Nothing => {}
            Takes::Zero => *cell = value & !0x7fff,
            Takes::Refuses(kind) => {
                return Err(MsrFault { cpu, register, access: Access::ReadWrite, kind, errno: None });
            }
        }
        self.written.push((cpu, before, value));
        Ok(())
    }
}

type Hal = MsrRapl<Shared, fn() -> Stamp, OriginalsInMemory<4>>;

thread_local! {
    static TREE: RefCell<Option<Tree>> = const { RefCell::new(None) };
}

pub(crate) fn run(bytes: &[u8]) {
    TREE.with(|tree| with(tree, || Tree::new(FILES, &[]), |tree| look(tree, bytes)));
}

/// Whether a text is a valid location: a number, or −1 for unknown.
fn is_place(text: &[u8]) -> bool {
    text::line(text) == Some("-1")
        || crate::text::attribute(text).is_some_and(|number| u16::try_from(number).is_ok())
}

fn look(tree: &mut Tree, bytes: &[u8]) {
    let mut feed = Feed::new(bytes);
    let wish = if feed.is_set() { feed.long() } else { u64::from(feed.word()) };
    let cells = Cells::of(&mut feed);
    let healthy = cells.cells.iter().all(|(_, register, value)| {
        HEALTHY.iter().any(|(at, healthy)| at == register && *value == Ok(*healthy))
    });
    let cells = Shared(Rc::new(RefCell::new(cells)));
    let script = Script::of(feed.rest(), FILES.len(), 0);
    tree.stage(&script);
    let clock: fn() -> Stamp = clock;
    let hal = MsrRapl::open(Root::at(tree.root()), cells.clone(), clock, OriginalsInMemory::new());
    let bad = |at: &usize| tree.read(*at).is_some_and(|text| !is_place(text));
    let mut hal = match hal {
        Ok(hal) => hal,
        Err(error) => return check_open(&error, tree, PLACES.iter().any(bad)),
    };
    for cpu in [&PLACES[..2], &PLACES[2..]] {
        // The die of an offline processor is not read.
        let package_is_known = tree.read(cpu[0]).and_then(crate::text::attribute).is_some();
        assert!(!bad(&cpu[0]) && (!package_is_known || !bad(&cpu[1])), "bad text passed for a place");
    }
    check_domains(hal.domains());
    check_values(&mut hal);
    assert!(!healthy || script.replaces(&[0, 1, 2, 3, 4]) || hal.domains().len() == 2);
    let handles: Vec<Handle> = hal.domains().iter().map(|(handle, _)| handle).collect();
    for handle in handles {
        set_and_release(&mut hal, &cells, handle, MicroWatts::new(wish), tree.root());
    }
    check_writes(&cells.0.borrow());
}

fn set_and_release(hal: &mut Hal, cells: &Shared, handle: Handle, wish: MicroWatts, root: &Path) {
    let clamped =
        hal.domains().get(handle).and_then(|domain| domain.power()).and_then(|power| power.clamp(wish));
    let before = cells.0.borrow().cells.clone();
    let applied = hal.apply(handle, Setting::Power(wish));
    match &applied {
        Ok(applied) if cells.0.borrow().takes == Takes::All => {
            let found = microwatts(applied.effective()).map(MicroWatts::new);
            assert!(found <= clamped && clamped.is_some(), "{found:?} is in force for {clamped:?}");
        }
        Ok(_) | Err(PortError::Refused(_) | PortError::Hal(RaplError::Gone | RaplError::Register(_))) => {}
        Err(PortError::Hal(error)) => check_names(error, root),
    }
    let released = hal.release(handle);
    if matches!(released, Ok(Released::Restored | Released::Untouched)) {
        assert_eq!(cells.0.borrow().cells, before, "not every bit is back");
    }
    if applied.is_ok() && cells.0.borrow().takes == Takes::All {
        assert_eq!(released.ok(), Some(Released::Restored));
    }
}

fn check_open(error: &RaplError, tree: &Tree, bad_place: bool) {
    assert!(
        matches!(error, RaplError::Register(_) | RaplError::File(_) | RaplError::NoRegisters(_)),
        "{error}"
    );
    if let RaplError::File(file) = error {
        assert!(
            bad_place
                || tree.read(1).is_none()
                || tree.read(2).is_none()
                || tree.read(3).is_none()
                || tree.read(4).is_none()
        );
        crate::port::check_file(file, tree.root());
    }
}

/// A counter is below its modulus, and both are 32 bits in units of the register.
fn check_values(hal: &mut Hal) {
    for reading in sample(hal) {
        let meter = hal.domains().get(reading.domain).and_then(|domain| domain.meter());
        let Ok(sample) = reading.outcome else { continue };
        if let (Some(Meter::Energy(counter)), Ok(Measured::Energy(energy))) = (meter, sample.meter) {
            assert!(counter.can_show(energy), "{energy:?} of {counter:?}");
        }
        if let Ok(limit) = sample.power_limit {
            assert!(limit.get() <= 0x7fff * 1_000_000, "{limit:?}");
        }
    }
}

/// The power fields of both halves, in steps.
fn powers(register: u64) -> [u64; 2] {
    [register & 0x7fff, register >> 32 & 0x7fff]
}

/// The time of a window field, in this machine's unit.
fn window_us(field: u64, unit: u64) -> u128 {
    let (y, f) = (field & 0x1f, field >> 5);
    ((u128::from(4 + f) << y) * 1_000_000) >> (unit + 2)
}

fn check_writes(cells: &Cells) {
    for (cpu, before, after) in &cells.written {
        assert_eq!(before & LOCK, 0, "a locked register was written");
        assert_eq!((before ^ after) & !FIELDS, 0, "{before:#x} → {after:#x}");
        let first = cells.written.iter().find(|(of, ..)| of == cpu).map_or(*before, |(_, first, _)| *first);
        if *after == first {
            continue; // What was there before, put back.
        }
        assert_eq!(after >> 15 & 3, 3, "a cap is enabled and clamping: {after:#x}");
        assert!(powers(*after)[1] <= powers(first)[1], "the short-term limit rose: {first:#x} → {after:#x}");
        let upper = |register: u64| register >> 47 & 0x1ff;
        assert_eq!(upper(*before), upper(*after), "the short-term limit's switches and window");
        let unit = cells
            .cells
            .iter()
            .find(|(of, at, _)| of == cpu && *at == UNIT)
            .and_then(|(.., value)| value.ok());
        let time = unit.unwrap_or(0) >> 16 & 0xf;
        let window = |register: u64| register >> 17 & 0x7f;
        let (was, is) = (window(*before), window(*after));
        let fits = window_us(is, time) <= 500_000 || is == 0;
        assert!(fits && (was == is || window_us(was, time) > 500_000), "{before:#x} → {after:#x}");
    }
}
