//! 5,000 nodes: lists come in pages, and every page is taken.

use super::world::{JOULIE, World};
use serde_json::{Value, json};

const NODES: usize = 5_000;

#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_nodes_are_shown_from_lists_in_pages() {
    let world = World::empty().await;
    let twins = format!("{JOULIE}/nodetwins");
    for n in 0..NODES {
        let twin = json!({"apiVersion": "joulie.io/v1alpha1", "kind": "NodeTwin", "metadata": {"name": format!("n{n:04}")},
            "spec": {"nodeName": format!("n{n:04}"), "profile": "eco"}});
        world.send("POST", &twins, "application/json", &twin).await;
    }
    let text = World::text(world.ask(&["status"]).await);
    // Five lines of summary, an empty one, the head; no status, so the class is unknown.
    assert_eq!(text.lines().count(), 8 + NODES, "{}", &text[..400]);
    assert!(text.contains("Nodes: 5000 total (5000 unknown)"));
    let page: Value = world.get(&format!("{twins}?limit=500")).await;
    assert_eq!(page["items"].as_array().unwrap().len(), 500, "the server pages");
}
