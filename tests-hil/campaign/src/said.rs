//! The fields of a node's status line that the checks use.

/// The node's own account of its progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Said<'l> {
    /// How many periods it has had.
    pub(crate) periods: u64,
    /// The backends that have been in a call for longer than a period, separated by commas; a dash if there are none.
    stuck: &'l str,
}

impl<'l> Said<'l> {
    /// Parses a line such as `ok 8 21 cpufreq …`.
    pub(crate) fn of(line: &'l str) -> Option<Self> {
        let mut words = line.split(' ');
        let (ok, _originals) = (words.next()?, words.next()?);
        let (periods, stuck) = (words.next()?.parse().ok()?, words.next()?);
        (ok == "ok").then_some(Self { periods, stuck })
    }

    /// Whether this backend is in a call.
    pub(crate) fn is_stuck(&self, backend: &str) -> bool {
        self.stuck.split(',').any(|label| label == backend)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_and_stuck_backends_are_read_from_a_line() {
        let said = Said::of("ok 8 21 powercap,cpufreq None None").unwrap();
        assert_eq!(said.periods, 21);
        assert_eq!(
            ["powercap", "cpufreq", "power", "-"].map(|label| said.is_stuck(label)),
            [true, true, false, false]
        );
        assert!(!Said::of("ok 8 21 - None").unwrap().is_stuck("powercap"));
        for line in ["", "ok", "ok 8", "ok 8 21", "ok 8 x -", "what? 8 21 -"] {
            assert_eq!(Said::of(line), None, "{line:?}");
        }
    }
}
