//! `joulie node cap`: brings caps into force, says what was read back, and with `--for` or `--hold` holds them.
//!
//! ```text
//! ask ──verdict──▶ neither: the caps stay, and the command ends; but not while the closed loop holds one
//!            └───▶ --for, --hold: hold ──time or a signal──▶ put back ──▶ end
//!                                                             └─another signal──▶ end at once, caps stay
//! ```

use super::hold::{Hold, Restored, TICK, Which};
use super::verdict::{self, Stands, Verdict};
use super::{Desk, Ending, Refusal, words};
use crate::args::{CapArgs, Caps};
use crate::value::Span;
use joulie_core::node::cap::DesiredCap;
use node_kit::{Desire, DeviceReport, NodeAccess, NodeReport};
use power_hal::Clock;
use power_units::{Micros, Role, Watts};

/// A limit is read back within milliseconds; a refused write is repeated within seconds.
const LIMITS_WITHIN: Micros = Micros::new(5_000_000);
/// The closed loop approaches the cap in steps.
const LOOP_WITHIN: Micros = Micros::new(60_000_000);

pub(super) fn cap(desk: &mut Desk, args: &CapArgs) -> Result<Ending, Refusal> {
    let CapArgs { caps, lasting, hold: until_signal } = *args;
    let hold = Hold::begin(desk, NodeAccess::Control)?;
    hold.handle.desire(desire(&caps));
    let Some(verdicts) = settle(desk, &hold, &caps) else {
        desk.out.line("interrupted before the caps were in force");
        return Ok(put_back(desk, hold, &caps).or_else(Ending::NotDone));
    };
    let report = hold.fresh_report(desk);
    let now = verdict::of(&report, &caps);
    let verdicts = if now.iter().any(|one| one.stands == Stands::Waiting) { verdicts } else { now };
    say(desk, &report, &caps, &verdicts);
    let stand = verdicts.iter().all(|one| one.stands == Stands::InForce);
    let usable = |one: &Verdict| matches!(one.stands, Stands::InForce | Stands::Above) || one.by_loop;
    if !verdicts.iter().any(usable) {
        desk.out.line("none of the requested caps can be held on this machine");
        return Ok(put_back(desk, hold, &caps).or_else(Ending::NotDone));
    }
    match lasting {
        Some(_) => Ok(hold_for(desk, hold, &caps, lasting, stand)),
        None if until_signal => Ok(hold_for(desk, hold, &caps, None, stand)),
        None if verdicts.iter().any(|one| one.by_loop) => Ok(stay(desk, hold, &caps, stand)),
        None => {
            leave(desk, hold);
            Ok(if stand { Ending::Done } else { Ending::NotDone })
        }
    }
}

impl Ending {
    /// The other outcome, if this one is a success.
    fn or_else(self, other: Self) -> Self {
        if self == Self::Done { other } else { self }
    }
}

fn desire(caps: &Caps) -> Desire {
    let part =
        |cap: Option<crate::value::Cap>| cap.map_or(DesiredCap::Unknown, |cap| DesiredCap::Cap(cap.intent()));
    Desire { cpu: part(caps.package), gpu: part(caps.gpu), ..Desire::UNKNOWN }
}

const fn which(caps: &Caps) -> Which {
    Which { cpu: caps.package.is_some(), gpu: caps.gpu.is_some() }
}

/// Waits until the outcome of the caps is known; `None` if a signal came first.
fn settle(desk: &mut Desk, hold: &Hold, caps: &Caps) -> Option<Vec<Verdict>> {
    let begun = hold.time.now();
    let mut said_loop = false;
    loop {
        let verdicts = verdict::of(&hold.handle.report(), caps);
        let waited = hold.time.now().since(begun).unwrap_or(Micros::new(0));
        let known = |one: &Verdict| match one.stands {
            Stands::InForce | Stands::Blocked => true,
            Stands::Above => !one.by_loop || waited > LOOP_WITHIN,
            Stands::Waiting | Stands::Failing => waited > LIMITS_WITHIN,
        };
        if verdicts.iter().all(known) || hold.has_failed() {
            return Some(verdicts);
        }
        if !said_loop && verdicts.iter().any(|one| one.by_loop) {
            said_loop = true;
            for line in why_loop(&hold.handle.report(), &verdicts) {
                desk.out.line(line);
            }
        }
        if desk.interrupts.within(TICK) {
            return None;
        }
    }
}

/// Why frequencies or clocks are lowered instead of a power limit.
fn why_loop(report: &NodeReport, verdicts: &[Verdict]) -> Vec<String> {
    let mut lines = Vec::new();
    if verdicts.iter().any(|one| one.by_loop && !one.of_gpus) {
        lines.push(why_frequencies(report));
    }
    if verdicts.iter().any(|one| one.by_loop && one.of_gpus) {
        lines.push(
            "power limits do not hold GPUs to the cap; closed loops lower their clocks instead".to_owned(),
        );
    }
    let troubles = report.backends.iter().filter_map(|backend| backend.last_trouble.as_ref());
    lines.extend(troubles.map(|trouble| format!("  {trouble}")));
    lines
}

fn why_frequencies(report: &NodeReport) -> String {
    let limited = report
        .packages
        .iter()
        .any(|device| device.described.as_ref().is_some_and(|described| described.power().is_some()));
    if limited {
        "the power limits of the packages do not take the cap; a closed loop lowers frequencies instead"
            .to_owned()
    } else {
        "the packages have no power limit that can be set; a closed loop lowers frequencies instead"
            .to_owned()
    }
}

/// Prints the verdicts, and below them what was read back of each device. A cap that the loop holds has no limit to
/// read back.
fn say(desk: &mut Desk, report: &NodeReport, caps: &Caps, verdicts: &[Verdict]) {
    for one in verdicts {
        desk.out.line(&one.text);
    }
    let by_loop = verdicts.iter().any(|one| one.by_loop && !one.of_gpus);
    let packages = report.packages.iter().filter(|_| caps.package.is_some()).map(|device| (device, by_loop));
    let gpus = report.gpus.iter().filter(|_| caps.gpu.is_some()).map(|device| (device, false));
    let rows: Vec<Vec<String>> = packages.chain(gpus).map(|(device, by_loop)| row(device, by_loop)).collect();
    for line in words::table(&rows) {
        desk.out.line(line);
    }
}

fn row(device: &DeviceReport, by_loop: bool) -> Vec<String> {
    let mut row = vec![device.key.as_str().to_owned()];
    if !by_loop {
        let limit = device.limit.map_or("nothing".to_owned(), words::watts);
        row.push(format!("limit read back: {limit}"));
    }
    if let Some(cause) = verdict::loop_over_clock(device) {
        let clock = device.clock.and_then(|clock| clock.limit);
        let clock = clock.map_or("unknown".to_owned(), words::frequency);
        row.push(format!("highest clock: {clock}, because {}", words::loop_cause(cause)));
    }
    row.push(format!("power: {}", words::power(device.power).say(|&(watts, _)| words::watts(watts))));
    row
}

/// Ends the loop, and leaves the caps in force.
fn leave(desk: &mut Desk, hold: Hold) {
    let flags = desk.site.flags();
    let _closed = hold.end();
    desk.out.line(format!("the caps stay; `joulie node restore{flags}` puts back what was in force before"));
}

/// Keeps running, because the closed loop holds a cap only while it runs.
fn stay(desk: &mut Desk, hold: Hold, caps: &Caps, stand: bool) -> Ending {
    desk.out
        .line("a closed loop holds this cap only while it runs, so this command stays; end it with Ctrl-C");
    let stood = watch(desk, &hold, caps, None, stand);
    let flags = desk.site.flags();
    let _closed = hold.end();
    desk.out.line(format!(
        "ended: the frequencies and clocks stay where the loop left them, and nobody follows the load any more; `joulie node \
         restore{flags}` puts back what was in force before"
    ));
    if stood { Ending::Done } else { Ending::NotDone }
}

/// For a time, or until a signal.
fn hold_for(desk: &mut Desk, hold: Hold, caps: &Caps, lasting: Option<Span>, stand: bool) -> Ending {
    desk.out.line(match lasting {
        Some(span) => format!("held for {span}, and then put back; Ctrl-C puts back at once"),
        None => "held until a signal ends this command, and then put back".to_owned(),
    });
    let stood = watch(desk, &hold, caps, lasting.map(Span::micros), stand);
    let ending = put_back(desk, hold, caps);
    if stand || stood { ending } else { ending.or_else(Ending::NotDone) }
}

/// Waits for the end of the time or a signal, and reports when a cap is lost or regained. Returns whether all caps
/// were held at the end.
fn watch(desk: &mut Desk, hold: &Hold, caps: &Caps, lasting: Option<Micros>, stand: bool) -> bool {
    let begun = hold.time.now();
    let mut stood = stand;
    let mut looped = verdict::of(&hold.handle.report(), caps).iter().any(|one| one.by_loop);
    loop {
        let verdicts = verdict::of(&hold.handle.report(), caps);
        let by_loop = verdicts.iter().any(|one| one.by_loop);
        if looped && !by_loop && verdicts.iter().all(|one| one.stands == Stands::InForce) {
            desk.out.line("the power limits hold the cap again, instead of the closed loop");
        }
        if verdicts.iter().all(|one| one.stands == Stands::InForce) {
            looped = by_loop;
        }
        let lost = verdicts.iter().find(|one| !matches!(one.stands, Stands::InForce | Stands::Waiting));
        match (stood, lost) {
            (true, Some(lost)) => desk.out.line(&lost.text),
            (false, None) => verdicts.iter().for_each(|one| desk.out.line(&one.text)),
            (true, None) | (false, Some(_)) => {}
        }
        stood = lost.is_none();
        if hold.has_failed() {
            desk.out.line("the control loop has ended unexpectedly; the limits stay as they are");
            return false;
        }
        let over = |span| hold.time.now().since(begun).is_some_and(|passed| passed >= span);
        if lasting.is_some_and(over) || desk.interrupts.within(TICK) {
            return stood;
        }
    }
}

fn put_back(desk: &mut Desk, hold: Hold, caps: &Caps) -> Ending {
    desk.out.line("putting back what was in force before; Ctrl-C now ends at once and leaves the caps");
    let restored = hold.put_back(desk, which(caps));
    finish(desk, hold, &restored)
}

/// Reads the hardware once more, and reports what was put back and what was not.
pub(super) fn finish(desk: &mut Desk, hold: Hold, restored: &Restored) -> Ending {
    let flags = desk.site.flags();
    if restored.interrupted {
        // The node is not closed in order: a second interrupt means that the process must end at once.
        desk.out.line(format!(
            "ended at once: {} limits are still ours; `joulie node restore{flags}` puts them back",
            restored.left.len()
        ));
        return Ending::Interrupted;
    }
    let Some(mut node) = hold.end() else {
        desk.out.line(format!("the control loop failed; `joulie node restore{flags}` tries again"));
        return Ending::NotDone;
    };
    node.period();
    for line in back(node.report(), restored) {
        desk.out.line(line);
    }
    if restored.is_complete() {
        return Ending::Done;
    }
    desk.out.line("not put back:");
    for line in restored.left_lines(node.report()) {
        desk.out.line(line);
    }
    desk.out.line(format!("`joulie node restore{flags}` tries again"));
    Ending::NotDone
}

fn back(report: &NodeReport, restored: &Restored) -> Vec<String> {
    let is_back = |key| {
        restored.before.iter().any(|entry| entry.domain == key)
            && !restored.left.iter().any(|entry| entry.domain == key)
    };
    let devices = report.packages.iter().chain(&report.gpus).filter(|device| is_back(device.key));
    let mut lines: Vec<String> = devices
        .map(|device| {
            let max = device.described.as_ref().and_then(|domain| domain.power()?.max());
            let beyond = |limit: &Watts| max.is_some_and(|max| *limit > max.to_watts(Role::Limit));
            let limit = match device.limit {
                None => "its original limit again".to_owned(),
                // Limits that were originally off are back by their values only. One switch controls both limits of a
                // package, so switching off would also disable the vendor's short-term limit.
                Some(limit) if beyond(&limit) => {
                    format!(
                        "no limit again; its limits stay switched on, at {} and above",
                        words::watts(limit)
                    )
                }
                Some(limit) => format!("{} again", words::watts(limit)),
            };
            format!("  {}: {limit}", device.key.as_str())
        })
        .collect();
    let policies = report.policies.iter().filter(|policy| is_back(policy.key)).count();
    if policies > 0 {
        lines.push(format!("  {policies} frequency policies have their own limits again"));
    }
    if !lines.is_empty() {
        lines.insert(0, "put back:".to_owned());
    }
    lines
}
