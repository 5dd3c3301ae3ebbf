//! The generated files: the definitions of the Kubernetes kinds in `hosts/deploy/chart-crds`, `docs/REFERENCE.md`,
//! the dashboards of the chart, and the rendered chart for users without helm in `hosts/deploy/kustomize`.
//!
//! A test of `joulie-api`, two of `joulie` and one of `install` generate the files and compare them, or write them if
//! a variable is set. So this command needs no Kubernetes libraries of its own, and `cargo xtask test` checks the
//! files by running the tests.

use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;

/// What to do with the files.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Write them.
    Write,
    /// Fail if they do not match the types.
    Check,
}

/// A test that generates files, and the variable that makes it write them.
struct Maker {
    files: &'static str,
    package: [&'static str; 4],
    test: &'static str,
    write: &'static str,
}

const MAKERS: [Maker; 4] = [
    Maker {
        files: "hosts/deploy/chart-crds/files",
        package: ["--package", "joulie-api", "--test", "it"],
        test: "crds::the_definitions_that_are_checked_in_are_those_of_the_types",
        write: "JOULIE_WRITE_CRDS",
    },
    Maker {
        files: "docs/REFERENCE.md",
        package: ["--package", "joulie", "--bin", "joulie"],
        test: "reference::the_reference_is_what_the_programs_define",
        write: "JOULIE_WRITE_REFERENCE",
    },
    Maker {
        files: "hosts/deploy/chart/dashboards",
        package: ["--package", "joulie", "--bin", "joulie"],
        test: "dashboards::the_dashboards_are_those_of_the_tables",
        write: "JOULIE_WRITE_DASHBOARDS",
    },
    Maker {
        files: "hosts/deploy/kustomize",
        package: ["--package", "install", "--test", "it"],
        test: "kustomize::the_folder_is_what_the_chart_becomes",
        write: "JOULIE_WRITE_KUSTOMIZE",
    },
];

/// Writes or checks the files.
pub(crate) fn run(root: &Path, mode: Mode) -> Result<()> {
    for maker in &MAKERS {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(root).args(["test", "--quiet", "--locked"]).args(maker.package);
        cargo.args(["--", "--exact", maker.test]);
        match mode {
            Mode::Write => cargo.env(maker.write, "1"),
            Mode::Check => cargo.env_remove(maker.write),
        };
        let files = maker.files;
        super::succeed(&mut cargo).map(drop).with_context(|| match mode {
            Mode::Write => format!("{files} could not be written"),
            Mode::Check => format!("{files} is not what the code says: run `cargo xtask codegen`"),
        })?;
    }
    Ok(())
}
