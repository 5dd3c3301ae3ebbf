//! Renders the charts of `hosts/deploy` with helm, splits the result into objects, and writes them for users without
//! helm.
//!
//! If there is neither a helm nor a way to build one, a suite prints `SKIP(reason)`.
#![deny(unsafe_code)]

pub mod audited;
pub mod kustomize;
pub mod roles;

use cluster::ClusterError;
use cluster::assets::{self, Environment};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;

/// The namespace of all installed objects.
pub const NAMESPACE: &str = "joulie-system";
/// The name of the release, which is a part of labels.
pub const RELEASE: &str = "joulie";

/// `hosts/deploy`.
#[must_use]
pub fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hosts/deploy")
}

/// A helm that was found or built.
#[derive(Clone, Debug)]
pub struct Helm(PathBuf);

impl Helm {
    /// The helm of this machine; `None` after a `SKIP(reason)`, if there is none.
    ///
    /// # Panics
    /// If the build of a helm failed.
    #[must_use]
    pub fn or_skip() -> Option<Self> {
        static SAID: Once = Once::new();
        match assets::helm(&Environment::of_this_process()) {
            Ok(program) => Some(Self(program)),
            Err(ClusterError::Absent(reason)) => {
                SAID.call_once(|| skip(&format!("no helm, so no chart is rendered here: {reason}")));
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Runs helm and returns its output.
    ///
    /// # Errors
    /// Its standard error, if its exit status is not 0.
    pub fn run(&self, arguments: &[&str]) -> Result<String, String> {
        let output = Command::new(&self.0)
            .args(arguments)
            // No plugins or repositories of the user who runs the tests.
            .env("HELM_PLUGINS", "/nonexistent")
            .output()
            .map_err(|error| format!("{}: {error}", self.0.display()))?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// Renders a chart of `hosts/deploy` with these flags.
    ///
    /// # Errors
    /// As for [`Self::run`].
    pub fn template(&self, chart: &str, flags: &[&str]) -> Result<String, String> {
        let chart = deploy().join(chart);
        let mut arguments = vec!["template", RELEASE, chart.to_str().unwrap_or_default(), "-n", NAMESPACE];
        arguments.extend(flags);
        self.run(&arguments)
    }
}

/// The documents of each template, by the template's name, without helm's comments about their source.
#[must_use]
pub fn by_template(rendered: &str) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for document in rendered.trim_start_matches("---\n").split("\n---\n") {
        let Some(source) = document.lines().find_map(|line| line.strip_prefix("# Source: ")) else {
            continue;
        };
        let template = source.rsplit('/').next().unwrap_or_default();
        let lines =
            document.lines().filter(|line| !line.starts_with("# Source: ") && !line.trim().is_empty());
        let text: String = lines.flat_map(|line| [line.trim_end(), "\n"]).collect();
        if text.lines().any(|line| !line.starts_with('#')) {
            found.entry(template.to_owned()).or_default().push(text);
        }
    }
    found
}

/// All objects of a text with several documents.
///
/// # Errors
/// If one of them is not valid YAML.
pub fn objects(text: &str) -> Result<Vec<Value>, String> {
    let documents = text.split("\n---\n").map(|document| document.trim_start_matches("---\n"));
    let written =
        documents.filter(|text| text.lines().any(|line| !line.starts_with('#') && !line.trim().is_empty()));
    written.map(|text| serde_saphyr::from_str(text).map_err(|error| format!("{error}:\n{text}"))).collect()
}

/// Reports a skipped suite: on standard output for the count, on standard error for people.
#[expect(clippy::print_stdout, reason = "the test command counts these lines on standard output")]
pub fn skip(reason: &str) {
    let line = format!("SKIP({})", reason.replace('\n', " "));
    println!("{line}");
    // The test runner captures the output of println!.
    let _ = writeln!(std::io::stderr(), "\n{line}\n");
}
