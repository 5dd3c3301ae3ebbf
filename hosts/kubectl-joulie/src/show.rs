//! What a command has found, in the format that was asked for.

use crate::args::OutputFormat;
use crate::clean::{clean, clean_document};
use serde_json::{Value, json};

/// A table for people, with the document that programs get.
#[derive(Debug)]
pub(crate) struct Sheet {
    /// In front of the table.
    pub(crate) heading: Vec<String>,
    pub(crate) columns: Vec<&'static str>,
    /// Those of `-o wide`.
    pub(crate) wide: Vec<&'static str>,
    /// The cells of all columns, the wide ones last.
    pub(crate) rows: Vec<Vec<String>>,
    /// KIND/NAME of each row.
    pub(crate) names: Vec<String>,
    /// Each row as a document.
    pub(crate) documents: Vec<Value>,
    /// The kind of the list.
    pub(crate) kind: &'static str,
}

impl Sheet {
    pub(crate) fn new(kind: &'static str, columns: &[&'static str], wide: &[&'static str]) -> Self {
        Self {
            heading: Vec::new(),
            columns: columns.to_vec(),
            wide: wide.to_vec(),
            rows: Vec::new(),
            names: Vec::new(),
            documents: Vec::new(),
            kind,
        }
    }

    pub(crate) fn row(&mut self, name: String, cells: Vec<String>, document: Value) {
        self.names.push(name);
        self.rows.push(cells);
        self.documents.push(document);
    }

    /// The text of this format.
    pub(crate) fn text(self, format: Option<OutputFormat>) -> String {
        match format {
            Some(OutputFormat::Json | OutputFormat::Yaml) => {
                document(format, json!({"kind": self.kind, "items": self.documents}))
            }
            Some(OutputFormat::Name) => lines(&self.names.iter().map(|name| clean(name)).collect::<Vec<_>>()),
            Some(OutputFormat::Wide) => self.table(true),
            None => self.table(false),
        }
    }

    fn table(&self, wide: bool) -> String {
        let mut text = lines(&self.heading.iter().map(|line| clean(line)).collect::<Vec<_>>());
        if self.rows.is_empty() {
            return text;
        }
        if !text.is_empty() {
            text.push('\n');
        }
        let head: Vec<String> = self
            .columns
            .iter()
            .chain(self.wide.iter().filter(|_| wide))
            .map(|name| (*name).to_owned())
            .collect();
        let shown = head.len();
        let rows = self.rows.iter().map(|row| row.iter().take(shown).map(|cell| clean(cell)).collect());
        text.push_str(&lines(&aligned(&std::iter::once(head).chain(rows).collect::<Vec<Vec<String>>>())));
        text
    }
}

/// A document as JSON, or as YAML.
pub(crate) fn document(format: Option<OutputFormat>, value: Value) -> String {
    let value = clean_document(value);
    match format {
        // JSON is YAML, should the writer of YAML refuse.
        Some(OutputFormat::Yaml) => {
            serde_saphyr::to_string(&value).unwrap_or_else(|_| format!("{value:#}\n"))
        }
        Some(OutputFormat::Json | OutputFormat::Wide | OutputFormat::Name) | None => format!("{value:#}\n"),
    }
}

/// Lines, each with its end.
pub(crate) fn lines(all: &[String]) -> String {
    all.iter().flat_map(|line| [line.trim_end(), "\n"]).collect()
}

/// Aligns columns to their widest cell, two spaces apart.
pub(crate) fn aligned(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|at| width(at).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// A percentage in whole numbers, half to even as upstream's table has it; `-` if it is not known.
pub(crate) fn percent(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{:.0}%", value.round_ties_even() + 0.0))
}

/// Watts in whole numbers; `-` if they are not known.
pub(crate) fn watts(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{:.0} W", value.round_ties_even() + 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_rounded_half_to_even() {
        // As upstream's printing does: 72.5, 31.5, 12.5, 13.5 and 50.
        let shown = [72.5, 31.5, 12.5, 13.5, 50.0].map(|value| percent(Some(value)));
        assert_eq!(shown, ["72%", "32%", "12%", "14%", "50%"]);
        assert_eq!((percent(None).as_str(), watts(Some(-0.2)).as_str()), ("-", "0 W"));
    }

    #[test]
    fn a_cell_cannot_write_on_the_terminal_in_any_format() {
        for format in [
            None,
            Some(OutputFormat::Wide),
            Some(OutputFormat::Json),
            Some(OutputFormat::Yaml),
            Some(OutputFormat::Name),
        ] {
            let mut sheet = Sheet::new("Test", &["A"], &["B"]);
            let evil = "x\u{1b}]0;y\u{7}\u{9b}1m\u{202e}";
            sheet.heading.push(evil.to_owned());
            sheet.row(evil.to_owned(), vec![evil.to_owned(), evil.to_owned()], json!({evil: evil}));
            let text = sheet.text(format);
            assert!(
                text.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'),
                "{format:?}: {text:?}"
            );
        }
    }
}
