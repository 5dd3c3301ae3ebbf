//! The shipped programs on a real control plane. The stories of a list run one after the other: each starts with the state that
//! the one before has left. Of two lists, each with a control plane of its own, one runs beside the other.
#![expect(clippy::unwrap_used, clippy::panic, reason = "all of it is tests: what is not expected fails them")]

mod budget;
mod burst;
mod cert_manager;
mod deferral;
mod gpus;
mod grants;
mod kube_scheduler;
mod kubectl;
mod migration;
mod moves;
mod one_node;
mod options;
mod outages;
mod pipeline;
mod placement;
mod shortlist;
mod six_stages;
mod sleep;
mod support;
mod uninstall;

use futures::future::LocalBoxFuture;
use std::path::{Path, PathBuf};
use std::time::Duration;
use system::audit::AuditLog;
use system::world::{Shipped, TestSystem};
use tokio::time::Instant;

type Story = (&'static str, for<'a> fn(&'a TestSystem) -> LocalBoxFuture<'a, ()>);

/// The stories in their order.
const STORIES: &[Story] = &[
    ("a wish becomes limits, and is reported", |world| Box::pin(one_node::a_wish_becomes_limits(world))),
    ("200 changes reach the hardware", |world| Box::pin(one_node::changes_reach_the_hardware(world))),
    ("a TelemetryProfile is followed, and one that cannot be is refused", |world| {
        Box::pin(one_node::a_route_is_followed_or_refused(world))
    }),
    ("a rollout of the agent never lets the cap go", |world| {
        Box::pin(one_node::a_rollout_keeps_the_cap(world))
    }),
    ("an agent that is killed leaves the cap", |world| {
        Box::pin(one_node::a_killed_agent_leaves_the_cap(world))
    }),
    ("a released profile brings the originals back", |world| Box::pin(one_node::a_release_restores(world))),
    ("all nodes are planned for, capped and described", |world| {
        Box::pin(placement::all_nodes_are_planned(world))
    }),
    ("performance pods stay off eco nodes, standard pods prefer them", |world| {
        Box::pin(placement::classes_go_where_they_belong(world))
    }),
    ("only who has a certificate may ask, and the server's is renewed under load", |world| {
        Box::pin(placement::a_certificate_is_renewed_under_load(world))
    }),
    ("cert-manager issues and renews the chart's certificates", |world| {
        Box::pin(cert_manager::the_charts_certificates_are_issued_and_renewed(world))
    }),
    ("a burst spreads by watts", |world| Box::pin(burst::a_burst_spreads(world))),
    ("a killed leader is replaced", |world| Box::pin(outages::a_killed_leader_is_replaced(world))),
    ("a leader that is asked to end hands over", |world| Box::pin(outages::a_leader_hands_over(world))),
    ("pods wait for a stopped extender", |world| Box::pin(outages::pods_wait_for_the_extender(world))),
    ("the API server is away", |world| Box::pin(outages::the_api_server_is_away(world))),
    ("a budget that is cut is kept", |world| Box::pin(budget::a_cut_budget_is_kept(world))),
    ("an upgrade with changed values lets no cap go", |world| {
        Box::pin(budget::an_upgrade_lets_no_cap_go(world))
    }),
    ("a grant that was refused is sent again", |world| {
        Box::pin(grants::a_refused_grant_is_sent_again(world))
    }),
    ("nodes that leave a full budget take nothing from it", |world| {
        Box::pin(grants::nodes_that_leave_a_full_budget_take_nothing_from_it(world))
    }),
    ("a person's cap is handed back", |world| Box::pin(grants::a_persons_cap_is_handed_back(world))),
    ("limits that are taken away release every node", |world| {
        Box::pin(grants::limits_that_are_taken_away_release_every_node(world))
    }),
    ("a limit that a person writes needs no restart", |world| {
        Box::pin(grants::a_limit_that_a_person_writes_needs_no_restart(world))
    }),
    ("a node that is deselected gets its originals back", |world| {
        Box::pin(one_node::a_deselected_node_is_restored(world))
    }),
    ("empty nodes sleep through a day", |world| Box::pin(sleep::empty_nodes_sleep_through_a_day(world))),
    ("pods that may wait do while a limit is lower", |world| {
        Box::pin(deferral::pods_that_may_wait_do(world))
    }),
    ("the simulator makes a workload of its own", |world| {
        Box::pin(uninstall::the_simulator_makes_a_workload(world))
    }),
    ("an uninstall releases every node", |world| Box::pin(uninstall::every_node_is_released(world))),
    ("our requests have seats of their own", |world| {
        Box::pin(uninstall::requests_had_seats_of_their_own(world))
    }),
];

/// The stories of the file of settings and of what a real Prometheus knows, in their order. They have a control plane of their own,
/// since they wait most of their time, and the others would wait for them.
const OF_PROMETHEUS: &[Story] = &[
    ("the nodes beside are capped", |world| Box::pin(placement::the_nodes_beside_are_capped(world))),
    ("a changed file of settings changes the caps without a restart", |world| {
        Box::pin(placement::a_changed_file_changes_the_caps(world))
    }),
    ("the building's sensors and Kepler reach the twins through Prometheus", |world| {
        Box::pin(pipeline::sensors_reach_the_twins(world))
    }),
    ("kube-scheduler asks the extender", |world| Box::pin(placement::kube_scheduler_asks(world))),
    ("a load and a hot zone move pods, and a silent Prometheus moves none", |world| {
        Box::pin(moves::load_and_heat_move_pods(world))
    }),
];

/// When all others have used their rights.
const EACH_RIGHT: &str = "no role has a right that nobody uses";

/// The first part that ends unexpectedly.
async fn an_end(world: &TestSystem) -> String {
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        if let Some(ended) = world.ended() {
            return ended;
        }
    }
}

/// The stories whose names have one of the words in `STORIES`, for whoever works on one of them. Most need the state that "all nodes
/// are planned" leaves.
#[expect(clippy::disallowed_methods, reason = "a person chooses from outside")]
fn chosen() -> Option<Vec<String>> {
    let words = std::env::var("STORIES").ok()?;
    Some(words.split(',').map(str::to_owned).collect())
}

/// Of the tests and stories with a control plane of their own one runs at a time, beside the stories, which wait most of their time. More
/// control planes at once are more than a small machine carries; the one of the pods with GPUs lets the next begin while it only waits for
/// looks of an agent, some minutes of which would else be added to the whole run.
static ONE_BESIDE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

fn shipped() -> Shipped {
    Shipped {
        agent: env!("CARGO_BIN_EXE_system-agent").into(),
        operator: env!("CARGO_BIN_EXE_system-operator").into(),
        extender: env!("CARGO_BIN_EXE_system-extender").into(),
        simulator: env!("CARGO_BIN_EXE_system-simulator").into(),
        rig: env!("CARGO_BIN_EXE_system-rig").into(),
    }
}

/// A folder for the logs of a failed test.
fn logs(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Plays the chosen ones of these stories, one after the other.
async fn play(world: &TestSystem, stories: &[Story], chosen: impl Fn(&str) -> bool) {
    for (name, story) in stories.iter().filter(|(name, _)| chosen(name)) {
        let begun = Instant::now();
        system::tell(&format!("{name} ..."));
        // A part that ends unexpectedly fails the story at once, without waiting for a timeout.
        tokio::select! {
            () = story(world) => {}
            ended = an_end(world) => panic!("{ended}"),
        }
        system::tell(&format!("{name}: {:.1?}", begun.elapsed()));
        assert_eq!(world.ended(), None);
    }
}

/// Plays the stories of Prometheus, and returns what our accounts asked meanwhile.
async fn of_prometheus(chosen: impl Fn(&str) -> bool) -> AuditLog {
    let _alone = ONE_BESIDE.lock().await;
    let Some(world) = TestSystem::start(shipped(), &logs("prometheus-logs")).await.unwrap() else {
        return AuditLog::default();
    };
    play(&world, OF_PROMETHEUS, chosen).await;
    AuditLog::of(&world.control_plane).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shipped_programs_keep_the_limits_whatever_happens_to_them() {
    let begun = Instant::now();
    let Some(world) = TestSystem::start(shipped(), &logs("system-logs")).await.unwrap() else { return };
    system::tell(&format!("up after {:.1?}", begun.elapsed()));
    let chosen = chosen();
    let is_chosen =
        move |name: &str| chosen.as_ref().is_none_or(|part| part.iter().any(|word| name.contains(word)));
    let of_both = OF_PROMETHEUS.iter().any(|(name, _)| is_chosen(name));
    // On a thread of its own: what blocks there holds nobody up here.
    let (here, there) = (tokio::runtime::Handle::current(), is_chosen.clone());
    let beside = of_both.then(|| tokio::task::spawn_blocking(move || here.block_on(of_prometheus(there))));
    play(&world, STORIES, &is_chosen).await;
    let mut asked_beside = AuditLog::default();
    if let Some(beside) = beside {
        asked_beside = beside.await.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()));
    }
    if is_chosen(EACH_RIGHT) {
        uninstall::each_right_was_used(&world, &asked_beside).await;
        system::tell(EACH_RIGHT);
    }
}
