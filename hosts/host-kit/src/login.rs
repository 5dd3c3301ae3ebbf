//! Who asks a server over HTTP: nobody, the holder of a token, or a user with a password.

use crate::bearer::TokenFile;
use crate::config::{ConfigSetting, Refusals, Values, Wrong};
use base64::Engine;
use http::HeaderValue;
use std::path::{Path, PathBuf};

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Login {
    /// Nobody says so.
    None,
    /// The holder of a token.
    Token(TokenFile),
    /// A user, whose password is in a file that is read for each query.
    Basic {
        /// The user.
        user: String,
        /// The file of the password.
        password: PathBuf,
    },
}

/// The settings of a login.
#[derive(Clone, Copy)]
pub struct LoginSettings<'a> {
    /// The file of the token.
    pub token: &'a ConfigSetting<Option<TokenFile>>,
    /// The user.
    pub user: &'a ConfigSetting<Option<String>>,
    /// The file of the password.
    pub password: &'a ConfigSetting<Option<PathBuf>>,
}

impl LoginSettings<'_> {
    /// Reads them: at most one login, and a whole one.
    ///
    /// # Errors
    /// If there are two, or a half.
    pub fn read(self, values: &Values) -> Result<Login, Refusals> {
        let token = values.get(self.token)?;
        match (token, (values.get(self.user)?, values.get(self.password)?)) {
            (None, (None, None)) => Ok(Login::None),
            (Some(token), (None, None)) => Ok(Login::Token(token)),
            (None, (Some(user), Some(password))) => {
                basic_header(&user, &password)
                    .map_err(|why| values.conflict(&[self.password.name()], &why))?;
                Ok(Login::Basic { user, password })
            }
            (None, _) => {
                let names = [self.user.name(), self.password.name()];
                Err(values.conflict(&names, "a user and a password go together: set both or neither"))
            }
            (Some(_), _) => {
                let names = [self.token.name(), self.user.name()];
                Err(values.conflict(&names, "a query shows a token or a password: set one of them"))
            }
        }
    }
}

impl Login {
    /// The token to show, if there is one.
    #[must_use]
    pub fn token(&self) -> Option<&TokenFile> {
        match self {
            Self::Token(token) => Some(token),
            Self::None | Self::Basic { .. } => None,
        }
    }

    /// The header of basic authentication, if there is a user.
    ///
    /// # Errors
    /// If there is no password in the file now.
    pub fn basic(&self) -> Result<Option<HeaderValue>, String> {
        match self {
            Self::Basic { user, password } => basic_header(user, password).map(Some),
            Self::None | Self::Token(_) => Ok(None),
        }
    }
}

/// Reads the name of a user.
///
/// # Errors
/// If basic authentication has no such user.
pub fn user(text: &str) -> Result<Option<String>, Wrong> {
    let user = text.trim();
    if user.contains(':') || user.chars().any(char::is_control) {
        return Err(Wrong("a user's name has no colon".to_owned()));
    }
    Ok(Some(user.to_owned()))
}

/// A password is no longer than this.
const PASSWORD_MAX: usize = 1024;

/// The header of basic authentication.
fn basic_header(user: &str, password: &Path) -> Result<HeaderValue, String> {
    let told = |why: &str| format!("{}: {why}", password.display());
    let text = std::fs::read_to_string(password).map_err(|error| told(&error.to_string()))?;
    let secret = text.trim_end_matches(['\r', '\n']);
    if secret.is_empty() || secret.len() > PASSWORD_MAX {
        return Err(told("there is no password in it"));
    }
    let encoded = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{secret}"));
    let header = HeaderValue::from_str(&format!("Basic {encoded}"));
    let mut header = header.map_err(|_| told("there is no password in it"))?;
    header.set_sensitive(true);
    Ok(header)
}
