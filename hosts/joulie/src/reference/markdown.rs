//! Writes a page of Markdown: headings, paragraphs and tables.

/// A page that is being written.
pub(super) struct Page(String);

impl Page {
    pub(super) fn new(title: &str) -> Self {
        Self(format!("# {title}\n"))
    }

    pub(super) fn head(&mut self, level: usize, title: &str) {
        self.0.push_str(&format!("\n{} {title}\n", "#".repeat(level)));
    }

    pub(super) fn say(&mut self, text: &str) {
        self.0.push_str(&format!("\n{text}\n"));
    }

    pub(super) fn table(&mut self, head: &[&str], rows: Vec<Vec<String>>) {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
        self.0.push('\n');
        self.0.push_str(&line(&head));
        self.0.push_str(&format!("|{}\n", "---|".repeat(head.len())));
        for row in rows {
            assert_eq!(row.len(), head.len(), "{row:?}");
            let cells: Vec<String> = row.iter().map(|cell| escaped(cell)).collect();
            self.0.push_str(&line(&cells));
        }
    }

    pub(super) fn text(self) -> String {
        self.0
    }
}

/// Text in the code style, as in a command or an object.
pub(super) fn code(text: &str) -> String {
    format!("`{text}`")
}

/// Escape a vertical bar, which ends a cell, and `<`, which begins a tag.
fn escaped(cell: &str) -> String {
    cell.replace('|', "\\|").replace('<', "&lt;").replace('\n', " ")
}
