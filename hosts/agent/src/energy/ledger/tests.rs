use super::*;

const SECOND: Micros = Micros::new(1_000_000);
const BOUNDS: Bounds = Bounds { pods: 4, namespaces: 2, workloads: 3, kept: Duration::from_secs(10) };

fn at(seconds: u64) -> Mono {
    Mono::at(Duration::from_secs(seconds))
}

fn pod(namespace: &str, workload: &str, uid: &str) -> Pod {
    let workload = Workload { namespace: namespace.into(), name: workload.into() };
    Pod { uid: uid.to_owned(), workload }
}

fn metered(metered: u64) -> Drawn {
    Drawn { metered, ..Drawn::default() }
}

fn interval(seconds: u64, packages: Drawn, pods: &[(Pod, u64)], (unseen, system): (u64, u64)) -> Interval {
    let pods = pods.iter().map(|(pod, used)| (Some(pod.clone()), *used)).collect();
    let used = Some(Used { pods, unseen, system });
    Interval { at: at(seconds), span: SECOND, packages, used, floor: None, gpus: Vec::new() }
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
    span.floor = Some(Watts::from_int(50));
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
    span.floor = Some(Watts::from_int(50));
    ledger.take(&span);
    assert_eq!((ledger.idle.cpu, of(&ledger, "Pod/p").cpu), (40_000_000, 0));
}

#[test]
fn what_nobody_can_be_charged_for_is_unknown() {
    let mut ledger = Ledger::new(BOUNDS);
    // A gap; then processor time that is not known; then none at all; then of a pod that the API does not have.
    ledger.take(&interval(1, Drawn { metered: 10, gap: 100, gap_micros: 7 }, &[], (0, 1)));
    ledger.take(&Interval { used: None, ..interval(2, metered(1_000), &[], (0, 0)) });
    ledger.take(&interval(3, metered(10_000), &[], (0, 0)));
    let used = Some(Used { pods: vec![(None, 3)], unseen: 0, system: 1 });
    ledger.take(&Interval { used, ..interval(4, metered(100_000), &[], (0, 0)) });
    assert_eq!((ledger.unknown.cpu, ledger.system.cpu), (100 + 1_000 + 10_000 + 75_000, 10 + 25_000));
    assert_eq!((ledger.sum(), ledger.gap_micros.cpu), (ledger.drawn, 7));
}

#[test]
fn the_holder_of_a_gpu_pays_for_all_of_it_and_those_who_share_one_pay_alike() {
    let mut ledger = Ledger::new(BOUNDS);
    let (a, b, c) = (pod("ml", "Job/a", "1"), pod("ml", "Job/b", "2"), pod("ml", "Job/c", "3"));
    let gpus = vec![
        (metered(700_000_000), Holders::Pods(vec![Some(a.clone())])),
        // 100 J among three: the first has the microjoule that is left.
        (metered(100_000_000), Holders::Pods(vec![Some(a), Some(b), Some(c)])),
        (metered(80_000_000), Holders::Nobody),
        (Drawn { metered: 5, gap: 9, gap_micros: 2 }, Holders::Unknown),
        (metered(11), Holders::Pods(vec![None])),
    ];
    ledger.take(&Interval { gpus, ..interval(1, metered(0), &[], (0, 1)) });
    assert_eq!(of(&ledger, "Job/a").gpu, 733_333_334);
    assert_eq!((of(&ledger, "Job/b").gpu, of(&ledger, "Job/c").gpu), (33_333_333, 33_333_333));
    assert_eq!((ledger.idle.gpu, ledger.unknown.gpu), (80_000_000, 5 + 9 + 11));
    assert_eq!((ledger.sum(), ledger.gap_micros.gpu), (ledger.drawn, 2));
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
    assert_eq!((ledger.other.cpu, ledger.beyond, ledger.pods()), (30, 3, 4));
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
    assert_eq!((ledger.workloads().count(), ledger.pods(), ledger.left.cpu), (0, 0, 100));
    assert_eq!(ledger.sum(), ledger.drawn);
    ledger.take(&interval(23, metered(100), &[(web, 1)], (0, 0)));
    assert_eq!((of(&ledger, "Deployment/web").cpu, ledger.left.cpu), (100, 100));
    assert_eq!((ledger.sum(), ledger.drawn.cpu), (ledger.drawn, 500));
}
