//! The journal's file: its format, and how it is replaced.

use super::JournalEntry;
use crate::BackendKind;
use power_hal::{Control, Key, Original, Setting};
use power_units::{KiloHertz, MicroWatts, Percent, Role};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

pub(super) const NAME: &str = "originals.json";
const FORMAT: &str = "joulie originals";
const VERSION: u32 = 1;
/// Enough for ten thousand entries; a larger file was not written by this program.
const SIZE_MAX: u64 = 4 << 20;

/// The id of a boot of the machine.
#[derive(Clone, Debug)]
pub struct Boot {
    id: String,
    /// Whether another kernel started this one, without the firmware: the registers kept their content.
    by_kexec: bool,
}

impl PartialEq for Boot {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Boot {}

/// The kernel's number of its boot loader if that was another kernel: type 0xd, version 0.
const KEXEC: &str = "208";

impl Boot {
    /// The current boot, as the kernel reports it.
    ///
    /// # Errors
    /// When the kernel does not report it.
    pub fn of_the_kernel() -> Result<Self, JournalError> {
        let path = Path::new("/proc/sys/kernel/random/boot_id");
        let text = std::fs::read_to_string(path).map_err(|error| JournalError::at(path, error.into()))?;
        let boot = Self::new(text.trim()).ok_or_else(|| JournalError::at(path, Why::NoBoot))?;
        // If the kernel does not report it, the firmware counts as having run: then only our own entries are restored.
        let loader = std::fs::read_to_string("/proc/sys/kernel/bootloader_type").unwrap_or_default();
        Ok(if loader.trim() == KEXEC { boot.by_kexec() } else { boot })
    }

    /// A boot by its id, which is a short printable text.
    #[must_use]
    pub fn new(id: &str) -> Option<Self> {
        let visible = !id.is_empty() && id.len() <= 64 && id.bytes().all(|byte| byte.is_ascii_graphic());
        visible.then(|| Self { id: id.to_owned(), by_kexec: false })
    }

    /// The same boot, started by another kernel.
    #[must_use]
    pub fn by_kexec(self) -> Self {
        Self { by_kexec: true, ..self }
    }

    /// Whether the limit of an earlier boot is still in force: kexec resets no hardware, but loses the kernel's own
    /// state.
    pub(super) fn keeps(&self, entry: &JournalEntry) -> bool {
        self.by_kexec && entry.control == Control::Power
    }
}

/// Why a journal cannot be used.
#[derive(Debug)]
pub struct JournalError {
    path: PathBuf,
    why: Why,
}

#[derive(Debug)]
enum Why {
    Io(io::Error),
    TooLarge,
    Text(serde_json::Error),
    Foreign,
    Newer(u32),
    NoBoot,
    Entry { number: usize, field: &'static str, value: String },
    Twice { number: usize },
}

impl From<io::Error> for Why {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl JournalError {
    fn at(path: &Path, why: Why) -> Self {
        Self { path: path.to_owned(), why }
    }
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.why {
            Why::Io(error) => return write!(f, "cannot read {path}: {error}"),
            Why::Newer(version) => {
                return write!(
                    f,
                    "{path} was written by a later version of joulie (format {version}, this one knows {VERSION}); \
                     run that one, or restore the originals with it first"
                );
            }
            Why::NoBoot => write!(f, "{path} does not say which boot it is of")?,
            Why::TooLarge => write!(f, "{path} is larger than any journal of originals")?,
            Why::Text(error) => write!(f, "{path} is not a journal of originals: {error}")?,
            Why::Foreign => {
                write!(f, "{path} is not a journal of originals: its format is not \"{FORMAT}\"")?
            }
            Why::Entry { number, field, value } => {
                write!(f, "{path}: original {number} has an unusable {field}: {value:?}")?;
            }
            Why::Twice { number } => write!(f, "{path}: original {number} is there twice")?,
        }
        f.write_str(
            "; nothing was written to the hardware. It holds what was in force before: mend it, or move it away to \
             take what is in force now as the originals, which is then the owner's limit that no cap exceeds",
        )
    }
}

impl std::error::Error for JournalError {}

#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) entry: JournalEntry,
    pub(super) original: Original,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    format: String,
    version: u32,
    boot: String,
    originals: Vec<Line>,
}

/// Only the fields that tell whether the rest can be parsed.
#[derive(Deserialize)]
struct Head {
    format: Option<String>,
    version: Option<u32>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    backend: String,
    domain: String,
    control: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    was: Option<String>,
    layout: u8,
    words: Vec<u64>,
}

/// The boot that wrote the journal and its entries; `None` if there is no file.
pub(super) fn read(path: &Path) -> Result<Option<(Boot, Vec<Held>)>, JournalError> {
    let failed = |why| JournalError::at(path, why);
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error.into())),
    };
    let mut text = Vec::new();
    let size = file.take(SIZE_MAX + 1).read_to_end(&mut text).map_err(|error| failed(error.into()))?;
    if u64::try_from(size).is_ok_and(|size| size > SIZE_MAX) {
        return Err(failed(Why::TooLarge));
    }
    parse(&text).map(Some).map_err(failed)
}

fn parse(text: &[u8]) -> Result<(Boot, Vec<Held>), Why> {
    let head: Head = serde_json::from_slice(text).map_err(Why::Text)?;
    if head.format.as_deref() != Some(FORMAT) {
        return Err(Why::Foreign);
    }
    if let Some(version) = head.version.filter(|&version| version > VERSION) {
        return Err(Why::Newer(version));
    }
    let document: Document = serde_json::from_slice(text).map_err(Why::Text)?;
    let boot = Boot::new(&document.boot).ok_or(Why::NoBoot)?;
    let mut held: Vec<Held> = Vec::with_capacity(document.originals.len());
    for (number, line) in (1..).zip(document.originals) {
        let next = line.understand().map_err(|(field, value)| Why::Entry { number, field, value })?;
        let entry = &next.entry;
        if held.iter().any(|other| other.entry.is_of(entry.backend, &entry.domain, entry.control)) {
            return Err(Why::Twice { number });
        }
        held.push(next);
    }
    Ok((boot, held))
}

impl Line {
    fn of(held: &Held) -> Self {
        let JournalEntry { backend, domain, control, was } = held.entry;
        Self {
            backend: backend.label().to_owned(),
            domain: domain.as_str().to_owned(),
            control: control.label().to_owned(),
            was: was.map(say),
            layout: held.original.layout(),
            words: held.original.words().to_vec(),
        }
    }

    fn understand(self) -> Result<Held, (&'static str, String)> {
        let backend = BackendKind::from_label(&self.backend).ok_or(("backend", self.backend))?;
        let domain = Key::parse(&self.domain).map_err(|_| ("domain", self.domain))?;
        let control = Control::from_label(&self.control).ok_or(("control", self.control))?;
        let original = Original::new(self.layout, &self.words)
            .ok_or_else(|| ("words", format!("{} of them", self.words.len())))?;
        let was = match self.was {
            None => None,
            Some(text) => Some(hear(&text).filter(|was| was.control() == control).ok_or(("was", text))?),
        };
        Ok(Held { entry: JournalEntry { backend, domain, control, was }, original })
    }
}

fn say(setting: Setting) -> String {
    match setting {
        Setting::Power(power) => format!("{} uW", power.get()),
        Setting::Frequency(frequency) => format!("{} kHz", frequency.to_whole(Role::Limit)),
        Setting::Throttle(percent) => format!("{} %", percent.round()),
    }
}

fn hear(text: &str) -> Option<Setting> {
    let (number, unit) = text.split_once(' ')?;
    match unit {
        "uW" => Some(Setting::Power(MicroWatts::new(number.parse().ok()?))),
        "kHz" => Some(Setting::Frequency(KiloHertz::from_int(number.parse().ok()?))),
        "%" => Some(Setting::Throttle(Percent::from_int(number.parse().ok()?))),
        _ => None,
    }
}

/// Replaces the journal. When it returns, the new journal survives a power cut.
pub(super) fn write(path: &Path, boot: &Boot, held: &[Held]) -> io::Result<()> {
    let document = Document {
        format: FORMAT.to_owned(),
        version: VERSION,
        boot: boot.id.clone(),
        originals: held.iter().map(Line::of).collect(),
    };
    let mut text = serde_json::to_vec_pretty(&document)?;
    text.push(b'\n');
    let folder = path.parent().unwrap_or(Path::new("."));
    let beside = path.with_extension("json.new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(&text)?;
    file.sync_all()?;
    std::fs::rename(&beside, path)?;
    File::open(folder)?.sync_all()
}
