//! What a person has set belongs to that person.

use super::rig::{Cluster, JOULIE};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

fn condition<'a>(object: &'a Value, about: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == about)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_persons_cap_stands_is_said_and_is_followed_by_the_plan_when_it_goes() {
    let cluster = Arc::new(Cluster::new().await);
    cluster.node("a").await;
    cluster.node("b").await;
    let operator = cluster.operator(&[("STATIC_HP_FRAC", "0.5")]).await;
    let path = format!("{JOULIE}/nodepowerprofiles/b?fieldManager=kubectl-edit");
    cluster.until("b is published", async || cluster.profile("b").await.is_some()).await;
    cluster.quiet(Duration::from_millis(300)).await;
    cluster
        .patch(
            &path,
            &json!({"spec": {"cpu": {"packagePowerCapWatts": 200, "packagePowerCapPctOfMax": null}}}),
        )
        .await;
    let said = async || condition(&cluster.profile("b").await.unwrap(), "Overridden").is_some();
    cluster.until("it is said", said).await;
    cluster.quiet(Duration::from_millis(300)).await;
    let profile = cluster.profile("b").await.unwrap();
    assert_eq!(profile["spec"]["cpu"], json!({"packagePowerCapWatts": 200}));
    let twin = cluster.twin("b").await.unwrap();
    assert_eq!(twin["spec"]["cpu"], json!({"packagePowerCapWatts": 200}), "the mirror shows what stands");
    assert_eq!(twin["status"]["powerMeasurement"]["nodeCappedPowerW"], 400);
    assert_eq!(condition(&twin, "Overridden").unwrap()["status"], "True");
    cluster.patch(&path, &json!({"spec": {"cpu": null}})).await;
    cluster
        .until("the plan's cap is back", async || {
            let profile = cluster.profile("b").await.unwrap();
            profile["spec"]["cpu"] == json!({"packagePowerCapPctOfMax": 60})
                && condition(&profile, "Overridden").is_none()
        })
        .await;
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cap_for_a_time_ends_also_under_another_operator_and_one_without_a_readable_end_stays() {
    let cluster = Arc::new(Cluster::new().await);
    for node in ["a", "b", "c"] {
        cluster.node(node).await;
    }
    let first = cluster.operator(&[("STATIC_HP_FRAC", "0.5")]).await;
    for node in ["a", "b", "c"] {
        cluster.until("it is published", async || cluster.profile(node).await.is_some()).await;
    }
    first.stop().await;
    // The operator that reads the end is not the one under which it was set.
    let ends = [("c", "2000-01-01T00:00:00Z"), ("b", "9999-01-01T00:00:00Z"), ("a", "soon\u{1b}[2J")];
    for (node, until) in ends {
        let annotations = json!({"joulie.io/cap-until": until, "joulie.io/cap-by": "anna"});
        let cpu = json!({"packagePowerCapWatts": 200, "packagePowerCapPctOfMax": null});
        let path = format!("{JOULIE}/nodepowerprofiles/{node}?fieldManager=kubectl-joulie");
        cluster.patch(&path, &json!({"metadata": {"annotations": annotations}, "spec": {"cpu": cpu}})).await;
    }
    let second = cluster.operator(&[("STATIC_HP_FRAC", "0.5")]).await;
    cluster
        .until("the plan's cap is back", async || {
            let profile = cluster.profile("c").await.unwrap();
            let annotations = &profile["metadata"]["annotations"];
            profile["spec"]["cpu"] == json!({"packagePowerCapPctOfMax": 60})
                && annotations["joulie.io/cap-until"].is_null()
                && annotations["joulie.io/cap-by"].is_null()
        })
        .await;
    cluster.quiet(Duration::from_millis(300)).await;
    for node in ["a", "b"] {
        let profile = cluster.profile(node).await.unwrap();
        assert_eq!(profile["spec"]["cpu"], json!({"packagePowerCapWatts": 200}), "{node}");
    }
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cap_that_ends_gives_way_to_the_plans_in_one_write_also_where_both_are_equal() {
    let cluster = Arc::new(Cluster::new().await);
    for node in ["a", "b", "c"] {
        cluster.node(node).await;
    }
    let first = cluster.operator(&[("STATIC_HP_FRAC", "0.34")]).await;
    for node in ["b", "c"] {
        cluster
            .until("it is capped", async || {
                let profile = cluster.profile(node).await.unwrap_or_default();
                profile["spec"]["cpu"] == json!({"packagePowerCapPctOfMax": 60})
            })
            .await;
    }
    first.stop().await;
    for (node, cap) in
        [("b", json!({"packagePowerCapWatts": 200})), ("c", json!({"packagePowerCapPctOfMax": 60}))]
    {
        let body = json!({"apiVersion": "joulie.io/v1alpha1", "kind": "NodePowerProfile",
            "metadata": {"name": node, "annotations": {"joulie.io/cap-until": "2000-01-01T00:00:00Z"}},
            "spec": {"nodeName": node, "cpu": cap}});
        let path = format!("{JOULIE}/nodepowerprofiles/{node}?fieldManager=kubectl-joulie&force=true");
        let request = http::Request::patch(path).header("content-type", "application/apply-patch+yaml");
        let request = request.body(body.to_string().into_bytes()).unwrap();
        cluster.api.client_as("anna").request::<Value>(request).await.unwrap();
    }
    let watch = std::cell::RefCell::new(Vec::new());
    let second = cluster.operator(&[("STATIC_HP_FRAC", "0.34")]).await;
    for node in ["b", "c"] {
        cluster
            .until("the plan's cap is back", async || {
                let profile = cluster.profile(node).await.unwrap();
                watch.borrow_mut().push(profile["spec"]["cpu"].clone());
                profile["spec"]["cpu"] == json!({"packagePowerCapPctOfMax": 60})
                    && profile["metadata"]["annotations"]["joulie.io/cap-until"].is_null()
            })
            .await;
    }
    let watch = watch.into_inner();
    assert!(watch.iter().all(|cpu| cpu.as_object().is_some_and(|cpu| !cpu.is_empty())), "{watch:?}");
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_persons_label_is_left_as_it_is() {
    let cluster = Arc::new(Cluster::new().await);
    cluster.node("a").await;
    cluster.node("b").await;
    let person = json!({"metadata": {"labels": {"joulie.io/power-profile": "performance"}}});
    cluster.patch("/api/v1/nodes/b?fieldManager=kubectl-label", &person).await;
    let operator = cluster.operator(&[("STATIC_HP_FRAC", "0.5")]).await;
    cluster
        .until("it is said", async || {
            cluster.twin("b").await.is_some_and(|twin| condition(&twin, "Overridden").is_some())
        })
        .await;
    cluster.quiet(Duration::from_millis(300)).await;
    assert_eq!(cluster.label("b").await.as_deref(), Some("performance"));
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_persons_label_of_another_key_is_left_as_it_is_and_the_caps_are_sent() {
    let cluster = Arc::new(Cluster::new().await);
    cluster.node("a").await;
    cluster.node("b").await;
    let key = "example.com/power";
    let person = json!({"metadata": {"labels": {key: "performance"}}});
    cluster.patch("/api/v1/nodes/b?fieldManager=kubectl-label", &person).await;
    let operator = cluster.operator(&[("STATIC_HP_FRAC", "0.5"), ("POWER_PROFILE_LABEL", key)]).await;
    cluster
        .until("it is said whose the label is", async || {
            let twin = cluster.twin("b").await.unwrap_or_default();
            condition(&twin, "Overridden")
                .is_some_and(|said| said["message"].as_str().unwrap().contains("kubectl-label"))
        })
        .await;
    cluster
        .until("the cap of eco is sent", async || {
            let profile = cluster.profile("b").await.unwrap_or_default();
            profile["spec"]["cpu"] == json!({"packagePowerCapPctOfMax": 60})
        })
        .await;
    let node = cluster.get("/api/v1/nodes/b").await.unwrap();
    assert_eq!(node["metadata"]["labels"][key], "performance");
    operator.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_that_a_person_made_is_mirrored_and_never_written() {
    let cluster = Arc::new(Cluster::new().await);
    cluster.node("a").await;
    let made = json!({"apiVersion": "joulie.io/v1alpha1", "kind": "NodePowerProfile", "metadata": {"name": "mine"},
        "spec": {"nodeName": "a", "profile": "eco", "cpu": {"packagePowerCapWatts": 150}}});
    cluster.create(&format!("{JOULIE}/nodepowerprofiles?fieldManager=kubectl-create"), &made).await;
    let operator = cluster.operator(&[]).await;
    cluster
        .until("the twin mirrors it", async || {
            cluster.twin("a").await.is_some_and(|twin| twin["spec"]["cpu"]["packagePowerCapWatts"] == 150)
        })
        .await;
    cluster.quiet(Duration::from_millis(300)).await;
    let all = cluster.list(&format!("{JOULIE}/nodepowerprofiles")).await;
    assert_eq!((all.len(), &all[0]["spec"]), (1, &made["spec"]));
    operator.stop().await;
}
