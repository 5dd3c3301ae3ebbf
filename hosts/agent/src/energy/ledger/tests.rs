use super::*;

const SECOND: Micros = Micros::new(1_000_000);
const BOUNDS: Bounds = Bounds { pods: 4, namespaces: 2, workloads: 3, kept: Duration::from_secs(10) };

fn at(seconds: u64) -> Mono {
    Mono::at(Duration::from_secs(seconds))
}

fn pod(namespace: &str, workload: &str, uid: &str) -> Pod {
    let workload = Workload { namespace: namespace.into(), name: workload.into() };
    Pod { uid: uid.to_owned(), name: format!("pod-{uid}").into(), workload }
}

fn metered(metered: u64) -> Drawn {
    Drawn { metered, ..Drawn::default() }
}

fn interval(seconds: u64, packages: Drawn, pods: &[(Pod, u64)], (unseen, system): (u64, u64)) -> Interval {
    let pods = pods.iter().map(|(pod, used)| (Some(pod.clone()), *used)).collect();
    let used = Some(Used { pods, unseen, system });
    let packages = vec![PackageSpan { span: SECOND, drawn: packages, used, floor: None }];
    Interval { at: at(seconds), packages, kepler: None, gpus: Vec::new() }
}

/// A second in which only a GPU draws.
fn card(drawn: Drawn, holders: Holders, used: Option<CardUsed>) -> CardSpan {
    CardSpan { span: SECOND, drawn, holders, used, floor: None }
}

fn cards(seconds: u64, gpus: Vec<CardSpan>) -> Interval {
    Interval { gpus, ..interval(seconds, metered(0), &[], (0, 1)) }
}

fn divided(ledger: &Ledger, source: EnergySource) -> Energy {
    ledger.divided.get(&source).copied().unwrap_or_default()
}

fn of(ledger: &Ledger, name: &str) -> Energy {
    ledger
        .workloads()
        .filter(|(workload, _)| &*workload.name == name)
        .fold(Energy::default(), |sum, (_, one)| sum.and(one))
}

#[test]
fn what_packages_draw_is_charged_by_processor_time_above_the_idle_floor() {
    let mut ledger = Ledger::new(BOUNDS);
    let (web, db) = (pod("shop", "Deployment/web", "1"), pod("shop", "StatefulSet/db", "2"));
    let mut span = interval(1, metered(150_000_001), &[(web, 500_000), (db, 250_000)], (125_000, 125_000));
    span.packages[0].floor = Some(Watts::from_int(50));
    ledger.take(&span);
    // 150.000001 J, of which the floor is 50 W for a second. Of 100,000,001 µJ the parts are 1/2, 1/4, 1/8 and 1/8:
    // 50,000,000.5, 25,000,000.25, 12,500,000.125 and the same; the unit that is left goes to the largest remainder.
    assert_eq!(ledger.idle.cpu, 50_000_000);
    assert_eq!(of(&ledger, "Deployment/web").cpu, 50_000_001);
    assert_eq!(of(&ledger, "StatefulSet/db").cpu, 25_000_000);
    assert_eq!((ledger.unknown.cpu, ledger.system.cpu), (12_500_000, 12_500_000));
    assert_eq!((ledger.sum(), ledger.drawn), (Energy::of_cpu(150_000_001), Energy::of_cpu(150_000_001)));
}

#[test]
fn less_than_the_floor_is_all_idle() {
    let mut ledger = Ledger::new(BOUNDS);
    let mut span = interval(1, metered(40_000_000), &[(pod("a", "Pod/p", "1"), 1)], (0, 0));
    span.packages[0].floor = Some(Watts::from_int(50));
    ledger.take(&span);
    assert_eq!((ledger.idle.cpu, of(&ledger, "Pod/p").cpu), (40_000_000, 0));
}

#[test]
fn what_nobody_can_be_charged_for_is_unknown() {
    let mut ledger = Ledger::new(BOUNDS);
    // A gap; then processor time that is not known; then none at all; then of a pod that the API does not have.
    ledger.take(&interval(1, Drawn { metered: 10, gap: 100, gap_micros: 7 }, &[], (0, 1)));
    let mut unread = interval(2, metered(1_000), &[], (0, 0));
    unread.packages[0].used = None;
    ledger.take(&unread);
    ledger.take(&interval(3, metered(10_000), &[], (0, 0)));
    let mut nobodys = interval(4, metered(100_000), &[], (0, 0));
    nobodys.packages[0].used = Some(Used { pods: vec![(None, 3)], unseen: 0, system: 1 });
    ledger.take(&nobodys);
    assert_eq!((ledger.unknown.cpu, ledger.system.cpu), (100 + 1_000 + 10_000 + 75_000, 10 + 25_000));
    assert_eq!((ledger.sum(), ledger.gap_micros.cpu), (ledger.drawn, 7));
    let none = divided(&ledger, EnergySource::Nothing);
    assert_eq!((none.cpu, divided(&ledger, EnergySource::Cgroups).cpu), (100 + 1_000, 10 + 10_000 + 100_000));
}

#[test]
fn the_holder_of_a_gpu_pays_for_all_of_it_and_those_who_share_one_pay_alike() {
    let mut ledger = Ledger::new(BOUNDS);
    let (a, b, c) = (pod("ml", "Job/a", "1"), pod("ml", "Job/b", "2"), pod("ml", "Job/c", "3"));
    let gpus = vec![
        card(metered(700_000_000), Holders::Pods(vec![Some(a.clone())]), None),
        // 100 J among three: the first has the microjoule that is left.
        card(metered(100_000_000), Holders::Pods(vec![Some(a), Some(b), Some(c)]), None),
        card(metered(80_000_000), Holders::Nobody, None),
        card(Drawn { metered: 5, gap: 9, gap_micros: 2 }, Holders::Unknown, None),
        card(metered(11), Holders::Pods(vec![None]), None),
    ];
    ledger.take(&cards(1, gpus));
    assert_eq!(of(&ledger, "Job/a").gpu, 733_333_334);
    assert_eq!((of(&ledger, "Job/b").gpu, of(&ledger, "Job/c").gpu), (33_333_333, 33_333_333));
    assert_eq!((ledger.idle.gpu, ledger.unknown.gpu), (80_000_000, 5 + 9 + 11));
    assert_eq!((ledger.sum(), ledger.gap_micros.gpu), (ledger.drawn, 2));
    assert_eq!(divided(&ledger, EnergySource::Nothing).gpu, 5 + 9);
}

#[test]
fn those_who_share_a_gpu_pay_by_use_above_its_idle_floor() {
    let (a, b, other) = (pod("ml", "Job/a", "1"), pod("ml", "Job/b", "2"), pod("x", "Job/other", "9"));
    let holders = || Holders::Pods(vec![Some(a.clone()), Some(b.clone())]);
    let used = |pods: &[(Option<&Pod>, u64)], system| {
        let pods = pods.iter().map(|(pod, used)| (pod.cloned(), *used)).collect();
        Some(CardUsed { pods, system })
    };
    let charge = |holders, used| {
        let mut ledger = Ledger::new(BOUNDS);
        let floor = Some(Watts::from_int(100));
        // 500 J, of which the floor is 100 W for a second.
        ledger.take(&cards(1, vec![CardSpan { floor, ..card(metered(500_000_000), holders, used) }]));
        assert_eq!((ledger.sum(), ledger.drawn.gpu), (ledger.drawn, 500_000_000));
        let joules = |energy: Energy| energy.gpu / 1_000_000;
        let [a, b, other] = ["Job/a", "Job/b", "Job/other"].map(|name| joules(of(&ledger, name)));
        let rest = [ledger.idle, ledger.system, ledger.unknown].map(joules);
        let source = *ledger.divided.keys().next().unwrap();
        ([a, b, other], rest, source)
    };
    use EnergySource::{Holders as Held, Instances, Processes};
    for (holders, used, expected) in [
        // 60 and 20 of 80: three quarters and one of 400 J.
        (holders(), used(&[(Some(&a), 60), (Some(&b), 20)], 0), ([300, 100, 0], [100, 0, 0], Processes)),
        // What a pod uses that does not hold the card is of nobody knows whom.
        (
            holders(),
            used(&[(Some(&a), 50), (Some(&other), 30)], 20),
            ([200, 0, 0], [100, 80, 120], Processes),
        ),
        (holders(), used(&[], 0), ([0, 0, 0], [500, 0, 0], Processes)),
        // The processes of a server that the pods share: the holders are believed, in equal parts.
        (holders(), used(&[(Some(&other), 80)], 0), ([200, 200, 0], [100, 0, 0], Held)),
        // A whole card is paid for by its holder, however little it computes.
        (Holders::Pods(vec![Some(a.clone())]), used(&[], 0), ([500, 0, 0], [0, 0, 0], Held)),
        (Holders::Nobody, used(&[(Some(&other), 10)], 30), ([0, 0, 100], [100, 300, 0], Processes)),
        (Holders::Nobody, used(&[(None, 0)], 0), ([0, 0, 0], [500, 0, 0], Held)),
        (Holders::Unknown, used(&[(Some(&a), 1), (None, 3)], 0), ([100, 0, 0], [100, 0, 300], Processes)),
        (Holders::Unknown, used(&[(None, 0)], 0), ([0, 0, 0], [500, 0, 0], Processes)),
        // Of seven slices one pod has three and one has one: 300 and 100 of 400 J.
        (
            Holders::Instances(vec![(Some(a.clone()), 3_000), (Some(b.clone()), 1_000)]),
            None,
            ([300, 100, 0], [100, 0, 0], Instances),
        ),
    ] {
        let said = format!("{holders:?} {used:?}");
        assert_eq!(charge(holders, used), expected, "{said}");
    }
}

#[test]
fn where_kepler_counts_its_proportions_divide_what_the_meter_says() {
    let (web, db) = (pod("shop", "Deployment/web", "1"), pod("shop", "StatefulSet/db", "2"));
    // Two seconds with 300 J; processor time says that the rest is of the system for three quarters.
    let mut both = interval(2, metered(100_000_000), &[(web.clone(), 900)], (1, 3));
    both.packages.extend(interval(2, metered(200_000_000), &[], (1, 3)).packages);
    // Kepler says 600 J: 120 idle, 360 and 40 of pods, 80 of the rest. Of the meter's 300 J that is half of each.
    let pods = vec![(Some(web), 360_000_000), (Some(db), 40_000_000)];
    let kepler = KeplerUsed { pods, idle: Some(120_000_000), rest: 80_000_000 };
    let mut ledger = Ledger::new(BOUNDS);
    ledger.take(&Interval { kepler: Some(kepler.clone()), ..both.clone() });
    assert_eq!(of(&ledger, "Deployment/web").cpu, 180_000_000);
    assert_eq!(of(&ledger, "StatefulSet/db").cpu, 20_000_000);
    assert_eq!(
        (ledger.idle.cpu, ledger.system.cpu, ledger.unknown.cpu),
        (60_000_000, 30_000_000, 10_000_000)
    );
    assert_eq!((ledger.sum(), ledger.drawn.cpu), (ledger.drawn, 300_000_000));
    assert_eq!(divided(&ledger, EnergySource::Kepler).cpu, 300_000_000);

    // One that does not tell the idle part apart leaves that to the floor: 50 W for two seconds, and 200 J for the others.
    both.packages.iter_mut().for_each(|span| span.floor = Some(Watts::from_int(50)));
    let kepler = KeplerUsed { idle: None, rest: 0, ..kepler };
    let mut ledger = Ledger::new(BOUNDS);
    ledger.take(&Interval { kepler: Some(kepler), ..both.clone() });
    assert_eq!((ledger.idle.cpu, of(&ledger, "Deployment/web").cpu), (100_000_000, 180_000_000));
    assert_eq!(ledger.sum(), ledger.drawn);

    // Without Kepler each second is divided by its own processor time: the first above its floor is 50 J, of which web
    // has 900 of 904.
    let mut ledger = Ledger::new(BOUNDS);
    ledger.take(&both);
    assert_eq!((ledger.idle.cpu, of(&ledger, "Deployment/web").cpu), (100_000_000, 49_778_761));
    assert_eq!(divided(&ledger, EnergySource::Cgroups).cpu, 300_000_000);
}

#[test]
fn what_is_beyond_the_bounds_is_charged_to_others_and_counted() {
    let mut ledger = Ledger::new(BOUNDS);
    let pods = [
        (pod("a", "Deployment/x", "1"), 10),
        (pod("b", "Deployment/x", "2"), 10),
        (pod("c", "Deployment/x", "3"), 10), // the third namespace
        (pod("a", "Deployment/y", "4"), 10),
        (pod("a", "Deployment/z", "5"), 10), // the fourth workload
        (pod("a", "Deployment/x", "6"), 10),
        (pod("a", "Deployment/x", "7"), 10), // the fifth pod
    ];
    ledger.take(&interval(1, metered(70), &pods, (0, 0)));
    assert_eq!((ledger.other.cpu, ledger.beyond, ledger.pods().count()), (30, 3, 4));
    assert_eq!((of(&ledger, "Deployment/x").cpu, of(&ledger, "Deployment/y").cpu), (30, 10));
    assert_eq!(ledger.sum(), ledger.drawn);
}

#[test]
fn a_workload_leaves_with_what_it_was_charged_and_begins_anew() {
    let mut ledger = Ledger::new(BOUNDS);
    let web = pod("shop", "Deployment/web", "1");
    ledger.take(&interval(1, metered(100), &[(web.clone(), 1)], (0, 0)));
    // It is there and idle: it stays.
    ledger.take(&interval(11, metered(100), &[(web.clone(), 0)], (0, 1)));
    ledger.take(&interval(21, metered(100), &[], (0, 1)));
    assert_eq!((of(&ledger, "Deployment/web").cpu, ledger.left.cpu), (100, 0));
    ledger.take(&interval(22, metered(100), &[], (0, 1)));
    assert_eq!((ledger.workloads().count(), ledger.pods().count(), ledger.left.cpu), (0, 0, 100));
    assert_eq!(ledger.sum(), ledger.drawn);
    ledger.take(&interval(23, metered(100), &[(web, 1)], (0, 0)));
    assert_eq!((of(&ledger, "Deployment/web").cpu, ledger.left.cpu), (100, 100));
    assert_eq!((ledger.sum(), ledger.drawn.cpu), (ledger.drawn, 500));
}
