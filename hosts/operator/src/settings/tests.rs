use super::*;
use host_kit::config::{Invocation, load};
use std::ffi::OsString;

fn values(pairs: &[(&str, &str)]) -> Result<Values, Refusals> {
    let variables = pairs.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let sources = match Invocation::read(std::iter::empty(), variables) {
        Invocation::Run(sources) => sources,
        Invocation::Help | Invocation::Version => panic!("neither was asked for"),
    };
    load(&TABLE, &sources)
}

pub(crate) fn read(pairs: &[(&str, &str)]) -> Result<Settings, String> {
    values(pairs).and_then(|values| Settings::read(&values)).map_err(|refusals| refusals.to_string())
}

#[test]
fn a_cluster_that_is_told_nothing_is_planned_as_the_specification_says() {
    let settings = read(&[]).unwrap();
    assert!(matches!(settings.plan.policy, PlacementPolicy::StaticPartition(_)));
    assert_eq!((settings.plan.floor, settings.plan.guard), (FamilyFloor::Raise, GuardMode::Soft));
    assert_eq!(settings.selectors.source, DesiredKind::Profile);
    assert!(!settings.plan.budget.any() && !settings.policy_unknown);
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
    assert_eq!(settings.plan.budget.site, Some(Watts::from_int(9000)));
    assert_eq!(settings.plan.budget.racks["*"], Watts::from_int(5000));
    assert!(settings.plan.budget.any());
}

#[test]
fn an_unknown_policy_is_the_default_with_a_warning() {
    let settings = read(&[("POLICY_TYPE", "magic")]).unwrap();
    assert!(settings.policy_unknown && matches!(settings.plan.policy, PlacementPolicy::StaticPartition(_)));
    assert!(matches!(
        read(&[("POLICY_TYPE", "rule_swap_v1")]).unwrap().plan.policy,
        PlacementPolicy::RuleSwap(_)
    ));
}

#[test]
fn a_variable_of_another_version_that_does_nothing_here_is_said_to_do_nothing() {
    // Settings that upstream's operators of v0.0.1 to v0.1.1 read or documented, and this one does not read.
    for name in [
        "ENABLE_FACILITY_METRICS",
        "FACILITY_PROMETHEUS_ADDRESS",
        "FACILITY_POLL_INTERVAL",
        "FACILITY_AMBIENT_TEMP_METRIC",
        "FACILITY_IT_POWER_METRIC",
        "FACILITY_COOLING_POWER_METRIC",
        "FACILITY_ZONE_AMBIENT_METRIC_TEMPLATE",
        "FACILITY_RACK_POWER_METRIC_TEMPLATE",
        "CLASSIFY_SIM_NOISE_PCT",
        "ENABLE_ACTIVE_RESCHEDULING",
        "RESCHEDULE_INTERVAL",
        "RESCHEDULE_MAX_EVICTIONS_PER_NODE",
        "RESCHEDULE_DRY_RUN",
        "DRAINING_LABEL",
        "WORKLOAD_INTENT_LABEL",
        "PERFORMANCE_INTENT_VALUE",
        "HARDWARE_CATALOG_PATH",
        "KUBE_CLIENT_QPS",
        "KUBE_CLIENT_BURST",
    ] {
        let values = values(&[(name, "1")]).unwrap();
        let [said] = values.warnings() else { panic!("{name}: {:?}", values.warnings()) };
        assert!(said.starts_with(&format!("{name} (environment) has no effect: ")), "{said}");
        assert!(!said.contains("nothing read it"), "seed 001 reads it: {said}");
    }
    assert_eq!(values(&[("FACILITY_SERVICE_HOST", "10.0.0.1")]).unwrap().warnings(), [""; 0]);
}
