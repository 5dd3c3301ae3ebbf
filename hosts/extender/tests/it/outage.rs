//! The answers while the API server is unreachable, or has not answered yet.

use super::world::{World, measured, pod};
use embedded_api::Loss;
use serde_json::json;

#[tokio::test]
async fn the_last_picture_survives_an_outage() {
    // Fix list extender B4, B5: the data is kept, and no request waits for the API server.
    let world = World::start(&[]).await;
    let status = json!({"predictedCoolingStressScore": 0, "powerMeasurement": measured(200, 1000)});
    world.twin("eco", "eco", status).await;
    world.scores_at_last(&pod("standard", "1"), "eco", 81).await;
    world.api.faults().partition("joulie-extender", Loss::Refused);
    for _ in 0..3 {
        assert_eq!(world.score(&pod("standard", "1"), "eco").await, 81);
        let answer =
            world.post("/filter", &json!({"Pod": pod("performance", "1"), "NodeNames": ["eco"]})).await;
        assert_eq!(answer["nodenames"], json!([]));
    }
}
