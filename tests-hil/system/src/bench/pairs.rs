//! What an extender costs the real kube-scheduler, as ratios: the contenders take turns, and each is compared with the one
//! beside it in the same round. The machine is shared, so the median of at least five such pairs is told, with the least and the most.

use super::rate::Turn;
use super::{BenchPrograms, Contender, Size};
use crate::SystemError;
use crate::echo::Scores;
use crate::field::Field;
use cluster::{ControlPlane, NodeForm};

const CONTENDERS: [Contender; 5] = [
    Contender::Nobody,
    Contender::Echo(NodeForm::Names, Scores::Constant),
    Contender::Ours(NodeForm::Names),
    Contender::Short("all"),
    Contender::Echo(NodeForm::Names, Scores::Few),
];
const NONE: usize = 0;
const ECHO: usize = 1;
const OURS: usize = 2;
const SHORT: usize = 3;
const FEW: usize = 4;

/// The least share of what is beside it, by the number of nodes and the percentage of them that is scored.
fn bars(nodes: u32, percentage: Option<u8>) -> [(&'static str, usize, usize, f64); 3] {
    let short = match percentage {
        Some(_) if nodes > 1_000 => 1.2,
        Some(_) => 0.85,
        None => 0.95,
    };
    [
        ("short_of_none", SHORT, NONE, short),
        ("ours_of_echo", OURS, ECHO, 0.95),
        ("short_of_its_echo", SHORT, FEW, 0.95),
    ]
}

/// Lets the contenders take turns with all nodes scored and with kube-scheduler's default, and prints the results.
pub(super) async fn run(
    control_plane: &ControlPlane,
    programs: &BenchPrograms,
    size: Size,
) -> Result<(), SystemError> {
    let field = Field::new(&control_plane.client().await?, "pairs").await?;
    for percentage in [Some(100), None] {
        let mut rounds = Vec::new();
        for round in 1..=size.pairs {
            let mut rates = Vec::new();
            for contender in CONTENDERS {
                let turn = Turn { contender, pods: size.pods, percentage };
                rates.push(turn.take(control_plane, programs, &field).await?.rate());
            }
            crate::tell(&format!(
                "{} nodes, {percentage:?} %, round {round}: {rates:.1?} pods/s",
                size.nodes
            ));
            rounds.push(rates);
        }
        print(size, percentage, &rounds);
    }
    Ok(())
}

/// The least, the one in the middle and the most.
fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let at = |place: usize| values.get(place).copied().unwrap_or(f64::NAN);
    [at(0), at(values.len() / 2), at(values.len().saturating_sub(1))]
}

fn print(size: Size, percentage: Option<u8>, rounds: &[Vec<f64>]) {
    let scored = percentage.map_or("its default".to_owned(), |percentage| format!("{percentage}"));
    println!("\n### {} nodes, percentageOfNodesToScore {scored}, {} rounds\n", size.nodes, rounds.len());
    println!("| extender | pods/s, median (least to most) | of none, median | of an echo, median |");
    println!("|---|---|---|---|");
    let rates = |which: usize| rounds.iter().filter_map(move |rates| rates.get(which).copied());
    let ratios = |one: usize, other: usize| {
        spread(rates(one).zip(rates(other)).map(|(one, other)| one / other.max(f64::MIN_POSITIVE)).collect())
    };
    for (which, contender) in CONTENDERS.iter().enumerate() {
        let [least, middle, most] = spread(rates(which).collect());
        let [_, of_none, _] = ratios(which, NONE);
        let [_, of_echo, _] = ratios(which, ECHO);
        println!(
            "| {} | {middle:.1} ({least:.1} to {most:.1}) | {of_none:.2} | {of_echo:.2} |",
            contender.name()
        );
    }
    println!();
    let scored = percentage.map_or("default".to_owned(), |percentage| format!("{percentage}"));
    for (name, one, other, bar) in bars(size.nodes, percentage) {
        let [least, middle, most] = ratios(one, other);
        let verdict = if middle >= bar { "PASS" } else { "FAIL" };
        println!("{name}: {least:.2} to {most:.2}");
        println!("BAR scheduler_{name}_{}_nodes_{scored} {middle:.3} {bar} {verdict}", size.nodes);
    }
}
