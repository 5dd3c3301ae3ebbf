//! The rows of conformance table C15, and the tested thresholds.

use super::*;
use power_units::MicroJoules;

fn hints(class: &str) -> Hints {
    Hints::read(Some(class), None)
}

fn metrics(cpu: &str, gpu: &str, memory: &str) -> WorkloadMetrics {
    let read = |text: &str| Percent::parse(text, Role::Nearest).ok();
    WorkloadMetrics { cpu: read(cpu), gpu: read(gpu), memory: read(memory), energy: None }
}

fn with_energy(metrics: WorkloadMetrics, (package, dram, gpu): (u64, u64, u64)) -> WorkloadMetrics {
    let joules = MicroJoules::new;
    WorkloadMetrics {
        energy: Some(Energy { package: joules(package), dram: joules(dram), gpu: joules(gpu) }),
        ..metrics
    }
}

fn profile(metrics: WorkloadMetrics) -> WorkloadProfile {
    classify(&hints(""), Some(&metrics))
}

type Row = (Intensity, Bound, Sensitivity);

fn cpu(metrics: WorkloadMetrics) -> Row {
    let cpu = profile(metrics).cpu;
    (cpu.intensity, cpu.bound, cpu.sensitivity)
}

fn gpu(metrics: WorkloadMetrics) -> Row {
    let gpu = profile(metrics).gpu;
    (gpu.intensity, gpu.bound, gpu.sensitivity)
}

fn tenths(class: &str, metrics: WorkloadMetrics) -> Confidence {
    classify(&hints(class), Some(&metrics)).confidence
}

#[test]
fn c15_what_the_processors_say() {
    use Bound::{Compute, Io, Memory, Mixed};
    use Intensity::{High, Low, Medium};
    let row = |cpu_, gpu_, memory| cpu(metrics(cpu_, gpu_, memory));
    assert_eq!(row("0", "0", "0"), (Low, Io, Sensitivity::Low));
    assert_eq!(row("10", "", "20"), (Low, Io, Sensitivity::Low));
    assert_eq!(row("50", "", ""), (Medium, Mixed, Sensitivity::Medium));
    assert_eq!(row("85", "", ""), (High, Compute, Sensitivity::High));
    assert_eq!(row("50", "90", ""), (Medium, Mixed, Sensitivity::Low));
    assert_eq!(row("55", "", "60"), (Medium, Memory, Sensitivity::Low));
}

#[test]
fn c15_what_the_graphics_processors_say() {
    use Bound::{Compute, Memory, Mixed};
    use Intensity::{High, Low, Medium};
    let row = |cpu_, gpu_, memory| gpu(metrics(cpu_, gpu_, memory));
    assert_eq!(row("40", "85", ""), (High, Compute, Sensitivity::High));
    assert_eq!(row("50", "90", ""), (High, Compute, Sensitivity::High));
    assert_eq!(row("", "80", "10"), (High, Compute, Sensitivity::High));
    assert_eq!(row("", "50", "70"), (Medium, Memory, Sensitivity::Medium));
    assert_eq!(row("", "15", ""), (Low, Mixed, Sensitivity::Low));
    assert_eq!(row("", "40", ""), (Medium, Mixed, Sensitivity::Medium));
    let none = (Intensity::None, Bound::None, Sensitivity::None);
    assert_eq!(row("50", "0", ""), none);
    assert_eq!(row("0", "0", "0"), none);
    assert_eq!(row("50", "", ""), none);
    // Energy alone shows that a graphics processor exists.
    let drawing = with_energy(metrics("50", "", ""), (50, 10, 1));
    assert_eq!(gpu(drawing), (Low, Mixed, Sensitivity::Low));
}

#[test]
fn c15_the_thresholds_that_were_probed() {
    let intensity = |text| profile(metrics(text, "", "")).cpu.intensity;
    assert_eq!((intensity("74.9"), intensity("75")), (Intensity::Medium, Intensity::High));
    assert_eq!((intensity("29.9"), intensity("30")), (Intensity::Low, Intensity::Medium));
    let bound = |cpu, memory| profile(metrics(cpu, "", memory)).cpu.bound;
    assert_eq!((bound("19.9", ""), bound("20", "")), (Bound::Io, Bound::Mixed));
    assert_eq!((bound("65", ""), bound("65.1", "")), (Bound::Mixed, Bound::Compute));
    let sensitivity = |cpu| profile(metrics(cpu, "", "")).cpu.sensitivity;
    assert_eq!((sensitivity("70"), sensitivity("70.1")), (Sensitivity::Medium, Sensitivity::High));
    assert_eq!(bound("70.1", "50"), Bound::Mixed);
    assert_eq!(bound("59.9", "50.1"), Bound::Memory);
    assert_eq!(bound("60", "80"), Bound::Mixed);
    let of_gpu = |gpu| profile(metrics("", gpu, "")).gpu.intensity;
    assert_eq!((of_gpu("24.9"), of_gpu("25")), (Intensity::Low, Intensity::Medium));
    assert_eq!((of_gpu("69.9"), of_gpu("70")), (Intensity::Medium, Intensity::High));
    // Not dominant at 40, dominant at 41 beside 40 % of the processors.
    assert_eq!(profile(metrics("40", "40", "")).cpu.sensitivity, Sensitivity::Medium);
    assert_eq!(profile(metrics("40", "41", "")).cpu.sensitivity, Sensitivity::Low);
    assert_eq!(profile(metrics("", "50", "60")).gpu.bound, Bound::Compute);
    assert_eq!(profile(metrics("", "50", "60.1")).gpu.bound, Bound::Memory);
}

#[test]
fn c15_the_energy_overrides_the_utilisation() {
    // Fix list operator B-C1: the shares are of energy: 80 of 100 J, 9 of 89 J; 50 of 100 J.
    use Bound::{Compute, Memory};
    use Intensity::{High, Medium};
    let compute = with_energy(metrics("90", "", ""), (80, 9, 11));
    assert_eq!(cpu(compute), (High, Compute, Sensitivity::High));
    let memory = with_energy(metrics("55", "", ""), (50, 50, 0));
    assert_eq!(cpu(memory), (Medium, Memory, Sensitivity::Low));
    let overridden = with_energy(metrics("50", "", "60"), (80, 20, 0));
    assert_eq!(cpu(overridden), (Medium, Compute, Sensitivity::High));
    assert!(profile(overridden).reason.contains("kepler override"));
    assert_eq!(cpu(with_energy(metrics("80", "", ""), (50, 50, 0))), (High, Memory, Sensitivity::Low));
    // Strictly above 0.70 and 0.40.
    assert_eq!(profile(with_energy(metrics("50", "", ""), (70, 30, 0))).cpu.bound, Bound::Mixed);
    assert_eq!(profile(with_energy(metrics("50", "", ""), (60, 40, 0))).cpu.bound, Bound::Mixed);
    // Zero energy overrides nothing.
    assert_eq!(profile(with_energy(metrics("50", "", ""), (0, 0, 0))).cpu.bound, Bound::Mixed);
}

#[test]
fn a_workload_that_waits_is_not_made_compute_bound_by_the_idle_energy_of_its_package() {
    assert_eq!(profile(with_energy(metrics("10", "", ""), (95, 5, 0))).cpu.bound, Bound::Io);
    assert_eq!(profile(with_energy(metrics("29.9", "", ""), (95, 5, 0))).cpu.bound, Bound::Mixed);
    assert_eq!(profile(with_energy(metrics("30", "", ""), (95, 5, 0))).cpu.bound, Bound::Compute);
}

#[test]
fn c15_confidence_is_the_number_of_things_known() {
    let idle = metrics("0", "0", "20");
    let busy = metrics("70", "", "");
    let measured = with_energy(busy, (1, 0, 0));
    for (class, expected) in
        [("", [3, 5, 7]), ("standard", [3, 5, 7]), ("performance", [5, 7, 9]), ("odd", [5, 7, 9])]
    {
        let found = [tenths(class, idle), tenths(class, busy), tenths(class, measured)];
        assert_eq!(found, expected.map(Confidence::tenths), "{class:?}");
    }
}

#[test]
fn c15_without_metrics_there_are_hints() {
    for metrics in [None, Some(WorkloadMetrics::default())] {
        let profile = classify(&hints("performance"), metrics.as_ref());
        assert_eq!((profile.cpu.intensity, profile.gpu.intensity), (Intensity::Medium, Intensity::None));
        assert_eq!((profile.cpu.bound, profile.cpu.sensitivity), (Bound::Mixed, Sensitivity::Medium));
        assert_eq!(profile.confidence, Confidence::tenths(3));
        assert!(profile.reason.starts_with("hints only"));
        assert_eq!(profile.class, WorkloadClass::Performance);
    }
}

#[test]
fn c15_the_summary_names_what_there_is() {
    let busy = with_energy(metrics("40", "85", ""), (1, 1, 8));
    let summary = classify(&hints("performance"), Some(&busy)).summary();
    assert_eq!(summary, "cpu=medium/memory gpu=high/compute high-confidence");
    assert_eq!(profile(metrics("10", "", "")).summary(), "cpu=low/io medium-confidence");
}

#[test]
fn a_reason_names_every_rule_that_decided() {
    let reason = profile(metrics("90", "85", "10")).reason;
    let expected = "cpu-intensity=high (cpu=90.0%); cpu-bound=compute (cap-sensitivity=high); \
                    gpu-intensity=high (gpu=85.0%); gpu-bound=compute (cap-sensitivity=high)";
    assert_eq!(reason, expected);
}

#[test]
fn c15_a_class_from_metrics() {
    let derive = |cpu, gpu, memory| derive_class(&hints(""), &metrics(cpu, gpu, memory));
    use WorkloadClass::{Performance, Standard};
    assert_eq!(derive("80", "", "20"), Performance);
    assert_eq!(derive("30", "45", ""), Performance);
    assert_eq!(derive("", "60", ""), Performance);
    assert_eq!(derive("90", "60", ""), Performance);
    assert_eq!(derive("20", "5", "10"), Standard);
    assert_eq!(derive("40", "0", "70"), Standard);
    assert_eq!(derive("64", "", "30"), Standard);
    assert_eq!(derive("85", "0", "15"), Performance);
    assert_eq!(derive("15", "0", "10"), Standard);
    assert_eq!(derive("30", "85", "20"), Performance);
    // A named class stays.
    assert_eq!(derive_class(&hints("standard"), &metrics("80", "", "20")), Standard);
    assert_eq!(derive_class(&hints("performance"), &metrics("1", "", "")), Performance);
}

#[test]
fn a_signal_that_is_missing_is_no_evidence() {
    // An unknown use of the processors is not zero use.
    let unknown = profile(metrics("", "10", ""));
    assert_eq!((unknown.cpu.intensity, unknown.cpu.bound), (Intensity::Medium, Bound::Mixed));
    assert_eq!(unknown.cpu.utilization, None);
    assert_eq!(unknown.confidence, Confidence::tenths(3));
}
