//! The answer of each function. Everything is read from the folder at every call.

use crate::code::{
    ARGUMENT_VERSION_MISMATCH, GPU_IS_LOST, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, UNINITIALIZED,
    UNKNOWN,
};
use crate::machine::StubMachine;
use crate::shape::ProcessSample;
use std::sync::{Mutex, PoisonError};

/// The state from `nvmlInit_v2` to the last `nvmlShutdown`.
struct Session {
    number: usize,
    holders: u32,
    epoch: Option<String>,
    /// The card names of the handles, in the order in which they were returned.
    names: Vec<String>,
    /// Cards that were lost once. They stay lost for this session, even if they are back.
    lost: Vec<String>,
}

static SESSION: Mutex<Session> =
    Mutex::new(Session { number: 0, holders: 0, epoch: None, names: Vec::new(), lost: Vec::new() });

/// A handle consists of the session's number and the index of the card's name. A handle of an earlier session is
/// invalid.
const NAMES_MAX: usize = 1 << 12;

fn session<T>(act: impl FnOnce(&mut Session) -> T) -> T {
    act(&mut SESSION.lock().unwrap_or_else(PoisonError::into_inner))
}

pub(crate) fn init(machine: &StubMachine) -> Result<(), u32> {
    if let Some(error) = machine.error("", "nvmlInit_v2") {
        return Err(error);
    }
    session(|session| {
        if session.holders == 0 {
            session.number += 1;
            session.epoch = machine.get("epoch");
            session.names.clear();
            session.lost.clear();
        }
        session.holders += 1;
    });
    Ok(())
}

pub(crate) fn shutdown() -> Result<(), u32> {
    session(|session| {
        session.holders = session.holders.checked_sub(1).ok_or(UNINITIALIZED)?;
        Ok(())
    })
}

/// Checks that the library is initialised, on the driver that is loaded now, and that the function is not made to
/// fail.
pub(crate) fn alive(machine: &StubMachine, function: &str) -> Result<(), u32> {
    let up = session(|session| session.holders > 0 && session.epoch == machine.get("epoch"));
    if !up {
        return Err(UNINITIALIZED);
    }
    machine.error("", function).map_or(Ok(()), Err)
}

/// The handle of the card of this name.
fn handle(name: &str) -> usize {
    session(|session| {
        let known = session.names.iter().position(|known| known == name);
        let at = known.unwrap_or_else(|| {
            session.names.push(name.to_owned());
            session.names.len() - 1
        });
        session.number * NAMES_MAX + at
    })
}

/// The folder of a handle's card, unless the function is made to fail.
pub(crate) fn card(machine: &StubMachine, handle: usize, function: &str) -> Result<String, u32> {
    alive(machine, function)?;
    reach(machine, handle, function)
}

/// Like [`card`], if the library is known to be initialised.
fn reach(machine: &StubMachine, handle: usize, function: &str) -> Result<String, u32> {
    let name = session(|session| {
        let at = handle.checked_sub(session.number * NAMES_MAX)?;
        session.names.get(at).cloned()
    });
    let name = name.ok_or(INVALID_ARGUMENT)?;
    let folder = format!("gpus/{name}");
    let there = machine.root().join(&folder).is_dir();
    let made = if there { machine.error(&format!("{folder}/"), function) } else { Some(GPU_IS_LOST) };
    let lost = session(|session| {
        let known = session.lost.contains(&name);
        if made == Some(GPU_IS_LOST) && !known {
            session.lost.push(name);
        }
        known
    });
    let error = made.or(lost.then_some(GPU_IS_LOST));
    error.map_or(Ok(folder), Err)
}

pub(crate) fn count(machine: &StubMachine) -> Result<u32, u32> {
    alive(machine, "nvmlDeviceGetCount_v2")?;
    u32::try_from(machine.names().len()).map_err(|_| UNKNOWN)
}

pub(crate) fn by_index(machine: &StubMachine, index: u32) -> Result<usize, u32> {
    let function = "nvmlDeviceGetHandleByIndex_v2";
    alive(machine, function)?;
    let index = usize::try_from(index).map_err(|_| INVALID_ARGUMENT)?;
    let names = machine.names();
    let found = handle(names.get(index).ok_or(INVALID_ARGUMENT)?);
    reach(machine, found, function).map(|_| found)
}

pub(crate) fn by_uuid(machine: &StubMachine, uuid: &str) -> Result<usize, u32> {
    let function = "nvmlDeviceGetHandleByUUID";
    alive(machine, function)?;
    let names = machine.names();
    let is = |name: &&String| machine.get(&format!("gpus/{name}/uuid")).as_deref() == Some(uuid);
    let found = handle(names.iter().find(is).ok_or(NOT_FOUND)?);
    reach(machine, found, function).map(|_| found)
}

pub(crate) fn parent(machine: &StubMachine, folder: &str) -> Result<usize, u32> {
    machine.get(&format!("{folder}/parent")).map(|name| handle(&name)).ok_or(NOT_FOUND)
}

/// The instance of this number of a card.
pub(crate) fn instance(machine: &StubMachine, folder: &str, index: u32) -> Result<usize, u32> {
    let index = usize::try_from(index).map_err(|_| INVALID_ARGUMENT)?;
    let is_of = |name: &&String| {
        let parent = machine.get(&format!("gpus/{name}/parent"));
        parent.is_some_and(|parent| format!("gpus/{parent}") == folder)
    };
    let names = machine.all_names();
    names.iter().filter(is_of).nth(index).map(|name| handle(name)).ok_or(NOT_FOUND)
}

/// The limit that the card enforces.
pub(crate) fn enforced(machine: &StubMachine, folder: &str) -> Result<u32, u32> {
    let limit: u32 = machine.number(&format!("{folder}/limit_mw"))?;
    Ok(machine.number(&format!("{folder}/oob_mw")).map_or(limit, |oob: u32| oob.min(limit)))
}

/// Sets a limit of the card, or of the module if the folder is the module's.
pub(crate) fn set_limit(machine: &StubMachine, folder: &str, milliwatts: u32) -> Result<(), u32> {
    if machine.served() {
        return machine.hand_over(&format!("{folder}/limit_mw"), &milliwatts.to_string());
    }
    let range = machine.number(&format!("{folder}/min_mw"))?..=machine.number(&format!("{folder}/max_mw"))?;
    if !range.contains(&milliwatts) {
        return Err(INVALID_ARGUMENT);
    }
    let mut log = machine.get(&format!("{folder}/log")).unwrap_or_default();
    log.push_str(&format!("\n{milliwatts}"));
    machine.put(&format!("{folder}/log"), log.trim()).map_err(|_| UNKNOWN)?;
    machine.put(&format!("{folder}/limit_mw"), &milliwatts.to_string()).map_err(|_| UNKNOWN)
}

/// The memory clock of every card, MHz: that of an H100.
const MEMORY_MHZ: u32 = 2_619;

/// The clock of this type at which a card runs, by the numbers of nvml.h: graphics and SM have the same.
pub(crate) fn clock(machine: &StubMachine, folder: &str, kind: u32) -> Result<u32, u32> {
    match kind {
        0 | 1 => machine.number(&format!("{folder}/clock_mhz")),
        2 => machine.get(&format!("{folder}/clock_mhz")).map(|_| MEMORY_MHZ).ok_or(NOT_SUPPORTED),
        3 => Err(NOT_SUPPORTED),
        _ => Err(INVALID_ARGUMENT),
    }
}

/// The memory clocks of a card that can be locked.
pub(crate) fn memory_clocks(machine: &StubMachine, folder: &str) -> Result<Vec<u32>, u32> {
    graphics_clocks(machine, folder, MEMORY_MHZ).map(|_| vec![MEMORY_MHZ])
}

/// The graphics clocks beside this memory clock, the highest first.
pub(crate) fn graphics_clocks(machine: &StubMachine, folder: &str, memory: u32) -> Result<Vec<u32>, u32> {
    let text = machine.get(&format!("{folder}/clocks_mhz")).ok_or(NOT_SUPPORTED)?;
    if memory != MEMORY_MHZ {
        return Err(NOT_FOUND);
    }
    let numbers: Vec<u32> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [lowest, highest, step] = numbers[..] else { return Err(UNKNOWN) };
    let step = usize::try_from(step).ok().filter(|&step| step > 0).ok_or(UNKNOWN)?;
    let mut clocks: Vec<u32> = (lowest..=highest).step_by(step).collect();
    clocks.reverse();
    Ok(clocks)
}

/// Locks the clocks of a card between these, or ends the lock if both are zero. The card takes the nearest clocks that it
/// has; it does not tell the lock to anybody.
pub(crate) fn lock_clocks(machine: &StubMachine, folder: &str, min: u32, max: u32) -> Result<(), u32> {
    let clocks = graphics_clocks(machine, folder, MEMORY_MHZ)?;
    if min > max {
        return Err(INVALID_ARGUMENT);
    }
    let nearest = |mhz: u32| clocks.iter().copied().min_by_key(|clock| clock.abs_diff(mhz)).ok_or(UNKNOWN);
    let text = if max == 0 { "0 0".to_owned() } else { format!("{} {}", nearest(min)?, nearest(max)?) };
    let file = format!("{folder}/lock_mhz");
    if machine.served() {
        return machine.hand_over(&file, &text);
    }
    machine.put(&file, &text).map_err(|_| UNKNOWN)
}

/// The folder of a power scope: 0 for the card, 1 for its module.
pub(crate) fn scope(machine: &StubMachine, folder: String, scope: u32) -> Result<String, u32> {
    let module = format!("{folder}/module");
    match scope {
        0 => Ok(folder),
        1 if machine.root().join(&module).is_dir() => Ok(module),
        _ => Err(NOT_SUPPORTED),
    }
}

/// A field: its value, and whether it has 64 bits.
pub(crate) fn field(machine: &StubMachine, folder: &str, field: u32) -> Result<(u64, bool), u32> {
    let milliwatts = |file: &str| machine.number(&format!("{folder}/{file}_mw")).map(|value| (value, false));
    match field {
        74 => machine.number(&format!("{folder}/throttled_ns")).map(|value| (value, true)),
        83 | 191 => machine.number(&format!("{folder}/energy_mj")).map(|value| (value, true)),
        185 => milliwatts("average"),
        186 => milliwatts("instant"),
        187 => milliwatts("min"),
        188 => milliwatts("max"),
        189 => milliwatts("default"),
        190 => enforced(machine, folder).map(|value| (u64::from(value), false)),
        192 => milliwatts("limit"),
        _ => Err(NOT_SUPPORTED),
    }
}

/// The processes that were seen on a card after a time.
pub(crate) fn processes(machine: &StubMachine, folder: &str, after: u64) -> Result<Vec<ProcessSample>, u32> {
    let text = machine.get(&format!("{folder}/processes")).ok_or(NOT_SUPPORTED)?;
    let all = text.lines().map(|line| {
        let numbers: Option<Vec<u64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
        let [timestamp, rest @ ..] = numbers.as_deref()? else { return None };
        let rest: Option<Vec<u32>> = rest.iter().map(|number| u32::try_from(*number).ok()).collect();
        let [pid, sm, memory, encoder, decoder] = *rest.as_deref()? else { return None };
        Some(ProcessSample { pid, timestamp: *timestamp, sm, memory, encoder, decoder })
    });
    let all: Option<Vec<ProcessSample>> = all.collect();
    let later: Vec<ProcessSample> =
        all.ok_or(UNKNOWN)?.into_iter().filter(|sample| sample.timestamp > after).collect();
    if later.is_empty() { Err(NOT_FOUND) } else { Ok(later) }
}

/// The other end of a link.
pub(crate) struct Link {
    pub(crate) active: u32,
    pub(crate) remote: String,
    pub(crate) kind: u32,
}

pub(crate) fn link(machine: &StubMachine, folder: &str, link: u32) -> Result<Link, u32> {
    let links = machine.get(&format!("{folder}/nvlink")).ok_or(NOT_SUPPORTED)?;
    let found = links.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let number: u32 = words.next()?.parse().ok()?;
        let active = words.next()?.parse().ok()?;
        let (remote, kind) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
        (number == link).then_some(Link { active, remote, kind })
    });
    found.ok_or(INVALID_ARGUMENT)
}

pub(crate) fn versioned(found: u32, expected: u32) -> Result<(), u32> {
    if found == expected { Ok(()) } else { Err(ARGUMENT_VERSION_MISMATCH) }
}
