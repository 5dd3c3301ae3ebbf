//! The bill of materials of the programs (CycloneDX 1.5), from the lock file and from the crates that cargo links.

use super::layout::date;
use super::{BuildTarget, PROGRAMS};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// The bill as JSON, including the system libraries in the image with path and digest.
pub(super) fn of(
    root: &Path,
    target: BuildTarget,
    libraries: &[(String, String)],
    made: u64,
) -> Result<String> {
    let linked = linked(root, target)?;
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).context("reading Cargo.lock")?;
    let libraries: Vec<Library> = libraries.iter().map(|library| Library::of(target, library)).collect();
    Ok(serde_json::to_string_pretty(&document((&linked, &libraries), &checksums(&lock), made))?)
}

/// A library of the system.
pub(super) struct Library {
    pub(super) path: String,
    pub(super) digest: String,
    /// Its package and version, if the system uses Debian's packages.
    pub(super) package: Option<(String, String)>,
}

impl Library {
    fn of(target: BuildTarget, (path, digest): &(String, String)) -> Self {
        let source = target.source(&Path::new("/").join(path));
        let package = owner(source.to_string_lossy().trim_start_matches('/'));
        Self { path: path.clone(), digest: digest.clone(), package }
    }

    fn component(&self) -> Value {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        let mut component = json!({
            "type": "library", "bom-ref": self.path, "name": name,
            "hashes": [{"alg": "SHA-256", "content": self.digest}],
        });
        if let Some((package, version)) = &self.package {
            component["version"] = json!(version);
            component["purl"] = json!(format!("pkg:deb/debian/{package}@{}", version.replace('+', "%2B")));
        }
        component
    }
}

/// The package that owns a file. If folders are merged, the package may list the path with or without `/usr`.
fn owner(path: &str) -> Option<(String, String)> {
    let other = path.strip_prefix("usr/").map_or_else(|| format!("usr/{path}"), str::to_owned);
    [path, &other].into_iter().find_map(|path| {
        let said = Command::new("dpkg-query").args(["--search", &format!("/{path}")]).output().ok()?;
        let said = String::from_utf8(said.stdout).ok()?;
        let package = said.lines().next()?.split(": ").next()?.to_owned();
        let version =
            Command::new("dpkg-query").args(["--show", "--showformat=${Version}", &package]).output().ok()?;
        let version = String::from_utf8(version.stdout).ok()?;
        let name = package.split(':').next()?.to_owned();
        (!version.is_empty()).then_some((name, version))
    })
}

/// A crate, its version and its licence.
type Linked = BTreeSet<(String, String, String)>;

/// Every crate from the registry that is linked into one of the programs.
fn linked(root: &Path, target: BuildTarget) -> Result<Linked> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(root).args(["tree", "--locked", "--edges", "normal,no-proc-macro", "--prefix", "none"]);
    cargo.args(["--format", "{p}|{l}"]);
    target.tell(&mut cargo);
    for (_, package) in PROGRAMS {
        cargo.args(["-p", package]);
    }
    let said = super::super::succeed(&mut cargo)?;
    read(&String::from_utf8_lossy(&said.stdout))
}

/// Reads lines such as `serde v1.0.228|MIT OR Apache-2.0`. Crates of this repository have a path, and are left out.
pub(super) fn read(said: &str) -> Result<Linked> {
    let mut linked = Linked::new();
    for line in said.lines().filter(|line| !line.trim().is_empty()) {
        // A repeated crate has a mark.
        let line = line.trim_end_matches(" (*)");
        let (crate_, licence) = line.rsplit_once('|').with_context(|| format!("cargo tree said {line:?}"))?;
        if crate_.contains('(') {
            continue;
        }
        let mut words = crate_.split_whitespace();
        let (Some(name), Some(version)) = (words.next(), words.next()) else {
            bail!("cargo tree said {line:?}")
        };
        // An old notation for a choice of licences.
        let licence = licence.replace(" / ", " OR ").replace('/', " OR ");
        linked.insert((name.to_owned(), version.trim_start_matches('v').to_owned(), licence));
    }
    Ok(linked)
}

/// The digest of each crate's archive in the lock file.
pub(super) fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let mut found = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let field = |name: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "))?;
            Some(line.trim_matches('"').to_owned())
        };
        if let (Some(name), Some(version), Some(checksum)) =
            (field("name"), field("version"), field("checksum"))
        {
            found.insert((name, version), checksum);
        }
    }
    found
}

pub(super) fn document(
    (linked, libraries): (&Linked, &[Library]),
    checksums: &BTreeMap<(String, String), String>,
    made: u64,
) -> Value {
    let crates = linked.iter().map(|(name, version, licence)| {
        let purl = format!("pkg:cargo/{name}@{version}");
        let mut component = json!({
            "type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl,
            "licenses": [{"expression": licence}],
        });
        if let Some(checksum) = checksums.get(&(name.clone(), version.clone())) {
            component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
        }
        component
    });
    let components: Vec<Value> = crates.chain(libraries.iter().map(Library::component)).collect();
    json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {
            "timestamp": date(made),
            "component": {
                "type": "container", "bom-ref": "joulie", "name": "joulie", "version": env!("CARGO_PKG_VERSION"),
                "licenses": [{"expression": "Apache-2.0"}],
            },
        },
        "components": components,
    })
}
