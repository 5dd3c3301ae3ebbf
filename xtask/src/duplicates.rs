//! Crates with several versions in the lock file: deny.toml must list each with a reason, and must list no others.
//! cargo-deny checks the same if it is installed; this check needs no other program and no network.

use std::collections::BTreeMap;

/// The errors in the exceptions of `deny`, for this lock file.
pub(crate) fn complaints(lock: &str, deny: &str) -> Vec<String> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let field = |name: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \""))?;
            line.strip_suffix('"')
        };
        if let (Some(name), Some(version)) = (field("name"), field("version")) {
            versions.entry(name).or_default().push(version);
        }
    }
    let excused: Vec<(&str, &str)> = deny
        .lines()
        .filter_map(|line| line.trim().strip_prefix("{ crate = \"")?.split_once('"')?.0.split_once('@'))
        .collect();
    let is = |version: &str, spec: &str| version.strip_prefix(spec).is_some_and(|rest| rest.starts_with('.'));
    let mut found = Vec::new();
    for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
        let left = versions
            .iter()
            .filter(|version| !excused.iter().any(|(excused, spec)| excused == name && is(version, spec)));
        if left.count() > 1 {
            let versions = versions.join(", ");
            found.push(format!("deny.toml: does not excuse that the lock has {name} in {versions}"));
        }
    }
    for (name, spec) in excused {
        let of = versions.get(name).map_or(&[][..], Vec::as_slice);
        if of.len() < 2 || !of.iter().any(|version| is(version, spec)) {
            found.push(format!("deny.toml: excuses {name}@{spec}, which is no duplicate any more"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duplicate_without_an_excuse_and_an_excuse_without_a_duplicate_are_told() {
        let package = |name: &str, version: &str| {
            format!("[[package]]\nname = \"{name}\"\nversion = \"{version}\"\n\n")
        };
        let lock = [("a", "1.0.0"), ("a", "2.0.0"), ("b", "0.2.1"), ("b", "0.21.0"), ("c", "1.0.0")];
        let lock: String = lock.iter().map(|(name, version)| package(name, version)).collect();
        let excuse = |spec: &str| format!("    {{ crate = \"{spec}\", reason = \"\" }},\n");
        assert_eq!(complaints(&lock, &(excuse("a@1") + &excuse("b@0.2"))), [""; 0]);
        let told = complaints(&lock, &(excuse("a@3") + &excuse("c@1")));
        assert_eq!(told.len(), 4, "{told:?}");
        assert!(told[0].ends_with("a in 1.0.0, 2.0.0") && told[2].contains("a@3") && told[3].contains("c@1"));
    }
}
