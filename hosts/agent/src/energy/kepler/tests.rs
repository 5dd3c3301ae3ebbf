use super::*;
use crate::energy::meter::Drawn;
use power_units::Micros;

fn at(seconds: u64) -> Mono {
    Mono::at(Duration::from_secs(seconds))
}

/// A second in which the packages drew so much.
fn second(joules: u64) -> PackageSpan {
    let drawn = Drawn { metered: joules * 1_000_000, ..Drawn::default() };
    PackageSpan { span: Micros::new(1_000_000), drawn, used: None, floor: None }
}

fn page(joules: u64, web: u64) -> KeplerPage {
    let text = format!(
        "kepler_node_cpu_joules_total{{zone=\"package\"}} {joules}\n\
         kepler_pod_cpu_joules_total{{zone=\"package\",pod_id=\"u1\"}} {web}\n"
    );
    KeplerPage::read(text.as_bytes(), "n1").unwrap()
}

/// Runs from second to second with the pages that come in some of them; tells in which how many spans were charged, and how much
/// Kepler said that pods and the rest had used.
fn run(
    keeping: &mut KeplerKeeping,
    from: u64,
    pages: &[Option<(u64, u64)>],
) -> Vec<(usize, Option<(u64, u64)>)> {
    let mut charged = Vec::new();
    for (more, told) in pages.iter().enumerate() {
        if let Some((joules, web)) = told {
            keeping.page(page(*joules, *web));
        }
        let now = at(from + u64::try_from(more).unwrap());
        let (spans, used) = keeping.take(now, second(100), &Pods::default());
        let joules = |used: KeplerUsed| {
            let pods: u64 = used.pods.iter().map(|(_, used)| used).sum();
            (pods / 1_000_000, used.rest / 1_000_000)
        };
        charged.push((spans.len(), used.map(joules)));
    }
    charged
}

#[test]
fn what_packages_draw_waits_for_the_next_page_while_kepler_counts() {
    let mut keeping = KeplerKeeping::default();
    // Nothing waits before two pages have told that it counts.
    let before = run(&mut keeping, 0, &[None, Some((1_000, 400)), None, Some((1_200, 500))]);
    assert_eq!(before, [(1, None); 4]);
    assert!(keeping.is_live());
    let live = run(&mut keeping, 4, &[None, None, Some((1_500, 700)), None, Some((1_700, 760))]);
    assert_eq!(live, [(0, None), (0, None), (3, Some((200, 100))), (0, None), (2, Some((60, 140)))]);
}

#[test]
fn what_has_waited_in_vain_is_charged_as_without_kepler() {
    let mut keeping = KeplerKeeping::default();
    run(&mut keeping, 0, &[Some((1_000, 0)), Some((1_100, 10))]);
    // It was live at second 1. The page stands still, then nothing comes: 15 seconds later nobody waits any more.
    let mut pages = vec![Some((1_100, 10)); 5];
    pages.extend([None; 12]);
    let waited = run(&mut keeping, 2, &pages);
    let mut expected = vec![(0, None); 14];
    expected.extend([(15, None), (1, None), (1, None)]);
    assert_eq!(waited, expected);
    assert!(!keeping.is_live());
    // It counts on: what it used meanwhile is charged already, so that nothing of it is charged again.
    assert_eq!(run(&mut keeping, 19, &[Some((5_000, 900)), None]), [(1, None), (0, None)]);
    assert_eq!(run(&mut keeping, 21, &[Some((5_300, 1_000))]), [(2, Some((100, 200)))]);
}

#[test]
fn a_kepler_that_was_started_again_is_compared_with_itself() {
    let mut keeping = KeplerKeeping::default();
    run(&mut keeping, 0, &[Some((1_000, 0)), Some((1_100, 10))]);
    assert_eq!(run(&mut keeping, 2, &[None, Some((5, 1))]), [(0, None), (2, None)]);
    assert!(!keeping.is_live());
    assert_eq!(run(&mut keeping, 4, &[Some((205, 11)), Some((305, 21))]), [(1, None), (1, Some((10, 90)))]);
}

#[test]
fn kepler_and_the_meter_are_compared_over_a_minute() {
    let mut keeping = KeplerKeeping::default();
    // 100 W by the meter; Kepler says 131 W, then 108 W, which is not near enough to agree again, then 105 W.
    let mut joules = 1_000;
    let mut minute = |keeping: &mut KeplerKeeping, watts: u64, from: u64| {
        let pages: Vec<Option<(u64, u64)>> = (0..60)
            .map(|_| {
                joules += watts;
                Some((joules, 0))
            })
            .collect();
        run(keeping, from, &pages);
        (keeping.ratio(), keeping.compared.disagrees)
    };
    // The first two pages only begin.
    run(&mut keeping, 0, &[Some((900, 0)), Some((1_000, 0))]);
    assert_eq!(minute(&mut keeping, 131, 2), (Some(1_310), true));
    assert_eq!(minute(&mut keeping, 108, 62), (Some(1_080), true));
    assert_eq!(minute(&mut keeping, 105, 122), (Some(1_050), false));
}
