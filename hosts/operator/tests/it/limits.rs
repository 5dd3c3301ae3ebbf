//! Limits that a person writes as PowerBudgets: changed while the operator runs, observed, paused, and written wrongly.

use super::budget::{NODES, Rack, below, confirmed, name, site};
use super::rig::{Cluster, JOULIE};
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::JoinHandle;

const QUICK: [(&str, &str); 2] = [("WRITE_TIMEOUT", "300ms"), ("BUDGET_RAISE_DWELL", "100ms")];

async fn write(cluster: &Cluster, name: &str, spec: Value) {
    let object = json!({"apiVersion": "joulie.io/v1alpha1", "kind": "PowerBudget", "metadata": {"name": name}, "spec": spec});
    cluster.create(&format!("{JOULIE}/powerbudgets"), &object).await;
}

async fn change(cluster: &Cluster, name: &str, spec: Value) {
    cluster.patch(&format!("{JOULIE}/powerbudgets/{name}"), &json!({"spec": spec})).await;
}

async fn status(cluster: &Cluster, name: &str) -> Value {
    let Some(budget) = cluster.get(&format!("{JOULIE}/powerbudgets/{name}")).await else {
        return Value::Null;
    };
    let is_current = budget["status"]["observedGeneration"] == budget["metadata"]["generation"];
    if is_current { budget["status"].clone() } else { Value::Null }
}

async fn condition(cluster: &Cluster, name: &str, kind: &str) -> String {
    let status = status(cluster, name).await;
    let all = status["conditions"].as_array().into_iter().flatten();
    let found = all.into_iter().find(|condition| condition["type"] == kind);
    found.map_or_else(String::new, |found| found["reason"].as_str().unwrap_or_default().to_owned())
}

async fn granted(cluster: &Cluster) -> Vec<String> {
    let grants = cluster.list(&format!("{JOULIE}/nodepowergrants")).await;
    grants.iter().map(|grant| grant["spec"]["nodeName"].as_str().unwrap().to_owned()).collect()
}

async fn events(cluster: &Cluster, reason: &str) -> Vec<Value> {
    // Events of objects without a namespace are in the default one.
    let events = cluster.list("/apis/events.k8s.io/v1/events").await;
    events.into_iter().filter(|event| event["reason"] == reason).collect()
}

async fn end(rack: &Rack, agents: Vec<JoinHandle<()>>) {
    rack.ended.store(true, Ordering::SeqCst);
    for agent in agents {
        agent.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_is_observed_enforced_changed_paused_and_taken_away_while_the_operator_runs() {
    let (cluster, rack, agents) = site().await;
    write(&cluster, "site", json!({"watts": 2400, "mode": "observe"})).await;
    let operator = cluster.operator(&[&QUICK[..], &[("STATIC_HP_FRAC", "1")]].concat()).await;
    // 6 × 720 W are 4320 W at full power: 1920 W above the limit.
    let would = async || status(&cluster, "site").await["wouldLowerWatts"].as_f64() == Some(1920.0);
    cluster.until("it says by how much nodes would be lowered", would).await;
    let observed = status(&cluster, "site").await;
    assert_eq!((&observed["wouldLowerNodes"], &observed["nodes"]), (&json!(6), &json!(6)));
    assert_eq!((&observed["countedWatts"], &observed["roomWatts"]), (&json!(4320), &json!(-1920)));
    assert_eq!(condition(&cluster, "site", "WithinBudget").await, "Observed");
    assert_eq!((granted(&cluster).await.len(), rack.draw()), (0, 4320), "nothing is sent");

    change(&cluster, "site", json!({"mode": "enforce"})).await;
    below(&cluster, &rack, 2400).await;
    cluster.until("all is confirmed", async || confirmed(&cluster).await).await;
    cluster.until("it is kept", async || condition(&cluster, "site", "WithinBudget").await == "Kept").await;
    // The decision has a name, which its Event and the grants that it wrote have.
    let lowers = async || {
        let all = events(&cluster, "BudgetLowers").await;
        let note =
            all.iter().find(|event| event["regarding"]["name"] == "site")?["note"].as_str()?.to_owned();
        let (decision, _) = note.strip_prefix("decision ")?.split_once(": ")?;
        assert!(note.contains("of powerbudget/site are lowered by "), "{note}");
        assert!(note.contains(", because the limit of powerbudget/site, 2400.0 W, is enforced "), "{note}");
        Some(decision.to_owned())
    };
    cluster.until("an Event tells the decision", async || lowers().await.is_some()).await;
    let number = |decision: &str| -> (i64, u64) {
        let (term, pass) = decision.split_once('.').unwrap();
        (term.parse().unwrap(), pass.parse().unwrap())
    };
    let (term, pass) = number(&lowers().await.unwrap());
    for grant in cluster.list(&format!("{JOULIE}/nodepowergrants")).await {
        // Some may have been written again since.
        let of_grant = number(grant["spec"]["decision"].as_str().unwrap());
        assert!(of_grant.0 == term && of_grant.1 >= pass, "{of_grant:?}, not from {term}.{pass} on");
    }
    // A new leader raises nothing at first. From here on it does.
    change(&cluster, "site", json!({"watts": 2500})).await;
    cluster.until("more is given", async || rack.draw() > 2440).await;
    change(&cluster, "site", json!({"watts": 2400})).await;
    below(&cluster, &rack, 2400).await;
    cluster.until("it is taken in", async || status(&cluster, "site").await["limitWatts"] == 2400).await;
    change(&cluster, "site", json!({"watts": 1800})).await;
    below(&cluster, &rack, 1800).await;
    let changed = async || {
        let all = events(&cluster, "LimitChanged").await;
        all.iter().any(|event| {
            event["regarding"]["name"] == "site"
                && event["note"] == "powerbudget/site: enforce 1800 W instead of enforce 2400 W"
        })
    };
    cluster.until("an Event tells the change", changed).await;

    // While it is paused, a limit that is raised raises nobody, and one that is cut lowers.
    change(&cluster, "site", json!({"pause": true, "watts": 3600})).await;
    cluster.until("it is taken in", async || status(&cluster, "site").await["limitWatts"] == 3600).await;
    cluster.quiet(Duration::from_millis(500)).await;
    rack.watch();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(rack.peak() <= 1800, "{} W while it is paused", rack.peak());
    change(&cluster, "site", json!({"watts": 1500})).await;
    below(&cluster, &rack, 1500).await;
    change(&cluster, "site", json!({"pause": false, "watts": 3600})).await;
    cluster.until("more is given", async || rack.draw() > 3500).await;
    assert!(rack.peak() <= 3600, "{} W", rack.peak());

    // Without a limit every node is released.
    cluster.until("all is confirmed", async || confirmed(&cluster).await).await;
    cluster.send("DELETE", &format!("{JOULIE}/powerbudgets/site"), &Value::Null).await.unwrap();
    let released = async || granted(&cluster).await.is_empty() && rack.draw() == 4320;
    cluster.until("all are released", released).await;
    operator.stop().await;
    end(&rack, agents).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_part_of_the_site_is_enforced_and_a_node_that_asks_for_it_is_only_counted() {
    let (cluster, rack, agents) = site().await;
    let part = |pool: &str| json!({"matchLabels": {"pool": pool}});
    write(&cluster, "site", json!({"watts": 9000, "mode": "observe"})).await;
    let small = json!({"watts": 800, "mode": "enforce", "parent": "site", "nodeSelector": part("small")});
    write(&cluster, "small", small).await;
    let large = json!({"watts": 1000, "mode": "observe", "parent": "site", "nodeSelector": part("large")});
    write(&cluster, "large", large).await;
    let operator = cluster.operator(&[&QUICK[..], &[("STATIC_HP_FRAC", "1")]].concat()).await;
    // Two nodes share 800 W; the other four have 720 W each.
    cluster.until("one part is lowered", async || rack.draw() == 800 + 2880).await;
    assert_eq!(granted(&cluster).await, ["n0", "n1"]);
    let grant = cluster.grant("n0").await.unwrap();
    assert_eq!(grant["metadata"]["labels"]["joulie.io/power-budget"], "small");
    let counted = async || status(&cluster, "site").await["countedWatts"].as_f64() == Some(3680.0);
    cluster.until("the site counts both parts", counted).await;
    assert_eq!(status(&cluster, "large").await["wouldLowerNodes"], 4);
    // A node that is only counted keeps its grant until there is room to release it: the other one wants 720 W too.
    let mode = json!({"metadata": {"labels": {"joulie.io/budget-mode": "observe"}}});
    cluster.patch("/api/v1/nodes/n1", &mode).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((granted(&cluster).await, rack.draw()), (vec!["n0".to_owned(), "n1".to_owned()], 3680));
    change(&cluster, "small", json!({"watts": 1440})).await;
    cluster.until("it is released", async || granted(&cluster).await == ["n0"]).await;
    // From then on it counts its largest draw, and the other one has what is left.
    change(&cluster, "small", json!({"watts": 1000})).await;
    let others = async || *rack.caps.lock().unwrap() == [280, 720, 720, 720, 720, 720];
    cluster.until("the other one has what is left", others).await;
    operator.stop().await;
    end(&rack, agents).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_budget_is_said_and_its_limit_is_kept() {
    let (cluster, rack, agents) = site().await;
    write(&cluster, "lost", json!({"watts": 2400, "mode": "enforce", "parent": "nowhere"})).await;
    let operator = cluster.operator(&[&QUICK[..], &[("STATIC_HP_FRAC", "1")]].concat()).await;
    below(&cluster, &rack, 2400).await;
    let said = async |name: &str, reason: &str| condition(&cluster, name, "Accepted").await == reason;
    cluster.until("the parent is missed", async || said("lost", "ParentMissing").await).await;
    change(&cluster, "lost", json!({"watts": 2500})).await;
    cluster.until("more is given", async || rack.draw() > 2440).await;
    cluster.until("all is confirmed", async || confirmed(&cluster).await).await;
    // Another one selects the same nodes: nobody can say what is drawn in one of the two. If both are enforced, no node is
    // raised. One that is only observed hinders nobody: the nodes count in the other.
    let overlap = async || said("lost", "Overlap").await || said("other", "Overlap").await;
    for (mode, may_raise) in [("enforce", false), ("observe", true)] {
        write(&cluster, "other", json!({"watts": 9000, "mode": mode})).await;
        cluster.until("the overlap is said", overlap).await;
        cluster.quiet(Duration::from_millis(300)).await;
        rack.watch();
        change(&cluster, "lost", json!({"watts": 3600})).await;
        if may_raise {
            cluster.until("more is given", async || rack.draw() > 3500).await;
        } else {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(rack.peak() <= 2500, "{} W", rack.peak());
        }
        change(&cluster, "lost", json!({"watts": 2500})).await;
        below(&cluster, &rack, 2500).await;
        cluster.send("DELETE", &format!("{JOULIE}/powerbudgets/other"), &Value::Null).await.unwrap();
        cluster.until("the overlap is gone", async || !overlap().await).await;
    }
    change(&cluster, "lost", json!({"parent": null, "watts": 3600})).await;
    cluster.until("it is mended", async || said("lost", "Accepted").await).await;
    cluster.until("more is given", async || rack.draw() > 3500).await;
    operator.stop().await;
    end(&rack, agents).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_budget_cannot_be_read_nothing_is_raised() {
    let cluster = Cluster::lenient().await;
    for at in 0..NODES {
        cluster.node(&name(at)).await;
        cluster.hardware(&name(at), 300.0).await;
    }
    let cluster = std::sync::Arc::new(cluster);
    let agents = cluster.agents();
    write(&cluster, "site", json!({"watts": 2400, "mode": "enforce"})).await;
    let operator = cluster.operator(&[&QUICK[..], &[("STATIC_HP_FRAC", "1")]].concat()).await;
    let total = async || -> f64 {
        let grants = cluster.list(&format!("{JOULIE}/nodepowergrants")).await;
        grants.iter().map(|grant| grant["spec"]["watts"].as_f64().unwrap()).sum()
    };
    cluster.until("the limit is kept", async || total().await == 2400.0).await;
    change(&cluster, "site", json!({"watts": 2500})).await;
    cluster.until("more is given", async || total().await > 2440.0).await;
    write(&cluster, "other", json!({"watts": "many", "mode": "enforce"})).await;
    cluster.quiet(Duration::from_millis(300)).await;
    change(&cluster, "site", json!({"watts": 3600})).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(total().await <= 2500.0);
    change(&cluster, "site", json!({"watts": 2300})).await;
    cluster.until("what can be read is kept", async || total().await <= 2300.0).await;
    change(&cluster, "site", json!({"watts": 3600})).await;
    cluster.until("an Event says so", async || !events(&cluster, "Unreadable").await.is_empty()).await;
    cluster.send("DELETE", &format!("{JOULIE}/powerbudgets/other"), &Value::Null).await.unwrap();
    cluster.until("more is given", async || total().await > 3500.0).await;
    operator.stop().await;
    agents.abort();
}
