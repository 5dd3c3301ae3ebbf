use super::*;
use host_kit::config::{Invocation, load};
use std::ffi::OsString;

fn values(arguments: &[&str], variables: &[(&str, &str)]) -> Result<Values, Refusals> {
    let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    match Invocation::read(arguments.iter().map(OsString::from), variables) {
        Invocation::Run(sources) => load(&TABLE, &sources),
        Invocation::Help | Invocation::Version => panic!("neither was asked for"),
    }
}

#[test]
fn a_variable_of_upstreams_simulator_is_said_to_do_nothing_and_stops_nobody() {
    for name in [
        "SIM_POLL_INTERVAL",
        "SIM_K8S_POD_WATCH",
        "SIM_WORKLOAD_TICK",
        "SIM_DEBUG_SNAPSHOT_INTERVAL",
        "SIM_DEBUG_EVENT_LIMIT",
        "SIM_DEBUG_PERSIST_DIR",
        "SIM_EVENT_BUFFER",
        "SIM_NODE_SELECTOR",
        "SIM_NODE_CLASS_CONFIG",
        "SIM_HARDWARE_CATALOG_PATH",
        "SIM_WORKLOAD_TRACE_PATH",
        "SIM_BASE_SPEED_PER_CORE",
        "SIM_WORKLOAD_IMAGE",
        "SIM_FACILITY_AMBIENT_BASE_C",
        "SIM_FACILITY_AMBIENT_TEMP_C",
        "SIM_FACILITY_TEMP_AMPLITUDE_C",
        "SIM_FACILITY_TEMP_PERIOD_H",
        "SIM_STANDALONE",
        "SIM_STANDALONE_INVENTORY",
        "SIM_STANDALONE_BASELINE",
        "SIM_SA_CPU_ECO_PCT",
        "SIM_SA_DT",
        "SIM_SA_TIMEOUT",
        // The fields of its node profile, of which there are some fifty.
        "SIM_BASE_IDLE_W",
        "SIM_RAPL_HEADROOM_W",
    ] {
        let values = values(&[], &[(name, "1")]).unwrap();
        let [said] = values.warnings() else { panic!("{name}: {:?}", values.warnings()) };
        assert!(said.starts_with(&format!("{name} (environment) has no effect: ")), "{said}");
    }
}

#[test]
fn a_slip_in_one_of_our_own_names_and_an_unknown_flag_are_refused() {
    let slip = values(&[], &[("SIM_FLET", "xeon:1")]).unwrap_err().to_string();
    assert!(slip.contains("did you mean SIM_FLEET?"), "{slip}");
    let flag = values(&["--sim-standalone=true"], &[]).unwrap_err().to_string();
    assert!(flag.contains("there is no such setting"), "{flag}");
}

/// Images set it for OpenSSL, and it is near to a name of ours.
#[test]
fn the_certificates_of_openssl_are_no_slip() {
    let values =
        values(&[], &[("SSL_CERT_FILE", "/etc/ssl/cert.pem"), ("SSL_CERT_DIR", "/etc/ssl/certs")]).unwrap();
    assert_eq!(values.warnings(), [""; 0]);
}
