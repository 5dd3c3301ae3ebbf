use super::*;
use proptest::prelude::*;

/// One byte at a time.
fn slow_end(bytes: &[u8], at: usize) -> Option<usize> {
    let (mut depth, mut inside, mut escaped) = (0_usize, false, false);
    for (place, byte) in bytes.iter().enumerate().skip(at) {
        match (inside, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (true, b'"') => inside = false,
            (true, _) => {}
            (false, b'"') => inside = true,
            (false, b'{' | b'[') => depth += 1,
            (false, b'}' | b']') => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(place + 1);
                }
            }
            (false, _) => {}
        }
    }
    None
}

#[test]
fn brackets_end_where_they_do_whatever_lies_on_the_edge_of_a_block() {
    for filler in 0..140 {
        for tail in [r#""}""#, r#""\"}""#, r#""\\""#, r#""\\\"}{""#, "[[{}]]", r#"{"a":{"b":{"c":[]}}}"#, "é"]
        {
            let mut text = format!("{{\"{}\":{tail}}},{{}}]", "x".repeat(filler));
            let expected = slow_end(text.as_bytes(), 0);
            for _ in 0..2 {
                for width in Width::all() {
                    let found = width.brackets_end(text.as_bytes(), 0);
                    assert_eq!(found.map(|found| found.end), expected, "{text}");
                }
                // Cut off in the last object nothing is left of it.
                text.truncate(expected.unwrap());
            }
            text.truncate(text.len() - 1);
            for width in Width::all() {
                assert_eq!(width.brackets_end(text.as_bytes(), 0), None, "{text}");
            }
        }
    }
}

proptest! {
    #[test]
    fn brackets_end_where_a_slow_walk_says(text in r#"\{[{}\[\]"\\ a]{0,300}"#) {
        // Outside of strings a backslash is no JSON, and what is then said does not matter.
        let walk = slow_end(text.as_bytes(), 0);
        let ends: Vec<_> = Width::all().into_iter().map(|width| width.brackets_end(text.as_bytes(), 0)).collect();
        prop_assert!(ends.iter().all(|end| *end == ends[0]), "{ends:?}");
        if !has_backslash_outside(&text) {
            prop_assert_eq!(ends[0].map(|found| found.end), walk);
        }
    }

    #[test]
    fn strings_end_where_a_slow_walk_says(text in "[a-z\"\\\\\u{1}é]{0,120}") {
        for width in Width::all() {
            let body = format!("\"{text}\"]");
            let mut strings = Strings::default();
            let end = width.strings(body.as_bytes(), 0, &mut strings);
            let plain = string_end(body.as_bytes(), 1);
            match (strings.spans.first(), plain) {
                (Some(first), Some(plain)) => prop_assert_eq!(first.range(), 1..plain.quote),
                (None, None) => prop_assert_eq!(end, None),
                (first, plain) => prop_assert!(false, "{first:?} {plain:?}"),
            }
        }
    }
}

fn has_backslash_outside(text: &str) -> bool {
    let (mut inside, mut escaped) = (false, false);
    for byte in text.bytes() {
        match (inside, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => inside = !inside,
            (false, b'\\') => return true,
            (true | false, _) => {}
        }
    }
    false
}
