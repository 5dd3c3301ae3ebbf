//! What an agent says about the caps that are published, as far as it can be believed.

use crate::rows::{DeviceSeen, HardwareSeen, StateSeen};
use joulie_core::node::cap::CapIntent;
use planner::plan::Confirmation;

/// What the agent of a node says about its published desired state. While it is not known which agents there are,
/// nobody is taken for a node without one.
pub(crate) fn confirmation(
    state: Option<&StateSeen>,
    hardware: Option<&HardwareSeen>,
    hardware_known: bool,
) -> Confirmation {
    let can = |control: Option<bool>| match hardware {
        None => !hardware_known,
        Some(_) => control != Some(false),
    };
    let cpu = can(hardware.and_then(|hardware| hardware.cpu_control));
    let gpu = can(hardware.and_then(|hardware| hardware.gpu_control));
    let Some(state) = state else {
        return if cpu || gpu { Confirmation::Awaited } else { Confirmation::Unenforced };
    };
    let devices = [
        (state.desired.cpu, state.control.cpu.as_ref(), cpu),
        (state.desired.gpu, state.control.gpu.as_ref(), gpu),
    ];
    let capped = devices.into_iter().filter(|(intent, ..)| *intent != CapIntent::NONE);
    let told: Vec<Confirmation> =
        capped.map(|(_, control, can)| of_device(control, state.generation, can)).collect();
    if told.contains(&Confirmation::Awaited) {
        Confirmation::Awaited
    } else if told.is_empty() || told.contains(&Confirmation::InForce) {
        Confirmation::InForce
    } else {
        Confirmation::Unenforced
    }
}

fn of_device(control: Option<&DeviceSeen>, generation: i64, can: bool) -> Confirmation {
    let Some(control) = control else {
        return if can { Confirmation::Awaited } else { Confirmation::Unenforced };
    };
    // An agent of another generation does not say which spec it speaks of; then its word is all there is.
    if control.observed.is_some_and(|observed| observed != generation) {
        return Confirmation::Awaited;
    }
    match (control.applied, control.blocked) {
        (true, _) => Confirmation::InForce,
        (false, true) if control.cap.is_none() => Confirmation::Unenforced,
        (false, _) => Confirmation::Awaited,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::ProfileSeen;
    use host_kit::reflect::Row;
    use serde_json::{Value, json};

    fn told(control: Value, hardware: Option<Value>) -> Confirmation {
        let profile = json!({"metadata": {"name": "a", "generation": 4}, "status": {"control": control},
            "spec": {"nodeName": "a", "profile": "eco", "cpu": {"packagePowerCapPctOfMax": 60}}});
        let state = ProfileSeen::read(&profile).unwrap().state;
        let hardware = hardware.map(|status| {
            HardwareSeen::read(
                &json!({"metadata": {"name": "a"}, "spec": {"nodeName": "a"}, "status": status}),
            )
            .unwrap()
        });
        confirmation(Some(&state), hardware.as_ref(), true)
    }

    #[test]
    fn only_what_was_read_back_for_the_spec_that_stands_is_in_force() {
        let agent = || Some(json!({"cpu": {"controlAvailable": true}}));
        let cpu = |result: &str, generation: i64, cap: Value| json!({"cpu": {"result": result, "observedGeneration": generation, "capWatts": cap}});
        assert_eq!(told(cpu("applied", 4, json!(216)), agent()), Confirmation::InForce);
        assert_eq!(told(cpu("applied", 3, json!(216)), agent()), Confirmation::Awaited, "an earlier spec");
        assert_eq!(told(cpu("error", 4, json!(null)), agent()), Confirmation::Awaited);
        assert_eq!(
            told(cpu("blocked", 4, json!(216)), agent()),
            Confirmation::Awaited,
            "a cap stands all the same"
        );
        assert_eq!(told(cpu("blocked", 4, json!(null)), agent()), Confirmation::Unenforced);
        assert_eq!(told(cpu("blocked", 3, json!(null)), agent()), Confirmation::Awaited);
        assert_eq!(told(json!({}), agent()), Confirmation::Awaited);
        assert_eq!(
            told(json!({"cpu": {"result": "applied"}}), agent()),
            Confirmation::InForce,
            "an agent of v0.1"
        );
    }

    #[test]
    fn a_node_without_an_agent_cannot_be_capped_and_one_that_is_not_known_yet_may_be() {
        assert_eq!(told(json!({}), None), Confirmation::Unenforced);
        assert_eq!(
            told(json!({}), Some(json!({"cpu": {"controlAvailable": false}}))),
            Confirmation::Unenforced
        );
        assert_eq!(confirmation(None, None, true), Confirmation::Unenforced);
        assert_eq!(confirmation(None, None, false), Confirmation::Awaited);
    }
}
