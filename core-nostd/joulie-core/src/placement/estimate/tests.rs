//! The observed estimates of the reference, at the values that its rules intend, and the estimate against a model
//! in floating point.

use super::*;
use crate::placement::class::WorkloadClass::{self, Performance, Standard};
use crate::placement::demand::tests::{asks, container, limited, pod};
use crate::placement::demand::{Container, GpuDemand, MilliCores, ResourceRequest, Runs};
use power_units::{Ratio, Role};
use proptest::prelude::*;

const REFERENCE: Coefficients = Coefficients::REFERENCE;

/// 96 cores, 2 × 360 W, 8 × 700 W GPUs of an unspecified vendor.
fn node_h() -> HardwareRecord {
    HardwareRecord {
        cpu_max: Some(HardwareRecord::packages(Watts::from_int(360), Some(2))),
        cores: Some(96),
        gpus: Some(NodeGpus { count: Some(8), max: Some(Watts::from_int(700)), vendor: None, adds: None }),
    }
}

fn demand(class: WorkloadClass, cpu_milli: u32, gpus: Option<(u32, GpuVendor)>) -> PodDemand {
    let gpus = gpus.map(|(count, vendor)| GpuDemand { count, vendor });
    PodDemand { class, cpu: MilliCores::new(cpu_milli), memory_bytes: 0, gpus, gpu_quarters: 0 }
}

fn estimate(hardware: &HardwareRecord, demand: &PodDemand) -> PodEstimate {
    HardwareTerms::of(Some(hardware), &REFERENCE).estimate(&DemandTerms::of(demand, &REFERENCE))
}

fn as_f64(watts: Watts) -> f64 {
    watts.to_bits() as f64 / (1_u64 << 32) as f64
}

fn total(hardware: &HardwareRecord, demand: &PodDemand) -> f64 {
    as_f64(estimate(hardware, demand).total())
}

#[track_caller]
fn assert_watts(actual: f64, expected: f64) {
    assert!((actual - expected).abs() < 1e-6, "{actual} is not {expected}");
}

/// Rounding never loses watts, and never adds more than a few of the smallest units.
#[track_caller]
fn assert_just_above(actual: Watts, exact: i32) {
    let over = actual - Watts::from_int(exact);
    assert!(over >= Watts::ZERO && over <= Watts::from_bits(4), "{actual:?} is not {exact} W");
}

#[test]
fn the_reference_s_observed_estimates_hold() {
    // Extender table, rows 27 and 28.
    use GpuVendor::{Amd, Intel, Nvidia};
    let main = |ask| container(Runs::Main, ask);
    let cores = |cores: u64| main(asks(cores * 1000));
    let with_gpu = |container: Container, at: usize, ask: ResourceRequest| {
        let mut gpus = container.gpus;
        gpus[at] = ask;
        Container { gpus, ..container }
    };
    let with_memory =
        |container: Container, gib: u64| Container { memory_bytes: asks(gib << 30), ..container };
    let both = ResourceRequest { request: Some(2000), limit: Some(4000) };
    let zero = ResourceRequest { request: Some(0), limit: Some(4000) };
    let rows: &[(&str, WorkloadClass, &[Container], f64)] = &[
        // 504 W · 0.25/96 and 504 W · 0.5/96.
        ("nothing, standard", Standard, &[main(ResourceRequest::default())], 1.3125),
        ("nothing, performance", Performance, &[main(ResourceRequest::default())], 2.625),
        ("cpu 8", Standard, &[cores(8)], 42.0),
        ("req 2 lim 4", Standard, &[main(both)], 10.5),
        ("lim 4 only", Standard, &[main(limited(4000))], 21.0),
        ("req 0 lim 4", Standard, &[main(zero)], 21.0),
        ("cpu 200 on 96", Standard, &[cores(200)], 504.0),
        ("cpu 8 + 10Gi", Standard, &[with_memory(cores(8), 10)], 46.2),
        ("cpu 8 + 128Gi", Standard, &[with_memory(cores(8), 128)], 54.6),
        // A pebibyte follows the same rule: 42 W · 1.3.
        ("cpu 8 + 1Pi", Standard, &[with_memory(cores(8), 1 << 20)], 54.6),
        ("cpu 4 + nvidia 2", Standard, &[with_gpu(cores(4), 0, asks(2))], 931.0),
        ("cpu 4 + nvidia 2", Performance, &[with_gpu(cores(4), 0, asks(2))], 1211.0),
        ("cpu 4 + amd 1", Standard, &[with_gpu(cores(4), 1, limited(1))], 476.0),
        ("cpu 4 + i915 1", Standard, &[with_gpu(cores(4), 2, asks(1))], 476.0),
        (
            "init gpu 4, main gpu 1",
            Standard,
            &[with_gpu(container(Runs::Init, asks(64_000)), 0, asks(4)), with_gpu(cores(4), 0, asks(1))],
            1841.0,
        ),
        (
            "init gpus 2 and 3, main none",
            Standard,
            &[
                with_gpu(container(Runs::Init, ResourceRequest::default()), 0, asks(2)),
                with_gpu(container(Runs::Init, ResourceRequest::default()), 0, asks(3)),
                cores(4),
            ],
            1386.0,
        ),
    ];
    for (what, class, containers, expected) in rows {
        let watts = total(&node_h(), &pod(*class, containers));
        assert!((watts - expected).abs() < 1e-6, "{what}: {watts} is not {expected}");
    }
    let cpu_only = HardwareRecord { gpus: None, ..node_h() };
    assert_watts(total(&cpu_only, &demand(Standard, 4000, Some((1, Nvidia)))), 21.0);
    let no_watts = |cores| HardwareRecord { cores: Some(cores), ..HardwareRecord::EMPTY };
    assert_watts(total(&no_watts(32), &demand(Standard, 4000, None)), 13.125);
    assert_watts(total(&no_watts(100), &demand(Standard, 10_000, None)), 24.5);
    // 150 W · 0.7 · 2/32 = 6.5625 W of cores, and 0.65 · 350, 400, 350 W of a GPU.
    let gpus = Some(NodeGpus { count: Some(8), max: None, vendor: None, adds: None });
    let no_gpu_watts = HardwareRecord { gpus, ..no_watts(32) };
    for (vendor, expected) in [(Nvidia, 234.0625), (Amd, 266.5625), (Intel, 234.0625)] {
        assert_watts(total(&no_gpu_watts, &demand(Standard, 2000, Some((1, vendor)))), expected);
    }
}

#[test]
fn the_powerest_table_holds() {
    // Extender table, rows 23, 24, 25, 26 and 30.
    let no_record = HardwareTerms::of(None, &REFERENCE);
    let eight = demand(Standard, 8000, Some((2, GpuVendor::Nvidia)));
    assert_eq!(no_record.estimate(&DemandTerms::of(&eight, &REFERENCE)), PodEstimate::NONE);
    let cpu = estimate(&node_h(), &demand(Standard, 8000, None));
    assert_just_above(cpu.cpu, 42);
    assert_eq!(cpu.gpu, Watts::ZERO);
    assert_just_above(estimate(&node_h(), &eight).gpu, 910);
    let of = |class| estimate(&node_h(), &demand(class, 8000, Some((2, GpuVendor::Nvidia)))).gpu;
    assert!(of(Performance) > of(Standard));
    let small = Some(NodeGpus { count: Some(2), max: Some(Watts::from_int(350)), vendor: None, adds: None });
    let small = estimate(&HardwareRecord { gpus: small, ..node_h() }, &eight).gpu;
    assert_just_above(small, 455);
    let gib = |gib: u64| estimate(&node_h(), &PodDemand { memory_bytes: gib << 30, ..eight }).cpu;
    assert!(gib(128) > gib(1));
    assert_eq!(estimate(&HardwareRecord { gpus: None, ..node_h() }, &eight).gpu, Watts::ZERO);
}

#[test]
fn a_record_that_says_nothing_is_one_core_and_no_record_is_no_watts() {
    // Extender table, row 29.
    // 150 W · 0.7 for any pod of one core or more, half of it for half a core.
    assert_watts(total(&HardwareRecord::EMPTY, &demand(Standard, 1000, None)), 105.0);
    assert_watts(total(&HardwareRecord::EMPTY, &demand(Standard, 64_000, None)), 105.0);
    assert_watts(total(&HardwareRecord::EMPTY, &demand(Standard, 500, None)), 52.5);
    let said_badly = HardwareRecord { cpu_max: Some(Watts::MIN), cores: Some(0), gpus: None };
    assert_watts(total(&said_badly, &demand(Standard, 1000, None)), 105.0);
    assert_eq!(HardwareRecord::packages(Watts::from_int(360), Some(0)), Watts::from_int(360));
    assert_eq!(HardwareRecord::packages(Watts::from_int(360), None), Watts::from_int(360));
}

#[test]
fn a_pod_cannot_drive_more_gpus_than_the_node_has() {
    // Fix list extender B23: 8 · 700 W · 0.65, however many more were requested.
    for count in [8, 20, u32::MAX] {
        let gpu = estimate(&node_h(), &demand(Standard, 1000, Some((count, GpuVendor::Nvidia)))).gpu;
        assert_just_above(gpu, 3640);
    }
    // A record without a number of GPUs sets no bound.
    let some = Some(NodeGpus { count: None, max: Some(Watts::from_int(700)), vendor: None, adds: None });
    let node = HardwareRecord { gpus: some, ..node_h() };
    assert_watts(as_f64(estimate(&node, &demand(Standard, 1000, Some((20, GpuVendor::Nvidia)))).gpu), 9100.0);
}

#[test]
fn where_it_was_measured_what_a_pod_adds_to_a_gpu_that_counts() {
    let with = |adds: Option<i32>| {
        let gpus = node_h().gpus.map(|gpus| NodeGpus { adds: adds.map(Watts::from_int), ..gpus });
        let node = HardwareRecord { gpus, ..node_h() };
        let of = |class, count| estimate(&node, &demand(class, 1000, Some((count, GpuVendor::Nvidia)))).gpu;
        [of(Standard, 2), of(Performance, 2), of(Standard, 20)]
    };
    // 2 and 8 GPUs of 310 W, whatever the class of the pod; not 0.65 and 0.85 of 700 W.
    assert_eq!(with(Some(310)), [620, 620, 2480].map(Watts::from_int));
    let estimated = with(None);
    assert_just_above(estimated[0], 910);
    // What cannot be is not measured.
    assert_eq!((with(Some(0)), with(Some(-5))), (estimated, estimated));
    // No pod adds more to a GPU than the GPU draws at most, whatever its object claims.
    assert_eq!(with(Some(90_000)), [1400, 1400, 5600].map(Watts::from_int));
}

#[test]
fn parts_of_gpus_count_with_quarters_of_their_gpus() {
    let parts = |node: &HardwareRecord, whole: Option<(u32, GpuVendor)>, quarters: u32| {
        estimate(node, &PodDemand { gpu_quarters: quarters, ..demand(Standard, 1000, whole) }).gpu
    };
    // A GPU of 700 W and 0.65 of it: 455 W, a quarter is 113.75 W.
    let node = node_h();
    assert_watts(as_f64(parts(&node, None, 1)), 113.75);
    assert_just_above(parts(&node, None, 4), 455);
    assert_watts(as_f64(parts(&node, Some((1, GpuVendor::Nvidia)), 3)), 455.0 + 341.25);
    // No more than the eight GPUs that the node has.
    for (whole, quarters) in [(8, 2), (0, u32::MAX), (u32::MAX, u32::MAX)] {
        assert_just_above(parts(&node, Some((whole, GpuVendor::Nvidia)), quarters), 3640);
    }
    // What was measured counts: a quarter of 310 W. Only NVIDIA has parts.
    let of = |more: fn(NodeGpus) -> NodeGpus| HardwareRecord { gpus: node.gpus.map(more), ..node };
    let measured = of(|gpus| NodeGpus { adds: Some(Watts::from_int(310)), ..gpus });
    assert_watts(as_f64(parts(&measured, None, 1)), 77.5);
    let of_amd = of(|gpus| NodeGpus { vendor: Some(GpuVendor::Amd), ..gpus });
    assert_eq!(parts(&of_amd, None, 4), Watts::ZERO);
    // 350 W where a record has no watts: a quarter of 227.5.
    let silent = of(|gpus| NodeGpus { max: None, ..gpus });
    assert_watts(as_f64(parts(&silent, None, 1)), 56.875);
}

#[test]
fn another_vendor_s_gpus_are_no_gpus() {
    // Fix list extender B23.
    for node_vendor in GpuVendor::ALL {
        let gpus = node_h().gpus.map(|gpus| NodeGpus { vendor: Some(node_vendor), ..gpus });
        for pod_vendor in GpuVendor::ALL {
            let gpu = estimate(
                &HardwareRecord { gpus, ..node_h() },
                &demand(Standard, 1000, Some((1, pod_vendor))),
            )
            .gpu;
            let expected = if node_vendor == pod_vendor { 455 } else { 0 };
            assert_just_above(gpu, expected);
        }
    }
}

#[test]
fn extremes_saturate() {
    let gpus = Some(NodeGpus { count: None, max: Some(Watts::MAX), vendor: None, adds: None });
    let huge = HardwareRecord { cpu_max: Some(Watts::MAX), cores: Some(1), gpus };
    let two = Ratio::from_int(2);
    let coefficients = Coefficients::new(two, two, two).unwrap();
    let pod =
        PodDemand { memory_bytes: u64::MAX, ..demand(Standard, u32::MAX, Some((u32::MAX, GpuVendor::Amd))) };
    let terms = HardwareTerms::of(Some(&huge), &coefficients);
    let estimate = terms.estimate(&DemandTerms::of(&pod, &coefficients));
    assert_eq!((estimate.cpu, estimate.gpu, estimate.total()), (Watts::MAX, Watts::MAX, Watts::MAX));
    let wide = HardwareRecord { cores: Some(u32::MAX), ..huge };
    let one_milli = demand(Standard, 1, None);
    let little =
        HardwareTerms::of(Some(&wide), &REFERENCE).estimate(&DemandTerms::of(&one_milli, &REFERENCE));
    // 0.7 · 2³¹ W over 2³² thousandths.
    assert_watts(as_f64(little.cpu), 0.35);
}

#[test]
fn a_node_s_terms_fit_half_a_cache_line() {
    assert_eq!(size_of::<HardwareTerms>(), 32);
}

/// The formula as it is written on the page.
pub(crate) fn model(
    hardware: &HardwareRecord,
    demand: &PodDemand,
    [cpu, gpu_standard, gpu_performance]: [f64; 3],
) -> f64 {
    let positive = |watts: Option<Watts>| watts.map(as_f64).filter(|&watts| watts > 0.0);
    let cores = f64::from(hardware.cores.unwrap_or(0));
    let cpu_max = positive(hardware.cpu_max).unwrap_or((cores * 3.5).max(150.0));
    let share = (f64::from(demand.cpu.get()) / 1000.0 / cores.max(1.0)).clamp(0.0, 1.0);
    let gib = demand.memory_bytes as f64 / (1_u64 << 30) as f64;
    let cpu_watts = cpu_max * cpu * share * (1.0 + gib * 0.01).clamp(1.0, 1.3);
    let (Some(asked), Some(has)) = (demand.gpus, hardware.gpus) else { return cpu_watts };
    if has.vendor.is_some_and(|vendor| vendor != asked.vendor) {
        return cpu_watts;
    }
    let fallback = if asked.vendor == GpuVendor::Amd { 400.0 } else { 350.0 };
    let each = positive(has.max).unwrap_or(fallback);
    let coefficient = if demand.class == Performance { gpu_performance } else { gpu_standard };
    let most = positive(has.max).unwrap_or(f64::INFINITY);
    let each = positive(has.adds).map_or(each * coefficient, |adds| adds.min(most));
    cpu_watts + f64::from(asked.count.min(has.count.unwrap_or(u32::MAX))) * each
}

#[test]
fn a_million_estimates_lie_within_a_millionth_of_a_watt_of_the_model() {
    let mut dice = crate::placement::dice::Dice::new(1);
    let mut worst = 0.0_f64;
    for _ in 0..1_000_000 {
        let texts = [dice.below(2000) + 1, dice.below(2000) + 1, dice.below(2000) + 1];
        let ratio = |thousandths: u64| {
            Ratio::parse(&std::format!("{}.{:03}", thousandths / 1000, thousandths % 1000), Role::Nearest)
                .unwrap()
        };
        let coefficients = Coefficients::new(ratio(texts[0]), ratio(texts[1]), ratio(texts[2])).unwrap();
        let (hardware, demand) = (dice.hardware(), dice.demand());
        let terms = HardwareTerms::of(Some(&hardware), &coefficients);
        let exact = as_f64(terms.estimate(&DemandTerms::of(&demand, &coefficients)).total());
        let model = model(&hardware, &demand, texts.map(|thousandths| thousandths as f64 / 1000.0));
        worst = worst.max((exact - model).abs());
    }
    assert!(worst < 1e-6, "{worst}");
}

#[test]
fn no_rounding_hides_watts() {
    // The exact formula in whole numbers: the watts are demand, which rounds up.
    let mut dice = crate::placement::dice::Dice::new(2);
    for _ in 0..100_000 {
        let (max, cores) = (dice.below(3000) as i32 + 1, dice.below(500) as u32 + 1);
        let each = dice.below(1500) as i32 + 1;
        let gpus =
            Some(NodeGpus { count: Some(16), max: Some(Watts::from_int(each)), vendor: None, adds: None });
        let node = HardwareRecord { cpu_max: Some(Watts::from_int(max)), cores: Some(cores), gpus };
        let (milli, count, gib) = (dice.below(500_000) as u32, dice.below(17) as u32, dice.below(40));
        let ask = PodDemand {
            memory_bytes: gib << 30,
            ..demand(Standard, milli, Some((count, GpuVendor::Nvidia)))
        };
        let estimate = estimate(&node, &ask);
        // 0.7 · max · milli / (1000 · cores) · (1 + gib / 100), and 0.65 · each · count, over a common denominator.
        let cpu = 7 * i128::from(max) * i128::from(milli.min(cores * 1000)) * i128::from(100 + gib.min(30));
        let cpu_over = estimate.cpu.to_bits() as i128 * 1_000_000 * i128::from(cores) - (cpu << 32);
        assert!(cpu_over >= 0, "{max} {cores} {milli} {gib}");
        let gpu_over =
            estimate.gpu.to_bits() as i128 * 100 - ((65 * i128::from(each) * i128::from(count)) << 32);
        assert!((0..=400).contains(&gpu_over), "{each} {count}");
    }
}

proptest! {
    #[test]
    fn asking_for_more_never_costs_less(
        milli in 0_u32..300_000, more in 0_u32..300_000, gib in 0_u64..100, gpus in 0_u32..10,
        cores in 0_u32..300, watts in -100_i32..2000,
    ) {
        let node = HardwareRecord { cores: Some(cores), cpu_max: Some(Watts::from_int(watts)), ..node_h() };
        let ask = |milli, gib: u64, gpus| {
            let gpus = Some((gpus, GpuVendor::Nvidia));
            estimate(&node, &PodDemand { memory_bytes: gib << 30, ..demand(Standard, milli, gpus) })
        };
        let less = ask(milli, gib, gpus);
        prop_assert!(ask(milli.saturating_add(more), gib, gpus).cpu >= less.cpu);
        prop_assert!(ask(milli, gib + 1, gpus).cpu >= less.cpu);
        prop_assert!(ask(milli, gib, gpus + 1).gpu >= less.gpu);
        prop_assert!(less.cpu >= Watts::ZERO && less.gpu >= Watts::ZERO);
    }
}
