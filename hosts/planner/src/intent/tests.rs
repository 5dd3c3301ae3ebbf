use super::*;
use crate::inventory::{HardwareFacts, LabelFacts, Reported, allocatable_gpus, resolve};
use power_units::Role;
use proptest::prelude::*;

fn watts(watts: i32) -> Watts {
    Watts::from_int(watts)
}

fn percent(percent: i32) -> Percent {
    Percent::from_int(percent)
}

/// The defaults of the environment variables.
fn settings() -> CapSettings {
    CapSettings {
        cpu_percent: PerProfile { performance: percent(100), eco: percent(60) },
        cpu_watts: PerProfile { performance: watts(5000), eco: watts(120) },
        cpu_absolute: false,
        gpu_node_cpus: GpuNodeCpus::Leave,
        gpu_percent: PerProfile { performance: percent(100), eco: percent(60) },
        gpu_absolute: false,
    }
}

fn absolute() -> CapSettings {
    CapSettings { cpu_absolute: true, gpu_absolute: true, ..settings() }
}

fn gpu_node(model: &str, count: u32) -> HardwareFacts {
    let labels = LabelFacts { gpu_model: Some(model.into()), ..LabelFacts::default() };
    HardwareFacts { labels, allocatable_gpus: count, ..HardwareFacts::default() }
}

fn cpu_node(model: &str, sockets: u32) -> HardwareFacts {
    let labels =
        LabelFacts { cpu_model: Some(model.into()), sockets: Some(sockets), ..LabelFacts::default() };
    HardwareFacts { labels, ..HardwareFacts::default() }
}

/// A model, its lowest limit and its highest limit.
type Range = (&'static str, i32, i32);

fn caps_within(
    settings: CapSettings,
    (cpus, gpus): (&[Range], &[Range]),
    facts: &HardwareFacts,
    profile: Profile,
) -> NodeCaps {
    let catalog = Catalog::embedded().unwrap();
    let ranges =
        |of: &[Range]| of.iter().map(|&(model, min, max)| (model.to_owned(), range(min, max))).collect();
    let ranges = UserRanges::new(ranges(cpus), ranges(gpus), &catalog).unwrap();
    Intents::new(settings, ranges).unwrap().caps(&resolve(facts, None, false, &catalog), profile)
}

fn range(min: i32, max: i32) -> PowerRange {
    PowerRange { min: Some(watts(min)).filter(|&min| min > Watts::ZERO), max: watts(max) }
}

fn caps(settings: CapSettings, facts: &HardwareFacts, profile: Profile) -> NodeCaps {
    caps_within(settings, (&[], &[]), facts, profile)
}

const fn cap(percent: Option<Percent>, watts: Option<Watts>) -> Option<DeviceCap> {
    Some(DeviceCap { percent, watts })
}

#[test]
fn every_row_of_the_gpu_table_holds() {
    // Table C8.
    let nvidia = |count| gpu_node("NVIDIA L40S", count);
    let gpu = |settings, facts: &HardwareFacts, profile| caps(settings, facts, profile).gpu;
    assert_eq!(gpu(settings(), &nvidia(4), Profile::Eco), cap(Some(percent(60)), None));
    let json = [("NVIDIA-L40S", 200, 350)];
    assert_eq!(
        caps_within(absolute(), (&[], &json), &nvidia(8), Profile::Eco).gpu,
        cap(Some(percent(60)), Some(watts(210)))
    );
    let unknown = gpu_node("Unknown", 2);
    assert_eq!(gpu(absolute(), &unknown, Profile::Performance), cap(Some(percent(100)), None));
    assert_eq!(gpu(absolute(), &nvidia(0), Profile::Eco), None);
    let eco_off = PerProfile { performance: percent(100), eco: percent(0) };
    assert_eq!(gpu(CapSettings { gpu_percent: eco_off, ..settings() }, &nvidia(1), Profile::Eco), None);
    let vendor = HardwareFacts {
        allocatable_gpus: allocatable_gpus([("vendor.example/gpu", 3)]),
        ..HardwareFacts::default()
    };
    assert_eq!(gpu(settings(), &vendor, Profile::Eco), cap(Some(percent(60)), None));
    // Known from the catalogue alone.
    assert_eq!(gpu(absolute(), &nvidia(1), Profile::Eco), cap(Some(percent(60)), Some(watts(210))));
}

#[test]
fn percentages_in_watts_stay_inside_the_boards_range() {
    // Table C8, absolute GPU watts by 100/60/40/30 %.
    let catalog = Catalog::embedded().unwrap();
    for (model, expected) in [
        ("NVIDIA_H100_NVL", [400, 240, 200, 200]),
        ("NVIDIA_H100_SXM", [700, 420, 350, 350]),
        ("NVIDIA_L40S", [350, 210, 200, 200]),
        ("AMD_INSTINCT_MI300X", [750, 450, 350, 350]),
        ("AMD_RADEON_PRO_W7900", [295, 200, 200, 200]),
    ] {
        let range = catalogue_gpu_range(catalog.gpu(model).unwrap());
        for (of_max, expected) in [100, 60, 40, 30].into_iter().zip(expected) {
            assert_eq!(gpu_watts(percent(of_max), range), watts(expected), "{model} {of_max} %");
        }
    }
    // Range 0–300 with 150 %.
    assert_eq!(gpu_watts(percent(150), range(0, 300)), watts(300));
}

#[test]
fn the_users_range_wins_over_the_nodes_and_the_nodes_over_the_catalogues() {
    // Fix list operator B15: the catalogue's range would give 210 W.
    let l40s = gpu_node("NVIDIA L40S", 8);
    let gpu_watts = |user: &[Range], facts: &HardwareFacts| {
        caps_within(absolute(), (&[], user), facts, Profile::Eco).gpu.unwrap().watts
    };
    assert_eq!(gpu_watts(&[("nvidia_l40s", 100, 200)], &l40s), Some(watts(120)));
    // Fix list operator B2: the range that the node reports is used.
    let reported = Reported { gpu_min: Some(watts(100)), gpu_max: Some(watts(300)), ..Reported::default() };
    let ranged = HardwareFacts { reported: Some(reported), ..l40s.clone() };
    assert_eq!(gpu_watts(&[], &ranged), Some(watts(180)));
    assert_eq!(gpu_watts(&[("NVIDIA L40S", 100, 200)], &ranged), Some(watts(120)));
    // The user may name the product as the device does, and may name a model that is not in the
    // catalogue.
    let h100 = gpu_node("NVIDIA-H100-80GB-HBM3", 8);
    assert_eq!(gpu_watts(&[("NVIDIA H100 SXM", 100, 500)], &h100), Some(watts(300)));
    assert_eq!(gpu_watts(&[("NVIDIA H200", 100, 600)], &gpu_node("nvidia-h200", 8)), Some(watts(360)));
}

#[test]
fn cpu_watts_are_those_of_one_package() {
    // Fix list operator B6: for two packages of 360 W, 55 % are 198 W each, not 396 W.
    let two = cpu_node("AMD_EPYC_9654", 2);
    let cpu = |facts: &HardwareFacts, profile| caps(absolute(), facts, profile).cpu;
    assert_eq!(cpu(&two, Profile::Eco), cap(None, Some(watts(198))));
    // The greatest power of a package is 400 W: the upper end of its configurable design power.
    assert_eq!(cpu(&two, Profile::Performance), cap(None, Some(watts(400))));
    // A reported range (Fix list operator B2), whole and without its lower end.
    let reported = |min| {
        let reported = Reported { cpu_min: min, cpu_max: Some(watts(400)), ..Reported::default() };
        HardwareFacts { reported: Some(reported), ..two.clone() }
    };
    assert_eq!(cpu(&reported(Some(watts(150))), Profile::Eco), cap(None, Some(watts(150))));
    assert_eq!(cpu(&reported(None), Profile::Eco), cap(None, Some(watts(120))));
    assert_eq!(cpu(&reported(None), Profile::Performance), cap(None, Some(watts(400))));
    // The user's.
    let user = [("AMD EPYC 9654 96-Core Processor", 0, 240)];
    let with_user = |profile| caps_within(absolute(), (&user, &[]), &reported(None), profile).cpu;
    assert_eq!(with_user(Profile::Performance), cap(None, Some(watts(240))));
    assert_eq!(with_user(Profile::Eco), cap(None, Some(watts(120))));
    // Table C4, caps: a device without a known range gets the plain settings.
    let unknown = HardwareFacts::default();
    assert_eq!(cpu(&unknown, Profile::Eco), cap(None, Some(watts(120))));
    assert_eq!(cpu(&unknown, Profile::Performance), cap(None, Some(watts(5000))));
}

#[test]
fn a_gpu_node_gets_no_cpu_cap_unless_the_cluster_asks_for_one() {
    // Fix list operator B1.
    let node = gpu_node("NVIDIA L40S", 8);
    for settings in [settings(), absolute()] {
        for profile in [Profile::Performance, Profile::Eco] {
            assert_eq!(caps(settings, &node, profile).cpu, None);
            let asked = CapSettings { gpu_node_cpus: GpuNodeCpus::Cap, ..settings };
            assert!(caps(asked, &node, profile).cpu.is_some());
        }
    }
    assert_eq!(caps(settings(), &cpu_node("weird", 2), Profile::Eco).cpu, cap(Some(percent(60)), None));
}

#[test]
fn a_device_that_is_no_longer_capped_is_lifted_and_not_forgotten() {
    let watts_on_cpu = NodeCaps { cpu: cap(None, Some(watts(120))), gpu: None };
    let gpu_only = NodeCaps { cpu: None, gpu: cap(Some(percent(60)), None) };
    let after = gpu_only.after(&watts_on_cpu);
    assert_eq!((after.cpu, after.gpu), (Some(DeviceCap::LIFTED), gpu_only.gpu));
    assert_eq!(gpu_only.after(&after), after, "and stays lifted");
    assert_eq!(gpu_only.after(&NodeCaps::default()), gpu_only);
    assert!(
        NodeCaps::default().are_lifted() && NodeCaps { cpu: Some(DeviceCap::LIFTED), gpu: None }.are_lifted()
    );
    assert!(!after.are_lifted() && !watts_on_cpu.are_lifted());
    let watts_beside = NodeCaps { cpu: cap(Some(percent(100)), Some(watts(120))), gpu: None };
    assert!(!watts_beside.are_lifted(), "watts win over percent");
}

#[test]
fn a_difference_of_a_hundredth_is_worth_no_write() {
    let cpu =
        |text: &str| NodeCaps { cpu: cap(None, Some(Watts::parse(text, Role::Nearest).unwrap())), gpu: None };
    assert!(cpu("198").same_as(&cpu("198.009")));
    assert!(!cpu("198").same_as(&cpu("198.02")));
    assert!(!cpu("198").same_as(&NodeCaps::default()));
    assert!(!cpu("198").same_as(&NodeCaps { cpu: cap(Some(percent(55)), None), gpu: None }));
}

#[test]
fn settings_out_of_range_are_refused() {
    // Fix list operator B12.
    let refused = |settings| Intents::new(settings, UserRanges::default()).unwrap_err();
    let pair = |performance, eco| PerProfile { performance: percent(performance), eco: percent(eco) };
    for (performance, eco) in [(101, 60), (100, 0), (100, -5), (0, 0), (150, 120)] {
        let error = refused(CapSettings { cpu_percent: pair(performance, eco), ..settings() });
        assert!(matches!(error, IntentError::CpuPercent { .. }), "{error}");
    }
    assert_eq!(
        refused(CapSettings { gpu_percent: pair(100, 101), ..settings() }),
        IntentError::GpuPercent { profile: Profile::Eco, found: percent(101) }
    );
    let zero = PerProfile { performance: watts(5000), eco: Watts::ZERO };
    assert!(matches!(refused(CapSettings { cpu_watts: zero, ..settings() }), IntentError::CpuWatts { .. }));
    for inverted in [
        CapSettings { cpu_percent: pair(60, 100), ..settings() },
        CapSettings { gpu_percent: pair(60, 100), ..settings() },
        CapSettings { cpu_watts: PerProfile { performance: watts(100), eco: watts(200) }, ..settings() },
    ] {
        assert!(matches!(refused(inverted), IntentError::Inverted { .. }));
    }
    // No GPU cap in performance and one in eco is not a contradiction; nor is no GPU cap at all.
    for (performance, eco) in [(0, 60), (100, 0), (-1, -1)] {
        let gpus = CapSettings { gpu_percent: pair(performance, eco), ..settings() };
        assert!(Intents::new(gpus, UserRanges::default()).is_ok());
    }
}

#[test]
fn the_users_ranges_are_checked_and_unambiguous() {
    let catalog = Catalog::embedded().unwrap();
    let ranges = |ranges: &[(&str, PowerRange)]| {
        let ranges = ranges.iter().map(|&(model, range)| (model.to_owned(), range)).collect();
        UserRanges::new(Vec::new(), ranges, &catalog).map(|_| ())
    };
    assert_eq!(ranges(&[("A", range(100, 300)), ("B", range(0, 300))]), Ok(()));
    let impossible = PowerRange { min: Some(Watts::from_int(-1)), max: watts(300) };
    for range in [range(300, 100), range(0, 0), range(0, -1), impossible] {
        assert_eq!(ranges(&[("A", range)]), Err(IntentError::Range { model: "A".to_owned() }));
    }
    assert!(ranges(&[(" ", range(100, 300))]).is_err());
    let twice = [("NVIDIA_H100_SXM", range(100, 300)), ("NVIDIA-H100-80GB-HBM3", range(100, 400))];
    assert!(matches!(ranges(&twice), Err(IntentError::RangeTwice { .. })));
}

proptest! {
    #[test]
    fn a_part_of_a_limit_never_exceeds_it(max in any::<i64>(), of_max in 0_i64..=(100 << 32)) {
        let (max, of_max) = (Watts::from_bits(max), Percent::from_bits(of_max));
        let part = part(max, of_max);
        // part · 100 ≤ max · percent, and one bit more would be above it.
        let exact = i128::from(max.to_bits()) * i128::from(of_max.to_bits());
        let hundred = i128::from(Percent::HUNDRED.to_bits());
        prop_assert!(i128::from(part.to_bits()) * hundred <= exact);
        prop_assert!((i128::from(part.to_bits()) + 1) * hundred > exact);
    }
}

#[test]
fn caps_are_lowered_only_where_it_is_certain_that_the_other_is_lower() {
    let percent = |value| Some(DeviceCap { percent: Some(Percent::from_int(value)), watts: None });
    let watts = |value| Some(DeviceCap { percent: None, watts: Some(Watts::from_int(value)) });
    let of = |cpu, other| NodeCaps { cpu, gpu: None }.lowered_to(&NodeCaps { cpu: other, gpu: None }).cpu;
    assert_eq!(of(percent(100), percent(60)), percent(60));
    assert_eq!(of(percent(60), percent(100)), percent(60));
    assert_eq!(of(watts(200), watts(150)), watts(150));
    assert_eq!(of(watts(200), percent(60)), watts(200), "60 % of nobody knows what");
    assert_eq!((of(None, percent(60)), of(percent(60), None)), (percent(60), percent(60)));
}
