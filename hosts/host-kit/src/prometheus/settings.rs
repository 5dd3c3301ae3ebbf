//! The settings by which a program asks a Prometheus server.

use super::PrometheusAccess;
use crate::bearer::TokenFile;
use crate::config::parse::{self, duration};
use crate::config::{ConfigSetting, Refusals, Url, Values, Wrong};
use crate::login::{LoginSettings, user};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::path::PathBuf;
use std::time::Duration;

/// The server.
pub const PROMETHEUS_ADDRESS: ConfigSetting<Option<Url>> = ConfigSetting::optional(
    "PROMETHEUS_ADDRESS",
    |text| parse::url(text).map(Some),
    "a URL such as http://prometheus-operated.monitoring:9090",
    "The Prometheus server, or what speaks its API, with the prefix of its paths if it has one; without it none is asked",
);
/// Its authorities.
pub const PROMETHEUS_CA_FILE: ConfigSetting<Option<PathBuf>> = ConfigSetting::optional(
    "PROMETHEUS_CA_FILE",
    |text| parse::path(text).map(Some),
    "the path of a file of certificates (PEM)",
    "Who signs the certificate of Prometheus; without it the authorities that the system knows",
);
/// The token that it is shown.
pub const PROMETHEUS_TOKEN_FILE: ConfigSetting<Option<TokenFile>> = ConfigSetting::optional(
    "PROMETHEUS_TOKEN_FILE",
    TokenFile::parse,
    "the path of a file with a token",
    "The bearer token that is shown to Prometheus; it is read for each query",
);
/// The user of basic authentication.
pub const PROMETHEUS_USER: ConfigSetting<Option<String>> = ConfigSetting::optional(
    "PROMETHEUS_USER",
    user,
    "a name without a colon",
    "The user of basic authentication at Prometheus; needs PROMETHEUS_PASSWORD_FILE",
);
/// The user's password.
pub const PROMETHEUS_PASSWORD_FILE: ConfigSetting<Option<PathBuf>> = ConfigSetting::optional(
    "PROMETHEUS_PASSWORD_FILE",
    |text| parse::path(text).map(Some),
    "the path of a file with a password",
    "The password of PROMETHEUS_USER; it is read for each query",
);
/// Further headers.
pub const PROMETHEUS_HEADERS: ConfigSetting<HeaderMap> = ConfigSetting::with_default(
    "PROMETHEUS_HEADERS",
    "",
    headers,
    "NAME=VALUE between commas",
    "Headers of each query, such as X-Scope-OrgID=team for Mimir or THANOS-TENANT=team for Thanos",
);
/// How long a query may take.
pub const PROMETHEUS_TIMEOUT: ConfigSetting<Duration> = ConfigSetting::with_default(
    "PROMETHEUS_TIMEOUT",
    "5s",
    |text| duration(text, Duration::from_millis(100)..=Duration::from_secs(60)),
    "a duration between 100ms and 1m",
    "How long a query at Prometheus may take",
);

/// How a server at this address is asked.
pub fn access(values: &Values, address: Url) -> Result<PrometheusAccess, Refusals> {
    let login = LoginSettings {
        token: &PROMETHEUS_TOKEN_FILE,
        user: &PROMETHEUS_USER,
        password: &PROMETHEUS_PASSWORD_FILE,
    };
    let login = login.read(values)?;
    Ok(PrometheusAccess {
        address,
        authorities: values.get(&PROMETHEUS_CA_FILE)?,
        login,
        headers: values.get(&PROMETHEUS_HEADERS)?,
        timeout: values.get(&PROMETHEUS_TIMEOUT)?,
    })
}

/// The headers that a query has of its own.
const OWN: [HeaderName; 3] = [http::header::AUTHORIZATION, http::header::HOST, http::header::CONTENT_LENGTH];

fn headers(text: &str) -> Result<HeaderMap, Wrong> {
    let mut headers = HeaderMap::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let wrong = |why: &str| Wrong(format!("{part:?}: {why}"));
        let (name, value) = part.split_once('=').ok_or_else(|| wrong("there is no = in it"))?;
        let name: HeaderName = name.trim().parse().map_err(|_| wrong("no header has such a name"))?;
        let value: HeaderValue = value.trim().parse().map_err(|_| wrong("no header has such a value"))?;
        if OWN.contains(&name) {
            return Err(wrong("this header is not set so; a token goes into PROMETHEUS_TOKEN_FILE"));
        }
        if headers.insert(name, value).is_some() {
            return Err(wrong("the header is named twice"));
        }
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Invocation, SettingsTable, load};
    use crate::login::Login;
    use std::ffi::OsString;

    static TABLE: SettingsTable = SettingsTable {
        program: "test",
        about: "asks",
        settings: &[
            &PROMETHEUS_ADDRESS,
            &PROMETHEUS_CA_FILE,
            &PROMETHEUS_TOKEN_FILE,
            &PROMETHEUS_USER,
            &PROMETHEUS_PASSWORD_FILE,
            &PROMETHEUS_HEADERS,
            &PROMETHEUS_TIMEOUT,
        ],
        retired: &[],
        families: &[],
    };

    fn read(said: &[(&str, &str)]) -> Result<PrometheusAccess, String> {
        let all = said.iter().copied().chain([("PROMETHEUS_ADDRESS", "http://prom:9090")]);
        let variables = all.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let sources = match Invocation::read(std::iter::empty(), variables) {
            Invocation::Run(sources) => sources,
            Invocation::Help | Invocation::Version => panic!("neither was asked for"),
        };
        let values = load(&TABLE, &sources).map_err(|why| why.to_string())?;
        let address = values.get(&PROMETHEUS_ADDRESS).unwrap().unwrap();
        access(&values, address).map_err(|why| why.to_string())
    }

    #[test]
    fn a_login_is_a_token_or_a_user_with_a_password() {
        let folder = std::env::temp_dir().join(format!("host-kit-prometheus-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("secret");
        std::fs::write(&file, "open sesame\n").unwrap();
        let secret = file.to_str().unwrap();
        assert_eq!(read(&[]).unwrap().login, Login::None);
        let basic = read(&[("PROMETHEUS_USER", "me"), ("PROMETHEUS_PASSWORD_FILE", secret)]).unwrap();
        assert_eq!(basic.login, Login::Basic { user: "me".to_owned(), password: file.clone() });
        // printf 'me:open sesame' | base64
        assert_eq!(basic.login.basic().unwrap().unwrap(), "Basic bWU6b3BlbiBzZXNhbWU=");
        for said in [
            &[("PROMETHEUS_USER", "me")][..],
            &[("PROMETHEUS_PASSWORD_FILE", secret)],
            &[("PROMETHEUS_USER", "a:b"), ("PROMETHEUS_PASSWORD_FILE", secret)],
            &[("PROMETHEUS_USER", "me"), ("PROMETHEUS_PASSWORD_FILE", "/not/there")],
            &[("PROMETHEUS_TOKEN_FILE", "/not/there")],
        ] {
            let why = read(said).unwrap_err();
            assert!(why.contains("PROMETHEUS_"), "{why}");
        }
        std::fs::write(&file, "token").unwrap();
        assert!(matches!(read(&[("PROMETHEUS_TOKEN_FILE", secret)]).unwrap().login, Login::Token(_)));
        let both = [
            ("PROMETHEUS_TOKEN_FILE", secret),
            ("PROMETHEUS_USER", "me"),
            ("PROMETHEUS_PASSWORD_FILE", secret),
        ];
        assert!(read(&both).unwrap_err().contains("set one of them"));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn headers_are_read_and_those_of_the_query_itself_are_refused() {
        let headers =
            read(&[("PROMETHEUS_HEADERS", "X-Scope-OrgID=team, thanos-tenant = a=b")]).unwrap().headers;
        assert_eq!(
            (&headers["x-scope-orgid"], &headers["THANOS-TENANT"]),
            (&"team".parse().unwrap(), &"a=b".parse().unwrap())
        );
        for wrong in ["X", "=x", "a b=c", "x=1,X=2", "Authorization=Bearer x", "host=y", "x=\u{7}"] {
            assert!(
                read(&[("PROMETHEUS_HEADERS", wrong)]).unwrap_err().contains("PROMETHEUS_HEADERS"),
                "{wrong}"
            );
        }
    }
}
