//! The charts of `hosts/deploy` in the hands of helm: rendered, cut into objects, and written down for those without helm.
//!
//! Where there is neither a helm nor a way to build one, a suite says `SKIP(reason)`.
#![deny(unsafe_code)]

pub mod kustomize;

use cluster::ClusterError;
use cluster::assets::{self, Environment};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;

/// The namespace that everything is installed in.
pub const NAMESPACE: &str = "joulie-system";
/// The name of the release, which is in labels.
pub const RELEASE: &str = "joulie";

/// `hosts/deploy`.
#[must_use]
pub fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hosts/deploy")
}

/// A helm, found or built.
#[derive(Clone, Debug)]
pub struct Helm(PathBuf);

impl Helm {
    /// The one of this machine; `None` after a `SKIP(reason)` where there is none.
    ///
    /// # Panics
    /// When one could be built and was not.
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

    /// Runs it; what it says when it fails.
    ///
    /// # Errors
    /// Its standard error, when it ends with another status than 0.
    pub fn run(&self, arguments: &[&str]) -> Result<String, String> {
        let output = Command::new(&self.0)
            .args(arguments)
            // Neither a plugin nor a repository of the person who runs the tests.
            .env("HELM_PLUGINS", "/nonexistent")
            .output()
            .map_err(|error| format!("{}: {error}", self.0.display()))?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// What a chart of `hosts/deploy` becomes with these flags.
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

/// The documents of each template, by the template's name, without what helm says of their origin.
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

/// Every object of a text of several documents.
///
/// # Errors
/// When one of them is no YAML.
pub fn objects(text: &str) -> Result<Vec<Value>, String> {
    let documents = text.split("\n---\n").map(|document| document.trim_start_matches("---\n"));
    let written =
        documents.filter(|text| text.lines().any(|line| !line.starts_with('#') && !line.trim().is_empty()));
    written.map(|text| serde_saphyr::from_str(text).map_err(|error| format!("{error}:\n{text}"))).collect()
}

/// Says that a suite cannot look: to standard output for the count, to standard error for the person.
#[expect(clippy::print_stdout, reason = "the test command counts these lines on standard output")]
pub fn skip(reason: &str) {
    let line = format!("SKIP({})", reason.replace('\n', " "));
    println!("{line}");
    // The test runner keeps what println! says until the end, or for itself.
    let _ = writeln!(std::io::stderr(), "\n{line}\n");
}
