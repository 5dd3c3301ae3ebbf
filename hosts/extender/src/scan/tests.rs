use super::*;
use joulie_api::extender::{Args, Candidates as Parsed};
use proptest::prelude::*;

fn read(body: &str) -> Message<'_> {
    Message::read(body.as_bytes()).unwrap()
}

fn refused(body: &str) -> String {
    Message::read(body.as_bytes()).unwrap_err().to_string()
}

/// The names of all candidates; an empty one for an object that has none.
fn names(message: &Message<'_>) -> Vec<String> {
    match &message.candidates {
        Candidates::None => Vec::new(),
        Candidates::Names(names) => {
            names.spans.iter().map(|span| text(message.body, *span, names.escaped).into_owned()).collect()
        }
        Candidates::Nodes(Nodes { items, .. }) => {
            items.iter().map(|item| text(message.names(), item.name, item.escaped).into_owned()).collect()
        }
    }
}

/// What the parser that checks every byte says: the names, and the objects.
fn parsed(args: &Args<'_>) -> (Vec<String>, Vec<String>) {
    match &args.candidates {
        Parsed::None => (Vec::new(), Vec::new()),
        Parsed::Names(names) => (names.iter().map(|name| name.as_str().to_owned()).collect(), Vec::new()),
        Parsed::Nodes(items) => items
            .iter()
            .map(|item| {
                let name = item.name.as_ref().map(|name| name.as_str().to_owned()).unwrap_or_default();
                (name, item.raw.get().to_owned())
            })
            .unzip(),
    }
}

fn raws(message: &Message<'_>) -> Vec<String> {
    let Candidates::Nodes(nodes) = &message.candidates else { return Vec::new() };
    nodes.items.iter().map(|item| String::from_utf8(item.raw.of(message.body).to_vec()).unwrap()).collect()
}

#[test]
fn both_forms_are_read_in_any_casing() {
    for body in [
        r#"{"Pod":{"metadata":{}},"Nodes":null,"NodeNames":["a","b"]}"#,
        r#"{"pod":{"metadata":{}},"nodenames":["a","b"],"more":[{}]}"#,
        r#"{"pod":{"metadata":{}},"nodenames": [ "a" , "b" ] , "more":1e3 }"#,
        r#"{"POD":{"metadata":{}},"nodes":{"items":[{"metadata":{"name":"a"}},{"kind":"Node","metadata":{"labels":{},"name":"b"}}]}}"#,
        r#"{"Pod":{"metadata":{}},"Nodes":{"metadata":{},"Items":[{"Metadata":{"Name":"a"}},{"metadata":{"name":"b"}}]}}"#,
        r#"{"NodeNames":["x"],"Pod":{"metadata":{}},"Nodes":{"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}}  "#,
    ] {
        let message = read(body);
        assert_eq!(names(&message), ["a", "b"], "{body}");
        assert_eq!(message.pod, Some(r#"{"metadata":{}}"#), "{body}");
    }
}

#[test]
fn null_is_said_everywhere_and_means_nothing() {
    for body in ["null", "{}", r#"{"Pod":null,"Nodes":null,"NodeNames":null}"#, " {} \n"] {
        let message = read(body);
        assert!(message.pod.is_none() && matches!(message.candidates, Candidates::None), "{body}");
    }
    for body in [r#"{"Nodes":{"items":null}}"#, r#"{"Nodes":{}}"#, r#"{"Nodes":{"items":[ ]}}"#] {
        assert!(
            matches!(read(body).candidates, Candidates::Nodes(nodes) if nodes.items.is_empty()),
            "{body}"
        );
    }
}

#[test]
fn a_node_without_a_name_does_not_spoil_the_others() {
    let body = r#"{"Nodes":{"items":[{},{"metadata":{}},{"metadata":{"name":7}},{"metadata":{"name":""}},
        {"metadata":null},null,{"metadata":{"name":"good"}}]}}"#;
    assert_eq!(names(&read(body)), ["", "", "", "", "", "", "good"]);
}

#[test]
fn names_are_unescaped_and_objects_keep_their_bytes() {
    let node = r#"{ "metadata" : {"annotations":{"x":"\u003c\"}\\"},"name":"a"}, "status":{"images":[[]]} }"#;
    let body = format!(r#"{{"Nodes":{{"items":[{node},{{"metadata":{{"name":"b\u002d1"}}}}]}}}}"#);
    let message = read(&body);
    assert_eq!(names(&message), ["a", "b-1"]);
    assert_eq!(raws(&message)[0], node);
    assert_eq!(names(&read(r#"{"NodeNames":["a","b\u002d1","\\"]}"#)), ["a", "b-1", "\\"]);
}

#[test]
fn a_key_that_comes_twice_is_refused() {
    for (body, key) in [
        (r#"{"NodeNames":["a"],"nodenames":["b"]}"#, "NodeNames"),
        (r#"{"Nodes":null,"nodes":{"items":[]}}"#, "Nodes"),
        (r#"{"Pod":{},"Pod":{}}"#, "Pod"),
        (r#"{"Nodes":{"items":[],"Items":[]}}"#, "items"),
    ] {
        assert!(refused(body).contains(&format!("duplicate field `{key}`")), "{body}");
    }
}

#[test]
fn what_is_no_message_is_refused_with_the_place() {
    let deep = format!(r#"{{"Nodes":{{"items":[{}"#, "[".repeat(200_000));
    let deeper = format!(r#"{{"Nodes":{{"items":[{}"#, r#"{"a":"#.repeat(200_000));
    let unknown = format!(r#"{{"x":{}"#, "[".repeat(200_000));
    for body in [
        "",
        " ",
        "[]",
        "3",
        "\"x\"",
        "nul",
        "{",
        "}",
        r#"{"Pod""#,
        r#"{"Pod":"#,
        r#"{"Pod":{}"#,
        r#"{"Pod":{}} x"#,
        r#"{"Pod":{}}{}"#,
        r#"{"Pod":{}"NodeNames":[]}"#,
        r#"{"Pod":{]}"#,
        r#"{"Pod":{}},"#,
        r#"{,}"#,
        r#"{"Pod":{},}"#,
        r#"{"Pod":"a pod"}"#,
        r#"{"NodeNames":"a"}"#,
        r#"{"NodeNames":["a"}"#,
        r#"{"NodeNames":["a" "b"]}"#,
        r#"{"NodeNames":["a",]}"#,
        r#"{"NodeNames":[,"a"]}"#,
        r#"{"NodeNames":["a",null]}"#,
        r#"{"NodeNames":[1]}"#,
        r#"{"NodeNames":["a\q"]}"#,
        r#"{"NodeNames":["a"#,
        "{\"NodeNames\":[\"a\nb\"]}",
        r#"{"NodeNames":["a\""#,
        r#"{"Nodes":[]}"#,
        r#"{"Nodes":{"items":{}}}"#,
        r#"{"Nodes":{"items":"x"}}"#,
        r#"{"Nodes":{"items":[3]}}"#,
        r#"{"Nodes":{"items":[{"metadata":{"name":"a"}]}}"#,
        r#"{"Nodes":{"items":[{"a":"}]}}"#,
        r#"{"Nodes":{"items":[{]]}}"#,
        r#"{"x":tru}"#,
        r#"{"x":[1,]}"#,
        r#"{"x":}"#,
        r#"{x:1}"#,
        "{\"x\u{1}\":1}",
        &deep,
        &deeper,
        &unknown,
    ] {
        assert!(Message::read(body.as_bytes()).is_err(), "{:?}", body.get(..60).unwrap_or(body));
        for width in Width::all() {
            assert!(Message::read_by(width, body.as_bytes()).is_err());
        }
    }
    assert_eq!(
        refused(r#"{"NodeNames":[1]}"#),
        "malformed body: expected a list of names that goes on or ends at byte 14"
    );
}

#[test]
fn text_that_is_no_utf8_is_refused_wherever_it_is() {
    for body in [
        &b"{\"NodeNames\":[\"\xff\"]}"[..],
        b"{\"\xff\":1}",
        b"{\"Nodes\":{\"items\":[{\"metadata\":{\"name\":\"a\"},\"x\":\"\xc3\"}]}}",
        b"{\"Nodes\":{\"items\":[]},\"x\":\"\xff\"}",
        b"{\"Pod\":{\"x\":\"\xff\"}}",
    ] {
        assert!(Message::read(body).is_err(), "{body:?}");
    }
    assert_eq!(names(&read(r#"{"NodeNames":["nœud"]}"#)), ["nœud"]);
    // In each name and many keys of a message that has a list of each kind, in both orders.
    let nodes = r#""Nodes":{"items":[{"metadata":{"name":"nooooooooooooooode-1"}},{}]}"#;
    let list = format!(r#""NodeNames":["{}"]"#, ["nooooooooooooode"; 12].join(r#"",""#));
    for body in [format!("{{{nodes},{list}}}"), format!("{{{list},{nodes}}}")] {
        for (at, _) in body.match_indices('o') {
            let mut bytes = body.clone().into_bytes();
            bytes[at] = 0x80;
            for width in Width::all() {
                assert!(Message::read_by(width, &bytes).is_err(), "{width:?}, byte {at} of {body}");
            }
        }
    }
}

#[test]
fn labels_are_found_in_an_object() {
    let object =
        br#"{"kind":"Node","metadata":{"name":"a","labels":{"x":"y","joulie.io/power-profile":"eco"}}}"#;
    assert!(object::has_label(object, "joulie.io/power-profile", "eco"));
    assert!(!object::has_label(object, "joulie.io/power-profile", "performance"));
    assert!(!object::has_label(object, "kind", "Node"));
    for other in ["{}", "null", "{\"metadata\":{\"labels\":null}}", "{\"metadata\":{\"labels\":{\"x\":", ""] {
        assert!(!object::has_label(other.as_bytes(), "x", "y"), "{other}");
    }
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::{Map, Value};
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z{}\\[\\]\"\\\\é ,:]{0,40}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec(("(metadata|name|labels|[a-z\"\\\\]{0,8})", inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

proptest! {
    /// On every message that is JSON the scanner and the parser say the same.
    #[test]
    fn the_scanner_says_what_the_parser_says(
        items in prop::collection::vec(prop_oneof![
            json().prop_filter("an object", serde_json::Value::is_object),
            "[a-z]{1,3}".prop_map(|name| serde_json::json!({"metadata": {"name": name, "labels": {"x": "y"}}})),
        ], 0..6),
        listed in prop::collection::vec("[a-z\"\\\\é]{0,70}", 0..6),
        pod in json().prop_filter("an object", serde_json::Value::is_object),
        both in any::<bool>(),
        pretty in any::<bool>(),
    ) {
        let mut body = serde_json::json!({"Pod": pod, "NodeNames": listed});
        if both {
            body["Nodes"] = serde_json::json!({"items": items});
        }
        let body = if pretty { serde_json::to_string_pretty(&body) } else { serde_json::to_string(&body) }.unwrap();
        let args = Args::parse(body.as_bytes()).unwrap();
        for width in Width::all() {
            let message = Message::read_by(width, body.as_bytes()).unwrap();
            let (expected_names, expected_raws) = parsed(&args);
            prop_assert_eq!(names(&message), expected_names);
            prop_assert_eq!(raws(&message), expected_raws);
            prop_assert_eq!(message.pod, args.pod.map(|pod| pod.get()));
        }
    }

    /// On any bytes it does not panic, and all widths say the same.
    #[test]
    fn any_bytes_are_read_alike_by_all_widths(body in prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        "[{}\\[\\]\",:\\\\ NodeNamesPoditems]{0,300}".prop_map(String::into_bytes),
    ]) {
        let plain = Message::read_by(Width::Plain, &body).map(|message| names(&message));
        for width in Width::all() {
            prop_assert_eq!(&Message::read_by(width, &body).map(|message| names(&message)), &plain);
        }
    }
}
