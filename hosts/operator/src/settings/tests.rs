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
    assert_eq!(settings.power.sources, [PowerSource::Agent]);
    assert!(settings.facility.is_none() && settings.prometheus.is_none());
    assert!(settings.rescheduling.eviction.is_none());
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
        ("UI", "write"),
        ("LEADER_RENEW_DEADLINE", "20s"),
        ("OPERATOR_NODE_POWER_SOURCE", "prometheus"),
        ("NODE_SELECTOR", "a in (b"),
        ("POWER_PROFILE_LABEL", "node.kubernetes.io/power"),
        ("RESCHEDULE_THRESHOLD", "101"),
        ("RESCHEDULE_INTERVAL", "0"),
        ("RESCHEDULE_MAX_EVICTIONS", "0"),
        ("RESCHEDULE_MAX_EVICTIONS_PER_NODE", "6"),
        ("RESCHEDULE_WINDOW", "31m"),
        ("RESCHEDULE_WINDOWS", "10m"),
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
        "CLASSIFY_SIM_NOISE_PCT",
        "DRAINING_LABEL",
        "WORKLOAD_INTENT_LABEL",
        "PERFORMANCE_INTENT_VALUE",
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

#[test]
fn the_sources_of_power_have_an_order_and_what_they_need() {
    let address = ("PROMETHEUS_ADDRESS", "http://prom:9090/prefix");
    let meters = |source: &str| -> Result<Vec<&'static str>, String> {
        let query = ("OPERATOR_NODE_POWER_PROMETHEUS_QUERY", "ipmi_dcmi_power_consumption_watts");
        let settings = read(&[("OPERATOR_NODE_POWER_SOURCE", source), address, query])?;
        let name = |source: &PowerSource| planner::power::MeasurementSource::Meter(source.meter()).as_str();
        Ok(settings.power.sources.iter().map(name).collect())
    };
    assert_eq!(meters("agent, kepler,prometheus,http").unwrap(), ["agent", "kepler", "prometheus", "http"]);
    assert_eq!(meters("kepler,static").unwrap(), ["kepler"]);
    assert_eq!(meters("utilization").unwrap(), [""; 0]);
    for wrong in ["", "agent,agent", "static,agent", "rapl", "agent,,kepler"] {
        assert!(meters(wrong).is_err() || wrong.is_empty(), "{wrong}");
    }
    for (source, missing) in
        [("kepler", "PROMETHEUS_ADDRESS"), ("prometheus", "OPERATOR_NODE_POWER_PROMETHEUS_QUERY")]
    {
        let why = read(&[("OPERATOR_NODE_POWER_SOURCE", source)]).unwrap_err();
        assert!(why.contains(missing), "{why}");
    }
}

#[test]
fn the_sensors_of_the_building_are_asked_where_a_server_is_named() {
    let on = ("ENABLE_FACILITY_METRICS", "true");
    let shared = ("PROMETHEUS_ADDRESS", "http://prom:9090");
    let own = ("FACILITY_PROMETHEUS_ADDRESS", "http://dcim:9090");
    let facility = |said: &[(&str, &str)]| read(said).unwrap().facility.unwrap();
    assert_eq!(facility(&[on]).access.address.as_str(), "http://prometheus-operated.monitoring:9090");
    assert_eq!(facility(&[on, shared]).access.address.as_str(), "http://prom:9090");
    let facility = facility(&[on, shared, own, ("FACILITY_AMBIENT_TEMP_METRIC", "none")]);
    assert_eq!((facility.access.address.as_str(), &facility.ambient), ("http://dcim:9090", &None));
    assert_eq!(facility.it_power.as_deref(), Some("datacenter_total_it_power_watts"));
    for (name, value) in [
        ("FACILITY_ZONE_AMBIENT_METRIC_TEMPLATE", "t{rack}"),
        ("FACILITY_IT_POWER_METRIC", "p{node}"),
        ("FACILITY_POLL_INTERVAL", "0"),
        ("COOLING_MODEL", "magic"),
        ("COOLING_REFERENCE_WATTS", "0"),
        ("COOLING_TABLE", "20"),
        ("COOLING_TABLE", "warm=50"),
        ("COOLING_TABLE", "20=50,30=60"),
        ("COOLING_TABLE", "20=NaN"),
        ("RACK_CAPACITY_WATTS", "r1=-1"),
    ] {
        assert!(read(&[on, shared, (name, value)]).unwrap_err().contains(name), "{name}={value}");
    }
}

#[test]
fn a_cooling_by_table_has_a_table() {
    use planner::twin::cooling::Cooling;
    let by_table = ("COOLING_MODEL", "table");
    assert!(read(&[by_table]).unwrap_err().contains("COOLING_TABLE"));
    let table = ("COOLING_TABLE", "18=100, 27.5=80,35=45");
    let Cooling::Table(read_table) = read(&[by_table, table]).unwrap().plan.twin.cooling else { panic!() };
    assert_eq!(Ok(read_table), super::facility::cooling_table(table.1).map_err(|_| ()));
    // The table alone changes nothing, so that the model can be switched back and forth.
    assert!(matches!(read(&[table]).unwrap().plan.twin.cooling, Cooling::Measured(_)));
}

#[test]
fn a_rack_can_supply_what_is_said_of_it_and_else_what_its_limit_allows() {
    use planner::twin::psu::PsuLimits;
    let w = Watts::from_int;
    let psu = |said: &[(&str, &str)]| read(said).unwrap().plan.twin.psu;
    let racks =
        |racks: &[(&str, i32)]| racks.iter().map(|&(rack, watts)| (rack.to_owned(), w(watts))).collect();
    assert_eq!(psu(&[]), PsuLimits::STANDARD);
    let limits = ("BUDGET_RACK_WATTS", "r1=4000,r2=5000,*=6000");
    assert_eq!(psu(&[limits]), PsuLimits::new(w(6000), racks(&[("r1", 4000), ("r2", 5000)])).unwrap());
    let both = psu(&[limits, ("RACK_CAPACITY_WATTS", "r2=9000,*=12000")]);
    assert_eq!(both, PsuLimits::new(w(12_000), racks(&[("r1", 4000), ("r2", 9000)])).unwrap());
}
