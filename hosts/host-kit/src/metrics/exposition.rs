//! How the metrics are written for a scraper: the format by its `Accept`, packed by its `Accept-Encoding`.
//!
//! The library writes OpenMetrics. Here the units are added to it, and the classic text is made of it, which has no exemplars. The
//! time at which each counter began is written for a scraper that asks for it: each would be a series of its own in most Prometheus
//! servers.

use super::created::end_of_labels;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use http_body_util::Full;
use hyper::body::Bytes;
use std::io::Write;

/// Smaller pages do not become smaller by packing.
const PACKED_BYTES_MIN: usize = 1024;
/// Larger pages are sent as they are: packing this much takes a tenth of a second of a processor.
const PACKED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The units that are the end of a name.
const UNITS: [&str; 5] = ["seconds", "bytes", "joules", "watts", "grams"];

/// A format of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextFormat {
    /// The text format 0.0.4 of Prometheus, which every scraper reads.
    Classic,
    /// OpenMetrics 1.0.0, for a scraper that names it.
    OpenMetrics,
}

impl TextFormat {
    /// The one that a scraper prefers. One that does not name OpenMetrics gets the classic text.
    pub(super) fn preferred(headers: &HeaderMap) -> Self {
        let ranges = preferences(headers, header::ACCEPT);
        let best = |is: &dyn Fn(&Preference<'_>) -> bool| {
            ranges.iter().filter(|range| is(range)).map(|range| range.quality).fold(0.0, f32::max)
        };
        let open = best(&|range| {
            range.name.eq_ignore_ascii_case("application/openmetrics-text")
                && range.version.is_none_or(|version| version == "1.0.0")
        });
        let classic = best(&|range| range.name.eq_ignore_ascii_case("text/plain"));
        if open > 0.0 && open >= classic { Self::OpenMetrics } else { Self::Classic }
    }

    const fn content_type(self) -> &'static str {
        match self {
            Self::Classic => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The page in this format, from the text of the library.
    pub(super) fn written(self, text: &str) -> String {
        match self {
            Self::Classic => classic(text),
            Self::OpenMetrics => with_units(text),
        }
    }
}

/// The answer for a scraper with these headers; `began` adds to OpenMetrics when counters began, where that is asked for.
pub(super) fn answer(
    headers: &HeaderMap,
    text: &str,
    began: impl FnOnce(String) -> String,
) -> Response<Full<Bytes>> {
    let format = TextFormat::preferred(headers);
    let page = match format {
        TextFormat::OpenMetrics => began(format.written(text)),
        TextFormat::Classic => format.written(text),
    };
    let packed = if takes_gzip(headers) { packed(page.as_bytes()) } else { None };
    let is_packed = packed.is_some();
    let mut response = Response::new(Full::from(packed.unwrap_or_else(|| page.into_bytes())));
    let head = response.headers_mut();
    head.insert(header::CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
    head.insert(header::VARY, HeaderValue::from_static("accept, accept-encoding"));
    if is_packed {
        head.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

/// One of the values that a client accepts.
struct Preference<'h> {
    name: &'h str,
    version: Option<&'h str>,
    /// From 0, which refuses it, to 1.
    quality: f32,
}

/// What a header accepts. A quality that cannot be read counts as a refusal.
fn preferences(headers: &HeaderMap, name: HeaderName) -> Vec<Preference<'_>> {
    let lines = headers.get_all(name).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(preference).collect()
}

fn preference(text: &str) -> Preference<'_> {
    let mut parts = text.split(';').map(str::trim);
    let mut found = Preference { name: parts.next().unwrap_or_default(), version: None, quality: 1.0 };
    for (key, value) in parts.filter_map(|part| part.split_once('=')) {
        if key.eq_ignore_ascii_case("q") {
            let quality = value.parse().ok().filter(|quality| (0.0..=1.0).contains(quality));
            found.quality = quality.unwrap_or(0.0);
        } else if key.eq_ignore_ascii_case("version") {
            found.version = Some(value.trim_matches('"'));
        }
    }
    found
}

/// Whether a client takes gzip: it says so, or takes whatever there is.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let codings = preferences(headers, header::ACCEPT_ENCODING);
    let of = |name: &str| codings.iter().find(|coding| coding.name.eq_ignore_ascii_case(name));
    of("gzip").or_else(|| of("*")).is_some_and(|coding| coding.quality > 0.0)
}

/// The packed page; `None` if it is sent as it is.
fn packed(page: &[u8]) -> Option<Vec<u8>> {
    if !(PACKED_BYTES_MIN..=PACKED_BYTES_MAX).contains(&page.len()) {
        return None;
    }
    let mut packer = GzEncoder::new(Vec::with_capacity(page.len() / 8), Compression::fast());
    packer.write_all(page).ok()?;
    packer.finish().ok()
}

/// OpenMetrics with a line for the unit of each metric whose name ends with one.
fn with_units(text: &str) -> String {
    let mut page = String::with_capacity(text.len() + text.len() / 16);
    for line in text.lines() {
        page.push_str(line);
        page.push('\n');
        let described = line.strip_prefix("# TYPE ").and_then(|about| about.split_once(' '));
        if let Some((name, unit)) = described.and_then(|(name, _)| Some((name, unit_of(name)?))) {
            page.push_str(&format!("# UNIT {name} {unit}\n"));
        }
    }
    page
}

fn unit_of(name: &str) -> Option<&'static str> {
    let (_, last) = name.rsplit_once('_')?;
    UNITS.into_iter().find(|unit| *unit == last)
}

/// A sample without its exemplar.
fn plain(line: &str) -> &str {
    let labels = line.find('{').filter(|at| line.find(' ').is_none_or(|space| *at < space));
    let begin = labels.map_or(Some(0), |at| Some(at + end_of_labels(line.get(at..)?)?));
    let rest = begin.and_then(|begin| Some(begin + line.get(begin..)?.find(" # ")?));
    rest.and_then(|end| line.get(..end)).unwrap_or(line)
}

/// The classic text: a family is named as its series are, and there is no information, no exemplar and no end.
fn classic(text: &str) -> String {
    let mut page = String::with_capacity(text.len());
    let mut help = None;
    for line in text.lines() {
        if let Some(about) = line.strip_prefix("# HELP ") {
            help = about.split_once(' ').map(|(_, help)| help);
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|about| about.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                other => ("", other),
            };
            if let Some(help) = help.take() {
                page.push_str(&format!("# HELP {name}{suffix} {help}\n"));
            }
            page.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
        } else if !line.starts_with("# ") {
            page.push_str(plain(line));
            page.push('\n');
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use http_body_util::BodyExt;
    use std::io::Read;

    const TEXT: &str = "# HELP joulie_build What runs here.\n# TYPE joulie_build info\njoulie_build_info{version=\"1\"} 1\n\
        # HELP joulie_energy_joules Energy.\n# TYPE joulie_energy_joules counter\njoulie_energy_joules_total{node=\"a\"} 12.5\n\
        # HELP joulie_leader Leads.\n# TYPE joulie_leader gauge\njoulie_leader 1\n\
        # HELP joulie_pass_seconds How long.\n# TYPE joulie_pass_seconds histogram\njoulie_pass_seconds_sum 0.5\n\
        joulie_pass_seconds_count 2\njoulie_pass_seconds_bucket{le=\"+Inf\"} 2\n# EOF\n";

    fn headers(name: HeaderName, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(value).unwrap());
        headers
    }

    #[test]
    fn who_names_openmetrics_gets_it_and_everybody_else_the_classic_text() {
        let open = "application/openmetrics-text";
        for (accept, expected) in [
            // What Prometheus 2.42 and 3 send.
            (
                format!(
                    "{open};version=1.0.0,{open};version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
                ),
                TextFormat::OpenMetrics,
            ),
            (
                format!(
                    "{open};version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=1.0.0;q=0.5,*/*;q=0.2"
                ),
                TextFormat::OpenMetrics,
            ),
            (open.to_uppercase(), TextFormat::OpenMetrics),
            (format!("text/plain, {open}"), TextFormat::OpenMetrics),
            // A version that we do not write, a preference for the other one, a refusal, and what is no number.
            (format!("{open};version=0.0.1"), TextFormat::Classic),
            (format!("{open};q=0.5, text/plain"), TextFormat::Classic),
            (format!("{open};q=0"), TextFormat::Classic),
            (format!("{open};q=NaN"), TextFormat::Classic),
            (format!("{open};q=-1"), TextFormat::Classic),
            (format!("{open};q=2"), TextFormat::Classic),
            ("*/*".to_owned(), TextFormat::Classic),
            ("text/html,,;;q=".to_owned(), TextFormat::Classic),
        ] {
            assert_eq!(TextFormat::preferred(&headers(header::ACCEPT, &accept)), expected, "{accept}");
        }
        assert_eq!(TextFormat::preferred(&HeaderMap::new()), TextFormat::Classic);
    }

    #[test]
    fn gzip_is_for_who_takes_it() {
        for (accepts, expected) in [
            ("gzip", true),
            ("deflate, GZIP;q=0.5", true),
            ("*", true),
            ("gzip;q=0, *", false),
            ("gzip;q=x", false),
            ("identity", false),
            ("", false),
        ] {
            assert_eq!(takes_gzip(&headers(header::ACCEPT_ENCODING, accepts)), expected, "{accepts}");
        }
        assert!(!takes_gzip(&HeaderMap::new()));
    }

    #[test]
    fn a_page_is_packed_within_bounds() {
        assert_eq!(packed(&vec![b'a'; PACKED_BYTES_MIN - 1]), None);
        assert_eq!(packed(&vec![b'a'; PACKED_BYTES_MAX + 1]), None);
        let page: Vec<u8> = (0..=u8::MAX).cycle().take(100_000).collect();
        let mut unpacked = Vec::new();
        GzDecoder::new(packed(&page).unwrap().as_slice()).read_to_end(&mut unpacked).unwrap();
        assert!(unpacked == page);
    }

    #[test]
    fn openmetrics_names_the_units() {
        let page = with_units(TEXT);
        let units: Vec<&str> = page.lines().filter(|line| line.starts_with("# UNIT ")).collect();
        assert_eq!(units, ["# UNIT joulie_energy_joules joules", "# UNIT joulie_pass_seconds seconds"]);
        assert!(page.ends_with("# EOF\n"));
    }

    #[test]
    fn the_classic_text_names_a_family_as_its_series() {
        let expected = "# HELP joulie_build_info What runs here.\n# TYPE joulie_build_info gauge\njoulie_build_info{version=\"1\"} 1\n\
            # HELP joulie_energy_joules_total Energy.\n# TYPE joulie_energy_joules_total counter\n\
            joulie_energy_joules_total{node=\"a\"} 12.5\n\
            # HELP joulie_leader Leads.\n# TYPE joulie_leader gauge\njoulie_leader 1\n\
            # HELP joulie_pass_seconds How long.\n# TYPE joulie_pass_seconds histogram\njoulie_pass_seconds_sum 0.5\n\
            joulie_pass_seconds_count 2\njoulie_pass_seconds_bucket{le=\"+Inf\"} 2\n";
        assert_eq!(classic(TEXT), expected);
    }

    #[tokio::test]
    async fn the_answer_says_what_it_is() {
        let mut asked = headers(header::ACCEPT_ENCODING, "gzip");
        let long = TEXT.repeat(10);
        let answered = answer(&asked, &long, |page| page);
        assert_eq!(answered.headers()[header::CONTENT_ENCODING], "gzip");
        assert_eq!(answered.headers()[header::CONTENT_TYPE], "text/plain; version=0.0.4; charset=utf-8");
        asked.remove(header::ACCEPT_ENCODING);
        asked.insert(header::ACCEPT, HeaderValue::from_static("application/openmetrics-text"));
        let answered = answer(&asked, &long, |page| page);
        assert!(!answered.headers().contains_key(header::CONTENT_ENCODING));
        assert!(answered.headers()[header::CONTENT_TYPE].to_str().unwrap().contains("openmetrics"));
        let body = answered.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, with_units(&long).into_bytes());
        let answered = answer(&asked, &long, |_| "with times".to_owned());
        assert_eq!(answered.into_body().collect().await.unwrap().to_bytes(), "with times");
        // The classic text has no such times.
        let answered = answer(&HeaderMap::new(), &long, |_| "with times".to_owned());
        assert_eq!(answered.into_body().collect().await.unwrap().to_bytes(), classic(&long).into_bytes());
    }

    #[test]
    fn the_classic_text_has_no_exemplars() {
        for (line, expected) in [
            (r#"n_total{a="1"} 3 # {decision="1.2"} 1.0"#, r#"n_total{a="1"} 3"#),
            (r#"n_total 3 # {decision="1.2"} 1.0 17.5"#, "n_total 3"),
            (r#"n_total{a="x # {y}"} 3"#, r#"n_total{a="x # {y}"} 3"#),
            (r#"n_total{a="x # {\"}y"} 3 # {b="c"} 1"#, r#"n_total{a="x # {\"}y"} 3"#),
            ("n_total 3", "n_total 3"),
            (r#"n_total{a="1 3"#, r#"n_total{a="1 3"#),
        ] {
            assert_eq!(plain(line), expected);
        }
    }
}
