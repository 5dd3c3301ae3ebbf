//! Generates `hosts/deploy/kustomize`: the rendered chart with its default values, for `kubectl apply -k` and for
//! users without helm.

use crate::{Helm, by_template, deploy};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What is taken of a rendering of the chart.
#[derive(Clone, Copy, Debug)]
pub struct Rendering {
    /// The flags of helm.
    pub flags: &'static [&'static str],
    /// The included templates; empty for all.
    pub templates: &'static [&'static str],
}

impl Rendering {
    /// That of a folder of `hosts/deploy`, such as `kustomize/base`.
    #[must_use]
    pub fn of(folder: &str) -> Option<Self> {
        let folder = folder.strip_prefix("kustomize/")?;
        PARTS.iter().find(|part| part.folder == folder).map(Part::rendering)
    }

    /// Whether a template is included.
    #[must_use]
    pub fn includes(&self, template: &str) -> bool {
        self.templates.is_empty() || self.templates.contains(&template)
    }
}

/// A folder of the output.
struct Part {
    folder: &'static str,
    /// The flags of the rendering.
    flags: &'static [&'static str],
    /// The included templates; empty for all.
    templates: &'static [&'static str],
    /// The comment at the start of its kustomization.
    about: &'static str,
    /// Folders that it contains besides its own files.
    beside: &'static [&'static str],
}

impl Part {
    const fn rendering(&self) -> Rendering {
        Rendering { flags: self.flags, templates: self.templates }
    }
}

const PARTS: [Part; 10] = [
    Part {
        folder: "base",
        flags: &["--set", "createNamespace=true", "--set", "uninstall.enabled=false", "--skip-tests"],
        templates: &[],
        about: "Agents, operator and extender in namespace joulie-system, without the kinds.",
        beside: &[],
    },
    Part {
        folder: "pool",
        flags: &["--set", "agent.mode=pool"],
        templates: &["agent-pool.yaml"],
        about: "Agents that speak for many nodes over HTTP, beside the base.",
        beside: &[],
    },
    Part {
        folder: "performance-affinity",
        flags: &["--set", "performanceAffinity.enabled=true"],
        templates: &["performance-affinity.yaml"],
        about: "Performance pods keep off eco nodes while the extender is away too. Kubernetes 1.36 or later.",
        beside: &[],
    },
    Part {
        folder: "metrics-auth",
        flags: &["--set", "agent.mode=both,metricsTls.enabled=true,metricsAuth.enabled=true"],
        templates: &["metrics-auth.yaml"],
        about: "The rights that METRICS_AUTH=token needs, which the programs get from you with METRICS_TLS_CERT_FILE and METRICS_TLS_KEY_FILE.",
        beside: &[],
    },
    Part {
        folder: "rescheduling",
        flags: &["--set", "operator.rescheduling.enabled=true"],
        templates: &["rescheduling.yaml"],
        about: "The rights that ENABLE_ACTIVE_RESCHEDULING=true needs, which the operator gets from you.",
        beside: &[],
    },
    Part {
        folder: "energy-ledger",
        flags: &["--set", "agent.energyLedger.enabled=true"],
        templates: &["energy-ledger.yaml"],
        about: "The rights that ENERGY_LEDGER=on needs, which the agent gets from you with a mount of the kubelet's pod-resources.",
        beside: &[],
    },
    Part {
        folder: "gpu-placement",
        flags: &["--set", "gpuPlacement.enabled=true,gpuPlacement.bind=true,gpuPlacement.dra=read"],
        templates: &["gpu-placement.yaml"],
        about: "The rights that GPU_OBJECTS=on, GPU_PLACEMENT, GPU_BIND=true, GPU_DRA=read and GPU_REPAIR_AFTER need, which agent, extender and operator get from you with a mount of the kubelet's pod-resources.",
        beside: &[],
    },
    Part {
        folder: "uninstall",
        flags: &[],
        templates: &["uninstall.yaml"],
        about: "A Job that releases every node and waits for it, to be applied before the base is taken away.",
        beside: &[],
    },
    Part {
        folder: "simulator",
        flags: &["--set", "simulator.enabled=true"],
        templates: &["simulator.yaml"],
        about: "For demonstrations and tests only: the simulator may create and delete pods in every namespace.",
        beside: &[],
    },
    Part {
        folder: "",
        flags: &[],
        templates: &["none"],
        about: "All that a cluster needs: the kinds and the base.",
        beside: &["../chart-crds/files", "base"],
    },
];

const HEADER: &str = "# Rendered from hosts/deploy/chart by `cargo xtask codegen`; changes here are lost.\n";

/// The location of the output.
#[must_use]
pub fn folder() -> PathBuf {
    deploy().join("kustomize")
}

/// Every file of the output, by its path below the folder.
///
/// # Errors
/// If the chart cannot be rendered.
pub fn files(helm: &Helm) -> Result<BTreeMap<PathBuf, String>, String> {
    let mut files = BTreeMap::new();
    for part in &PARTS {
        let folder = PathBuf::from(part.folder);
        let mut kustomization = format!(
            "{HEADER}# {}\napiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n",
            part.about
        );
        for beside in part.beside {
            kustomization.push_str(&format!("  - {beside}\n"));
        }
        for (template, documents) in by_template(&helm.template("chart", part.flags)?) {
            if part.rendering().includes(&template) {
                kustomization.push_str(&format!("  - {template}\n"));
                files.insert(folder.join(template), format!("{HEADER}{}", documents.join("---\n")));
            }
        }
        files.insert(folder.join("kustomization.yaml"), kustomization);
    }
    Ok(files)
}
