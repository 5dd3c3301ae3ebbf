use super::*;
use std::ffi::OsString;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

static INTERVAL: ConfigSetting<Duration> = ConfigSetting::with_default(
    "RECONCILE_INTERVAL",
    "20s",
    |text| parse::duration(text, SECOND..=DAY),
    "a duration from 1s to 24h, such as 20s or 1m30s",
    "Between two passes.",
);
static NODE: ConfigSetting<String> = ConfigSetting::required(
    "NODE_NAME",
    "set it from spec.nodeName of the pod",
    parse::object_name,
    "the name of a node",
    "The node that this agent is on.",
);
static TOKEN: ConfigSetting<Option<String>> =
    ConfigSetting::optional("DEBUG_TOKEN", |text| parse::text(text).map(Some), "any text", "Opens /debug.")
        .secret();
static SIMULATE: ConfigSetting<bool> =
    ConfigSetting::with_default("SIMULATE_ONLY", "false", parse::boolean, "true or false", "Writes nothing.")
        .or_called(&["DRY_RUN"]);
static SHARDS: ConfigSetting<u32> = ConfigSetting::with_default(
    "POOL_SHARDS",
    "1",
    |text| parse::whole(text, 1..=1024),
    "1 to 1024",
    "Shards.",
);
static UNLISTED: ConfigSetting<bool> = ConfigSetting::with_default("UNLISTED", "no", parse::boolean, "", "");

static TABLE: SettingsTable = SettingsTable {
    program: "agent",
    about: "caps a node",
    settings: &[&INTERVAL, &NODE, &TOKEN, &SIMULATE, &SHARDS],
    retired: &[
        Retired { name: "KEPLER_AVAILABLE", note: "Kepler is looked for" },
        Retired { name: "FACILITY_*", note: "the facility is not looked at" },
        Retired { name: "RECONCILE_*", note: "changes are seen when they come" },
    ],
    families: &["JOULIE_", "POOL_"],
};

fn sources(flags: &[&str], environment: &[(&str, &str)]) -> SettingSources {
    let environment = environment.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    match Invocation::read(flags.iter().map(OsString::from), environment) {
        Invocation::Run(sources) => sources,
        Invocation::Help | Invocation::Version => panic!("not asked for"),
    }
}

fn read(flags: &[&str], environment: &[(&str, &str)]) -> Result<Values, Refusals> {
    load(&TABLE, &sources(flags, environment))
}

fn refused(flags: &[&str], environment: &[(&str, &str)]) -> String {
    read(flags, environment).expect_err("it should be refused").to_string()
}

fn file(name: &str, text: &[u8]) -> String {
    let path = std::env::temp_dir().join(format!("host-kit-{}-{name}", std::process::id()));
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

const ME: (&str, &str) = ("NODE_NAME", "node-a");

#[test]
fn a_flag_wins_over_a_variable_and_a_variable_over_the_file() {
    let path = file("order", b"# ours\n\nRECONCILE_INTERVAL = \"3s\"\nPOOL_SHARDS=3\nSIMULATE_ONLY=yes\n");
    let config = ("JOULIE_CONFIG", path.as_str());
    let values =
        read(&["--reconcile-interval=1s"], &[ME, config, ("RECONCILE_INTERVAL", "2s"), ("POOL_SHARDS", "2")]);
    let values = values.unwrap();
    assert_eq!(values.get(&INTERVAL), Ok(SECOND));
    assert_eq!(values.get(&SHARDS), Ok(2));
    assert_eq!(values.get(&SIMULATE), Ok(true));
    assert_eq!(values.get(&TOKEN), Ok(None));
    assert_eq!(
        values.render(),
        format!(
            "DEBUG_TOKEN=(none) (default)\nNODE_NAME=node-a (environment)\nPOOL_SHARDS=2 (environment)\n\
             RECONCILE_INTERVAL=1s (flag)\nSIMULATE_ONLY=yes ({path}:5)\n"
        )
    );
}

#[test]
fn everything_that_is_wrong_is_said_at_once_with_name_value_place_and_what_is_accepted() {
    let said = refused(
        &["--pool-shards", "0", "--intervall", "3s"],
        &[("RECONCILE_INTERVAL", "20"), ("SIMULATE_ONLY", "maybe")],
    );
    for line in [
        "POOL_SHARDS=\"0\" (flag): it is not between 1 and 1024; accepted: 1 to 1024",
        "--intervall (flag): there is no such setting; `agent --help` lists what there is",
        "RECONCILE_INTERVAL=\"20\" (environment): a duration is numbers with units (d, h, m, s, ms, us, ns), the \
         largest first, such as 20s or 1m30s; accepted: a duration from 1s to 24h, such as 20s or 1m30s",
        "SIMULATE_ONLY=\"maybe\" (environment): it is neither true nor false; accepted: true or false",
        "NODE_NAME: it is required and not set; set it from spec.nodeName of the pod; accepted: the name of a node",
    ] {
        assert!(said.lines().any(|one| one.trim() == line), "{line}\nis not in\n{said}");
    }
    assert_eq!(said.lines().count(), 6, "{said}");
}

#[test]
fn a_name_that_does_not_exist_is_refused_with_the_one_that_was_meant() {
    assert!(refused(&[], &[ME, ("RECONCILE_INTERVL", "3s")]).contains("did you mean RECONCILE_INTERVAL?"));
    assert!(refused(&["--node-nam", "x"], &[ME]).contains("did you mean --node-name?"));
    assert!(
        refused(&[], &[ME, ("JOULIE_FROBNICATE", "1")])
            .contains("JOULIE_FROBNICATE (environment): there is no")
    );
    assert!(refused(&[], &[ME, ("POOL_SIZE", "1")]).contains("POOL_SIZE"));
    let path = file("unknown", b"PATH=/bin\n");
    assert!(refused(&["--config", &path], &[ME]).contains("PATH"), "in our file every name is ours");
}

#[test]
fn what_others_put_into_the_environment_is_theirs() {
    let theirs = [
        ME,
        ("PATH", "/bin"),
        ("HOSTNAME", "node-b"),
        ("CONFIG", "/nowhere"),
        ("JOULIE_OPERATOR_SERVICE_HOST", "10.0.0.1"),
        ("JOULIE_OPERATOR_SERVICE_PORT", "80"),
        ("JOULIE_OPERATOR_SERVICE_PORT_METRICS", "80"),
        ("JOULIE_OPERATOR_PORT", "tcp://10.0.0.1:80"),
        ("JOULIE_OPERATOR_PORT_80_TCP", "tcp://10.0.0.1:80"),
        ("JOULIE_OPERATOR_PORT_80_TCP_ADDR", "10.0.0.1"),
    ];
    assert_eq!(read(&[], &theirs).unwrap().get(&NODE).as_deref(), Ok("node-a"));
    assert!(refused(&[], &[ME, ("JOULIE_PORT", "80")]).contains("JOULIE_PORT"), "that is no Service");
}

#[test]
fn a_retired_name_is_accepted_and_said_to_have_no_effect() {
    let values = read(&[], &[ME, ("KEPLER_AVAILABLE", "true")]).unwrap();
    assert_eq!(values.warnings(), ["KEPLER_AVAILABLE (environment) has no effect: Kepler is looked for"]);
}

#[test]
fn a_family_of_names_without_effect_is_said_by_each_name_and_hides_no_slip() {
    let theirs = [
        ME,
        ("FACILITY_POLL_INTERVAL", "30s"),
        ("FACILITY_SERVICE_HOST", "10.0.0.1"),
        ("RECONCILE_WINDOW", "3"),
    ];
    let values = read(&[], &theirs).unwrap();
    let said = [
        "FACILITY_POLL_INTERVAL (environment) has no effect: the facility is not looked at",
        "RECONCILE_WINDOW (environment) has no effect: changes are seen when they come",
    ];
    assert_eq!(values.warnings(), said);
    assert!(refused(&[], &[ME, ("RECONCILE_INTERVL", "3s")]).contains("did you mean RECONCILE_INTERVAL?"));
    assert!(refused(&["--facility-poll-interval=30s"], &[ME]).contains("no such setting"), "ours alone");
    let long = format!("FACILITY_{}", "X".repeat(5_000));
    let values = read(&[], &[ME, (&long, "1")]).unwrap();
    assert!(values.warnings()[0].len() < 400, "{}", values.warnings()[0]);
}

#[test]
fn a_secret_is_used_and_never_shown() {
    let values = read(&[], &[ME, ("DEBUG_TOKEN", "hunter2")]).unwrap();
    assert_eq!(values.get(&TOKEN), Ok(Some("hunter2".to_owned())));
    assert!(values.render().contains("DEBUG_TOKEN=(secret, 7 characters) (environment)"));
    let said = refused(&[], &[ME, ("DEBUG_TOKEN", "hunter2\u{7}")]);
    assert!(said.contains("DEBUG_TOKEN=(secret, 8 characters)") && !said.contains("hunter2"), "{said}");
}

#[test]
fn an_empty_value_is_as_if_it_were_not_there() {
    let values = read(&["--pool-shards="], &[ME, ("RECONCILE_INTERVAL", " ")]).unwrap();
    assert_eq!((values.get(&SHARDS), values.get(&INTERVAL)), (Ok(1), Ok(20 * SECOND)));
    assert!(refused(&[], &[("NODE_NAME", "")]).contains("required"));
}

#[test]
fn two_names_of_one_setting_must_agree() {
    assert_eq!(read(&[], &[ME, ("DRY_RUN", "1")]).unwrap().get(&SIMULATE), Ok(true));
    assert!(read(&[], &[ME, ("DRY_RUN", "1"), ("SIMULATE_ONLY", "1")]).is_ok());
    assert!(read(&["--dry-run=1"], &[ME, ("SIMULATE_ONLY", "0")]).is_ok(), "a flag wins");
    assert!(refused(&[], &[ME, ("DRY_RUN", "1"), ("SIMULATE_ONLY", "0")]).contains("means the same"));
}

#[test]
fn a_command_line_that_is_none_is_refused() {
    assert!(refused(&["serve"], &[ME]).contains("serve (flag): only flags"));
    assert!(refused(&["--pool-shards"], &[ME]).contains("needs a value"));
    assert!(refused(&["--pool-shards=1", "--pool-shards=1"], &[ME]).contains("given twice"));
    assert!(refused(&["--"], &[ME]).contains("only flags"));
    let none: [(OsString, OsString); 0] = [];
    assert!(matches!(Invocation::read(["-h".into()], none.clone()), Invocation::Help));
    assert!(matches!(Invocation::read(["--version".into()], none), Invocation::Version));
}

#[test]
fn a_file_that_is_none_is_refused_with_its_line() {
    let bad = file("bad", b"POOL_SHARDS=1\nsecret without sign\nPOOL_SHARDS=2\n");
    let said = refused(&["--config", &bad], &[ME]);
    assert!(said.contains(&format!("a line without '=' ({bad}:2)")), "{said}");
    assert!(said.contains(&format!("POOL_SHARDS ({bad}:3): it is already set on line 1")), "{said}");
    assert!(!said.contains("secret"), "{said}");
    assert!(refused(&[], &[ME, ("JOULIE_CONFIG", "/nowhere/x")]).contains("/nowhere/x cannot be read"));
    let binary = file("binary", &[0xff, 0xfe, b'=', 0]);
    assert!(refused(&["--config", &binary], &[ME]).contains("cannot be read"));
    let huge = file("huge", &vec![b'#'; 2 << 20]);
    assert!(refused(&["--config", &huge], &[ME]).contains("2097152 bytes"));
}

#[test]
fn a_setting_that_the_table_lacks_is_a_defect_that_says_so() {
    let said = read(&[], &[ME]).unwrap().get(&UNLISTED).unwrap_err().to_string();
    assert!(said.contains("missing in the table of agent"), "{said}");
}

#[test]
fn values_that_do_not_fit_together_are_refused_with_their_places() {
    let values = read(&["--pool-shards=4"], &[ME]).unwrap();
    let said = values.conflict(&["POOL_SHARDS", "NODE_NAME"], "a pool has no node").to_string();
    assert!(said.contains("POOL_SHARDS=4 (flag): a pool has no node"), "{said}");
    assert!(said.contains("NODE_NAME=node-a (environment): a pool has no node"), "{said}");
}

#[test]
fn the_help_names_every_setting_with_what_it_accepts() {
    let help = TABLE.help();
    for part in ["RECONCILE_INTERVAL (default 20s)", "NODE_NAME (required)", "(also DRY_RUN)", "1 to 1024"] {
        assert!(help.contains(part), "{part} is not in {help}");
    }
}

#[test]
fn what_go_writes_is_read_as_go_reads_it_and_more_than_that_is_read() {
    let read = |text: &str| parse::duration(text, Duration::ZERO..=30 * DAY).ok();
    // Milliseconds as Go's ParseDuration reads them, and as we do.
    let table: &[(&str, Option<u64>, Option<u64>)] = &[
        ("0", Some(0), Some(0)),
        ("0s", Some(0), Some(0)),
        ("20s", Some(20_000), Some(20_000)),
        (" 5s ", None, Some(5_000)),
        ("+2s", Some(2_000), Some(2_000)),
        ("1m30s", Some(90_000), Some(90_000)),
        ("1m0s", Some(60_000), Some(60_000)),
        ("1h0m0s", Some(3_600_000), Some(3_600_000)),
        ("1h1m1.5s", Some(3_661_500), Some(3_661_500)),
        ("1h1m1s1ms", Some(3_661_001), Some(3_661_001)),
        ("250ms", Some(250), Some(250)),
        ("0.25s", Some(250), Some(250)),
        ("1.5h", Some(5_400_000), Some(5_400_000)),
        ("1000us", Some(1), Some(1)),
        ("1000µs", Some(1), Some(1)),
        ("1000000ns", Some(1), Some(1)),
        // The rest of the friendly format.
        ("2d", None, Some(172_800_000)),
        ("1d12h", None, Some(129_600_000)),
        ("1 s", None, Some(1_000)),
        ("2 minutes, 3 seconds", None, Some(123_000)),
        ("00:01:30", None, Some(90_000)),
        // What Go reads and never writes.
        (".5s", Some(500), None),
        ("1.s", Some(1_000), None),
        ("1.5m30s", Some(120_000), None),
        ("30s1m", Some(90_000), None),
        ("1s1s", Some(2_000), None),
        // What is a duration for nobody.
        ("", None, None),
        ("20", None, None),
        ("s", None, None),
        (".s", None, None),
        ("1x", None, None),
        ("1M", None, None),
        ("1_000s", None, None),
        ("1.2.3s", None, None),
        ("NaN", None, None),
        ("99999999999999999999s", None, None),
        ("١s", None, None),
        // A month has no length of its own.
        ("1mo", None, None),
        ("P1D", None, None),
    ];
    for (text, go, ours) in table {
        assert_eq!(read(text), ours.map(Duration::from_millis), "{text:?}; Go reads {go:?}");
    }
}

#[test]
fn a_duration_that_is_refused_says_what_is_accepted() {
    let refused = |text| parse::duration(text, SECOND..=DAY).unwrap_err().0;
    for text in ["20", "NaN", "", "30s1m", "1y", "99999999999999999999s", "99999999999d"] {
        assert!(refused(text).contains("numbers with units (d, h, m, s, ms, us, ns)"), "{text}");
    }
    for text in ["-1s", "-5m", "1s ago"] {
        assert_eq!(refused(text), "it is negative", "{text}");
    }
    for text in ["0", "999ms", "25h", "100000000h"] {
        assert_eq!(refused(text), "it is not between 1s and 24h", "{text}");
    }
}

#[test]
fn a_duration_that_is_shown_reads_back() {
    for (millis, text) in
        [(0, "0s"), (1, "1ms"), (90_000, "1m30s"), (3_600_500, "1h500ms"), (259_200_000, "72h")]
    {
        let duration = Duration::from_millis(millis);
        assert_eq!(parse::show_duration(duration + Duration::from_nanos(999_999)), text);
        assert_eq!(parse::duration(text, Duration::ZERO..=Duration::MAX), Ok(duration));
    }
    assert_eq!(parse::show_duration(Duration::MAX), parse::show_duration(Duration::from_millis(u64::MAX)));
}

#[test]
fn numbers_that_are_none_are_refused() {
    use power_units::{Role, Watts};
    for text in ["NaN", "inf", "-Infinity", "0x1p3", "1_000", "", "ten", "1e999"] {
        assert!(parse::real(text, 0.0..=1e6).is_err(), "{text:?}");
    }
    assert_eq!(parse::real("0.65", 0.0..=1.0), Ok(0.65));
    assert!(parse::real("1.5", 0.0..=1.0).unwrap_err().0.contains("between 0 and 1"));
    assert!(parse::whole::<u32>("4294967296", 0..=10).unwrap_err().0.contains("between 0 and 10"));
    assert!(parse::whole::<u32>("-1", 0..=10).unwrap_err().0.contains("between"));
    assert!(parse::whole::<u32>("1.0", 0..=10).unwrap_err().0.contains("not a whole number"));
    assert!(parse::whole::<u32>("-", 0..=10).unwrap_err().0.contains("not a whole number"));
    let watts = |text| parse::watts(text, Role::Limit, Watts::from_int(1)..=Watts::from_int(100_000));
    assert_eq!(watts("120.5"), Ok(Watts::parse("120.5", Role::Limit).unwrap()));
    assert!(watts("120W").unwrap_err().0.contains("without \"W\""));
    assert!(watts("0").unwrap_err().0.contains("between 1 and 100000"));
    assert!(watts("NaN").is_err());
    assert!(parse::percent("60%").unwrap_err().0.contains("without \"%\""));
    assert!(parse::percent("101").is_err() && parse::percent("-1").is_err() && parse::percent("100").is_ok());
}

#[test]
fn booleans_and_words_are_taken_in_any_case_and_nothing_is_guessed() {
    for (text, value) in
        [("true", true), ("YES", true), ("1", true), ("False", false), ("no", false), ("0", false)]
    {
        assert_eq!(parse::boolean(text), Ok(value));
    }
    for text in ["", "y", "on", "2", "tru", "truefalse"] {
        assert!(parse::boolean(text).is_err(), "{text:?}");
    }
    let words = [("daemonset", 1), ("pool", 2)];
    assert_eq!(parse::one_of(" Pool", &words), Ok(2));
    assert!(parse::one_of("pods", &words).unwrap_err().0.contains("daemonset, pool"));
    assert_eq!(parse::list(" a ,,b").unwrap(), ["a", "b"]);
    assert!(parse::list(" , ").is_err());
}
