//! What an agent reports about the published caps, as far as it can be believed.

use crate::rows::{DeviceSeen, HardwareSeen, StateSeen};
use joulie_core::node::cap::{CapIntent, CapRange, Floor, Resolution};
use planner::hardware::ResolvedHardware;
use planner::intent::DeviceCap;
use planner::node::Confirmation;
use power_units::{Amount, Percent, Role, Watts};

/// A limit that was read back counts as the requested one from this share on. Power goes with about the cube of the
/// clock, so a tenth less power is 3 to 4 % less speed; the limits of eco are far below.
const ENOUGH: Percent = Percent::from_int(90);

/// What the agent of a node reports about its published desired state. `resolved` is the merged view of its hardware.
/// `lends`: its grant is below what was asked, and its agent divides that among the devices as they want it. Then it is
/// enough that the agent has taken in what was asked and read back what the grant leaves. While it is not known which
/// agents exist, no node counts as one without an agent.
pub(crate) fn confirmation(
    state: Option<&StateSeen>,
    hardware: Option<&HardwareSeen>,
    resolved: &ResolvedHardware,
    lends: bool,
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
    let cpu_most = resolved.cpu.max_per_socket;
    let gpu_most = resolved.gpu.as_ref().and_then(|gpu| gpu.max);
    let caps = state.carried.desired.caps;
    let devices = [
        (caps.cpu, state.control.cpu.as_ref(), cpu_most, cpu),
        (caps.gpu, state.control.gpu.as_ref(), gpu_most, gpu),
    ];
    let capped = devices.into_iter().filter_map(|(cap, control, most, can)| Some((cap?, control, most, can)));
    let told: Vec<Confirmation> = capped
        .map(|(cap, control, most, can)| {
            let asked = if lends { Some(Watts::ZERO) } else { asked(cap, most) };
            of_device(control, asked, state.generation, can)
        })
        .collect();
    let is_lifted = |one: &Confirmation| *one == Confirmation::Lifted;
    if !told.is_empty() && told.iter().all(is_lifted) {
        Confirmation::Lifted
    } else if told.contains(&Confirmation::Awaited) || told.iter().any(is_lifted) {
        Confirmation::Awaited
    } else if told.contains(&Confirmation::Short) {
        Confirmation::Short
    } else if told.is_empty() || told.contains(&Confirmation::InForce) {
        Confirmation::InForce
    } else {
        Confirmation::Unenforced
    }
}

/// What is requested of each device, within the hardware's range; `None` for a percentage of an unknown maximum.
fn asked(DeviceCap { percent, watts }: DeviceCap, most: Option<Watts>) -> Option<Watts> {
    match (CapIntent { watts, percent }).resolve(CapRange::new(None, most, None), Floor::NONE) {
        Resolution::Watts(target) => Some(target.effective()),
        Resolution::Percent(_) | Resolution::Blocked(_) => None,
    }
}

fn of_device(control: Option<&DeviceSeen>, asked: Option<Watts>, generation: i64, can: bool) -> Confirmation {
    let Some(control) = control else {
        return if can { Confirmation::Awaited } else { Confirmation::Unenforced };
    };
    // An agent of another generation does not report which spec it refers to; then its report is all there is.
    if control.observed.is_some_and(|observed| observed != generation) {
        return Confirmation::Awaited;
    }
    if control.lifted {
        return Confirmation::Lifted;
    }
    match (control.applied, control.blocked) {
        (true, _) => of_figures(control, asked),
        (false, true) if control.cap.is_none() => Confirmation::Unenforced,
        (false, _) => Confirmation::Awaited,
    }
}

/// Whether a limit that was read back is what was requested. The owner of the hardware may allow far less, and the
/// agent then reports the lower limit as applied.
fn of_figures(control: &DeviceSeen, asked: Option<Watts>) -> Confirmation {
    let enough = asked.and_then(|asked| asked.part(ENOUGH, Percent::HUNDRED, Role::Demand));
    match control.cap.zip(enough) {
        Some((cap, enough)) if cap >= enough => Confirmation::InForce,
        Some(_) => Confirmation::Short,
        // A closed loop has no limit to read back.
        None if control.regulated || control.observed.is_none() => Confirmation::InForce,
        None => Confirmation::Awaited,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::ProfileSeen;
    use host_kit::reflect::Row;
    use planner::catalog::Catalog;
    use planner::inventory::{HardwareFacts, resolve};
    use serde_json::{Value, json};

    fn told(spec: Value, control: Value, hardware: Option<Value>) -> Confirmation {
        told_by(false, spec, control, hardware)
    }

    fn told_by(lends: bool, spec: Value, control: Value, hardware: Option<Value>) -> Confirmation {
        let mut profile = json!({"metadata": {"name": "a", "generation": 4}, "status": {"control": control},
            "spec": {"nodeName": "a", "profile": "performance"}});
        profile["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let state = ProfileSeen::read(&profile).unwrap().state;
        let hardware = hardware.map(|status| {
            HardwareSeen::read(
                &json!({"metadata": {"name": "a"}, "spec": {"nodeName": "a"}, "status": status}),
            )
            .unwrap()
        });
        let reported = hardware.as_ref().map(|hardware| hardware.reported.clone());
        let facts = HardwareFacts { reported, ..HardwareFacts::default() };
        let resolved = resolve(&facts, None, true, &Catalog::embedded().unwrap()).hardware;
        confirmation(Some(&state), hardware.as_ref(), &resolved, lends, true)
    }

    /// A share of each package's 360 W.
    fn part(percent: u8) -> Value {
        json!({"cpu": {"packagePowerCapPctOfMax": percent}})
    }

    fn agent() -> Option<Value> {
        Some(json!({"cpu": {"controlAvailable": true, "capRange": {"maxWattsPerSocket": 360}},
            "gpu": {"present": true, "count": 2, "controlAvailable": true, "capRangePerGpu": {"maxWatts": 400}}}))
    }

    fn applied(cap: Value) -> Value {
        json!({"backend": "rapl", "result": "applied", "observedGeneration": 4, "capWatts": cap})
    }

    #[test]
    fn only_what_was_read_back_for_the_spec_that_stands_is_in_force() {
        let told = |control: Value| told(part(60), json!({"cpu": control}), agent());
        let cpu = |result: &str, generation: i64, cap: Value| json!({"result": result, "observedGeneration": generation, "capWatts": cap});
        // 60 % of 360 W.
        assert_eq!(told(cpu("applied", 4, json!(216))), Confirmation::InForce);
        assert_eq!(told(cpu("applied", 3, json!(216))), Confirmation::Awaited, "an earlier spec");
        assert_eq!(told(cpu("error", 4, json!(null))), Confirmation::Awaited);
        assert_eq!(told(cpu("blocked", 4, json!(216))), Confirmation::Awaited, "a cap stands all the same");
        assert_eq!(told(cpu("blocked", 4, json!(null))), Confirmation::Unenforced);
        assert_eq!(told(cpu("blocked", 3, json!(null))), Confirmation::Awaited);
        assert_eq!(told(json!(null)), Confirmation::Awaited);
        assert_eq!(told(json!({"result": "applied"})), Confirmation::InForce, "an agent of v0.1");
    }

    #[test]
    fn a_node_whose_originals_are_back_follows_nothing_and_one_of_two_kinds_is_not_enough() {
        let lifted = json!({"backend": "none", "result": "none"});
        assert_eq!(told(part(60), json!({"cpu": lifted}), agent()), Confirmation::Lifted);
        let kept = json!({"backend": "rapl", "result": "none", "capWatts": 216});
        assert_eq!(
            told(part(60), json!({"cpu": kept}), agent()),
            Confirmation::Awaited,
            "a grant stays in force"
        );
        let both = json!({"cpu": {"packagePowerCapPctOfMax": 60}, "gpu": {"powerCap": {"capPctOfMax": 60}}});
        let held = json!({"cpu": applied(json!(216)), "gpu": lifted});
        assert_eq!(told(both.clone(), held, agent()), Confirmation::Awaited);
        assert_eq!(told(both, json!({"cpu": lifted, "gpu": lifted}), agent()), Confirmation::Lifted);
    }

    #[test]
    fn far_less_than_was_asked_is_short_of_it_and_a_tenth_less_is_not() {
        let told = |spec: Value, cap: f64| told(spec, json!({"cpu": applied(json!(cap))}), agent());
        // 100 % of 360 W: nine tenths are 324 W. An owner's limit of 216 W is that of eco.
        assert_eq!(told(part(100), 360.0), Confirmation::InForce);
        assert_eq!(told(part(100), 324.0), Confirmation::InForce);
        assert_eq!(told(part(100), 323.875), Confirmation::Short);
        assert_eq!(told(part(100), 216.0), Confirmation::Short);
        // 80 % are 288 W, nine tenths of them 259.2 W.
        assert_eq!(told(part(80), 259.25), Confirmation::InForce);
        assert_eq!(told(part(80), 259.125), Confirmation::Short);
        // In watts; a request above the hardware's maximum counts as the maximum.
        let watts = |asked: u32| json!({"cpu": {"packagePowerCapWatts": asked}});
        assert_eq!(told(watts(300), 270.0), Confirmation::InForce);
        assert_eq!(told(watts(300), 269.875), Confirmation::Short);
        assert_eq!(told(watts(1000), 360.0), Confirmation::InForce);
        assert_eq!(told(watts(1000), 323.0), Confirmation::Short);
        // The hardware's lowest limit is above the requested one.
        assert_eq!(told(watts(50), 100.0), Confirmation::InForce);
    }

    #[test]
    fn a_node_that_has_lent_its_watts_confirms_what_it_would_hold_with_them() {
        let spec =
            json!({"cpu": {"packagePowerCapPctOfMax": 100}, "gpu": {"powerCap": {"capPctOfMax": 100}}});
        let told = |lends, cpu: Value| {
            let control = json!({"cpu": cpu, "gpu": applied(json!(100))});
            told_by(lends, spec.clone(), control, agent())
        };
        // 100 of 360 W and of 400 W are in force.
        assert_eq!(told(true, applied(json!(100))), Confirmation::InForce);
        assert_eq!(told(false, applied(json!(100))), Confirmation::Short);
        assert_eq!(told(true, applied(json!(null))), Confirmation::Awaited, "nothing was read back");
        let earlier = json!({"result": "applied", "observedGeneration": 3, "capWatts": 100});
        assert_eq!(told(true, earlier), Confirmation::Awaited, "it has not taken in what was asked");
    }

    #[test]
    fn the_worse_of_processors_and_gpus_counts() {
        let spec =
            json!({"cpu": {"packagePowerCapPctOfMax": 100}, "gpu": {"powerCap": {"capPctOfMax": 100}}});
        let told = |cpu: f64, gpu: Value| {
            told(spec.clone(), json!({"cpu": applied(json!(cpu)), "gpu": gpu}), agent())
        };
        // Nine tenths of 400 W are 360 W.
        assert_eq!(told(360.0, applied(json!(360))), Confirmation::InForce);
        assert_eq!(told(360.0, applied(json!(359))), Confirmation::Short);
        assert_eq!(told(216.0, applied(json!(400))), Confirmation::Short);
        assert_eq!(told(216.0, json!(null)), Confirmation::Awaited, "it is not settled yet");
    }

    #[test]
    fn figures_that_are_missing_are_no_good_news_but_where_there_can_be_none() {
        let told = |cpu: Value, hardware: Value| told(part(100), json!({"cpu": cpu}), Some(hardware));
        let able = |range: Value| json!({"cpu": {"controlAvailable": true, "capRange": range}});
        let known = || able(json!({"maxWattsPerSocket": 360}));
        assert_eq!(told(applied(json!(null)), known()), Confirmation::Awaited);
        assert_eq!(told(applied(json!(360)), able(json!(null))), Confirmation::Awaited, "a part of what?");
        let regulated = json!({"backend": "dvfs", "result": "applied", "observedGeneration": 4});
        assert_eq!(told(regulated, known()), Confirmation::InForce, "a closed loop reads no limit back");
    }

    #[test]
    fn a_node_without_an_agent_cannot_be_capped_and_one_that_is_not_known_yet_may_be() {
        assert_eq!(told(part(60), json!({}), None), Confirmation::Unenforced);
        assert_eq!(
            told(part(60), json!({}), Some(json!({"cpu": {"controlAvailable": false}}))),
            Confirmation::Unenforced
        );
        let nothing = ResolvedHardware::default();
        assert_eq!(confirmation(None, None, &nothing, false, true), Confirmation::Unenforced);
        assert_eq!(confirmation(None, None, &nothing, false, false), Confirmation::Awaited);
    }
}
