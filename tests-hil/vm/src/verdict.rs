//! The output of a guest, and its verdict.

use std::collections::BTreeSet;

/// The verdict on one scenario with one kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) passed: usize,
    /// The failures, and the lines that explain them.
    pub(crate) failures: Vec<String>,
    pub(crate) evidence: Vec<String>,
    /// Measured figures: `BAR vm NAME VALUE LIMIT PASS|FAIL`.
    pub(crate) bars: Vec<String>,
    /// Measured figures without a limit.
    pub(crate) figures: Vec<String>,
    /// Lines for the table of the kernel's answers.
    pub(crate) golden: Vec<String>,
}

impl Verdict {
    /// Reads the output of `boots` boots. A guest that did not reach its end has failed.
    pub(crate) fn of(said: &str, boots: u32) -> Self {
        let mut verdict = Self::default();
        // The boots that reached their end. A serial line may repeat its last line.
        let mut ends = BTreeSet::new();
        for line in said.lines().map(str::trim_end) {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "PASS" => verdict.passed += 1,
                "FAIL" => verdict.failures.push(rest.to_owned()),
                "BAR" => {
                    if rest.ends_with("FAIL") {
                        verdict.failures.push(rest.to_owned());
                    }
                    verdict.bars.push(line.to_owned());
                }
                "FIGURE" => verdict.figures.push(rest.to_owned()),
                "GOLDEN" => verdict.golden.push(rest.to_owned()),
                "START" => {}
                "END" => drop(ends.insert(rest.to_owned())),
                _ => verdict.evidence.push(line.to_owned()),
            }
        }
        if !(1..=boots).all(|boot| ends.contains(&boot.to_string())) {
            verdict.failures.push(format!("the guest did not come to its end in each of {boots} boots"));
        }
        if verdict.passed == 0 && verdict.golden.is_empty() {
            verdict.failures.push("nothing was checked".to_owned());
        }
        verdict
    }

    pub(crate) const fn stands(&self) -> bool {
        self.failures.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_passes_only_if_it_checked_and_came_to_its_end() {
        assert!(Verdict::of("PASS a\nPASS b\nEND 1\nEND 1\n", 1).stands());
        for bad in
            ["", "PASS a\n", "END 1\n", "PASS a\nFAIL b\nEND 1\n", "PASS a\nBAR vm x 3 2 FAIL\nEND 1\n"]
        {
            assert!(!Verdict::of(bad, 1).stands(), "{bad:?}");
        }
        assert!(!Verdict::of("PASS a\nEND 1\nEND 1\n", 2).stands(), "one boot of two");
        assert!(Verdict::of("GOLDEN a b\nEND 1\n", 1).stands());
    }
}
