//! Property: of any page of metrics a series is a part of its line, and what Kepler says in the page is the same whatever else is
//! there and in whichever order.

use agent::kepler_sums;
use host_kit::metrics::ScrapedSeries;

/// No counter of a page is larger than this, in microjoules.
const MICRO_MOST: u64 = 1_000_000_000_000_000_000;

pub(crate) fn run(bytes: &[u8]) {
    let sums = kepler_sums(bytes);
    let Ok(text) = std::str::from_utf8(bytes) else {
        assert_eq!(sums, None);
        return;
    };
    let mut lines: Vec<&str> = text.lines().collect();
    for line in &lines {
        if let Some(series) = ScrapedSeries::read(line) {
            assert!(line.starts_with(series.name) && !series.name.is_empty());
            assert!(series.label("zone").len() <= line.len());
            assert!(series.count().is_none_or(|count| count.is_finite() && count >= 0.0));
        }
    }
    let Some((node, _)) = sums else { return };
    let most = u64::try_from(lines.len()).unwrap_or(u64::MAX).saturating_mul(MICRO_MOST);
    assert!(node <= most);
    let names_a_node = text.contains("node_name") || text.contains("instance");
    if !names_a_node {
        lines.reverse();
        let reversed = kepler_sums(lines.join("\n").as_bytes());
        assert_eq!(reversed, sums);
    }
    let more = format!("up 1\n# a comment\n{text}\nkepler_build_info{{version=\"1\"}} 1\n");
    assert_eq!(kepler_sums(more.as_bytes()), sums);
}
