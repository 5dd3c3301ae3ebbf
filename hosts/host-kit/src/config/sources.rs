//! Where settings come from: flags, the environment, a file.
//!
//! The file holds lines `NAME=VALUE`. Blank lines and lines that begin with `#` are skipped; spaces around a value
//! are dropped, and so is one pair of quotes around the whole of it. There are no comments after a value, no
//! continuation lines and no expansion: a `#` or a `$` in a value is that character.

use super::{AnySetting, Refused, setting};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

/// Names the file; as a flag it is `--config`.
pub const FILE_VARIABLE: &str = "JOULIE_CONFIG";
const FILE_FLAG: &str = "CONFIG";
/// Far larger than any file of settings: a log file that is named by mistake is not read into memory.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where a value was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// On the command line.
    Flag,
    /// In an environment variable.
    Environment,
    /// In the file.
    File {
        /// Which file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
    },
    /// Nowhere: it is the default.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("flag"),
            Self::Environment => f.write_str("environment"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

impl Origin {
    /// The name as it is written in this place.
    pub(super) fn spell(&self, name: &str) -> String {
        match self {
            Self::Flag => format!("--{}", name.to_ascii_lowercase().replace('_', "-")),
            Self::Environment | Self::File { .. } | Self::Default => name.to_owned(),
        }
    }
}

/// A name and a text, as written.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) name: String,
    pub(super) value: String,
    pub(super) origin: Origin,
}

/// What the command line asks for.
pub enum Invocation {
    /// To run the program.
    Run(SettingSources),
    /// To show the help.
    Help,
    /// To show the version.
    Version,
}

/// All settings that were given, and those that could not be read at all.
#[derive(Debug)]
pub struct SettingSources {
    /// In order of precedence, the highest first.
    given: Vec<Given>,
    refused: Vec<Refused>,
    file: Option<NamedFile>,
}

/// The file of settings, as it was read.
#[derive(Clone, Debug)]
pub(super) struct NamedFile {
    /// Who names it.
    by: Given,
    pub(super) path: PathBuf,
    pub(super) content: FileContent,
}

/// The text of a file of settings, or why it cannot be read.
pub(super) type FileContent = Result<String, String>;

impl Invocation {
    /// Reads a command line (without the program's name) and an environment, and the file that they name.
    pub fn read(
        arguments: impl IntoIterator<Item = OsString>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Self {
        let mut sources = SettingSources { given: Vec::new(), refused: Vec::new(), file: None };
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let text = argument.to_string_lossy();
            match &*text {
                "--help" | "-h" => return Self::Help,
                "--version" | "-V" => return Self::Version,
                flag => sources.flag(flag, || arguments.next()),
            }
        }
        sources.environment(environment);
        sources.file();
        Self::Run(sources)
    }
}

impl SettingSources {
    fn refuse(&mut self, name: String, origin: Origin, why: &str) {
        self.refused.push(Refused { name, value: None, origin, why: why.to_owned() });
    }

    fn flag(&mut self, text: &str, next: impl FnOnce() -> Option<OsString>) {
        let Some(body) = text.strip_prefix("--").filter(|body| !body.is_empty()) else {
            let shown = setting::shorten(text);
            return self.refuse(
                shown,
                Origin::Flag,
                "only flags are accepted here: --name VALUE or --name=VALUE",
            );
        };
        let (name, value) = match body.split_once('=') {
            Some((name, value)) => (name, Some(OsString::from(value))),
            None => (body, next()),
        };
        let spelled = format!("--{name}");
        let name = name.to_ascii_uppercase().replace('-', "_");
        match value.map(OsString::into_string) {
            None => self.refuse(spelled, Origin::Flag, "it needs a value: --name VALUE or --name=VALUE"),
            Some(Err(_)) => self.refuse(spelled, Origin::Flag, "its value is not UTF-8 text"),
            Some(Ok(_)) if self.given.iter().any(|given| given.name == name) => {
                self.refuse(spelled, Origin::Flag, "it is given twice");
            }
            Some(Ok(value)) => self.given.push(Given { name, value, origin: Origin::Flag }),
        }
    }

    fn environment(&mut self, environment: impl IntoIterator<Item = (OsString, OsString)>) {
        // In the order of their names, so that two starts report the same.
        let sorted: BTreeMap<OsString, OsString> = environment.into_iter().collect();
        for (name, value) in sorted {
            // A name that is not valid text cannot be a setting.
            let Ok(name) = name.into_string() else { continue };
            // A value that is not valid text is refused by its parser, if the name is ours.
            let value = value.into_string().unwrap_or_else(|raw| raw.to_string_lossy().into_owned());
            self.given.push(Given { name, value, origin: Origin::Environment });
        }
    }

    fn file(&mut self) {
        let named = self.given.iter().find(|given| given.names_the_file() && !given.value.trim().is_empty());
        let Some(by) = named.cloned() else { return };
        let path = PathBuf::from(by.value.trim());
        let content = read_text(&path);
        self.take(NamedFile { by, path, content });
    }

    fn take(&mut self, file: NamedFile) {
        match &file.content {
            Ok(text) => self.lines(&file.path, text),
            Err(why) => self.refuse(file.by.origin.spell(&file.by.name), file.by.origin.clone(), why),
        }
        self.file = Some(file);
    }

    /// The file that they name.
    pub(super) fn named_file(&self) -> Option<&NamedFile> {
        self.file.as_ref()
    }

    /// The same flags and variables, with another content of the file.
    pub(super) fn with_file(&self, content: FileContent) -> Self {
        let of_file = |origin: &Origin| matches!(origin, Origin::File { .. });
        let mut sources = Self {
            given: self.given.iter().filter(|given| !of_file(&given.origin)).cloned().collect(),
            refused: Vec::new(),
            file: None,
        };
        if let Some(file) = self.file.clone() {
            sources.take(NamedFile { content, ..file });
        }
        sources
    }

    fn lines(&mut self, path: &Path, text: &str) {
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for (at, line) in text.lines().enumerate().map(|(at, line)| (at + 1, line.trim())) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let origin = Origin::File { path: path.to_owned(), line: at };
            let Some((name, value)) = line.split_once('=') else {
                // The line is not shown: it may contain a part of a secret.
                self.refuse(
                    "a line without '='".to_owned(),
                    origin,
                    "a line is NAME=VALUE, or begins with #",
                );
                continue;
            };
            let name = name.trim().to_owned();
            if let Some(before) = seen.insert(name.clone(), at) {
                self.refuse(name, origin, &format!("it is already set on line {before}"));
            } else {
                self.given.push(Given { name, value: unquote(value.trim()).to_owned(), origin });
            }
        }
    }

    pub(super) fn refused(&self) -> &[Refused] {
        &self.refused
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Given> {
        self.given.iter()
    }

    /// The value with the highest precedence that is not empty. Two names of one setting in the same place must agree.
    pub(super) fn given(&self, setting: &dyn AnySetting) -> Result<Option<&Given>, Refused> {
        let mut said = self
            .given
            .iter()
            .filter(|given| setting.is_called(&given.name) && !given.value.trim().is_empty());
        let Some(first) = said.next() else { return Ok(None) };
        match said.find(|other| same_place(&first.origin, &other.origin) && other.value != first.value) {
            None => Ok(Some(first)),
            Some(other) => Err(Refused {
                name: first.origin.spell(&first.name),
                value: None,
                origin: first.origin.clone(),
                why: format!(
                    "{} means the same and says something else; keep one",
                    other.origin.spell(&other.name)
                ),
            }),
        }
    }
}

fn same_place(a: &Origin, b: &Origin) -> bool {
    matches!(
        (a, b),
        (Origin::Flag, Origin::Flag)
            | (Origin::Environment, Origin::Environment)
            | (Origin::File { .. }, Origin::File { .. })
    )
}

pub(super) fn read_text(path: &Path) -> FileContent {
    let shown = path.display();
    let size =
        std::fs::metadata(path).map_err(|error| format!("the file {shown} cannot be read: {error}"))?.len();
    if size > FILE_BYTES_MAX {
        return Err(format!(
            "the file {shown} has {size} bytes; a file of settings has at most {FILE_BYTES_MAX}"
        ));
    }
    std::fs::read_to_string(path).map_err(|error| format!("the file {shown} cannot be read: {error}"))
}

fn unquote(value: &str) -> &str {
    let inner = |quote: char| value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    inner('"').or_else(|| inner('\'')).unwrap_or(value)
}

impl Given {
    /// Whether this names the file. A file cannot name another file.
    pub(super) fn names_the_file(&self) -> bool {
        match self.origin {
            Origin::Flag => self.name == FILE_FLAG,
            Origin::Environment => self.name == FILE_VARIABLE,
            Origin::File { .. } | Origin::Default => false,
        }
    }

    /// Whether Kubernetes added it for a Service (`X_SERVICE_HOST`, `X_PORT=tcp://…`, `X_PORT_9876_TCP_ADDR`).
    pub(super) fn is_service_link(&self) -> bool {
        const ENDS: [&str; 2] = ["_SERVICE_HOST", "_SERVICE_PORT"];
        const PARTS: [&str; 4] = ["_SERVICE_PORT_", "_TCP", "_UDP", "_SCTP"];
        let name = &self.name;
        ENDS.iter().any(|end| name.ends_with(end))
            || (name.contains("_PORT_") && PARTS.iter().any(|part| name.contains(part)))
            || (name.ends_with("_PORT") && self.value.contains("://"))
    }
}
