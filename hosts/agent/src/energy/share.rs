//! Divides a whole number in proportion to weights so that the parts sum to it exactly.

/// The parts of `total` in proportion to `weights`, by the largest remainder: each part is rounded down, and the units that are
/// left over go one each to the parts that lost most, the first of equals first. Nothing is divided where all weights are zero.
pub(super) fn shares(total: u64, weights: &[u64]) -> Option<Vec<u64>> {
    let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    if sum == 0 {
        return None;
    }
    let mut parts = Vec::with_capacity(weights.len());
    let mut lost = Vec::with_capacity(weights.len());
    let mut given = 0_u64;
    for (at, weight) in weights.iter().enumerate() {
        let exact = u128::from(total) * u128::from(*weight);
        // A part is at most the total, which is a u64.
        let part = u64::try_from(exact / sum).unwrap_or(total);
        parts.push(part);
        given += part;
        lost.push((exact % sum, at));
    }
    lost.sort_by(|(a, at), (b, other)| b.cmp(a).then(at.cmp(other)));
    let left = usize::try_from(total - given).unwrap_or(usize::MAX);
    for (_, at) in lost.into_iter().take(left) {
        parts[at] += 1;
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_left_over_goes_to_the_largest_remainders() {
        // 100 · 1/3 = 33 and 1/3 each: one unit is left over, and the first of equals has it.
        assert_eq!(shares(100, &[1, 1, 1]), Some(vec![34, 33, 33]));
        // 10 · 5/8 = 6.25, 10 · 2/8 = 2.5, 10 · 1/8 = 1.25: 9 are given, and the second lost most.
        assert_eq!(shares(10, &[5, 2, 1]), Some(vec![6, 3, 1]));
        // 7 · 0/4, 7 · 3/4 = 5.25, 7 · 1/4 = 1.75.
        assert_eq!(shares(7, &[0, 3, 1]), Some(vec![0, 5, 2]));
        assert_eq!(shares(7, &[0, 0]), None, "nobody is there to have it");
        assert_eq!(shares(7, &[]), None);
        assert_eq!(shares(u64::MAX, &[u64::MAX, u64::MAX]), Some(vec![u64::MAX / 2 + 1, u64::MAX / 2]));
    }

    proptest! {
        #[test]
        fn the_parts_sum_to_the_whole(total: u64, weights in prop::collection::vec(any::<u64>(), 1..40)) {
            if let Some(parts) = shares(total, &weights) {
                prop_assert_eq!(parts.iter().map(|part| u128::from(*part)).sum::<u128>(), u128::from(total));
                for (part, weight) in parts.iter().zip(&weights) {
                    prop_assert!(*weight > 0 || *part == 0);
                }
            }
        }
    }
}
