//! kube-scheduler's victim has a card that does not help, and another pod of the node has one that does.

use super::{GpuSystem, card, wait, wants};
use serde_json::json;

/// The priority class `urgent` exists. The kubelet gives the last card first: the older pod has the card of the wished model, and
/// kube-scheduler would evict the younger one.
pub(super) async fn a_useless_victim_is_swapped(system: &GpuSystem) {
    system.create(&wants("holder", "L2", 1)).await;
    system.lands("holder", "mixed").await;
    wait("it has the last card", async || {
        system.holder(&card("mixed", 1)).await.as_deref() == Some("holder")
    })
    .await;
    system.pass(&wants("any", "P4", 1), &["mixed"]).await;
    system.create(&wants("useless", "P4", 1)).await;
    system.lands("useless", "mixed").await;
    wait("it has the first card", async || {
        system.holder(&card("mixed", 0)).await.as_deref() == Some("useless")
    })
    .await;
    let mut hurried = wants("hurried", "L2", 1);
    system.pass(&hurried, &[]).await;
    hurried["spec"]["priorityClassName"] = json!("urgent");
    system.create(&hurried).await;
    system.lands_at_last("hurried", "mixed").await;
    assert_eq!(system.node_of("holder").await, None, "it has left");
    assert_eq!(system.node_of("useless").await.as_deref(), Some("mixed"), "nobody is evicted in vain");
    wait("it has the card", async || system.holder(&card("mixed", 1)).await.as_deref() == Some("hurried"))
        .await;
    for name in ["hurried", "useless"] {
        system.delete(name).await;
    }
}
