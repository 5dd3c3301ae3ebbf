//! The hardware catalogue: published facts about the models that clusters use.
//!
//! Names are compared after normalisation and must be equal; parts of a name are never matched. The catalogue is
//! refused when two models claim one name, so a look-up has at most one answer. The catalogue never says what hardware
//! a node has: it only describes a model that the node or its label named.

use power_units::{KiloHertz, Ratio, Watts};
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// The facts of every model, indexed by its names.
#[derive(Clone, Debug)]
pub struct Catalog {
    cpus: Vec<Arc<CpuModel>>,
    gpus: Vec<Arc<GpuModel>>,
    cpu_names: Names,
    gpu_names: Names,
}

/// A model of processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuModel {
    /// The name in objects, families and metrics.
    pub key: String,
    /// Other names of the same model.
    pub aliases: Vec<String>,
    /// The guaranteed frequency.
    pub base: KiloHertz,
    /// The highest frequency of one core.
    pub boost: KiloHertz,
    /// The design power of one package.
    pub tdp: Watts,
    /// The lowest and highest design power that one package can be configured for.
    pub configurable_tdp: Option<(Watts, Watts)>,
    /// Cores of one package, without multithreading.
    pub cores: Option<u32>,
    /// Relative compute of a node with two packages.
    pub density: Option<Ratio>,
}

/// A model of graphics processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuModel {
    /// The name in objects, families and metrics.
    pub key: String,
    /// Other names of the same model.
    pub aliases: Vec<String>,
    /// The highest power limit of one board.
    pub max: Watts,
    /// The lowest power limit of one board.
    pub min: Option<Watts>,
    /// Relative compute of one board.
    pub density: Option<Ratio>,
}

/// Why a catalogue is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogError {
    /// A key or an alias has no letter or digit.
    BlankName {
        /// The model's key as written.
        key: String,
    },
    /// A figure that must be above zero is not.
    NotPositive {
        /// The model's key.
        key: String,
        /// Which figure.
        figure: &'static str,
    },
    /// The lower end of a range is above the upper one.
    Inverted {
        /// The model's key.
        key: String,
        /// Which range.
        range: &'static str,
    },
    /// Two models claim the same name.
    Ambiguous {
        /// The name, normalised.
        name: String,
        /// The keys of the two models.
        keys: [String; 2],
    },
}

impl fmt::Display for CatalogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BlankName { key } => {
                write!(f, "model {key:?}: expected keys and aliases with at least one letter or digit")
            }
            Self::NotPositive { key, figure } => write!(f, "model {key:?}: expected {figure} above 0"),
            Self::Inverted { key, range } => {
                write!(f, "model {key:?}: expected a {range} whose lower end is not above its upper end")
            }
            Self::Ambiguous { name, keys: [first, second] } => {
                write!(f, "the name {name:?} belongs to both {first:?} and {second:?}; expected one of them")
            }
        }
    }
}

impl std::error::Error for CatalogError {}

impl Catalog {
    /// A catalogue of these models.
    ///
    /// # Errors
    /// When a figure is impossible or a name is ambiguous.
    pub fn new(cpus: Vec<CpuModel>, gpus: Vec<GpuModel>) -> Result<Self, CatalogError> {
        cpus.iter().try_for_each(CpuModel::check)?;
        gpus.iter().try_for_each(GpuModel::check)?;
        let cpu_names = Names::of(cpus.iter().map(|cpu| (&cpu.key, &cpu.aliases)))?;
        let gpu_names = Names::of(gpus.iter().map(|gpu| (&gpu.key, &gpu.aliases)))?;
        let (cpus, gpus) = (cpus.into_iter().map(Arc::new), gpus.into_iter().map(Arc::new));
        Ok(Self { cpus: cpus.collect(), gpus: gpus.collect(), cpu_names, gpu_names })
    }

    /// The processor with this name.
    #[must_use]
    pub fn cpu(&self, name: &str) -> Option<&Arc<CpuModel>> {
        self.cpu_names.find(name).and_then(|at| self.cpus.get(at))
    }

    /// The graphics processor with this name.
    #[must_use]
    pub fn gpu(&self, name: &str) -> Option<&Arc<GpuModel>> {
        self.gpu_names.find(name).and_then(|at| self.gpus.get(at))
    }
}

impl CpuModel {
    /// The most that one package may draw or be capped to, for planning, capping and simulation (ADR 5): the upper end
    /// of its configurable design power, else its design power. Firmware or a person may have set a socket's power
    /// limit up to that end, not only to the default.
    #[must_use]
    pub fn most(&self) -> Watts {
        self.configurable_tdp.map_or(self.tdp, |(_, high)| high.max(self.tdp))
    }

    /// The lowest published design power of one package; `None` where only one is published.
    #[must_use]
    pub fn least(&self) -> Option<Watts> {
        self.configurable_tdp.map(|(low, _)| low.min(self.tdp))
    }

    fn check(&self) -> Result<(), CatalogError> {
        let positive = |figure, holds| positive(&self.key, figure, holds);
        positive("a base frequency", self.base > KiloHertz::ZERO)?;
        positive("a boost frequency", self.boost > KiloHertz::ZERO)?;
        positive("a design power", self.tdp > Watts::ZERO)?;
        positive("a number of cores", self.cores != Some(0))?;
        positive("a compute density", self.density.is_none_or(|density| density > Ratio::ZERO))?;
        if let Some((low, high)) = self.configurable_tdp {
            positive("a configurable design power", low > Watts::ZERO)?;
            ordered(&self.key, "configurable design power", low <= high)?;
        }
        Ok(())
    }
}

impl GpuModel {
    fn check(&self) -> Result<(), CatalogError> {
        let positive = |figure, holds| positive(&self.key, figure, holds);
        positive("a highest power limit", self.max > Watts::ZERO)?;
        positive("a lowest power limit", self.min.is_none_or(|min| min > Watts::ZERO))?;
        positive("a compute density", self.density.is_none_or(|density| density > Ratio::ZERO))?;
        ordered(&self.key, "power limit", self.min.is_none_or(|min| min <= self.max))
    }
}

fn positive(key: &str, figure: &'static str, holds: bool) -> Result<(), CatalogError> {
    if holds { Ok(()) } else { Err(CatalogError::NotPositive { key: key.to_owned(), figure }) }
}

fn ordered(key: &str, range: &'static str, holds: bool) -> Result<(), CatalogError> {
    if holds { Ok(()) } else { Err(CatalogError::Inverted { key: key.to_owned(), range }) }
}

/// Normalised names, sorted, each with the index of its model.
#[derive(Clone, Debug)]
struct Names(Vec<(String, usize)>);

impl Names {
    fn of<'a>(models: impl Iterator<Item = (&'a String, &'a Vec<String>)>) -> Result<Self, CatalogError> {
        let mut names = Vec::new();
        let mut keys = Vec::new();
        for (at, (key, aliases)) in models.enumerate() {
            keys.push(key);
            for name in std::iter::once(key).chain(aliases) {
                let name: String = normal(name).collect();
                if name.is_empty() {
                    return Err(CatalogError::BlankName { key: key.clone() });
                }
                names.push((name, at));
            }
        }
        names.sort_unstable();
        // A model may repeat its own name; two models may not share one, not even under the same key.
        names.dedup();
        for pair in names.windows(2) {
            if let [(name, first), (other, second)] = pair
                && name == other
            {
                let keys =
                    [first, second].map(|&at| keys.get(at).map_or_else(String::new, |key| (*key).clone()));
                return Err(CatalogError::Ambiguous { name: name.clone(), keys });
            }
        }
        Ok(Self(names))
    }

    fn find(&self, name: &str) -> Option<usize> {
        let found = self.0.binary_search_by(|(known, _)| known.chars().cmp(normal(name)));
        found.ok().and_then(|at| self.0.get(at)).map(|&(_, model)| model)
    }
}

/// A name in normal form: lower case, without `(r)`, `®` and `™`, and with one space for any run of spaces and `( ) -
/// _ / ,` between words.
/// `( ) - _ / ,` between words.
pub(crate) fn normal(name: &str) -> impl Iterator<Item = char> {
    Normal { rest: name, gap: false, begun: false }
}

/// Whether two names are the same to the catalogue.
#[must_use]
pub fn is_same_name(a: &str, b: &str) -> bool {
    compare(a, b) == Ordering::Equal
}

/// Compares two names as the catalogue does.
pub(crate) fn compare(a: &str, b: &str) -> Ordering {
    if a == b { Ordering::Equal } else { normal(a).cmp(normal(b)) }
}

struct Normal<'a> {
    rest: &'a str,
    gap: bool,
    begun: bool,
}

impl Iterator for Normal<'_> {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        loop {
            if self.rest.get(..3).is_some_and(|head| head.eq_ignore_ascii_case("(r)")) {
                self.rest = self.rest.get(3..).unwrap_or_default();
                continue;
            }
            let mut chars = self.rest.chars();
            let next = chars.next()?;
            if matches!(next, '(' | ')' | '-' | '_' | '/' | ',') || next.is_whitespace() {
                self.gap = self.begun;
            } else if !matches!(next, '®' | '™') {
                if std::mem::take(&mut self.gap) {
                    return Some(' ');
                }
                self.begun = true;
                self.rest = chars.as_str();
                return Some(next.to_ascii_lowercase());
            }
            self.rest = chars.as_str();
        }
    }
}

mod embedded;

#[cfg(test)]
mod tests;
