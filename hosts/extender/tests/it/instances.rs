//! Pods that ask for MIG instances.

use super::gpus::{args, free, pod as gpu_pod};
use super::world::World;
use serde_json::{Value, json};

/// A pod that asks for so many instances of a profile.
fn mig_pod(count: u32, profile: &str, annotations: &[(&str, &str)]) -> Value {
    let mut pod = gpu_pod(0, annotations);
    let limits = json!({format!("nvidia.com/mig-{profile}"): count.to_string()});
    pod["spec"]["containers"][0]["resources"]["limits"] = limits;
    pod
}

fn divided(ids: &[&str]) -> Value {
    let all: Vec<Value> =
        ids.iter().map(|id| json!({"uuid": id, "profile": "1g.10gb", "memoryMb": 9_856})).collect();
    json!({"sliced": true, "instances": all})
}

fn status(instances: Value) -> Value {
    json!({"allocatedVRAMmb": 0, "phase": "Unknown", "health": "Healthy", "instances": instances})
}

#[tokio::test]
async fn a_pod_fits_by_free_instances_and_no_whole_card_is_offered() {
    let world = World::start(&[("GPU_PLACEMENT", "all"), ("GPU_BIND", "true")]).await;
    let all = ["two", "had", "unsaid", "whole"];
    let (one, other) =
        (json!({"uuid": "MIG-1", "phase": "Available"}), json!({"uuid": "MIG-2", "phase": "Available"}));
    let had = json!({"uuid": "MIG-3", "phase": "Allocated", "podName": "p", "podNamespace": "default", "podUID": "u"});
    world.card("two", 0, divided(&["MIG-1", "MIG-2"]), status(json!([one, other]))).await;
    world.card("had", 0, divided(&["MIG-3"]), status(json!([had]))).await;
    world.card("unsaid", 0, divided(&["MIG-4"]), status(json!([]))).await;
    world.card("whole", 0, json!({}), free()).await;
    let wanted = mig_pod(1, "1g.10gb", &[]);
    world.passes_at_last(&wanted, &all, &["two"]).await;
    assert_eq!(world.filtered(&mig_pod(2, "1g.10gb", &[]), &all).await["nodenames"], json!(["two"]));
    assert_eq!(world.filtered(&gpu_pod(1, &[]), &all).await["nodenames"], json!(["whole"]));
    let answer = world.filtered(&wanted, &all).await;
    for (node, why, may_be_evicted) in [
        ("had", "joulie: too few MIG instances as asked for are free (0)", true),
        (
            "unsaid",
            "joulie: too few MIG instances on the node are as asked for and known well enough (0)",
            false,
        ),
        (
            "whole",
            "joulie: too few MIG instances on the node are as asked for and known well enough (0)",
            false,
        ),
    ] {
        assert_eq!(answer["failedNodes"][node], why);
        assert_eq!(answer["failedAndUnresolvableNodes"][node].is_null(), may_be_evicted, "{node}");
    }
    // Annotations are about the card and the memory of the instance.
    for (key, value, passes) in [
        ("model", "A100", true),
        ("model", "H100", false),
        ("vram-mb", "9000", true),
        ("vram-mb", "20000", false),
    ] {
        let pod = mig_pod(1, "1g.10gb", &[(key, value)]);
        let expected = if passes { json!(["two"]) } else { json!([]) };
        assert_eq!(world.filtered(&pod, &all).await["nodenames"], expected, "{key} {value}");
    }
    // Who has it may be evicted, and nobody else.
    let victims = |uid: &str| json!({"had": {"Pods": [{"UID": uid}], "NumPDBViolations": 0}});
    let asked = async |uid: &str| {
        let body = json!({"Pod": wanted, "NodeNameToMetaVictims": victims(uid)});
        world.post("/preempt", &body).await["NodeNameToMetaVictims"].clone()
    };
    assert_eq!((asked("u").await, asked("v").await), (victims("u"), json!({})));
    // It is bound, and no card is taken for it.
    let made = world.create("mig", &mig_pod(1, "1g.10gb", &[("model", "A100")])).await;
    assert_eq!(world.post("/bind", &args(&made, "two")).await["Error"], "");
    assert_eq!(world.taken("two-0").await, Vec::<Value>::new());
}
