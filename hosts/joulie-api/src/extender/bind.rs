//! The request and the answer of bind.

use super::reply::{Keys, key, string};
use super::{BadBody, fields};
use std::fmt::Display;

/// The request: which pod is to be bound to which node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindArgs {
    /// The pod's name.
    pub pod_name: String,
    /// The pod's namespace.
    pub pod_namespace: String,
    /// The pod's UID.
    pub pod_uid: String,
    /// The node.
    pub node: String,
}

impl BindArgs {
    /// Reads a request. All fields are required.
    ///
    /// # Errors
    /// If the body is not JSON, has a key twice, or lacks one.
    pub fn parse(body: &[u8]) -> Result<Self, BadBody> {
        let names = ["PodName", "PodNamespace", "PodUID", "Node"];
        let fields = fields::read(body, &names)?;
        let mut texts = [const { String::new() }; 4];
        for ((name, field), text) in names.into_iter().zip(fields).zip(&mut texts) {
            if let Some(field) = field {
                *text = fields::value(name, field)?;
            }
            if text.is_empty() {
                return Err(BadBody::new(format_args!("{name} is missing")));
            }
        }
        let [pod_name, pod_namespace, pod_uid, node] = texts;
        Ok(Self { pod_name, pod_namespace, pod_uid, node })
    }
}

/// Writes the answer; an empty error means that the pod is bound.
pub fn write_bind(keys: Keys, error: impl Display, out: &mut Vec<u8>) {
    out.push(b'{');
    key(
        out,
        match keys {
            Keys::Capital => "Error",
            Keys::Small => "error",
        },
    );
    string(out, error);
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binding_is_read_whole_or_not_at_all() {
        for body in [
            r#"{"PodName":"p","PodNamespace":"n","PodUID":"u","Node":"a"}"#,
            r#"{"node":"a","poduid":"u","podNamespace":"n","podname":"p","more":{}}"#,
        ] {
            let args = BindArgs::parse(body.as_bytes()).unwrap();
            let expected = ["p", "n", "u", "a"].map(str::to_owned);
            assert_eq!([args.pod_name, args.pod_namespace, args.pod_uid, args.node], expected);
        }
        for (body, why) in [
            (r#"{"PodName":"p","PodNamespace":"n","PodUID":"u"}"#, "Node is missing"),
            (r#"{"PodName":"","PodNamespace":"n","PodUID":"u","Node":"a"}"#, "PodName is missing"),
            (r#"{"PodName":7,"PodNamespace":"n","PodUID":"u","Node":"a"}"#, "PodName: invalid type"),
            (r#"{"Node":"a","node":"b"}"#, "duplicate field `Node`"),
            ("[]", "invalid type: sequence"),
            ("", "EOF"),
        ] {
            let error = BindArgs::parse(body.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(why), "{body}: {error}");
        }
    }

    #[test]
    fn an_error_is_a_text_like_any_other() {
        let mut out = Vec::new();
        write_bind(Keys::Capital, "409: \"taken\"", &mut out);
        assert_eq!(out, br#"{"Error":"409: \u0022taken\u0022"}"#);
    }
}
