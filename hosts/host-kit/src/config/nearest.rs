//! Finds the known name that somebody probably meant.

/// The nearest of `known`, if it is near enough to be a typo: one edit, or two in a name of eight letters or more.
pub(super) fn nearest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let allowed = if name.len() >= 8 { 2 } else { 1 };
    known
        .map(|one| (distance(name, one), one))
        .min()
        .filter(|(edits, _)| *edits <= allowed)
        .map(|(_, one)| one)
}

/// The number of letters that are inserted, left out, replaced or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().take(64).collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for (i, left) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, right) in b.iter().enumerate() {
            let replaced = rows[i][j] + usize::from(left != right);
            let mut best = replaced.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *left == b[j - 1] && a[i - 1] == *right {
                best = best.min(rows[i - 1][j - 1] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        for (a, b, edits) in [
            ("", "", 0),
            ("", "ABC", 3),
            ("ABC", "", 3),
            ("INTERVAL", "INTERVL", 1),
            ("INTERVAL", "INTREVAL", 1),
            ("CPU", "GPU", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(a, b), edits, "{a} {b}");
        }
    }

    #[test]
    fn what_is_far_is_not_meant() {
        let known = ["RECONCILE_INTERVAL", "NODE_NAME"];
        assert_eq!(nearest("RECONCILE_INTERVALL", known.into_iter()), Some("RECONCILE_INTERVAL"));
        assert_eq!(nearest("HOSTNAME", known.into_iter()), None);
        assert_eq!(nearest("PATH", known.into_iter()), None);
        assert_eq!(nearest("PATH", std::iter::empty()), None);
    }
}
