//! Label selectors as kubectl writes them: `a=b`, `a!=b`, `a in (b,c)`, `a notin (b)`, `a`, `!a`, with commas between.

use super::Wrong;
use super::parse::wrong;
use kube::core::{Expression, Selector};
use std::collections::BTreeSet;

/// Reads a selector with at least one requirement.
pub fn selector(text: &str) -> Result<Selector, Wrong> {
    let requirements = split(text)?.into_iter().map(requirement).collect::<Result<Vec<_>, _>>()?;
    Ok(requirements.into_iter().collect())
}

/// Splits at the commas outside parentheses.
fn split(text: &str) -> Result<Vec<&str>, Wrong> {
    let (mut parts, mut start, mut open) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match (c, open) {
            ('(', false) => open = true,
            (')', true) => open = false,
            ('(', true) | (')', false) => return wrong("its parentheses do not match"),
            (',', false) => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    if open {
        return wrong("its parentheses do not match");
    }
    parts.push(text[start..].trim());
    Ok(parts)
}

fn requirement(text: &str) -> Result<Expression, Wrong> {
    if text.is_empty() {
        return wrong("a requirement between two commas is empty");
    }
    if let Some((key_text, word, values)) = set(text) {
        let (key, values) = (key(key_text)?, members(values)?);
        return match word {
            "in" => Ok(Expression::In(key, values)),
            "notin" => Ok(Expression::NotIn(key, values)),
            other => wrong(format!("{other:?} is neither 'in' nor 'notin'")),
        };
    }
    if let Some((left, right)) = text.split_once("!=") {
        return Ok(Expression::NotEqual(key(left.trim())?, label_value(right.trim())?));
    }
    if let Some((left, right)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return Ok(Expression::Equal(key(left.trim())?, label_value(right.trim())?));
    }
    if text.contains(['<', '>']) {
        return wrong("'<' and '>' are not supported; list the values: key in (a,b)");
    }
    match text.strip_prefix('!') {
        Some(absent) => Ok(Expression::DoesNotExist(key(absent.trim())?)),
        None => Ok(Expression::Exists(key(text)?)),
    }
}

/// Splits `key word (values)` into its parts.
fn set(text: &str) -> Option<(&str, &str, &str)> {
    let (head, tail) = text.split_once('(')?;
    let (key, word) = head.trim().rsplit_once(char::is_whitespace).unwrap_or((head.trim(), ""));
    Some((key.trim(), word, tail.strip_suffix(')').unwrap_or(tail)))
}

fn members(text: &str) -> Result<BTreeSet<String>, Wrong> {
    text.split(',').map(|one| label_value(one.trim())).collect()
}

/// A label's key.
pub(super) fn key(text: &str) -> Result<String, Wrong> {
    let (domain, name) = text.rsplit_once('/').map_or((None, text), |(domain, name)| (Some(domain), name));
    let domain_fine = domain.is_none_or(|domain| super::parse::object_name(domain).as_deref() == Ok(domain));
    if domain_fine && !name.is_empty() && is_label_text(name) {
        return Ok(text.to_owned());
    }
    wrong(format!("{text:?} is not a label's key"))
}

fn label_value(text: &str) -> Result<String, Wrong> {
    if is_label_text(text) { Ok(text.to_owned()) } else { wrong(format!("{text:?} is not a label's value")) }
}

/// At most 63 letters, digits, `-`, `_` and `.`, a letter or digit at both ends; or nothing.
fn is_label_text(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let edge = |byte: Option<u8>| byte.is_none_or(|byte| byte.is_ascii_alphanumeric());
    text.len() <= 63 && text.bytes().all(inner) && edge(text.bytes().next()) && edge(text.bytes().next_back())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::SelectorExt;
    use std::collections::BTreeMap;

    #[test]
    fn each_form_of_a_requirement_is_read() {
        let said =
            "joulie.io/managed=true, zone == a,tier!=gold , rack in (r1, r2),pool notin (x),gpu,!spot,empty=";
        let read = selector(said).unwrap();
        assert_eq!(
            read.to_string(),
            "joulie.io/managed=true,zone=a,tier!=gold,rack in (r1,r2),pool notin (x),gpu,!spot,empty="
        );
        let labels = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        let mut node = labels(&[
            ("joulie.io/managed", "true"),
            ("zone", "a"),
            ("rack", "r2"),
            ("gpu", ""),
            ("empty", ""),
        ]);
        assert!(read.matches(&node));
        node.insert("spot".to_owned(), String::new());
        assert!(!read.matches(&node));
    }

    #[test]
    fn what_is_no_selector_is_refused_with_the_part_that_is_none() {
        for (text, why) in [
            ("", "empty"),
            ("a=b,", "empty"),
            ("a in (b", "parentheses"),
            ("a in b)", "parentheses"),
            ("a in ((b))", "parentheses"),
            ("a within (b)", "\"within\""),
            ("(b)", "\"\""),
            ("a=b c", "\"b c\""),
            ("=b", "\"\""),
            ("a/b/c=d", "a/b/c"),
            ("UPPER.io/x=y", "UPPER.io/x"),
            ("-a", "\"-a\""),
            ("a>5", "not supported"),
            ("a=b=c", "\"b=c\""),
            ("ä=b", "ä"),
        ] {
            let Wrong(said) = selector(text).unwrap_err();
            assert!(said.contains(why), "{text:?}: {said}");
        }
        assert!(selector(&format!("{}=x", "k".repeat(63))).is_ok());
        assert!(selector(&format!("{}=x", "k".repeat(64))).is_err());
    }
}
