//! Frames of one invented state, on several terminals, compared with files in `golden/`.

use super::*;
use crate::demo::state::{Device, Node, Offer, Plan, Pods, Standing, Telemetry};
use power_units::{Celsius, Watts};
use std::collections::BTreeMap;

const fn watts(value: i32) -> Option<Watts> {
    Some(Watts::from_int(value))
}

fn node(kind: &str, offer: Offer, power: i32, cap: (i32, i32)) -> Node {
    let standing = if cap.0 == cap.1 { Standing::InForce } else { Standing::Clamped };
    Node {
        kind: kind.to_owned(),
        offer,
        ready: true,
        power: watts(power),
        most: watts(900),
        cpu: Device { count: 2, asked: watts(cap.0), in_force: watts(cap.1), standing },
        temperature: Some(Celsius::from_int(61)),
        telemetry: Telemetry::Fresh,
        score: Some(72),
        running: 4,
        performance: 2,
        ..Node::default()
    }
}

/// Nodes with every possible form of a row.
fn nodes() -> BTreeMap<String, Node> {
    let epyc = "2 EPYC 9654";
    let gpu = Node {
        most: watts(6400),
        gpu: Device { count: 8, asked: watts(420), in_force: watts(420), standing: Standing::InForce },
        cpu: Device { count: 2, ..Device::default() },
        score: Some(8),
        running: 12,
        performance: 0,
        ..node("2 EPYC 9534, 8 H100 SXM", Offer::Eco, 2910, (0, 0))
    };
    let mut asked = node(epyc, Offer::Draining, 512, (216, 216));
    asked.cpu = Device { count: 2, asked: watts(216), in_force: None, standing: Standing::Asked };
    let mut refused = node(epyc, Offer::Eco, 640, (216, 216));
    refused.cpu.standing = Standing::Refused("locked by the firmware".to_owned());
    refused.cpu.in_force = None;
    let free =
        Node { cpu: Device { count: 2, ..Device::default() }, ..node(epyc, Offer::Performance, 0, (0, 0)) };
    let blind = Node {
        power: None,
        temperature: None,
        score: None,
        telemetry: Telemetry::Stale("no sample for 12 s".to_owned()),
        ..node(epyc, Offer::Eco, 0, (216, 216))
    };
    let reserved = Node { reserved: true, score: None, ..free.clone() };
    let all = [
        ("sim-epyc-0", node(epyc, Offer::Performance, 712, (360, 360))),
        ("sim-epyc-1", node(epyc, Offer::Eco, 402, (216, 216))),
        ("sim-epyc-2", node(epyc, Offer::Eco, 398, (100, 198))),
        ("sim-epyc-3", asked),
        ("sim-gpu-0", gpu),
        ("sim-gpu-1", Node { by_hand: true, ..node("2 EPYC 9534, 8 H100 SXM", Offer::Eco, 801, (200, 200)) }),
        ("sim-xeon-0", refused),
        ("sim-xeon-1", free),
        ("sim-xeon-2", blind),
        ("sim-xeon-3", reserved),
        ("sim-xeon-4", Node { ready: false, ..node(epyc, Offer::Eco, 402, (216, 216)) }),
        ("sim-xeon-5", Node { running: 0, performance: 0, ..node(epyc, Offer::Unknown, 132, (0, 0)) }),
    ];
    all.into_iter().map(|(name, node)| (name.to_owned(), node)).collect()
}

fn state() -> State {
    let placed = |at, pod: &str, performance, node: &str, why: &str| Placement {
        at: Duration::from_secs(at),
        namespace: "default".to_owned(),
        pod: pod.to_owned(),
        performance,
        node: node.to_owned(),
        waited: Duration::ZERO,
        why: why.to_owned(),
    };
    State {
        at: Duration::from_secs(23),
        budget: watts(8000),
        nodes: nodes(),
        workloads: BTreeMap::new(),
        pods: Pods { waiting: 3, waiting_performance: 1, running: 34, ended: 87, failed: 0, misplaced: 0 },
        plan: Plan {
            leader: Some("operator-0".to_owned()),
            age: Some(Duration::from_millis(840)),
            policy: Some("queue-aware-v1".to_owned()),
        },
        extender_silent: None,
        placements: vec![
            placed(21, "std-17", false, "sim-epyc-1", "score 81, the best of 9"),
            placed(
                22,
                "perf-4",
                true,
                "sim-epyc-0",
                "score 72, the best of 3; 9 refused (joulie: node is eco)",
            ),
        ],
    }
}

fn told() -> Vec<Line> {
    let line = |at, tone, text: &str| Line { at: Duration::from_secs(at), tone, text: text.to_owned() };
    vec![
        line(3, Tone::Good, "sim-epyc-1 became eco: cap 216 W asked, 216 W read back"),
        line(12, Tone::Chaos, "chaos: the telemetry of sim-xeon-2 answers 500 from now on"),
        line(18, Tone::Warn, "sim-xeon-2 cannot be measured: no sample for 6.0 s"),
        line(22, Tone::Plain, "sim-xeon-3 is reserved by a person: out of the plan, its caps are released"),
    ]
}

fn fixed() -> Fixed {
    Fixed {
        lasting: Some(Duration::from_secs(60)),
        kubeconfig: "/tmp/joulie/kubeconfig".to_owned(),
        page: None,
    }
}

fn sparkline() -> Sparkline {
    let mut sparkline = Sparkline::default();
    for value in [500, 2000, 4000, 6000, 7000, 8000, 9000, 7500] {
        sparkline.push(watts(value));
    }
    sparkline.push(None);
    sparkline
}

fn drawn(columns: usize, rows: usize, glyphs: Glyphs, paint: Paint) -> Vec<String> {
    let style = Style { glyphs, paint };
    frame(&state(), &fixed(), &told(), &sparkline(), (Size { columns, rows }, style))
}

/// Compares with the file, or writes it if it does not exist: to accept a change, remove the file and run the test
/// again.
#[track_caller]
fn is_golden(name: &str, lines: &[String]) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/demo/view/golden").join(name);
    let text = lines.join("\n") + "\n";
    let Ok(golden) = std::fs::read_to_string(&path) else {
        std::fs::write(&path, &text).unwrap();
        panic!("{} was not there and has been written: look at it, check it in, run again", path.display());
    };
    assert!(text == golden, "the frame is not {}; remove the file to accept this:\n{text}", path.display());
}

#[test]
fn a_terminal_of_80_by_24_shows_every_node_and_the_newest_events() {
    is_golden("80x24.txt", &drawn(80, 24, Glyphs::Unicode, Paint::None));
}

#[test]
fn a_wide_terminal_shows_all_columns_and_the_placements() {
    is_golden("120x40.txt", &drawn(120, 40, Glyphs::Unicode, Paint::None));
}

#[test]
fn a_terminal_without_unicode_has_plain_signs() {
    let lines = drawn(100, 30, Glyphs::Ascii, Paint::None);
    assert!(lines.iter().all(|line| line.is_ascii()), "{lines:#?}");
    is_golden("100x30-ascii.txt", &lines);
}

#[test]
fn a_narrow_terminal_keeps_what_matters_most() {
    is_golden("44x20.txt", &drawn(44, 20, Glyphs::Unicode, Paint::None));
}

#[test]
fn no_frame_is_larger_than_its_terminal() {
    for columns in [0, 1, 10, 20, 37, 79, 80, 81, 119, 120, 121, 300] {
        for rows in [0, 1, 2, 10, 19, 20, 21, 24, 50, 200] {
            let lines = drawn(columns, rows, Glyphs::Unicode, Paint::None);
            assert!(lines.len() <= rows.max(1), "{columns}x{rows}: {} lines", lines.len());
            let widest = lines.iter().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= columns.max(COLUMNS_LEAST), "{columns}x{rows}: {widest} columns");
        }
    }
}

#[test]
fn colours_change_nothing_but_the_colour() {
    let coloured = drawn(120, 40, Glyphs::Unicode, Paint::Colours);
    let plain = drawn(120, 40, Glyphs::Unicode, Paint::None);
    for (coloured, plain) in coloured.iter().zip(plain) {
        let mut bare = String::new();
        let mut parts = coloured.split('\x1b');
        bare.push_str(parts.next().unwrap());
        for part in parts {
            bare.push_str(part.split_once('m').unwrap().1);
        }
        assert_eq!(bare.trim_end(), plain);
    }
}

#[test]
fn an_empty_cluster_has_a_frame() {
    let style = Style { glyphs: Glyphs::Unicode, paint: Paint::None };
    let size = Size { columns: 80, rows: 24 };
    let lines = frame(&State::default(), &fixed(), &[], &Sparkline::default(), (size, style));
    assert!(lines[0].starts_with("joulie demo  0 simulated nodes"), "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains("nobody leads yet")), "{lines:#?}");
}

#[test]
fn the_head_says_where_the_page_is_on_any_terminal() {
    let style = Style { glyphs: Glyphs::Unicode, paint: Paint::None };
    let fixed = Fixed { page: Some("http://127.0.0.1:4711/ui/".to_owned()), ..fixed() };
    for (columns, rows) in [(44, 20), (80, 24), (120, 40)] {
        let size = Size { columns, rows };
        let lines = frame(&state(), &fixed, &told(), &sparkline(), (size, style));
        assert!(lines.iter().any(|line| line == "page   http://127.0.0.1:4711/ui/"), "{lines:#?}");
        assert!(lines.len() <= rows);
    }
}
