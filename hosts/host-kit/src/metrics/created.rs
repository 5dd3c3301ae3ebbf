//! When the series of counters and histograms began, for a scraper that asks for it: `/metrics?created=1`.
//!
//! The library does not know it. A series that is there now and was not there when this was last asked for began after that; one
//! that is there at the first question counts from the start of the process; and one whose value fell has begun anew since
//! the last question. So the time that is told is never too late, and nothing is counted before it.

use std::collections::BTreeMap;

/// What asks for these times.
const ASKED: &str = "created=1";

/// Whether the query of a request asks for the times.
pub(super) fn is_asked(query: &str) -> bool {
    query.split('&').any(|part| part == ASKED)
}

/// When each series began, in seconds since 1970.
#[derive(Debug, Default)]
pub(super) struct Beginnings {
    /// When this was last asked for.
    asked: Option<f64>,
    series: BTreeMap<String, Beginning>,
}

/// When a series began, and its last value.
#[derive(Clone, Copy, Debug)]
struct Beginning {
    at: f64,
    value: f64,
}

impl Beginnings {
    /// The page with the times, which come after what they are of; without the start of the process it stays as it is.
    pub(super) fn shown(&mut self, page: &str, now: f64) -> String {
        let Some(started) = self.asked.or_else(|| start_of_process(page)) else { return page.to_owned() };
        let before = std::mem::take(&mut self.series);
        let mut shown = String::with_capacity(page.len() + page.len() / 4);
        let mut family = None;
        for line in page.lines() {
            shown.push_str(line);
            shown.push('\n');
            if let Some(about) = line.strip_prefix("# TYPE ") {
                family = about.split_once(' ').and_then(|(name, kind)| Some((name, counted_by(kind)?)));
            }
            let Some((name, suffix)) = family else { continue };
            let Some((labels, value)) =
                line.strip_prefix(name).and_then(|rest| parts(rest.strip_prefix(suffix)?))
            else {
                continue;
            };
            let key = format!("{name}{labels}");
            let known = before.get(&key).filter(|known| value >= known.value);
            let at = known.map_or(started, |known| known.at);
            shown.push_str(&format!("{name}_created{labels} {at:.3}\n"));
            self.series.insert(key, Beginning { at, value });
        }
        self.asked = Some(now);
        shown
    }
}

/// The suffix of the sample that counts, of the families that have a beginning.
fn counted_by(kind: &str) -> Option<&'static str> {
    match kind {
        "counter" => Some("_total"),
        "histogram" => Some("_count"),
        _ => None,
    }
}

fn start_of_process(page: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix("process_start_time_seconds ")?.parse().ok())
}

/// The labels of a sample, with their braces, and its value.
fn parts(rest: &str) -> Option<(&str, f64)> {
    let end = if rest.starts_with('{') { end_of_labels(rest)? } else { 0 };
    let (labels, rest) = rest.split_at_checked(end)?;
    let value = rest.strip_prefix(' ')?.split(' ').next()?.parse().ok()?;
    Some((labels, value))
}

/// The place after the brace that ends the labels: what is quoted may have braces too.
pub(super) fn end_of_labels(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '}' if !quoted => return Some(at + 1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(lines: &[&str]) -> String {
        let begin = "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 1000.5\n";
        format!("{begin}{}\n# EOF\n", lines.join("\n"))
    }

    fn created(shown: &str) -> Vec<&str> {
        shown.lines().filter(|line| line.contains("_created")).collect()
    }

    #[test]
    fn counters_and_histograms_begin_with_the_process() {
        let text = page(&[
            "# TYPE joulie_leader gauge",
            "joulie_leader 1",
            "# TYPE joulie_writes counter",
            r#"joulie_writes_total{to="a}\"b"} 3 # {decision="1.2"} 1.0"#,
            "joulie_writes_total{to=\"c\"} 0",
            "# TYPE joulie_pass_seconds histogram",
            "joulie_pass_seconds_sum 0.5",
            "joulie_pass_seconds_count 2",
            "joulie_pass_seconds_bucket{le=\"+Inf\"} 2",
        ]);
        let shown = Beginnings::default().shown(&text, 2000.0);
        let expected = [
            r#"joulie_writes_created{to="a}\"b"} 1000.500"#,
            "joulie_writes_created{to=\"c\"} 1000.500",
            "joulie_pass_seconds_created 1000.500",
        ];
        assert_eq!(created(&shown), expected);
        let at = |part: &str| shown.lines().position(|line| line.starts_with(part)).unwrap();
        assert_eq!(at("joulie_writes_created"), at("joulie_writes_total") + 1, "beside what it is of");
        assert!(shown.ends_with("# EOF\n"));
        let rest: Vec<&str> = shown.lines().filter(|line| !line.contains("_created")).collect();
        assert_eq!(rest, text.lines().collect::<Vec<_>>(), "nothing else is changed");
    }

    #[test]
    fn what_comes_later_or_falls_began_after_the_last_question() {
        let of = |series: &[&str]| page(&[&["# TYPE n counter"], series].concat());
        let mut beginnings = Beginnings::default();
        beginnings.shown(&of(&["n_total{a=\"1\"} 5"]), 2000.0);
        let shown = beginnings.shown(&of(&["n_total{a=\"1\"} 5", "n_total{a=\"2\"} 7"]), 3000.0);
        assert_eq!(created(&shown), ["n_created{a=\"1\"} 1000.500", "n_created{a=\"2\"} 2000.000"]);
        // The first is gone and comes back; the second began anew.
        beginnings.shown(&of(&["n_total{a=\"2\"} 7"]), 4000.0);
        let shown = beginnings.shown(&of(&["n_total{a=\"1\"} 9", "n_total{a=\"2\"} 6"]), 5000.0);
        assert_eq!(created(&shown), ["n_created{a=\"1\"} 4000.000", "n_created{a=\"2\"} 4000.000"]);
    }

    #[test]
    fn without_a_start_nothing_is_told_and_nonsense_is_no_sample() {
        let text = "# TYPE n counter\nn_total 5\n# EOF\n";
        assert_eq!(Beginnings::default().shown(text, 1.0), text);
        for bad in ["n_total", "n_total{a=\"1\" 5", "n_total{a=\"1\"}5", "n_total many", "n_totals 5"] {
            let shown = Beginnings::default().shown(&page(&["# TYPE n counter", bad]), 1.0);
            assert_eq!(created(&shown), [""; 0], "{bad}");
        }
    }

    #[test]
    fn it_is_asked_for_by_one_word() {
        for (query, expected) in [
            ("created=1", true),
            ("a=b&created=1", true),
            ("", false),
            ("created=0", false),
            ("xcreated=1", false),
            ("created=11", false),
        ] {
            assert_eq!(is_asked(query), expected, "{query}");
        }
    }
}
