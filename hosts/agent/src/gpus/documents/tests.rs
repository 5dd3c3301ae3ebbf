//! Cards by hand, and what the objects say of them.

use super::*;
use crate::gpus::OwnGpu;
use host_kit::reflect::Row;

const UUID: &str = "GPU-8f1e0000-0000-0000-0000-000000000001";

fn card(sliced: bool) -> Card {
    let key = power_hal::Key::gpu(UUID).unwrap();
    let facts = CardFacts {
        id: UUID.to_owned(),
        model: Some("NVIDIA H100".to_owned()),
        vram_mib: Some(80_000),
        pci: Some("0000:c1:00.0".to_owned()),
        sliced: Some(sliced),
        ..CardFacts::of(key)
    };
    Card { vendor: "nvidia", facts, is_shown: true, pci: PciFacts::default(), island: Some(1) }
}

fn pods(list: &[Value]) -> Pods {
    let (mut writer, rows) = host_kit::reflect::by_hand::<PodOwner>();
    writer.list(list);
    rows.all()
}

fn pod(name: &str, phase: &str, annotations: &Value) -> Value {
    json!({"metadata": {"name": name, "namespace": "d", "uid": format!("uid-{name}"), "annotations": annotations},
           "status": {"phase": phase}})
}

fn document(card: &Card, sharing: &str, holders: Option<&Holders>) -> Document {
    let labels = BTreeMap::from([(SHARING_LABEL.to_owned(), sharing.to_owned())]);
    Document::of("n", card, Sharing::of(&labels), holders, &|_| None)
}

#[test]
fn an_object_says_what_is_known_and_nothing_else() {
    let whole = document(&card(false), "none", None);
    assert_eq!(whole.name, names::gpu("n", UUID));
    assert_eq!(
        whole.spec,
        json!({"nodeName": "n", "uuid": UUID, "model": "NVIDIA H100", "totalVRAMmb": 80_000, "vendor": "nvidia",
               "pciAddress": "0000:c1:00.0", "island": 1, "sliced": false, "sharing": "none"})
    );
    assert_eq!(whole.status, None, "nobody has said yet who holds it");
    let bare = CardFacts::of(power_hal::Key::gpu("0000:0c:00.0").unwrap());
    let bare = Card { vendor: "amd", facts: bare, is_shown: true, pci: PciFacts::default(), island: None };
    let bare = document(&bare, "mps", Some(&Holders::UNKNOWN));
    assert_eq!(
        bare.spec,
        json!({"nodeName": "n", "uuid": "0000:0c:00.0", "vendor": "amd", "pciAddress": "0000:0c:00.0"})
    );
    assert_eq!(bare.status, Some(json!({"phase": "Unknown", "health": "Healthy"})));
    // What is written is what is read back.
    let object = json!({"metadata": {"name": "x"}, "spec": whole.spec, "status": {"assumed": [], "phase": "Available"}});
    let row = OwnGpu::read(&object).unwrap();
    assert_eq!((row.spec, row.status), (whole.spec, json!({"phase": "Available"})));
}

#[test]
fn what_a_card_draws_is_told_and_stays_over_a_restart_until_it_is_measured_again() {
    let status = |watts: CardWatts, seen: Option<&Value>| {
        let document = document(&card(false), "none", Some(&Holders::UNKNOWN));
        document.with_watts(watts, seen).status.unwrap()["power"].clone()
    };
    let none = CardWatts::default();
    assert_eq!(status(none, None), Value::Null);
    let all = CardWatts { idle: Some(60), busy: Some(410), limit: Some(500) };
    let said = json!({"idleWatts": 60, "busyWatts": 410, "limitWatts": 500});
    assert_eq!(status(all, None), said);
    let seen = json!({"power": said});
    // A limit is of now, and a curve of the card.
    assert_eq!(status(none, Some(&seen)), json!({"idleWatts": 60, "busyWatts": 410}));
    let anew = CardWatts { busy: Some(430), limit: Some(700), ..none };
    assert_eq!(status(anew, Some(&seen)), json!({"idleWatts": 60, "busyWatts": 430, "limitWatts": 700}));
    assert_eq!(published(&seen), seen);
    // While nobody has said who holds it, nothing is written.
    let early = document(&card(false), "none", None).with_watts(all, None);
    assert_eq!(early.status, None);
}

#[test]
fn who_holds_a_card_is_what_the_kubelet_says() {
    let vram = json!({"gpu-extender.mle.com/vram-mb": "30000"});
    let known =
        pods(&[pod("a", "Running", &vram), pod("over", "Succeeded", &vram), pod("b", "Pending", &json!({}))]);
    let holders = |names: &[(&str, &str)], elsewhere| {
        Holders::known(&HeldCards::of(&[(UUID, names)], elsewhere), &known)
    };
    let status = |sharing, holders: &Holders| document(&card(false), sharing, Some(holders)).status.unwrap();
    let free = json!({"allocatedVRAMmb": 0, "phase": "Available", "health": "Healthy"});
    assert_eq!(status("none", &holders(&[], 0)), free);
    assert_eq!(status("none", &holders(&[("d", "over")], 0)), free);
    // Somebody holds a card that cannot be told from this one.
    assert_eq!(status("none", &holders(&[], 1))["phase"], "Unknown");
    // One pod has a card alone, whatever it asks for of its memory.
    assert_eq!(
        status("none", &holders(&[("d", "a")], 0)),
        json!({"allocatedVRAMmb": 80_000, "phase": "Allocated", "health": "Healthy", "podNamespace": "d", "podName": "a",
               "allocations": [{"podNamespace": "d", "podName": "a", "podUID": "uid-a", "vramMb": 80_000}]})
    );
    let shared = status("mps", &holders(&[("d", "a")], 0));
    assert_eq!((&shared["phase"], &shared["allocatedVRAMmb"]), (&json!("Available"), &json!(30_000)));
    // A pod that does not say how much has all, and so has one that the API has not shown yet.
    for other in ["b", "unseen"] {
        let full = status("mps", &holders(&[("d", "a"), ("d", other)], 0));
        assert_eq!((&full["phase"], &full["allocatedVRAMmb"]), (&json!("Allocated"), &json!(80_000)));
    }
    let sliced = document(&card(true), "none", Some(&holders(&[], 0))).status.unwrap();
    assert_eq!(sliced["phase"], "Unknown", "no pod gets a card that is cut into slices");
}

#[test]
fn a_card_that_the_driver_does_not_show_is_not_healthy_and_keeps_its_holder() {
    let status =
        json!({"allocatedVRAMmb": 80_000, "phase": "Allocated", "podName": "a", "health": "Healthy"});
    let unseen = unseen(&status);
    assert_eq!((&unseen["health"], &unseen["podName"]), (&json!("Unknown"), &json!("a")));
    assert_eq!(super::unseen(&Value::Null), json!({"health": "Unknown"}));
    // So is one of an earlier list, while the driver does not answer.
    let stale = Card { is_shown: false, ..card(false) };
    let stale = document(&stale, "none", Some(&Holders::UNKNOWN)).status.unwrap();
    assert_eq!(stale["health"], "Unknown");
}

#[test]
fn cards_of_one_hive_are_an_island() {
    let at = |address: &str, hive: Option<u64>, island: Option<u16>| {
        let facts = CardFacts { island, ..CardFacts::of(power_hal::Key::gpu(address).unwrap()) };
        (facts, hive)
    };
    let root = std::env::temp_dir().join(format!("joulie-hives-{}", std::process::id()));
    let listed: Vec<_> = [
        at("0000:01:00.0", Some(7), None),
        at("0000:02:00.0", Some(7), None),
        at("0000:03:00.0", Some(9), None),
        at("0000:04:00.0", None, Some(0)),
    ]
    .into_iter()
    .map(|(facts, hive)| {
        let folder = root.join("sys/bus/pci/devices").join(facts.pci.clone().unwrap());
        std::fs::create_dir_all(folder.join("xgmi_hive_info")).unwrap();
        let file = |name: &str, text: String| std::fs::write(folder.join(name), text).unwrap();
        hive.iter().for_each(|hive| file("xgmi_hive_info/xgmi_hive_id", format!("{hive}\n")));
        file("numa_node", "1\n".to_owned());
        file("mem_info_vram_total", (206_141_652_992_u64).to_string());
        Listed { vendor: "amd", facts, is_shown: true }
    })
    .collect();
    let found = cards(&root, &listed);
    std::fs::remove_dir_all(&root).unwrap();
    let islands: Vec<Option<u16>> = found.iter().map(|card| card.island).collect();
    // One card is no island, and the driver's own numbers come first.
    assert_eq!(islands, [Some(1), Some(1), None, Some(0)]);
    // 206,141,652,992 ÷ 1,048,576 = 196,592.0
    assert_eq!((found[0].pci.numa_node, found[0].pci.vram_mib), (Some(1), Some(196_592)));
}

#[test]
fn a_pod_with_other_cards_than_were_taken_for_it_is_told() {
    let taken = |cards: &str| json!({"gpu-extender.mle.com/cards": cards});
    let known = pods(&[
        pod("right", "Running", &taken(UUID)),
        pod("wrong", "Running", &taken("GPU-other")),
        pod("ended", "Failed", &taken("GPU-other")),
        pod("none", "Running", &json!({})),
    ]);
    let all = [("d", "right"), ("d", "wrong"), ("d", "ended"), ("d", "none")];
    let held = HeldCards::of(&[(UUID, &all)], 0);
    assert_eq!(mismatched(&held, &known, &[card(false)]), BTreeSet::from(["uid-wrong".to_owned()]));
    let note = mismatch_note("n", "uid-wrong", &known);
    assert_eq!((note.regarding.name.as_deref(), note.reason), (Some("n"), "GpuMismatch"));
    assert!(note.text.contains("the pod d/wrong other GPUs"), "{}", note.text);
}

#[test]
fn what_was_taken_ends_once_the_pod_has_its_cards_or_is_gone() {
    // Article table, row 2.
    let known = pods(&[
        pod("waits", "Pending", &json!({})),
        pod("has", "Running", &json!({})),
        pod("over", "Failed", &json!({})),
    ]);
    let now: Timestamp = "2027-01-15T08:00:00Z".parse().unwrap();
    let of = |name: &str, since: &str| json!({"podUID": format!("uid-{name}"), "since": since});
    let (early, late) = ("2027-01-15T07:00:00Z", "2027-01-15T07:59:30Z");
    let taken = [
        of("waits", early),
        of("has", early),
        of("over", late),
        of("gone", early),
        of("coming", late),
        of("odd", "x"),
    ];
    let held = HeldCards::of(&[(UUID, &[("d", "has")])], 0);
    assert_eq!(standing(&taken, Some(&held), &known, now), [of("waits", early), of("coming", late)]);
    // While the kubelet is silent nobody knows that the pod has its cards.
    let stands = standing(&taken, None, &known, now);
    assert_eq!(stands, [of("waits", early), of("has", early), of("coming", late)]);
    // A clock that is ahead of ours.
    let ahead = [of("coming", "2027-01-15T09:00:00Z")];
    assert_eq!(standing(&ahead, None, &known, now), ahead);
}

#[test]
fn each_instance_of_a_divided_card_has_a_profile_and_a_holder() {
    let mut divided = card(true);
    let instance = |id: &str, profile: Option<&str>| node_kit::CardInstance {
        id: id.to_owned(),
        profile: profile.map(str::to_owned),
        vram_mib: Some(9_856),
    };
    divided.facts.instances = vec![instance("MIG-1", Some("1g.10gb")), instance("MIG-2", None)];
    let known = pods(&[pod("a", "Running", &json!({}))]);
    let says = |held: &HeldCards| document(&divided, "none", Some(&Holders::known(held, &known)));
    let free = says(&HeldCards::default());
    assert_eq!(
        free.spec["instances"],
        json!([{"uuid": "MIG-1", "profile": "1g.10gb", "memoryMb": 9_856}, {"uuid": "MIG-2", "memoryMb": 9_856}])
    );
    let status = free.status.unwrap();
    assert_eq!(status["phase"], "Unknown", "nobody gets the whole card");
    assert_eq!(
        status["instances"],
        json!([{"uuid": "MIG-1", "phase": "Available"}, {"uuid": "MIG-2", "phase": "Available"}])
    );
    assert_eq!(published(&status), status);
    let held = HeldCards::of_instance("MIG-1", ("d", "a"));
    let status = says(&held.clone().with_instances(|id| id == "MIG-1")).status.unwrap();
    assert_eq!(
        status["instances"],
        json!([{"uuid": "MIG-1", "phase": "Allocated", "podNamespace": "d", "podName": "a", "podUID": "uid-a"},
               {"uuid": "MIG-2", "phase": "Available"}])
    );
    // An instance of no known card, or no answer at all.
    assert_eq!(says(&held.with_instances(|_| false)).status.unwrap()["instances"][1]["phase"], "Unknown");
    let silent = document(&divided, "none", Some(&Holders::UNKNOWN)).status.unwrap();
    assert_eq!(silent["instances"][0], json!({"uuid": "MIG-1", "phase": "Unknown"}));
}
