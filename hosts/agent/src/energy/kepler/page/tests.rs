use super::*;

/// As Kepler 0.11 writes it, with some of what is not read.
fn page(node: u64, idle: u64, pods: &[(&str, u64)]) -> String {
    let mut text = format!(
        "# HELP kepler_node_cpu_joules_total Energy\n# TYPE kepler_node_cpu_joules_total counter\n\
         kepler_node_cpu_joules_total{{node_name=\"n1\",path=\"/sys\",zone=\"package\"}} {node}\n\
         kepler_node_cpu_joules_total{{node_name=\"n1\",path=\"/sys\",zone=\"dram\"}} 9e9\n\
         kepler_node_cpu_idle_joules_total{{node_name=\"n1\",path=\"/sys\",zone=\"package\"}} {idle}\n\
         kepler_process_cpu_joules_total{{node_name=\"n1\",pid=\"1\",zone=\"package\"}} 9e9\n"
    );
    for (name, joules) in pods {
        text.push_str(&format!(
            "kepler_pod_cpu_joules_total{{node_name=\"n1\",pod_id=\"u-{name}\",pod_name=\"{name}\",pod_namespace=\"shop\",\
             state=\"running\",zone=\"package\"}} {joules}\n"
        ));
    }
    text
}

fn read(text: &str) -> Result<KeplerPage, KeplerError> {
    KeplerPage::read(text.as_bytes(), "n1")
}

fn pod(name: &str) -> KeplerPod {
    KeplerPod { uid: format!("u-{name}"), namespace: "shop".to_owned(), name: name.to_owned() }
}

#[test]
fn what_was_used_between_two_pages_is_of_pods_of_idle_and_the_rest() {
    let (first, second) = (
        read(&page(1_000, 400, &[("web", 100), ("old", 50)])).unwrap(),
        read(&page(1_300, 500, &[("web", 220), ("new", 30)])).unwrap(),
    );
    // 300 J: 100 idle, 120 and 30 of pods, 50 of the rest. The pod that ended does not count.
    let expected = KeplerDelta {
        node: 300_000_000,
        idle: Some(100_000_000),
        rest: 50_000_000,
        pods: vec![(pod("new"), 30_000_000), (pod("web"), 120_000_000)],
    };
    assert_eq!(second.since(&first), KeplerGrowth::Grown(expected));
    assert_eq!(second.since(&second), KeplerGrowth::Still);
    assert_eq!(first.since(&second), KeplerGrowth::Anew, "it was started again");
}

/// Of a pod that has ended Kepler shows the last value once more, in another state; of several dies a zone each.
#[test]
fn a_pod_that_ends_and_packages_of_several_dies_are_counted_once() {
    let dies = |text: String| {
        let (one, other) = (text.replace("\"package\"", "\"package-0-die\""), text);
        format!("{one}{}", other.replace("\"package\"", "\"package-1-die\""))
    };
    let first = read(&dies(page(500, 200, &[("web", 50)]))).unwrap();
    assert_eq!(first.sums(), (1_000_000_000, 100_000_000));
    let ended = page(600, 250, &[("web", 70)]).replace("running", "terminated");
    let second = read(&dies(ended)).unwrap();
    let KeplerGrowth::Grown(told) = second.since(&first) else { panic!("{second:?}") };
    // 200 J: 100 idle, 40 of the pod, 60 of the rest.
    assert_eq!((told.node, told.idle, told.rest), (200_000_000, Some(100_000_000), 60_000_000));
    assert_eq!(told.pods, [(pod("web"), 40_000_000)]);
}

#[test]
fn the_generation_before_names_containers() {
    let text = "kepler_node_package_joules_total{instance=\"n1\",mode=\"idle\",package=\"0\",source=\"rapl\"} 40\n\
        kepler_node_package_joules_total{instance=\"n1\",mode=\"dynamic\",package=\"0\",source=\"rapl\"} 60\n\
        kepler_container_package_joules_total{container_name=\"a\",container_namespace=\"shop\",mode=\"dynamic\",pod_name=\"web\"} 20\n\
        kepler_container_package_joules_total{container_name=\"b\",container_namespace=\"shop\",mode=\"dynamic\",pod_name=\"web\"} 10\n\
        kepler_container_package_joules_total{container_name=\"a\",container_namespace=\"shop\",mode=\"idle\",pod_name=\"web\"} 7\n\
        kepler_container_package_joules_total{container_name=\"kernel_processes\",container_namespace=\"system\",mode=\"dynamic\",pod_name=\"kernel_processes\"} 30\n";
    let page = read(text).unwrap();
    let web = KeplerPod { uid: String::new(), namespace: "shop".to_owned(), name: "web".to_owned() };
    let expected =
        KeplerPage { node: 100_000_000, idle: Some(40_000_000), pods: BTreeMap::from([(web, 30_000_000)]) };
    assert_eq!(page, expected);
}

#[test]
fn a_namespace_may_have_the_name_that_the_generation_before_gave_to_no_container() {
    let text = page(1_000, 400, &[("web", 100)]).replace("\"shop\"", "\"system\"");
    assert_eq!(read(&text).unwrap().sums(), (1_000_000_000, 100_000_000));
}

#[test]
fn what_cannot_be_used_is_refused_with_a_word() {
    assert_eq!(KeplerPage::read(b"\xff", "n1"), Err(KeplerError::NoText));
    for text in [
        "",
        "up 1\n",
        "kepler_node_cpu_joules_total{zone=\"dram\"} 1\n",
        "kepler_node_cpu_joules_total{zone=\"package\"} NaN\n",
        "kepler_node_cpu_joules_total{zone=\"package\"} -1\n",
        "kepler_node_cpu_joules_total{zone=\"package\"} 1e13\n",
    ] {
        assert_eq!(read(text), Err(KeplerError::NoPackages), "{text}");
    }
    assert!(KeplerError::NoPackages.to_string().contains("kepler_node_cpu_joules_total"));
    let other = KeplerPage::read(page(1, 0, &[]).as_bytes(), "n2");
    assert_eq!(other, Err(KeplerError::OtherNode("n1".to_owned())));
}

#[test]
fn parts_that_are_more_than_the_whole_are_not_believed() {
    let first = read(&page(1_000, 400, &[])).unwrap();
    // A pod that Kepler had dropped comes back with all that it ever used.
    let second = read(&page(1_100, 440, &[("web", 90)])).unwrap();
    assert_eq!(second.since(&first), KeplerGrowth::Anew);
    // 40 and 66 of 100 J are more by 6, which rounding is not; 40 and 65 are.
    let third = read(&page(1_100, 440, &[("web", 65)])).unwrap();
    assert!(matches!(third.since(&first), KeplerGrowth::Grown(KeplerDelta { rest: 0, .. })));
    // A Kepler that stops to tell the idle part is another one.
    let text = page(1_200, 0, &[]).replace("kepler_node_cpu_idle_joules_total", "other");
    assert_eq!(read(&text).unwrap().since(&first), KeplerGrowth::Anew);
}

#[test]
fn a_page_has_bounds() {
    let long = "a".repeat(254);
    let text = page(1, 0, &[(&long, 1)]);
    assert_eq!(read(&text).unwrap().pods.len(), 0);
    let names: Vec<String> = (0..5_000).map(|at| format!("p{at}")).collect();
    let pods: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    assert_eq!(read(&page(5_000, 0, &pods)).unwrap().pods.len(), 4_096);
}
