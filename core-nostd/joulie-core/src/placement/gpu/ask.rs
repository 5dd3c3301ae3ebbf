//! The request of a GPU pod: `gpu-extender.mle.com/model`, `/vram-mb`, `/link` and `/packing`, and its GPU count.

use super::{Model, Vram};
use core::fmt;
use core::num::NonZeroU32;

/// Some models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ModelSet(u128);

impl ModelSet {
    /// No model: no card is of it.
    pub const EMPTY: Self = Self(0);

    /// This set and one more model. A model beyond the 128th is in no set.
    #[must_use]
    pub const fn with(self, Model(number): Model) -> Self {
        match 1_u128.checked_shl(number) {
            Some(bit) => Self(self.0 | bit),
            None => self,
        }
    }

    /// Whether the model is in it.
    #[must_use]
    pub const fn has(self, Model(number): Model) -> bool {
        match 1_u128.checked_shl(number) {
            Some(bit) => self.0 & bit != 0,
            None => false,
        }
    }
}

/// How the links between cards matter to a pod that asks for several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Link {
    /// All of them must be in one island.
    Required,
    /// They are taken from as few islands as possible.
    #[default]
    Preferred,
    /// They do not matter.
    None,
}

impl Link {
    /// Reads the annotation.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        match text {
            "required" => Some(Self::Required),
            "preferred" => Some(Self::Preferred),
            "none" => Some(Self::None),
            _ => None,
        }
    }
}

/// Which nodes score higher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Packing {
    /// Those whose cards are used already, so that whole nodes and islands stay free.
    #[default]
    Pack,
    /// Those whose cards are free.
    Spread,
}

impl Packing {
    /// Reads the setting and the annotation.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        match text {
            "pack" => Some(Self::Pack),
            "spread" => Some(Self::Spread),
            _ => None,
        }
    }
}

/// What a pod requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GpuRequest {
    models: Option<ModelSet>,
    vram_mb: Option<NonZeroU32>,
    count: NonZeroU32,
    link: Link,
    packing: Packing,
}

/// Why a request is not valid. Such a pod fits nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskError {
    /// A number of GPUs below one or too large.
    Count(i64),
    /// An amount of VRAM below one or too large.
    Vram(i64),
}

/// Which part of what a pod asks for is not valid. Users see its text in the pod's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadWish {
    /// The model is empty, or no text.
    Model,
    /// The VRAM is no whole number of MB above 0.
    Vram,
    /// The link is another word.
    Link,
    /// The packing is another word.
    Packing,
    /// It says which GPUs it wants, and asks for none.
    NoCount,
}

impl fmt::Display for BadWish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Model => "the annotation gpu-extender.mle.com/model names no model",
            Self::Vram => "the annotation gpu-extender.mle.com/vram-mb is no whole number of MB above 0",
            Self::Link => "the annotation gpu-extender.mle.com/link is not required, preferred or none",
            Self::Packing => "the annotation gpu-extender.mle.com/packing is not pack or spread",
            Self::NoCount => "the pod has annotations about GPUs and no limit such as nvidia.com/gpu",
        })
    }
}

impl core::error::Error for BadWish {}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "a GPU pod asks for one GPU or more, not {count}"),
            Self::Vram(mb) => write!(f, "VRAM is asked for as 1 MB or more, up to 4294967295, not {mb}"),
        }
    }
}

impl core::error::Error for AskError {}

impl GpuRequest {
    /// `count` cards, of any model or of one, with this much free VRAM on each, or without any allocation.
    ///
    /// # Errors
    /// When the count or the VRAM is below one or beyond what any card has.
    pub fn new(model: Option<Model>, vram_mb: Option<i64>, count: i64) -> Result<Self, AskError> {
        let positive = |number: i64| u32::try_from(number).ok().and_then(NonZeroU32::new);
        let vram_mb = match vram_mb {
            Some(mb) => Some(positive(mb).ok_or(AskError::Vram(mb))?),
            None => None,
        };
        let count = positive(count).ok_or(AskError::Count(count))?;
        let models = model.map(|model| ModelSet::EMPTY.with(model));
        Ok(Self { models, vram_mb, count, link: Link::Preferred, packing: Packing::Pack })
    }

    /// The same of these models.
    #[must_use]
    pub const fn of(self, models: ModelSet) -> Self {
        Self { models: Some(models), ..self }
    }

    /// The same with these links.
    #[must_use]
    pub const fn linked(self, link: Link) -> Self {
        Self { link, ..self }
    }

    /// The same with this packing.
    #[must_use]
    pub const fn packed(self, packing: Packing) -> Self {
        Self { packing, ..self }
    }

    /// The models of which every card must be one; `None` if any will do.
    #[must_use]
    pub const fn models(self) -> Option<ModelSet> {
        self.models
    }

    /// Whether a card of this model is one of those asked for. One whose model is not known may be.
    #[must_use]
    pub fn may_take(self, model: Option<Model>) -> bool {
        match (self.models, model) {
            (None, _) | (_, None) => true,
            (Some(models), Some(model)) => models.has(model),
        }
    }

    /// How links matter.
    #[must_use]
    pub const fn link(self) -> Link {
        self.link
    }

    /// Whether all cards must be in one island.
    #[must_use]
    pub fn needs_island(self) -> bool {
        self.link == Link::Required && self.count() > 1
    }

    /// Which nodes score higher.
    #[must_use]
    pub const fn packing(self) -> Packing {
        self.packing
    }

    /// How many cards.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.count.get()
    }

    /// What it uses of a card: the requested VRAM, or all of it.
    #[must_use]
    pub fn need_mb(self, vram: Vram) -> u32 {
        self.vram_mb.map_or(vram.total_mb(), NonZeroU32::get)
    }
}
