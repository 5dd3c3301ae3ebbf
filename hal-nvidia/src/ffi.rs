//! The only unsafe code of this crate: cards by their handles, and the calls that nvml-wrapper lacks or implements
//! wrongly.
//!
//! - A [`Device`] borrows the library, so a HAL cannot store both. It stores a [`Card`], a handle with the number of
//!   the session that returned it; a handle of another session never reaches the library.
//! - `Device::supported_graphics_clocks` of nvml-wrapper 0.13.0 returns zeros for a list of more than 128 clocks.
//! - Fields with a scope, and limits with a scope, are not wrapped; `Device::field_values_for` allocates two lists.
//! - `Device::process_utilization_stats` allocates as much as the library says.
//! - `NvLink::remote_device_type` of nvml-wrapper 0.13.0 discards the answer and always returns unknown.

use crate::error::NvmlFault;
use crate::processes::SAMPLES_MOST;
use nvml_wrapper::struct_wrappers::device::FieldValueSample;
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlFieldValue_t, nvmlIntNvLinkDeviceType_t, nvmlPowerValue_v2_t,
    nvmlProcessUtilizationSample_t, nvmlReturn_t, nvmlValue_t,
};
use std::sync::atomic::{AtomicU64, Ordering};

/// An initialised library, until it is dropped.
#[derive(Debug)]
pub(crate) struct Session {
    nvml: Nvml,
    number: u64,
}

/// A card in one session of the library.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Card {
    handle: nvmlDevice_t,
    session: u64,
}

// SAFETY: the handle is an identifier for the library and is never dereferenced here, and by its manual every function
// of the library may be called from any thread; nvml-wrapper states the same for its `Device`, which holds the same
// handle.
unsafe impl Send for Card {}

// SAFETY: as above; and nothing can be changed through a shared reference, as the handle is only copied.
unsafe impl Sync for Card {}

/// Numbers are never reused in a process.
static SESSIONS: AtomicU64 = AtomicU64::new(0);

/// The scope of a power limit or a field, by nvml.h (`NVML_POWER_SCOPE_…`).
pub(crate) const SCOPE_GPU: u8 = 0;
pub(crate) const SCOPE_MODULE: u8 = 1;

/// `NVML_STRUCT_VERSION(PowerValue, 2)` of nvml.h: the size, and the version in the highest byte. Its comment states
/// that the version "must be 1"; the library checks the macro's value, which is this one.
const POWER_VALUE_V2: u32 = 12 | (2 << 24);
const _: () = assert!(size_of::<nvmlPowerValue_v2_t>() == 12);

/// More clocks than any card has: 2 GHz in steps of 7.5 MHz are 267.
const CLOCKS_MAX: usize = 1_024;
/// Room for the samples of processes at first: few cards have more of them.
const SAMPLES_FIRST: usize = 128;
/// How often the samples of processes are asked for with more room.
const SAMPLES_ATTEMPTS: u32 = 3;
const NO_SAMPLE: nvmlProcessUtilizationSample_t =
    nvmlProcessUtilizationSample_t { pid: 0, timeStamp: 0, smUtil: 0, memUtil: 0, encUtil: 0, decUtil: 0 };

impl Session {
    pub(crate) fn new(nvml: Nvml) -> Self {
        Self { nvml, number: SESSIONS.fetch_add(1, Ordering::Relaxed) }
    }

    pub(crate) const fn nvml(&self) -> &Nvml {
        &self.nvml
    }

    /// The card of a device of this session.
    pub(crate) fn card(&self, device: &Device<'_>) -> Option<Card> {
        if !std::ptr::eq(device.nvml(), &raw const self.nvml) {
            return None;
        }
        // SAFETY: the handle is stored with the number of its library's session, and is used in that session only.
        let handle = unsafe { device.handle() };
        Some(Card { handle, session: self.number })
    }

    /// The device of a card; `None` if the card is of another session.
    pub(crate) fn device(&self, card: Card) -> Option<Device<'_>> {
        if card.session != self.number {
            return None;
        }
        // SAFETY: the handle was returned by this library in this session, which ends when `self` is dropped; the
        // device borrows `self`.
        Some(unsafe { Device::new(card.handle, &self.nvml) })
    }

    /// Reads one field of a card or of its module, as an unsigned number.
    pub(crate) fn field(&self, card: Card, scope: u8, field: u32) -> Result<u64, NvmlFault> {
        let handle = self.handle(card)?;
        let read = self.nvml.lib().nvmlDeviceGetFieldValues.as_ref().map_err(|_| NvmlFault::Missing)?;
        let mut value = nvmlFieldValue_t {
            fieldId: field,
            scopeId: scope.into(),
            timestamp: 0,
            latencyUsec: 0,
            valueType: 0,
            nvmlReturn: 0,
            value: nvmlValue_t { ullVal: 0 },
        };
        // SAFETY: the handle is of this session, and the pointer is to one value, as the count says, which is
        // initialised and outlives the call.
        done(unsafe { read(handle, 1, &raw mut value) })?;
        let sample = FieldValueSample::try_from(value)?;
        whole(sample.value?)
    }

    /// Sets the power limit of the module of a card.
    pub(crate) fn set_module_limit(&self, card: Card, limit_mw: u32) -> Result<(), NvmlFault> {
        let handle = self.handle(card)?;
        let set =
            self.nvml.lib().nvmlDeviceSetPowerManagementLimit_v2.as_ref().map_err(|_| NvmlFault::Missing)?;
        let mut value =
            nvmlPowerValue_v2_t { version: POWER_VALUE_V2, powerScope: SCOPE_MODULE, powerValueMw: limit_mw };
        // SAFETY: the handle is of this session, and the pointer is to a value of the version in its field, which
        // outlives the call.
        done(unsafe { set(handle, &raw mut value) })
    }

    /// Reads the samples of a card's processes that are later than a time.
    pub(crate) fn process_samples(
        &self,
        card: Card,
        after: u64,
        into: &mut Vec<nvmlProcessUtilizationSample_t>,
    ) -> Result<(), NvmlFault> {
        let handle = self.handle(card)?;
        let ask = self.nvml.lib().nvmlDeviceGetProcessUtilization.as_ref().map_err(|_| NvmlFault::Missing)?;
        let mut room = SAMPLES_FIRST;
        for _ in 0..SAMPLES_ATTEMPTS {
            into.clear();
            into.resize(room, NO_SAMPLE);
            let mut count = u32::try_from(room).unwrap_or(0);
            // SAFETY: the handle is of this session; the first pointer is to as many initialised samples as the number
            // behind the second one says, and both outlive the call.
            let code = unsafe { ask(handle, into.as_mut_ptr(), &raw mut count, after) };
            let told = usize::try_from(count).unwrap_or(usize::MAX);
            match code {
                // Nothing was found after that time.
                6 => {
                    into.clear();
                    return Ok(());
                }
                7 if told > room && told <= SAMPLES_MOST => room = told,
                code => {
                    into.truncate(if code == 0 { told } else { 0 });
                    return done(code);
                }
            }
        }
        into.clear();
        Err(NvmlFault::Code(7))
    }

    /// The kind of device at the other end of a link, by the numbers of nvml.h.
    pub(crate) fn remote_kind(&self, card: Card, link: u32) -> Result<u32, NvmlFault> {
        let handle = self.handle(card)?;
        let ask =
            self.nvml.lib().nvmlDeviceGetNvLinkRemoteDeviceType.as_ref().map_err(|_| NvmlFault::Missing)?;
        let mut kind: nvmlIntNvLinkDeviceType_t = 0;
        // SAFETY: the handle is of this session, and the pointer is to a number that outlives the call.
        done(unsafe { ask(handle, link, &raw mut kind) })?;
        Ok(kind)
    }

    /// The graphics clocks that a card has beside a memory clock, MHz.
    pub(crate) fn graphics_clocks(&self, card: Card, memory_mhz: u32) -> Result<Vec<u32>, NvmlFault> {
        let handle = self.handle(card)?;
        let ask =
            self.nvml.lib().nvmlDeviceGetSupportedGraphicsClocks.as_ref().map_err(|_| NvmlFault::Missing)?;
        let mut clocks = vec![0_u32; CLOCKS_MAX];
        let mut count = u32::try_from(CLOCKS_MAX).unwrap_or(0);
        // SAFETY: the handle is of this session, and the second pointer is to as many numbers as the first one says, which
        // outlive the call.
        done(unsafe { ask(handle, memory_mhz, &raw mut count, clocks.as_mut_ptr()) })?;
        clocks.truncate(usize::try_from(count).unwrap_or(0));
        Ok(clocks)
    }

    fn handle(&self, card: Card) -> Result<nvmlDevice_t, NvmlFault> {
        if card.session == self.number { Ok(card.handle) } else { Err(NvmlFault::UNINITIALIZED) }
    }
}

fn done(code: nvmlReturn_t) -> Result<(), NvmlFault> {
    if code == 0 { Ok(()) } else { Err(NvmlFault::Code(code)) }
}

fn whole(value: nvml_wrapper::enums::device::SampleValue) -> Result<u64, NvmlFault> {
    use nvml_wrapper::enums::device::SampleValue;
    match value {
        SampleValue::U32(value) => Ok(value.into()),
        SampleValue::U64(value) => Ok(value),
        SampleValue::I64(value) => u64::try_from(value).map_err(|_| NvmlFault::Unreadable),
        SampleValue::F64(_) => Err(NvmlFault::Unreadable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvml_stub::{StubGpu as Plate, StubMachine};

    /// For the vendor's library, a handle of an earlier session is a pointer to freed memory.
    #[test]
    fn a_card_of_another_session_reaches_no_library() {
        let folder = rig::test_machine::Folder::new();
        let machine = StubMachine::at(&folder.0);
        let library = machine.library().unwrap();
        let uuid = "GPU-11111111-0b1c-4d7e-9a55-0123456789ab";
        let plate =
            Plate { uuid, pci: "00000000:19:00.0", min_mw: 200_000, max_mw: 700_000, default_mw: 700_000 };
        machine.add("a", &plate).unwrap();
        let open = || Session::new(Nvml::builder().lib_path(library.as_os_str()).init().unwrap());
        let (first, second) = (open(), open());
        let device = first.nvml().device_by_index(0).unwrap();
        let card = first.card(&device).unwrap();
        assert!(second.card(&device).is_none());
        assert!(first.device(card).is_some() && second.device(card).is_none());
        assert_eq!(first.field(card, 0, 186), Ok(71_000));
        assert_eq!(second.field(card, 0, 186), Err(NvmlFault::UNINITIALIZED));
        assert_eq!(second.set_module_limit(card, 300_000), Err(NvmlFault::UNINITIALIZED));
        assert_eq!(second.remote_kind(card, 0), Err(NvmlFault::UNINITIALIZED));
    }
}
