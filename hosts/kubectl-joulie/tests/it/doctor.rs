//! Every finding has a cluster that is broken in that way, and a healthy cluster has none.

use super::world::{JOULIE, PODS, REVIEWS, World, condition, enforced};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::pin::Pin;

type Break = for<'w> fn(&'w World) -> Pin<Box<dyn Future<Output = ()> + 'w>>;

#[tokio::test(flavor = "multi_thread")]
async fn a_healthy_cluster_is_silent() {
    let world = World::healthy().await;
    assert_eq!(World::text(world.ask(&["doctor"]).await), "nothing wrong, 17 checks\n");
}

/// Each breakage, the check that finds it, and a part of what is seen.
const BROKEN: &[(&str, &str, Break)] = &[
    ("rights", "nodes is forbidden", |world| {
        Box::pin(async move {
            let refused = json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "nodes is forbidden"});
            world.can("/api/v1/nodes", 403, &refused.to_string());
        })
    }),
    (
        "program-rights",
        "operator: its account default may not list, watch, create, patch, delete nodepowerprofiles",
        |world| {
            Box::pin(
                async move { world.can(REVIEWS, 201, &json!({"status": {"allowed": false}}).to_string()) },
            )
        },
    ),
    ("definitions", "powerbudgets.joulie.io is not there", |world| {
        Box::pin(async move {
            world.can("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/powerbudgets.joulie.io", 404,
            &json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "message": "no"}).to_string());
        })
    }),
    ("definitions", "has no field", |world| {
        Box::pin(async move {
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodepowergrants.joulie.io";
            let mut older = world.get(path).await;
            let spec = &mut older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
            spec.as_object_mut().unwrap().remove("ceiling");
            world.can(path, 200, &older.to_string());
        })
    }),
    ("versions", "several versions", |world| {
        Box::pin(async move {
            world
                .merge(
                    &format!("{PODS}/joulie-agent-a"),
                    "helm",
                    json!({"metadata": {"labels": {"app.kubernetes.io/version": "0.0.9"}}}),
                )
                .await;
        })
    }),
    ("versions", "this plugin of", |world| {
        Box::pin(async move {
            for pod in ["joulie-agent-a", "joulie-agent-b", "joulie-operator-0", "joulie-extender-0"] {
                world
                    .merge(
                        &format!("{PODS}/{pod}"),
                        "helm",
                        json!({"metadata": {"labels": {"app.kubernetes.io/version": "9.0.0"}}}),
                    )
                    .await;
            }
        })
    }),
    ("programs", "joulie-agent-b on node b is not ready", |world| {
        Box::pin(world.ready("joulie-agent-b", "False"))
    }),
    ("programs", "no operator is ready", |world| {
        Box::pin(world.delete("/api/v1/namespaces/joulie-system/pods/joulie-operator-0?gracePeriodSeconds=0"))
    }),
    ("plan", "joulie-plan was last renewed 10m ago by joulie-operator-0_1", |world| {
        Box::pin(world.lease("joulie-plan", "joulie-operator-0_1", "2026-11-27T19:50:00Z"))
    }),
    ("plan", "nobody has ever renewed the Lease joulie-operator", |world| {
        Box::pin(world.delete("/apis/coordination.k8s.io/v1/namespaces/joulie-system/leases/joulie-operator"))
    }),
    ("reports", "node b has no NodeHardware", |world| {
        Box::pin(world.delete("/apis/joulie.io/v1alpha1/nodehardwares/b"))
    }),
    ("reports", "no node is managed", |world| {
        Box::pin(async move {
            for node in ["a", "b"] {
                world
                    .merge(
                        &format!("/api/v1/nodes/{node}"),
                        "person",
                        json!({"metadata": {"labels": {"joulie.io/managed": null}}}),
                    )
                    .await;
            }
        })
    }),
    ("twins", "node b has no NodeTwin", |world| {
        Box::pin(world.delete("/apis/joulie.io/v1alpha1/nodetwins/b"))
    }),
    ("twins", "MeterSilent", |world| {
        Box::pin(status(
            world,
            "nodetwins",
            json!([condition("TelemetryFresh", "False", "MeterSilent", "no sample")]),
        ))
    }),
    ("caps", "nothing is asked of it", |world| {
        Box::pin(world.delete("/apis/joulie.io/v1alpha1/nodepowerprofiles/b"))
    }),
    ("caps", "SimulateOnly", |world| {
        Box::pin(status(world, "nodepowerprofiles", json!([enforced("False", "SimulateOnly", "")])))
    }),
    ("caps", "Failed", |world| {
        Box::pin(status(
            world,
            "nodepowerprofiles",
            json!([enforced("False", "Failed", "permission denied")]),
        ))
    }),
    ("caps", "does not say", |world| Box::pin(status(world, "nodepowerprofiles", json!([])))),
    ("caps", "has not answered", |world| {
        Box::pin(async move {
            let mut old = enforced("True", "Enforced", "");
            old["observedGeneration"] = json!(99);
            status(world, "nodepowerprofiles", json!([old])).await;
        })
    }),
    ("grants", "grant 8 is not read back", |world| {
        Box::pin(async move {
            world
                .merge(
                    &format!("{JOULIE}/nodepowergrants/b"),
                    "joulie-operator",
                    json!({"spec": {"serial": 8}}),
                )
                .await;
        })
    }),
    ("budgets", "BudgetShort", |world| {
        Box::pin(world.budget(json!({"conditions":
        [condition("Accepted", "True", "Accepted", ""), condition("WithinBudget", "False", "BudgetShort", "")]})))
    }),
    ("budgets", "has not taken it in", |world| {
        Box::pin(async move {
            world
                .merge(&format!("{JOULIE}/powerbudgets/site"), "person", json!({"spec": {"watts": 1600}}))
                .await;
        })
    }),
    ("one-agent", "reported twice", |world| {
        Box::pin(world.ours(
            "nodehardwares",
            "NodeHardware",
            "other-b",
            json!({"nodeName": "b"}),
            json!({"cpu": {"model": "x"}}),
        ))
    }),
    ("one-agent", "run on node b", |world| Box::pin(world.program("joulie-agent-c", "agent", "b"))),
    ("writers", "package-0 was moved", |world| {
        Box::pin(world.event("e1", "OtherWriter", "package-0 was moved", "b"))
    }),
    ("writers", "mallory has written the status of b", |world| {
        Box::pin(async move {
            world
                .merge(
                    &format!("{JOULIE}/nodehardwares/b/status"),
                    "mallory",
                    json!({"status": {"cpu": {"model": "y"}}}),
                )
                .await;
        })
    }),
    ("writers", "mallory has written the grant of b", |world| {
        Box::pin(async move {
            world
                .merge(&format!("{JOULIE}/nodepowergrants/b"), "mallory", json!({"spec": {"watts": 400}}))
                .await;
        })
    }),
    ("persons-caps", "has no end", |world| Box::pin(capped(world, Value::Null))),
    ("persons-caps", "is no time", |world| Box::pin(capped(world, json!("tomorrow")))),
    ("persons-caps", "was to end at 2026-11-27T19:00:00Z, and stands", |world| {
        Box::pin(capped(world, json!("2026-11-27T19:00:00Z")))
    }),
    ("owners-limits", "Clamped", |world| {
        Box::pin(status(world, "nodepowerprofiles", json!([enforced("True", "Clamped", "to 200 W")])))
    }),
    ("scraped", "no PodMonitor", |world| {
        Box::pin(async move {
            world.cannot("/api/v1/namespaces/joulie-system/services");
        })
    }),
    ("scheduler", "weight 5: its scores count up to 5000 beside the 1200", |world| {
        Box::pin(stanza(world, "weight: 1", "weight: 5"))
    }),
    ("scheduler", "nodeCacheCapable is not true", |world| {
        Box::pin(stanza(world, "nodeCacheCapable: true", "nodeCacheCapable: false"))
    }),
    ("scheduler", "HTTPS without an authority", |world| {
        Box::pin(stanza(world, "urlPrefix: 'http:", "enableHTTPS: true, urlPrefix: 'https:"))
    }),
    ("scheduler", "the scheme of urlPrefix differ", |world| {
        Box::pin(stanza(world, "urlPrefix: 'http:", "urlPrefix: 'https:"))
    }),
    ("scheduler", "httpTimeout is 5 s", |world| Box::pin(stanza(world, "httpTimeout: 1s, ", ""))),
    ("scheduler", "ignorable is not true", |world| {
        Box::pin(stanza(world, "ignorable: true", "ignorable: false"))
    }),
    ("scheduler", "prioritizeVerb is not prioritize", |world| {
        Box::pin(stanza(world, "prioritizeVerb: prioritize, ", ""))
    }),
    ("scheduler", "no extender of Joulie's", |world| {
        Box::pin(world.scheduler("kind: KubeSchedulerConfiguration\n"))
    }),
    ("scheduler", "it is no YAML", |world| {
        Box::pin(world.scheduler("kind: KubeSchedulerConfiguration\n\t- [\n"))
    }),
];

async fn status(world: &World, plural: &str, conditions: Value) {
    let who = if plural == "nodetwins" { "joulie-operator" } else { "joulie-agent" };
    world
        .merge(&format!("{JOULIE}/{plural}/b/status"), who, json!({"status": {"conditions": conditions}}))
        .await;
}

async fn capped(world: &World, until: Value) {
    // The generation moves with the spec, and the agent has answered to it.
    world.merge(&format!("{JOULIE}/nodepowerprofiles/b"), "kubectl-joulie",
        json!({"metadata": {"annotations": {"joulie.io/cap-until": until}}, "spec": {"cpu": {"packagePowerCapPctOfMax": 55}}})).await;
    let mut answered = enforced("True", "Enforced", "");
    answered["observedGeneration"] = json!(2);
    status(world, "nodepowerprofiles", json!([answered])).await;
}

async fn stanza(world: &World, part: &str, other: &str) {
    let path = "/api/v1/namespaces/joulie-system/configmaps/joulie-scheduler-config";
    let text = world.get(path).await["data"]["config.yaml"].as_str().unwrap().to_owned();
    assert!(text.contains(part), "{part:?} is not in {text}");
    world.scheduler(&text.replace(part, other)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_breakage_is_found_by_its_check_and_no_other() {
    let checks: BTreeSet<&str> = BROKEN.iter().map(|(check, _, _)| *check).collect();
    assert_eq!(checks.len(), 17, "as many as a healthy cluster passes: {checks:?}");
    for (check, seen, breaks) in BROKEN {
        let world = World::healthy().await;
        breaks(&world).await;
        let reply = world.ask(&["doctor", "-o", "json"]).await;
        let found: Value = serde_json::from_str(&reply.text).unwrap();
        let findings = found["findings"].as_array().unwrap();
        assert_eq!(reply.code, 1, "{check}: {seen}");
        let is_it = |one: &Value| one["check"] == *check && one["seen"].as_str().unwrap().contains(seen);
        assert!(findings.iter().any(is_it), "{check}: {seen:?} is not in {found:#}");
        // Without an operator or a list of nodes more than one thing is wrong; else the breakage is the only finding.
        let alone = !matches!(*check, "rights" | "programs");
        assert!(!alone || findings.iter().all(|one| one["check"] == *check), "{check}: {seen}: {found:#}");
        for one in findings {
            assert!(
                one["why"].as_str().unwrap().len() > 10 && one["do"].as_str().unwrap().len() > 10,
                "{one}"
            );
        }
    }
}

/// The chart's entries with `gpuPlacement.bindAccount=own`, beside the first.
const FOR_BINDINGS: &str = "\
- {urlPrefix: 'http://joulie-scheduler-extender.joulie-system.svc:9876', preemptVerb: preempt, nodeCacheCapable: true, httpTimeout: 1s, ignorable: false}
- {urlPrefix: 'http://joulie-scheduler-binder.joulie-system.svc:9876', bindVerb: bind, nodeCacheCapable: true, httpTimeout: 10s, managedResources: [{name: nvidia.com/gpu}]}
";

#[tokio::test(flavor = "multi_thread")]
async fn the_charts_entries_for_bindings_are_no_finding_and_place_nothing_alone() {
    let world = World::healthy().await;
    let path = "/api/v1/namespaces/joulie-system/configmaps/joulie-scheduler-config";
    let text = world.get(path).await["data"]["config.yaml"].as_str().unwrap().to_owned();
    world.scheduler(&format!("{text}{FOR_BINDINGS}")).await;
    let said = World::text(world.ask(&["doctor"]).await);
    assert_eq!(said, "nothing wrong, 17 checks\n");
    for (config, seen) in [
        (format!("kind: KubeSchedulerConfiguration\nextenders:\n{FOR_BINDINGS}"), "no extender of Joulie's"),
        (format!("{text}{}", FOR_BINDINGS.replace("http://", "https://")), "the scheme of urlPrefix differ"),
    ] {
        world.scheduler(&config).await;
        let reply = world.ask(&["doctor"]).await;
        assert!(reply.code == 1 && reply.text.contains(seen), "{seen}: {reply:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_that_nobody_lets_the_person_ask_for_are_said_and_are_no_finding() {
    let world = World::healthy().await;
    let refused = json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "you may not"});
    world.can(REVIEWS, 403, &refused.to_string());
    let said = World::text(world.ask(&["doctor"]).await);
    assert_eq!(said, "nothing wrong, 16 checks\nnot looked at: the rights of the programs: you may not\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_the_scheduler_is_read_and_one_that_is_not_there_is_said() {
    let world = World::healthy().await;
    let file = std::env::temp_dir().join(format!("kubectl-joulie-scheduler-{}.yaml", std::process::id()));
    std::fs::write(&file, "extenders:\n- {urlPrefix: 'http://x:9876', filterVerb: filter, prioritizeVerb: prioritize, weight: 5, nodeCacheCapable: true, httpTimeout: 1s, ignorable: true}\n").unwrap();
    let reply = world.ask(&["doctor", "--scheduler-config", file.to_str().unwrap()]).await;
    assert!(reply.code == 1 && reply.text.contains("weight 5"), "{reply:?}");
    std::fs::remove_file(&file).unwrap();
    let reply = world.ask(&["doctor", "--scheduler-config", file.to_str().unwrap()]).await;
    assert!(
        reply.text.starts_with("nothing wrong, 16 checks\nnot looked at: kube-scheduler's configuration: "),
        "{reply:?}"
    );
}

/// A pod, what is set there, and what its program then asks for: the kind and the verb of a right that no other part has.
type SwitchedOn = (&'static str, &'static [(&'static str, &'static str)], &'static str, &'static str);

const PARTS: &[SwitchedOn] = &[
    ("joulie-operator-0", &[("UI", "read")], "events", "list"),
    ("joulie-operator-0", &[("PERFORMANCE_NODES_MAX", "2")], "events", "create"),
    ("joulie-operator-0", &[("ENABLE_ACTIVE_RESCHEDULING", "true")], "jobs", "patch"),
    ("joulie-operator-0", &[("GPU_REPAIR_AFTER", "2m")], "gpus", "watch"),
    ("joulie-agent-a", &[("ENERGY_LEDGER", "on")], "pods", "watch"),
    ("joulie-agent-a", &[("GPU_OBJECTS", "on")], "gpus", "delete"),
    ("joulie-agent-a", &[("GPU_OBJECTS", "on"), ("GPU_DRA", "read")], "resourceslices", "list"),
    ("joulie-extender-0", &[("GPU_PLACEMENT", "all")], "gpus", "watch"),
    ("joulie-extender-0", &[("GPU_PLACEMENT", "all"), ("GPU_DRA", "read")], "resourceclaims", "watch"),
    ("joulie-extender-0", &[("GPU_BIND", "apart")], "poddisruptionbudgets", "list"),
    ("joulie-extender-0", &[("GPU_BIND", "true")], "pods", "create"),
    ("joulie-extender-0", &[("METRICS_AUTH", "token")], "tokenreviews", "create"),
];

#[tokio::test(flavor = "multi_thread")]
async fn the_rights_of_a_part_are_asked_for_where_it_is_on_and_only_there() {
    for (pod, variables, kind, verb) in PARTS {
        let world = World::healthy().await;
        // Events may be created anyway in two namespaces; what the parts need is without one.
        world.deny(json!({"resource": kind, "verb": verb, "namespace": null}));
        let off = world.ask(&["doctor"]).await.text;
        // Operator and extender always watch pods.
        let asked_anyway = (*kind, *verb) == ("pods", "watch");
        assert!(asked_anyway || off == "nothing wrong, 17 checks\n", "{variables:?}: {off}");
        world.variables(pod, variables).await;
        let reply = world.ask(&["doctor", "-o", "json"]).await;
        let found: Value = serde_json::from_str(&reply.text).unwrap();
        let setting = variables.last().unwrap().0;
        let is_it = |one: &&Value| {
            let seen = one["seen"].as_str().unwrap();
            one["check"] == "program-rights"
                && seen.contains(&format!("may not {verb} {kind}"))
                && seen.contains(setting)
        };
        assert_eq!(
            found["findings"].as_array().unwrap().iter().filter(is_it).count(),
            1,
            "{variables:?}: {found:#}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_file_of_settings_switches_on_counts_and_a_value_from_elsewhere_is_said() {
    let world = World::healthy().await;
    world.deny(json!({"resource": "pods", "subresource": "eviction"}));
    let config = "# of the chart\nENABLE_ACTIVE_RESCHEDULING=true\n";
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "joulie-operator-config", "namespace": "joulie-system"}, "data": {"operator.conf": config}});
    world.apply("/api/v1/namespaces/joulie-system/configmaps", "helm", map).await;
    let container = json!({
        "env": [{"name": "JOULIE_CONFIG", "value": "/etc/joulie-config/operator.conf"},
                {"name": "UI", "valueFrom": {"configMapKeyRef": {"name": "x", "key": "y"}}}],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/joulie-config"}]});
    let volumes = json!([{"name": "config", "configMap": {"name": "joulie-operator-config"}}]);
    world.rolled_out("joulie-operator-0", container, volumes).await;
    let reply = world.ask(&["doctor"]).await;
    let expected = "program-rights: operator: its account default may not create pods/eviction, for ENABLE_ACTIVE_RESCHEDULING\n";
    assert!(reply.code == 1 && reply.text.starts_with(expected), "{reply:?}");
    assert!(
        reply.text.contains("not looked at: the rights for UI of operator: its value is not in the pod"),
        "{reply:?}"
    );
    // Without the file nobody knows what is on.
    world.delete("/api/v1/namespaces/joulie-system/configmaps/joulie-operator-config").await;
    let said = World::text(world.ask(&["doctor"]).await);
    assert!(said.contains("not looked at: what ConfigMap joulie-operator-config switches on"), "{said}");
}
