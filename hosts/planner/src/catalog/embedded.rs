//! The models that need no configuration. The figures are the vendors'; `density` is the published score of a
//! two-package node, or of a board, on the scale that the density metric uses.
//! a two-package node, or of a board, on the scale that the density metric uses.

use super::{Catalog, CatalogError, CpuModel, GpuModel};
use power_units::{KiloHertz, Ratio, Watts};

impl Catalog {
    /// The embedded models, as the base of a custom catalogue.
    #[must_use]
    pub fn embedded_models() -> (Vec<CpuModel>, Vec<GpuModel>) {
        (CPUS.iter().map(CpuFigures::model).collect(), GPUS.iter().map(GpuFigures::model).collect())
    }

    /// The catalogue of the embedded models alone.
    ///
    /// # Errors
    /// None in practice: a test checks that the embedded models are a valid catalogue.
    pub fn embedded() -> Result<Self, CatalogError> {
        let (cpus, gpus) = Self::embedded_models();
        Self::new(cpus, gpus)
    }
}

struct CpuFigures {
    key: &'static str,
    alias: Option<&'static str>,
    base_mhz: i32,
    boost_mhz: i32,
    tdp_w: i32,
    configurable_tdp_w: Option<(i32, i32)>,
    cores: u32,
    density_tenths: i64,
}

const CPUS: &[CpuFigures] = &[
    CpuFigures {
        key: "AMD_EPYC_9654",
        alias: Some("AMD EPYC 9654 96-Core Processor"),
        base_mhz: 2400,
        boost_mhz: 3700,
        tdp_w: 360,
        configurable_tdp_w: Some((320, 400)),
        cores: 96,
        density_tenths: 7104,
    },
    CpuFigures {
        key: "AMD_EPYC_9655",
        alias: Some("AMD EPYC 9655 96-Core Processor"),
        base_mhz: 2600,
        boost_mhz: 4500,
        tdp_w: 400,
        configurable_tdp_w: Some((320, 400)),
        cores: 96,
        density_tenths: 10_400,
    },
    CpuFigures {
        key: "AMD_EPYC_9965",
        alias: Some("AMD EPYC 9965 192-Core Processor"),
        base_mhz: 2250,
        boost_mhz: 3700,
        tdp_w: 500,
        configurable_tdp_w: Some((450, 500)),
        cores: 192,
        density_tenths: 17_760,
    },
    CpuFigures {
        key: "AMD_EPYC_9534",
        alias: Some("AMD EPYC 9534 64-Core Processor"),
        base_mhz: 2450,
        boost_mhz: 3700,
        tdp_w: 280,
        configurable_tdp_w: Some((240, 300)),
        cores: 64,
        density_tenths: 4736,
    },
    CpuFigures {
        key: "AMD_EPYC_9375F",
        alias: Some("AMD EPYC 9375F 32-Core Processor"),
        base_mhz: 3800,
        boost_mhz: 4800,
        tdp_w: 320,
        configurable_tdp_w: Some((320, 400)),
        cores: 32,
        density_tenths: 4864,
    },
    CpuFigures {
        key: "INTEL_XEON_GOLD_6530",
        alias: None,
        base_mhz: 2100,
        boost_mhz: 4000,
        tdp_w: 270,
        configurable_tdp_w: None,
        cores: 32,
        density_tenths: 2560,
    },
];

struct GpuFigures {
    key: &'static str,
    alias: Option<&'static str>,
    max_w: i32,
    min_w: i32,
}

const GPUS: &[GpuFigures] = &[
    GpuFigures { key: "NVIDIA_H100_NVL", alias: None, max_w: 400, min_w: 200 },
    GpuFigures { key: "NVIDIA_H100_SXM", alias: Some("NVIDIA-H100-80GB-HBM3"), max_w: 700, min_w: 350 },
    GpuFigures { key: "NVIDIA_L40S", alias: None, max_w: 350, min_w: 200 },
    GpuFigures { key: "AMD_INSTINCT_MI300X", alias: Some("AMD Instinct MI300X OAM"), max_w: 750, min_w: 350 },
    GpuFigures { key: "AMD_RADEON_PRO_W7900", alias: None, max_w: 295, min_w: 200 },
];

impl CpuFigures {
    fn model(&self) -> CpuModel {
        let mhz = |mhz: i32| KiloHertz::from_int(mhz).times(1000);
        CpuModel {
            key: self.key.to_owned(),
            aliases: self.alias.map(str::to_owned).into_iter().collect(),
            base: mhz(self.base_mhz),
            boost: mhz(self.boost_mhz),
            tdp: Watts::from_int(self.tdp_w),
            configurable_tdp: self
                .configurable_tdp_w
                .map(|(low, high)| (Watts::from_int(low), Watts::from_int(high))),
            cores: Some(self.cores),
            density: Some(Ratio::from_bits(((self.density_tenths << 32) + 5) / 10)),
        }
    }
}

impl GpuFigures {
    fn model(&self) -> GpuModel {
        GpuModel {
            key: self.key.to_owned(),
            aliases: self.alias.map(str::to_owned).into_iter().collect(),
            max: Watts::from_int(self.max_w),
            min: Some(Watts::from_int(self.min_w)),
            // The published score of every board is its highest power limit.
            density: Some(Ratio::from_int(self.max_w)),
        }
    }
}
