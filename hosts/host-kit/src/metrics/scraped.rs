//! A line of a page of metrics that another program writes for Prometheus, in the classic text or in OpenMetrics.

use std::borrow::Cow;

/// More labels than a series has that anybody reads here.
const LABELS_MOST: usize = 64;

/// A series of a page, with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct ScrapedSeries<'p> {
    /// Its name.
    pub name: &'p str,
    /// Its value, which may be no finite number.
    pub value: f64,
    labels: Vec<(&'p str, Cow<'p, str>)>,
}

impl<'p> ScrapedSeries<'p> {
    /// Reads a line. A comment is no series, nor is what cannot be read.
    #[must_use]
    pub fn read(line: &'p str) -> Option<Self> {
        let end = line.find(['{', ' ', '\t'])?;
        let (name, rest) = line.split_at(end);
        if name.is_empty() || name.starts_with('#') {
            return None;
        }
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(rest) => labels(rest)?,
            None => (Vec::new(), rest),
        };
        // A time may come after the value.
        let value = rest.split_whitespace().next()?.parse().ok()?;
        Some(Self { name, value, labels })
    }

    /// The value of a label; one that is missing is empty, as for Prometheus.
    #[must_use]
    pub fn label(&self, name: &str) -> &str {
        self.labels.iter().find(|(label, _)| *label == name).map_or("", |(_, value)| value)
    }

    /// The value, if it can be that of a counter.
    #[must_use]
    pub fn count(&self) -> Option<f64> {
        (self.value.is_finite() && self.value >= 0.0).then_some(self.value)
    }
}

type Labels<'p> = Vec<(&'p str, Cow<'p, str>)>;

/// The labels up to the brace that ends them, and what comes after it.
fn labels(mut rest: &str) -> Option<(Labels<'_>, &str)> {
    let mut all = Vec::new();
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix('}') {
            return Some((all, after));
        }
        let (name, after) = rest.split_once('=')?;
        let (value, after) = quoted(after.trim_start().strip_prefix('"')?)?;
        if all.len() >= LABELS_MOST {
            return None;
        }
        all.push((name.trim(), value));
        let after = after.trim_start();
        rest = after.strip_prefix(',').or_else(|| after.starts_with('}').then_some(after))?;
    }
}

/// A text up to the quotation mark that ends it, without its escapes, and what comes after it.
fn quoted(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let end = text.find(['"', '\\'])?;
    if text[end..].starts_with('"') {
        return Some((Cow::Borrowed(&text[..end]), &text[end + 1..]));
    }
    let (mut value, mut chars) = (String::new(), text.char_indices());
    loop {
        match chars.next()? {
            (at, '"') => return Some((Cow::Owned(value), &text[at + 1..])),
            (_, '\\') => value.push(match chars.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            (_, other) => value.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_read_with_its_labels() {
        let line = r#"a_total{node="a",namespace="x\"y\\n",empty="",} 7.5 1700000000000"#;
        let series = ScrapedSeries::read(line).unwrap();
        assert_eq!((series.name, series.value, series.count()), ("a_total", 7.5, Some(7.5)));
        assert_eq!((series.label("node"), series.label("namespace")), ("a", "x\"y\\n"));
        assert_eq!((series.label("empty"), series.label("absent")), ("", ""));
        let plain = ScrapedSeries::read("up 1").unwrap();
        assert_eq!((plain.name, plain.value), ("up", 1.0));
        let spaced = ScrapedSeries::read(r#"a{ b = "c" , d="e" } 2e3"#).unwrap();
        assert_eq!((spaced.label("b"), spaced.label("d"), spaced.value), ("c", "e", 2_000.0));
    }

    #[test]
    fn what_is_no_number_is_no_count() {
        for value in ["NaN", "+Inf", "-1"] {
            let line = format!(r#"a{{b="c"}} {value}"#);
            assert_eq!(ScrapedSeries::read(&line).unwrap().count(), None, "{value}");
        }
    }

    #[test]
    fn nonsense_is_no_series() {
        for bad in [
            "",
            "# TYPE a counter",
            "# EOF",
            "a",
            "a{} ",
            r#"a{b="c"#,
            r#"a{b="c"}"#,
            r#"a{b=c} 1"#,
            r#"a{b="c"d="e"} 1"#,
            r#"a{b="c\"#,
            "a{b} 1",
            "a one",
            "{} 1",
        ] {
            assert_eq!(ScrapedSeries::read(bad), None, "{bad}");
        }
        let many: Vec<String> = (0..=LABELS_MOST).map(|at| format!("l{at}=\"v\"")).collect();
        assert_eq!(ScrapedSeries::read(&format!("a{{{}}} 1", many.join(","))), None);
    }
}
