//! What is shown of a cluster.

use super::world::{JOULIE, PODS, World, condition};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn status_has_upstreams_summary_and_table() {
    let world = World::healthy().await;
    let text = World::text(world.ask(&["status"]).await);
    // Cooling: (31.5 + 10) / 2 = 20.75; headroom: (72.5 + 13.5) / 2; CPU of a: 32 of 64; memory: 64 of 256. Half to even.
    let expected = "\
Joulie Cluster Status
  Nodes: 2 total (1 eco, 1 performance)
  Avg cooling stress: 21%  |  Peak: 32% (a)
  Avg PSU stress: 12%
  Avg headroom: 43%
  Running pods: 5

NODE  CLASS        HEADROOM  COOLING  CPU%  MEM%  GPU%  PODS  CPU CAP  GPU CAP
a     performance  72%       32%      50%   25%   -     3     100%     -
b     eco          14%       10%      0%    0%    0%    2     60%      50%
";
    assert_eq!(text, expected);
    let wide = World::text(world.ask(&["status", "-o", "wide"]).await);
    let b = wide.lines().last().unwrap();
    assert!(b.ends_with("200 W  420 W    500 W    True      Enforced  True"), "{wide}");
    assert_eq!(World::text(world.ask(&["status", "-o", "name"]).await), "node/a\nnode/b\n");
    let json: Value = serde_json::from_str(&World::text(world.ask(&["status", "-o", "json"]).await)).unwrap();
    assert_eq!(
        (&json["items"][1]["grantedWatts"], &json["items"][1]["class"]),
        (&json!(500.0), &json!("eco"))
    );
    let yaml = World::text(world.ask(&["status", "-o", "yaml"]).await);
    let read: Value = serde_saphyr::from_str(&yaml).unwrap();
    assert_eq!(read["items"][0]["node"], "a");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_cluster_is_told_and_not_shown_as_well() {
    let world = World::empty().await;
    assert_eq!(
        World::text(world.ask(&["status"]).await),
        "No NodeTwins: is Joulie installed, and is a node labelled joulie.io/managed=true?\n"
    );
    assert!(World::text(world.ask(&["budget"]).await).starts_with("No PowerBudgets"));
    let reply = world.ask(&["energy"]).await;
    assert_eq!((reply.code, reply.notes.len()), (1, 1), "{reply:?}");
    assert!(reply.notes[0].contains("no agent is ready"), "{reply:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_not_be_listed_is_unknown_and_not_zero() {
    // Fix list extender B29.
    let world = World::healthy().await;
    let forbidden = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "pods is forbidden"});
    world.can("/api/v1/pods", 403, &forbidden.to_string());
    let reply = world.ask(&["status"]).await;
    assert!(reply.notes.iter().any(|note| note.contains("pods is forbidden")), "{reply:?}");
    assert!(reply.text.contains("Running pods: -"), "{reply:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn budget_says_what_is_unused_and_where() {
    let world = World::healthy().await;
    let text = World::text(world.ask(&["budget"]).await);
    // a holds 700 W and draws 300, b holds 500 and draws 200.
    let expected = "\
BUDGET  MODE     LIMIT   COUNTED  MEASURED  UNUSED  SHORT  NODES  KEPT  MOST UNUSED ON
site    enforce  1500 W  1200 W   500 W     700 W   -      2      True  a 400 W, b 300 W
";
    assert_eq!(text, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn top_shows_who_draws_most() {
    let world = World::healthy().await;
    let text = World::text(world.ask(&["top", "--once"]).await);
    let expected = "\
2 nodes draw 500 W of 1120 W that their caps allow; 0 are not measured
budget site (enforce): 500 W measured, 1200 W counted, of 1500 W; kept: True

NODE  CLASS        POWER  ALLOWED  USE  HEADROOM
a     performance  300 W  700 W    43%  72%
b     eco          200 W  420 W    48%  14%
";
    assert_eq!(text, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_explained_with_who_decided_and_since_when() {
    let world = World::healthy().await;
    world.event("e1", "OtherWriter", "package-0 was moved", "b").await;
    let text = World::text(world.ask(&["explain", "node", "b"]).await);
    for line in [
        "why         the plan makes it eco (policy static-partition-v1, last written at 2026-11-27T20:00:00Z): it runs capped",
        "its grant of PowerBudget site allows 500 W for all its packages and GPUs together",
        "desired     eco; each package 60 % of the maximum, each GPU no cap (NodePowerProfile b)",
        "spec.cpu: joulie-operator at 2026-11-27T20:00:00Z",
        "in force    CapEnforced=True since 2026-11-27T18:00:00Z: Enforced",
        "each package: 210 W read back, 210 W asked for (rapl, applied)",
        "grant       500 W in all, serial 7, read back; its devices hold 500 W (floor 200 W)",
        "draws 200 W of 420 W that its caps allow and 700 W that it can (agent, sampled 5s ago)",
        "label       joulie.io/power-profile=eco",
        "events      5m ago: Warning OtherWriter: package-0 was moved",
        "plan        /debug/plan of the operator: not asked: --debug-token-file is not given",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
    let reply = world.ask(&["explain", "node", "nobody"]).await;
    assert_eq!(reply.code, 1, "{reply:?}");
    let json: Value =
        serde_json::from_str(&World::text(world.ask(&["explain", "node", "b", "-o", "json"]).await)).unwrap();
    assert_eq!(json["grant"]["spec"]["serial"], 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_explained_with_the_decisions_about_the_limits_above_it() {
    let world = World::healthy().await;
    let none = World::text(world.ask(&["explain", "node", "b"]).await);
    assert!(!none.contains("decision"), "{none}");
    world
        .merge(
            &format!("{JOULIE}/nodepowergrants/b"),
            "joulie-operator",
            json!({"spec": {"decision": "12.345"}}),
        )
        .await;
    let alone = World::text(world.ask(&["explain", "node", "b"]).await);
    assert!(alone.contains("serial 7, by decision 12.345, read back"), "{alone}");
    assert!(alone.contains("decisions   no Event of decision 12.345, which wrote this grant"), "{alone}");
    let (site, plan) = (("PowerBudget", "site", ""), ("Lease", "joulie-plan", "joulie-system"));
    for (reason, message, about, at) in [
        ("LimitChanged", "enforce 1500 W instead of enforce 2500 W", site, "2026-11-27T19:50:00Z"),
        (
            "BudgetLowers",
            "decision 12.345: 2 nodes are lowered by 900.0 W together, because the limit changed",
            site,
            "2026-11-27T19:51:00Z",
        ),
        ("BudgetRaises", "decision 12.34: 2 nodes are raised", plan, "2026-11-27T19:49:00Z"),
        ("ConfigApplied", "not about a limit", plan, "2026-11-27T19:59:00Z"),
        ("BudgetLowers", "of another limit", ("PowerBudget", "other", ""), "2026-11-27T19:58:00Z"),
    ] {
        world.decided(reason, message, about, at).await;
    }
    let text = World::text(world.ask(&["explain", "node", "b"]).await);
    let expected = "  decisions   9m ago: this grant: BudgetLowers of site: decision 12.345: 2 nodes are lowered by 900.0 W together, because the limit changed
              10m ago: LimitChanged of site: enforce 1500 W instead of enforce 2500 W
              11m ago: BudgetRaises: decision 12.34: 2 nodes are raised
  conditions";
    assert!(text.contains(expected), "{text}");
    let json: Value =
        serde_json::from_str(&World::text(world.ask(&["explain", "node", "b", "-o", "json"]).await)).unwrap();
    assert_eq!(json["decisions"].as_array().unwrap().len(), 3);
    // What wrote the grant is shown however much came later.
    for second in 10..24 {
        let at = format!("2026-11-27T19:52:{second}Z");
        world.decided("LimitChanged", &format!("at {second}"), site, &at).await;
    }
    let later = World::text(world.ask(&["explain", "node", "b"]).await);
    assert!(later.contains("9m ago: this grant: BudgetLowers of site: decision 12.345"), "{later}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_token_the_plan_and_the_scores_are_asked_behind_the_proxy() {
    let world = World::healthy().await;
    let token = std::env::temp_dir().join(format!("kubectl-joulie-token-{}", std::process::id()));
    std::fs::write(&token, "secret\n").unwrap();
    let plan = json!({"nodes": [{"node": "b", "planned": "eco", "by": "static-partition-v1", "inputs": {"visibility": "Clear"}}]});
    world.can(&format!("{PODS}/joulie-operator-0:8080/proxy/debug/plan"), 200, &plan.to_string());
    let file = token.to_str().unwrap();
    let text = World::text(world.ask(&["explain", "node", "b", "--debug-token-file", file]).await);
    assert!(text.contains("plan        planned: eco") && text.contains("inputs.visibility: Clear"), "{text}");
    world.can(
        &format!("{PODS}/joulie-operator-0:8080/proxy/debug/plan"),
        403,
        "only from this machine, or with the token\n",
    );
    let text = World::text(world.ask(&["explain", "node", "b", "--debug-token-file", file]).await);
    assert!(text.contains("plan        /debug/plan of the operator: pod joulie-operator-0:"), "{text}");
    std::fs::remove_file(token).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_explained_and_judged_by_the_extenders_own_code() {
    let world = World::healthy().await;
    let text = World::text(world.ask(&["explain", "pod", "web"]).await);
    assert!(text.starts_with("pod default/web\n  where       it is on node a,"), "{text}");
    assert!(text.contains("as this program judges by the extender's default settings (not asked"), "{text}");
    for node in ["a: ", "b: "] {
        let line = text
            .lines()
            .find(|line| line.trim_start().starts_with(node) || line.contains(&format!(" {node}")));
        assert!(
            line.is_some_and(|line| line.contains("points, filter: pass; it would add ")),
            "{node}\n{text}"
        );
    }
    assert!(text.contains("its node    the plan makes it performance"), "{text}");
    assert_eq!(world.ask(&["explain", "pod", "other/web"]).await.code, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_simulated_on_the_nodes_that_have_room_for_it() {
    let world = World::healthy().await;
    let text = World::text(world.ask(&["simulate", "pod", "--cpu", "48", "--memory", "16Gi"]).await);
    assert!(text.starts_with("It would go to node b, and draw "), "{text}");
    assert!(
        text.contains("1 of 2 nodes have room for it:")
            && text.contains("1 nodes: too few processors are left"),
        "{text}"
    );
    // A performance pod may not go to an eco node, and there is no other with room.
    let reply = world.ask(&["simulate", "pod", "--cpu", "48", "--class", "performance"]).await;
    assert_eq!(reply.code, 1, "{reply:?}");
    assert!(reply.text.starts_with("It would go nowhere now."), "{reply:?}");
    assert_eq!(world.ask(&["simulate", "pod", "--cpu", "many"]).await.code, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn energy_is_added_up_over_the_agents_and_what_is_missing_is_said() {
    let world = World::healthy().await;
    let series = "joulie_energy_joules_total{node=\"a\",account=\"workload\",namespace=\"default\",workload=\"Deployment/web\",part=\"cpu\"} 7200000\n\
        joulie_energy_joules_total{node=\"a\",account=\"idle\",namespace=\"\",workload=\"\",part=\"cpu\"} 3600000\n\
        joulie_energy_divided_joules_total{node=\"a\",part=\"cpu\",source=\"cgroups\"} 10800000\n";
    world.can(&format!("{PODS}/joulie-agent-a:8080/proxy/metrics"), 200, series);
    world.can(&format!("{PODS}/joulie-agent-b:8080/proxy/metrics"), 503, "no");
    let reply = world.ask(&["energy", "--by", "workload"]).await;
    assert!(reply.notes.iter().any(|note| note.starts_with("1 of 2 agents could not be asked")), "{reply:?}");
    let expected = "\
Since each of 1 agents started: 3.000 kWh
The energy of packages was divided by: cgroups 100.0%

WHO                     ACCOUNT   KWH    CPU KWH  GPU KWH  SHARE
default/Deployment/web  workload  2.000  2.000    0.000    66.7%
-                       idle      1.000  1.000    0.000    33.3%
";
    assert_eq!(World::text(reply), expected);
    world.can(&format!("{PODS}/joulie-agent-a:8080/proxy/metrics"), 200, "joulie_build_info 1\n");
    let reply = world.ask(&["energy"]).await;
    assert!(reply.code == 1 && reply.notes.iter().any(|note| note.contains("ENERGY_LEDGER=on")), "{reply:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_recommended_is_listed() {
    let world = World::healthy().await;
    assert_eq!(World::text(world.ask(&["recommend"]).await), "Nothing is recommended for 2 nodes\n");
    let advice = json!([{"workloadRef": {"kind": "Pod", "namespace": "default", "name": "web"}, "reason": "the cooling is stressed",
        "cause": "cooling_stress", "stress": 91.4, "targetNode": "b"}]);
    world
        .merge(
            &format!("{JOULIE}/nodetwins/a/status"),
            "joulie-operator",
            json!({"status": {"rescheduleRecommendations": advice}}),
        )
        .await;
    let expected = "\
NODE  WHAT             ADVICE         TO  WHY
a     pod default/web  run elsewhere  b   the cooling is stressed
";
    assert_eq!(World::text(world.ask(&["recommend"]).await), expected);
    let slicing = json!({"mode": "mig", "sliceType": "1g.10gb", "slicesPerGPU": 7, "totalSlices": 56,
        "reason": "3 pods use GPUs"});
    let none = json!({"rescheduleRecommendations": [], "gpuSlicingRecommendation": slicing});
    world.merge(&format!("{JOULIE}/nodetwins/a/status"), "joulie-operator", json!({"status": none})).await;
    let text = World::text(world.ask(&["recommend", "-o", "json"]).await);
    let page: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        page["items"][0]["deviceAttributes"],
        json!({"joulie.io/slicingMode": {"string": "mig"}, "joulie.io/sliceProfile": {"string": "1g.10gb"},
            "joulie.io/slicesPerDevice": {"int": 7}}),
        "{page}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn no_escape_of_an_object_reaches_the_terminal() {
    let world = World::healthy().await;
    let evil = "x\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}\r\n";
    let conditions = json!([condition("TelemetryFresh", "False", "MeterSilent", evil)]);
    world.merge(&format!("{JOULIE}/nodetwins/b/status"), "joulie-operator",
        json!({"status": {"conditions": conditions, "rescheduleRecommendations": [{"workloadRef": {"kind": evil, "name": evil}, "reason": evil}]}})).await;
    let caps = json!({"metadata": {"annotations": {"joulie.io/cap-by": evil, "joulie.io/cap-until": evil, "joulie.io/cap-reason": evil}},
        "spec": {"cpu": {"packagePowerCapWatts": 200, "packagePowerCapPctOfMax": null}, "policy": {"name": evil}}});
    world.merge(&format!("{JOULIE}/nodepowerprofiles/b"), "kubectl-joulie", caps).await;
    world.event("e1", "OtherWriter", evil, "b").await;
    let commands: [&[&str]; 9] = [
        &["status"],
        &["top", "--once"],
        &["budget"],
        &["explain", "node", "b"],
        &["explain", "pod", "web"],
        &["doctor"],
        &["recommend"],
        &["cap", "b", "--off"],
        &["simulate", "pod"],
    ];
    for command in commands {
        for format in [None, Some("json"), Some("yaml"), Some("wide"), Some("name")] {
            let words: Vec<&str> =
                command.iter().copied().chain(format.into_iter().flat_map(|format| ["-o", format])).collect();
            let reply = world.ask(&words).await;
            let obeyed = reply.text.chars().find(|c| *c != '\n' && (c.is_control() || *c == '\u{202e}'));
            assert_eq!(obeyed, None, "{words:?}: {:?}", reply.text);
        }
    }
}
