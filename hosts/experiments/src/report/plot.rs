//! Plots, as SVG that loads nothing.

use super::Row;
use super::summary::Spread;
use std::fmt::Write;

const COLOURS: [&str; 6] = ["#1b6ca8", "#c8553d", "#3a7d44", "#7d4e9f", "#b8860b", "#555"];

/// Text as it may stand in the page.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Bars of means, each with a line from the least to the most of all seeds.
pub(super) fn bars(title: &str, items: &[(String, Spread)]) -> String {
    let most = items.iter().map(|(_, spread)| spread.most).fold(f64::MIN_POSITIVE, f64::max);
    let height = 30 + 22 * items.len();
    let title = escaped(title);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"760\" height=\"{height}\" role=\"img\" aria-label=\"{title}\" \
         font-family=\"sans-serif\" font-size=\"12\"><text x=\"0\" y=\"14\">{title}; the line is the range of the seeds</text>"
    );
    let x = |value: f64| 300.0 + 370.0 * value.max(0.0) / most;
    for (index, (name, spread)) in items.iter().enumerate() {
        let (top, colour) = (24 + 22 * index, COLOURS[index % COLOURS.len()]);
        let _ok = write!(
            svg,
            "<text x=\"0\" y=\"{0}\">{1}</text><rect x=\"300\" y=\"{top}\" width=\"{2:.1}\" height=\"16\" fill=\"{colour}\"/>\
             <line x1=\"{3:.1}\" x2=\"{4:.1}\" y1=\"{5}\" y2=\"{5}\" stroke=\"#000\" stroke-width=\"2\"/><text x=\"{6:.1}\" y=\"{0}\">{7:.3}</text>",
            top + 13,
            escaped(name),
            x(spread.mean) - 300.0,
            x(spread.least),
            x(spread.most),
            top + 8,
            x(spread.most) + 6.0,
            spread.mean
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// Which colour is which law.
fn legend(rows: &[Row]) -> String {
    let mut svg = String::new();
    for (index, row) in rows.iter().enumerate() {
        let (x, colour) = (118 * index, COLOURS[index % COLOURS.len()]);
        let _ok = write!(
            svg,
            "<rect x=\"{x}\" y=\"20\" width=\"10\" height=\"10\" fill=\"{colour}\"/><text x=\"{}\" y=\"29\">{}</text>",
            x + 14,
            escaped(&row.arm)
        );
    }
    svg
}

/// Energy as bars, and power over time as lines where it was kept.
pub(super) fn plot(rows: &[Row]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let energy =
        |row: &Row| row.figures.iter().find(|(name, _)| name == "it_kwh").map_or(0.0, |(_, kwh)| *kwh);
    let most = rows.iter().map(energy).fold(1.0, f64::max);
    let height = 30 + 22 * rows.len();
    let mut svg = format!(
        "<h2>{0}</h2>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"720\" height=\"{height}\" role=\"img\" \
         aria-label=\"Energy of each law, {0}\" font-family=\"sans-serif\" font-size=\"12\">\
         <text x=\"0\" y=\"14\">Energy, kWh</text>",
        escaped(&first.group())
    );
    for (index, row) in rows.iter().enumerate() {
        let (top, colour) = (24 + 22 * index, COLOURS[index % COLOURS.len()]);
        let kwh = energy(row);
        let _ok = write!(
            svg,
            "<text x=\"0\" y=\"{}\">{}</text><rect x=\"300\" y=\"{top}\" width=\"{:.1}\" height=\"16\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{}\">{kwh:.0}</text>",
            top + 13,
            escaped(&row.arm),
            350.0 * kwh / most,
            306.0 + 350.0 * kwh / most,
            top + 13
        );
    }
    svg.push_str("</svg>\n");
    let peak = rows.iter().flat_map(|row| &row.series).copied().fold(0.0, f64::max);
    if peak > 0.0 {
        let _ok = write!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"720\" height=\"240\" role=\"img\" aria-label=\"Power over time\" \
             font-family=\"sans-serif\" font-size=\"12\"><text x=\"0\" y=\"12\">Power over 48 h, up to {peak:.0} kW</text>"
        );
        svg.push_str(&legend(rows));
        for (index, row) in rows.iter().enumerate() {
            let _ok = write!(
                svg,
                "<polyline fill=\"none\" stroke=\"{}\" points=\"",
                COLOURS[index % COLOURS.len()]
            );
            for (place, kw) in row.series.iter().enumerate() {
                let x = 720.0 * place as f64 / row.series.len() as f64;
                let _ok = write!(svg, "{x:.1},{:.1} ", 235.0 - 195.0 * kw / peak);
            }
            svg.push_str("\"/>");
        }
        svg.push_str("</svg>\n");
    }
    svg
}
