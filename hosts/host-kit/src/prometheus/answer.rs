//! What a server answers. Everything in it comes from outside, so that all of it is bounded.

use crate::http_client::NoAnswer;
use http::StatusCode;
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;
use std::time::Duration;

/// The most series of one answer: as many as pods in the largest cluster, twice over.
pub const SERIES_MAX: usize = 100_000;
/// The longest message of a server that is repeated.
const WORDS_MAX: usize = 300;

/// The series of an answer, each once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// In the server's order. A scalar is one series without labels.
    pub series: Vec<Series>,
}

/// One series.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Two or three of them: a list of all takes half the memory of a map.
    labels: Labels,
    at: Timestamp,
    value: Option<Box<str>>,
}

/// Why a query has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueryError {
    /// The query could not be sent.
    Unsent(String),
    /// There was no answer.
    NoAnswer(NoAnswer),
    /// The server refuses the query.
    Refused(String),
    /// It says that its answer is not whole.
    Partial(String),
    /// The answer is none of Prometheus'.
    Malformed(String),
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsent(why) => write!(f, "the query cannot be sent: {why}"),
            Self::NoAnswer(why) => why.fmt(f),
            Self::Refused(why) => write!(f, "the server refuses the query: {why}"),
            Self::Partial(why) => write!(f, "the server answers only in part: {why}"),
            Self::Malformed(why) => write!(f, "its answer is none of Prometheus': {why}"),
        }
    }
}

impl std::error::Error for QueryError {}

impl Series {
    /// The value of a label.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.get(name).filter(|value| !value.is_empty())
    }

    /// The time for which it was evaluated.
    #[must_use]
    pub const fn at(&self) -> Timestamp {
        self.at
    }

    /// Its number as text; `None` for `NaN`, an infinity or a histogram.
    #[must_use]
    pub fn number(&self) -> Option<&str> {
        self.value.as_deref()
    }

    /// How old a sample is whose time is this value, as the function `timestamp` says it; `None` if it is none. A sample from the
    /// future is of now.
    #[must_use]
    pub fn age(&self) -> Option<Duration> {
        let sampled = Duration::try_from_secs_f64(self.number()?.parse().ok()?).ok()?;
        let now = Duration::try_from(self.at.duration_since(Timestamp::UNIX_EPOCH)).ok()?;
        Some(now.saturating_sub(sampled))
    }
}

#[derive(Deserialize)]
struct Body<'a> {
    status: &'a str,
    #[serde(borrow)]
    data: Option<Data<'a>>,
    #[serde(rename = "errorType")]
    error_type: Option<String>,
    error: Option<String>,
    warnings: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data<'a> {
    result_type: &'a str,
    #[serde(borrow)]
    result: &'a RawValue,
}

impl Answer {
    /// Reads the body of an answer.
    ///
    /// # Errors
    /// If it is an error, or not whole, or not an answer.
    pub fn read(body: &[u8], status: StatusCode) -> Result<Self, QueryError> {
        let malformed = |why: String| QueryError::Malformed(short(&why));
        let text = std::str::from_utf8(body).map_err(|error| malformed(error.to_string()))?;
        let body: Body<'_> = match serde_json::from_str(text) {
            Ok(body) => body,
            Err(_) if !status.is_success() => {
                return Err(QueryError::NoAnswer(NoAnswer::Refused(status)));
            }
            Err(error) => return Err(malformed(error.to_string())),
        };
        if body.status != "success" {
            let kind = body.error_type.unwrap_or_default();
            let why = body.error.unwrap_or_else(|| format!("it answers {status}"));
            return Err(QueryError::Refused(short(format!("{kind} {why}").trim())));
        }
        if let Some(why) = body.warnings.unwrap_or_default().first() {
            return Err(QueryError::Partial(short(why)));
        }
        let Data { result_type, result } = body.data.ok_or_else(|| malformed("it has no data".to_owned()))?;
        let mut result = serde_json::Deserializer::from_str(result.get());
        let series = match result_type {
            "vector" => All.deserialize(&mut result),
            "scalar" => Sample::deserialize(&mut result)
                .map(|Sample { at, value }| vec![Series { labels: Labels::default(), at, value }]),
            other => {
                return Err(malformed(format!("a result of type {other:?} has no value of this moment")));
            }
        };
        series.map(|series| Self { series }).map_err(|error| malformed(error.to_string()))
    }
}

fn short(why: &str) -> String {
    let plain: String = why.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    let end = plain.char_indices().nth(WORDS_MAX).map_or(plain.len(), |(at, _)| at);
    plain.get(..end).unwrap_or_default().to_owned()
}

/// The series of a vector, up to [`SERIES_MAX`].
struct All;

impl<'de> DeserializeSeed<'de> for All {
    type Value = Vec<Series>;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for All {
    type Value = Vec<Series>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("series")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        while let Some(series) = sequence.next_element()? {
            if all.len() >= SERIES_MAX {
                return Err(A::Error::custom(format_args!("it has more than {SERIES_MAX} series")));
            }
            all.push(series);
        }
        Ok(all)
    }
}

impl<'de> Deserialize<'de> for Series {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OneSeries)
    }
}

/// Names and values.
#[derive(Clone, Debug, Default, PartialEq)]
struct Labels(Box<[(Box<str>, Box<str>)]>);

impl Labels {
    /// The value of a name; of a name that is there twice, the last one.
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(one, _)| **one == *name).map(|(_, value)| &**value)
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(AllLabels)
    }
}

struct AllLabels;

impl<'de> Visitor<'de> for AllLabels {
    type Value = Labels;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("labels")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Labels, A::Error> {
        let mut all = Vec::new();
        while let Some(label) = map.next_entry()? {
            all.push(label);
        }
        Ok(Labels(all.into()))
    }
}

struct OneSeries;

impl<'de> Visitor<'de> for OneSeries {
    type Value = Series;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a series")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Series, A::Error> {
        let (mut labels, mut sample) = (None, None);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "metric" => labels = Some(map.next_value()?),
                "value" => sample = Some(map.next_value::<Sample>()?),
                // A histogram has no one number.
                "histogram" => {
                    let Histogram(at) = map.next_value()?;
                    sample.get_or_insert(Sample { at, value: None });
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        let Sample { at, value } = sample.ok_or_else(|| A::Error::missing_field("value"))?;
        Ok(Series { labels: labels.ok_or_else(|| A::Error::missing_field("metric"))?, at, value })
    }
}

/// `[1700000000.123, "42"]`
struct Sample {
    at: Timestamp,
    value: Option<Box<str>>,
}

impl<'de> Deserialize<'de> for Sample {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (at, value) = <(serde_json::Number, Box<str>)>::deserialize(deserializer)?;
        let at = time(&at).ok_or_else(|| D::Error::custom("a time that is none"))?;
        let is_number = !value.is_empty()
            && value
                .bytes()
                .all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'+' | b'e' | b'E'));
        if !is_number && !matches!(&*value, "NaN" | "+Inf" | "-Inf" | "Inf") {
            return Err(D::Error::custom(format_args!("{:?} is no number", short(&value))));
        }
        Ok(Self { at, value: is_number.then_some(value) })
    }
}

struct Histogram(Timestamp);

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (at, _) = <(serde_json::Number, IgnoredAny)>::deserialize(deserializer)?;
        time(&at).map(Self).ok_or_else(|| D::Error::custom("a time that is none"))
    }
}

/// Seconds since 1970, with a fraction.
fn time(seconds: &serde_json::Number) -> Option<Timestamp> {
    let text = seconds.to_string();
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let millis: String = part.chars().chain("000".chars()).take(3).collect();
    let at = whole.parse::<i64>().ok()?.checked_mul(1000)?.checked_add(millis.parse().ok()?)?;
    Timestamp::from_millisecond(at).ok()
}

#[cfg(test)]
mod tests;
