use super::*;
use std::collections::BTreeSet;

/// The names that are chosen of these nodes with points and zones. The order of the request is that of the list.
fn chosen(pods: ShortlistPods, size: u32, pod: u128, nodes: &[(String, u8, u16)]) -> BTreeSet<String> {
    let names: Vec<&str> = nodes.iter().map(|(name, _, _)| name.as_str()).collect();
    let body = serde_json::json!({"NodeNames": names}).to_string();
    let message = Message::read(body.as_bytes()).unwrap();
    let mut choice = Choice::among(nodes.len());
    for (at, (_, points, zone)) in nodes.iter().enumerate() {
        choice.add(at, u16::from(*points) * 10, *zone);
    }
    let mut chosen = choice.choose(ShortlistRule { pods, size }, PodUid(pod), &message);
    let mut all = BTreeSet::new();
    for (group, first) in nodes.chunks(64).zip((0..).step_by(64)) {
        let bits = chosen.bits(first, group.len());
        let these = group.iter().enumerate().filter(|(place, _)| bits >> place & 1 == 1);
        all.extend(these.map(|(_, (name, _, _))| name.clone()));
    }
    assert_eq!(chosen.used, chosen.entries.len(), "every chosen one is told of");
    all
}

fn node(number: usize, points: u8, zone: u16) -> (String, u8, u16) {
    (format!("n{number}"), points, zone)
}

#[test]
fn the_best_are_chosen_whatever_their_order() {
    // Two nodes have each number of points from 0 to 99.
    let nodes: Vec<_> = (0..200).map(|n| node(n, u8::try_from(n / 2).unwrap(), 0)).collect();
    let best: BTreeSet<String> = (190..200).map(|n| format!("n{n}")).collect();
    assert_eq!(chosen(ShortlistPods::Safe, 10, 7, &nodes), best);
    // One of the two nodes with 94 points is left out: always the same one.
    let eleven = chosen(ShortlistPods::Safe, 11, 7, &nodes);
    assert_eq!(eleven.len(), 11);
    for turn in [1, 77, 199] {
        let mut turned = nodes.clone();
        turned.rotate_left(turn);
        turned.reverse();
        assert_eq!(chosen(ShortlistPods::Safe, 11, 7, &turned), eleven, "{turn}");
        let all = chosen(ShortlistPods::All, 16, 7, &nodes);
        assert_eq!(chosen(ShortlistPods::All, 16, 7, &turned), all, "{turn}");
    }
}

#[test]
fn lots_are_drawn_by_the_pod_so_that_a_burst_reaches_every_node() {
    let nodes: Vec<_> = (0..500).map(|n| node(n, 50, 0)).collect();
    let mut all = BTreeSet::new();
    for pod in 0..200 {
        let chosen = chosen(ShortlistPods::Safe, 16, pod, &nodes);
        assert_eq!(chosen.len(), 16);
        all.extend(chosen);
    }
    // 3,200 lots of 500 nodes: all but 500 · (1 − 16/500)²⁰⁰, which is less than one.
    assert!(all.len() > 490, "{}", all.len());
}

#[test]
fn each_zone_has_candidates_and_equal_ones_are_divided_evenly() {
    let zoned = |counts: [usize; 3], points: [u8; 3]| -> Vec<_> {
        let zones = (0..3_usize).flat_map(|zone| (0..counts[zone]).map(move |n| (zone, n)));
        zones.map(|(zone, n)| node(zone * 1000 + n, points[zone], u16::try_from(zone + 1).unwrap())).collect()
    };
    let by_zone = |nodes: &[(String, u8, u16)], size: u32| -> Vec<usize> {
        let chosen = chosen(ShortlistPods::Safe, size, 3, nodes);
        let of =
            |zone: u16| nodes.iter().filter(|(name, _, own)| *own == zone && chosen.contains(name)).count();
        (1..=3).map(of).collect()
    };
    // Half of twelve, divided by three zones, are two for each; the rest are the best.
    assert_eq!(by_zone(&zoned([100, 100, 100], [90, 10, 10]), 12), [8, 2, 2]);
    assert_eq!(by_zone(&zoned([100, 1, 100], [90, 10, 10]), 12), [9, 1, 2]);
    let even = by_zone(&zoned([100, 100, 3], [50, 50, 50]), 12);
    assert!(even[2] == 3 && even[0].abs_diff(even[1]) == 1, "{even:?}");
    // Fewer places than zones: the best.
    assert_eq!(by_zone(&zoned([100, 100, 100], [90, 10, 10]), 2), [2, 0, 0]);
}

#[test]
fn a_quarter_is_drawn_among_those_that_a_soft_spread_may_choose() {
    let nodes: Vec<_> = [(90, 100), (75, 100), (10, 100)]
        .into_iter()
        .flat_map(|(points, count)| (0..count).map(move |n| (points, n)))
        .map(|(points, n)| node(usize::from(points) * 1000 + n, points, 0))
        .collect();
    let of = |chosen: &BTreeSet<String>, points: &str| {
        chosen.iter().filter(|name| name.starts_with(points)).count()
    };
    let mut drawn = 0;
    for pod in 0..50 {
        let chosen = chosen(ShortlistPods::All, 16, pod, &nodes);
        let [best, near, far] = ["n90", "n75", "n10"].map(|points| of(&chosen, points));
        assert!(best >= 12 && far == 0 && best + near == 16, "{best} {near} {far}");
        drawn += near;
    }
    // Of each four, 100 in 188 are expected: 106 in all.
    assert!((70..140).contains(&drawn), "{drawn}");
    // If too few are near, the others fill it up.
    let few: Vec<_> = (0..113).map(|n| node(n, if n < 13 { 100 } else { 10 }, 0)).collect();
    let chosen = chosen(ShortlistPods::All, 16, 1, &few);
    assert_eq!(chosen.len(), 16);
    assert!((0..13).all(|n| chosen.contains(&format!("n{n}"))));
}

#[test]
fn there_are_never_fewer_than_asked_for() {
    let mut dice = 1_u64;
    let mut draw = |most: u64| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        dice % most
    };
    for round in 0..300 {
        let count = usize::try_from(3 + draw(400)).unwrap();
        let (levels, zones) = (1 + draw(101), 1 + draw(40));
        let nodes: Vec<_> = (0..count)
            .map(|n| node(n, u8::try_from(draw(levels)).unwrap(), u16::try_from(draw(zones)).unwrap()))
            .collect();
        let size = u32::try_from(2 + draw(u64::try_from(count - 2).unwrap())).unwrap();
        for pods in [ShortlistPods::Safe, ShortlistPods::All] {
            let chosen = chosen(pods, size, u128::from(draw(1 << 40)), &nodes);
            assert_eq!(chosen.len(), usize::try_from(size).unwrap(), "{round} {count} {levels} {zones}");
            // The best node is always among them.
            let best = nodes.iter().map(|(_, points, _)| points).max();
            assert!(
                nodes.iter().any(|(name, points, _)| Some(points) == best && chosen.contains(name)),
                "{round}"
            );
        }
    }
}
