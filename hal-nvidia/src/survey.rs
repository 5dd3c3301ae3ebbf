//! Finds the GPUs: their identity, and the controls of each.

use crate::error::{NvidiaError, NvmlFault, NvmlOperation};
use crate::ffi::{Card, Session};
use crate::gauge::{Gauge, LimitScope, Source, meter, micro_watts};
use crate::lock;
use crate::state;
use nvml_wrapper::Device;
use power_hal::{BadLimit, Domain, Key, Limit, Span};
use power_units::{KiloHertz, MicroWatts};

/// No card runs on less than a watt; NVML counts milliwatts in 32 bits.
const WRITABLE: Span<MicroWatts> = Span { floor: MicroWatts::new(1_000_000), ceiling: micro_watts(u32::MAX) };
const STEP: MicroWatts = MicroWatts::new(1_000);

/// The data about a GPU for the hot path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) card: Card,
    pub(crate) key: Key,
    pub(crate) source: Option<Source>,
    pub(crate) read_back: Option<ReadBack>,
}

/// Which limit of a GPU is read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadBack {
    /// The enforced limit.
    Enforced,
    /// The requested limit, for a card that does not report the enforced one.
    Requested,
}

/// The result of an enumeration, in the order of the keys: the driver's order changes with every boot.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    pub(crate) domains: Vec<Domain>,
    pub(crate) slots: Vec<Slot>,
    /// The clocks to which each can be locked, MHz, ascending; empty if it has no lock.
    pub(crate) tables: Vec<Vec<u32>>,
    pub(crate) complaints: Vec<NvidiaError>,
}

/// A GPU in the last list, with its table of clocks.
type Known<'a> = (&'a Domain, &'a [u32]);

/// A GPU with its numbers for the hot path and its table of clocks.
type Found = ((Domain, Slot), Vec<u32>);

impl Survey {
    /// `before` is the last list: a range that temporarily cannot be read keeps its last value.
    pub(crate) fn of(
        session: &Session,
        scope: LimitScope,
        before: (&[Domain], &[Vec<u32>]),
    ) -> Result<Self, NvidiaError> {
        let count = session
            .nvml()
            .device_count()
            .map_err(|error| NvidiaError::all(NvmlOperation::Find, error.into()))?;
        let mut survey = Self::default();
        let mut found: Vec<Found> = Vec::new();
        for index in 0..count {
            let (key, card) = match identify(session, index) {
                Ok(known) => known,
                Err(error) if matches!(error.fault, NvmlFault::Code(1 | 9 | 18)) => return Err(error),
                Err(error) => {
                    survey.complaints.push(error);
                    continue;
                }
            };
            // A MIG instance stands for its card, which is listed once.
            if found.iter().any(|((_, slot), _)| slot.key == key) {
                continue;
            }
            let mut list = before.0.iter().zip(before.1);
            let known =
                list.find(|(domain, _)| *domain.key() == key).map(|(domain, table)| (domain, &**table));
            match describe(session, card, key, scope, known, &mut survey.complaints) {
                Ok(described) => found.push(described),
                Err(error) => survey.complaints.push(error),
            }
        }
        found.sort_unstable_by_key(|((_, slot), _)| slot.key);
        let (listed, tables): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        survey.tables = tables;
        (survey.domains, survey.slots) = listed.into_iter().unzip();
        Ok(survey)
    }
}

/// The physical GPU at an index, which is the parent of a MIG instance, and its key.
fn identify(session: &Session, index: u32) -> Result<(Key, Card), NvidiaError> {
    let failed = |deed: NvmlOperation, fault: NvmlFault| NvidiaError::nth(index, deed, fault);
    let device =
        session.nvml().device_by_index(index).map_err(|error| failed(NvmlOperation::Find, error.into()))?;
    let device = physical(device).map_err(|fault| failed(NvmlOperation::Find, fault))?;
    let uuid = device.uuid().map_err(|error| failed(NvmlOperation::Name, error.into()))?;
    let key = uuid.strip_prefix("GPU-").and_then(|_| Key::gpu(&uuid).ok());
    let key = key.ok_or_else(|| failed(NvmlOperation::Name, NvmlFault::Nameless))?;
    let card = session.card(&device).ok_or_else(|| failed(NvmlOperation::Find, NvmlFault::UNINITIALIZED))?;
    Ok((key, card))
}

/// Returns the whole card, since power is limited and measured for that, never for a MIG instance.
fn physical(device: Device<'_>) -> Result<Device<'_>, NvmlFault> {
    match device.mig_is_mig_device_handle() {
        Ok(true) => Ok(device.mig_parent_device()?),
        Ok(false) => Ok(device),
        Err(error) => {
            let fault = NvmlFault::from(error);
            // A card or a library without MIG support has no instances.
            if fault.is_lack() { Ok(device) } else { Err(fault) }
        }
    }
}

/// The domain of a GPU. A fault that ends the session leaves it out; any other is a complaint.
fn describe(
    session: &Session,
    card: Card,
    key: Key,
    scope: LimitScope,
    before: Option<Known<'_>>,
    complaints: &mut Vec<NvidiaError>,
) -> Result<Found, NvidiaError> {
    let known = before.map(|(domain, _)| domain);
    let gauge =
        Gauge::new(session, card, scope).map_err(|fault| NvidiaError::at(key, NvmlOperation::Find, fault))?;
    let mut domain = Domain::gpu(key.as_str().trim_start_matches("gpu-"))
        .map_err(|_| NvidiaError::at(key, NvmlOperation::Name, NvmlFault::Nameless))?;
    let source = source(&gauge).map_err(|fault| NvidiaError::at(key, NvmlOperation::Meter, fault))?;
    if let Some(source) = source {
        domain = match meter(source) {
            power_hal::Meter::Energy(counter) => domain.with_counter(counter),
            power_hal::Meter::Power => domain.with_power_meter(),
        };
    }
    domain = state::described(&gauge, domain, known)
        .map_err(|fault| NvidiaError::at(key, NvmlOperation::Meter, fault))?;
    let mut read_back = None;
    match limited(&gauge) {
        Ok((limit, by)) => {
            domain = domain.with_power(limit);
            read_back = Some(by);
        }
        Err(fault) if fault.ends_session() => return Err(NvidiaError::at(key, NvmlOperation::Range, fault)),
        Err(fault) => {
            complaints.push(NvidiaError::at(key, NvmlOperation::Range, fault));
            if let Some(limit) = known.and_then(Domain::power).filter(|_| !fault.is_lack()) {
                domain = domain.with_power(*limit);
                read_back = Some(ReadBack::Enforced);
            }
        }
    }
    let table = match gauge.clocks() {
        Ok(table) => table,
        Err(fault) if fault.ends_session() => return Err(NvidiaError::at(key, NvmlOperation::Clocks, fault)),
        Err(fault) if fault.is_lack() => Vec::new(),
        Err(fault) => {
            complaints.push(NvidiaError::at(key, NvmlOperation::Clocks, fault));
            before.map(|(_, table)| table.to_vec()).unwrap_or_default()
        }
    };
    if let Some(limit) = lockable(&table) {
        domain = domain.with_untold_frequency(limit);
    }
    Ok(((domain, Slot { card, key, source, read_back }), table))
}

/// The range of the lock of a card with these clocks.
fn lockable(table: &[u32]) -> Option<Limit<KiloHertz>> {
    let (floor, ceiling) = (lock::kilohertz(*table.first()?), lock::kilohertz(*table.last()?));
    // Of a table with a gap that is wider than its lowest clock the steps are uneven anyway.
    let step = Some(lock::step(table)).filter(|&step| step <= floor).unwrap_or(KiloHertz::ZERO);
    let limit = Limit::new(Span { floor, ceiling }, step).ok()?;
    limit.known(Some(floor), Some(ceiling)).ok()
}

/// The first source that the card does not lack. A source that fails temporarily is not lacking.
fn source(gauge: &Gauge<'_>) -> Result<Option<Source>, NvmlFault> {
    for source in Source::ALL {
        match gauge.measured(source) {
            Err(fault) if fault.ends_session() => return Err(fault),
            Err(fault) if fault.is_lack() => {}
            Ok(_) | Err(_) => return Ok(Some(source)),
        }
    }
    Ok(None)
}

/// The limit of a card, if its requested limit can be read and set.
fn limited(gauge: &Gauge<'_>) -> Result<(Limit<MicroWatts>, ReadBack), NvmlFault> {
    if !gauge.settable() {
        return Err(NvmlFault::Missing);
    }
    let range = gauge.range()?;
    let (min, max) = (micro_watts(range.min_mw), micro_watts(range.max_mw));
    // Both ends come in one answer, so an impossible answer makes both unknown.
    if min > max || max < WRITABLE.floor || max > WRITABLE.ceiling {
        return Err(NvmlFault::Range(BadLimit::Crossed));
    }
    let limit = Limit::new(WRITABLE, STEP)
        .and_then(|limit| limit.known(Some(min), Some(max)))
        .map_err(NvmlFault::Range)?
        .with_default(range.default_mw.map(micro_watts));
    gauge.requested()?;
    match gauge.enforced() {
        Err(fault) if fault.is_lack() => Ok((limit, ReadBack::Requested)),
        Ok(_) => Ok((limit, ReadBack::Enforced)),
        Err(fault) => Err(fault),
    }
}
