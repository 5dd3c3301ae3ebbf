//! The Events that the agent posts about its node: one for each transition, never for a state that lasts. A pure rule; the
//! recorder counts what repeats and limits what floods.
//!
//! What the previous process said is in the statuses that it published, so an agent that starts anew says again only what has
//! changed meanwhile.

use super::outcome::{Outcome, Why, clock_loops};
use super::rows::Seen;
use crate::machine::{Drawn, Means, View};
use crate::route::{Profiles, Standing};
use host_kit::clock::Mono;
use host_kit::events::{EventReason, Note, Severity, about_node};
use joulie_api::condition::ConditionType;
use joulie_api::word::Vocabulary;
use serde_json::Value;
use std::time::Duration;

const fn event(severity: Severity, word: &'static str, meaning: &'static str) -> EventReason {
    EventReason { word, severity, about: "Node", meaning }
}

const CAP_REFUSED: EventReason = event(
    Severity::Warning,
    "CapRefused",
    "the hardware refuses the cap, or nothing on the node can enforce it; the text has the driver's words",
);
const CAP_CLIPPED: EventReason = event(
    Severity::Warning,
    "CapClipped",
    "another cap is in force than the one that is asked for, because the hardware or its owner's limit allows no other; the text has both",
);
const BACKEND_CHANGED: EventReason = event(
    Severity::Normal,
    "BackendChanged",
    "caps are enforced by other means than before; the text names both",
);
const OTHER_WRITER: EventReason = event(
    Severity::Warning,
    "OtherWriter",
    "another program changed a limit of the node that is Joulie's; it is set again. Find the program, or label the node reserved",
);
const RESTORED: EventReason = event(
    Severity::Normal,
    "Restored",
    "no cap of Joulie's is in force any more, and the originals are back",
);
const BLIND: EventReason = event(
    Severity::Warning,
    "Blind",
    "the power of the processors was measured and is not any more, so that nobody knows whether the cap holds; look at joulie_blind_periods_total",
);
const ROUTE_CHANGED: EventReason = event(
    Severity::Normal,
    "RouteChanged",
    "by a TelemetryProfile, or because there is none any more, the node is read and controlled in another way; the text says how",
);
const ROUTE_REFUSED: EventReason = event(
    Severity::Warning,
    "RouteRefused",
    "a TelemetryProfile for the node cannot be followed, and the node is reached as before; the text names the field",
);

/// Told by the keeper of GPU objects.
pub(crate) const GPU_MISMATCH: EventReason = event(
    Severity::Warning,
    "GpuMismatch",
    "the kubelet gave a pod other GPUs than were taken for it when it was bound; the GPU objects say which it has, and those count. Where a node has GPUs of one model it is harmless",
);

/// The reasons of the agent's Events, for the reference.
pub const EVENT_REASONS: [EventReason; 9] = [
    CAP_REFUSED,
    CAP_CLIPPED,
    BACKEND_CHANGED,
    OTHER_WRITER,
    RESTORED,
    BLIND,
    ROUTE_CHANGED,
    ROUTE_REFUSED,
    GPU_MISMATCH,
];

/// How the caps of a node stand, as far as Events tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// None is in force.
    Free,
    /// One is in force.
    Capped,
    /// Another one than was asked for is in force.
    Clipped,
    /// It cannot be put in force.
    Refused,
}

impl Stage {
    /// `None` for what is under way, and for what says nothing of the hardware.
    const fn of(why: Why) -> Option<Self> {
        match why {
            Why::NoCap => Some(Self::Free),
            Why::Enforced | Why::Unmeasured | Why::Exceeded => Some(Self::Capped),
            Why::Clamped | Why::ClampedAbove => Some(Self::Clipped),
            Why::Blocked | Why::Failed => Some(Self::Refused),
            Why::Pending | Why::Malformed | Why::LeaseExpired | Why::Deselected | Why::SimulateOnly => None,
        }
    }
}

/// What a node's front looks at.
pub(super) struct Look<'a> {
    pub(super) outcome: &'a Outcome,
    pub(super) view: &'a View,
    /// The status of the object that carries the desired state, as the watch shows it, and the name of its part with the outcome.
    pub(super) published: Option<(&'a Seen, &'static str)>,
    /// Whether Prometheus says what the processors draw, or why not; `None` if it is not asked.
    pub(super) asked: Option<Result<(), String>>,
    pub(super) patience: Duration,
}

/// What was said last of a node.
#[derive(Clone, Debug, Default)]
pub(super) struct Teller {
    stage: Option<Stage>,
    means: [Option<String>; 2],
    /// Which GPUs closed loops held, and why; `None` before the first look.
    loops: Option<Option<String>>,
    moved: u64,
    measured: Measured,
}

/// Whether the power of the processors is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Measured {
    /// It has not been in this process.
    #[default]
    Never,
    /// It is.
    Yes,
    /// It was, until then.
    Until(Mono),
    /// It was, and that it is not has been said.
    Said,
}

impl Teller {
    /// What has happened since the last look.
    pub(super) fn look(&mut self, look: &Look<'_>, now: Mono) -> Vec<(&'static EventReason, String)> {
        let mut said = Vec::new();
        said.extend(self.stage(look));
        said.extend(self.means(look));
        let moved = look.view.details.moved;
        if moved > self.moved {
            let text = format!("another program changed a limit of the node; seen {moved} times so far");
            said.push((&OTHER_WRITER, text));
        }
        // Another machine counts anew.
        self.moved = moved;
        said.extend(self.measured(look, now));
        said
    }

    fn stage(&mut self, look: &Look<'_>) -> Option<(&'static EventReason, String)> {
        let verdict = look.outcome.verdict.as_ref()?;
        let released = verdict.why == Why::Deselected && look.outcome.cpu.as_ref().is_some_and(is_none);
        let stage = if released { Some(Stage::Free) } else { Stage::of(verdict.why) }?;
        let before = self.stage.or_else(|| published_stage(look.published?.0));
        self.stage = Some(stage);
        if before == Some(stage) {
            return None;
        }
        match (stage, before) {
            (Stage::Refused, _) => Some((&CAP_REFUSED, verdict.message.clone())),
            (Stage::Clipped, _) => Some((&CAP_CLIPPED, verdict.message.clone())),
            (Stage::Free, Some(_)) => Some((&RESTORED, verdict.message.clone())),
            (Stage::Free, None) | (Stage::Capped, _) => None,
        }
    }

    fn means(&mut self, look: &Look<'_>) -> Option<(&'static EventReason, String)> {
        let parts = [("processors", "cpu", &look.outcome.cpu), ("GPUs", "gpu", &look.outcome.gpu)];
        let mut changes = Vec::new();
        for ((what, field, said), last) in parts.into_iter().zip(&mut self.means) {
            let Some(means) = said.as_ref().map(|said| said.backend).filter(|means| *means != Means::None)
            else {
                continue;
            };
            let published = || {
                let (seen, control) = look.published?;
                let word = seen.status[control][field]["backend"].as_str()?;
                Some(word.to_owned()).filter(|word| word != Means::None.word())
            };
            let before = last.take().or_else(published);
            if let Some(before) = before.filter(|before| before != means.word()) {
                changes.push(format!("{what}: {before} before, {} now", means.word()));
            }
            *last = Some(means.word().to_owned());
        }
        let loops = clock_loops(&look.view.gpu);
        let before = self.loops.replace(loops.clone());
        if before.is_some_and(|before| before != loops) {
            let now = loops.unwrap_or_else(|| "their power limits hold them again".to_owned());
            changes.push(format!("GPUs: {now}"));
        }
        (!changes.is_empty()).then(|| (&BACKEND_CHANGED, changes.join("; ")))
    }

    fn measured(&mut self, look: &Look<'_>, now: Mono) -> Option<(&'static EventReason, String)> {
        let own = match look.view.cpu.drawn {
            Drawn::Is(_) => Some(true),
            Drawn::Unknown => Some(false),
            Drawn::Unmetered => None,
        };
        let asked = look.asked.as_ref().map(Result::is_ok);
        // Where both are there, each is missed.
        let is_known = (own.is_some() || asked.is_some()) && own.unwrap_or(true) && asked.unwrap_or(true);
        self.measured = match (self.measured, is_known) {
            (_, true) => Measured::Yes,
            (Measured::Never, false) => Measured::Never,
            (Measured::Yes, false) => Measured::Until(now),
            (Measured::Until(then), false) if now.since(then) >= look.patience => {
                self.measured = Measured::Said;
                let of_query = look.asked.as_ref().and_then(|asked| asked.as_ref().err());
                let trouble = of_query.or(look.view.cpu.trouble.as_ref());
                let trouble = trouble.map_or("no backend says why", String::as_str);
                return Some((
                    &BLIND,
                    format!("the power of the processors is not measured any more: {trouble}"),
                ));
            }
            (before @ (Measured::Until(_) | Measured::Said), false) => before,
        };
        None
    }
}

/// What is said of a change of the route. The first choice of a process is no change, and what a profile's status tells already is
/// not said again.
pub(crate) fn of_route(
    before: &Standing,
    now: &Standing,
    profiles: &Profiles,
) -> Option<(&'static EventReason, String)> {
    if let Some((profile, _)) = &now.refused {
        let row = profiles.all.iter().find(|(_, row)| row.uid == profile.uid).map(|(_, row)| row);
        let is_told = row.is_some_and(|row| is_refused(&row.seen, profile.generation));
        let is_new = before.refused.as_ref() != now.refused.as_ref();
        return (is_new && (before.is_chosen() || !is_told)).then(|| (&ROUTE_REFUSED, now.say()));
    }
    (before.is_chosen() && before.differs(now)).then(|| (&ROUTE_CHANGED, now.say()))
}

fn is_refused(seen: &Seen, generation: Option<i64>) -> bool {
    let all = seen.status["conditions"].as_array().into_iter().flatten();
    let mut about = all.filter(|one| one["type"] == ConditionType::Accepted.as_str());
    seen.status["observedGeneration"].as_i64() == generation && about.any(|one| one["status"] == "False")
}

/// The note for the recorder.
pub(crate) fn note(node: &str, (reason, text): (&'static EventReason, String)) -> Note {
    Note {
        regarding: about_node(node),
        severity: reason.severity,
        reason: reason.word,
        action: "Control",
        text,
    }
}

fn is_none(said: &super::outcome::Said) -> bool {
    said.result == "none"
}

/// What the previous process said in the status.
fn published_stage(seen: &Seen) -> Option<Stage> {
    let all = seen.status["conditions"].as_array()?;
    let about = |one: &&Value| one["type"] == ConditionType::CapEnforced.as_str();
    let word = all.iter().find(about)?["reason"].as_str()?;
    Why::of_word(word).and_then(Stage::of)
}

#[cfg(test)]
mod tests;
