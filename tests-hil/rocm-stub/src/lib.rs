//! A `librocm_smi64` whose GPUs are folders of text files, with the functions, the signatures and the answers of the
//! real library's power calls.
//!
//! A GPU is a folder `gpus/<index>` beside the library itself, or below the folder that the environment names in
//! `JOULIE_ROCM_STUB`. Its files hold whole numbers: `pci` (the library's own encoding), `cap`, `cap_max`, `cap_min`,
//! `cap_default` and `power`, in microwatts. A file `fail_<function>` (`fail_power_cap_set`) makes that function answer
//! the status that it holds. A folder that is not there is a GPU that is not there. A test that copies the library into
//! a folder of its own has one of its own.
#![allow(unsafe_code, reason = "the FFI boundary")]

use std::ffi::{CStr, OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// `rsmi_status_t`.
type Status = u32;

const SUCCESS: Status = 0;
const INVALID_ARGS: Status = 1;
const NOT_SUPPORTED: Status = 2;
const FILE_ERROR: Status = 3;
const INPUT_OUT_OF_BOUNDS: Status = 7;
const INIT_ERROR: Status = 8;
const UNEXPECTED_DATA: Status = 15;

/// The folder that holds `gpus`.
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
    Path::new(OsStr::from_bytes(name.to_bytes())).parent().map(Path::to_owned)
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

/// What a test wants this function to answer.
fn refused(folder: &Path, function: &str) -> Result<(), Status> {
    match std::fs::read_to_string(folder.join(format!("fail_{function}"))) {
        Ok(status) => Err(status.trim().parse().unwrap_or(FILE_ERROR)),
        Err(_) => Ok(()),
    }
}

fn number(folder: &Path, name: &str) -> Result<u64, Status> {
    let text = std::fs::read_to_string(folder.join(name)).map_err(|_| NOT_SUPPORTED)?;
    text.trim().parse().map_err(|_| UNEXPECTED_DATA)
}

fn read(index: u32, function: &str, name: &str) -> Result<u64, Status> {
    let folder = gpu(index)?;
    refused(&folder, function)?;
    number(&folder, name)
}

fn status(outcome: Result<(), Status>) -> Status {
    outcome.err().unwrap_or(SUCCESS)
}

/// Writes an answer where the caller wants it.
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

/// Starts the library.
#[unsafe(no_mangle)]
pub extern "C" fn rsmi_init(_flags: u64) -> Status {
    status(root().ok_or(INIT_ERROR).and_then(|root| refused(&root.join("gpus"), "init")))
}

/// Ends it.
#[unsafe(no_mangle)]
pub extern "C" fn rsmi_shut_down() -> Status {
    SUCCESS
}

/// How many GPUs there are.
///
/// # Safety
/// As for every function here: a pointer is null, or points to memory for its type that nobody else uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsmi_num_monitor_devices(count: *mut u32) -> Status {
    let found = (0..64).take_while(|&index| gpu(index).is_ok()).last();
    // SAFETY: the caller's promise.
    unsafe { give(count, Ok(found.map_or(0, |last| last + 1))) }
}

/// Where it sits: domain in the upper half, partition in bits 28 to 31, then bus, device and function.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsmi_dev_pci_id_get(index: u32, id: *mut u64) -> Status {
    // SAFETY: the caller's promise.
    unsafe { give(id, read(index, "pci_id_get", "pci")) }
}

/// The range of the cap, the largest first.
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

/// The cap that it starts with.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsmi_dev_power_cap_default_get(index: u32, cap: *mut u64) -> Status {
    // SAFETY: the caller's promise.
    unsafe { give(cap, read(index, "power_cap_default_get", "cap_default")) }
}

/// Sets the cap, within its range, in whole watts as the driver below the real library does.
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
    // Whoever looks meanwhile sees the old cap or the new one.
    let (new, place) = (folder.join("cap.new"), folder.join("cap"));
    let written = std::fs::write(&new, format!("{}\n", cap / 1_000_000 * 1_000_000));
    written.and_then(|()| std::fs::rename(new, place)).map_err(|_| FILE_ERROR)
}

/// The power that it draws, and of which kind it is.
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
