//! Checks the rules of docs/STYLE.md that a program can check, in every file that git tracks or would add.

mod chapters;

use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// A longer source has more than one purpose; test code does not count.
const SOURCE_LINES_MAX: usize = 700;
/// Large data does not belong in a source repository.
const FILE_BYTES_MAX: usize = 512 * 1024;
/// The inputs of the fuzz targets are untidy on purpose.
const INPUTS: [&str; 2] = ["fuzz/corpus/", "fuzz/regressions/"];
/// Marks of unfinished work or skipped tests. They are written in two halves, so that this file passes its own check.
const UNFINISHED: [(&str, &str); 7] = [
    ("TO", "DO"),
    ("FIX", "ME"),
    ("XX", "X:"),
    ("HA", "CK:"),
    ("todo", "!("),
    ("unimpl", "emented!("),
    ("#[ig", "nore"),
];

/// The crates whose examples in documentation are tested; the others say `doctest = false`, which saves a compiler each.
const WITH_EXAMPLES: [&str; 5] =
    ["core-nostd/power-units/", "core-nostd/power-hal/", "hal-amd/", "hosts/host-kit/", "hosts/plant/"];
/// What a block in documentation may be called that is no example.
const NO_EXAMPLE: [&str; 6] = ["text", "sh", "yaml", "json", "toml", "console"];

/// Fails with every violation.
pub(crate) fn check(root: &Path) -> Result<()> {
    let mut listing = Command::new("git");
    listing.current_dir(root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let listing = String::from_utf8(super::succeed(&mut listing)?.stdout)?;
    let mut untidy = Vec::new();
    let mut named = BTreeSet::new();
    let mut types = super::type_names::TypeNames::default();
    let mut chapters = chapters::Chapters::default();
    for name in listing.split('\0').filter(|name| !name.is_empty() && root.join(name).is_file()) {
        let bytes = std::fs::read(root.join(name)).with_context(|| format!("reading {name}"))?;
        if bytes.len() > FILE_BYTES_MAX {
            untidy.push(format!("{name}: {} bytes", bytes.len()));
        }
        if INPUTS.iter().any(|folder| name.starts_with(folder)) {
            continue;
        }
        let Ok(text) = std::str::from_utf8(&bytes) else { continue };
        untidy.extend(complaints(name, text));
        if name.ends_with(".rs") {
            types.read(name, text);
        }
        // Its chapters are examples.
        if name != "xtask/src/tidy/chapters.rs" {
            chapters.read(name, text);
        }
        // The ids in this file are examples.
        if name.ends_with(".rs") && name != "xtask/src/tidy.rs" {
            named.extend(named_ids(text));
            named.extend(named_rows(text));
        }
        if name.ends_with(".md") {
            untidy.extend(dead_links(root, name, text));
        }
    }
    let read =
        |name: &str| std::fs::read_to_string(root.join(name)).with_context(|| format!("reading {name}"));
    untidy.extend(super::duplicates::complaints(&read("Cargo.lock")?, &read("deny.toml")?));
    untidy.extend(types.complaints());
    untidy.extend(chapters.complaints());
    untidy.extend(unnamed_ids(&std::fs::read_to_string(root.join("docs/FIX_LIST.md"))?, &named));
    if !untidy.is_empty() {
        bail!("untidy:\n  {}", untidy.join("\n  "));
    }
    Ok(())
}

fn complaints(name: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let place = format!("{name}:{}", number + 1);
        if line.ends_with([' ', '\t']) && !name.ends_with(".md") {
            found.push(format!("{place}: space at the end of the line"));
        }
        if UNFINISHED.iter().any(|(a, b)| line.contains(&format!("{a}{b}"))) && name != "LICENSE" {
            found.push(format!("{place}: unfinished: {}", line.trim()));
        }
    }
    if name.ends_with(".rs") {
        found.extend(source_complaints(name, text));
    }
    found
}

fn source_complaints(name: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let is_tests = name.ends_with("/tests.rs") || name.contains("/tests/");
    // Test modules need no header, because their names say what they test.
    if !is_tests && !text.starts_with("//!") {
        found.push(format!("{name}: does not open by saying what it is for (//!)"));
    }
    let product = text.lines().take_while(|line| *line != "#[cfg(test)]").count();
    if !is_tests && product > SOURCE_LINES_MAX {
        found.push(format!("{name}: {product} lines; ask what its second noun is"));
    }
    if !WITH_EXAMPLES.iter().any(|folder| name.starts_with(folder)) {
        found.extend(
            examples(text)
                .map(|at| format!("{name}:{at}: no example is tested in this crate (doctest = false)")),
        );
    }
    found
}

/// The lines at which an example begins in documentation.
fn examples(text: &str) -> impl Iterator<Item = usize> {
    let mut is_open = false;
    (1..).zip(text.lines()).filter_map(move |(at, line)| {
        let line = line.trim_start();
        let doc = line.strip_prefix("//!").or_else(|| line.strip_prefix("///"))?;
        let language = doc.trim_start().strip_prefix("```")?;
        is_open = !is_open;
        (is_open && !NO_EXAMPLE.contains(&language.trim())).then_some(at)
    })
}

/// Relative links must point to existing files.
fn dead_links(root: &Path, name: &str, text: &str) -> Vec<String> {
    let folder = root.join(name).parent().map(Path::to_path_buf).unwrap_or_default();
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')').map(|(link, _)| link))
        .filter(|link| !link.contains("://") && !link.starts_with('#') && !link.contains(char::is_whitespace))
        .filter(|link| !folder.join(link.split('#').next().unwrap_or(link)).exists())
        .map(|link| format!("{name}: the link {link} leads nowhere"))
        .collect()
}

/// The ids of the fix lists that a source names, such as `agent S14`: those on the line after the words.
fn named_ids(text: &str) -> impl Iterator<Item = String> {
    text.lines().filter_map(|line| line.split_once("Fix list ")).flat_map(|(_, rest)| {
        let (list, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let words = rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        words.filter(|word| is_id(word)).map(move |id| format!("{list} {id}"))
    })
}

/// The tables of docs/FIX_LIST.md, and how sources name their rows.
const TABLES: [(&str, &str); 4] = [
    ("agent table", "Agent table, row"),
    ("extender table", "Extender table, row"),
    ("seed table", "Seed table, row"),
    ("article table", "Article table, row"),
];

/// The rows of conformance tables that a source names, such as `agent table 14`: the numbers after the words.
fn named_rows(text: &str) -> impl Iterator<Item = String> {
    let of_line =
        |line| TABLES.iter().filter_map(move |(table, words)| Some((table, str::split_once(line, words)?.1)));
    text.lines().flat_map(of_line).flat_map(|(table, rest)| {
        let mut ended = false;
        let words = rest.strip_prefix('s').unwrap_or(rest).split_whitespace().filter(|word| *word != "and");
        let numbers = words.map_while(move |word| {
            let number = word.trim_end_matches([',', '.', ':']);
            let is_number = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
            let taken = (!ended && is_number).then(|| format!("{table} {number}"));
            ended |= word.ends_with(['.', ':']);
            taken
        });
        numbers.collect::<Vec<_>>()
    })
}

/// `S14`, `C7`, `G3`, `K2`, `B-R1`.
fn is_id(word: &str) -> bool {
    let number = ["B-C", "B-G", "B-R", "B", "C", "D", "G", "K", "S"]
        .iter()
        .find_map(|letters| word.strip_prefix(letters));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()))
}

/// A source must name every id that has a test according to docs/FIX_LIST.md.
fn unnamed_ids(list: &str, named: &BTreeSet<String>) -> Vec<String> {
    let mut unnamed = Vec::new();
    let mut heading = "";
    for line in list.lines() {
        heading = line.strip_prefix("## ").unwrap_or(heading);
        let Some((ids, place)) = line.strip_prefix("| ").and_then(|row| row.split_once(" | ")) else {
            continue;
        };
        if !place.starts_with("test") {
            continue;
        }
        let ids = ids.split_whitespace().map(|id| format!("{heading} {id}"));
        unnamed.extend(
            ids.filter(|id| !named.contains(id)).map(|id| format!("docs/FIX_LIST.md: no test names {id}")),
        );
    }
    unnamed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_is_tidy() {
        check(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()).unwrap();
    }

    #[test]
    fn an_id_that_no_test_names_is_told() {
        let named: BTreeSet<_> =
            named_ids("// Fix list agent S12, S13: both.\n// Fix list operator B-R1.").collect();
        assert_eq!(
            named.iter().map(String::as_str).collect::<Vec<_>>(),
            ["agent S12", "agent S13", "operator B-R1"]
        );
        let list =
            "## agent\n| S12 S14 | test |\n| S1 | later: HALs |\n## operator\n| B-R1 B2 | test, kept |\n";
        let told = unnamed_ids(list, &named);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].ends_with("agent S14") && told[1].ends_with("operator B2"), "{told:?}");
    }

    #[test]
    fn a_row_that_no_test_names_is_told() {
        let text = "// Agent table, rows 6, 10 and 14.\n// Agent table, row 13, and 2 more.\n// Agent table, row 5: 120 W.\n\
                    // Agent table, row 31. Fix list agent D5: 7 of them.\n";
        let named: BTreeSet<_> = named_rows(text).collect();
        let rows: Vec<_> = named.iter().map(|row| row.trim_start_matches("agent table ")).collect();
        assert_eq!(rows, ["10", "13", "14", "2", "31", "5", "6"]);
        let told = unnamed_ids("## agent table\n| 5 6 7 | test |\n| 22 | settled otherwise |\n", &named);
        assert_eq!(told, ["docs/FIX_LIST.md: no test names agent table 7"]);
        let two: Vec<_> = named_rows("// Extender table, rows 2 and 7. Seed table, row 9.").collect();
        assert_eq!(two, ["extender table 2", "extender table 7", "seed table 9"]);
    }

    #[test]
    fn each_kind_of_mess_is_seen() {
        let messy = |name: &str, text: &str| complaints(name, text).len();
        assert_eq!(messy("a.rs", "//! Fine.\n"), 0);
        assert_eq!(messy("a.rs", "fn a() {}\n"), 1);
        assert_eq!(messy("a.toml", "a = 1 \n"), 1);
        assert_eq!(messy("a.toml", &format!("# {}{}: later\n", "TO", "DO")), 1);
        assert_eq!(messy("a.rs", &format!("//! Long.\n{}", "fn a() {}\n".repeat(SOURCE_LINES_MAX))), 1);
        let example = "//! A.\n//! ```text\n//! a\n//! ```\n/// ```\n/// a();\n/// ```\n";
        assert_eq!(messy("a.rs", example), 1);
        assert_eq!(messy("hal-amd/src/a.rs", example), 0);
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        assert_eq!(dead_links(root, "README.md", "[a](Cargo.toml) [b](nowhere.md) [c](#d)").len(), 1);
    }
}
