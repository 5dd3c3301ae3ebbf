//! The ten questions in docs/OPERATE.md: each command there answers its question on a cluster.

use super::world::{PODS, World};

/// A part of the answer to each question, in their order.
const ANSWERS: [&str; 10] = [
    "ENFORCED",
    "the plan makes it eco",
    "nodes draw 500 W",
    "a 400 W, b 300 W",
    "it is on node a",
    "It would go to node",
    "nothing wrong, ",
    "within a minute after that the operator hands it back",
    "nothing in it is raised",
    "default/Deployment/web",
];

#[tokio::test(flavor = "multi_thread")]
async fn each_question_has_one_command_that_answers_it() {
    let page = include_str!("../../../../docs/OPERATE.md");
    let (_, part) = page.split_once("## Ten questions of a person on call").expect("the part is there");
    let part = part.split("\n## ").next().unwrap();
    let commands: Vec<&str> = part
        .lines()
        .filter(|line| line.starts_with("| "))
        .filter_map(|line| line.split('`').nth(1)?.strip_prefix("kubectl joulie "))
        .collect();
    assert_eq!(commands.len(), ANSWERS.len(), "{commands:?}");
    let world = World::healthy().await;
    let series = "joulie_energy_joules_total{account=\"workload\",namespace=\"default\",workload=\"Deployment/web\",part=\"cpu\"} 1\n";
    for agent in ["joulie-agent-a", "joulie-agent-b"] {
        world.can(&format!("{PODS}/{agent}:8080/proxy/metrics"), 200, series);
    }
    for (command, answer) in commands.into_iter().zip(ANSWERS) {
        let words: Vec<&str> = command.split(' ').collect();
        let text = World::text(world.ask(&words).await);
        assert!(text.contains(answer), "{command}: {answer:?} is not in\n{text}");
    }
}
