//! URLs of endpoints. A password in a URL is never shown.

use super::Wrong;
use super::parse::wrong;
use std::fmt;
use std::str::FromStr;

/// An http or https URL. [`fmt::Display`] hides the user and password; [`Url::as_str`] does not.
#[derive(Clone, PartialEq, Eq)]
pub struct Url(String);

/// A URL in which `{node}` stands for the name of a node.
#[derive(Clone, PartialEq, Eq)]
pub struct UrlTemplate(String);

impl Url {
    /// The whole URL with its password, for the client.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl UrlTemplate {
    /// Whether the servers speak TLS.
    #[must_use]
    pub fn has_tls(&self) -> bool {
        self.0.trim().get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https:"))
    }

    /// The scheme, the user and the server: all that comes before the path.
    #[must_use]
    pub fn server(&self) -> &str {
        let after = self.0.find("://").map_or(0, |at| at + 3);
        let end = self.0[after..].find(['/', '?', '#']).map_or(self.0.len(), |at| after + at);
        &self.0[..end]
    }

    /// The URL for a node. The name must be that of a Kubernetes object, so that it needs no escaping.
    pub fn for_node(&self, node: &str) -> Result<Url, Wrong> {
        self.0.replace("{node}", &super::parse::object_name(node)?).parse()
    }
}

impl FromStr for Url {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        let text = text.trim();
        let Ok(uri) = text.parse::<http::Uri>() else { return wrong("it is not a URL") };
        match uri.scheme_str() {
            Some("http" | "https") => {}
            Some(other) => return wrong(format!("its scheme is {other:?}")),
            None => return wrong("it does not begin with http:// or https://"),
        }
        if uri.host().is_none_or(str::is_empty) {
            return wrong("it names no host");
        }
        // The URI type accepts braces; a placeholder that is never filled in is a mistake.
        if text.contains(['{', '}']) {
            return wrong("only {node} is filled in, and not in this setting");
        }
        Ok(Self(text.to_owned()))
    }
}

impl FromStr for UrlTemplate {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        match text.replace("{node}", "node").parse::<Url>() {
            Ok(_) => Ok(Self(text.trim().to_owned())),
            Err(_) if text.replace("{node}", "").contains(['{', '}']) => wrong("only {node} is filled in"),
            Err(why) => Err(why),
        }
    }
}

/// Replaces the user and password of every URL in a text.
pub(super) fn redact(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        shown.push_str(before);
        let authority = after.find(['/', '?', '#', ' ']).unwrap_or(after.len());
        rest = after;
        if let Some(user_end) = after[..authority].rfind('@') {
            shown.push_str("***");
            rest = &after[user_end..];
        }
    }
    shown.push_str(rest);
    shown
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redact(&self.0))
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", redact(&self.0))
    }
}

impl fmt::Display for UrlTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redact(&self.0))
    }
}

impl fmt::Debug for UrlTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", redact(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_a_url_is_used_and_never_shown() {
        let url: Url = "https://me:s3cret@prom.local:9090/x?y=a@b".parse().unwrap();
        assert_eq!(url.as_str(), "https://me:s3cret@prom.local:9090/x?y=a@b");
        assert_eq!(url.to_string(), "https://***@prom.local:9090/x?y=a@b");
        assert!(!format!("{url:?}").contains("s3cret"));
        assert_eq!(redact("a http://u:p@h/ and http://u:p@@i"), "a http://***@h/ and http://***@i");
    }

    #[test]
    fn a_template_is_filled_with_the_name_of_a_node_and_nothing_else() {
        let template: UrlTemplate = "http://{node}.power:80/{node}".parse().unwrap();
        assert_eq!(template.for_node("rack-1.a").unwrap().as_str(), "http://rack-1.a.power:80/rack-1.a");
        assert_eq!(template.server(), "http://{node}.power:80");
        assert_eq!("https://a?b/c".parse::<UrlTemplate>().unwrap().server(), "https://a");
        assert!(template.for_node("a/../b").is_err());
        assert!("http://{host}/".parse::<UrlTemplate>().unwrap_err().0.contains("only {node}"));
        assert!("http://x/{node}".parse::<Url>().is_err());
    }

    #[test]
    fn what_is_no_url_is_refused() {
        for text in ["", "prom:9090", "ftp://x", "http://", "http:///x", "/x", "http://a b/"] {
            assert!(text.parse::<Url>().is_err(), "{text:?}");
        }
    }
}
