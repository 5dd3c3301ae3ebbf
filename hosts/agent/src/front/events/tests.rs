use super::super::outcome::{Said, Verdict};
use super::*;
use crate::machine::{Details, Found, LeaseState, Part};
use joulie_core::node::cap::CapReport;
use node_kit::Desire;
use power_units::Watts;
use serde_json::json;
use std::sync::Arc;

fn at(second: u64) -> Mono {
    Mono::at(Duration::from_secs(second))
}

fn view(drawn: Drawn, moved: u64) -> View {
    let part = |drawn| Part {
        means: Means::Limits("rapl"),
        report: CapReport::NoIntent,
        devices: Vec::new(),
        drawn,
        trouble: None,
    };
    View {
        desire: Desire::UNKNOWN,
        cpu: part(drawn),
        gpu: part(Drawn::Unmetered),
        node_power: None,
        rest: None,
        plug: None,
        source: "rapl",
        found: Arc::new(Found::default()),
        lease: LeaseState::Desired,
        boot: None,
        wants: node_kit::NodeWants::default(),
        details: Details { moved, ..Details::default() },
    }
}

fn outcome(why: Why, means: Means) -> Outcome {
    let cpu = Said {
        backend: means,
        result: if means == Means::None { "none" } else { "applied" },
        message: String::new(),
        generation: None,
        requested: None,
        cap: None,
    };
    let verdict = Verdict { why, message: "the driver's words".to_owned(), generation: None };
    Outcome { cpu: Some(cpu), gpu: None, verdict: Some(verdict) }
}

struct Stage {
    teller: Teller,
    published: Option<Seen>,
    asked: Option<Result<(), String>>,
}

impl Stage {
    fn new(published: Option<(&str, &str)>) -> Self {
        let published = published.map(|(reason, backend)| Seen {
            version: "1".to_owned(),
            status: json!({
                "control": {"cpu": {"backend": backend}},
                "conditions": [{"type": "CapEnforced", "reason": reason}],
            }),
        });
        Self { teller: Teller::default(), published, asked: None }
    }

    fn look(&mut self, outcome: &Outcome, view: &View, second: u64) -> Vec<&'static str> {
        let published = self.published.as_ref().map(|seen| (seen, "control"));
        let asked = self.asked.clone();
        let look = Look { outcome, view, published, asked, patience: Duration::from_secs(5) };
        self.teller.look(&look, at(second)).into_iter().map(|(reason, _)| reason.word).collect()
    }

    fn whys(&mut self, whys: &[Why]) -> Vec<&'static str> {
        let rapl = Means::Limits("rapl");
        let still = view(Drawn::Unmetered, 0);
        whys.iter().flat_map(|why| self.look(&outcome(*why, rapl), &still, 0)).collect()
    }
}

#[test]
fn a_transition_is_said_once_and_a_state_that_lasts_is_not() {
    use Why::{Blocked, Clamped, ClampedAbove, Enforced, Failed, NoCap, Pending};
    let mut new = Stage::new(None);
    assert_eq!(new.whys(&[NoCap, Pending, Enforced, Enforced]), [""; 0], "what is asked and done is no news");
    assert_eq!(new.whys(&[Failed, Failed, Pending, Failed, Blocked]), ["CapRefused"]);
    assert_eq!(new.whys(&[Enforced, Clamped, ClampedAbove, Enforced]), ["CapClipped"]);
    assert_eq!(new.whys(&[Pending, NoCap, NoCap]), ["Restored"]);
    assert_eq!(
        Stage::new(None).whys(&[Failed]),
        ["CapRefused"],
        "an agent that begins with a refusal says so"
    );
}

#[test]
fn an_agent_that_starts_anew_says_only_what_has_changed_meanwhile() {
    use Why::{Enforced, Failed, NoCap};
    assert_eq!(Stage::new(Some(("Failed", "rapl"))).whys(&[Failed]), [""; 0]);
    assert_eq!(Stage::new(Some(("Enforced", "rapl"))).whys(&[Enforced]), [""; 0]);
    assert_eq!(Stage::new(Some(("Enforced", "rapl"))).whys(&[NoCap]), ["Restored"]);
    assert_eq!(Stage::new(Some(("Enforced", "dvfs"))).whys(&[Enforced]), ["BackendChanged"]);
    assert_eq!(Stage::new(Some(("Enforced", "none"))).whys(&[Enforced]), [""; 0]);
}

#[test]
fn means_that_change_other_writers_and_lost_sight_are_said() {
    let (rapl, dvfs) = (Means::Limits("rapl"), Means::Dvfs);
    let mut stage = Stage::new(None);
    let measured = |moved| view(Drawn::Is(Watts::from_int(100)), moved);
    let enforced = |means| outcome(Why::Enforced, means);
    assert_eq!(stage.look(&enforced(rapl), &measured(0), 0), [""; 0]);
    assert_eq!(stage.look(&enforced(dvfs), &measured(0), 1), ["BackendChanged"]);
    assert_eq!(stage.look(&enforced(Means::None), &measured(0), 2), [""; 0], "nothing is no means");
    assert_eq!(stage.look(&enforced(dvfs), &measured(2), 3), ["OtherWriter"]);
    assert_eq!(stage.look(&enforced(dvfs), &measured(2), 4), [""; 0]);
    let blind = view(Drawn::Unknown, 0);
    assert_eq!(stage.look(&enforced(dvfs), &blind, 10), [""; 0], "a reading may be late");
    assert_eq!(stage.look(&enforced(dvfs), &blind, 14), [""; 0]);
    assert_eq!(stage.look(&enforced(dvfs), &blind, 15), ["Blind"]);
    assert_eq!(stage.look(&enforced(dvfs), &blind, 99), [""; 0]);
    assert_eq!(stage.look(&enforced(dvfs), &measured(0), 100), [""; 0]);
    // What Prometheus tells is missed as well, where the machine measures nothing and where it does.
    for own in [view(Drawn::Unmetered, 0), measured(0)] {
        let mut stage = Stage { asked: Some(Ok(())), ..Stage::new(None) };
        assert_eq!(stage.look(&enforced(rapl), &own, 0), [""; 0]);
        stage.asked = Some(Err("no series".to_owned()));
        assert_eq!(stage.look(&enforced(rapl), &own, 1), [""; 0]);
        assert_eq!(stage.look(&enforced(rapl), &own, 6), ["Blind"]);
        stage.asked = Some(Ok(()));
        assert_eq!(stage.look(&enforced(rapl), &own, 7), [""; 0]);
    }
    // A machine that was never measured is not blind: nothing has changed.
    let mut never = Stage::new(None);
    assert_eq!(never.look(&enforced(rapl), &blind, 0), [""; 0]);
    assert_eq!(never.look(&enforced(rapl), &blind, 99), [""; 0]);
}
