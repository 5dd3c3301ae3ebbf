//! One setting: its name, how its text is parsed, and its value when it is not set.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// Why a text is not a valid value: a clause without a full stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong(pub String);

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A setting of type `T`.
pub struct ConfigSetting<T: 'static> {
    name: &'static str,
    aliases: &'static [&'static str],
    parse: fn(&str) -> Result<T, Wrong>,
    accepts: &'static str,
    unset: Unset<T>,
    secret: bool,
    live: bool,
    help: &'static str,
}

enum Unset<T> {
    /// The program cannot start without it; with what a person should do.
    Refuse(&'static str),
    /// As if this text had been written.
    Text(&'static str),
    /// It may be missing.
    Absent(fn() -> T),
}

impl<T> ConfigSetting<T> {
    /// A setting that must be given; `otherwise` says what to do about it, as in "set it from spec.nodeName".
    pub const fn required(
        name: &'static str,
        otherwise: &'static str,
        parse: fn(&str) -> Result<T, Wrong>,
        accepts: &'static str,
        help: &'static str,
    ) -> Self {
        Self {
            name,
            aliases: &[],
            parse,
            accepts,
            unset: Unset::Refuse(otherwise),
            secret: false,
            live: false,
            help,
        }
    }

    /// A setting with a default: when nothing is written, the value is as if `default` had been.
    pub const fn with_default(
        name: &'static str,
        default: &'static str,
        parse: fn(&str) -> Result<T, Wrong>,
        accepts: &'static str,
        help: &'static str,
    ) -> Self {
        Self {
            name,
            aliases: &[],
            parse,
            accepts,
            unset: Unset::Text(default),
            secret: false,
            live: false,
            help,
        }
    }

    /// Adds other names for the same setting. Two names with different values are refused.
    #[must_use]
    pub const fn or_called(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    /// Keeps the value out of logs, pages and errors.
    #[must_use]
    pub const fn secret(mut self) -> Self {
        self.secret = true;
        self
    }

    /// Lets the setting change in the file while the program runs. Whoever uses it must then read it again each time.
    #[must_use]
    pub const fn live(mut self) -> Self {
        self.live = true;
        self
    }

    /// The name in the environment and the file.
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl<T> ConfigSetting<Option<T>> {
    /// A setting that may be left out.
    pub const fn optional(
        name: &'static str,
        parse: fn(&str) -> Result<Option<T>, Wrong>,
        accepts: &'static str,
        help: &'static str,
    ) -> Self {
        Self {
            name,
            aliases: &[],
            parse,
            accepts,
            unset: Unset::Absent(|| None),
            secret: false,
            live: false,
            help,
        }
    }
}

/// A value whose type the table does not know, and the text that may be shown of it.
pub struct Parsed {
    pub(super) value: Arc<dyn Any + Send + Sync>,
    pub(super) shown: String,
}

/// The value of a setting when it is not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingDefault {
    /// It must be set, or the program does not start.
    Required,
    /// As if this text had been written.
    Text(&'static str),
    /// It may be missing.
    None,
}

/// A setting of any type, for a table. Only [`ConfigSetting`] implements it.
pub trait AnySetting: Sync {
    /// The name in the environment and the file.
    fn name(&self) -> &'static str;
    /// All names.
    fn names(&self) -> Vec<&'static str>;
    /// What is accepted, for people.
    fn accepts(&self) -> &'static str;
    /// Whether the value must not be shown.
    fn secret(&self) -> bool;
    /// Whether it may change while the program runs.
    fn live(&self) -> bool;
    /// Parses a text.
    fn parse(&self, text: &str) -> Result<Parsed, Wrong>;
    /// The value when it is not set; or what a person should do if it must be set.
    fn unset(&self) -> Result<Parsed, String>;
    /// The default, as it would be written.
    fn default(&self) -> SettingDefault;
    /// What it does, for people.
    fn help(&self) -> &'static str;

    /// Its entry in the help.
    fn describe(&self) -> String {
        let default = match self.default() {
            SettingDefault::Required => "required".to_owned(),
            SettingDefault::Text(text) => format!("default {text}"),
            SettingDefault::None => "optional".to_owned(),
        };
        let names = self.names();
        let aliases = match names.as_slice() {
            [] | [_] => String::new(),
            [_, aliases @ ..] => format!(" (also {})", aliases.join(", ")),
        };
        let (name, help, accepts) = (self.name(), self.help(), self.accepts());
        let live = if self.live() { "; live" } else { "" };
        format!("{name}{aliases} ({default}{live})\n    {help}\n    accepted: {accepts}\n")
    }

    /// Whether `name` is one of its names.
    fn is_called(&self, name: &str) -> bool {
        self.names().contains(&name)
    }
}

impl<T: Clone + Send + Sync + 'static> AnySetting for ConfigSetting<T> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn names(&self) -> Vec<&'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied()).collect()
    }

    fn accepts(&self) -> &'static str {
        self.accepts
    }

    fn secret(&self) -> bool {
        self.secret
    }

    fn live(&self) -> bool {
        self.live
    }

    fn parse(&self, text: &str) -> Result<Parsed, Wrong> {
        let value = (self.parse)(text)?;
        let shown = if self.secret { hide(text) } else { shorten(&super::url::redact(text)) };
        Ok(Parsed { value: Arc::new(value), shown })
    }

    fn unset(&self) -> Result<Parsed, String> {
        match self.unset {
            Unset::Refuse(what_to_do) => Err(what_to_do.to_owned()),
            Unset::Text(text) => AnySetting::parse(self, text)
                .map_err(|Wrong(why)| format!("its default {text:?} is a defect of the program: {why}")),
            Unset::Absent(value) => Ok(Parsed { value: Arc::new(value()), shown: "(none)".to_owned() }),
        }
    }

    fn default(&self) -> SettingDefault {
        match self.unset {
            Unset::Refuse(_) => SettingDefault::Required,
            Unset::Text(text) => SettingDefault::Text(text),
            Unset::Absent(_) => SettingDefault::None,
        }
    }

    fn help(&self) -> &'static str {
        self.help
    }
}

pub(super) fn hide(text: &str) -> String {
    format!("(secret, {} characters)", text.chars().count())
}

/// Shortens a value for a log line.
pub(super) fn shorten(text: &str) -> String {
    const MOST: usize = 200;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    let start: String = text.chars().take(MOST).collect();
    format!("{start}… ({} characters)", text.chars().count())
}
