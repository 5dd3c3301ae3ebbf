//! How old the samples are of which the values of a query are made.
//!
//! The function `timestamp` says it of a plain selector. Of an expression a server says the time of the evaluation, so that
//! only a bound is known, by the text: the samples of an instant selector are no older than the server looks back, those of a range
//! selector are within its range, and each subquery and each `offset` adds its own time. A recording rule hides what is behind it:
//! its sample is of the rule's evaluation.

use std::time::Duration;

/// How far a server looks back for a sample unless it is told otherwise.
const LOOK_BACK: Duration = Duration::from_secs(300);
/// What is assumed where a time in the text cannot be read, and the most that is assumed of any.
const DAY: Duration = Duration::from_secs(86_400);
/// Units of time in a query, in milliseconds; `ms` comes before `m`.
const UNITS: [(&str, u64); 7] = [
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
    ("w", 604_800_000),
    ("y", 31_536_000_000),
];

/// What is known of the age of the samples behind the values of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleAges {
    /// It is a plain selector, of which the server says when each sample was taken.
    Told,
    /// They are so old at the most.
    Within(Duration),
}

impl SampleAges {
    /// By the text of a query.
    #[must_use]
    pub fn of(query: &str) -> Self {
        let bare = without_texts(query);
        if is_selector(bare.trim()) { Self::Told } else { Self::Within(bound(&bare).unwrap_or(DAY).min(DAY)) }
    }

    /// How old they are at the most where the server says no time.
    #[must_use]
    pub const fn most(self) -> Duration {
        match self {
            Self::Told => LOOK_BACK,
            Self::Within(age) => age,
        }
    }
}

/// The query without what stands in quotes, and without comments.
fn without_texts(query: &str) -> String {
    let mut bare = String::with_capacity(query.len());
    let mut letters = query.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' | '\'' | '`' => {
                while let Some(inner) = letters.next().filter(|inner| *inner != letter) {
                    if inner == '\\' && letter != '`' {
                        letters.next();
                    }
                }
            }
            '#' => {
                letters.by_ref().find(|end| *end == '\n');
                bare.push('\n');
            }
            other => bare.push(other),
        }
    }
    bare
}

/// Whether it is a name with matchers, or one of both.
fn is_selector(bare: &str) -> bool {
    let (name, rest) = head(bare, is_of_a_name);
    let is_name = !name.starts_with(|first: char| first.is_ascii_digit());
    match rest.trim_start().strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
        Some(matchers) => is_name && !matchers.contains(['{', '}']),
        None => is_name && !name.is_empty() && rest.is_empty(),
    }
}

const fn is_of_a_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | ':')
}

/// The first letters that belong to it, and what is behind them.
fn head(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|letter: char| !belongs(letter)).unwrap_or(text.len()))
}

/// How old the samples of an expression are at the most; `None` where a time in it cannot be read, or is fixed.
fn bound(bare: &str) -> Option<Duration> {
    if bare.contains('@') {
        return None;
    }
    let (mut most, mut beside) = (LOOK_BACK, Duration::ZERO);
    for brackets in bare.split('[').skip(1) {
        let (range, _) = brackets.split_once(']')?;
        match range.split_once(':') {
            Some((range, _)) => beside = beside.saturating_add(duration(range)?),
            None => most = most.max(duration(range)?),
        }
    }
    let mut rest = bare;
    while let Some(start) = rest.find(is_of_a_name) {
        let (_, from) = rest.split_at(start);
        let (word, after) = head(from, is_of_a_name);
        rest = after;
        if word.eq_ignore_ascii_case("offset") {
            // One into the future is taken for one into the past. A time with a point is one time, and one in parentheses is computed.
            let time = after.trim_start_matches(|letter: char| letter.is_whitespace() || letter == '-');
            let (time, _) = head(time, |letter| is_of_a_name(letter) || letter == '.');
            beside = beside.saturating_add(duration(time)?);
        }
    }
    Some(most.saturating_add(beside))
}

/// `1h30m`, or a number of seconds.
fn duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    if let Ok(seconds) = rest.parse() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let (count, unit) = rest.split_at(rest.find(|letter: char| !letter.is_ascii_digit())?);
        let (name, millis) = UNITS.iter().find(|(name, _)| unit.starts_with(name))?;
        let millis = count.parse::<u64>().ok()?.checked_mul(*millis)?;
        sum = sum.saturating_add(Duration::from_millis(millis));
        rest = unit.get(name.len()..)?;
    }
    (sum > Duration::ZERO).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_plain_selector_is_told_by_the_server() {
        for query in [
            "node_watts",
            " node:watts:sum5m\n",
            "w{}",
            r#"w{node="{node}"}"#,
            r#"w {node="a",part!~"b}.*[5m]"}"#,
            r#"{__name__="w", x='say \'}\' or "'}"#,
            "w{node=`\\`} # the plug [5m]",
        ] {
            assert_eq!(SampleAges::of(query), SampleAges::Told, "{query}");
        }
        assert_eq!(SampleAges::Told.most(), Duration::from_secs(300));
    }

    #[test]
    fn of_an_expression_a_bound_is_known_by_its_text() {
        for (query, seconds) in [
            // The server looks back five minutes.
            ("sum by (node) (w)", 300),
            ("a + b", 300),
            ("a{} + b{}", 300),
            ("-w", 300),
            ("w > 5", 300),
            ("5", 300),
            (r#"label_replace(w, "a", "[9h]", "", "")"#, 300),
            ("rate(w_joules[1m])", 300),
            ("rate(w_joules[10m])", 600),
            ("sum(rate(a[10m])) + sum(rate(b[1h30m]))", 5_400),
            ("rate(w[360000ms])", 360),
            ("rate(w[400])", 400),
            // A subquery asks so far back, and what it asks looks back too.
            ("max_over_time(w[10m:1m])", 900),
            ("max_over_time(rate(w[20m])[10m:])", 1_800),
            ("w offset 1h", 3_900),
            ("rate(w[10m] OFFSET -1m)", 660),
            ("w offset 3600.0", 3_900),
            ("w_offset + w", 300),
            // What cannot be read, or has a fixed time, may be of any time.
            ("w @ 1600000000", 86_400),
            ("rate(w[$range])", 86_400),
            ("rate(w[5m)", 86_400),
            ("rate(w[])", 86_400),
            ("rate(w[NaN])", 86_400),
            ("rate(w[99999999999999999999d])", 86_400),
            ("rate(w[9y])", 86_400),
            ("w offset", 86_400),
            ("w offset 1.5h", 86_400),
            ("w offset (1h * 2)", 86_400),
            ("w offset(1h)", 86_400),
            ("", 300),
            ("\"", 300),
        ] {
            assert_eq!(SampleAges::of(query), SampleAges::Within(Duration::from_secs(seconds)), "{query}");
        }
    }
}
