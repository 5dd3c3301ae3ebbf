//! The boundary to code outside of std: the system call of `/dev/hsmp`, and the functions of `librocm_smi64`.

use crate::hsmp::HsmpMessage;
use crate::rocm::RsmiStatus;
use libloading::Library;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;

/// `_IOWR(0xF8, 0, struct hsmp_message)`: both directions, 44 bytes.
const HSMP_IOCTL_CMD: libc::Ioctl = 0xC02C_F800;

/// Passes a message to the driver behind `file`, which writes the answer into it.
pub(crate) fn hsmp_ioctl(file: &File, message: &mut HsmpMessage) -> Result<(), io::Error> {
    // SAFETY: the descriptor is open, as `file` is borrowed. The command's number tells the kernel to read and write
    // 44 bytes, which is the size of `Message` (asserted where it is declared), and `message` is borrowed exclusively
    // until the call returns. Every bit pattern of its integers is valid. std has no ioctl.
    let answer = unsafe { libc::ioctl(file.as_raw_fd(), HSMP_IOCTL_CMD, ptr::from_mut(message)) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

type Unit = unsafe extern "C" fn() -> u32;
type Init = unsafe extern "C" fn(u64) -> u32;
type Count = unsafe extern "C" fn(*mut u32) -> u32;
type Get = unsafe extern "C" fn(u32, *mut u64) -> u32;
type GetAt = unsafe extern "C" fn(u32, u32, *mut u64) -> u32;
type GetShort = unsafe extern "C" fn(u32, *mut u32) -> u32;
type GetSensor = unsafe extern "C" fn(u32, u32, u32, *mut i64) -> u32;
type GetTwo = unsafe extern "C" fn(u32, u32, *mut u64, *mut u64) -> u32;
type GetKind = unsafe extern "C" fn(u32, *mut u64, *mut u32) -> u32;
type SetAt = unsafe extern "C" fn(u32, u32, u64) -> u32;

/// The functions of a loaded `librocm_smi64`, with the signatures of its header. The library counts its starts, so
/// that other users of it in this process are not disturbed.
#[derive(Debug)]
pub(crate) struct RocmSmi {
    init: Init,
    shut_down: Unit,
    count: Count,
    pci_id: Get,
    cap: GetAt,
    cap_range: GetTwo,
    set_cap: SetAt,
    // Not every release has these.
    cap_default: Option<Get>,
    power: Option<GetKind>,
    power_average: Option<GetAt>,
    temperature: Option<GetSensor>,
    busy: Option<GetShort>,
    memory_total: Option<GetAt>,
    memory_used: Option<GetAt>,
    /// Keeps the code behind the functions in memory; the last field, so that it is dropped last.
    _library: Library,
}

/// Each GPU has one sensor for its whole power.
const SENSOR: u32 = 0;

/// `RSMI_MEM_TYPE_VRAM`.
const VRAM: u32 = 0;

/// The result of a call: the written value if the status is success.
fn outcome<T>(status: u32, value: T) -> Result<T, RsmiStatus> {
    if status == 0 { Ok(value) } else { Err(RsmiStatus(status)) }
}

impl RocmSmi {
    /// Loads the library by its path, or by its name through the loader's search.
    pub(crate) fn load(name: &OsStr) -> Result<Self, libloading::Error> {
        // SAFETY: loading runs the library's initialisers. Whoever configured the name, or installed a library under
        // the vendor's name, vouches for it as for the rest of the machine; there is no other way to reach it without
        // needing it at build time.
        let library = unsafe { Library::new(name) }?;
        // SAFETY: `rsmi_status_t rsmi_init(uint64_t)`.
        let init = *unsafe { library.get::<Init>(b"rsmi_init\0") }?;
        // SAFETY: `rsmi_status_t rsmi_shut_down(void)`.
        let shut_down = *unsafe { library.get::<Unit>(b"rsmi_shut_down\0") }?;
        // SAFETY: `rsmi_status_t rsmi_num_monitor_devices(uint32_t *)`.
        let count = *unsafe { library.get::<Count>(b"rsmi_num_monitor_devices\0") }?;
        // SAFETY: `rsmi_status_t rsmi_dev_pci_id_get(uint32_t, uint64_t *)`.
        let pci_id = *unsafe { library.get::<Get>(b"rsmi_dev_pci_id_get\0") }?;
        // SAFETY: `rsmi_status_t rsmi_dev_power_cap_get(uint32_t, uint32_t, uint64_t *)`.
        let cap = *unsafe { library.get::<GetAt>(b"rsmi_dev_power_cap_get\0") }?;
        // SAFETY: `rsmi_status_t rsmi_dev_power_cap_range_get(uint32_t, uint32_t, uint64_t *, uint64_t *)`.
        let cap_range = *unsafe { library.get::<GetTwo>(b"rsmi_dev_power_cap_range_get\0") }?;
        // SAFETY: `rsmi_status_t rsmi_dev_power_cap_set(uint32_t, uint32_t, uint64_t)`.
        let set_cap = *unsafe { library.get::<SetAt>(b"rsmi_dev_power_cap_set\0") }?;
        // SAFETY: `rsmi_status_t rsmi_dev_power_cap_default_get(uint32_t, uint64_t *)`.
        let cap_default = unsafe { library.get::<Get>(b"rsmi_dev_power_cap_default_get\0") }.ok().map(|f| *f);
        // SAFETY: `rsmi_status_t rsmi_dev_power_get(uint32_t, uint64_t *, RSMI_POWER_TYPE *)`, an enum of 32 bits.
        let power = unsafe { library.get::<GetKind>(b"rsmi_dev_power_get\0") }.ok().map(|f| *f);
        // SAFETY: `rsmi_status_t rsmi_dev_power_ave_get(uint32_t, uint32_t, uint64_t *)`.
        let power_average = unsafe { library.get::<GetAt>(b"rsmi_dev_power_ave_get\0") }.ok().map(|f| *f);
        // SAFETY: `rsmi_status_t rsmi_dev_temp_metric_get(uint32_t, uint32_t, rsmi_temperature_metric_t, int64_t *)`, an
        // enum of 32 bits.
        let temperature = unsafe { library.get::<GetSensor>(b"rsmi_dev_temp_metric_get\0") }.ok().map(|f| *f);
        // SAFETY: `rsmi_status_t rsmi_dev_busy_percent_get(uint32_t, uint32_t *)`.
        let busy = unsafe { library.get::<GetShort>(b"rsmi_dev_busy_percent_get\0") }.ok().map(|f| *f);
        // SAFETY: `rsmi_status_t rsmi_dev_memory_total_get(uint32_t, rsmi_memory_type_t, uint64_t *)`, an enum of 32 bits.
        let memory_total = unsafe { library.get::<GetAt>(b"rsmi_dev_memory_total_get\0") }.ok().map(|f| *f);
        // SAFETY: `rsmi_status_t rsmi_dev_memory_usage_get(uint32_t, rsmi_memory_type_t, uint64_t *)`, as above.
        let memory_used = unsafe { library.get::<GetAt>(b"rsmi_dev_memory_usage_get\0") }.ok().map(|f| *f);
        Ok(Self {
            init,
            shut_down,
            count,
            pci_id,
            cap,
            cap_range,
            set_cap,
            cap_default,
            power,
            power_average,
            temperature,
            busy,
            memory_total,
            memory_used,
            _library: library,
        })
    }

    /// Starts the library. It enumerates the devices again unless another user has started it already.
    pub(crate) fn init(&self) -> Result<(), RsmiStatus> {
        // SAFETY: the function of the loaded library by its signature; no flags.
        outcome(unsafe { (self.init)(0) }, ())
    }

    /// Shuts the library down, once for each successful start.
    pub(crate) fn shut_down(&self) {
        // SAFETY: the function of the loaded library by its signature, after a successful start. An end that fails
        // leaves it started, which the next start counts.
        let _ended = unsafe { (self.shut_down)() };
    }

    pub(crate) fn count(&self) -> Result<u32, RsmiStatus> {
        let mut count = 0;
        // SAFETY: by its signature; the pointer is to an integer of ours that lives through the call.
        let status = unsafe { (self.count)(&raw mut count) };
        outcome(status, count)
    }

    pub(crate) fn pci_id(&self, gpu: u32) -> Result<u64, RsmiStatus> {
        let mut id = 0;
        // SAFETY: by its signature; the pointer is to an integer of ours that lives through the call. An index beyond
        // the devices is answered with a status.
        let status = unsafe { (self.pci_id)(gpu, &raw mut id) };
        outcome(status, id)
    }

    pub(crate) fn cap(&self, gpu: u32) -> Result<u64, RsmiStatus> {
        let mut cap = 0;
        // SAFETY: as for `pci_id`.
        let status = unsafe { (self.cap)(gpu, SENSOR, &raw mut cap) };
        outcome(status, cap)
    }

    /// The smallest and the largest cap; the library gives the largest first.
    pub(crate) fn cap_range(&self, gpu: u32) -> Result<(u64, u64), RsmiStatus> {
        let (mut max, mut min) = (0, 0);
        // SAFETY: as for `pci_id`, with two integers.
        let status = unsafe { (self.cap_range)(gpu, SENSOR, &raw mut max, &raw mut min) };
        outcome(status, (min, max))
    }

    pub(crate) fn cap_default(&self, gpu: u32) -> Result<u64, RsmiStatus> {
        let get = self.cap_default.ok_or(RsmiStatus::NOT_SUPPORTED)?;
        let mut cap = 0;
        // SAFETY: as for `pci_id`.
        let status = unsafe { get(gpu, &raw mut cap) };
        outcome(status, cap)
    }

    pub(crate) fn set_cap(&self, gpu: u32, microwatts: u64) -> Result<(), RsmiStatus> {
        // SAFETY: by its signature; values only.
        outcome(unsafe { (self.set_cap)(gpu, SENSOR, microwatts) }, ())
    }

    pub(crate) fn power(&self, gpu: u32) -> Result<u64, RsmiStatus> {
        let get = self.power.ok_or(RsmiStatus::NOT_SUPPORTED)?;
        let (mut power, mut kind) = (0, 0);
        // SAFETY: as for `pci_id`, with two integers of the pointers' own sizes.
        let status = unsafe { get(gpu, &raw mut power, &raw mut kind) };
        outcome(status, power)
    }

    /// The present temperature of a sensor, in thousandths of a degree.
    pub(crate) fn temperature(&self, gpu: u32, sensor: u32) -> Result<i64, RsmiStatus> {
        let get = self.temperature.ok_or(RsmiStatus::NOT_SUPPORTED)?;
        let mut temperature = 0;
        // SAFETY: as for `pci_id`; metric 0 is the present value.
        let status = unsafe { get(gpu, sensor, 0, &raw mut temperature) };
        outcome(status, temperature)
    }

    /// For which part of the time it computes, in percent.
    pub(crate) fn busy(&self, gpu: u32) -> Result<u32, RsmiStatus> {
        let get = self.busy.ok_or(RsmiStatus::NOT_SUPPORTED)?;
        let mut busy = 0;
        // SAFETY: as for `pci_id`, with an integer of the pointer's own size.
        let status = unsafe { get(gpu, &raw mut busy) };
        outcome(status, busy)
    }

    /// The memory in use and the whole of it, in bytes.
    pub(crate) fn memory(&self, gpu: u32) -> Result<(u64, u64), RsmiStatus> {
        let used = self.memory_used.ok_or(RsmiStatus::NOT_SUPPORTED)?;
        let total = self.memory_total.ok_or(RsmiStatus::NOT_SUPPORTED)?;
        let (mut used_bytes, mut total_bytes) = (0, 0);
        // SAFETY: as for `pci_id`; type 0 is the memory of the GPU.
        let status = unsafe { used(gpu, VRAM, &raw mut used_bytes) };
        outcome(status, ())?;
        // SAFETY: as above.
        let status = unsafe { total(gpu, VRAM, &raw mut total_bytes) };
        outcome(status, (used_bytes, total_bytes))
    }

    pub(crate) fn power_average(&self, gpu: u32) -> Result<u64, RsmiStatus> {
        let get = self.power_average.ok_or(RsmiStatus::NOT_SUPPORTED)?;
        let mut power = 0;
        // SAFETY: as for `pci_id`.
        let status = unsafe { get(gpu, SENSOR, &raw mut power) };
        outcome(status, power)
    }
}
