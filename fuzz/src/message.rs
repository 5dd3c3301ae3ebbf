//! Property: the extender's scanner, with registers of every width, says the same of any body; where the body is JSON
//! it finds what the parser finds that checks every byte; and what it finds lies in the body, one behind the other.

use extender::probe::{Scanned, scans};
use joulie_api::extender::{Args, Candidates};
use serde_json::Value;

/// What the careful parser says; nothing where the scanner may be stricter: it takes objects and null for nodes, and
/// an object for a pod.
fn careful(body: &[u8]) -> Option<Result<Scanned, ()>> {
    let args = match Args::parse(body) {
        Ok(args) => args,
        Err(_) => return Some(Err(())),
    };
    if args.pod.is_some_and(|pod| !pod.get().starts_with('{')) {
        return None;
    }
    let place = |text: &str| {
        let start = text.as_ptr().addr().checked_sub(body.as_ptr().addr())?;
        Some(start..start + text.len())
    };
    let mut found = Scanned { pod: args.pod.map(|pod| pod.get().to_owned()), candidates: Vec::new() };
    if let Candidates::Nodes(items) = &args.candidates {
        for item in items {
            let raw = item.raw.get();
            if !raw.starts_with('{') && raw != "null" {
                return None;
            }
            let name = item.name.as_ref().map(|name| name.as_str().to_owned()).unwrap_or_default();
            found.candidates.push(extender::probe::Found { name, raw: place(raw)? });
        }
    }
    if let Candidates::Names(names) = &args.candidates {
        for name in names {
            let name = name.as_str().to_owned();
            found.candidates.push(extender::probe::Found { name, raw: 0..0 });
        }
    }
    Some(Ok(found))
}

pub(crate) fn run(body: &[u8]) {
    let mut all = scans(body).into_iter();
    let Some(plain) = all.next() else { return };
    for other in all {
        assert_eq!(plain, other);
    }
    if let Ok(found) = &plain {
        let mut last = 0;
        for candidate in &found.candidates {
            assert!(candidate.raw.start >= last && candidate.raw.end <= body.len(), "{candidate:?}");
            last = candidate.raw.end;
        }
    }
    let is_json = std::str::from_utf8(body).is_ok_and(|text| serde_json::from_str::<Value>(text).is_ok());
    let Some(careful) = careful(body) else { return };
    match (plain, careful) {
        (Ok(mut found), Ok(careful)) => {
            // Where a name is borrowed from is not told by the parser.
            for (found, careful) in found.candidates.iter_mut().zip(&careful.candidates) {
                if careful.raw == (0..0) {
                    found.raw = 0..0;
                }
            }
            assert_eq!(found, careful);
        }
        (Err(_), Err(())) => {}
        (Ok(_), Err(())) => assert!(!is_json, "the scanner takes what the parser refuses"),
        (Err(why), Ok(_)) => {
            assert!(std::str::from_utf8(body).is_err(), "the scanner refuses a request: {why}")
        }
    }
}
