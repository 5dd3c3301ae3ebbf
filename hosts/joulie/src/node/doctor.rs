//! `joulie node doctor`: what is wrong with this machine for caps and measurements. It writes nothing. Each finding says what is
//! seen, why it matters, and what to do; a healthy machine is told in one line.

use super::view::{Device, View};
use super::words::{self, Fact};
use super::{Desk, Ending, Refusal};
use node_kit::NodeAccess;
use power_units::{Amount, Percent, Role, Watts};
use std::time::Duration;

/// As `show` has it.
const BETWEEN_SAMPLES: Duration = Duration::from_secs(1);
/// A limit that is lower than this share of the maximum takes speed away.
const FULL: Percent = Percent::from_int(98);
/// What is looked at.
const CHECKS: usize = 7;

/// Something wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    seen: String,
    why: &'static str,
    act: &'static str,
}

pub(super) fn doctor(desk: &mut Desk) -> Result<Ending, Refusal> {
    let mut node = desk.site.open(NodeAccess::Look, &desk.interrupts)?;
    node.period();
    if desk.interrupts.within(BETWEEN_SAMPLES) {
        return Ok(Ending::Interrupted);
    }
    node.period();
    let found = findings(&View::of(&desk.site, node.report()));
    for Finding { seen, why, act } in &found {
        desk.out.line(seen);
        desk.out.line(format!("  why: {why}"));
        desk.out.line(format!("  do:  {act}"));
    }
    desk.out.line(match found.len() {
        0 => format!("nothing wrong, {CHECKS} checks"),
        wrong => format!("{wrong} findings, {CHECKS} checks"),
    });
    Ok(if found.is_empty() { Ending::Done } else { Ending::NotDone })
}

fn findings(view: &View) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut add = |seen: String, why, act| found.push(Finding { seen: on_one_line(&seen), why, act });
    if view.packages.is_empty() {
        add(
            "no CPU package was found".to_owned(),
            "nothing can be measured or capped here",
            "is this a machine with powercap, HSMP or MSRs? See docs/HARDWARE.md; in a container mount the host's /sys",
        );
    }
    for backend in &view.backends {
        for complaint in &backend.complaints {
            add(
                format!("backend {}: {complaint}", backend.name),
                "what it serves may be neither measured nor capped",
                "mend what it says: rights, a driver, a locked firmware; docs/HARDWARE.md",
            );
        }
        if backend.standing.starts_with("failed") || backend.standing.starts_with("stuck") {
            add(
                format!("backend {} {}", backend.name, backend.standing),
                "what it serves is neither measured nor capped",
                "run it with the rights that it names, and see that the driver is loaded",
            );
        }
    }
    for device in view.packages.iter().chain(&view.gpus) {
        if matches!(device.power, Fact::Unknown(_) | Fact::None) {
            add(
                format!("{}: its power is {}", device.key, device.power.say(|_| String::new())),
                "what it draws is not known, so nothing is raised by it and no closed loop can hold it",
                "docs/OPERATE.md, \"Power is not known\"",
            );
        }
        match &device.limit {
            Fact::Unknown(why) => add(
                format!("{}: its limit is unknown ({why})", device.key),
                "nobody can say whether a cap is in force",
                "see the backend's words in joulie node show",
            ),
            Fact::None if view.fallback.is_err() => add(
                format!(
                    "{}: it has no power limit, and no closed loop over frequencies can hold a cap",
                    device.key
                ),
                "no cap can be put in force here: the agent enforces nothing",
                "load the driver of a power limit (intel_rapl_msr, amd_hsmp), or --registers; see docs/HARDWARE.md",
            ),
            Fact::Is(_) | Fact::None => {}
        }
        if let Some((limit, most)) = owners_limit(device) {
            add(
                format!(
                    "{}: its limit is {} of at most {}, and it is not ours",
                    device.key,
                    words::watts(limit),
                    words::watts(most)
                ),
                "somebody has set it below full power: Joulie never lifts what it found, so the node is slower than the plan counts on",
                "put it back where it was set: firmware, BMC, or another tool",
            );
        }
    }
    if let Err(why) = &view.writer {
        add(
            format!("who holds the writer's lock is unknown: {why}"),
            "two writers might set the same limits",
            "run it as the user of the agent (root), with the state folder of the agent (--state)",
        );
    }
    if let Err(why) = &view.journal {
        add(
            format!("the journal of originals cannot be read: {why}"),
            "what was in force before the first cap cannot be put back",
            "run it as root; if the file is damaged, docs/OPERATE.md, \"When limits change and when they come back\"",
        );
    }
    if let (Ok(None), Ok(originals)) = (&view.writer, &view.journal)
        && !originals.entries.is_empty()
    {
        add(
            format!("{} limits are Joulie's, and no agent runs here", originals.entries.len()),
            "the caps stay as they are, whatever is planned",
            "start the agent, or put the originals back by joulie node restore",
        );
    }
    found
}

/// The limit of a device that its owner has set below full power, and its maximum.
fn owners_limit(device: &Device) -> Option<(Watts, Watts)> {
    let (Fact::Is(limit), Fact::Is(most), Fact::Is(false)) = (&device.limit, &device.max, &device.ours)
    else {
        return None;
    };
    let full = most.part(FULL, Percent::HUNDRED, Role::Limit)?;
    (*limit < full).then_some((*limit, *most))
}

/// Texts of drivers and devices hold no escapes for the terminal.
fn on_one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::view::{Backend, Originals, Policies, State};
    use power_units::Micros;

    fn healthy() -> View {
        let watts = |value: i32| Fact::Is(Watts::from_int(value));
        View {
            machine: "this machine".to_owned(),
            packages: vec![Device {
                key: "package-0".to_owned(),
                backend: Fact::Is("powercap"),
                min: watts(100),
                max: watts(250),
                limit: watts(250),
                ours: Fact::Is(false),
                power: Fact::Is((Watts::from_int(120), Micros::new(1_000_000))),
                dram: Fact::None,
                state: State {
                    temperature: Fact::None,
                    utilisation: Fact::None,
                    memory: Fact::None,
                    slowdowns: Fact::None,
                    throttled: Fact::None,
                },
                clock: None,
            }],
            gpus: Vec::new(),
            policies: Policies { count: 0, range: Fact::None, limits: Fact::None },
            fallback: Err("there is no frequency policy that could be limited"),
            power: Fact::None,
            backends: vec![Backend {
                name: "powercap",
                standing: "ready, 1 domain".to_owned(),
                domains: 1,
                complaints: Vec::new(),
            }],
            journal: Ok(Originals { entries: Vec::new(), void: 0 }),
            writer: Ok(None),
        }
    }

    #[test]
    fn a_healthy_machine_is_silent_and_every_fault_is_found() {
        assert_eq!(findings(&healthy()), []);
        let broken = |breaks: fn(&mut View)| {
            let mut view = healthy();
            breaks(&mut view);
            let found = findings(&view);
            assert_eq!(found.len(), 1, "{found:?}");
            found[0].seen.clone()
        };
        assert_eq!(broken(|view| view.packages.clear()), "no CPU package was found");
        assert_eq!(
            broken(|view| view.backends[0].complaints.push("locked\u{1b}[2J".to_owned())),
            "backend powercap: locked [2J"
        );
        assert_eq!(
            broken(|view| view.backends[0].standing = "failed: x".to_owned()),
            "backend powercap failed: x"
        );
        assert_eq!(
            broken(|view| view.packages[0].power = Fact::Unknown("nothing here measures it".to_owned())),
            "package-0: its power is unknown (nothing here measures it)"
        );
        assert_eq!(
            broken(|view| view.packages[0].limit = Fact::Unknown("locked".to_owned())),
            "package-0: its limit is unknown (locked)"
        );
        assert!(broken(|view| view.packages[0].limit = Fact::None).contains("it has no power limit"));
        // 98 % of 250 W is 245 W.
        assert_eq!(
            broken(|view| view.packages[0].limit = Fact::Is(Watts::from_int(244))),
            "package-0: its limit is 244 W of at most 250 W, and it is not ours"
        );
        assert!(broken(|view| view.writer = Err("denied".to_owned())).contains("writer's lock"));
        assert!(broken(|view| view.journal = Err("damaged".to_owned())).contains("damaged"));
        let mut view = healthy();
        view.packages[0].limit = Fact::Is(Watts::from_int(245));
        assert_eq!(findings(&view), []);
        view.packages[0].limit = Fact::Is(Watts::from_int(150));
        view.packages[0].ours = Fact::Is(true);
        assert_eq!(findings(&view), [], "a cap of ours is no fault");
    }
}
