use super::*;
use host_kit::config::{Invocation, load};
use std::ffi::OsString;

fn read(pairs: &[(&str, &str)]) -> Result<Settings, String> {
    let variables = pairs.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let sources = match Invocation::read(std::iter::empty(), variables) {
        Invocation::Run(sources) => sources,
        Invocation::Help | Invocation::Version => panic!("neither was asked for"),
    };
    load(&TABLE, &sources).and_then(|values| Settings::read(&values)).map_err(|refusals| refusals.to_string())
}

#[test]
fn a_cluster_that_is_told_nothing_is_planned_as_the_specification_says() {
    let settings = read(&[]).unwrap();
    assert!(matches!(settings.plan.policy, Policy::StaticPartition(_)));
    assert_eq!((settings.plan.floor, settings.plan.guard), (FamilyFloor::Raise, GuardMode::Soft));
    assert_eq!(settings.lens.source, DesiredSource::Profile);
    assert!(!settings.budget.any() && !settings.policy_unknown);
    assert_eq!(settings.power, PowerSource::Agent);
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_starts() {
    // Fix list operator B12: a percentage out of range never reaches an object. B25: no interval is a busy loop.
    for (name, value) in [
        ("CPU_ECO_CAP_PCT_OF_MAX", "0"),
        ("CPU_ECO_CAP_PCT_OF_MAX", "101"),
        ("GPU_ECO_CAP_PCT_OF_MAX", "150"),
        ("RECONCILE_INTERVAL", "0"),
        ("STATIC_HP_FRAC", "1.5"),
        ("STATIC_HP_FRAC", "NaN"),
        ("GPU_MODEL_CAPS_JSON", "{"),
        ("GPU_MODEL_CAPS_JSON", r#"{"L40S": {"minCapWatts": 400, "maxCapWatts": 350}}"#),
        ("GPU_MODEL_CAPS_JSON", r#"{"L40S": {"minCapWatts": 200}}"#),
        ("BUDGET_SITE_WATTS", "-1"),
        ("BUDGET_RACK_WATTS", "r1=100,r1=200"),
        ("BUDGET_RACK_WATTS", "r1"),
        ("BUDGET_SITE_WAT", "100"),
        ("LEADER_RENEW_DEADLINE", "20s"),
        ("OPERATOR_NODE_POWER_SOURCE", "prometheus"),
        ("NODE_SELECTOR", "a in (b"),
        ("POWER_PROFILE_LABEL", "node.kubernetes.io/power"),
    ] {
        let refused = read(&[(name, value)]).unwrap_err();
        assert!(refused.contains(name), "{name}={value}: {refused}");
    }
}

#[test]
fn limits_are_read_by_rack() {
    let settings =
        read(&[("BUDGET_SITE_WATTS", "9000"), ("BUDGET_RACK_WATTS", "r1=4000.5, *=5000")]).unwrap();
    assert_eq!(settings.budget.site, Some(Watts::from_int(9000)));
    assert_eq!(settings.budget.racks["*"], Watts::from_int(5000));
    assert!(settings.budget.any());
}

#[test]
fn an_unknown_policy_is_the_default_with_a_warning() {
    let settings = read(&[("POLICY_TYPE", "magic")]).unwrap();
    assert!(settings.policy_unknown && matches!(settings.plan.policy, Policy::StaticPartition(_)));
    assert!(matches!(read(&[("POLICY_TYPE", "rule_swap_v1")]).unwrap().plan.policy, Policy::RuleSwap(_)));
}
