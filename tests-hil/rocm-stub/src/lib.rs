//! A `librocm_smi64` whose GPUs are folders of text files. It has the functions, signatures and return codes of the
//! real library's power calls.
//!
//! A GPU is a folder `gpus/<index>` in the folder that the environment variable `JOULIE_ROCM_STUB` names; without it,
//! in the folder `rocm` beside the library; if there is none, beside the library itself. The files of a GPU contain
//! whole numbers: `pci` (in the library's own encoding), `cap`, `cap_max`, `cap_min`, `cap_default` and `power`, in
//! microwatts; `temp` (of the hottest point, in thousandths of a degree), `busy` (in percent), `vram_total` and
//! `vram_used` (in bytes). A missing file is a reading that the GPU does not have. A file `fail_<function>` (`fail_power_cap_set`) makes that function return the status in the file,
//! which is read once for each call; 0 lets the function continue. A missing folder is a missing GPU. A test copies
//! the library into a folder of its own.
//!
//! A file `served` beside `gpus` means that a process serves the folder as a driver does: a cap is then written into
//! `cap`, and the result of that write decides. An error of a file becomes the status that the vendor's library
//! returns for its errno.
#![allow(unsafe_code, reason = "the FFI boundary")]

use std::ffi::{CStr, OsStr, c_void};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// `rsmi_status_t`.
type Status = u32;

const SUCCESS: Status = 0;
const INVALID_ARGS: Status = 1;
const NOT_SUPPORTED: Status = 2;
const FILE_ERROR: Status = 3;
const PERMISSION: Status = 4;
const INPUT_OUT_OF_BOUNDS: Status = 7;
const INIT_ERROR: Status = 8;
const NOT_FOUND: Status = 10;
const INTERRUPT: Status = 12;
const UNEXPECTED_SIZE: Status = 13;
const UNEXPECTED_DATA: Status = 15;
const BUSY: Status = 16;
const UNKNOWN_ERROR: Status = u32::MAX;

/// The functions that a file `fail_<function>` of a GPU can make fail, by the ends of their names; the file of `init`
/// is beside the GPUs' folders.
pub const FUNCTIONS: [&str; 10] = [
    "pci_id_get",
    "power_cap_range_get",
    "power_cap_get",
    "power_cap_default_get",
    "power_cap_set",
    "power_get",
    "temp_metric_get",
    "busy_percent_get",
    "memory_total_get",
    "memory_usage_get",
];

/// The folder that contains `gpus`.
fn root() -> Option<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "a library that C could load has no other way to be told")]
    if let Some(folder) = std::env::var_os("JOULIE_ROCM_STUB") {
        return Some(PathBuf::from(folder));
    }
    let mut found = libc_dl::Info::EMPTY;
    // SAFETY: any address may be asked for, and `found` is exclusively ours while the call writes it.
    let known = unsafe { libc_dl::dladdr(rsmi_init as *const c_void, &raw mut found) };
    if known == 0 || found.file_name.is_null() {
        return None;
    }
    // SAFETY: dladdr answered with success, so the name is a string that ends in a zero and lives while this library
    // is loaded.
    let name = unsafe { CStr::from_ptr(found.file_name) };
    let own = Path::new(OsStr::from_bytes(name.to_bytes())).parent()?;
    let beside = own.join("rocm");
    Some(if beside.is_dir() { beside } else { own.to_owned() })
}

/// `dladdr` of the C library.
mod libc_dl {
    use std::ffi::{c_char, c_int, c_void};

    /// `Dl_info`.
    #[repr(C)]
    pub(crate) struct Info {
        pub(crate) file_name: *const c_char,
        file_base: *mut c_void,
        symbol_name: *const c_char,
        symbol: *mut c_void,
    }

    impl Info {
        pub(crate) const EMPTY: Self = Self {
            file_name: std::ptr::null(),
            file_base: std::ptr::null_mut(),
            symbol_name: std::ptr::null(),
            symbol: std::ptr::null_mut(),
        };
    }

    unsafe extern "C" {
        pub(crate) fn dladdr(address: *const c_void, info: *mut Info) -> c_int;
    }
}

fn gpu(index: u32) -> Result<PathBuf, Status> {
    let folder = root().ok_or(INIT_ERROR)?.join("gpus").join(index.to_string());
    if folder.is_dir() { Ok(folder) } else { Err(INVALID_ARGS) }
}

/// The text of a file. It is short, so one read returns all of it: a process that serves the folder counts reads, and
/// a changing number must not be combined from two reads.
fn text(folder: &Path, name: &str) -> io::Result<String> {
    let mut text = [0; 256];
    let length = File::open(folder.join(name))?.read(&mut text)?;
    Ok(String::from_utf8_lossy(&text[..length]).trim().to_owned())
}

/// The status that the vendor's library returns for an errno.
fn status_of(error: &io::Error) -> Status {
    match error.raw_os_error() {
        Some(errno::ESRCH) => NOT_FOUND,
        Some(errno::EACCES) => PERMISSION,
        Some(errno::EPERM | errno::ENOENT) => NOT_SUPPORTED,
        Some(errno::EBADF | errno::EISDIR) => FILE_ERROR,
        Some(errno::EINTR) => INTERRUPT,
        Some(errno::EIO) => UNEXPECTED_SIZE,
        Some(errno::ENXIO) => UNEXPECTED_DATA,
        Some(errno::EBUSY) => BUSY,
        Some(errno::EINVAL) => INVALID_ARGS,
        _ => UNKNOWN_ERROR,
    }
}

/// The errno values of Linux.
mod errno {
    pub(crate) const EPERM: i32 = 1;
    pub(crate) const ENOENT: i32 = 2;
    pub(crate) const ESRCH: i32 = 3;
    pub(crate) const EINTR: i32 = 4;
    pub(crate) const EIO: i32 = 5;
    pub(crate) const ENXIO: i32 = 6;
    pub(crate) const EBADF: i32 = 9;
    pub(crate) const EACCES: i32 = 13;
    pub(crate) const EBUSY: i32 = 16;
    pub(crate) const EISDIR: i32 = 21;
    pub(crate) const EINVAL: i32 = 22;
}

/// The status that this function is made to return.
fn refused(folder: &Path, function: &str) -> Result<(), Status> {
    let made = match text(folder, &format!("fail_{function}")) {
        Ok(status) => status.parse().unwrap_or(FILE_ERROR),
        Err(error) if error.kind() == io::ErrorKind::NotFound => SUCCESS,
        Err(error) => status_of(&error),
    };
    if made == SUCCESS { Ok(()) } else { Err(made) }
}

fn number(folder: &Path, name: &str) -> Result<u64, Status> {
    let text = text(folder, name).map_err(|error| status_of(&error))?;
    text.parse().map_err(|_| UNEXPECTED_DATA)
}

fn read(index: u32, function: &str, name: &str) -> Result<u64, Status> {
    let folder = gpu(index)?;
    refused(&folder, function)?;
    number(&folder, name)
}

fn status(outcome: Result<(), Status>) -> Status {
    outcome.err().unwrap_or(SUCCESS)
}

/// Writes a result to the caller's pointer.
///
/// # Safety
/// `place` is null, or points to memory for a `T` that nobody else uses during the call.
unsafe fn give<T>(place: *mut T, outcome: Result<T, Status>) -> Status {
    if place.is_null() {
        return INVALID_ARGS;
    }
    match outcome {
        Ok(value) => {
            // SAFETY: not null by the check above, and the caller's promise is the rest.
            unsafe { place.write(value) };
            SUCCESS
        }
        Err(status) => status,
    }
}

/// Initialises the library.
#[unsafe(no_mangle)]
pub extern "C" fn rsmi_init(_flags: u64) -> Status {
    status(root().ok_or(INIT_ERROR).and_then(|root| refused(&root.join("gpus"), "init")))
}

/// Shuts the library down.
#[unsafe(no_mangle)]
pub extern "C" fn rsmi_shut_down() -> Status {
    SUCCESS
}

/// The number of GPUs.
///
/// # Safety
/// As for every function here: a pointer is null, or points to memory for its type that nobody else uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsmi_num_monitor_devices(count: *mut u32) -> Status {
    let found = (0..64).take_while(|&index| gpu(index).is_ok()).last();
    // SAFETY: the caller's promise.
    unsafe { give(count, Ok(found.map_or(0, |last| last + 1))) }
}

/// The bus address: domain in the upper half, partition in bits 28 to 31, then bus, device and function.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsmi_dev_pci_id_get(index: u32, id: *mut u64) -> Status {
    // SAFETY: the caller's promise.
    unsafe { give(id, read(index, "pci_id_get", "pci")) }
}

/// The range of the cap, the maximum first.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsmi_dev_power_cap_range_get(
    index: u32,
    _sensor: u32,
    max: *mut u64,
    min: *mut u64,
) -> Status {
    // SAFETY: the caller's promise.
    let first = unsafe { give(max, read(index, "power_cap_range_get", "cap_max")) };
    if first != SUCCESS {
        return first;
    }
    // SAFETY: the caller's promise.
    unsafe { give(min, read(index, "power_cap_range_get", "cap_min")) }
}

/// The cap in force.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsmi_dev_power_cap_get(index: u32, _sensor: u32, cap: *mut u64) -> Status {
    // SAFETY: the caller's promise.
    unsafe { give(cap, read(index, "power_cap_get", "cap")) }
}

/// The default cap.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsmi_dev_power_cap_default_get(index: u32, cap: *mut u64) -> Status {
    // SAFETY: the caller's promise.
    unsafe { give(cap, read(index, "power_cap_default_get", "cap_default")) }
}

/// Sets the cap, in its range and in whole watts, as the driver below the real library does.
#[unsafe(no_mangle)]
pub extern "C" fn rsmi_dev_power_cap_set(index: u32, _sensor: u32, cap: u64) -> Status {
    status(set(index, cap))
}

fn set(index: u32, cap: u64) -> Result<(), Status> {
    let folder = gpu(index)?;
    refused(&folder, "power_cap_set")?;
    if cap > number(&folder, "cap_max")? || cap < number(&folder, "cap_min")? {
        return Err(INPUT_OUT_OF_BOUNDS);
    }
    let cap = format!("{}\n", cap / 1_000_000 * 1_000_000);
    if root().is_some_and(|root| root.join("served").exists()) {
        let written = File::options().write(true).open(folder.join("cap"));
        return written
            .and_then(|mut file| file.write_all(cap.as_bytes()))
            .map_err(|error| status_of(&error));
    }
    // A concurrent reader sees the old cap or the new one.
    let (new, place) = (folder.join("cap.new"), folder.join("cap"));
    std::fs::write(&new, cap).and_then(|()| std::fs::rename(new, place)).map_err(|_| FILE_ERROR)
}

/// The power, and its kind.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsmi_dev_power_get(index: u32, power: *mut u64, kind: *mut u32) -> Status {
    // SAFETY: the caller's promise.
    let first = unsafe { give(power, read(index, "power_get", "power")) };
    if first != SUCCESS {
        return first;
    }
    // SAFETY: the caller's promise. An average.
    unsafe { give(kind, Ok(0)) }
}

/// A temperature, in thousandths of a degree: of the junction (sensor 1), at this moment (metric 0).
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsmi_dev_temp_metric_get(
    index: u32,
    sensor: u32,
    metric: u32,
    temperature: *mut i64,
) -> Status {
    let answer = match (sensor, metric) {
        (1, 0) => {
            read(index, "temp_metric_get", "temp").map(|value| i64::try_from(value).unwrap_or(i64::MAX))
        }
        _ => Err(NOT_SUPPORTED),
    };
    // SAFETY: the caller's promise.
    unsafe { give(temperature, answer) }
}

/// For which part of the time the GPU computes, in percent.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsmi_dev_busy_percent_get(index: u32, busy: *mut u32) -> Status {
    let answer =
        read(index, "busy_percent_get", "busy").map(|value| u32::try_from(value).unwrap_or(u32::MAX));
    // SAFETY: the caller's promise.
    unsafe { give(busy, answer) }
}

/// The memory of the GPU (type 0), in bytes.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsmi_dev_memory_total_get(index: u32, kind: u32, total: *mut u64) -> Status {
    let answer = if kind == 0 { read(index, "memory_total_get", "vram_total") } else { Err(NOT_SUPPORTED) };
    // SAFETY: the caller's promise.
    unsafe { give(total, answer) }
}

/// The memory of the GPU (type 0) that is in use, in bytes.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsmi_dev_memory_usage_get(index: u32, kind: u32, used: *mut u64) -> Status {
    let answer = if kind == 0 { read(index, "memory_usage_get", "vram_used") } else { Err(NOT_SUPPORTED) };
    // SAFETY: the caller's promise.
    unsafe { give(used, answer) }
}
