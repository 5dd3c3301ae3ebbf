//! The files of the page, which are in the program: nothing of it comes from elsewhere.

/// A file, and how it is announced.
pub(crate) struct UiFile {
    pub(crate) kind: &'static str,
    pub(crate) text: &'static str,
}

/// Where the token for orders stands in the document.
const TOKEN: &str = "@TOKEN@";
const DOCUMENT: &str = include_str!("../assets/index.html");

/// A file by its name below `/ui/`.
pub(crate) fn file(name: &str) -> Option<UiFile> {
    let (kind, text) = match name {
        "page.css" => ("text/css; charset=utf-8", include_str!("../assets/page.css")),
        "page.js" => ("text/javascript; charset=utf-8", include_str!("../assets/page.js")),
        "icon.svg" => ("image/svg+xml", include_str!("../assets/icon.svg")),
        _ => return None,
    };
    Some(UiFile { kind, text })
}

/// The document, with this token in it.
pub(crate) fn document(token: &str) -> String {
    DOCUMENT.replace(TOKEN, token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_names_only_files_that_there_are() {
        let mut named = 0;
        for attribute in ["href=\"", "src=\""] {
            for (at, _) in DOCUMENT.match_indices(attribute) {
                let name = DOCUMENT[at + attribute.len()..].split('"').next().unwrap();
                assert!(name.starts_with('#') || file(name).is_some(), "{name}");
                named += 1;
            }
        }
        assert!(named >= 3, "{named}");
        // A strict policy lets none of these run.
        for inline in ["<style", " style=", "onclick=", "javascript:", "http://", "https://"] {
            assert!(!DOCUMENT.contains(inline), "{inline}");
        }
    }

    #[test]
    fn the_token_is_in_the_document_once() {
        assert_eq!(document("abc123").matches("abc123").count(), 1);
        assert!(!document("").contains(TOKEN));
    }
}
