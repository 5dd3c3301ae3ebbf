//! Two replicas under churn: every answer is what was written up to the versions that it names, both agree, and no card is
//! lost. `cargo xtask bench soak` does the same for minutes.

use super::churn::{self, Pace, SETTINGS};
use super::world::{World, api};
use std::time::Duration;

const WORKERS: usize = 12;

#[tokio::test]
async fn no_update_is_lost_replicas_agree_and_no_card_leaks_under_churn() {
    for seed in [1, 2] {
        let api = api();
        let client = api.client_as("churn");
        churn::fill(&client, WORKERS).await.unwrap();
        let first = World::on(api.clone(), &SETTINGS).await;
        let second = World::on(api.clone(), &SETTINGS).await;
        let pace = Pace {
            seed,
            workers: WORKERS,
            ticks: 40,
            every: Duration::ZERO,
            pods: 4,
            events: 16,
            lasts: Duration::from_millis(50),
        };
        let tally = churn::run(client, [first.started.work, second.started.work], pace).await.unwrap();
        let bad = [tally.lost, tally.disagreements, tally.failed, tally.leaked, tally.without];
        assert_eq!(bad, [0; 5], "seed {seed}: {:?}", tally.complaints);
        assert_eq!(tally.pods, tally.bound + tally.unbound, "{tally:?}");
        let done = [tally.checked, tally.compared, tally.bound, tally.events];
        assert!(
            done.iter().all(|count| *count > 20),
            "seed {seed}: it shows something only if much happens: {tally:?}"
        );
        let (hung_up, bound) = (tally.hung_up, tally.bound_unasked);
        assert!(hung_up > 0, "seed {seed}: nobody hung up, and {bound} pods were bound all the same");
    }
}
