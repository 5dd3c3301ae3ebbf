//! Bearer tokens: in the header of a request, and in a file.

use crate::config::{Wrong, parse};
use http::{HeaderMap, HeaderValue, header};
use std::path::{Path, PathBuf};
use subtle::ConstantTimeEq;

/// No token of Kubernetes is longer.
pub(crate) const BYTES_MAX: usize = 16 * 1024;

/// Where a request through the API server's proxy shows the token of the debugging pages: the API server takes the header
/// `Authorization` off what it passes on.
pub const DEBUG_TOKEN_HEADER: &str = "joulie-debug-token";

/// The token that a request shows.
pub(crate) fn shown(headers: &HeaderMap) -> Option<&str> {
    let token = std::str::from_utf8(raw(headers)?).ok()?;
    (!token.is_empty() && token.len() <= BYTES_MAX).then_some(token)
}

fn raw(headers: &HeaderMap) -> Option<&[u8]> {
    Some(headers.get(header::AUTHORIZATION)?.as_bytes().strip_prefix(b"Bearer ")?.trim_ascii())
}

/// Whether a request shows this token. The time that it takes does not tell how much of it was right.
pub(crate) fn shows(headers: &HeaderMap, token: &str) -> bool {
    raw(headers).is_some_and(|shown| shown.ct_eq(token.as_bytes()).into())
}

/// Whether a request shows this token in the header of its own, in the same time.
pub(crate) fn shows_apart(headers: &HeaderMap, token: &str) -> bool {
    headers.get(DEBUG_TOKEN_HEADER).is_some_and(|shown| shown.as_bytes().ct_eq(token.as_bytes()).into())
}

/// A token in a file, which is read for each use: a renewed one is used at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenFile(PathBuf);

impl TokenFile {
    /// Reads the value of a setting.
    ///
    /// # Errors
    /// If it is no path, or there is no token in the file now.
    pub fn parse(text: &str) -> Result<Option<Self>, Wrong> {
        Self::new(&parse::path(text)?).map(Some).map_err(Wrong)
    }

    /// # Errors
    /// If there is no token in the file now.
    pub fn new(path: &Path) -> Result<Self, String> {
        let file = Self(path.to_owned());
        file.header()?;
        Ok(file)
    }

    /// Whether a request shows it. If it cannot be read, none does.
    #[must_use]
    pub fn is_shown(&self, headers: &HeaderMap) -> bool {
        match self.read() {
            Ok(token) => shows(headers, &token),
            Err(why) => {
                tracing::warn!("{why}; every request is refused");
                false
            }
        }
    }

    /// The value of the header.
    pub(crate) fn header(&self) -> Result<HeaderValue, String> {
        let token = self.read()?;
        let header = HeaderValue::from_str(&format!("Bearer {token}"));
        let mut header = header.map_err(|_| format!("{}: there is no token in it", self.0.display()))?;
        header.set_sensitive(true);
        Ok(header)
    }

    fn read(&self) -> Result<String, String> {
        let told = |why: &str| format!("{}: {why}", self.0.display());
        let text = std::fs::read_to_string(&self.0).map_err(|error| told(&error.to_string()))?;
        let token = text.trim();
        match token.len() {
            0 => Err(told("it is empty")),
            1..=BYTES_MAX if token.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(token.to_owned()),
            _ => Err(told("there is no token in it")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_the_proxy_of_the_api_server_a_token_is_in_a_header_of_its_own() {
        let headers = |token: &'static str| {
            HeaderMap::from_iter([(
                http::HeaderName::from_static(DEBUG_TOKEN_HEADER),
                HeaderValue::from_static(token),
            )])
        };
        assert!(shows_apart(&headers("secret"), "secret"));
        assert!(
            !shows_apart(&headers("secre"), "secret") && !shows_apart(&headers("Bearer secret"), "secret")
        );
        assert!(!shows_apart(&request("Bearer secret"), "secret") && !shows(&headers("secret"), "secret"));
    }

    fn request(authorization: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_str(authorization).unwrap())])
    }

    #[test]
    fn a_token_is_read_anew_for_each_use_and_a_bad_file_is_none() {
        let path = std::env::temp_dir().join(format!("joulie-bearer-{}", std::process::id()));
        assert!(TokenFile::new(&path).unwrap_err().contains("joulie-bearer"));
        for bad in ["", " \n", "a b", "caf\u{e9}", &"a".repeat(BYTES_MAX + 1)] {
            std::fs::write(&path, bad).unwrap();
            assert!(TokenFile::new(&path).is_err(), "{bad:?}");
        }
        std::fs::write(&path, "first\n").unwrap();
        let file = TokenFile::new(&path).unwrap();
        assert_eq!(file.header().unwrap(), "Bearer first");
        assert!(file.is_shown(&request("Bearer first")));
        std::fs::write(&path, "second").unwrap();
        for (shown, right) in [
            ("Bearer second", true),
            ("Bearer first", false),
            ("Bearer secon", false),
            ("Bearer second2", false),
            ("second", false),
            ("Basic second", false),
            ("Bearer ", false),
        ] {
            assert_eq!(file.is_shown(&request(shown)), right, "{shown}");
        }
        assert!(!file.is_shown(&HeaderMap::new()));
        std::fs::remove_file(&path).unwrap();
        assert!(!file.is_shown(&request("Bearer second")));
        assert!(file.header().is_err());
    }
}
