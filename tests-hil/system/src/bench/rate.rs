//! Pods per second: the pods exist, kube-scheduler is started, and the time is measured from the first binding to the
//! last.

use super::{BenchPrograms, Contender, Size};
use crate::SystemError;
use crate::echo::Scores;
use crate::field::{self, Field, Placed};
use cluster::{Component, ControlPlane, NodeForm, Scheduler};
use std::time::Duration;

const CONTENDERS: [Contender; 8] = [
    Contender::Nobody,
    Contender::Echo(NodeForm::Names, Scores::Constant),
    Contender::Echo(NodeForm::Names, Scores::Empty),
    Contender::Ours(NodeForm::Names),
    Contender::Short("safe"),
    Contender::Short("all"),
    Contender::Echo(NodeForm::Full, Scores::Constant),
    Contender::Ours(NodeForm::Full),
];
/// The time limit of a turn. Pods that are not bound by then are not counted.
const PATIENCE: Duration = Duration::from_secs(180);

/// Lets the contenders take turns, and prints the results.
pub(super) async fn run(
    control_plane: &ControlPlane,
    programs: &BenchPrograms,
    size: Size,
) -> Result<(), SystemError> {
    let field = Field::new(&control_plane.client().await?, "rate").await?;
    let mut turns: Vec<Vec<Placed>> = CONTENDERS.iter().map(|_| Vec::new()).collect();
    for _ in 0..size.rounds {
        for (contender, turns) in CONTENDERS.iter().zip(&mut turns) {
            let turn = Turn { contender: *contender, pods: pods(*contender, size), percentage: Some(100) };
            let placed = turn.take(control_plane, programs, &field).await?;
            crate::tell(&format!("{} nodes, {}: {:.1} pods/s", size.nodes, contender.name(), placed.rate()));
            turns.push(placed);
        }
    }
    print(size, &turns);
    Ok(())
}

/// One turn of a contender.
pub(super) struct Turn {
    pub(super) contender: Contender,
    pub(super) pods: u32,
    /// The percentage of fitting nodes that kube-scheduler scores; `None` for its default.
    pub(super) percentage: Option<u8>,
}

impl Turn {
    pub(super) async fn take(
        &self,
        control_plane: &ControlPlane,
        programs: &BenchPrograms,
        field: &Field,
    ) -> Result<Placed, SystemError> {
        let Self { contender, pods, percentage } = *self;
        control_plane.stop(Component::Scheduler);
        field.clear().await?;
        field.make(&field::pod("pod"), pods).await?;
        let asked = contender.start(control_plane, programs, &[]).await?;
        let scheduler = Scheduler { percentage_of_nodes_to_score: percentage, ..asked.scheduler };
        let begin = async || Ok(control_plane.start_scheduler(&scheduler)?);
        let placed = field.placed(pods, PATIENCE, begin).await?;
        if placed.count() < pods {
            let name = contender.name();
            return Err(
                format!("{name}: only {} of {pods} pods were bound in {PATIENCE:?}", placed.count()).into()
            );
        }
        Ok(placed)
    }
}

/// Fewer pods if each of them transfers full nodes of 8 kB in both directions.
fn pods(contender: Contender, size: Size) -> u32 {
    match contender.form() {
        None | Some(NodeForm::Names) => size.pods,
        Some(NodeForm::Full) => (size.pods * 20 / size.nodes).max(10),
    }
}

fn best(turns: &[Placed]) -> f64 {
    turns.iter().map(Placed::rate).fold(0.0, f64::max)
}

fn print(size: Size, turns: &[Vec<Placed>]) {
    println!("\n### {} nodes\n", size.nodes);
    println!(
        "| extender | nodes as | pods | pods/s, each round | best | of none | of an echo | nodes used |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let of = |wanted: Contender| {
        CONTENDERS
            .iter()
            .zip(turns)
            .find(|(contender, _)| **contender == wanted)
            .map_or(0.0, |(_, turns)| best(turns))
    };
    let none = of(Contender::Nobody);
    for (contender, turns) in CONTENDERS.iter().zip(turns) {
        let (form, echo) = match contender.form() {
            None => ("–", None),
            Some(form @ NodeForm::Names) => ("names", Some(of(Contender::Echo(form, Scores::Constant)))),
            Some(form @ NodeForm::Full) => ("objects", Some(of(Contender::Echo(form, Scores::Constant)))),
        };
        let best = best(turns);
        let rates: Vec<_> = turns.iter().map(|turn| format!("{:.1}", turn.rate())).collect();
        let used: Vec<_> = turns.iter().map(|turn| turn.by_node.len().to_string()).collect();
        println!(
            "| {} | {form} | {} | {} | {best:.1} | {:.2} | {} | {} |",
            contender.name(),
            pods(*contender, size),
            rates.join(", "),
            best / none,
            echo.map_or("–".to_owned(), |echo| format!("{:.2}", best / echo)),
            used.join(", "),
        );
    }
}
