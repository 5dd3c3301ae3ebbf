//! The lines with the results of the checks.

use std::time::Duration;

/// A measured value and its upper limit.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bar {
    name: &'static str,
    value: f64,
    limit: f64,
}

impl Bar {
    pub(super) const fn new(name: &'static str, value: f64, limit: f64) -> Self {
        Self { name, value, limit }
    }

    /// The seconds above the limit, which must be zero.
    pub(super) const fn none_above(name: &'static str, above: Duration) -> Self {
        Self::new(name, above.as_secs_f64(), 0.0)
    }

    pub(super) fn is_met(&self) -> bool {
        self.value <= self.limit
    }
}

impl std::fmt::Display for Bar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, value, limit } = self;
        write!(f, "BAR {name} {value:.3} {limit} {}", if self.is_met() { "PASS" } else { "FAIL" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_a_line() {
        let line = |bar: Bar| bar.to_string();
        assert_eq!(line(Bar::new("takeover", 12.5, 15.0)), "BAR takeover 12.500 15 PASS");
        assert_eq!(line(Bar::none_above("above", Duration::from_micros(400))), "BAR above 0.000 0 FAIL");
        assert_eq!(line(Bar::none_above("above", Duration::ZERO)), "BAR above 0.000 0 PASS");
    }
}
