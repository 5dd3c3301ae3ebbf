//! Reads settings into validated types: from flags, then the environment, then a file, then the default of the table.
//!
//! Each program has one [`SettingsTable`] of [`ConfigSetting`]s. [`load`] checks everything before it refuses, so that
//! one start shows every mistake. All values that it returns have been parsed. It must never let a typo, an unknown
//! name or a malformed value mean a default.
//!
//! A setting has one name in all three places: `RECONCILE_INTERVAL` in the environment and in the file,
//! `--reconcile-interval` as a flag. An empty value means that it is not set. The file holds `NAME=VALUE` lines (see
//! [`SettingSources`]). It has the names and rules of the environment, so there is no second vocabulary to learn and no
//! other parser to trust.
//!
//! What is declared [`ConfigSetting::live`] may change in the file while the program runs; [`LiveConfig`] follows it.

mod listen;
mod live;
mod nearest;
pub mod parse;
mod selector;
mod setting;
mod sources;
mod url;

pub use listen::Listen;
pub use live::{ConfigChange, ConfigMetrics, ConfigNews, ConfigOutcome, Live, LiveConfig};
pub use setting::{AnySetting, ConfigSetting, SettingDefault, Wrong};
pub use sources::{FILE_VARIABLE, Invocation, Origin, SettingSources};
pub use url::{Url, UrlTemplate};

use setting::Parsed;
use sources::Given;
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// All settings of one program.
pub struct SettingsTable {
    /// The program's name, for its help and its log.
    pub program: &'static str,
    /// What the program does, in one line.
    pub about: &'static str,
    /// The settings.
    pub settings: &'static [&'static dyn AnySetting],
    /// Names that other versions read and this one does not. They are accepted with a warning, so that the charts of
    /// those versions still start. The first one that matches gives the note.
    pub retired: &'static [Retired],
    /// Prefixes of variables that belong to this program alone: an unknown variable with such a prefix is refused.
    pub families: &'static [&'static str],
}

/// A name that has no effect any more, or not yet.
pub struct Retired {
    /// The name as it is written. With `*` at its end it stands for all environment variables with that prefix.
    pub name: &'static str,
    /// What to use instead, or why it has no effect.
    pub note: &'static str,
}

/// Settings that have all been parsed.
#[derive(Debug)]
pub struct Values {
    program: &'static str,
    held: BTreeMap<&'static str, Held>,
    warnings: Vec<String>,
}

#[derive(Clone, Debug)]
struct Held {
    value: Arc<dyn Any + Send + Sync>,
    /// As it was written, or the default; `None` if neither.
    text: Option<String>,
    shown: String,
    origin: Origin,
}

/// Reads every setting of the table, or reports everything that is wrong.
pub fn load(table: &SettingsTable, sources: &SettingSources) -> Result<Values, Refusals> {
    let mut refused = sources.refused().to_vec();
    let mut warnings = Vec::new();
    refuse_unknown(table, sources, &mut refused, &mut warnings);
    let mut held = BTreeMap::new();
    for setting in table.settings {
        match hold(*setting, sources) {
            Ok(one) => {
                warn_overridden(*setting, sources, &one.origin, &mut warnings);
                held.insert(setting.name(), one);
            }
            Err(why) => refused.push(why),
        }
    }
    if refused.is_empty() {
        Ok(Values { program: table.program, held, warnings })
    } else {
        Err(Refusals(refused))
    }
}

/// Tells that a line of the file has no effect, because a flag or a variable wins.
fn warn_overridden(
    setting: &dyn AnySetting,
    sources: &SettingSources,
    wins: &Origin,
    warnings: &mut Vec<String>,
) {
    if matches!(wins, Origin::File { .. }) {
        return;
    }
    let lines = sources.all().filter(|given| matches!(given.origin, Origin::File { .. }));
    for line in lines.filter(|line| setting.is_called(&line.name) && !line.value.trim().is_empty()) {
        let Given { name, origin, .. } = line;
        warnings.push(format!("{name} ({origin}) has no effect: the {wins} says it"));
    }
}

fn hold(setting: &dyn AnySetting, sources: &SettingSources) -> Result<Held, Refused> {
    let Some(given) = sources.given(setting)? else {
        let Parsed { value, shown } = setting.unset().map_err(|what_to_do| Refused {
            name: setting.name().to_owned(),
            value: None,
            origin: Origin::Default,
            why: format!("it is required and not set; {what_to_do}; accepted: {}", setting.accepts()),
        })?;
        let text = match setting.default() {
            SettingDefault::Text(text) => Some(text.to_owned()),
            SettingDefault::Required | SettingDefault::None => None,
        };
        return Ok(Held { value, text, shown, origin: Origin::Default });
    };
    match setting.parse(&given.value) {
        Ok(Parsed { value, shown }) => {
            let text = Some(given.value.trim().to_owned());
            Ok(Held { value, text, shown, origin: given.origin.clone() })
        }
        Err(Wrong(why)) => Err(refusal(setting, given, &why)),
    }
}

/// Neither a secret's value nor an explanation that may quote it is ever shown.
fn refusal(setting: &dyn AnySetting, given: &Given, why: &str) -> Refused {
    let (value, why) = if setting.secret() {
        (setting::hide(&given.value), "it cannot be read".to_owned())
    } else {
        (format!("{:?}", setting::shorten(&url::redact(&given.value))), url::redact(why))
    };
    Refused {
        name: given.name.clone(),
        value: Some(value),
        origin: given.origin.clone(),
        why: format!("{why}; accepted: {}", setting.accepts()),
    }
}

fn refuse_unknown(
    table: &SettingsTable,
    sources: &SettingSources,
    refused: &mut Vec<Refused>,
    warnings: &mut Vec<String>,
) {
    for given in sources.all() {
        if given.names_the_file() || table.settings.iter().any(|setting| setting.is_called(&given.name)) {
            continue;
        }
        let known = table.settings.iter().flat_map(|setting| setting.names());
        let near = nearest::nearest(&given.name, known);
        if let Some(retired) = table.retired.iter().find(|retired| retired.speaks_of(given, near)) {
            let name = setting::shorten(&given.name);
            warnings.push(format!("{name} ({}) has no effect: {}", given.origin, retired.note));
            continue;
        }
        let ours = match given.origin {
            Origin::Flag | Origin::File { .. } => true,
            Origin::Environment => belongs_to_us(table, given, near),
            Origin::Default => false,
        };
        if ours {
            refused.push(unknown(table, given, near));
        }
    }
}

impl Retired {
    /// A family of names covers only the environment: a misspelled name of ours, a flag or a line of the file is never
    /// excused by it.
    fn speaks_of(&self, given: &Given, near: Option<&str>) -> bool {
        let Some(family) = self.name.strip_suffix('*') else { return self.name == given.name };
        let theirs = matches!(given.origin, Origin::Environment) && !given.is_service_link();
        theirs && near.is_none() && given.name.starts_with(family)
    }
}

/// Variables of OpenSSL, which are set in many images, and are near to TLS_CERT_FILE.
const OF_OPENSSL: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// Others write to the environment as well. Kubernetes adds `JOULIE_OPERATOR_PORT=tcp://…` for every Service of the
/// namespace. If such variables were refused, creating a Service would stop a program.
fn belongs_to_us(table: &SettingsTable, given: &Given, near: Option<&str>) -> bool {
    if OF_OPENSSL.contains(&given.name.as_str()) {
        return false;
    }
    let of_a_family = table.families.iter().any(|family| given.name.starts_with(family));
    !given.is_service_link() && (near.is_some() || of_a_family)
}

fn unknown(table: &SettingsTable, given: &Given, near: Option<&str>) -> Refused {
    let known = near.map_or_else(
        || format!("`{} --help` lists what there is", table.program),
        |name| format!("did you mean {}?", given.origin.spell(name)),
    );
    Refused {
        name: given.origin.spell(&given.name),
        value: None,
        origin: given.origin.clone(),
        why: format!("there is no such setting; {known}"),
    }
}

impl Values {
    /// The value of a setting in the table that was loaded.
    pub fn get<T: Clone + Send + Sync + 'static>(&self, setting: &ConfigSetting<T>) -> Result<T, Refusals> {
        let held = self.held.get(setting.name());
        held.and_then(|held| held.value.downcast_ref::<T>()).cloned().ok_or_else(|| {
            Refusals(vec![Refused {
                name: setting.name().to_owned(),
                value: None,
                origin: Origin::Default,
                why: format!(
                    "it is missing in the table of {}: this is a defect of the program",
                    self.program
                ),
            }])
        })
    }

    /// Whether somebody has set the setting of this name.
    pub fn is_given(&self, name: &str) -> bool {
        self.held.get(name).is_some_and(|held| held.origin != Origin::Default)
    }

    /// A refusal of values that are valid one by one, but not together.
    pub fn conflict(&self, names: &[&str], why: &str) -> Refusals {
        let one = |name: &&str| {
            let held = self.held.get(*name);
            Refused {
                name: (*name).to_owned(),
                value: held.map(|held| held.shown.clone()),
                origin: held.map_or(Origin::Default, |held| held.origin.clone()),
                why: why.to_owned(),
            }
        };
        Refusals(names.iter().map(one).collect())
    }

    /// The effective configuration, one line for each setting with its origin. Secrets are not shown.
    pub fn render(&self) -> String {
        let line = |(name, held): (&&str, &Held)| format!("{name}={} ({})\n", held.shown, held.origin);
        self.held.iter().map(line).collect()
    }

    /// Logs once, at start, what is in force and what has no effect.
    pub fn announce(&self) {
        for warning in &self.warnings {
            tracing::warn!(program = self.program, "configuration: {warning}");
        }
        let all: Vec<String> =
            self.held.iter().map(|(name, held)| format!("{name}={} ({})", held.shown, held.origin)).collect();
        tracing::info!(program = self.program, "effective configuration: {}", all.join(", "));
    }

    /// The names that were given and have no effect.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

impl SettingsTable {
    /// What `--help` prints.
    pub fn help(&self) -> String {
        let mut text = format!(
            "{}: {}\n\nA setting is a flag (--name VALUE), a variable (NAME=VALUE) or a line NAME=VALUE of the file\n\
             named by --config or JOULIE_CONFIG. A flag wins over a variable, a variable over the file.\n\
             What is live is followed in the file while the program runs; the rest waits for a restart.\n\n",
            self.program, self.about
        );
        for setting in self.settings {
            text.push_str(&setting.describe());
        }
        text
    }
}

/// Everything that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusals(Vec<Refused>);

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    name: String,
    /// The value in a form that may be shown.
    value: Option<String>,
    origin: Origin,
    why: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if let Some(value) = &self.value {
            write!(f, "={value}")?;
        }
        match &self.origin {
            Origin::Default => {}
            origin @ (Origin::Flag | Origin::Environment | Origin::File { .. }) => write!(f, " ({origin})")?,
        }
        write!(f, ": {}", self.why)
    }
}

impl Refusals {
    /// Everything, one by one.
    pub fn each(&self) -> impl Iterator<Item = &Refused> {
        self.0.iter()
    }
}

impl fmt::Display for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the configuration is refused, nothing was started:")?;
        self.each().try_for_each(|one| write!(f, "\n  {one}"))
    }
}

impl std::error::Error for Refusals {}

#[cfg(test)]
mod tests;
