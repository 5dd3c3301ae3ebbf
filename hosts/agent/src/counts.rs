//! Counts that come from outside: packages, GPUs and processors, from telemetry, labels and resources. Memory is
//! allocated for each counted item, so every count has a bound (`planner::inventory`). A count above its bound is
//! treated as unknown. It is never clamped to the bound, because the clamped count would be trusted.

use joulie_api::quantity::Quantity;
use serde_json::Value;
use std::ops::RangeInclusive;

/// The refused counts, in words for a person. Each place where a count can appear adds at most one, so the list is
/// bounded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refused(Vec<String>);

/// How many characters of a refused value are shown.
const SHOWN: usize = 40;

impl Refused {
    pub(crate) fn words(&self) -> &[String] {
        &self.0
    }

    pub(crate) fn count(&self) -> u64 {
        u64::try_from(self.0.len()).unwrap_or(u64::MAX)
    }

    fn note(&mut self, (what, said): (&str, &str), within: &RangeInclusive<u32>) {
        let (least, most) = (within.start(), within.end());
        let said: String = said.chars().take(SHOWN).collect();
        self.0.push(format!("{what} says {said}, and {least} to {most} can be; it counts as unknown"));
    }

    fn bounded(
        &mut self,
        what: (&str, &str),
        count: Option<u64>,
        within: &RangeInclusive<u32>,
    ) -> Option<u32> {
        let count = count.and_then(|count| u32::try_from(count).ok()).filter(|count| within.contains(count));
        if count.is_none() {
            self.note(what, within);
        }
        count
    }

    /// Reads a member of a JSON object: a whole number, which may be written as a float.
    pub(crate) fn number(&mut self, what: &str, said: &Value, within: &RangeInclusive<u32>) -> Option<u32> {
        if said.is_null() {
            return None;
        }
        let whole = |number: f64| Some(number).filter(|number| number.fract() == 0.0 && number.abs() < 1e9);
        let of_float =
            || said.as_f64().and_then(whole).and_then(|number| format!("{number:.0}").parse().ok());
        let count = said.as_u64().or_else(of_float);
        self.bounded((what, &said.to_string()), count, within)
    }

    /// Reads the text of a label.
    pub(crate) fn text(
        &mut self,
        what: &str,
        said: Option<&str>,
        within: &RangeInclusive<u32>,
    ) -> Option<u32> {
        let said = said.map(str::trim).filter(|said| !said.is_empty())?;
        self.bounded((what, said), said.parse().ok(), within)
    }

    /// Reads a quantity of a resource.
    pub(crate) fn quantity(&mut self, what: &str, said: &Value, within: &RangeInclusive<u32>) -> Option<u32> {
        let said = said.as_str()?;
        let count = Quantity::parse(said).ok().and_then(|quantity| u64::try_from(quantity.value()).ok());
        self.bounded((what, said), count, within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const WITHIN: RangeInclusive<u32> = 0..=64;
    const ABSURD: [&str; 8] =
        ["4000000000", "9223372036854775808", "18446744073709551616", "-1", "1e300", "65", "NaN", "2.5.1"];

    #[test]
    fn an_absurd_count_is_unknown_and_told_wherever_it_is_said() {
        for said in ABSURD {
            let mut refused = Refused::default();
            assert_eq!(refused.text("label", Some(said), &WITHIN), None, "{said}");
            assert_eq!(refused.quantity("resource", &json!(said), &WITHIN), None, "{said}");
            let number = serde_json::from_str(said).unwrap_or_else(|_| json!(said));
            assert_eq!(refused.number("telemetry", &number, &WITHIN), None, "{said}");
            assert_eq!(refused.count(), 3, "{said}: {refused:?}");
        }
        let mut refused = Refused::default();
        let long = "9".repeat(100_000);
        assert_eq!(refused.text("label", Some(&long), &WITHIN), None);
        assert!(refused.words()[0].len() < 120);
    }

    #[test]
    fn a_count_that_can_be_is_taken_in_each_form_and_nothing_is_no_refusal() {
        let mut refused = Refused::default();
        for (number, count) in
            [(json!(8), Some(8)), (json!(8.0), Some(8)), (json!(0), Some(0)), (json!(null), None)]
        {
            assert_eq!(refused.number("telemetry", &number, &WITHIN), count, "{number}");
        }
        assert_eq!(refused.text("label", Some(" 64 "), &WITHIN), Some(64));
        assert_eq!(refused.text("label", Some(" "), &WITHIN), None);
        assert_eq!(refused.text("label", None, &WITHIN), None);
        assert_eq!(refused.quantity("resource", &json!("8"), &WITHIN), Some(8));
        assert_eq!(refused.quantity("resource", &json!("7900m"), &WITHIN), Some(8), "as Kubernetes rounds");
        assert_eq!(refused, Refused::default());
    }
}
