use super::*;
use host_kit::config::{self, Invocation, SettingSources};
use std::ffi::OsString;

fn sources(settings: &[(&str, &str)]) -> SettingSources {
    let settings = settings.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    match Invocation::read(Vec::<OsString>::new(), settings) {
        Invocation::Run(sources) => sources,
        Invocation::Help | Invocation::Version => panic!("neither was asked for"),
    }
}

fn read(settings: &[(&str, &str)]) -> Result<Settings, String> {
    let values = config::load(&TABLE, &sources(settings)).map_err(|refusals| refusals.to_string())?;
    Settings::read(&values).map_err(|refusals| refusals.to_string())
}

const NODE: (&str, &str) = ("NODE_NAME", "node-a");

fn refused(settings: &[(&str, &str)], about: &str) {
    let why = read(settings).map(|_| ()).unwrap_err();
    assert!(why.contains(about), "{settings:?}: {why}");
}

#[test]
fn the_defaults_are_those_of_the_documentation() {
    let settings = read(&[NODE]).unwrap();
    let AgentTarget::Host { node, machine } = &settings.target else { panic!("{:?}", settings.target) };
    assert_eq!((node.as_str(), machine.cpu, machine.gpu), ("node-a", true, true));
    assert_eq!(machine.state, PathBuf::from("/var/lib/joulie"));
    assert_eq!(settings.period, Duration::from_secs(1));
    assert_eq!((settings.desired, settings.on_exit), (DesiredSource::Profile, OnExit::Keep));
    assert_eq!((settings.lease.expiry, settings.lease.term), (LeaseExpiry::Hold, Duration::from_secs(300)));
    let below = read(&[NODE, ("HOST_ROOT", "/host")]).unwrap();
    let AgentTarget::Host { machine, .. } = below.target else { panic!() };
    assert_eq!(machine.state, PathBuf::from("/host.joulie"));
}

#[test]
fn what_the_first_implementation_took_for_a_default_is_refused() {
    // Fix list agent K14 S15: durations without a unit, zero, negative ones; tuning out of its range.
    for interval in ["20", "0s", "-1s", "soon", "61s"] {
        refused(&[NODE, ("RECONCILE_INTERVAL", interval)], "RECONCILE_INTERVAL");
    }
    for (name, value) in [
        ("DVFS_EMA_ALPHA", "0"),
        ("DVFS_EMA_ALPHA", "1.5"),
        ("DVFS_EMA_ALPHA", "NaN"),
        ("DVFS_HIGH_MARGIN_W", "-1"),
        ("DVFS_STEP_PCT", "0"),
        ("DVFS_STEP_PCT", "101"),
        ("DVFS_TRIP_COUNT", "0"),
        ("DVFS_MIN_FREQ_KHZ", "1.5"),
        ("AGENT_MODE", "daemon"),
        ("POOL_NODE_SELECTOR", "a=b,"),
        ("SIMULATE_ONLY", "maybe"),
        ("METRICS_ADDR", "8080"),
    ] {
        refused(&[NODE, (name, value)], name);
    }
    refused(&[], "NODE_NAME");
    refused(&[NODE, ("RECONCILE_INTERVALL", "1s")], "did you mean RECONCILE_INTERVAL?");
    refused(&[NODE, ("TELEMETRY_GPU_SOURCE", "http")], "there is no such setting");
}

#[test]
fn a_word_of_telemetry_means_what_it_says() {
    // Fix list agent S11: none and typos never mean the host.
    for (name, value) in [("TELEMETRY_CPU_CONTROL", "htpp"), ("TELEMETRY_CPU_SOURCE", "prometheus")] {
        refused(&[NODE, (name, value)], name);
    }
    refused(&[NODE, ("TELEMETRY_CPU_CONTROL", "http")], "TELEMETRY_CPU_CONTROL=http needs");
    let none = read(&[NODE, ("TELEMETRY_CPU_CONTROL", "none")]).unwrap();
    let AgentTarget::Host { machine, .. } = none.target else { panic!() };
    assert_eq!((machine.cpu, machine.gpu), (false, true));
    refused(&[NODE, ("TELEMETRY_CPU_SOURCE", "none")], "cannot be turned off");
}

const HTTP: [(&str, &str); 6] = [
    ("TELEMETRY_CPU_SOURCE", "http"),
    ("TELEMETRY_CPU_HTTP_ENDPOINT", "http://sim/telemetry/{node}"),
    ("TELEMETRY_CPU_CONTROL", "http"),
    ("TELEMETRY_CPU_CONTROL_HTTP_ENDPOINT", "http://sim/control/{node}"),
    ("TELEMETRY_CPU_CONTROL_MODE", "dvfs"),
    ("TELEMETRY_HTTP_TIMEOUT_SECONDS", "5"),
];

#[test]
fn endpoints_are_kept_as_they_are_written() {
    // Agent table, rows 6, 10 and 14.
    let mut all = vec![NODE];
    all.extend(HTTP);
    let AgentTarget::Remote { routing, .. } = read(&all).unwrap().target else { panic!() };
    let cpu = routing.cpu.unwrap();
    assert_eq!(routing.source.unwrap().url.to_string(), "http://sim/telemetry/{node}");
    assert_eq!(cpu.url.to_string(), "http://sim/control/{node}");
    assert_eq!((routing.preference, cpu.timeout), (ControlPreference::ThrottleOnly, Duration::from_secs(5)));
    assert_eq!(routing.gpu, None);
    all.push(("TELEMETRY_GPU_CONTROL", "host"));
    refused(&all, "not half and half");
    // Agent table, row 7: an endpoint that nothing asks for changes nothing.
    assert!(matches!(read(&[NODE, HTTP[1]]).unwrap().target, AgentTarget::Host { .. }));
}

#[test]
fn a_pool_is_never_the_host_of_its_agent() {
    // Fix list agent K9.
    let mut all = vec![("AGENT_MODE", "pool")];
    refused(&all, "set at least one to http");
    all.extend(HTTP);
    let AgentTarget::Pool { routing, .. } = read(&all).unwrap().target else { panic!() };
    assert!(routing.cpu.is_some());
    all.push(("TELEMETRY_GPU_CONTROL", "host"));
    refused(&all, "the host of the agent is none of the nodes");
}

#[test]
fn a_part_that_does_not_exist_is_refused() {
    let with = |more: &[(&'static str, &'static str)]| {
        let mut all = vec![("AGENT_MODE", "pool")];
        all.extend(HTTP);
        all.extend(more);
        read(&all)
    };
    let own = |more: &[(&'static str, &'static str)]| match with(more).unwrap().target {
        AgentTarget::Pool { shards, .. } => shards,
        AgentTarget::Host { .. } | AgentTarget::Remote { .. } => panic!(),
    };
    assert_eq!(own(&[("POOL_SHARDS", "4"), ("POD_NAME", "joulie-agent-pool-3")]), Shards::new(4, 3).unwrap());
    assert_eq!(
        own(&[("POOL_SHARDS", "4"), ("POOL_SHARD_ID", "1"), ("POD_NAME", "p-3")]),
        Shards::new(4, 1).unwrap()
    );
    // Fix list agent K11: as many parts as replicas.
    let why = with(&[("POOL_SHARDS", "2"), ("POD_NAME", "joulie-agent-pool-2")]).map(|_| ()).unwrap_err();
    assert!(why.contains("POOL_SHARDS must be the number of replicas"), "{why}");
    for (name, value) in [("POOL_SHARDS", "0"), ("POOL_SHARD_ID", "-1"), ("POOL_SHARD_ID", "x")] {
        assert!(with(&[(name, value)]).is_err(), "{name}={value}");
    }
}

#[test]
fn a_lease_that_could_not_work_is_refused() {
    let both = ": LEASE_EXPIRY=safe needs a safe profile: set SAFE_CPU_CAP_PCT, SAFE_GPU_CAP_PCT, or both";
    refused(&[NODE, ("LEASE_EXPIRY", "safe")], both);
    refused(&[NODE, ("LEASE_EXPIRY", "relax"), ("SPEC_READ_TIMEOUT", "30s")], "a sign of life each minute");
    let settings = read(&[NODE, ("LEASE_EXPIRY", "safe"), ("SAFE_CPU_CAP_PCT", "50")]).unwrap();
    assert_eq!(settings.lease.safe_gpu, CapIntent::NONE);
    let plan = [NODE, ("LEASE_EXPIRY", "relax"), ("SPEC_READ_TIMEOUT", "30s"), ("LEASE_SOURCE", "plan")];
    assert!(read(&plan).is_ok());
}

#[test]
fn a_variable_of_another_version_that_does_nothing_here_is_said_to_do_nothing() {
    // Upstream's agents read the first three; its examples set the others.
    for name in [
        "KUBE_CLIENT_QPS",
        "KUBE_CLIENT_BURST",
        "JOULIE_TELEMETRY_SOURCE_TYPE",
        "JOULIE_TELEMETRY_HTTP_ENDPOINT",
        "JOULIE_CONTROL_TYPE",
    ] {
        let values = config::load(&TABLE, &sources(&[NODE, (name, "1")])).unwrap();
        let [said] = values.warnings() else { panic!("{name}: {:?}", values.warnings()) };
        assert!(said.starts_with(&format!("{name} (environment) has no effect: ")), "{said}");
    }
}

#[test]
fn the_law_is_tracking_unless_classic_or_its_tuning_is_asked_for() {
    let law = |given: &[(&str, &str)]| {
        let dvfs = read(&[&[NODE], given].concat()).unwrap().dvfs;
        let law = match dvfs.law {
            LoopLaw::Classic(_) => "classic",
            LoopLaw::Tracking(_) => "tracking",
        };
        (law, dvfs.note)
    };
    assert_eq!(law(&[]), ("tracking", None));
    assert_eq!(law(&[("DVFS_LAW", "tracking")]), ("tracking", None));
    assert_eq!(law(&[("DVFS_LAW", "classic"), ("DVFS_COOLDOWN", "0s")]), ("classic", None));
    // The floor is of both laws.
    assert_eq!(law(&[("DVFS_MIN_FREQ_KHZ", "1200000")]), ("tracking", None));
    for (name, value) in [
        ("DVFS_EMA_ALPHA", "0.5"),
        ("DVFS_HIGH_MARGIN_W", "20"),
        ("DVFS_LOW_MARGIN_W", "20"),
        ("DVFS_STEP_PCT", "5"),
        ("DVFS_TRIP_COUNT", "3"),
        ("DVFS_COOLDOWN", "5s"),
    ] {
        let (chosen, note) = law(&[(name, value)]);
        assert_eq!(chosen, "classic", "{name}");
        assert!(note.unwrap().contains(name), "{name}");
        let (chosen, note) = law(&[(name, value), ("DVFS_LAW", "tracking")]);
        assert_eq!(chosen, "tracking", "{name}");
        assert!(note.unwrap().contains(&format!("{name}: no effect")), "{name}");
    }
}
