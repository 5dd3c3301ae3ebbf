//! Two results side by side.

use super::{ReportError, shown};
use serde_json::Value;
use std::fmt::Write;

/// How the second result differs from the first, in percent of it, law by law.
///
/// # Errors
/// When one of them is no result.
pub fn compare(first: &str, second: &str) -> Result<String, ReportError> {
    let (first, second) = (read(first, "first")?, read(second, "second")?);
    let mut text = String::new();
    for (group, arm, figures) in &second {
        let Some((_, _, before)) = first.iter().find(|row| row.0 == *group && row.1 == *arm) else {
            let _ok = writeln!(text, "{group} {arm}: only in the second");
            continue;
        };
        let _ok = write!(text, "{group} {arm}:");
        for (name, after) in figures {
            let Some((_, before)) = before.iter().find(|(other, _)| other == name) else { continue };
            if before == after {
                continue;
            }
            let change = 100.0 * (after - before) / before;
            let _ok = match change.is_finite() {
                true => write!(text, " {name} {change:+.2} %"),
                false => write!(text, " {name} {} -> {}", shown(*before), shown(*after)),
            };
        }
        text.push('\n');
    }
    for (group, arm, _) in
        first.iter().filter(|row| second.iter().all(|other| other.0 != row.0 || other.1 != row.1))
    {
        let _ok = writeln!(text, "{group} {arm}: only in the first");
    }
    Ok(text)
}

type ReadRow = (String, String, Vec<(String, f64)>);

fn read(text: &str, which: &str) -> Result<Vec<ReadRow>, ReportError> {
    let fault = |place: String| ReportError::Result(format!("{which} file, {place}"));
    let value: Value = serde_json::from_str(text).map_err(|error| fault(error.to_string()))?;
    let rows = value["rows"].as_array().ok_or_else(|| fault("no rows".into()))?;
    let row = |(index, row): (usize, &Value)| {
        let name = |field: &str| {
            row[field].as_str().map(str::to_owned).ok_or_else(|| fault(format!("row {index}: {field}")))
        };
        let figures = row["figures"].as_object().ok_or_else(|| fault(format!("row {index}: figures")))?;
        let figures =
            figures.iter().filter_map(|(name, value)| Some((name.clone(), value.as_f64()?))).collect();
        Ok((name("group")?, name("arm")?, figures))
    };
    rows.iter().enumerate().map(row).collect()
}
