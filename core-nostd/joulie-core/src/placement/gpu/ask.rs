//! The request of a GPU pod: `gpu-extender.mle.com/model`, `gpu-extender.mle.com/vram-mb`, and its GPU count.

use super::{Model, Vram};
use core::fmt;
use core::num::NonZeroU32;

/// What a pod requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GpuRequest {
    model: Option<Model>,
    vram_mb: Option<NonZeroU32>,
    count: NonZeroU32,
}

/// Why a request is not valid. Such a pod fits nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskError {
    /// A number of GPUs below one or too large.
    Count(i64),
    /// An amount of VRAM below one or too large.
    Vram(i64),
}

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
        Ok(Self { model, vram_mb, count: positive(count).ok_or(AskError::Count(count))? })
    }

    /// The model that every card must be of.
    #[must_use]
    pub const fn model(self) -> Option<Model> {
        self.model
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
