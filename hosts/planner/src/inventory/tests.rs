use super::*;

fn text(text: &str) -> Option<Arc<str>> {
    Some(text.into())
}

fn watts(watts: i32) -> Watts {
    Watts::from_int(watts)
}

fn resolved(facts: &HardwareFacts) -> ResolvedHardware {
    resolve(facts, None, false, &Catalog::embedded().unwrap()).hardware
}

fn reported(reported: Reported) -> HardwareFacts {
    HardwareFacts { reported: Some(reported), ..HardwareFacts::default() }
}

#[test]
fn a_partial_report_does_not_block_what_the_labels_say() {
    // Fix list operator B16.
    let facts = HardwareFacts {
        reported: Some(Reported { sockets: Some(2), cpu_raw_model: text("  "), ..Reported::default() }),
        labels: LabelFacts {
            cpu_model: text("AMD EPYC 9654 96-Core Processor"),
            sockets: Some(1),
            gpu_model: text("NVIDIA-L40S"),
            gpu_count: Some(4),
        },
        capacity_cpus: Some(192),
        allocatable_gpus: 0,
    };
    let hardware = resolved(&facts);
    assert_eq!(
        hardware.cpu,
        Cpu {
            model: text("AMD_EPYC_9654"),
            sockets: Some(2),
            total_cores: Some(192),
            min_per_socket: Some(watts(320)),
            max_per_socket: Some(watts(400)),
        }
    );
    let gpus =
        GpuInventory { model: text("NVIDIA_L40S"), count: 4, min: Some(watts(200)), max: Some(watts(350)) };
    assert_eq!(hardware.gpu, Some(gpus));
}

#[test]
fn a_reported_range_wins_over_the_catalogue_and_a_broken_one_says_nothing() {
    // Fix list operator B2.
    let with = |min, max| {
        let hardware = resolved(&reported(Reported {
            cpu_raw_model: text("AMD EPYC 9654 96-Core Processor"),
            cpu_min: min,
            cpu_max: max,
            ..Reported::default()
        }));
        (hardware.cpu.min_per_socket, hardware.cpu.max_per_socket)
    };
    assert_eq!(with(Some(watts(100)), Some(watts(400))), (Some(watts(100)), Some(watts(400))));
    assert_eq!(with(Some(Watts::ZERO), Some(watts(400))), (None, Some(watts(400))));
    assert_eq!(with(Some(watts(500)), Some(watts(400))), (None, Some(watts(400))));
    for nothing in [None, Some(Watts::ZERO), Some(Watts::MIN)] {
        assert_eq!(with(Some(watts(100)), nothing), (Some(watts(320)), Some(watts(400))));
    }
}

#[test]
fn the_first_name_that_the_catalogue_knows_is_the_model() {
    // Fix list operator B28: an unrecognised model does not hide a raw one that is known, nor the other way round.
    let model = |raw: Option<Arc<str>>, model: Option<Arc<str>>| {
        resolved(&reported(Reported { cpu_raw_model: raw, cpu_model: model, ..Reported::default() }))
            .cpu
            .model
    };
    let known = text("AMD_EPYC_9654");
    assert_eq!(model(text("AMD EPYC 9654 96-Core Processor"), text("weird")), known);
    assert_eq!(model(text("weird"), known.clone()), known);
    assert_eq!(model(text("weird"), text("other")), text("weird"));
    assert_eq!(model(None, None), None);
}

#[test]
fn a_known_cpu_beside_an_unknown_gpu_is_known_all_the_same() {
    // Table C5, catalogue rows: CPU hit, no GPU, a warning.
    let catalog = Catalog::embedded().unwrap();
    let facts = reported(Reported {
        cpu_raw_model: text("AMD EPYC 9534 64-Core Processor"),
        gpu_raw_model: text("NVIDIA H200"),
        gpu_count: Some(8),
        ..Reported::default()
    });
    let resolved = resolve(&facts, None, false, &catalog);
    assert_eq!(resolved.cpu.as_ref().map(|cpu| cpu.key.as_str()), Some("AMD_EPYC_9534"));
    let gpus = resolved.hardware.gpu.unwrap();
    assert!(resolved.gpu.is_none() && gpus.model.is_some());
}

#[test]
fn whether_a_node_has_gpus_is_asked_of_the_hardware_first() {
    // Fix list operator B22: slices and shares are no allocatable GPUs, and replicas of one GPU are not more GPUs.
    let count = |reported: Reported, label: Option<u32>, allocatable_gpus| {
        let facts = HardwareFacts {
            reported: Some(reported),
            labels: LabelFacts { gpu_count: label, ..LabelFacts::default() },
            capacity_cpus: None,
            allocatable_gpus,
        };
        resolved(&facts).gpu.map(|gpus| gpus.count)
    };
    let of = |gpu_present, gpu_count| Reported { gpu_present, gpu_count, ..Reported::default() };
    assert_eq!(count(of(Some(true), Some(8)), None, 0), Some(8), "sliced");
    assert_eq!(count(of(Some(true), Some(8)), Some(4), 32), Some(8), "time-sliced");
    assert_eq!(count(of(None, None), Some(4), 32), Some(4));
    assert_eq!(count(of(None, None), None, 32), Some(32));
    assert_eq!(count(of(Some(true), None), None, 0), Some(1), "present, uncounted");
    assert_eq!(count(of(Some(false), Some(0)), None, 0), None);
    assert_eq!(count(of(None, Some(0)), None, 0), None);
    // Against a denial, an allocatable resource is evidence.
    assert_eq!(count(of(Some(false), None), None, 2), Some(2));
    // A known range is as well, whatever `present` says (Fix list operator B28).
    let ranged = Reported { gpu_max: Some(watts(700)), ..of(Some(false), None) };
    assert_eq!(count(ranged, None, 0), Some(1));
}

#[test]
fn a_device_plugin_that_restarts_does_not_change_the_node() {
    // Fix list operator B22.
    let catalog = Catalog::embedded().unwrap();
    let before = HardwareFacts {
        labels: LabelFacts { gpu_model: text("NVIDIA L40S"), ..LabelFacts::default() },
        allocatable_gpus: 8,
        ..HardwareFacts::default()
    };
    let gpus = resolve(&before, None, false, &catalog).hardware.gpu.unwrap();
    let during = HardwareFacts::default();
    assert_eq!(resolve(&during, Some(&gpus), false, &catalog).hardware.gpu, Some(gpus.clone()));
    let denied = reported(Reported { gpu_present: Some(false), ..Reported::default() });
    assert_eq!(resolve(&denied, Some(&gpus), false, &catalog).hardware.gpu, None);
    // Nor does it without any memory of the node: a published GPU cap was written for a GPU.
    let taken_over = resolve(&during, None, true, &catalog).hardware.gpu;
    assert_eq!(taken_over, Some(GpuInventory { model: None, count: 1, min: None, max: None }));
    assert_eq!(resolve(&denied, None, true, &catalog).hardware.gpu, None);
    // A product label alone does not make a GPU.
    assert_eq!(
        resolve(&HardwareFacts { allocatable_gpus: 0, ..before }, None, false, &catalog).hardware.gpu,
        None
    );
}

#[test]
fn labels_are_read_in_their_order_and_nonsense_is_not_a_number() {
    let keys: Vec<String> = ["joulie.io/gpu.product", "nvidia.com/gpu.product"].map(str::to_owned).into();
    let read = |labels: &[(&str, &'static str)]| {
        let labels: Vec<(String, &'static str)> = labels.iter().map(|&(k, v)| (k.to_owned(), v)).collect();
        LabelFacts::read(|key| labels.iter().find(|(k, _)| k == key).map(|&(_, v)| v), &keys)
    };
    let nfd_model = "feature.node.kubernetes.io/cpu-model.name";
    let nfd_sockets = "feature.node.kubernetes.io/cpu-sockets";
    let facts = read(&[(nfd_model, "A"), ("joulie.io/hw.cpu-model", "B"), (nfd_sockets, "2")]);
    assert_eq!((facts.cpu_model, facts.sockets), (text("B"), Some(2)));
    let facts =
        read(&[(nfd_model, "A"), ("joulie.io/hw.cpu-model", " "), ("joulie.io/hw.cpu-sockets", "two")]);
    assert_eq!((facts.cpu_model, facts.sockets), (text("A"), None));
    let facts = read(&[("nvidia.com/gpu.product", "N"), ("joulie.io/gpu.product", "J")]);
    assert_eq!(facts.gpu_model, text("J"));
    let facts = read(&[("joulie.io/gpu.product", "J"), ("joulie.io/hw.gpu-model", "H")]);
    assert_eq!(facts.gpu_model, text("H"));
    for (label, count) in [("8", Some(8)), ("0", None), ("-1", None), ("99999999999", None), ("8.0", None)] {
        assert_eq!(read(&[("joulie.io/hw.gpu-count", label)]).gpu_count, count, "{label}");
    }
}

#[test]
fn only_whole_gpus_count_as_allocatable() {
    // Table C8, counting rows.
    for (resources, count) in [
        (&[("vendor.example/gpu", 3)][..], 3),
        (&[("NVIDIA.COM/GPU", 2)], 2),
        (&[("nvidia.com/gpu", 4), ("amd.com/gpu", 2), ("gpu.intel.com/i915", 1)], 7),
        (&[("nvidia.com/mig-1g.10gb", 7), ("nvidia.com/gpu.shared", 4), ("gpu.intel.com/xe", 1)], 0),
        (&[("cpu", 64), ("gpu", 1)], 0),
        (&[("a/gpu", u64::MAX), ("b/gpu", u64::MAX)], u32::MAX),
    ] {
        assert_eq!(allocatable_gpus(resources.iter().copied()), count, "{resources:?}");
    }
}
