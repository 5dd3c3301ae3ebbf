//! `joulie node show`: the ranges of this machine's hardware, the limits in force, and which process writes to it. It
//! writes nothing.

mod document;

use super::view::{Device, Policies, View};
use super::words::{self, Fact, frequency, seconds, table};
use super::{Desk, Ending, Refusal};
use hal_plug::{AcpiMeter, DcmiMeter, DevIpmi, PlugError, PlugReading, Root};
use node_kit::{BackendKind, JournalEntry, NodeAccess};
use power_hal::{DomainKind, Setting};
use power_units::{KiloHertz, Role, Watts};
use std::collections::BTreeMap;
use std::time::Duration;

/// The time between two readings of an energy counter, long enough for a meaningful power.
const BETWEEN_SAMPLES: Duration = Duration::from_secs(1);

pub(super) fn show(desk: &mut Desk, json: bool) -> Result<Ending, Refusal> {
    let mut node = desk.site.open(NodeAccess::Look, &desk.interrupts)?;
    node.period();
    if desk.interrupts.within(BETWEEN_SAMPLES) {
        return Ok(Ending::Interrupted);
    }
    node.period();
    let view = View::of(&desk.site, node.report());
    let plug = plug(&desk.site.sources.root);
    if json {
        desk.out.text(&document::of(&view, &plug));
    } else {
        for line in lines(&view, &plug) {
            desk.out.line(line);
        }
    }
    Ok(Ending::Done)
}

/// The meter of the whole machine, and what it says.
pub(super) type AtPlug = Fact<(&'static str, Watts)>;

/// A controller that takes longer is not waited for.
const PLUG_PATIENCE: Duration = Duration::from_secs(8);

/// What the whole machine draws, by the first meter that it has.
fn plug(root: &Root) -> AtPlug {
    let watts = |reading: PlugReading| reading.power.to_watts(Role::Demand);
    let acpi = match AcpiMeter::new(root.clone()).read() {
        Ok(reading) => return Fact::Is(("acpi", watts(reading))),
        Err(error) => error,
    };
    match DcmiMeter::over(DevIpmi::new(root.clone(), PLUG_PATIENCE)).read() {
        Ok(reading) => Fact::Is(("dcmi", watts(reading))),
        Err(PlugError::Absent) if acpi == PlugError::Absent => Fact::None,
        Err(PlugError::Absent) => Fact::Unknown(format!("acpi: {acpi}")),
        Err(error) => Fact::Unknown(format!("dcmi: {error}")),
    }
}

fn lines(view: &View, plug: &AtPlug) -> Vec<String> {
    let mut lines = vec![view.machine.clone()];
    let mut part = |title: &str, body: Vec<String>| {
        lines.push(String::new());
        lines.push(title.to_owned());
        lines.extend(body);
    };
    part("packages", devices(&view.packages, "no CPU package was found"));
    part("gpus", devices(&view.gpus, "none was found"));
    let clocks = clocks(view);
    if !clocks.is_empty() {
        part("clocks", clocks);
    }
    let beside = state(view);
    if !beside.is_empty() {
        part("beside power", beside);
    }
    part("frequency", frequencies(&view.policies, view.fallback));
    if !matches!(plug, Fact::None) {
        let said = plug
            .say(|(name, power)| format!("{} by {name}, packages and GPUs included", words::watts(*power)));
        part("plug", vec![format!("  {said}")]);
    }
    part("backends", backends(view));
    part("who writes", writers(view));
    lines
}

fn devices(all: &[Device], none: &str) -> Vec<String> {
    if all.is_empty() {
        return vec![format!("  {none}")];
    }
    let head = ["device", "backend", "range", "limit", "power"].map(str::to_owned).to_vec();
    let rows = all.iter().map(|device| {
        vec![
            device.key.clone(),
            device.backend.say(|name| (*name).to_owned()),
            range(device),
            limit(device),
            device.power.say(|&(power, over)| match over.get() {
                0 => words::watts(power),
                _ => format!("{} over {}", words::watts(power), seconds(over)),
            }),
        ]
    });
    table(&std::iter::once(head).chain(rows).collect::<Vec<_>>())
}

/// The clocks of the GPUs that can be limited.
fn clocks(view: &View) -> Vec<String> {
    let rows = view.gpus.iter().filter_map(|device| {
        let clock = device.clock.as_ref()?;
        let (low, high) = clock.range;
        let whose = match &clock.ours {
            Fact::Is(true) => ", ours: held by its clock".to_owned(),
            Fact::Is(false) | Fact::None => String::new(),
            Fact::Unknown(why) => format!(", whose is unknown ({why})"),
        };
        let say = |it: &Fact<KiloHertz>| it.say(|clock| frequency(*clock));
        let range = format!("{} to {}", frequency(low), frequency(high));
        let limit = format!("{}{whose}", say(&clock.limit));
        Some(vec![device.key.clone(), range, limit, say(&clock.running)])
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let head = ["device", "range", "highest allowed", "runs at"].map(str::to_owned).to_vec();
    table(&std::iter::once(head).chain(rows).collect::<Vec<_>>())
}

/// What the devices report beside their power; nothing of a device that reports nothing.
fn state(view: &View) -> Vec<String> {
    let all = view.packages.iter().chain(&view.gpus);
    let told: Vec<&Device> = all.filter(|it| it.state.is_told() || it.dram != Fact::None).collect();
    if told.is_empty() {
        return Vec::new();
    }
    let head = [
        "device",
        "memory's power",
        "temperature",
        "utilisation",
        "memory",
        "slowed by",
        "held by its limit",
    ];
    let rows = told.into_iter().map(|device| {
        let state = &device.state;
        vec![
            device.key.clone(),
            device.dram.say(|&(power, _)| words::watts(power)),
            state.temperature.say(|it| words::degrees(*it)),
            state.utilisation.say(|it| words::percent(*it)),
            state.memory.say(|it| words::memory(*it)),
            state.slowdowns.say(|it| words::causes(*it)),
            state.throttled.say(|it| format!("{} of the time", words::percent(*it))),
        ]
    });
    table(&std::iter::once(head.map(str::to_owned).to_vec()).chain(rows).collect::<Vec<_>>())
}

fn range(device: &Device) -> String {
    match (&device.min, &device.max) {
        (Fact::None, Fact::None) => "none".to_owned(),
        (Fact::Is(min), Fact::Is(max)) => format!("{} to {}", words::watts(*min), words::watts(*max)),
        (Fact::Unknown(why), Fact::Unknown(_)) => format!("unknown ({why})"),
        (Fact::Unknown(_), Fact::Is(max)) => format!("up to {}", words::watts(*max)),
        (min, max) => {
            let say = |end: &Fact<Watts>| end.say(|watts| words::watts(*watts));
            format!("{} to {}", say(min), say(max))
        }
    }
}

fn limit(device: &Device) -> String {
    let whose = match &device.ours {
        Fact::Is(true) => ", ours".to_owned(),
        Fact::Is(false) | Fact::None => String::new(),
        Fact::Unknown(why) => format!(", whose is unknown ({why})"),
    };
    let beyond = |limit: &Watts| matches!(device.max, Fact::Is(max) if *limit > max);
    // A zone that is switched off reads as the largest value of its register. A zone whose register the firmware has
    // locked with its limit in force reads the same.
    let note = |limit: &Watts| if beyond(limit) { " (switched off, or locked by the firmware)" } else { "" };
    device.limit.say(|limit| format!("{}{}{whose}", words::watts(*limit), note(limit)))
}

fn frequencies(policies: &Policies, fallback: Result<(), &str>) -> Vec<String> {
    let span = |&(low, high): &(_, _)| {
        if low == high { frequency(low) } else { format!("{} to {}", frequency(low), frequency(high)) }
    };
    vec![
        format!(
            "  {} policies; range {}; limits in force {}",
            policies.count,
            policies.range.say(span),
            policies.limits.say(span)
        ),
        match fallback {
            Ok(()) => "  where no power limit can be set, a closed loop over them can hold a cap".to_owned(),
            Err(why) => format!("  no closed loop over them can hold a cap: {why}"),
        },
    ]
}

fn backends(view: &View) -> Vec<String> {
    let mut rows = Vec::new();
    for backend in &view.backends {
        rows.push(vec![backend.name.to_owned(), backend.standing.clone()]);
        let said = backend.complaints.iter();
        rows.extend(said.map(|complaint| vec![String::new(), complaint.clone()]));
    }
    let opened = |kind: &BackendKind| view.backends.iter().any(|backend| backend.name == kind.label());
    for kind in BackendKind::ALL.into_iter().filter(|kind| kind.facts().opt_in.is_some() && !opened(kind)) {
        rows.push(vec![kind.label().to_owned(), "off (--registers)".to_owned()]);
    }
    table(&rows)
}

fn writers(view: &View) -> Vec<String> {
    let mut lines = vec![match &view.writer {
        Ok(None) => "  no process holds the writer's lock".to_owned(),
        Ok(Some(holder)) => format!("  the writer's lock is held by {holder}"),
        Err(why) => format!("  who holds the writer's lock is unknown ({why})"),
    }];
    match &view.journal {
        Err(why) => lines.push(format!("  the journal of originals is unknown ({why})")),
        Ok(originals) => {
            if originals.entries.is_empty() {
                lines.push("  no limit is ours: the journal of originals is empty".to_owned());
            }
            lines.extend(entries(&originals.entries));
            if originals.void > 0 {
                lines.push(void(originals.void));
            }
        }
    }
    lines
}

/// A line about the journal's entries from an earlier boot.
pub(super) fn void(count: usize) -> String {
    format!(
        "  {count} originals of an earlier boot are void: after a reboot the firmware's own limits are in force"
    )
}

/// The originals, one per line. Frequency policies are only counted, because there are hundreds of them.
pub(super) fn entries(all: &[JournalEntry]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut policies: BTreeMap<String, usize> = BTreeMap::new();
    for entry in all {
        let was = entry.was.map_or("an original of several values".to_owned(), setting);
        match entry.domain.kind() {
            DomainKind::Policy => *policies.entry(was).or_default() += 1,
            DomainKind::Package | DomainKind::Socket | DomainKind::Gpu => {
                lines.push(format!(
                    "  {} ({}) is ours; before it was {was}",
                    entry.domain,
                    entry.backend.label()
                ));
            }
        }
    }
    let grouped = policies.iter();
    lines.extend(
        grouped.map(|(was, count)| format!("  {count} frequency policies are ours; before they had {was}")),
    );
    lines
}

pub(super) fn setting(setting: Setting) -> String {
    match setting {
        Setting::Power(power) => words::watts(power.to_watts(Role::Nearest)),
        Setting::Frequency(limit) => frequency(limit),
        Setting::Throttle(share) => format!("{share} %"),
    }
}
