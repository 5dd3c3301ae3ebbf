//! Which rights of the chart are used by a story of `tests-hil/system`, as the API server's log of requests shows.
//!
//! A rule that none of these parts renders is used by nobody as far as anybody knows; a test finds it in the templates.

use crate::kustomize::Rendering;

/// What a story installs, and whose rights it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditedPart {
    /// What the stories of the whole system have.
    Installed,
    /// What pods with GPUs need.
    GpuPlacement,
    /// What the agents' energy ledger needs.
    EnergyLedger,
    /// What other values add to that: the operator's live page, bounds on performance, an account for bind, and a second scheduler.
    Options,
}

impl AuditedPart {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Installed, Self::GpuPlacement, Self::EnergyLedger, Self::Options];

    /// The folders of `hosts/deploy` that are installed, in their order; none where helm has to render them.
    #[must_use]
    pub const fn folders(self) -> &'static [&'static str] {
        match self {
            Self::Installed => &[
                "kustomize/base",
                "kustomize/metrics-auth",
                "kustomize/pool",
                "kustomize/rescheduling",
                "kustomize/simulator",
            ],
            Self::GpuPlacement => &["kustomize/gpu-placement"],
            Self::EnergyLedger => &["kustomize/energy-ledger"],
            Self::Options => &[],
        }
    }

    /// The renderings of the chart that it is.
    #[must_use]
    pub fn renderings(self) -> Vec<Rendering> {
        match self {
            Self::Options => vec![Rendering { flags: OPTIONS, templates: &[] }],
            Self::Installed | Self::GpuPlacement | Self::EnergyLedger => {
                self.folders().iter().filter_map(|folder| Rendering::of(folder)).collect()
            }
        }
    }
}

/// SHORTLIST has the extender and the binder watch Services, too.
const OPTIONS: &[&str] = &[
    "--set",
    "createNamespace=true,uninstall.enabled=false",
    "--skip-tests",
    "--set",
    "operator.ui=read,operator.config.PERFORMANCE_NAMESPACES=elsewhere",
    "--set",
    "gpuPlacement.enabled=true,gpuPlacement.bind=true,gpuPlacement.bindAccount=own,gpuPlacement.dra=read",
    "--set",
    "schedulerExtender.env.SHORTLIST=safe",
    "--set",
    "scheduler.enabled=true,scheduler.image.repository=kube-scheduler,scheduler.image.tag=v1.36.3",
];
