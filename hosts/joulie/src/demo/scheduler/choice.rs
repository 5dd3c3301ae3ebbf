//! Chooses a node, and explains the choice. No I/O.

use super::ask::Passed;
use std::collections::BTreeMap;

/// An extender's score is multiplied by this and by its weight: 100 points of a plugin equal 10 of an extender.
const SCALE: i64 = 10;

/// The chosen node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice<'n> {
    pub(crate) node: &'n str,
    /// The extender's score; `None` if it was not asked.
    pub(crate) theirs: Option<i64>,
}

/// The node with the highest total; the first by name among equals. A node that the extender leaves out has 0 from
/// it.
pub(crate) fn choose<'n>(
    names: &[&'n str],
    own: &BTreeMap<&'n str, i64>,
    theirs: &BTreeMap<String, i64>,
    weight: i64,
) -> Option<Choice<'n>> {
    let total = |name: &str| {
        let given = theirs.get(name).copied().unwrap_or(0);
        own.get(name).copied().unwrap_or(0).saturating_add(given.saturating_mul(weight).saturating_mul(SCALE))
    };
    let mut best: Option<(i64, &'n str)> = None;
    for &name in names {
        let points = total(name);
        if best.is_none_or(|(most, first)| points > most || (points == most && name < first)) {
            best = Some((points, name));
        }
    }
    best.map(|(_, node)| Choice { node, theirs: theirs.get(node).copied() })
}

/// Why this node was chosen.
pub(crate) fn reason(choice: &Choice<'_>, candidates: usize, passed: &Passed) -> String {
    let mut why = match (choice.theirs, candidates) {
        (_, 1) => "the only node that takes it".to_owned(),
        (Some(score), many) => format!("score {score}, the best of {many}"),
        (None, many) => format!("the emptiest of {many}, the extender gave no score"),
    };
    if !passed.refused.is_empty() {
        why.push_str(&format!("; {}", passed.refusals()));
    }
    why
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scores(all: &[(&'static str, i64)]) -> BTreeMap<&'static str, i64> {
        all.iter().copied().collect()
    }

    fn theirs(all: &[(&str, i64)]) -> BTreeMap<String, i64> {
        all.iter().map(|&(name, score)| (name.to_owned(), score)).collect()
    }

    #[test]
    fn a_point_of_the_extender_is_ten_of_the_scheduler() {
        let own = scores(&[("a", 95), ("b", 60), ("c", 0)]);
        let take = |given: &[(&str, i64)]| choose(&["a", "b", "c"], &own, &theirs(given), 1).unwrap().node;
        assert_eq!(take(&[("a", 80), ("b", 83)]), "a");
        assert_eq!(take(&[("a", 80), ("b", 84)]), "b");
        assert_eq!(take(&[]), "a");
        assert_eq!(take(&[("c", 10)]), "c");
        assert_eq!(take(&[("c", i64::MAX), ("b", i64::MAX)]), "b");
    }

    #[test]
    fn the_same_points_go_to_the_first_name_and_nobody_to_nobody() {
        let own = scores(&[("b", 5), ("a", 5)]);
        assert_eq!(choose(&["b", "a"], &own, &BTreeMap::new(), 1).unwrap().node, "a");
        assert_eq!(choose(&[], &own, &BTreeMap::new(), 1), None);
    }

    #[test]
    fn the_reason_names_the_score_and_who_was_turned_away() {
        let refused = theirs_text(&[("d", "joulie: eco"), ("e", "joulie: eco"), ("f", "joulie: draining")]);
        let passed = Passed { names: Vec::new(), refused };
        let choice = Choice { node: "a", theirs: Some(81) };
        assert_eq!(
            reason(&choice, 9, &passed),
            "score 81, the best of 9; 2 refused (joulie: eco), 1 refused (joulie: draining)"
        );
        let none = Passed { names: Vec::new(), refused: BTreeMap::new() };
        assert_eq!(reason(&choice, 1, &none), "the only node that takes it");
    }

    fn theirs_text(all: &[(&str, &str)]) -> BTreeMap<String, String> {
        all.iter().map(|&(name, why)| (name.to_owned(), why.to_owned())).collect()
    }
}
