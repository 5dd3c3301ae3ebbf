//! Every rule of a role in the templates, whatever value it needs, is in a part of the chart whose rights a story of
//! `tests-hil/system` uses. A rule behind a value that no story sets would otherwise be looked for by nobody.

use install::audited::AuditedPart;
use install::{Helm, by_template, deploy};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A comment that names the place of what it follows.
const MARK: &str = " # at ";

/// A copy of the chart with marks at the verbs of each rule, and at each binding.
struct MarkedChart {
    folder: PathBuf,
    marks: BTreeSet<String>,
}

impl MarkedChart {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("joulie-marked-chart-{}", std::process::id()));
        let mut chart = Self { folder: folder.clone(), marks: BTreeSet::new() };
        chart.copy(&deploy().join("chart"), &folder);
        chart
    }

    fn copy(&mut self, from: &Path, to: &Path) {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let to = to.join(&name);
            if path.is_dir() {
                self.copy(&path, &to);
            } else if from.components().any(|part| part.as_os_str() == "templates") && name.ends_with(".yaml")
            {
                let (text, marks) = marked(&std::fs::read_to_string(&path).unwrap(), &name);
                std::fs::write(to, text).unwrap();
                self.marks.extend(marks);
            } else {
                std::fs::copy(&path, to).unwrap();
            }
        }
    }

    /// The marks in what a part of the chart becomes.
    fn seen(&self, helm: &Helm, part: AuditedPart) -> BTreeSet<String> {
        let mut seen = BTreeSet::new();
        for rendering in part.renderings() {
            let rendered = helm.template(self.folder.to_str().unwrap(), rendering.flags).unwrap();
            for (template, documents) in by_template(&rendered) {
                if rendering.includes(&template) {
                    let lines = documents.iter().flat_map(|text| text.lines());
                    seen.extend(lines.filter_map(|line| Some(line.split_once(MARK)?.1.to_owned())));
                }
            }
        }
        seen
    }
}

impl Drop for MarkedChart {
    fn drop(&mut self) {
        // Who looks at a failure has its message.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The template with its marks.
fn marked(text: &str, name: &str) -> (String, BTreeSet<String>) {
    let (mut kind, mut out, mut marks) = ("", String::new(), BTreeSet::new());
    let (mut rules, mut verbs) = (0, 0);
    for (number, line) in (1..).zip(text.lines()) {
        kind = line.strip_prefix("kind: ").unwrap_or(kind);
        let is_role = ["Role", "ClusterRole"].contains(&kind);
        let starts = |words: &[&str]| words.iter().any(|word| line.trim_start().starts_with(word));
        let begins = is_role && starts(&["- apiGroups: ", "- nonResourceURLs: "]);
        let ends = is_role && starts(&["verbs: "]);
        // A part of a list behind a value would have no mark of its own.
        let is_of_a_rule = begins || ends || (is_role && starts(&["resources: "]));
        assert!(
            !(is_of_a_rule && line.contains("{{")),
            "{name}:{number}: write a rule of its own for what a value adds: {line}"
        );
        (rules, verbs) = (rules + u32::from(begins), verbs + u32::from(ends));
        out.push_str(line);
        let binds = ["kind: RoleBinding", "kind: ClusterRoleBinding"].contains(&line)
            || line.contains("{{ include \"joulie.binding\" ");
        if ends || binds {
            let mark = format!("{name}:{number}.");
            out.push_str(MARK);
            out.push_str(&mark);
            marks.insert(mark);
        }
        out.push('\n');
    }
    assert_eq!(rules, verbs, "{name}: a rule begins with its groups, and has its verbs in one line");
    (out, marks)
}

#[test]
fn every_rule_and_every_binding_in_the_templates_is_in_a_part_that_a_story_uses() {
    let Some(helm) = Helm::or_skip() else { return };
    let chart = MarkedChart::new();
    assert!(chart.marks.len() > 50, "{:?}", chart.marks);
    let seen: BTreeSet<String> =
        AuditedPart::ALL.into_iter().flat_map(|part| chart.seen(&helm, part)).collect();
    let unseen: Vec<&String> = chart.marks.difference(&seen).collect();
    assert!(
        unseen.is_empty(),
        "no story uses these: add their values to `install::audited` and a use of them to a story of `system`: {unseen:#?}"
    );
}

#[test]
fn every_part_is_audited_by_a_story() {
    let folder = deploy().join("../../tests-hil/system/tests/it");
    let mut text = String::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            text.push_str(&std::fs::read_to_string(path).unwrap());
        }
    }
    for part in AuditedPart::ALL {
        assert!(text.contains(&format!(", AuditedPart::{part:?})")), "no story audits {part:?}");
    }
}

#[test]
fn a_rule_and_a_binding_are_marked_and_a_flow_schema_is_not() {
    let text = "kind: Role\nrules:\n  - apiGroups: [\"\"]\n    resources: [pods]\n    verbs: [get]\n---\n{{ include \"joulie.binding\" . }}\n---\nkind: FlowSchema\nverbs: [\"*\"]\n";
    let (out, marks) = marked(text, "a.yaml");
    assert_eq!(marks, BTreeSet::from(["a.yaml:5.".to_owned(), "a.yaml:7.".to_owned()]));
    assert_eq!(out.replace(" # at a.yaml:5.", "").replace(" # at a.yaml:7.", ""), text);
}
