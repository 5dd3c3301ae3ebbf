//! The driver's frequencies, if it has a table; a driver without one accepts every value in its range.

/// Ascending frequencies in kHz; empty for a driver that accepts every value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrequencyTable(Box<[u32]>);

impl FrequencyTable {
    /// A table of these frequencies, in any order.
    #[must_use]
    pub fn new(mut khz: Vec<u32>) -> Self {
        khz.sort_unstable();
        khz.dedup();
        Self(khz.into_boxed_slice())
    }

    /// Parses `scaling_available_frequencies`: numbers and spaces. `None` for any other text.
    #[must_use]
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let one = |word: &str| {
            let digits = word.bytes().all(|byte| byte.is_ascii_digit());
            let khz: u32 = if digits { word.parse().ok()? } else { return None };
            (khz > 0 && i32::try_from(khz).is_ok()).then_some(khz)
        };
        line.split_ascii_whitespace().map(one).collect::<Option<Vec<u32>>>().map(Self::new)
    }

    /// The frequencies, ascending.
    #[must_use]
    pub fn khz(&self) -> &[u32] {
        &self.0
    }

    /// The difference between neighbours, if it is the same for all and every entry is a multiple of it: then the
    /// driver rounds down to multiples of it. Zero for every other table, and without a table.
    #[must_use]
    pub fn step(&self) -> u32 {
        let gaps = || self.0.iter().zip(self.0.iter().skip(1)).map(|(lower, upper)| upper - lower);
        let Some(step) = gaps().next() else { return 0 };
        let even = gaps().all(|gap| gap == step) && self.0.iter().all(|khz| khz.is_multiple_of(step));
        if even { step } else { 0 }
    }

    /// What to write for a wish: the highest entry that is not above it. Above the table, where a driver has its boost,
    /// and below it, where there is no entry, the wish itself.
    #[must_use]
    pub fn at_or_below(&self, wish: u32) -> u32 {
        let above = self.0.last().is_some_and(|top| wish > *top);
        let entry = self.0.iter().rev().find(|khz| **khz <= wish).copied();
        entry.filter(|_| !above).unwrap_or(wish)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_wish_goes_down_to_the_table() {
        // facts/hardware.md 3.2: 1.2 to 3.2 GHz in steps of 400 MHz.
        let table = FrequencyTable::parse("1200000 1600000 2000000 2400000 2800000 3200000 ").unwrap();
        assert_eq!(table.step(), 400_000);
        for (wish, told) in [
            (2_000_000, 2_000_000),
            (2_100_000, 2_000_000),
            (1_999_999, 1_600_000),
            (1_900_000, 1_600_000),
            (3_200_000, 3_200_000),
            (1_200_000, 1_200_000),
        ] {
            assert_eq!(table.at_or_below(wish), told);
        }
    }

    #[test]
    fn beyond_the_table_the_wish_stands() {
        let table = FrequencyTable::new(vec![3_400_000, 2_200_000, 1_500_000, 2_200_000]);
        assert_eq!(table.khz(), [1_500_000, 2_200_000, 3_400_000]);
        assert_eq!(table.at_or_below(4_200_000), 4_200_000, "the boost above the table");
        assert_eq!(table.at_or_below(1_000_000), 1_000_000);
        assert_eq!(FrequencyTable::default().at_or_below(2_345_678), 2_345_678);
    }

    #[test]
    fn uneven_tables_have_no_step() {
        for (khz, step) in [
            (vec![], 0),
            (vec![2_000_000], 0),
            (vec![1_500_000, 2_600_000, 3_700_000], 0),
            (vec![1_000_000, 2_000_000, 4_000_000], 0),
            (vec![1_000_000, 2_000_000, 3_000_000], 1_000_000),
        ] {
            assert_eq!(FrequencyTable::new(khz.clone()).step(), step, "{khz:?}");
        }
    }

    #[test]
    fn a_text_that_is_no_table_is_none() {
        for text in ["1200000,1600000", "-1", "0 1", "1200000 x", "99999999999", "2147483648", "1.2"] {
            assert_eq!(FrequencyTable::parse(text), None, "{text}");
        }
        assert_eq!(FrequencyTable::parse("  "), Some(FrequencyTable::default()));
    }

    proptest! {
        #[test]
        fn what_is_told_is_never_above_the_wish(khz in prop::collection::vec(1_u32..5_000_000, 0..12), wish in any::<u32>()) {
            let table = FrequencyTable::new(khz);
            let told = table.at_or_below(wish);
            prop_assert!(told <= wish);
            prop_assert_eq!(table.at_or_below(told), told);
            prop_assert!(told == wish || table.khz().contains(&told));
        }
    }
}
