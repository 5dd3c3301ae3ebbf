//! The accepted values of the charts, and their effects.

use install::{Helm, by_template, deploy, objects};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const TLS: &str = "schedulerExtender.tls.enabled=true";

/// A Deployment and an account for bind alone.
const BIND_APART: &str = "gpuPlacement.enabled=true,gpuPlacement.bind=true,gpuPlacement.bindAccount=own";

/// Certificates of cert-manager on every port for metrics, and both kinds of monitors.
const METRICS_TLS: &[&str] = &[
    "--set",
    "agent.mode=both,simulator.enabled=true,metricsTls.enabled=true,metricsAuth.enabled=true,metricsAuth.tokenSecret.name=scraper,monitoring.podMonitor.enabled=true,monitoring.serviceMonitor.enabled=true",
    "--set",
    "metricsTls.certManager.enabled=true,metricsTls.certManager.issuerRef.name=ours",
];

/// Nodes over HTTP with a token and an authority of their own.
const NODE_HTTP: &[&str] = &[
    "--set",
    "agent.mode=both,simulator.enabled=true,nodeHttp.tokenSecret=nodes,nodeHttp.authoritySecret=authority",
    "--set",
    "operator.env.OPERATOR_NODE_POWER_HTTP_ENDPOINT=https://nodes/{node}",
];

/// Common combinations of values.
pub(crate) const MATRIX: [(&str, &[&str]); 14] = [
    ("as it comes", &[]),
    ("everything", &["-f", "everything.yaml"]),
    ("of upstream's chart", &["-f", "upstream.yaml"]),
    ("only pools", &["--set", "agent.mode=pool"]),
    ("only the extender", &["--set", "agent.mode=none,operator.enabled=false"]),
    ("without the extender", &["--set", "schedulerExtender.enabled=false"]),
    ("with NVIDIA's GPUs, by CDI", &["--set", "agent.nvidia.enabled=true,agent.nvidia.runtimeClassName="]),
    ("privileged", &["--set", "agent.privileged=true,agent.env.MSR=msr"]),
    (
        "with a second scheduler",
        &[
            "--set",
            "scheduler.enabled=true,scheduler.image.repository=kube-scheduler,scheduler.image.tag=v1.36.3",
        ],
    ),
    ("with TLS", &["--set", TLS]),
    ("with an account for bind", &["--set", BIND_APART]),
    ("with TLS on the ports for metrics", METRICS_TLS),
    ("with credentials for nodes over HTTP", NODE_HTTP),
    (
        "with certificates of cert-manager for a second scheduler",
        &[
            "--set",
            TLS,
            "--set",
            "schedulerExtender.tls.certManager.enabled=true,schedulerExtender.tls.certManager.issuerRef.name=ours",
            "--set",
            "scheduler.enabled=true,scheduler.image.repository=kube-scheduler,scheduler.image.tag=v1.36.3",
        ],
    ),
];

/// The flags, with file names replaced by their paths in this folder.
pub(crate) fn flags(flags: &[&str]) -> Vec<String> {
    let values = format!("{}/tests/values", env!("CARGO_MANIFEST_DIR"));
    let at =
        |flag: &&str| if flag.ends_with(".yaml") { format!("{values}/{flag}") } else { (*flag).to_owned() };
    flags.iter().map(at).collect()
}

pub(crate) fn rendered(helm: &Helm, of: &[&str]) -> Vec<Value> {
    let flags = flags(of);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    objects(&helm.template("chart", &flags).unwrap()).unwrap()
}

pub(crate) fn find<'a>(all: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let of = |one: &&Value| one["kind"] == kind && one["metadata"]["name"] == name;
    all.iter().find(of).unwrap_or_else(|| panic!("{kind} {name}"))
}

fn variable<'a>(container: &'a Value, name: &str) -> &'a Value {
    let of = |one: &&Value| one["name"] == name;
    container["env"].as_array().unwrap().iter().find(of).map_or(&Value::Null, |one| &one["value"])
}

fn container<'a>(all: &'a [Value], kind: &str, name: &str) -> &'a Value {
    &find(all, kind, name)["spec"]["template"]["spec"]["containers"][0]
}

#[test]
fn both_charts_pass_the_lint_of_helm() {
    let Some(helm) = Helm::or_skip() else { return };
    for chart in ["chart", "chart-crds"] {
        helm.run(&["lint", "--strict", deploy().join(chart).to_str().unwrap()]).unwrap();
    }
}

#[test]
fn every_combination_is_rendered_and_has_each_object_once() {
    let Some(helm) = Helm::or_skip() else { return };
    for (what, of) in MATRIX {
        let mut names = BTreeSet::new();
        for object in rendered(&helm, of) {
            let about = &object["metadata"];
            let name = format!("{} {} {}", object["kind"], about["namespace"], about["name"]);
            assert!(names.insert(name.clone()), "{what}: {name} twice");
            let pod =
                if object["kind"] == "Pod" { &object["spec"] } else { &object["spec"]["template"]["spec"] };
            for container in pod["containers"].as_array().into_iter().flatten() {
                let variables = container["env"].as_array().into_iter().flatten();
                let variables: Vec<&Value> = variables.map(|one| &one["name"]).collect();
                let once: BTreeSet<String> = variables.iter().map(ToString::to_string).collect();
                assert_eq!(once.len(), variables.len(), "{what}: {name}: {variables:?}");
                let security = &container["securityContext"];
                assert_eq!(security["readOnlyRootFilesystem"], true, "{what}: {name}");
                let privileged = security["privileged"] == true;
                assert!(privileged || security["capabilities"]["drop"] == json!(["ALL"]), "{what}: {name}");
                // Of a Job and of `helm test` the exit is what counts.
                let ends = pod["restartPolicy"] == "Never";
                let is_watched = ends || container["livenessProbe"].is_object();
                assert!(is_watched, "{what}: {name}");
            }
        }
        assert!(names.len() > 5, "{what}: {names:?}");
    }
}

/// Maps whose keys the user chooses.
const FREE: [&str; 12] = [
    "env",
    "affinity",
    "securityContext",
    "resources",
    "annotations",
    "podAnnotations",
    "podLabels",
    "labels",
    "commonLabels",
    "nodeSelector",
    "podNodeSelector",
    "limits",
];

fn closed(values: &Value, path: &str, found: &mut Vec<String>) {
    let Some(map) = values.as_object() else { return };
    found.push(path.to_owned());
    for (key, value) in map {
        if !FREE.contains(&key.as_str()) && format!("{path}{key}") != "operator.config" {
            closed(value, &format!("{path}{key}."), found);
        }
    }
}

#[test]
fn a_word_that_is_no_value_is_refused_wherever_it_stands() {
    let Some(helm) = Helm::or_skip() else { return };
    let mut paths = Vec::new();
    let values = std::fs::read_to_string(deploy().join("chart/values.yaml")).unwrap();
    closed(&serde_saphyr::from_str(&values).unwrap(), "", &mut paths);
    assert!(paths.len() > 25, "{paths:?}");
    for path in paths {
        let told = helm.template("chart", &["--set", &format!("{path}tpyo=1")]).unwrap_err();
        assert!(told.contains("additional properties 'tpyo' not allowed"), "{path}: {told}");
    }
    let told = helm.template("chart-crds", &["--set", "tpyo=1"]).unwrap_err();
    assert!(told.contains("'tpyo' not allowed"), "{told}");
}

#[test]
fn the_page_is_served_only_where_it_is_asked_for_and_has_rights_to_read_alone() {
    let Some(helm) = Helm::or_skip() else { return };
    let operator = |all: &[Value]| {
        let pod = find(all, "Deployment", "joulie-operator")["spec"]["template"]["spec"].clone();
        let asks = pod["containers"][0]["env"].to_string().contains(r#""name":"UI""#);
        let rules = find(all, "ClusterRole", "joulie-operator")["rules"].to_string();
        (asks, rules.contains(r#""events""#))
    };
    // What --set makes of a bare word, and what a file makes of it.
    for (ui, on) in [("read", true), ("off", false), ("false", false)] {
        let all = rendered(&helm, &["--set", &format!("operator.ui={ui}")]);
        assert_eq!(operator(&all), (on, on), "{ui}");
    }
    assert_eq!(operator(&rendered(&helm, &[])), (false, false));
}

#[test]
fn a_value_that_cannot_work_is_refused() {
    let Some(helm) = Helm::or_skip() else { return };
    for (value, why) in [
        ("agent.mode=pods", "value must be one of"),
        ("performanceAdmission.enabled=true", "operator.config.PERFORMANCE_NAMESPACES must say"),
        ("agent.privileged=yes", "want boolean"),
        ("operator.replicas=two", "want integer"),
        ("image.digest=sha256:1", "does not match pattern"),
        ("operator.env.budget=1", "does not match pattern"),
        ("operator.config.budget=1", "does not match pattern"),
        ("operator.ui=write", "value must be one of"),
        ("operator.config.METRICS_TLS_CERT_FILE=/a", "set metricsTls.enabled instead"),
        ("agent.mode=pool,agent.pool.shards=3", "agent.pool.shards must be"),
        ("schedulerExtender.nodeName=a", "set schedulerExtender.replicas to 1"),
        ("scheduler.enabled=true", "scheduler.image.repository and"),
        ("networkPolicy.enabled=true", "networkPolicy.schedulerFrom must say"),
        ("schedulerExtender.tls.certManager.enabled=true", "set schedulerExtender.tls.enabled"),
        (
            "schedulerExtender.tls.enabled=true,schedulerExtender.tls.certManager.enabled=true",
            "issuerRef.name must name an issuer",
        ),
        ("scheduler.tls.caFile=ca.crt", "does not match pattern"),
        (
            "schedulerExtender.tls.enabled=true,scheduler.url=http://a:9876",
            "scheduler.url must begin with https://",
        ),
        ("scheduler.url=https://a:9876", "scheduler.url must begin with https://"),
        ("schedulerExtender.env.METRICS_TLS_CERT_FILE=/a", "set metricsTls.enabled instead"),
        ("agent.env.METRICS_TLS_KEY_FILE=/a", "set metricsTls.enabled instead"),
        ("metricsTls.certManager.enabled=true", "set metricsTls.enabled"),
        ("metricsTls.enabled=true,metricsTls.certManager.enabled=true", "issuerRef.name must name an issuer"),
        ("metricsTls.enabled=1", "want boolean"),
        ("metricsAuth.enabled=true", "set metricsTls.enabled too"),
        ("agent.env.METRICS_AUTH=token", "agent.env.METRICS_AUTH: set metricsAuth.enabled instead"),
        ("schedulerExtender.env.METRICS_AUTH=none", "set metricsAuth.enabled instead"),
        ("agent.mode=pool,agent.pool.env.TELEMETRY_HTTP_TOKEN_FILE=/a", "set nodeHttp.tokenSecret instead"),
        ("operator.env.OPERATOR_NODE_POWER_HTTP_CA_FILE=/a", "set nodeHttp.authoritySecret instead"),
        ("operator.env.PROMETHEUS_TOKEN_FILE=/a", "set prometheus.credentialsSecret or"),
        ("prometheus.credentialsSecret=prom", "set prometheus.address too"),
        ("prometheus.address=http://p,prometheus.user=me", "set prometheus.credentialsSecret"),
        ("prometheus.adress=http://p", "adress"),
        ("agent.redfish.credentialsSecret=bmc", "set agent.redfish.url too"),
        ("agent.energyLedger.keplerUrl=http://k", "set agent.energyLedger.enabled too"),
        ("agent.redfish.url=https://b,agent.redfish.user=me", "set agent.redfish.credentialsSecret"),
        ("agent.env.NODE_METER_REDFISH_TOKEN_FILE=/a", "set agent.redfish.credentialsSecret or"),
        ("gpuPlacement.dra=read", "claims to GPU objects: set gpuPlacement.enabled"),
        ("gpuPlacement.bindAccount=own", "set gpuPlacement.bind"),
    ] {
        let told = helm.template("chart", &["--set", value]).unwrap_err();
        assert!(told.contains(why), "{value}: {told}");
    }
}

#[test]
fn credentials_for_nodes_over_http_are_mounted_where_the_variables_say() {
    let Some(helm) = Helm::or_skip() else { return };
    let all = rendered(&helm, NODE_HTTP);
    for (kind, name, variables) in [
        ("StatefulSet", "joulie-agent-pool", &["TELEMETRY_HTTP_TOKEN_FILE", "TELEMETRY_HTTP_CA_FILE"][..]),
        ("DaemonSet", "joulie-agent", &["TELEMETRY_HTTP_TOKEN_FILE", "TELEMETRY_HTTP_CA_FILE"]),
        (
            "Deployment",
            "joulie-operator",
            &["OPERATOR_NODE_POWER_HTTP_TOKEN_FILE", "OPERATOR_NODE_POWER_HTTP_CA_FILE"],
        ),
        ("Deployment", "joulie-simulator", &["SIM_TOKEN_FILE"]),
    ] {
        let pod = &find(&all, kind, name)["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        let named = |list: &Value| {
            list.as_array().unwrap().iter().find(|one| one["name"] == "node-http").unwrap().clone()
        };
        let folder = named(&container["volumeMounts"])["mountPath"].as_str().unwrap().to_owned();
        let sources = named(&pod["volumes"])["projected"]["sources"].as_array().unwrap().clone();
        for (variable_name, (secret, file)) in
            variables.iter().zip([("nodes", "token"), ("authority", "ca.crt")])
        {
            assert_eq!(variable(container, variable_name), &json!(format!("{folder}/{file}")), "{name}");
            let source = sources.iter().find(|one| one["secret"]["name"] == secret).unwrap();
            assert_eq!(source["secret"]["items"], json!([{"key": file, "path": file}]), "{name}");
        }
    }
    // Who reads no node over HTTP is told nothing.
    let plain = rendered(&helm, &["--set", "nodeHttp.tokenSecret=nodes"]);
    let operator = container(&plain, "Deployment", "joulie-operator");
    assert_eq!(variable(operator, "OPERATOR_NODE_POWER_HTTP_TOKEN_FILE"), &Value::Null);
}

#[test]
fn what_the_operator_shows_to_prometheus_is_mounted_where_the_variables_say() {
    let Some(helm) = Helm::or_skip() else { return };
    let operator = |values: &str| {
        let all = rendered(&helm, &["--set", values]);
        find(&all, "Deployment", "joulie-operator")["spec"]["template"]["spec"].clone()
    };
    let address = "prometheus.address=https://prom:9090";
    for (values, variables) in [
        ("prometheus.credentialsSecret=prom", &[("PROMETHEUS_TOKEN_FILE", "prom", "token")][..]),
        (
            "prometheus.credentialsSecret=prom,prometheus.user=me,prometheus.authoritySecret=ca",
            &[("PROMETHEUS_PASSWORD_FILE", "prom", "password"), ("PROMETHEUS_CA_FILE", "ca", "ca.crt")],
        ),
    ] {
        let pod = operator(&format!("{address},{values}"));
        let container = &pod["containers"][0];
        assert_eq!(variable(container, "PROMETHEUS_ADDRESS"), "https://prom:9090");
        let named = |list: &Value| {
            list.as_array().unwrap().iter().find(|one| one["name"] == "prometheus").unwrap().clone()
        };
        let folder = named(&container["volumeMounts"])["mountPath"].as_str().unwrap().to_owned();
        let sources = named(&pod["volumes"])["projected"]["sources"].as_array().unwrap().clone();
        assert_eq!(sources.len(), variables.len());
        for (name, secret, file) in variables {
            assert_eq!(variable(container, name), &json!(format!("{folder}/{file}")));
            let source = sources.iter().find(|one| one["secret"]["name"] == *secret).unwrap();
            assert_eq!(source["secret"]["items"], json!([{"key": file, "path": file}]));
        }
    }
    let plain = operator("prometheus.address=http://prom:9090");
    assert!(!plain.to_string().contains("joulie-prometheus"), "{plain}");
}

#[test]
fn what_the_agent_shows_to_redfish_is_mounted_where_the_variables_say() {
    let Some(helm) = Helm::or_skip() else { return };
    let agent = |values: &str| {
        let all = rendered(&helm, &["--set", values]);
        find(&all, "DaemonSet", "joulie-agent")["spec"]["template"]["spec"].clone()
    };
    let values = "agent.redfish.url=https://bmc,agent.redfish.user=me,agent.redfish.credentialsSecret=bmc,agent.redfish.authoritySecret=ca";
    let pod = agent(values);
    let container = &pod["containers"][0];
    assert_eq!(variable(container, "NODE_METER"), "acpi,dcmi,redfish");
    let named =
        |list: &Value| list.as_array().unwrap().iter().find(|one| one["name"] == "redfish").unwrap().clone();
    let folder = named(&container["volumeMounts"])["mountPath"].as_str().unwrap().to_owned();
    let sources = named(&pod["volumes"])["projected"]["sources"].as_array().unwrap().clone();
    for (name, secret, file) in [
        ("NODE_METER_REDFISH_PASSWORD_FILE", "bmc", "password"),
        ("NODE_METER_REDFISH_CA_FILE", "ca", "ca.crt"),
    ] {
        assert_eq!(variable(container, name), &json!(format!("{folder}/{file}")));
        let source = sources.iter().find(|one| one["secret"]["name"] == secret).unwrap();
        assert_eq!(source["secret"]["items"], json!([{"key": file, "path": file}]));
    }
    let token = agent("agent.redfish.url=https://bmc,agent.redfish.credentialsSecret=bmc");
    assert_eq!(
        variable(&token["containers"][0], "NODE_METER_REDFISH_TOKEN_FILE"),
        "/etc/joulie-redfish/token"
    );
    let plain = agent("agent.redfish.url=http://bmc");
    assert!(!plain.to_string().contains("joulie-redfish"), "{plain}");
}

#[test]
fn nodes_sleep_only_with_a_secret_that_says_how_they_are_switched() {
    let Some(helm) = Helm::or_skip() else { return };
    let config = |all: &[Value]| {
        find(all, "ConfigMap", "joulie-operator-config")["data"]["operator.conf"].as_str().unwrap().to_owned()
    };
    let on = rendered(&helm, &["--set", "operator.sleep.enabled=true,operator.sleep.secret=bmc"]);
    let pod = find(&on, "Deployment", "joulie-operator")["spec"]["template"]["spec"].clone();
    assert_eq!(variable(&pod["containers"][0], "SLEEP_BMC_FILE"), "/etc/joulie-sleep/controllers.yaml");
    let named =
        |list: &Value| list.as_array().unwrap().iter().find(|one| one["name"] == "sleep").unwrap().clone();
    assert_eq!(named(&pod["volumes"])["secret"]["secretName"], "bmc");
    assert_eq!(named(&pod["containers"][0]["volumeMounts"])["mountPath"], "/etc/joulie-sleep");
    assert!(config(&on).contains("SLEEP=on"));
    let observed = "operator.sleep.enabled=true,operator.sleep.secret=bmc,operator.config.SLEEP=observe";
    assert!(config(&rendered(&helm, &["--set", observed])).contains("SLEEP=observe"));
    assert!(!config(&rendered(&helm, &[])).contains("SLEEP"));
}

#[test]
fn the_operators_file_of_settings_is_mounted_where_the_variable_says_and_its_change_rolls_no_pod() {
    let Some(helm) = Helm::or_skip() else { return };
    let plain = rendered(&helm, &[]);
    let values = "operator.config.STATIC_HP_FRAC=0.25,operator.config.BUDGET_NODE_REST_WATTS=2000000,operator.config.GUARD_MODE=";
    let evicts = "operator.rescheduling.enabled=true,operator.config.ENABLE_ACTIVE_RESCHEDULING=false";
    let (set, off) = (rendered(&helm, &["--set", values]), rendered(&helm, &["--set", evicts]));
    let on = rendered(&helm, &["--set", "operator.rescheduling.enabled=true"]);
    let deployment = find(&plain, "Deployment", "joulie-operator");
    for (what, all, lines) in [
        ("nothing", &plain, ""),
        ("settings", &set, "BUDGET_NODE_REST_WATTS=2000000\nSTATIC_HP_FRAC=0.25\n"),
        ("evictions on", &on, "ENABLE_ACTIVE_RESCHEDULING=true\n"),
        ("evictions off", &off, "ENABLE_ACTIVE_RESCHEDULING=false\n"),
    ] {
        assert_eq!(find(all, "Deployment", "joulie-operator"), deployment, "{what}");
        let text =
            find(all, "ConfigMap", "joulie-operator-config")["data"]["operator.conf"].as_str().unwrap();
        let text = text.lines().filter(|line| !line.starts_with('#'));
        assert_eq!(text.map(|line| format!("{line}\n")).collect::<String>(), lines, "{what}");
    }
    let pod = &deployment["spec"]["template"]["spec"];
    let named =
        |list: &Value| list.as_array().unwrap().iter().find(|one| one["name"] == "config").unwrap().clone();
    let mount = named(&pod["containers"][0]["volumeMounts"]);
    assert_eq!((&mount["mountPath"], &mount["subPath"]), (&json!("/etc/joulie-config"), &Value::Null));
    assert_eq!(named(&pod["volumes"])["configMap"]["name"], "joulie-operator-config");
    let file = variable(&pod["containers"][0], "JOULIE_CONFIG");
    assert_eq!(file, "/etc/joulie-config/operator.conf");
}

#[test]
fn with_tls_on_the_ports_for_metrics_probes_and_monitors_speak_it_too() {
    let Some(helm) = Helm::or_skip() else { return };
    let all = rendered(&helm, METRICS_TLS);
    for (kind, name) in [
        ("DaemonSet", "joulie-agent"),
        ("StatefulSet", "joulie-agent-pool"),
        ("Deployment", "joulie-operator"),
        ("Deployment", "joulie-scheduler-extender"),
    ] {
        let pod = &find(&all, kind, name)["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            assert_eq!(container[probe]["httpGet"]["scheme"], "HTTPS", "{name}: {probe}");
        }
        let (certificate, key) =
            (variable(container, "METRICS_TLS_CERT_FILE"), variable(container, "METRICS_TLS_KEY_FILE"));
        let mounts = container["volumeMounts"].as_array().unwrap();
        let mount = mounts.iter().find(|one| one["name"] == "metrics-tls").unwrap();
        for (file, entry) in [(certificate, "tls.crt"), (key, "tls.key")] {
            let folder = mount["mountPath"].as_str().unwrap();
            assert_eq!(file, &json!(format!("{folder}/{entry}")), "{name}");
        }
        assert_eq!(variable(container, "METRICS_AUTH"), "token", "{name}");
        let volumes = pod["volumes"].as_array().unwrap();
        let volume = volumes.iter().find(|one| one["name"] == "metrics-tls").unwrap();
        assert_eq!(volume["secret"]["secretName"], "joulie-metrics-tls", "{name}");
    }
    let simulator = container(&all, "Deployment", "joulie-simulator");
    assert_eq!(simulator["livenessProbe"]["httpGet"]["scheme"], Value::Null);
    let certificate = find(&all, "Certificate", "joulie-metrics");
    assert_eq!(certificate["spec"]["secretName"], "joulie-metrics-tls");
    for (kind, endpoints) in [("PodMonitor", "podMetricsEndpoints"), ("ServiceMonitor", "endpoints")] {
        let spec = &find(&all, kind, "joulie")["spec"];
        assert_eq!(spec["selector"]["matchExpressions"][0]["values"], json!(["simulator"]));
        let endpoint = &spec[endpoints][0];
        assert_eq!(endpoint["scheme"], "https");
        assert_eq!(endpoint["tlsConfig"]["serverName"], certificate["spec"]["dnsNames"][0]);
        assert_eq!(endpoint["tlsConfig"]["ca"]["secret"]["name"], "joulie-metrics-tls");
        assert_eq!(endpoint["authorization"]["credentials"], json!({"name": "scraper", "key": "token"}));
    }
    let binding = find(&all, "ClusterRoleBinding", "joulie-metrics-auth");
    assert_eq!(binding["subjects"].as_array().unwrap().len(), 4);
    let service = find(&all, "Service", "joulie-operator-metrics");
    assert_eq!(service["metadata"]["annotations"]["prometheus.io/scheme"], "https");
}

#[test]
fn alerts_and_dashboards_are_the_files_of_the_chart() {
    let Some(helm) = Helm::or_skip() else { return };
    let of = [
        "-f",
        "everything.yaml",
        "--set",
        "monitoring.prometheusRule.runbooksUrl=https://wiki.example/joulie/,monitoring.prometheusRule.grafanaUrl=https://grafana.example",
    ];
    let all = rendered(&helm, &of);
    let text = std::fs::read_to_string(deploy().join("chart/alerts/joulie.yaml")).unwrap();
    let text = text.replace("docs/runbooks/", "https://wiki.example/joulie/");
    let file: Value = serde_saphyr::from_str(&text.replace("'/d/", "'https://grafana.example/d/")).unwrap();
    let rule = find(&all, "PrometheusRule", "joulie");
    // Both links are absolute, and nothing of the texts for Prometheus is lost.
    assert_eq!(rule["spec"]["groups"], file["groups"]);
    assert_eq!(rule["metadata"]["labels"]["release"], "telemetry");
    for kind in ["PodMonitor", "ServiceMonitor"] {
        let spec = &find(&all, kind, "joulie")["spec"];
        let endpoints = if kind == "PodMonitor" { "podMetricsEndpoints" } else { "endpoints" };
        assert_eq!(spec[endpoints][0]["honorLabels"], true, "{kind}");
    }
    for uid in ["joulie-overview", "joulie-on-call", "joulie-facility", "joulie-tenant"] {
        let config = find(&all, "ConfigMap", &format!("joulie-dashboard-{uid}"));
        let shown: Value =
            serde_json::from_str(config["data"][format!("{uid}.json")].as_str().unwrap()).unwrap();
        assert_eq!(shown["uid"], uid);
        assert_eq!(config["metadata"]["labels"]["grafana_dashboard"], "1");
    }
    let refused = helm.template("chart", &["--set", "monitoring.prometheusRule.grafanaUrl=grafana.example"]);
    assert!(refused.is_err_and(|why| why.contains("grafanaUrl")));
}

#[test]
fn the_values_of_upstreams_chart_mean_here_what_they_mean_there() {
    let Some(helm) = Helm::or_skip() else { return };
    let all = rendered(&helm, &["-f", "upstream.yaml"]);
    let pod = &find(&all, "DaemonSet", "joulie-agent")["spec"]["template"]["spec"];
    assert_eq!(pod["hostNetwork"], true);
    assert_eq!(pod["dnsPolicy"], "ClusterFirstWithHostNet");
    assert_eq!(pod["nodeSelector"]["joulie.io/managed"], "true");
    let agent = &pod["containers"][0];
    assert_eq!(agent["image"], "upstream/joulie-agent:v0.1.1");
    assert_eq!(agent["securityContext"]["privileged"], true);
    assert_eq!(variable(agent, "RECONCILE_INTERVAL"), "20s");
    let operator = container(&all, "Deployment", "joulie-operator");
    assert_eq!(variable(operator, "ECO_CAP_WATTS"), "120");
    assert_eq!(variable(operator, "NODE_SELECTOR"), "joulie.io/managed=true,tier=a");
    // An empty value counts as not set.
    assert_eq!(variable(operator, "PROMETHEUS_ADDRESS"), &Value::Null);
    let extender = find(&all, "Deployment", "joulie-scheduler-extender");
    assert_eq!(extender["spec"]["replicas"], 1);
    assert_eq!(extender["spec"]["template"]["spec"]["nodeName"], "control-plane-0");
    let service = find(&all, "Service", "joulie-scheduler-extender");
    assert_eq!(service["spec"]["clusterIP"], "10.96.0.50");
    let config = find(&all, "ConfigMap", "joulie-scheduler-config");
    assert!(config["data"]["config.yaml"].as_str().unwrap().contains("http://10.96.0.50:9876\n"), "{config}");
    for (name, port) in [("joulie-agent-metrics", 8080), ("joulie-operator-metrics", 8081)] {
        let service = find(&all, "Service", name);
        assert_eq!(service["spec"]["ports"][0]["port"], port);
        assert_eq!(service["metadata"]["annotations"]["prometheus.io/scrape"], "true");
    }
}

/// The files that the configuration of kube-scheduler names, and those that the extender reads, are those that are mounted.
#[test]
fn with_tls_the_extender_and_kube_scheduler_find_their_certificates() {
    let Some(helm) = Helm::or_skip() else { return };
    for (what, of) in MATRIX.iter().filter(|(_, of)| of.contains(&TLS)) {
        let all = rendered(&helm, of);
        let pod = &find(&all, "Deployment", "joulie-scheduler-extender")["spec"]["template"]["spec"];
        let extender = &pod["containers"][0];
        for (name, file) in
            [("TLS_CERT_FILE", "tls.crt"), ("TLS_KEY_FILE", "tls.key"), ("TLS_CLIENT_CA_FILE", "ca.crt")]
        {
            assert_eq!(variable(extender, name), &format!("/etc/joulie-tls/{file}"), "{what}");
        }
        assert_eq!(extender["volumeMounts"][0]["mountPath"], "/etc/joulie-tls");
        assert_eq!(pod["volumes"][0]["secret"]["secretName"], "joulie-scheduler-extender-tls");
        let config =
            find(&all, "ConfigMap", "joulie-scheduler-config")["data"]["config.yaml"].as_str().unwrap();
        assert!(config.contains("https://joulie-scheduler-extender.joulie-system.svc:9876\n"), "{config}");
        assert!(
            config.contains("enableHTTPS: true\n")
                && config.contains("serverName: joulie-scheduler-extender.")
        );
        let second = all
            .iter()
            .find(|one| one["kind"] == "Deployment" && one["metadata"]["name"] == "joulie-scheduler");
        let Some(second) = second else {
            assert!(config.contains("certFile: /etc/kubernetes/joulie/tls.crt\n"), "{config}");
            continue;
        };
        assert!(config.contains("certFile: /etc/joulie-tls/tls.crt\n"), "{config}");
        let volumes = second["spec"]["template"]["spec"]["volumes"].as_array().unwrap();
        let tls = volumes.iter().find(|volume| volume["name"] == "tls").unwrap();
        let client = find(&all, "Certificate", "joulie-scheduler-extender-client");
        assert_eq!(tls["secret"]["secretName"], client["spec"]["secretName"]);
        let server = find(&all, "Certificate", "joulie-scheduler-extender");
        assert_eq!(server["spec"]["secretName"], "joulie-scheduler-extender-tls");
    }
}

#[test]
fn without_a_word_about_it_an_agent_is_not_privileged() {
    let Some(helm) = Helm::or_skip() else { return };
    let all = rendered(&helm, &[]);
    let agent = container(&all, "DaemonSet", "joulie-agent");
    let security = json!({"runAsUser": 0, "runAsGroup": 0, "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}});
    assert_eq!(agent["securityContext"], security);
    assert!(!agent["volumeMounts"].to_string().contains("/dev"), "{agent}");
    for name in ["joulie-operator", "joulie-scheduler-extender"] {
        assert_eq!(container(&all, "Deployment", name)["securityContext"]["runAsNonRoot"], true, "{name}");
    }
    let privileged = rendered(&helm, &["--set", "agent.privileged=true"]);
    let agent = container(&privileged, "DaemonSet", "joulie-agent");
    assert_eq!(agent["securityContext"]["privileged"], true);
    assert!(agent["volumeMounts"].to_string().contains("/host/dev"), "{agent}");
}

fn definition(object: Value) -> CustomResourceDefinition {
    serde_json::from_value(object).unwrap()
}

#[test]
fn the_kinds_are_kept_and_anothers_is_left_out() {
    let Some(helm) = Helm::or_skip() else { return };
    let all = objects(&helm.template("chart-crds", &[]).unwrap()).unwrap();
    assert_eq!(all.len(), 8);
    for kind in &all {
        assert_eq!(kind["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
        assert_eq!(kind["spec"]["group"], "joulie.io");
    }
    assert_eq!(objects(&helm.template("chart-crds", &["--set", "gpu=true"]).unwrap()).unwrap().len(), 9);
    let bare = objects(&helm.template("chart-crds", &["--set", "keep=false"]).unwrap()).unwrap();
    for kind in &bare {
        let file = format!("joulie.io_{}.yaml", kind["spec"]["names"]["plural"].as_str().unwrap());
        let file = std::fs::read_to_string(deploy().join("chart-crds/files").join(file)).unwrap();
        // Compare by type, because helm writes 100 for 100.0.
        let [file, chart] = [serde_saphyr::from_str(&file).unwrap(), kind.clone()].map(definition);
        assert_eq!(file, chart);
    }
}

#[test]
fn the_charts_have_the_version_of_the_programs() {
    for chart in ["chart", "chart-crds"] {
        let text = std::fs::read_to_string(deploy().join(chart).join("Chart.yaml")).unwrap();
        let about: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(about["appVersion"], env!("CARGO_PKG_VERSION"), "{chart}");
        // Its own version may run ahead in its last number.
        let minor = |version: &str| version.rsplit_once('.').map(|(minor, _)| minor.to_owned());
        let version = about["version"].as_str().unwrap();
        assert_eq!(minor(version), minor(env!("CARGO_PKG_VERSION")), "{chart}");
    }
}

#[test]
fn what_helm_says_of_origins_is_taken_out() {
    let cut = by_template(
        "---\n# Source: joulie/templates/a.yaml\nkind: A  \n\nb: 1\n---\n# Source: joulie/templates/a.yaml\n# none\n",
    );
    assert_eq!(
        cut.into_iter().collect::<Vec<_>>(),
        [("a.yaml".to_owned(), vec!["kind: A\nb: 1\n".to_owned()])]
    );
}

/// The accounts whose roles let them create bindings of pods.
fn binders(all: &[Value]) -> BTreeSet<String> {
    let allows = |role: &Value| {
        let rules = role["rules"].as_array().into_iter().flatten();
        rules.filter_map(|rule| rule["resources"].as_array()).flatten().any(|one| one == "pods/binding")
    };
    let roles = all.iter().filter(|one| one["kind"] == "ClusterRole" && allows(one));
    let roles: Vec<&Value> = roles.map(|role| &role["metadata"]["name"]).collect();
    let bound = all.iter().filter(|one| one["kind"] == "ClusterRoleBinding");
    let bound = bound.filter(|one| roles.contains(&&one["roleRef"]["name"]));
    bound.map(|one| one["subjects"][0]["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_account_that_scores_cannot_bind_where_bind_has_its_own() {
    let Some(helm) = Helm::or_skip() else { return };
    let shared = rendered(&helm, &["--set", "gpuPlacement.enabled=true,gpuPlacement.bind=true"]);
    assert_eq!(binders(&shared), BTreeSet::from(["joulie-extender".to_owned()]));
    let apart = rendered(&helm, &["--set", BIND_APART]);
    assert_eq!(binders(&apart), BTreeSet::from(["joulie-binder".to_owned()]));
    for (name, account, bind) in [
        ("joulie-scheduler-extender", "joulie-extender", "apart"),
        ("joulie-scheduler-binder", "joulie-binder", "true"),
    ] {
        let pod = &find(&apart, "Deployment", name)["spec"]["template"]["spec"];
        assert_eq!(pod["serviceAccountName"], account);
        assert_eq!(variable(&pod["containers"][0], "GPU_BIND"), bind);
    }
    let config =
        find(&apart, "ConfigMap", "joulie-scheduler-config")["data"]["config.yaml"].as_str().unwrap();
    let (_, binder) = config.split_once("http://joulie-scheduler-binder.joulie-system.svc:9876").unwrap();
    assert!(binder.contains("bindVerb: bind") && !binder.contains("preemptVerb"), "{config}");
    assert_eq!(config.matches("bindVerb").count(), 1);
}
