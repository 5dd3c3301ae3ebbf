use super::*;

const EXAMPLE: &str = include_str!("../examples/hardware.yaml");

fn with(from: &str, to: &str) -> Result<Catalog, String> {
    assert!(EXAMPLE.contains(from), "{from}");
    parse(EXAMPLE.replacen(from, to, 1).as_bytes()).map_err(|error| error.to_string())
}

fn refusal(from: &str, to: &str) -> String {
    with(from, to).map(drop).unwrap_err()
}

#[test]
fn a_model_of_the_file_takes_the_place_of_the_built_in_one_and_the_others_stay() {
    let catalog = parse(EXAMPLE.as_bytes()).unwrap();
    let epyc = catalog.cpu("amd epyc 9654 96-core processor").unwrap();
    // The upper end of its range, which is 400 W in the built-in catalogue. The format has no cores: the built-in 96.
    assert_eq!((epyc.most(), epyc.cores), (Watts::from_int(380), Some(96)));
    let xeon = catalog.cpu("Intel(R) Xeon(R) Platinum 8480+").unwrap();
    assert_eq!((xeon.most(), xeon.base), (Watts::from_int(350), KiloHertz::from_int(2_000_000)));
    let h200 = catalog.gpu("NVIDIA H200").unwrap();
    assert_eq!((h200.max, h200.min), (Watts::from_int(700), Some(Watts::from_int(200))));
    assert_eq!(catalog.gpu("NVIDIA H100 NVL").unwrap().max, Watts::from_int(400), "built in");
    assert!(parse(b"catalogVersion: v1").unwrap().cpu("AMD_EPYC_9655").is_some(), "nothing to add");
}

#[test]
fn the_range_is_read_in_each_form() {
    for form in ["\"320-380\"", "320-380", "320 – 380", "{min: 320, max: 380}", "[320.0, 380]"] {
        let catalog = with("[320, 380]", form).unwrap();
        assert_eq!(catalog.cpu("AMD_EPYC_9654").unwrap().most(), Watts::from_int(380), "{form}");
    }
}

#[test]
fn what_cannot_be_is_refused_with_its_line_or_field() {
    for (from, to, words) in [
        (
            "tdpW: 360",
            "tdpW: -1",
            "cpuModels.AMD_EPYC_9654.official.tdpW: expected a number of watts above 0",
        ),
        ("tdpW: 360", "tdpW: .nan", "AMD_EPYC_9654.official.tdpW"),
        ("tdpW: 360", "tdpW: 1e9", "up to 100000, found 1000000000"),
        ("tdpW: 360", "tdpW: lots", "line 12"),
        ("tdpW: 360", "tdpW: 0.0000000000001", "expected a design power above 0"),
        ("baseGHz: 2.4", "baseGHz: 0", "official.baseGHz: expected a number of GHz"),
        ("[320, 380]", "[380, 320]", "expected a configurable design power whose lower end"),
        ("[320, 380]", "[320]", "two figures"),
        ("[320, 380]", "wide", "two figures"),
        ("maxBoardPowerW: 700", "maxBoardPowerW: 100", "expected a power limit whose lower end"),
        ("computeDensity: 700", "computeDensity: .inf", "gpuModels.NVIDIA_H200.computeDensity"),
        ("      vendor: AMD\n", "      vendor: AMD\n      tdp: 3\n", "tdp"),
        ("catalogVersion: v1", "catalogVersion: \"\"", "catalogVersion: expected a version"),
        ("catalogVersion: v1\n", "", "catalog"),
        ("\"NVIDIA H200\"", "\"NVIDIA H100 NVL\"", "belongs to both"),
        ("NVIDIA_H200:", "\"--\":", "at least one letter or digit"),
        ("NVIDIA_H200:", "\"a\\nb\":", "gpuModels.ab: expected a name"),
        ("gpuModels:", "cpuModels:", "cpuModels"),
        ("aliases: [\"NVIDIA H200\"]", "aliases: &a [x]\n    provenance: *a", ""),
    ] {
        let said = refusal(from, to);
        assert!(said.contains(words), "{to}: {said}");
        assert!(!said.contains('\n') && said.len() < 1000, "{said}");
    }
    let points = EXAMPLE.find("        points:").unwrap()..EXAMPLE.find("  INTEL").unwrap();
    let none = [&EXAMPLE[..points.start], "        points: []\n", &EXAMPLE[points.end..]].concat();
    let said = parse(none.as_bytes()).unwrap_err().to_string();
    assert!(said.contains("measuredCurves.node2S.points: expected at least one point"), "{said}");
}

#[test]
fn a_file_that_is_none_is_refused_before_it_is_kept() {
    assert_eq!(parse(&vec![b' '; BYTES_MAX + 1]).unwrap_err(), ContentError::TooLarge);
    let said = parse(b"catalogVersion: v1\n\xff").unwrap_err().to_string();
    assert_eq!(said, "line 2: it is not UTF-8");
    assert!(parse(b"").is_err() && parse(b"[]").is_err() && parse(b"3").is_err());
    let deep = format!("catalogVersion: v1\ncpuModels: {}", "[".repeat(10_000));
    assert!(parse(deep.as_bytes()).is_err());
    let many: String =
        (0..=MODELS_MAX).map(|at| format!("  G{at}: {{official: {{maxBoardPowerW: 1}}}}\n")).collect();
    let said = parse(format!("catalogVersion: v1\ngpuModels:\n{many}").as_bytes()).unwrap_err();
    assert!(said.to_string().contains("expected at most 1000 models, found 1001"), "{said}");
    let missing = load(Some(Path::new("/nonexistent/hardware.yaml"))).unwrap_err().to_string();
    assert!(missing.starts_with("/nonexistent/hardware.yaml: "), "{missing}");
    assert!(load(None).unwrap().gpu("NVIDIA_L40S").is_some());
}
