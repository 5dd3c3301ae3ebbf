//! The form of the file. Every field has its name here; another one is refused.

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy};
use std::collections::BTreeMap;
use std::fmt;

/// More than any catalogue has; what is parsed is bounded before it is kept.
const NODES_MAX: usize = 100_000;
const DEPTH_MAX: usize = 16;
/// How much of the parser's words is told.
const WORDS_MAX: usize = 400;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Document {
    pub(crate) catalog_version: String,
    #[serde(default)]
    pub(crate) cpu_models: BTreeMap<String, CpuEntry>,
    #[serde(default)]
    pub(crate) gpu_models: BTreeMap<String, GpuEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct CpuEntry {
    #[serde(default)]
    pub(crate) aliases: Vec<String>,
    pub(crate) compute_density: Option<f64>,
    pub(crate) official: CpuFigures,
    #[serde(default)]
    measured_curves: Curves,
    #[serde(default, rename = "provenance")]
    _provenance: IgnoredAny,
    #[serde(default, rename = "proxyFrom")]
    _proxy_from: IgnoredAny,
    #[serde(default, rename = "performanceHints")]
    _performance_hints: IgnoredAny,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CpuFigures {
    #[serde(default, rename = "vendor")]
    _vendor: String,
    #[serde(rename = "baseGHz")]
    pub(crate) base: f64,
    #[serde(rename = "boostGHz")]
    pub(crate) boost: f64,
    #[serde(rename = "tdpW")]
    pub(crate) tdp: f64,
    #[serde(default, rename = "cTdpRangeW")]
    pub(crate) configurable: Option<Range>,
    #[serde(default, rename = "driverFamily")]
    _driver_family: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Curves {
    #[serde(rename = "node2S")]
    node: Option<Curve>,
}

#[derive(Debug, Deserialize)]
struct Curve {
    #[serde(default)]
    points: Vec<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct GpuEntry {
    #[serde(default)]
    pub(crate) aliases: Vec<String>,
    pub(crate) compute_density: Option<f64>,
    pub(crate) official: GpuFigures,
    #[serde(default, rename = "provenance")]
    _provenance: IgnoredAny,
    #[serde(default, rename = "performanceHints")]
    _performance_hints: IgnoredAny,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GpuFigures {
    #[serde(default, rename = "vendor")]
    _vendor: String,
    #[serde(rename = "maxBoardPowerW")]
    pub(crate) max: f64,
    #[serde(rename = "minBoardPowerW")]
    pub(crate) min: Option<f64>,
}

impl CpuEntry {
    /// The number of points of its curve, if it has one.
    pub(crate) fn points(&self) -> Option<usize> {
        self.measured_curves.node.as_ref().map(|curve| curve.points.len())
    }
}

/// Two figures: `[320, 400]`, `320-400`, or `{min: 320, max: 400}`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Range {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl<'de> Deserialize<'de> for Range {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Figures)
    }
}

struct Figures;

impl<'de> Visitor<'de> for Figures {
    type Value = Range;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("two figures, as [320, 400] or 320-400")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Range, E> {
        let pair = text.split_once(['-', '–']);
        let number = |text: &str| text.trim().parse::<f64>().ok();
        let range = pair.and_then(|(low, high)| Some(Range { low: number(low)?, high: number(high)? }));
        range.ok_or_else(|| E::custom("expected two figures, as [320, 400] or 320-400"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Range, A::Error> {
        let mut next = || items.next_element::<f64>();
        match (next()?, next()?, next()?) {
            (Some(low), Some(high), None) => Ok(Range { low, high }),
            _ => Err(A::Error::custom("expected two figures, as [320, 400]")),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Range, A::Error> {
        let (mut low, mut high) = (None, None);
        while let Some((name, figure)) = fields.next_entry::<String, f64>()? {
            match name.as_str() {
                "min" => low = Some(figure),
                "max" => high = Some(figure),
                _ => return Err(A::Error::custom("expected min and max")),
            }
        }
        match (low, high) {
            (Some(low), Some(high)) => Ok(Range { low, high }),
            _ => Err(A::Error::custom("expected min and max")),
        }
    }
}

impl Document {
    /// Reads the text, or says in which line it is wrong.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! {
                max_nodes: NODES_MAX,
                max_depth: DEPTH_MAX,
                // A catalogue has no use for them, and a text that grows while it is read has.
                max_aliases: 0,
                max_anchors: 0,
                max_documents: 1,
            },
            duplicate_keys: DuplicateKeyPolicy::Error,
            merge_keys: MergeKeyPolicy::Error,
            with_snippet: false,
        };
        serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let words: String =
                error.to_string().chars().filter(|it| !it.is_control()).take(WORDS_MAX).collect();
            match error.location() {
                Some(at) if !words.contains("line") => format!("line {}: {words}", at.line()),
                _ => words,
            }
        })
    }
}
