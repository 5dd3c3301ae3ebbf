//! The pictures of the page in the documents, from `joulie demo` in a browser: a test of the page writes them where a variable says.

use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

const TEST: &str = "page::it_can_be_read_in_light_and_dark_and_on_a_phone";
const FOLDER: &str = "JOULIE_PAGE_PICTURES";
const NAMES: [&str; 3] = ["page-light.webp", "page-dark.webp", "page-phone.webp"];

/// Writes them into `docs`.
pub(crate) fn run(root: &Path) -> Result<()> {
    let docs = root.join("docs");
    let written = |name: &str| std::fs::metadata(docs.join(name)).and_then(|file| file.modified());
    let before = NAMES.map(|name| written(name).ok());
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root).env(FOLDER, &docs).args([
        "test",
        "--quiet",
        "--locked",
        "--package",
        "joulie",
        "--test",
        "it",
    ]);
    let status = cargo.args(["--", "--exact", TEST, "--nocapture"]).status().context("starting cargo")?;
    if !status.success() {
        bail!("the pictures could not be taken: {status}");
    }
    // Without a browser the test is skipped.
    for (name, before) in NAMES.into_iter().zip(before) {
        if written(name).ok() == before {
            bail!("docs/{name} was not written");
        }
    }
    Ok(())
}
