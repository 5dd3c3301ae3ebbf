//! The outcome of a desired state, in the words of the status: for the operator, which relies on them, and for the
//! person on call, who reads them. The rule is pure, except for the memory of [`Proof`].
//!
//! A change that is still in progress is not reported: the previous report stays, with the generation that it is about.

mod why;
mod words;

pub(crate) use why::{RouteWhy, Why};
pub use why::{cap_reasons, route_reasons};

use super::proof::{Measured, Proof};
use super::wanted::{Goal, Nothing, Unknown, Wanted};
use crate::machine::{LeaseState, Means, Part, View};
use host_kit::clock::Mono;
use joulie_core::node::cap::{Blocked, CapIntent, CapReport, CapResult};
use node_kit::Desire;
use power_units::Watts;
use std::time::Duration;
pub(super) use words::clock_loops;
use words::{Kind, held_by_loop, in_force, no_intent, said};

/// What is reported about the processors or the GPUs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Said {
    pub(crate) backend: Means,
    pub(crate) result: &'static str,
    pub(crate) message: String,
    pub(crate) generation: Option<i64>,
    /// What is requested of each package or GPU.
    pub(crate) requested: Option<Watts>,
    /// The limit of each package or GPU as it was read back, or the cap to which a closed loop holds each package.
    pub(crate) cap: Option<Watts>,
}

/// The condition `CapEnforced`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) why: Why,
    pub(crate) message: String,
    pub(crate) generation: Option<i64>,
}

impl Verdict {
    /// Under a grant each device is judged alone. If one draws above its limit, neither another device that draws less
    /// nor the absence of a requested cap makes up for it.
    pub(crate) fn exceeded_by(&mut self, devices: &[String]) {
        if devices.is_empty() || self.why >= Why::Exceeded {
            return;
        }
        self.why = Why::Exceeded;
        let devices = devices.join(", ");
        self.message.push_str(&format!("; {devices} drew above the limit for longer than a limit needs"));
    }

    /// Says of a node that lacks a meter that Prometheus, which is asked what it draws, takes the place of none.
    pub(crate) fn unjudged(&mut self, view: &View) {
        let lacks_meter = CapReport::Cap(CapResult::Blocked(Blocked::NoMeter));
        if self.why == Why::Unmeasured || [view.cpu.report, view.gpu.report].contains(&lacks_meter) {
            self.message.push_str(
                "; no cap is judged and no closed loop is run by what Prometheus says, whose samples are too old for that",
            );
        }
    }
}

/// What is reported about a node. A part about which there is nothing new is missing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) cpu: Option<Said>,
    pub(crate) gpu: Option<Said>,
    pub(crate) verdict: Option<Verdict>,
}

/// What is reported about a TelemetryProfile.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RouteOutcome {
    /// The node that it was found on.
    pub(crate) node: String,
    pub(crate) why: RouteWhy,
    pub(crate) message: String,
    pub(crate) generation: Option<i64>,
    pub(crate) cpu: Option<Said>,
    pub(crate) gpu: Option<Said>,
}

/// What holds for a node besides what is wanted of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// Whether the route of the node lets the processors be controlled.
    pub(crate) cpu: bool,
    /// Whether the route of the node lets the GPUs be controlled.
    pub(crate) gpu: bool,
    /// Whether hardware is only read.
    pub(crate) simulate_only: bool,
    /// How long a limit may need until it shows in the measured power.
    pub(crate) patience: Duration,
    /// Whether the originals are restored when nobody confirms the desired state.
    pub(crate) relax: bool,
}

/// The memory of the outcomes of one node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcomes {
    cpu: Proof,
    gpu: Proof,
}

impl Outcomes {
    /// The outcome to report, given what was wanted and what the machine reports in `view`.
    pub(crate) fn of(&mut self, wanted: &Wanted, view: &View, terms: &Terms, now: Mono) -> Outcome {
        let Desire { grant, armed, .. } = view.desire;
        let desire = Desire { grant, armed, ..wanted.desire(terms.cpu, terms.gpu) };
        if view.desire != desire {
            return Outcome::default();
        }
        match wanted {
            Wanted::Unknown(Unknown::NotSynced | Unknown::NoNode) => Outcome::default(),
            Wanted::Unknown(Unknown::Malformed { object, why }) => Outcome {
                verdict: Some(Verdict {
                    why: Why::Malformed,
                    message: format!(
                        "{why}; no earlier version of it is known, so the limits stay as they are"
                    ),
                    generation: object.generation,
                }),
                ..Outcome::default()
            },
            Wanted::Nothing(nothing) => released(view, nothing),
            Wanted::Goal(goal) if terms.simulate_only => simulated(goal),
            Wanted::Goal(goal) => self.of_goal(goal, view, terms, now),
        }
    }

    fn of_goal(&mut self, goal: &Goal, view: &View, terms: &Terms, now: Mono) -> Outcome {
        let generation = goal.object.generation;
        let mut cpu = said(Kind::Cpu, goal.cpu, &view.cpu, terms.cpu, generation);
        let mut gpu = said(Kind::Gpu, goal.gpu, &view.gpu, terms.gpu, generation);
        let parts = [
            (Kind::Cpu, goal.cpu, &view.cpu, &cpu, &mut self.cpu),
            (Kind::Gpu, goal.gpu, &view.gpu, &gpu, &mut self.gpu),
        ];
        let mut whys = Vec::new();
        for (kind, intent, part, said, proof) in parts {
            let granted = view.desire.grant.is_some() && part.report != CapReport::NoIntent;
            if intent == CapIntent::NONE && !granted {
                proof.forget();
                let why = match part.report {
                    CapReport::NoIntent => Why::NoCap,
                    CapReport::Cap(CapResult::Failed(_)) => Why::Failed,
                    CapReport::Pending | CapReport::Cap(_) | CapReport::Throttled(_) => Why::Pending,
                };
                whys.push((kind, why));
                continue;
            }
            whys.push((kind, earned(part, said.as_ref(), proof, now, terms.patience)));
        }
        // A closed loop has no other read-back than that the power stays within its cap.
        if whys.contains(&(Kind::Cpu, Why::Enforced))
            && let Some(said) = &mut cpu
        {
            said.cap = said.cap.or_else(|| held_by_loop(&view.cpu));
        }
        if whys.contains(&(Kind::Gpu, Why::Enforced))
            && let Some(said) = gpu.as_mut().filter(|_| clock_loops(&view.gpu).is_some())
        {
            said.cap = in_force(&view.gpu);
        }
        let text = |kind: Kind| match kind {
            Kind::Cpu => cpu.as_ref().map(|said| said.message.as_str()),
            Kind::Gpu => gpu.as_ref().map(|said| said.message.as_str()),
        };
        let verdict = verdict(goal, view.lease, &whys, text);
        Outcome { cpu, gpu, verdict: Some(verdict) }
    }
}

/// What was earned on one kind of device.
fn earned(part: &Part, said: Option<&Said>, proof: &mut Proof, now: Mono, patience: Duration) -> Why {
    let measured = |proof: &mut Proof, cap: Watts| match proof.look(cap, part.drawn, now, patience) {
        Measured::Within => None,
        Measured::Waiting => Some(Why::Pending),
        Measured::Unknown => Some(Why::Unmeasured),
        Measured::Above => Some(Why::Exceeded),
    };
    match (said, part.report) {
        (Some(said), _) if said.result == "blocked" => Why::Blocked,
        (None, _) | (_, CapReport::Pending | CapReport::NoIntent) => Why::Pending,
        (Some(_), CapReport::Throttled(_)) => Why::Unmeasured,
        (Some(_), CapReport::Cap(CapResult::Applied { effective })) => {
            measured(proof, effective).unwrap_or(Why::Enforced)
        }
        (Some(_), CapReport::Cap(CapResult::Clamped { requested, effective })) if effective > requested => {
            Why::ClampedAbove
        }
        (Some(_), CapReport::Cap(CapResult::Clamped { effective, .. })) => {
            measured(proof, effective).unwrap_or(Why::Clamped)
        }
        (Some(_), CapReport::Cap(CapResult::Blocked(_))) => Why::Blocked,
        (Some(_), CapReport::Cap(CapResult::Failed(_))) => Why::Failed,
    }
}

fn verdict<'a>(
    goal: &Goal,
    lease: LeaseState,
    whys: &[(Kind, Why)],
    text: impl Fn(Kind) -> Option<&'a str>,
) -> Verdict {
    let generation = goal.object.generation;
    let other = match lease {
        LeaseState::Desired | LeaseState::Held => None,
        LeaseState::Relaxed => Some("the originals"),
        LeaseState::Safe => Some("the safe profile"),
    };
    if let Some(other) = other {
        let message = format!("nobody confirms the desired state any more, so {other} took its place");
        return Verdict { why: Why::LeaseExpired, message, generation };
    }
    let worst = whys.iter().map(|(_, why)| *why).max().unwrap_or(Why::Pending);
    let why = if goal.malformed.is_some() { Why::Malformed } else { worst };
    let about = whys.iter().filter(|(_, each)| *each == worst);
    let mut message = match worst {
        Why::NoCap => "no cap is asked; the limits are those of the node's owner".to_owned(),
        Why::Pending => "it is on its way, or not seen in what is drawn yet".to_owned(),
        Why::Enforced
        | Why::Clamped
        | Why::Unmeasured
        | Why::Exceeded
        | Why::ClampedAbove
        | Why::Blocked
        | Why::Failed
        | Why::Malformed
        | Why::LeaseExpired
        | Why::Deselected
        | Why::SimulateOnly => {
            let mut texts: Vec<&str> = about.filter_map(|(kind, _)| text(*kind)).collect();
            texts.dedup();
            texts.join("; ")
        }
    };
    match worst {
        Why::Unmeasured => message.push_str("; what is drawn is not measured"),
        Why::Exceeded => message.push_str("; more than that is drawn, so something does not keep to it"),
        Why::NoCap
        | Why::Enforced
        | Why::Clamped
        | Why::Pending
        | Why::ClampedAbove
        | Why::Blocked
        | Why::Failed
        | Why::Malformed
        | Why::LeaseExpired
        | Why::Deselected
        | Why::SimulateOnly => {}
    }
    if lease == LeaseState::Held {
        message.push_str("; nobody confirms the desired state any more, and it holds");
    }
    if let Some(bad) = &goal.malformed {
        message = format!("{bad}; its last good state stays in force: {message}");
    }
    if !goal.rivals.is_empty() {
        message.push_str(&format!(
            "; {} are for this node as well and are not followed",
            goal.rivals.join(", ")
        ));
    }
    Verdict { why, message, generation }
}

fn released(view: &View, nothing: &Nothing) -> Outcome {
    let grant = view.desire.grant;
    let kept = |part: &Part, kind| said(kind, CapIntent::NONE, part, true, None);
    let said = |part: &Part, kind| match part.report {
        CapReport::Pending => None,
        CapReport::Cap(_) | CapReport::Throttled(_) if grant.is_some() => kept(part, kind),
        CapReport::NoIntent => Some(Said {
            backend: Means::None,
            result: "none",
            message: no_intent(kind, part.devices.len()).to_owned(),
            generation: None,
            requested: None,
            cap: None,
        }),
        CapReport::Cap(_) | CapReport::Throttled(_) => Some(Said {
            backend: part.means,
            result: "error",
            message: format!(
                "the original could not be put back: {}",
                part.trouble.as_deref().unwrap_or("it is tried again")
            ),
            generation: None,
            requested: None,
            cap: in_force(part),
        }),
    };
    let (why, mut message) = match nothing {
        Nothing::NoObject if grant.is_some() || free(view) => {
            (Why::NoCap, "no object asks for a cap on this node".to_owned())
        }
        Nothing::NoObject => (Why::Pending, "no object asks for a cap on this node".to_owned()),
        Nothing::Deselected => (
            Why::Deselected,
            "the node is not one of those that are managed, so nothing of this is put in force".to_owned(),
        ),
    };
    if grant.is_some() {
        message.push_str("; its grant under the budget stays in force");
    }
    let verdict = Some(Verdict { why, message, generation: None });
    Outcome { cpu: said(&view.cpu, Kind::Cpu), gpu: said(&view.gpu, Kind::Gpu), verdict }
}

fn free(view: &View) -> bool {
    view.cpu.report == CapReport::NoIntent && view.gpu.report == CapReport::NoIntent
}

fn simulated(goal: &Goal) -> Outcome {
    let generation = goal.object.generation;
    let say = |result| Said {
        backend: Means::None,
        result,
        message: "simulate-only: nothing was written to the hardware".to_owned(),
        generation,
        requested: None,
        cap: None,
    };
    let gpu = if goal.gpu == CapIntent::NONE { say("none") } else { say("applied") };
    let message = "SIMULATE_ONLY is set: nothing is written to the hardware".to_owned();
    let verdict = Some(Verdict { why: Why::SimulateOnly, message, generation });
    Outcome { cpu: Some(say("applied")), gpu: Some(gpu), verdict }
}

#[cfg(test)]
mod tests;
