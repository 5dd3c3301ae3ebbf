//! The settings of the node's own meter.

use crate::plug::{PlugSettings, PlugSource, RedfishSettings};
use host_kit::bearer::TokenFile;
use host_kit::config::{ConfigSetting, Refusals, UrlTemplate, Values, Wrong, parse};
use host_kit::login::{self, Login, LoginSettings};
use std::path::PathBuf;
use std::time::Duration;

pub(super) const ORDER: ConfigSetting<Vec<PlugSource>> = ConfigSetting::with_default(
    "NODE_METER",
    "acpi,dcmi",
    order,
    "none, or acpi, dcmi and redfish between commas",
    "The meters of what the whole node draws at its plug: the first that answers counts. acpi: the hwmon device power_meter; dcmi: \
     the management controller by /dev/ipmi0, which a privileged agent reaches; redfish: the same over HTTP. All are only read, and \
     one that is not there is none",
);
pub(super) const INTERVAL: ConfigSetting<Duration> = ConfigSetting::with_default(
    "NODE_METER_INTERVAL",
    "10s",
    |text| parse::duration(text, Duration::from_secs(1)..=Duration::from_secs(300)),
    "a duration between 1s and 5m",
    "How often the meter of the whole node is read. A sample counts for three times that and 10 s",
);
pub(super) const REDFISH_URL: ConfigSetting<Option<UrlTemplate>> = ConfigSetting::optional(
    "NODE_METER_REDFISH_URL",
    |text| redfish_url(text).map(Some),
    "a URL such as https://{node}-bmc or https://{node}-bmc/redfish/v1/Chassis/1/Power",
    "redfish: the management controller of this node, or the document in it with the power of the whole node; {node} is the name of \
     the node",
);
pub(super) const REDFISH_CA: ConfigSetting<Option<PathBuf>> = ConfigSetting::optional(
    "NODE_METER_REDFISH_CA_FILE",
    |text| parse::path(text).map(Some),
    "the path of a file of certificates (PEM)",
    "redfish: who signs its certificate, or that certificate itself; without it the authorities that the system knows. A certificate and its name are always checked",
);
pub(super) const REDFISH_TOKEN: ConfigSetting<Option<TokenFile>> = ConfigSetting::optional(
    "NODE_METER_REDFISH_TOKEN_FILE",
    TokenFile::parse,
    "the path of a file with a token",
    "redfish: the bearer token that is shown to it; it is read for each request",
);
pub(super) const REDFISH_USER: ConfigSetting<Option<String>> = ConfigSetting::optional(
    "NODE_METER_REDFISH_USER",
    login::user,
    "a name without a colon",
    "redfish: the user of basic authentication, who needs no right but to read; needs NODE_METER_REDFISH_PASSWORD_FILE",
);
pub(super) const REDFISH_PASSWORD: ConfigSetting<Option<PathBuf>> = ConfigSetting::optional(
    "NODE_METER_REDFISH_PASSWORD_FILE",
    |text| parse::path(text).map(Some),
    "the path of a file with a password",
    "redfish: the password of NODE_METER_REDFISH_USER; it is read for each request",
);

const WORDS: [(&str, PlugSource); 3] =
    [("acpi", PlugSource::Acpi), ("dcmi", PlugSource::Dcmi), ("redfish", PlugSource::Redfish)];

fn order(text: &str) -> Result<Vec<PlugSource>, Wrong> {
    if text.trim().eq_ignore_ascii_case("none") {
        return Ok(Vec::new());
    }
    let mut all = Vec::new();
    for word in text.split(',') {
        let source = parse::one_of(word, &WORDS)?;
        if all.contains(&source) {
            return Err(Wrong(format!("{} is there twice", source.word())));
        }
        all.push(source);
    }
    Ok(all)
}

fn redfish_url(text: &str) -> Result<UrlTemplate, Wrong> {
    let template = parse::url_template(text)?;
    let url = template.for_node("node")?;
    let text = url.as_str();
    let after = text.find("://").map_or(0, |at| at + 3);
    let (server, path) =
        text[after..].find('/').map_or((&text[after..], ""), |at| text[after..].split_at(at));
    if server.contains('@') {
        return Err(Wrong("a user and a password go into settings of their own".to_owned()));
    }
    if text.contains(['?', '#']) || !(path.trim_matches('/').is_empty() || path.starts_with("/redfish")) {
        return Err(Wrong("its path is none of Redfish, which begin with /redfish/v1".to_owned()));
    }
    Ok(template)
}

/// The settings of the node's own meter.
pub(super) fn read(values: &Values) -> Result<PlugSettings, Refusals> {
    let order = values.get(&ORDER)?;
    let url = values.get(&REDFISH_URL)?;
    let login = LoginSettings { token: &REDFISH_TOKEN, user: &REDFISH_USER, password: &REDFISH_PASSWORD };
    let (login, authorities) = (login.read(values)?, values.get(&REDFISH_CA)?);
    let is_asked = order.contains(&PlugSource::Redfish);
    let names = [ORDER.name(), REDFISH_URL.name()];
    let redfish = match (is_asked, url) {
        (true, Some(url)) => Some(RedfishSettings { url, authorities, login }),
        (true, None) => {
            return Err(values.conflict(&names, "redfish is asked at a management controller: set its URL"));
        }
        (false, None) if authorities.is_none() && login == Login::None => None,
        (false, _) => {
            return Err(
                values.conflict(&names, "Redfish is set up and not asked: name redfish in NODE_METER")
            );
        }
    };
    Ok(PlugSettings { order, every: values.get(&INTERVAL)?, redfish })
}
