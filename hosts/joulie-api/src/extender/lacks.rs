//! Why a pod waits for watts: the extender writes it as the reason of a node, kube-scheduler repeats it in the pod's
//! condition `PodScheduled` and in its Event, and the operator reads it there.

use power_units::Watts;
use std::fmt;

/// A PowerBudget that lacks watts for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LacksWatts<'a> {
    /// The name of the PowerBudget.
    pub budget: &'a str,
    /// What it lacks.
    pub watts: Watts,
}

const BEFORE: &str = "PowerBudget ";
const BETWEEN: &str = " lacks ";
const AFTER: &str = " W for the pod";

/// The longest name of an object, and the most watts that are believed: a gigawatt.
const NAME_MAX: usize = 253;
const WATTS_MAX: i32 = 1_000_000_000;

impl fmt::Display for LacksWatts<'_> {
    /// Whole watts, rounded up: kube-scheduler counts nodes with the same text together.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.watts.or_zero().to_bits().saturating_add(u32::MAX.into()) >> 32;
        write!(f, "joulie: {BEFORE}{}{BETWEEN}{whole}{AFTER}", self.budget)
    }
}

impl<'a> LacksWatts<'a> {
    /// The one of those that a text names which lacks least: less power is needed nowhere for the pod to fit.
    #[must_use]
    pub fn least_in(text: &'a str) -> Option<Self> {
        text.split(BEFORE).skip(1).filter_map(Self::begins).min_by_key(|lacks| lacks.watts)
    }

    fn begins(text: &'a str) -> Option<Self> {
        let (budget, rest) = text.split_once(BETWEEN)?;
        let (watts, _) = rest.split_once(AFTER)?;
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        let is_name = !budget.is_empty() && budget.len() <= NAME_MAX && budget.bytes().all(plain);
        let watts = watts.parse().ok().filter(|watts| is_name && (1..=WATTS_MAX).contains(watts))?;
        Some(Self { budget, watts: Watts::from_int(watts) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lacks(budget: &str, watts: i32) -> LacksWatts<'_> {
        LacksWatts { budget, watts: Watts::from_int(watts) }
    }

    #[test]
    fn what_the_extender_says_is_read_from_what_kube_scheduler_repeats() {
        let part = LacksWatts { budget: "rack-0", watts: Watts::from_bits((311 << 32) + 1) };
        assert_eq!(part.to_string(), "joulie: PowerBudget rack-0 lacks 312 W for the pod");
        let text = format!(
            "0/9 nodes are available: 3 {part}, 2 Insufficient cpu, 4 {}. preemption: 0/9 nodes are available",
            lacks("hall.b", 40)
        );
        assert_eq!(LacksWatts::least_in(&text), Some(lacks("hall.b", 40)));
    }

    #[test]
    fn what_somebody_else_wrote_is_not_believed() {
        let of =
            |budget: &str, watts: &str| format!("joulie: PowerBudget {budget} lacks {watts} W for the pod");
        for text in [
            String::new(),
            "0/3 nodes are available: 3 Insufficient cpu.".to_owned(),
            of("", "5"),
            of("Rack 0", "5"),
            of("rack-0", "0"),
            of("rack-0", "-5"),
            of("rack-0", "1e9"),
            of("rack-0", "1000000001"),
            of(&"a".repeat(254), "5"),
            "joulie: PowerBudget rack-0 lacks 5 W".to_owned(),
        ] {
            assert_eq!(LacksWatts::least_in(&text), None, "{text}");
        }
        assert_eq!(LacksWatts::least_in(&of("rack-0", "1000000000")), Some(lacks("rack-0", 1_000_000_000)));
    }
}
