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
    fn brackets_end_where_a_slow_walk_says(text in r#"\{[{}\[\]"\\ aé]{0,300}"#) {
        // Outside of strings a backslash is no JSON, and what is then said does not matter.
        let walk = slow_end(text.as_bytes(), 0);
        let ends: Vec<_> = Width::all().into_iter().map(|width| width.brackets_end(text.as_bytes(), 0)).collect();
        prop_assert!(ends.iter().all(|end| *end == ends[0]), "{ends:?}");
        if let Some(found) = ends[0] {
            // It may also be told of what lies behind the end.
            prop_assert!(found.high || text.as_bytes()[..found.end].is_ascii());
        }
        if !has_backslash_outside(&text) {
            prop_assert_eq!(ends[0].map(|found| found.end), walk);
        }
    }

    #[test]
    fn a_list_is_the_same_by_all_widths(text in "[ab,,\"\"\"\\\\\u{1} \\]é]{0,300}") {
        let lists: Vec<_> = Width::all().into_iter().map(|width| listed(width, &format!("\"{text}\"]"))).collect();
        prop_assert!(lists.iter().all(|list| *list == lists[0]), "{lists:?}");
    }

    #[test]
    fn the_texts_of_a_list_are_found(texts in prop::collection::vec("[a,]{0,3}|[a-z,é.]{0,80}", 0..40), odd in 0_usize..80) {
        // Mostly as Go writes it; one comma with a space behind it, one text with an escape.
        let quoted: Vec<String> = texts.iter().enumerate().map(|(at, text)| {
            let escape = if at == odd { "\\n" } else { "" };
            format!("\"{escape}{text}\"")
        }).collect();
        let (first, last) = quoted.split_at(quoted.len().min(odd / 2));
        let list = [first.join(","), last.join(",")].into_iter().filter(|part| !part.is_empty());
        let list = format!("{}]", list.collect::<Vec<_>>().join(", "));
        for width in Width::all() {
            let (found, end) = listed(width, &list);
            prop_assert_eq!(end, Some(list.len()));
            let quoted: Vec<&str> = quoted.iter().map(|text| &text[1..text.len() - 1]).collect();
            prop_assert_eq!(found, quoted);
        }
    }

    #[test]
    fn strings_end_where_a_slow_walk_says(text in "[a-z\"\\\\\u{1}é]{0,120}") {
        for width in Width::all() {
            let body = format!("\"{text}\"]");
            let mut strings = Strings::default();
            let end = width.strings(body.as_bytes(), 0, &mut strings);
            let plain = string_end(body.as_bytes(), 1);
            prop_assert_eq!(width.string_end(body.as_bytes(), 1), plain);
            match (strings.spans.first(), plain) {
                (Some(first), Some(plain)) => prop_assert_eq!(first.range(), 1..plain.quote),
                (None, None) => prop_assert_eq!(end, None),
                (first, plain) => prop_assert!(false, "{first:?} {plain:?}"),
            }
        }
    }
}

/// The texts of a list, and where it ends; nothing where it does not.
fn listed(width: Width, list: &str) -> (Vec<String>, Option<usize>) {
    let mut strings = Strings::default();
    let end = width.strings(list.as_bytes(), 0, &mut strings);
    let text = |span: &Span| String::from_utf8_lossy(span.of(list.as_bytes())).into_owned();
    (end.map_or_else(Vec::new, |_| strings.spans.iter().map(text).collect()), end)
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
