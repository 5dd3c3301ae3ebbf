use super::*;

fn notes(of: &[(&str, &str)]) -> BTreeMap<String, String> {
    of.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn a_pod_that_says_nothing_is_busy_as_its_class_usually_is() {
    let standard = Work::read(&notes(&[]), 4.0, 0, false).unwrap();
    assert_eq!(
        (standard.cpu_class, standard.cpu_utilisation, standard.memory),
        (LoadBottleneck::Mixed, 0.65, 0.45)
    );
    assert_eq!((standard.io, standard.duration, standard.exit_code), (0.10, None, 0));
    let performance = Work::read(&notes(&[]), 0.0, 2, true).unwrap();
    assert_eq!((performance.cpu_class, performance.cpu_utilisation), (LoadBottleneck::Compute, 0.95));
    assert_eq!((performance.cpus, performance.gpu_utilisation, performance.feed), (0.1, 0.80, 0.45));
}

#[test]
fn the_defaults_of_each_class_are_upstreams() {
    for (word, cpu, gpu, memory, io) in [
        ("compute_bound", 0.95, 0.95, 0.20, 0.10),
        ("memory_bound", 0.60, 0.70, 0.85, 0.10),
        ("io_bound", 0.20, 0.80, 0.20, 0.85),
        ("mixed", 0.65, 0.80, 0.45, 0.10),
    ] {
        let work = Work::read(&notes(&[(CPU_CLASS, word), (GPU_CLASS, word)]), 1.0, 1, false).unwrap();
        assert_eq!((work.cpu_utilisation, work.gpu_utilisation), (cpu, gpu), "{word}");
        assert_eq!((work.memory, work.io), (memory, io), "{word}");
    }
}

#[test]
fn an_annotation_that_says_nothing_is_refused_with_what_is_accepted() {
    for (name, values) in [
        (DURATION, &["", "0s", "-1s", "forever", "9ms", "8761h", "1e9"][..]),
        (CPU_CLASS, &["", "fast", "COMPUTE_BOUND"][..]),
        (GPU_CLASS, &["gpu.compute"][..]),
        (CPU_UTIL, &["101", "-1", "NaN", "inf", "50%"][..]),
        (GPU_UTIL, &["1e9"][..]),
        (MEMORY, &["-0.1"][..]),
        (IO, &["1.1", "nan"][..]),
        (EXIT_CODE, &["256", "-1", "1.5"][..]),
    ] {
        for value in values {
            let said = Work::read(&notes(&[(name, value)]), 1.0, 0, false).unwrap_err().to_string();
            assert!(said.starts_with(&format!("the annotation {name} is {value:?}; ")), "{said}");
        }
    }
    let long = "9".repeat(10_000);
    assert!(Work::read(&notes(&[(IO, &long)]), 1.0, 0, false).unwrap_err().to_string().len() < 300);
}

#[test]
fn what_waits_does_not_follow_the_clock_and_draws_less() {
    let of = |memory, io| Work::read(&notes(&[(MEMORY, memory), (IO, io)]), 1.0, 0, false).unwrap();
    let pure = of("0", "0");
    assert_eq!((pure.pace(0.5, 1.0), pure.intensity()), (0.5, 1.0));
    // Half of the time waits: 0.5/0.5 + 0.5 = 1.5 times as long.
    assert_eq!(of("50", "0").pace(0.5, 1.0), 1.0 / 1.5);
    // 1 − 0.3·0.5 − 0.45·0.5
    assert!((of("50", "0.5").intensity() - 0.625).abs() < 1e-12);
    assert_eq!(of("100", "1").intensity(), 0.35);
    assert_eq!(of("0", "1").pace(0.25, 1.0), 1.0);
}

#[test]
fn a_gpu_pod_follows_its_gpus_and_a_part_of_its_processors() {
    let pure = [(MEMORY, "0"), (IO, "0"), (GPU_CLASS, "compute_bound")];
    let work = Work::read(&notes(&pure), 1.0, 1, false).unwrap();
    assert_eq!(work.pace(1.0, 1.0), 1.0);
    assert!((work.pace(0.5, 1.0) - (1.0 - 0.45 * 0.5)).abs() < 1e-12);
    assert!((work.pace(1.0, 0.5) - 0.5 / (0.8 + 0.2 * 0.5)).abs() < 1e-12);
}
