use super::*;
use proptest::prelude::*;

fn normalised(name: &str) -> String {
    normal(name).collect()
}

fn cpu(key: &str, aliases: &[&str]) -> CpuModel {
    CpuModel {
        key: key.to_owned(),
        aliases: aliases.iter().map(|&alias| alias.to_owned()).collect(),
        base: KiloHertz::from_int(2_000_000),
        boost: KiloHertz::from_int(3_000_000),
        tdp: Watts::from_int(200),
        configurable_tdp: None,
        cores: None,
        density: None,
    }
}

fn gpu(key: &str) -> GpuModel {
    GpuModel { key: key.to_owned(), aliases: Vec::new(), max: Watts::from_int(300), min: None, density: None }
}

#[test]
fn a_name_is_compared_without_case_marks_and_punctuation() {
    for (name, expected) in [
        ("AMD-EPYC-9654-96-Core-Processor", "amd epyc 9654 96 core processor"),
        ("Intel(R) Xeon(R) Gold 6530", "intel xeon gold 6530"),
        ("INTEL® Xeon™ Gold_6530", "intel xeon gold 6530"),
        ("  NVIDIA   H200 ", "nvidia h200"),
        ("a(tm)b/c,d", "a tm b c d"),
        ("(R)", ""),
        ("--", ""),
        ("", ""),
    ] {
        assert_eq!(normalised(name), expected, "{name:?}");
    }
}

#[test]
fn the_embedded_models_are_a_catalogue_and_answer_to_their_names() {
    // Table C5, catalogue rows.
    let catalog = Catalog::embedded().unwrap();
    let cpu = |name: &str| catalog.cpu(name).map(|cpu| cpu.key.as_str());
    let gpu = |name: &str| catalog.gpu(name).map(|gpu| gpu.key.as_str());
    assert_eq!(cpu("AMD EPYC 9534 64-Core Processor"), Some("AMD_EPYC_9534"));
    assert_eq!(cpu("Intel(R) Xeon(R) Gold 6530"), Some("INTEL_XEON_GOLD_6530"));
    assert_eq!(gpu("AMD_Instinct_MI300X"), Some("AMD_INSTINCT_MI300X"));
    assert_eq!(gpu("NVIDIA-H100-80GB-HBM3"), Some("NVIDIA_H100_SXM"));
    assert_eq!(gpu("NVIDIA H200"), None);
    assert_eq!(gpu("AMD Instinct MI300X VF"), None);
    assert_eq!(cpu("EPYC 9534"), None);
    assert_eq!(cpu(""), None);
}

#[test]
fn the_embedded_figures_are_the_published_ones() {
    let catalog = Catalog::embedded().unwrap();
    let epyc = catalog.cpu("AMD_EPYC_9654").unwrap();
    assert_eq!(epyc.boost, KiloHertz::from_int(3_700_000));
    assert_eq!(epyc.tdp, Watts::from_int(360));
    assert_eq!(epyc.configurable_tdp, Some((Watts::from_int(320), Watts::from_int(400))));
    assert_eq!(format!("{:.4}", epyc.density.unwrap()), "710.4000");
    let board = catalog.gpu("NVIDIA_L40S").unwrap();
    assert_eq!((board.min, board.max), (Some(Watts::from_int(200)), Watts::from_int(350)));
}

#[test]
fn a_name_that_two_models_claim_is_refused_whatever_their_order() {
    // Fix list operator B34.
    let (one, two) = (cpu("ONE", &["shared-name"]), cpu("TWO", &["Shared Name"]));
    for models in [vec![one.clone(), two.clone()], vec![two.clone(), one.clone()]] {
        let error = Catalog::new(models, Vec::new()).unwrap_err();
        assert!(matches!(&error, CatalogError::Ambiguous { name, .. } if name == "shared name"), "{error}");
    }
    // An alias that is another model's key, and the same key twice.
    assert!(Catalog::new(vec![cpu("ONE", &[]), cpu("TWO", &["one"])], Vec::new()).is_err());
    assert!(Catalog::new(Vec::new(), vec![gpu("ONE"), gpu("one")]).is_err());
    // A model may repeat itself, and a CPU and a GPU do not meet.
    assert!(Catalog::new(vec![cpu("ONE", &["one", "One"])], vec![gpu("ONE")]).is_ok());
}

#[test]
fn impossible_figures_are_refused_by_name() {
    let refused = |cpu: CpuModel| Catalog::new(vec![cpu], Vec::new()).unwrap_err();
    let zero = |figure| CatalogError::NotPositive { key: "ONE".to_owned(), figure };
    assert_eq!(refused(CpuModel { tdp: Watts::ZERO, ..cpu("ONE", &[]) }), zero("a design power"));
    assert_eq!(refused(CpuModel { base: KiloHertz::ZERO, ..cpu("ONE", &[]) }), zero("a base frequency"));
    assert_eq!(
        refused(CpuModel { boost: KiloHertz::from_int(-1), ..cpu("ONE", &[]) }),
        zero("a boost frequency")
    );
    assert_eq!(refused(CpuModel { cores: Some(0), ..cpu("ONE", &[]) }), zero("a number of cores"));
    assert_eq!(
        refused(CpuModel { density: Some(Ratio::ZERO), ..cpu("ONE", &[]) }),
        zero("a compute density")
    );
    let inverted = Some((Watts::from_int(300), Watts::from_int(200)));
    assert!(matches!(
        refused(CpuModel { configurable_tdp: inverted, ..cpu("ONE", &[]) }),
        CatalogError::Inverted { .. }
    ));
    assert!(matches!(refused(cpu(" - ", &[])), CatalogError::BlankName { .. }));
    assert!(matches!(refused(cpu("ONE", &[""])), CatalogError::BlankName { .. }));

    let refused = |gpu: GpuModel| Catalog::new(Vec::new(), vec![gpu]).unwrap_err();
    assert_eq!(refused(GpuModel { max: Watts::ZERO, ..gpu("ONE") }), zero("a highest power limit"));
    assert_eq!(refused(GpuModel { min: Some(Watts::ZERO), ..gpu("ONE") }), zero("a lowest power limit"));
    let above = Some(Watts::from_int(301));
    assert!(matches!(refused(GpuModel { min: above, ..gpu("ONE") }), CatalogError::Inverted { .. }));
    assert!(zero("a design power").to_string().contains("above 0"));
}

#[test]
fn a_package_may_draw_what_it_can_be_configured_for() {
    let catalog = Catalog::embedded().unwrap();
    let ends = |name| catalog.cpu(name).map(|cpu| (cpu.least(), cpu.most()));
    let watts = Watts::from_int;
    for (name, least, most) in [
        ("AMD_EPYC_9654", Some(320), 400),
        ("AMD_EPYC_9965", Some(450), 500),
        ("AMD_EPYC_9375F", Some(320), 400),
        ("INTEL_XEON_GOLD_6530", None, 270),
    ] {
        assert_eq!(ends(name), Some((least.map(watts), watts(most))), "{name}");
    }
}

proptest! {
    #[test]
    fn normalising_twice_changes_nothing(name in "\\PC{0,40}") {
        let once = normalised(&name);
        prop_assert_eq!(normalised(&once), once.clone());
        prop_assert!(!once.starts_with(' ') && !once.ends_with(' ') && !once.contains("  "));
    }
}
