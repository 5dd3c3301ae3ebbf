//! What a node gets when everybody wants everything, and the most that it could be granted while nobody else wants
//! anything. Neither follows what is granted now.

use super::path;
use joulie_core::budget::{BudgetNode as Row, Group};
use power_units::Watts;

/// What a node's packages and GPUs could be granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantReach {
    /// When everybody wants everything.
    pub entitled: Watts,
    /// At most, under the limits above the node: the others count with the least that they can be brought to. The policy's
    /// caps are not looked at.
    pub most: Watts,
}

/// The least that a node counts with, whatever it is told.
pub(super) fn least(row: &Row) -> Option<Watts> {
    if row.reachable { Some(row.lowest()) } else { row.count() }
}

/// What each node could be granted. Where a sum is not known it is the entitlement.
pub(super) fn reaches(
    groups: &[Group],
    rows: &[Row],
    rests: &[Watts],
    entitled: &[Watts],
) -> Vec<GrantReach> {
    let mut sums: Vec<Option<Watts>> = groups.iter().map(Group::base).collect();
    for row in rows {
        if let Some(sum) = sums.get_mut(row.group) {
            *sum = sum.zip(least(row)).and_then(|(sum, least)| sum.checked_add(least));
        }
    }
    // Parents come before their parts.
    for at in (0..groups.len()).rev() {
        let (Some(group), Some(part)) = (groups.get(at), sums.get(at).copied()) else { continue };
        if let Some(sum) = group.parent().and_then(|parent| sums.get_mut(parent)) {
            *sum = sum.zip(part).and_then(|(sum, part)| sum.checked_add(part));
        }
    }
    let spare = |at: usize| Some(groups.get(at)?.limit() - sums.get(at).copied().flatten()?);
    let each = rows.iter().zip(rests).zip(entitled).map(|((row, &rest), &entitled)| {
        let spare = path(groups, row.group).map(spare).collect::<Option<Vec<Watts>>>();
        let spare = spare.and_then(|all| all.into_iter().min());
        let most = spare.zip(least(row)).map(|(spare, least)| (least + spare - rest).or_zero());
        GrantReach { entitled, most: most.unwrap_or(entitled) }
    });
    each.collect()
}
