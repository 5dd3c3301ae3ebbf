//! Which lines are wanted: a level for all, and levels for parts, as in `info,host_kit::server=debug`.

use crate::config::Wrong;
use std::fmt;
use std::str::FromStr;
use tracing_subscriber::filter::{LevelFilter, Targets};

/// Validated levels. A word that is no level is refused: read as the name of a part, it would silence all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Levels {
    all: LevelFilter,
    parts: Vec<(String, LevelFilter)>,
}

impl Levels {
    pub(super) fn targets(&self) -> Targets {
        Targets::new().with_default(self.all).with_targets(self.parts.clone())
    }
}

impl FromStr for Levels {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        let (mut all, mut parts) = (None, Vec::new());
        for item in text.split(',').map(str::trim) {
            match item.split_once('=') {
                None if all.is_none() => all = Some(level(item)?),
                None => return Err(Wrong(format!("it has a second level for all, {item:?}"))),
                Some((part, word)) if is_part(part) => parts.push((part.to_owned(), level(word)?)),
                Some((part, _)) => return Err(Wrong(format!("{part:?} is not the name of a part"))),
            }
        }
        let Some(all) = all else { return Err(Wrong("it has no level for all".to_owned())) };
        Ok(Self { all, parts })
    }
}

fn level(word: &str) -> Result<LevelFilter, Wrong> {
    match word.to_ascii_lowercase().as_str() {
        "off" => Ok(LevelFilter::OFF),
        "error" => Ok(LevelFilter::ERROR),
        "warn" => Ok(LevelFilter::WARN),
        "info" => Ok(LevelFilter::INFO),
        "debug" => Ok(LevelFilter::DEBUG),
        "trace" => Ok(LevelFilter::TRACE),
        _ => Err(Wrong(format!("{word:?} is none of off, error, warn, info, debug, trace"))),
    }
}

fn is_part(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_:-".contains(&byte))
}

impl fmt::Display for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.all)?;
        self.parts.iter().try_for_each(|(part, level)| write!(f, ",{part}={level}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn a_level_for_all_and_levels_for_parts_are_read() {
        for (text, shown) in [
            ("info", "info"),
            ("WARN", "warn"),
            ("kube=off, info,host_kit::server=trace", "info,kube=off,host_kit::server=trace"),
        ] {
            assert_eq!(text.parse::<Levels>().map(|levels| levels.to_string()).as_deref(), Ok(shown));
        }
    }

    #[test]
    fn a_part_has_its_own_level_and_all_others_the_level_for_all() {
        let targets = "kube=off,info,host_kit::server=trace".parse::<Levels>().unwrap().targets();
        for (part, level, is_shown) in [
            ("kube", Level::ERROR, false),
            ("kube_client::client", Level::ERROR, false),
            ("agent", Level::INFO, true),
            ("agent", Level::DEBUG, false),
            ("host_kit", Level::DEBUG, false),
            ("host_kit::server", Level::TRACE, true),
            ("host_kit::server::tls", Level::TRACE, true),
        ] {
            assert_eq!(targets.would_enable(part, &level), is_shown, "{part} {level}");
        }
        let silent = "off".parse::<Levels>().unwrap().targets();
        assert!(!silent.would_enable("agent", &Level::ERROR));
    }

    #[test]
    fn a_word_that_is_no_level_is_refused() {
        for text in [
            "",
            "verbose",
            "info,debug",
            "kube=debug",
            "info,kube=loud",
            "info,=debug",
            "info,k be=debug",
            "info,",
        ] {
            assert!(text.parse::<Levels>().is_err(), "{text:?}");
        }
    }
}
