//! The functions of `nvml.h`, by their names. They only convert values; the answers are in `answers.rs`.
//!
//! Safety of all functions: the caller keeps the promise of the manual that a pointer is null or points to a writable
//! value of its type, and that a buffer has the stated length.

use crate::answers::{self, card};
use crate::code::{INSUFFICIENT_SIZE, INVALID_ARGUMENT, SUCCESS, UNKNOWN};
use crate::machine::StubMachine;
use crate::shape::{
    FieldValue, MEMORY_V2, Memory, PCI_TEXT, POWER_VALUE_V2, PciInfo, PowerValue, ProcessSample, Utilization,
};
use std::ffi::{CStr, OsStr, c_char, c_int, c_uint, c_ulonglong};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// `nvmlDevice_t`: never dereferenced, only compared.
type Handle = usize;

/// The folder that is read.
fn machine() -> StubMachine {
    #[expect(
        clippy::disallowed_methods,
        reason = "the library has no host that could parse its configuration"
    )]
    let told = std::env::var_os("JOULIE_NVML_STUB");
    StubMachine::at(told.map_or_else(own_folder, PathBuf::from))
}

/// The folder `nvml` beside this library; otherwise the folder that contains the library.
fn own_folder() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let own = library_folder();
        let beside = own.join("nvml");
        if beside.is_dir() { beside } else { own }
    });
    found.clone()
}

/// The folder that contains this library.
fn library_folder() -> PathBuf {
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    let here: fn() -> PathBuf = library_folder;
    // SAFETY: the first argument is only looked up, and the second is a structure of the type that is filled in.
    let known = unsafe { libc::dladdr(here as *const libc::c_void, found.as_mut_ptr()) };
    // SAFETY: all zeros is a value of this structure of pointers, so it is initialised whether it was filled in or not.
    let found = unsafe { found.assume_init() };
    if known == 0 || found.dli_fname.is_null() {
        return PathBuf::new();
    }
    // SAFETY: the loader gives the path as a text with an end, which lives as long as the library is loaded.
    let path = unsafe { CStr::from_ptr(found.dli_fname) };
    Path::new(OsStr::from_bytes(path.to_bytes())).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// Returns a value to the caller.
///
/// # Safety
/// `out` is null or may be written.
unsafe fn give<T>(out: *mut T, answer: Result<T, u32>) -> c_uint {
    match answer {
        Ok(_) if out.is_null() => INVALID_ARGUMENT,
        Ok(value) => {
            // SAFETY: it is not null, and the caller promises that it may be written then.
            unsafe { out.write(value) };
            SUCCESS
        }
        Err(code) => code,
    }
}

/// Returns a text to the caller, with its terminating zero.
///
/// # Safety
/// `out` is null or has room for `length` bytes.
unsafe fn give_text(out: *mut c_char, length: c_uint, answer: Result<String, u32>) -> c_uint {
    let text = match answer {
        Ok(text) => text,
        Err(code) => return code,
    };
    let room = usize::try_from(length).unwrap_or(0);
    if out.is_null() {
        return INVALID_ARGUMENT;
    }
    if text.len() >= room {
        return INSUFFICIENT_SIZE;
    }
    let bytes = text.bytes().chain([0]);
    for (at, byte) in bytes.enumerate() {
        // SAFETY: `at` is less than the length of the text and its end, which fits the buffer.
        let slot = unsafe { out.add(at) };
        // SAFETY: as above, the slot lies in the buffer that the caller promised.
        unsafe { slot.write(byte.cast_signed()) };
    }
    SUCCESS
}

fn code(answer: Result<(), u32>) -> c_uint {
    answer.map_or_else(|code| code, |()| SUCCESS)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlInit_v2() -> c_uint {
    code(answers::init(&machine()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlShutdown() -> c_uint {
    code(answers::shutdown())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetDriverVersion(out: *mut c_char, length: c_uint) -> c_uint {
    let machine = machine();
    let answer = answers::alive(&machine, "nvmlSystemGetDriverVersion")
        .and_then(|()| machine.get("driver").ok_or(UNKNOWN));
    // SAFETY: the caller keeps the promise at the head of this file.
    unsafe { give_text(out, length, answer) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCount_v2(out: *mut c_uint) -> c_uint {
    // SAFETY: the caller keeps the promise at the head of this file.
    unsafe { give(out, answers::count(&machine())) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, out: *mut Handle) -> c_uint {
    // SAFETY: the caller keeps the promise at the head of this file.
    unsafe { give(out, answers::by_index(&machine(), index)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, out: *mut Handle) -> c_uint {
    if uuid.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: it is not null, and by the manual it is a text with an end.
    let uuid = unsafe { CStr::from_ptr(uuid) };
    let answer = uuid.to_str().map_err(|_| INVALID_ARGUMENT);
    // SAFETY: the caller keeps the promise at the head of this file.
    unsafe { give(out, answer.and_then(|uuid| answers::by_uuid(&machine(), uuid))) }
}

/// Functions that return a text of a card.
macro_rules! texts {
    ($($function:ident: $file:literal,)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $function(handle: Handle, out: *mut c_char, length: c_uint) -> c_uint {
            let machine = machine();
            let answer = card(&machine, handle, stringify!($function))
                .and_then(|folder| machine.get(&format!("{folder}/{}", $file)).ok_or(UNKNOWN));
            // SAFETY: the caller keeps the promise at the head of this file.
            unsafe { give_text(out, length, answer) }
        }
    )*};
}

texts! {
    nvmlDeviceGetUUID: "uuid",
    nvmlDeviceGetName: "name",
}

/// Functions that return a number of a card.
macro_rules! numbers {
    ($($function:ident: $type:ty = $answer:expr,)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $function(handle: Handle, out: *mut $type) -> c_uint {
            let machine = machine();
            let answer: fn(&StubMachine, &str) -> Result<$type, u32> = $answer;
            let answer = card(&machine, handle, stringify!($function))
                .and_then(|folder| answer(&machine, &folder));
            // SAFETY: the caller keeps the promise at the head of this file.
            unsafe { give(out, answer) }
        }
    )*};
}

numbers! {
    nvmlDeviceGetPowerManagementLimit: c_uint = |m, f| m.number(&format!("{f}/limit_mw")),
    nvmlDeviceGetPowerManagementDefaultLimit: c_uint = |m, f| m.number(&format!("{f}/default_mw")),
    nvmlDeviceGetEnforcedPowerLimit: c_uint = answers::enforced,
    nvmlDeviceGetPowerUsage: c_uint = |m, f| m.number(&format!("{f}/power_mw")),
    nvmlDeviceGetTotalEnergyConsumption: c_ulonglong = |m, f| m.number(&format!("{f}/energy_mj")),
    nvmlDeviceGetCurrentClocksThrottleReasons: c_ulonglong = |m, f| m.number(&format!("{f}/reasons")),
    nvmlDeviceGetPersistenceMode: c_uint = |m, f| m.number(&format!("{f}/persistence")),
    nvmlDeviceGetUtilizationRates: Utilization = |m, f| {
        Ok(Utilization { gpu: m.number(&format!("{f}/busy_percent"))?, memory: 0 })
    },
    nvmlDeviceIsMigDeviceHandle: c_uint = |m, f| Ok(c_uint::from(m.get(&format!("{f}/parent")).is_some())),
    nvmlDeviceGetDeviceHandleFromMigDeviceHandle: Handle = answers::parent,
    // The highest number that any card has, however many instances there are.
    nvmlDeviceGetMaxMigDeviceCount: c_uint = |_, _| Ok(7),
    nvmlDeviceGetPciInfo_v3: PciInfo = |m, f| Ok(pci(&m.get(&format!("{f}/pci")).ok_or(UNKNOWN)?)),
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTemperature(handle: Handle, sensor: c_uint, out: *mut c_uint) -> c_uint {
    let machine = machine();
    // In nvml.h 0 is the sensor of the die, and there is no other.
    let answer = card(&machine, handle, "nvmlDeviceGetTemperature").and_then(|folder| match sensor {
        0 => machine.number(&format!("{folder}/celsius")),
        _ => Err(INVALID_ARGUMENT),
    });
    // SAFETY: the caller keeps the promise at the head of this file.
    unsafe { give(out, answer) }
}

/// Only the bus address is used; the numbers beside it are the same address.
fn pci(text: &str) -> PciInfo {
    let mut info = PciInfo {
        legacy: [0; 16],
        domain: 0,
        bus: 0,
        device: 0,
        device_id: 0x2330_10de,
        subsystem_id: 0,
        text: [0; PCI_TEXT],
    };
    for (slot, byte) in info.text.iter_mut().zip(text.bytes().take(PCI_TEXT - 1)) {
        *slot = byte.cast_signed();
    }
    let mut numbers = text.split([':', '.']).map(|part| u32::from_str_radix(part, 16).unwrap_or(0));
    info.domain = numbers.next().unwrap_or(0);
    info.bus = numbers.next().unwrap_or(0);
    info.device = numbers.next().unwrap_or(0);
    info
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMigMode(handle: Handle, now: *mut c_uint, next: *mut c_uint) -> c_uint {
    let machine = machine();
    let answer = card(&machine, handle, "nvmlDeviceGetMigMode")
        .and_then(|folder| machine.number::<c_uint>(&format!("{folder}/mig")));
    // SAFETY: the caller keeps the promise at the head of this file.
    let first = unsafe { give(now, answer) };
    if first != SUCCESS {
        return first;
    }
    // SAFETY: as above.
    unsafe { give(next, answer) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    handle: Handle,
    index: c_uint,
    out: *mut Handle,
) -> c_uint {
    let machine = machine();
    let answer = card(&machine, handle, "nvmlDeviceGetMigDeviceHandleByIndex")
        .and_then(|folder| answers::instance(&machine, &folder, index));
    // SAFETY: the caller keeps the promise at the head of this file.
    unsafe { give(out, answer) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(handle: Handle, out: *mut Memory) -> c_uint {
    if out.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: it is not null, and by the manual the caller has filled in the version.
    let version = unsafe { (*out).version };
    let machine = machine();
    let answer = card(&machine, handle, "nvmlDeviceGetMemoryInfo_v2").and_then(|folder| {
        answers::versioned(version, MEMORY_V2)?;
        let total = machine.number::<u64>(&format!("{folder}/vram_mib"))? << 20;
        let used = machine.number::<u64>(&format!("{folder}/vram_used_mib")).unwrap_or(0) << 20;
        Ok(Memory { version, total, reserved: 0, free: total.saturating_sub(used), used })
    });
    // SAFETY: the caller keeps the promise at the head of this file.
    unsafe { give(out, answer) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetPowerManagementLimitConstraints(
    handle: Handle,
    min: *mut c_uint,
    max: *mut c_uint,
) -> c_uint {
    let machine = machine();
    let found = card(&machine, handle, "nvmlDeviceGetPowerManagementLimitConstraints");
    let bound =
        |file: &str| found.clone().and_then(|folder| machine.number::<c_uint>(&format!("{folder}/{file}")));
    // SAFETY: the caller keeps the promise at the head of this file.
    let first = unsafe { give(min, bound("min_mw")) };
    if first != SUCCESS {
        return first;
    }
    // SAFETY: as above.
    unsafe { give(max, bound("max_mw")) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetClockInfo(handle: Handle, kind: c_uint, out: *mut c_uint) -> c_uint {
    let machine = machine();
    let answer = card(&machine, handle, "nvmlDeviceGetClockInfo")
        .and_then(|folder| answers::clock(&machine, &folder, kind));
    // SAFETY: the caller keeps the promise at the head of this file.
    unsafe { give(out, answer) }
}

/// Returns a list to the caller, whose room `count` states; if that is too small, only the number of items.
///
/// # Safety
/// `count` is null or may be written, and `out` is null or has room for so many numbers.
unsafe fn give_list(count: *mut c_uint, out: *mut c_uint, answer: Result<Vec<c_uint>, u32>) -> c_uint {
    let list = match answer {
        Ok(list) => list,
        Err(code) => return code,
    };
    if count.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: it is not null, and the caller promises that it may be read and written then.
    let room = unsafe { count.read() };
    let Ok(length) = c_uint::try_from(list.len()) else { return UNKNOWN };
    // SAFETY: as above.
    unsafe { count.write(length) };
    if out.is_null() || length > room {
        return INSUFFICIENT_SIZE;
    }
    for (at, number) in list.into_iter().enumerate() {
        // SAFETY: `at` is less than the length of the list, which fits the room.
        let slot = unsafe { out.add(at) };
        // SAFETY: as above, the slot lies in the room that the caller promised.
        unsafe { slot.write(number) };
    }
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetSupportedMemoryClocks(
    handle: Handle,
    count: *mut c_uint,
    out: *mut c_uint,
) -> c_uint {
    let machine = machine();
    let answer = card(&machine, handle, "nvmlDeviceGetSupportedMemoryClocks")
        .and_then(|folder| answers::memory_clocks(&machine, &folder));
    // SAFETY: the caller keeps the promise at the head of this file.
    unsafe { give_list(count, out, answer) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetSupportedGraphicsClocks(
    handle: Handle,
    memory: c_uint,
    count: *mut c_uint,
    out: *mut c_uint,
) -> c_uint {
    let machine = machine();
    let answer = card(&machine, handle, "nvmlDeviceGetSupportedGraphicsClocks")
        .and_then(|folder| answers::graphics_clocks(&machine, &folder, memory));
    // SAFETY: the caller keeps the promise at the head of this file.
    unsafe { give_list(count, out, answer) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceSetGpuLockedClocks(handle: Handle, min: c_uint, max: c_uint) -> c_uint {
    let machine = machine();
    let folder = card(&machine, handle, "nvmlDeviceSetGpuLockedClocks");
    code(folder.and_then(|folder| answers::lock_clocks(&machine, &folder, min, max.max(1))))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceResetGpuLockedClocks(handle: Handle) -> c_uint {
    let machine = machine();
    let folder = card(&machine, handle, "nvmlDeviceResetGpuLockedClocks");
    code(folder.and_then(|folder| answers::lock_clocks(&machine, &folder, 0, 0)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceSetPowerManagementLimit(handle: Handle, milliwatts: c_uint) -> c_uint {
    let machine = machine();
    let folder = card(&machine, handle, "nvmlDeviceSetPowerManagementLimit");
    code(folder.and_then(|folder| answers::set_limit(&machine, &folder, milliwatts)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceSetPowerManagementLimit_v2(
    handle: Handle,
    value: *const PowerValue,
) -> c_uint {
    if value.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: it is not null, and by the manual it points to a value that is filled in.
    let value = unsafe { value.read() };
    let machine = machine();
    let folder = card(&machine, handle, "nvmlDeviceSetPowerManagementLimit_v2");
    code(folder.and_then(|folder| {
        answers::versioned(value.version, POWER_VALUE_V2)?;
        let folder = answers::scope(&machine, folder, value.scope.into())?;
        answers::set_limit(&machine, &folder, value.milliwatts)
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetFieldValues(
    handle: Handle,
    count: c_int,
    values: *mut FieldValue,
) -> c_uint {
    let machine = machine();
    let folder = match card(&machine, handle, "nvmlDeviceGetFieldValues") {
        Ok(folder) => folder,
        Err(code) => return code,
    };
    let Ok(count) = usize::try_from(count) else { return INVALID_ARGUMENT };
    if values.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: it is not null, and by the manual there are so many values, filled in, that may be written.
    let values = unsafe { std::slice::from_raw_parts_mut(values, count) };
    for value in values {
        let answer = answers::scope(&machine, folder.clone(), value.scope)
            .and_then(|folder| answers::field(&machine, &folder, value.field));
        match answer {
            // In nvml.h 1 is an unsigned 32-bit number, and 3 an unsigned 64-bit number.
            Ok((number, wide)) => {
                (value.value, value.kind, value.answer) = (number, if wide { 3 } else { 1 }, SUCCESS);
            }
            Err(code) => value.answer = code,
        }
    }
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetProcessUtilization(
    handle: Handle,
    out: *mut ProcessSample,
    count: *mut c_uint,
    after: c_ulonglong,
) -> c_uint {
    if count.is_null() {
        return INVALID_ARGUMENT;
    }
    let machine = machine();
    let answer = card(&machine, handle, "nvmlDeviceGetProcessUtilization")
        .and_then(|folder| answers::processes(&machine, &folder, after));
    let samples = match answer {
        Ok(samples) => samples,
        Err(code) => return code,
    };
    // SAFETY: it is not null, and by the manual the caller has filled in how many there is room for.
    let room = unsafe { count.read() };
    let Ok(length) = c_uint::try_from(samples.len()) else { return UNKNOWN };
    // SAFETY: as above, it may be written.
    unsafe { count.write(length) };
    if out.is_null() || room < length {
        return INSUFFICIENT_SIZE;
    }
    for (at, sample) in samples.into_iter().enumerate() {
        // SAFETY: `at` is below the number that the caller has room for.
        let slot = unsafe { out.add(at) };
        // SAFETY: as above, the slot lies in the caller's buffer.
        unsafe { slot.write(sample) };
    }
    SUCCESS
}

/// Functions that return a property of a link of a card.
macro_rules! links {
    ($($function:ident: $type:ty = $answer:expr,)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $function(handle: Handle, link: c_uint, out: *mut $type) -> c_uint {
            let machine = machine();
            let answer: fn(answers::Link) -> $type = $answer;
            let answer = card(&machine, handle, stringify!($function))
                .and_then(|folder| answers::link(&machine, &folder, link))
                .map(answer);
            // SAFETY: the caller keeps the promise at the head of this file.
            unsafe { give(out, answer) }
        }
    )*};
}

links! {
    nvmlDeviceGetNvLinkState: c_uint = |link| link.active,
    nvmlDeviceGetNvLinkRemotePciInfo_v2: PciInfo = |link| pci(&link.remote),
    nvmlDeviceGetNvLinkRemoteDeviceType: c_uint = |link| link.kind,
}
