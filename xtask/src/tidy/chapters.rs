//! The chapters of the documents, and who leads to them: links with a heading behind `#`, and texts that name a document and a heading in
//! quotes, as errors and findings do. Whoever reads them must find the chapter.

use std::collections::{BTreeMap, BTreeSet};

/// What was read of all files.
#[derive(Debug, Default)]
pub(crate) struct Chapters {
    /// The headings of each document, as they stand and as links name them.
    of: BTreeMap<String, BTreeSet<String>>,
    /// Who leads where: the file, the document, and the heading.
    leads: Vec<(String, String, String)>,
}

impl Chapters {
    /// Takes a file in, by its name in the repository.
    pub(crate) fn read(&mut self, name: &str, text: &str) {
        let mut leads = |document: String, heading: &str| {
            self.leads.push((name.to_owned(), document, heading.to_owned()));
        };
        for (document, heading) in named(text) {
            leads(format!("docs/{document}.md"), heading);
        }
        if !name.ends_with(".md") {
            return;
        }
        let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        for (path, anchor) in links.filter_map(|(link, _)| link.split_once('#')) {
            if !path.contains("://") && (path.is_empty() || path.ends_with(".md")) {
                leads(resolved(name, path), anchor);
            }
        }
        let headings =
            text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
        let both = headings.flat_map(|heading| [heading.to_owned(), anchor(heading)]);
        self.of.entry(name.to_owned()).or_default().extend(both);
    }

    /// Who leads to a chapter that is not there.
    pub(crate) fn complaints(&self) -> impl Iterator<Item = String> + '_ {
        let is_there = |document: &String, heading: &String| {
            self.of.get(document).is_some_and(|headings| headings.contains(heading))
        };
        let lost = self.leads.iter().filter(move |(_, document, heading)| !is_there(document, heading));
        lost.map(|(name, document, heading)| format!("{name}: {document} has no chapter {heading:?}"))
    }
}

/// The documents in `docs` that a text names together with a heading in quotes, which may be escaped.
fn named(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split("docs/").skip(1).filter_map(|rest| {
        let (document, rest) = rest.split_once(".md")?;
        let is_path = document.chars().all(|one| one.is_ascii_alphanumeric() || "/_-".contains(one));
        let rest = rest.strip_prefix(',').unwrap_or(rest).strip_prefix(' ')?;
        let heading = rest.strip_prefix('\\').unwrap_or(rest).strip_prefix('"')?;
        let (heading, _) = heading.split_once(['"', '\\'])?;
        Some((document, heading)).filter(|_| is_path)
    })
}

/// The file that a link of a file leads to.
fn resolved(name: &str, path: &str) -> String {
    if path.is_empty() {
        return name.to_owned();
    }
    let mut parts: Vec<&str> = name.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// A heading as links name it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|one| one.is_alphanumeric() || " -_".contains(*one));
    kept.flat_map(char::to_lowercase).map(|one| if one == ' ' { '-' } else { one }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_leads_to_a_chapter_that_is_not_there_is_told() {
        let mut chapters = Chapters::default();
        chapters
            .read("docs/A.md", "# A\n\n## One machine: `joulie node`\n\n[x](adr/1.md#why) [y](#a) [z](#b)\n");
        chapters.read("docs/adr/1.md", "## Why\n[x](../A.md#one-machine-joulie-node) [y](../A.md#another) [z](x.rs#l) [w](https://x.md#y)\n");
        let source = "do: docs/A.md, \\\"One machine: `joulie node`\\\"; docs/A.md \"Two\"; \"docs/A.md\", \"x\"; docs/B.md, \"A\"";
        chapters.read("a.rs", source);
        let told: Vec<String> = chapters.complaints().collect();
        let expected = [
            "docs/A.md: docs/A.md has no chapter \"b\"",
            "docs/adr/1.md: docs/A.md has no chapter \"another\"",
            "a.rs: docs/A.md has no chapter \"Two\"",
            "a.rs: docs/B.md has no chapter \"A\"",
        ];
        assert_eq!(told, expected);
    }
}
