use super::*;
use Profile::{Eco, Performance};
use TransitionState::{ActiveEco, ActivePerformance, DrainingPerformance};

const LOW: CapsOf = CapsOf::ECO;
const FULL: CapsOf = CapsOf::PERFORMANCE;
const UNKNOWN: TransitionState = TransitionState::Unknown { caps: FULL };

fn facts(planned: Profile, blocking: Option<u32>) -> GuardFacts {
    GuardFacts {
        planned,
        blocking,
        performance_caps_in_force: true,
        label: None,
        visibility: Visibility::Clear,
    }
}

fn soft(state: TransitionState, facts: GuardFacts) -> GuardDecision {
    step(state, GuardMode::Soft, &facts)
}

fn hard(state: TransitionState, facts: GuardFacts) -> GuardDecision {
    step(state, GuardMode::Hard, &facts)
}

const fn draining(blocking: u32, caps: CapsOf) -> TransitionState {
    DrainingPerformance { blocking, caps }
}

/// Every state, with the relevant data.
const STATES: [TransitionState; 9] = [
    ActivePerformance,
    draining(0, FULL),
    draining(3, FULL),
    draining(3, LOW),
    draining(3, CapsOf::Published),
    ActiveEco,
    UNKNOWN,
    TransitionState::Unknown { caps: LOW },
    TransitionState::Unknown { caps: CapsOf::Published },
];

#[test]
fn label_and_mark_tell_the_state() {
    // Table C7.
    let observed = |profile: &str, mark| {
        TransitionState::observed(Profile::read(profile), mark, LOW, GuardMode::Soft).name().as_str()
    };
    assert_eq!(observed("performance", false), "ActivePerformance");
    assert_eq!(observed("eco", false), "ActiveEco");
    assert_eq!(observed("performance", true), "DrainingPerformance");
    assert_eq!(observed("eco", true), "DrainingPerformance");
    assert_eq!(observed("unknown", false), "Unknown");
    assert_eq!(observed("", false), "Unknown");
}

#[test]
fn the_hard_guard_takes_an_eco_label_without_its_caps_for_a_drain() {
    // Fix list operator B9.
    for caps in [FULL, CapsOf::Published] {
        assert_eq!(TransitionState::observed(Some(Eco), false, caps, GuardMode::Hard), draining(0, caps));
        assert_eq!(TransitionState::observed(Some(Eco), false, caps, GuardMode::Soft), ActiveEco);
    }
    for mode in [GuardMode::Soft, GuardMode::Hard] {
        assert_eq!(TransitionState::observed(Some(Eco), false, LOW, mode), ActiveEco);
    }
}

#[test]
fn every_row_of_the_guard_table_holds() {
    // Table C7: desired profile and performance pods give profile and draining, whatever the state was.
    for state in STATES {
        for pods in [0, 3, 5] {
            let published = soft(state, facts(Performance, Some(pods))).publish.unwrap();
            assert_eq!((published.profile, published.draining), (Performance, false), "{state:?}");
        }
        let clear = soft(state, facts(Eco, Some(0)));
        assert_eq!(clear.publish.map(|p| (p.profile, p.draining)), Some((Eco, false)), "{state:?}");
        assert_eq!((clear.state, clear.held), (ActiveEco, None), "{state:?}");
        for pods in [1, 3] {
            let blocked = soft(state, facts(Eco, Some(pods)));
            assert_eq!(blocked.publish.map(|p| (p.profile, p.draining)), Some((Eco, true)), "{state:?}");
            assert_eq!(
                (blocked.state, blocked.held),
                (draining(pods, LOW), Some(HoldReason::Draining)),
                "{state:?}"
            );
            // Applying it again changes nothing.
            assert_eq!(soft(blocked.state, facts(Eco, Some(pods))).state, blocked.state);
        }
    }
}

#[test]
fn the_diagram_is_what_the_guard_does() {
    // Seeds: performance -> eco transition, FSM.
    let names = |state, facts| soft(state, facts).state.name();
    let (perf, drain, eco) =
        (StateName::ActivePerformance, StateName::DrainingPerformance, StateName::ActiveEco);
    assert_eq!(names(ActivePerformance, facts(Eco, Some(1))), drain, "defer");
    assert_eq!(names(ActivePerformance, facts(Eco, Some(0))), eco, "allow");
    assert_eq!(names(draining(1, LOW), facts(Eco, Some(1))), drain, "still blocked");
    assert_eq!(names(draining(1, LOW), facts(Eco, Some(0))), eco, "unblocked");
    assert_eq!(names(draining(1, LOW), facts(Performance, Some(1))), perf, "re-plan perf");
    assert_eq!(names(ActiveEco, facts(Performance, Some(0))), perf, "plan perf");
    assert_eq!(names(ActiveEco, facts(Eco, Some(1))), drain, "a performance pod appears");
}

#[test]
fn without_pods_the_previous_state_is_kept() {
    // Fix list operator B13.
    for mode in [GuardMode::Soft, GuardMode::Hard] {
        for state in STATES {
            let decision = step(state, mode, &facts(Eco, None));
            assert_eq!(
                (decision.state, decision.held),
                (state, Some(HoldReason::PodsUnknown)),
                "{mode:?} {state:?}"
            );
            assert_eq!((decision.applied, decision.deferred), (None, None));
        }
    }
    let kept = soft(ActivePerformance, facts(Eco, None)).publish.unwrap();
    assert_eq!((kept.profile, kept.caps, kept.label), (Performance, FULL, Some(Performance)));
    assert_eq!(soft(UNKNOWN, facts(Eco, None)).publish, None);
    // An upgrade needs no pods.
    assert_eq!(soft(ActiveEco, facts(Performance, None)).state, ActivePerformance);
}

#[test]
fn the_soft_guard_publishes_eco_at_once() {
    let published = soft(ActivePerformance, facts(Eco, Some(2))).publish.unwrap();
    assert_eq!(published, Publication { profile: Eco, caps: LOW, label: Some(Eco), draining: true });
}

#[test]
fn the_hard_guard_keeps_the_caps_of_performance_until_the_node_has_drained() {
    // Fix list operator B9.
    let labelled = |planned, blocking| GuardFacts { label: Some(Eco), ..facts(planned, blocking) };
    let first = hard(ActivePerformance, facts(Eco, Some(2)));
    assert_eq!(
        first.publish.unwrap(),
        Publication { profile: Eco, caps: FULL, label: Some(Eco), draining: true }
    );
    let second = hard(first.state, labelled(Eco, Some(1)));
    assert_eq!(second.state, draining(1, FULL));
    let last = hard(second.state, labelled(Eco, Some(0)));
    assert_eq!((last.state, last.publish.unwrap().caps), (ActiveEco, LOW));
}

#[test]
fn the_hard_guard_waits_for_its_own_label_before_it_caps() {
    let performance = GuardFacts { label: Some(Performance), ..facts(Eco, Some(0)) };
    for state in [ActivePerformance, UNKNOWN] {
        let first = hard(state, performance);
        assert_eq!((first.state, first.held), (draining(0, FULL), Some(HoldReason::Draining)), "{state:?}");
        assert_eq!(first.deferred, None, "no pod defers it");
        assert_eq!(hard(first.state, performance).state, draining(0, FULL));
        assert_eq!(hard(first.state, GuardFacts { label: Some(Eco), ..performance }).state, ActiveEco);
    }
}

#[test]
fn the_hard_guard_never_lifts_the_caps_of_eco() {
    assert_eq!(hard(ActiveEco, facts(Eco, Some(2))).state, draining(2, LOW));
    assert_eq!(hard(draining(2, LOW), facts(Eco, Some(1))).state, draining(1, LOW));
    // Fix list operator B9: nor does an unknown label.
    for caps in [LOW, FULL, CapsOf::Published] {
        for pods in [0, 2] {
            let blind = hard(TransitionState::Unknown { caps }, facts(Eco, Some(pods)));
            assert_eq!(blind.state, draining(pods, caps));
        }
    }
}

#[test]
fn an_upgrade_keeps_label_and_mark_until_the_caps_are_confirmed() {
    // Fix list operator B30.
    let waiting = GuardFacts { performance_caps_in_force: false, ..facts(Performance, Some(0)) };
    for (state, label, mark) in
        [(ActiveEco, Some(Eco), false), (draining(1, LOW), Some(Eco), true), (UNKNOWN, None, false)]
    {
        let decision = soft(state, waiting);
        assert_eq!((decision.state, decision.held), (state, Some(HoldReason::CapsUnconfirmed)));
        let expected = Publication { profile: Performance, caps: FULL, label, draining: mark };
        assert_eq!(decision.publish, Some(expected), "{state:?}");
        let confirmed = GuardFacts { performance_caps_in_force: true, ..waiting };
        assert_eq!(soft(state, confirmed).state, ActivePerformance);
    }
    // A change of caps on a performance node does not remove its label.
    assert_eq!(soft(ActivePerformance, waiting).state, ActivePerformance);
}

#[test]
fn a_transition_is_counted_once_and_from_the_state_it_left() {
    // Fix list operator B14.
    let defer = soft(ActivePerformance, facts(Eco, Some(2)));
    assert_eq!(defer.applied, Some((StateName::ActivePerformance, StateName::DrainingPerformance)));
    assert_eq!(defer.deferred, Some((StateName::ActivePerformance, StateName::ActiveEco)));
    let still = soft(defer.state, facts(Eco, Some(1)));
    assert_eq!((still.applied, still.deferred), (None, None));
    let done = soft(still.state, facts(Eco, Some(0)));
    assert_eq!(done.applied, Some((StateName::DrainingPerformance, StateName::ActiveEco)));
    let late = soft(ActiveEco, facts(Eco, Some(1)));
    assert_eq!(late.applied, Some((StateName::ActiveEco, StateName::DrainingPerformance)));
    assert_eq!(late.deferred, None, "the node is eco already");
    // A change from or to an unknown state is not a transition.
    for facts in [facts(Eco, Some(2)), facts(Eco, Some(0)), facts(Performance, Some(0))] {
        let decision = soft(UNKNOWN, facts);
        assert_eq!((decision.applied, decision.deferred), (None, None));
    }
}

#[test]
fn no_order_of_facts_offers_performance_under_the_caps_of_eco() {
    // Every state × mode × plan × pods × confirmation × label.
    for state in STATES {
        for mode in [GuardMode::Soft, GuardMode::Hard] {
            for planned in [Performance, Eco] {
                for blocking in [None, Some(0), Some(2)] {
                    for performance_caps_in_force in [false, true] {
                        for label in [None, Some(Performance), Some(Eco)] {
                            let facts = GuardFacts {
                                planned,
                                blocking,
                                performance_caps_in_force,
                                label,
                                visibility: Visibility::Clear,
                            };
                            let decision = step(state, mode, &facts);
                            let Some(publish) = decision.publish else {
                                assert_eq!((decision.state.name(), planned), (StateName::Unknown, Eco));
                                continue;
                            };
                            if publish.label == Some(Performance) {
                                assert!(publish.caps == FULL && !publish.draining);
                                assert!(performance_caps_in_force || state == ActivePerformance, "{facts:?}");
                            }
                            if mode == GuardMode::Hard && publish.caps != FULL && state != ActiveEco {
                                let had_them = matches!(state, DrainingPerformance { caps, .. } | TransitionState::Unknown { caps } if caps != FULL);
                                assert!(had_them || blocking == Some(0) && label == Some(Eco), "{facts:?}");
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_node_that_is_not_seen_clearly_is_never_raised() {
    // In any state, with any plan, pods and confirmation.
    for mode in [GuardMode::Soft, GuardMode::Hard] {
        for state in STATES {
            for blocking in [None, Some(0), Some(2)] {
                for performance_caps_in_force in [false, true] {
                    let facts = GuardFacts {
                        performance_caps_in_force,
                        label: Some(Eco),
                        visibility: Visibility::Blind,
                        ..facts(Performance, blocking)
                    };
                    let decision = step(state, mode, &facts);
                    let had_full_power =
                        matches!(state, ActivePerformance | TransitionState::Unknown { caps: FULL });
                    if had_full_power {
                        assert_eq!(
                            decision,
                            step(state, mode, &GuardFacts { visibility: Visibility::Clear, ..facts })
                        );
                        continue;
                    }
                    let what = format!("{mode:?} {state:?} {blocking:?}: {decision:?}");
                    assert_ne!(decision.state, ActivePerformance, "{what}");
                    assert!(decision.held.is_some(), "{what}");
                    let Some(publish) = decision.publish else { continue };
                    // A drain that has full power under the hard guard keeps it; no other node has it.
                    let drains = matches!(state, DrainingPerformance { caps: FULL, .. });
                    assert!(publish.label != Some(Performance) && publish.profile == Eco, "{what}");
                    assert!(drains || publish.caps != FULL, "{what}");
                }
            }
        }
    }
}

#[test]
fn nothing_is_told_to_a_node_whose_desired_state_cannot_be_read() {
    for state in STATES {
        for planned in [Eco, Performance] {
            let decision =
                soft(state, GuardFacts { visibility: Visibility::Unreadable, ..facts(planned, Some(0)) });
            assert_eq!((decision.publish, decision.held), (None, Some(HoldReason::Unreadable)));
            assert_eq!(decision.state.name(), StateName::Unknown);
        }
    }
}
