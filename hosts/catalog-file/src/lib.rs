//! Reads a hardware catalogue from a file (YAML, in the format of the first implementation) on top of the built-in one.
//!
//! A model of the file takes the place of the built-in model of the same name; the others stay. The whole file is refused for one thing
//! that cannot be: an unknown field, a figure out of range, a name that belongs to two models. Whoever wrote it is told the line or
//! the field. What nothing here reads (`provenance`, `measuredCurves`, `proxyFrom`, `performanceHints`) may be there.
#![forbid(unsafe_code)]

mod document;

use document::{CpuEntry, Document, GpuEntry, Range};
use planner::catalog::{Catalog, CatalogError, CpuModel, GpuModel};
use power_units::{KiloHertz, Ratio, Role, Watts};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The largest file: that of the first implementation has 20 KiB.
const BYTES_MAX: usize = 1 << 20;
const MODELS_MAX: usize = 1000;
const ALIASES_MAX: usize = 64;
const NAME_MAX: usize = 200;
/// Above any processor, board, and score.
const GHZ_MAX: f64 = 100.0;
const WATTS_MAX: f64 = 100_000.0;
const DENSITY_MAX: f64 = 1e9;

/// Why a file is refused.
#[derive(Debug)]
pub enum CatalogFileError {
    /// It cannot be read.
    Read(PathBuf, std::io::Error),
    /// What it says is refused.
    Content(PathBuf, ContentError),
}

/// Why what a file says is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContentError {
    /// It is larger than any catalogue.
    TooLarge,
    /// It is no YAML of this form; with the line.
    Form(String),
    /// A field has a value that cannot be.
    Field {
        /// The path of the field.
        field: String,
        /// What was expected, and what is there.
        why: String,
    },
    /// The models do not go together.
    Models(CatalogError),
}

impl fmt::Display for CatalogFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Content(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for CatalogFileError {}

impl fmt::Display for ContentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge => write!(f, "it is larger than {} KiB", BYTES_MAX >> 10),
            Self::Form(why) => f.write_str(why),
            Self::Field { field, why } => write!(f, "{field}: {why}"),
            Self::Models(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ContentError {}

/// The catalogue of a file on top of the built-in one; without a file the built-in one alone.
///
/// # Errors
/// If the file cannot be read, or is refused.
pub fn load(path: Option<&Path>) -> Result<Catalog, CatalogFileError> {
    let Some(path) = path else {
        return Catalog::embedded()
            .map_err(|error| CatalogFileError::Content(PathBuf::new(), ContentError::Models(error)));
    };
    let read = || -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let most = u64::try_from(BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
        File::open(path)?.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|error| CatalogFileError::Read(path.to_owned(), error))?;
    parse(&bytes).map_err(|error| CatalogFileError::Content(path.to_owned(), error))
}

/// The catalogue of these bytes on top of the built-in one.
///
/// # Errors
/// If anything in it is refused.
pub fn parse(bytes: &[u8]) -> Result<Catalog, ContentError> {
    if bytes.len() > BYTES_MAX {
        return Err(ContentError::TooLarge);
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let line = bytes.iter().take(error.valid_up_to()).filter(|byte| **byte == b'\n').count() + 1;
        ContentError::Form(format!("line {line}: it is not UTF-8"))
    })?;
    let document = Document::read(text).map_err(ContentError::Form)?;
    if document.catalog_version.trim().is_empty() {
        return Err(refused("catalogVersion", "expected a version, found nothing"));
    }
    for (field, count) in [("cpuModels", document.cpu_models.len()), ("gpuModels", document.gpu_models.len())]
    {
        if count > MODELS_MAX {
            return Err(refused(field, &format!("expected at most {MODELS_MAX} models, found {count}")));
        }
    }
    let (mut cpus, mut gpus) = Catalog::embedded_models();
    // Models of the file take the place of built-in ones alone: two of one name in the file are refused.
    let (mut more_cpus, mut more_gpus) = (Vec::new(), Vec::new());
    for (key, entry) in &document.cpu_models {
        let at = cpus.iter().position(|known| planner::catalog::is_same_name(&known.key, key));
        let before = at.map(|at| cpus.remove(at));
        more_cpus.push(cpu(key, entry, before.as_ref())?);
    }
    for (key, entry) in &document.gpu_models {
        gpus.retain(|known| !planner::catalog::is_same_name(&known.key, key));
        more_gpus.push(gpu(key, entry)?);
    }
    cpus.append(&mut more_cpus);
    gpus.append(&mut more_gpus);
    Catalog::new(cpus, gpus).map_err(ContentError::Models)
}

fn refused(field: &str, why: &str) -> ContentError {
    ContentError::Field { field: field.to_owned(), why: why.to_owned() }
}

/// A model of processor. The format has no number of cores: that of the built-in model stays.
fn cpu(key: &str, entry: &CpuEntry, before: Option<&CpuModel>) -> Result<CpuModel, ContentError> {
    let at = |field: &str| format!("cpuModels.{key}.{field}");
    let CpuEntry { aliases, compute_density, official, .. } = entry;
    names("cpuModels", key, aliases)?;
    curve(&at("measuredCurves.node2S.points"), entry)?;
    let range = |Range { low, high }: &Range| {
        let field = at("official.cTdpRangeW");
        Ok((watts(&field, *low)?, watts(&field, *high)?))
    };
    Ok(CpuModel {
        key: key.to_owned(),
        aliases: aliases.clone(),
        base: frequency(&at("official.baseGHz"), official.base)?,
        boost: frequency(&at("official.boostGHz"), official.boost)?,
        tdp: watts(&at("official.tdpW"), official.tdp)?,
        configurable_tdp: official.configurable.as_ref().map(range).transpose()?,
        cores: before.and_then(|before| before.cores),
        density: compute_density.map(|it| density(&at("computeDensity"), it)).transpose()?,
    })
}

fn gpu(key: &str, entry: &GpuEntry) -> Result<GpuModel, ContentError> {
    let at = |field: &str| format!("gpuModels.{key}.{field}");
    let GpuEntry { aliases, compute_density, official, .. } = entry;
    names("gpuModels", key, aliases)?;
    Ok(GpuModel {
        key: key.to_owned(),
        aliases: aliases.clone(),
        max: watts(&at("official.maxBoardPowerW"), official.max)?,
        min: official.min.map(|min| watts(&at("official.minBoardPowerW"), min)).transpose()?,
        density: compute_density.map(|it| density(&at("computeDensity"), it)).transpose()?,
    })
}

/// Names are written into objects and metrics.
fn names(list: &str, key: &str, aliases: &[String]) -> Result<(), ContentError> {
    let is_name = |name: &str| {
        let mut letters = name.chars();
        name.chars().count() <= NAME_MAX && letters.all(|letter| !letter.is_control())
    };
    if !is_name(key) {
        let shown: String = key.chars().filter(|letter| !letter.is_control()).take(40).collect();
        let why = format!("expected a name of at most {NAME_MAX} characters on one line");
        return Err(refused(&format!("{list}.{shown}"), &why));
    }
    if aliases.len() > ALIASES_MAX {
        let why = format!("expected at most {ALIASES_MAX}, found {}", aliases.len());
        return Err(refused(&format!("{list}.{key}.aliases"), &why));
    }
    match aliases.iter().position(|alias| !is_name(alias)) {
        None => Ok(()),
        Some(at) => {
            let why = format!("expected a name of at most {NAME_MAX} characters on one line");
            Err(refused(&format!("{list}.{key}.aliases[{at}]"), &why))
        }
    }
}

fn curve(field: &str, entry: &CpuEntry) -> Result<(), ContentError> {
    match entry.points() {
        Some(0) => Err(refused(field, "expected at least one point, found none")),
        Some(_) | None => Ok(()),
    }
}

fn within(field: &str, number: f64, (unit, most): (&str, f64)) -> Result<f64, ContentError> {
    // Not a number is not above 0.
    if number > 0.0 && number <= most {
        return Ok(number);
    }
    Err(refused(field, &format!("expected a number of {unit} above 0 and up to {most}, found {number}")))
}

/// The decimal text of a number, which is the shortest that is this number.
fn decimal<Q>(field: &str, number: f64, parse: impl FnOnce(&str) -> Option<Q>) -> Result<Q, ContentError> {
    let text = number.to_string();
    parse(&text).ok_or_else(|| {
        refused(field, &format!("expected a number that can be kept exactly enough, found {text}"))
    })
}

fn watts(field: &str, number: f64) -> Result<Watts, ContentError> {
    let number = within(field, number, ("watts", WATTS_MAX))?;
    decimal(field, number, |text| Watts::parse(text, Role::Nearest).ok())
}

fn density(field: &str, number: f64) -> Result<Ratio, ContentError> {
    let number = within(field, number, ("points", DENSITY_MAX))?;
    decimal(field, number, |text| Ratio::parse(text, Role::Nearest).ok())
}

fn frequency(field: &str, number: f64) -> Result<KiloHertz, ContentError> {
    let number = within(field, number, ("GHz", GHZ_MAX))?;
    // Up to 100 million kHz, so that it is a whole number of 32 bits.
    decimal(field, (number * 1e6).round(), |text| text.parse().ok().map(KiloHertz::from_int))
}

#[cfg(test)]
mod tests;
