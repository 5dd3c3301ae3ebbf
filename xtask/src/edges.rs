//! The permitted dependencies between the workspace's crates: compares the arrows of docs/ARCHITECTURE.md with `cargo
//! metadata`. External crates are covered by `deny.toml` and by docs/adr/0002 and 0007.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// The permitted dependencies of a crate; all others are refused.
struct Allowed {
    name: &'static str,
    /// For the crate itself.
    ours: &'static [&'static str],
    /// For its tests only.
    ours_in_tests: &'static [&'static str],
}

const ALLOWED: &[Allowed] = &[
    Allowed { name: "power-units", ours: &[], ours_in_tests: &[] },
    Allowed { name: "power-hal", ours: &["power-units"], ours_in_tests: &[] },
    Allowed { name: "joulie-core", ours: &["power-units", "power-hal"], ours_in_tests: &[] },
    Allowed { name: "joulie-api", ours: &["power-units", "joulie-core"], ours_in_tests: &[] },
    Allowed { name: "host-kit", ours: &["power-units"], ours_in_tests: &[] },
    Allowed {
        name: "agent",
        ours: &[
            "power-units",
            "power-hal",
            "joulie-core",
            "node-kit",
            "hal-plug",
            "planner",
            "catalog-file",
            "joulie-api",
            "host-kit",
        ],
        ours_in_tests: &["embedded-api", "rig", "plant", "cluster"],
    },
    Allowed {
        name: "operator",
        ours: &["power-units", "joulie-core", "planner", "catalog-file", "joulie-api", "host-kit", "page"],
        ours_in_tests: &["embedded-api", "cluster", "simulator"],
    },
    Allowed {
        name: "extender",
        ours: &["power-units", "joulie-core", "joulie-api", "host-kit"],
        ours_in_tests: &["embedded-api", "cluster"],
    },
    Allowed {
        name: "simulator",
        ours: &["power-units", "joulie-core", "planner", "plant", "joulie-api", "host-kit"],
        ours_in_tests: &["embedded-api", "cluster"],
    },
    Allowed { name: "catalog-file", ours: &["power-units", "planner"], ours_in_tests: &[] },
    Allowed { name: "planner", ours: &["power-units", "joulie-core"], ours_in_tests: &[] },
    Allowed { name: "embedded-api", ours: &[], ours_in_tests: &["conformance"] },
    Allowed {
        name: "hal-nvidia",
        ours: &["power-units", "power-hal"],
        ours_in_tests: &["nvml-stub", "plant", "rig"],
    },
    Allowed { name: "nvml-stub", ours: &[], ours_in_tests: &[] },
    Allowed { name: "plant", ours: &["power-units"], ours_in_tests: &["joulie-core"] },
    Allowed {
        name: "virtual-cluster",
        ours: &["power-units", "joulie-core", "planner", "plant"],
        ours_in_tests: &[],
    },
    Allowed { name: "experiments", ours: &["power-units", "joulie-core"], ours_in_tests: &[] },
    Allowed { name: "hal-files", ours: &["power-units", "power-hal"], ours_in_tests: &[] },
    Allowed {
        name: "hal-cpufreq",
        ours: &["power-units", "power-hal", "hal-files"],
        ours_in_tests: &["plant", "rig"],
    },
    Allowed { name: "hal-rapl", ours: &["power-units", "power-hal", "hal-files"], ours_in_tests: &["rig"] },
    Allowed {
        name: "hal-amd",
        ours: &["power-units", "power-hal", "hal-files"],
        ours_in_tests: &["plant", "rig", "rocm-stub"],
    },
    Allowed {
        name: "hal-intel",
        ours: &["power-units", "power-hal", "hal-files"],
        ours_in_tests: &["plant", "rig"],
    },
    Allowed { name: "hal-plug", ours: &["power-units", "power-hal", "hal-files"], ours_in_tests: &["rig"] },
    Allowed {
        name: "node-kit",
        ours: &[
            "power-units",
            "power-hal",
            "joulie-core",
            "hal-files",
            "hal-rapl",
            "hal-cpufreq",
            "hal-nvidia",
            "hal-amd",
            "hal-intel",
        ],
        ours_in_tests: &["nvml-stub", "plant", "rig"],
    },
    Allowed {
        name: "hil",
        ours: &["power-units", "power-hal", "hal-files", "hal-nvidia", "node-kit"],
        ours_in_tests: &["nvml-stub", "rig"],
    },
    Allowed {
        name: "fuzz",
        ours: &[
            "power-units",
            "power-hal",
            "joulie-core",
            "planner",
            "catalog-file",
            "joulie-api",
            "extender",
            "host-kit",
            "hal-files",
            "hal-rapl",
            "hal-cpufreq",
            "hal-amd",
            "hal-nvidia",
            "hal-plug",
            "node-kit",
            "agent",
        ],
        ours_in_tests: &[],
    },
    Allowed { name: "cluster", ours: &[], ours_in_tests: &[] },
    Allowed { name: "browser", ours: &["cluster"], ours_in_tests: &[] },
    Allowed {
        name: "joulie",
        ours: &[
            "power-units",
            "power-hal",
            "joulie-core",
            "node-kit",
            "hal-plug",
            "joulie-api",
            "host-kit",
            "embedded-api",
            "agent",
            "operator",
            "experiments",
            "extender",
            "kubectl-joulie",
            "page",
            "simulator",
        ],
        ours_in_tests: &["browser", "cluster", "rig"],
    },
    Allowed {
        name: "page",
        ours: &["joulie-api", "host-kit", "kubectl-joulie"],
        ours_in_tests: &["browser", "cluster", "embedded-api"],
    },
    Allowed {
        name: "kubectl-joulie",
        ours: &["joulie-api", "host-kit", "extender"],
        ours_in_tests: &["embedded-api"],
    },
    Allowed {
        name: "campaign",
        ours: &["power-units", "power-hal", "joulie-core", "hal-amd", "node-kit", "plant", "rig"],
        ours_in_tests: &[],
    },
    Allowed {
        name: "conformance",
        ours: &["joulie-api"],
        ours_in_tests: &["cluster", "embedded-api", "host-kit"],
    },
    Allowed {
        name: "system",
        ours: &[
            "agent",
            "cluster",
            "extender",
            "host-kit",
            "install",
            "joulie-core",
            "judge",
            "kubectl-joulie",
            "operator",
            "rig",
            "simulator",
        ],
        ours_in_tests: &["nvml-stub"],
    },
    Allowed { name: "install", ours: &["cluster"], ours_in_tests: &["kubectl-joulie"] },
    Allowed { name: "judge", ours: &[], ours_in_tests: &[] },
    Allowed {
        name: "vm",
        ours: &["power-units", "power-hal", "hal-files", "hal-cpufreq", "joulie-api", "embedded-api"],
        ours_in_tests: &[],
    },
    Allowed {
        name: "world",
        ours: &[
            "power-units",
            "power-hal",
            "joulie-core",
            "joulie-api",
            "judge",
            "host-kit",
            "embedded-api",
            "agent",
            "operator",
            "extender",
            "simulator",
            "plant",
        ],
        ours_in_tests: &[],
    },
    Allowed { name: "rocm-stub", ours: &[], ours_in_tests: &[] },
    Allowed {
        name: "rig",
        ours: &["power-units", "power-hal", "plant", "nvml-stub", "rocm-stub"],
        ours_in_tests: &[],
    },
    Allowed {
        name: "xtask",
        ours: &[
            "power-units",
            "power-hal",
            "joulie-core",
            "hal-files",
            "hal-cpufreq",
            "hal-rapl",
            "hal-nvidia",
            "node-kit",
            "nvml-stub",
            "planner",
            "plant",
            "virtual-cluster",
        ],
        ours_in_tests: &["cluster"],
    },
];

/// Fails with every edge that is not permitted.
pub(crate) fn check(root: &Path) -> Result<()> {
    let wrong = violations(&metadata(root)?)?;
    if !wrong.is_empty() {
        bail!("edges that docs/ARCHITECTURE.md does not have:\n  {}", wrong.join("\n  "));
    }
    Ok(())
}

fn metadata(root: &Path) -> Result<Value> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(root).args(["metadata", "--no-deps", "--format-version", "1", "--locked"]);
    Ok(serde_json::from_slice(&super::succeed(&mut cargo)?.stdout)?)
}

fn violations(metadata: &Value) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for package in metadata["packages"].as_array().context("packages in the metadata")? {
        let name = package["name"].as_str().context("a package's name")?;
        let Some(allowed) = ALLOWED.iter().find(|allowed| allowed.name == name) else {
            wrong.push(format!("{name} is not in the table of xtask/src/edges.rs"));
            continue;
        };
        for dependency in package["dependencies"].as_array().context("a package's dependencies")? {
            let on = dependency["name"].as_str().context("a dependency's name")?;
            if !dependency["path"].is_string() {
                continue;
            }
            let in_tests = dependency["kind"].as_str() == Some("dev");
            if !(allowed.ours.contains(&on) || in_tests && allowed.ours_in_tests.contains(&on)) {
                wrong.push(format!("{name} → {on}{}", if in_tests { " (tests)" } else { "" }));
            }
        }
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn one(name: &str, dependency: &Value) -> Vec<String> {
        violations(&json!({"packages": [{"name": name, "dependencies": [dependency]}]})).unwrap()
    }

    #[test]
    fn the_workspace_has_only_the_edges_of_the_design() {
        check(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()).unwrap();
    }

    #[test]
    fn a_wrong_edge_is_named() {
        let ours = |name, kind: Option<&str>| json!({"name": name, "path": "/x", "kind": kind});
        assert_eq!(one("power-units", &ours("joulie-core", None)), ["power-units → joulie-core"]);
        assert_eq!(one("plant", &ours("joulie-core", None)), ["plant → joulie-core"]);
        assert_eq!(one("plant", &ours("joulie-core", Some("dev"))), [""; 0]);
        assert_eq!(one("plant", &json!({"name": "serde", "path": null, "kind": null})), [""; 0]);
        assert_eq!(
            one("newcomer", &ours("fixed", None)),
            ["newcomer is not in the table of xtask/src/edges.rs"]
        );
    }
}
