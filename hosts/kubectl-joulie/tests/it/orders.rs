//! What the two commands write that write.

use super::world::{JOULIE, World};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_cap_is_told_first_and_written_only_with_yes_and_says_who_until_and_why() {
    let world = World::healthy().await;
    let profile = format!("{JOULIE}/nodepowerprofiles/b");
    let before = world.get(&profile).await;
    let words = ["cap", "b", "--package", "200W", "--for", "2h", "--reason", "breaker 3"];
    let text = World::text(world.ask(&words).await);
    let expected = "\
NodePowerProfile b of node b:
  spec.cpu: packagePowerCapPctOfMax 60 becomes packagePowerCapWatts 200.0
  until 2026-11-27T22:00:00Z; within a minute after that the operator hands it back, also after a restart
  asked for by anna@example.com
Nothing was written: add --yes.
";
    assert_eq!(text.replace("PctOfMax 60.0", "PctOfMax 60"), expected);
    assert_eq!(world.get(&profile).await, before);
    World::text(world.ask(&[&words[..], &["--yes"]].concat()).await);
    let written = world.get(&profile).await;
    assert_eq!(written["spec"]["cpu"], json!({"packagePowerCapWatts": 200.0}));
    let notes = &written["metadata"]["annotations"];
    assert_eq!(notes["joulie.io/cap-until"], "2026-11-27T22:00:00Z");
    assert_eq!(
        (&notes["joulie.io/cap-by"], &notes["joulie.io/cap-reason"]),
        (&json!("anna@example.com"), &json!("breaker 3"))
    );
    let text = World::text(world.ask(&["explain", "node", "b"]).await);
    let why = "the cap of its packages was set by kubectl-joulie at 2026-11-27T20:00:00Z, and not by the plan; \
        asked for by anna@example.com; because: breaker 3; until 2026-11-27T22:00:00Z, then the plan's follows";
    assert!(text.contains(why), "{text}");
    // Taken off, nothing of it is left, and the operator writes the plan's.
    World::text(world.ask(&["cap", "b", "--off", "--yes"]).await);
    let after = world.get(&profile).await;
    assert!(
        after["spec"]["cpu"].is_null() && after["metadata"]["annotations"]["joulie.io/cap-until"].is_null(),
        "{after}"
    );
    assert!(World::text(world.ask(&["cap", "b", "--off", "--yes"]).await).contains("has no cap of a person"));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_persons_cap_and_a_node_without_a_plan_are_left_alone() {
    let world = World::healthy().await;
    let profile = format!("{JOULIE}/nodepowerprofiles/b");
    world.merge(&profile, "kubectl-edit", json!({"spec": {"cpu": {"packagePowerCapWatts": 150}}})).await;
    for words in [&["cap", "b", "--package", "200W", "--yes"][..], &["cap", "b", "--off", "--yes"]] {
        let reply = world.ask(words).await;
        assert!(reply.code == 1 && reply.notes[0].contains("kubectl-edit"), "{reply:?}");
    }
    let reply = world.ask(&["cap", "c", "--package", "200W", "--yes"]).await;
    assert!(reply.code == 1 && reply.notes[0].contains("no NodePowerProfile"), "{reply:?}");
    assert_eq!(world.ask(&["cap", "../x", "--package", "200W"]).await.code, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_is_observed_and_paused_only_with_yes() {
    let world = World::healthy().await;
    let budget = format!("{JOULIE}/powerbudgets/site");
    let text = World::text(world.ask(&["budget", "observe", "site"]).await);
    assert!(text.contains("Nothing was written"), "{text}");
    assert_eq!(world.get(&budget).await["spec"]["mode"], "enforce");
    World::text(world.ask(&["budget", "observe", "site", "--yes"]).await);
    World::text(world.ask(&["budget", "pause", "site", "--yes"]).await);
    let spec = world.get(&budget).await["spec"].clone();
    assert_eq!((&spec["mode"], &spec["pause"]), (&json!("observe"), &json!(true)));
    assert!(World::text(world.ask(&["budget", "pause", "site", "--yes"]).await).contains("so already"));
    assert_eq!(world.ask(&["budget", "enforce", "other", "--yes"]).await.code, 1);
    World::text(world.ask(&["budget", "resume", "site", "--yes"]).await);
    assert_eq!(world.get(&budget).await["spec"]["pause"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_is_written_in_between_is_no_reason_to_ask_again_and_another_persons_word_is() {
    let world = World::healthy().await;
    let (budget, profile) = (format!("{JOULIE}/powerbudgets/site"), format!("{JOULIE}/nodepowerprofiles/b"));
    let status = |watts: u32| json!({"status": {"countedWatts": watts}});
    world.written_between(&format!("{budget}/status"), "joulie-operator", status(1_100));
    World::text(world.ask(&["budget", "pause", "site", "--yes"]).await);
    let paused = world.get(&budget).await;
    assert_eq!((&paused["spec"]["pause"], &paused["status"]["countedWatts"]), (&json!(true), &json!(1_100)));
    let cap = ["cap", "b", "--package", "200W", "--reason", "breaker 3", "--yes"];
    for generation in [7, 8] {
        let status = json!({"status": {"observedGeneration": generation}});
        world.written_between(&format!("{profile}/status"), "joulie-agent", status);
    }
    World::text(world.ask(&cap).await);
    let capped = world.get(&profile).await;
    assert_eq!(capped["spec"]["cpu"], json!({"packagePowerCapWatts": 200.0}));
    assert_eq!(capped["status"]["observedGeneration"], 7);
    // Another cap, and another end: both are another person's.
    for theirs in [
        json!({"spec": {"cpu": {"packagePowerCapWatts": 150}}}),
        json!({"metadata": {"annotations": {"joulie.io/cap-reason": "the fan"}}}),
    ] {
        world.written_between(&profile, "kubectl-joulie", theirs);
        let before = world.get(&profile).await;
        let reply = world.ask(&["cap", "b", "--package", "300W", "--yes"]).await;
        assert!(reply.code == 1 && reply.notes[0].contains("somebody else"), "{reply:?}");
        let after = world.get(&profile).await;
        assert!(before != after && after["spec"]["cpu"]["packagePowerCapWatts"] != 300.0, "{after}");
    }
}
