use super::*;
use proptest::prelude::*;
use serde_json::Value;

fn read(body: &str) -> Message<'_> {
    Message::read(body.as_bytes()).unwrap()
}

fn refused(body: &str) -> String {
    Message::read(body.as_bytes()).unwrap_err().to_string()
}

/// The names of all candidates; an empty one for an object without a name.
fn names(message: &Message<'_>) -> Vec<String> {
    let name = |span, escaped| text(message.body, span, escaped).into_owned();
    match &message.candidates {
        Candidates::None => Vec::new(),
        Candidates::Names(names) => names.spans.iter().map(|span| name(*span, names.escaped)).collect(),
        Candidates::Nodes(items) => items.iter().map(|item| name(item.name, item.escaped)).collect(),
    }
}

fn raws(message: &Message<'_>) -> Vec<String> {
    let Candidates::Nodes(items) = &message.candidates else { return Vec::new() };
    items.iter().map(|item| String::from_utf8(item.raw.of(message.body).to_vec()).unwrap()).collect()
}

/// The first member of this name in any casing, in the order of an object that was parsed from text.
fn member<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    value.as_object()?.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

fn name_of(node: &Value) -> String {
    let name = member(node, "metadata").and_then(|metadata| member(metadata, "name"));
    name.and_then(Value::as_str).unwrap_or_default().to_owned()
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
        assert_eq!(message.pod.unwrap().get(), r#"{"metadata":{}}"#, "{body}");
    }
}

#[test]
fn null_is_said_everywhere_and_means_nothing() {
    for body in ["null", "{}", r#"{"Pod":null,"Nodes":null,"NodeNames":null}"#, " {} \n"] {
        let message = read(body);
        assert!(message.pod.is_none() && matches!(message.candidates, Candidates::None), "{body}");
    }
    for body in [r#"{"Nodes":{"items":null}}"#, r#"{"Nodes":{}}"#, r#"{"Nodes":{"items":[ ]}}"#] {
        assert!(matches!(read(body).candidates, Candidates::Nodes(nodes) if nodes.is_empty()), "{body}");
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
    }
    assert_eq!(refused(r#"{"NodeNames":[1]}"#), "malformed body: expected a name at byte 14");
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
    // Change each byte of each name and of many keys, in a message with both kinds of list, in both orders.
    let nodes = r#""Nodes":{"items":[{"metadata":{"name":"nooooooooooooooode-1"}},{}]}"#;
    let list = format!(r#""NodeNames":["{}"]"#, ["nooooooooooooode"; 12].join(r#"",""#));
    for body in [format!("{{{nodes},{list}}}"), format!("{{{list},{nodes}}}")] {
        for (at, _) in body.match_indices('o') {
            let mut bytes = body.clone().into_bytes();
            bytes[at] = 0x80;
            assert!(Message::read(&bytes).is_err(), "byte {at} of {body}");
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

#[test]
fn depth_costs_no_stack() {
    // 200 000 brackets overflow the stack of parsers that recurse.
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    for body in [
        format!(r#"{{"Nodes":{{"items":[{{"x":{deep},"metadata":{{"name":"a"}}}}]}}}}"#),
        format!(r#"{{"other":{deep},"NodeNames":["a"]}}"#),
        format!(r#"{{"Pod":{{"x":{deep}}},"NodeNames":["a"]}}"#),
    ] {
        assert_eq!(names(&read(&body)), ["a"]);
    }
}

#[test]
fn a_body_that_lies_about_its_length_gets_no_more_than_the_bound() {
    for list in [r#""NodeNames":["a"]"#, r#""Nodes":{"items":[{}]}"#] {
        let hollow = format!(r#"{{"x":"{padding}",{list}}}"#, padding = " ".repeat(1 << 26));
        let counted = allocation_counter::measure(|| drop(Message::read(hollow.as_bytes())));
        assert!(counted.bytes_max <= 8192 * 24, "{} bytes", counted.bytes_max);
        assert!(counted.count_total <= 2, "{} allocations", counted.count_total);
    }
}

fn json() -> impl Strategy<Value = Value> {
    use serde_json::Map;
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
    /// The scanner reads a message as `serde_json` does.
    #[test]
    fn a_message_is_read_as_it_was_written(
        items in prop::collection::vec(prop_oneof![
            json().prop_filter("an object", Value::is_object),
            "[a-z]{1,3}".prop_map(|name| serde_json::json!({"metadata": {"name": name, "labels": {"x": "y"}}})),
        ], 0..6),
        listed in prop::collection::vec("[a-z\"\\\\é]{0,70}", 0..6),
        pod in json().prop_filter("an object", Value::is_object),
        both in any::<bool>(),
        pretty in any::<bool>(),
    ) {
        let mut body = serde_json::json!({"Pod": pod, "NodeNames": listed});
        if both {
            body["Nodes"] = serde_json::json!({"items": items});
        }
        let body = if pretty { serde_json::to_string_pretty(&body) } else { serde_json::to_string(&body) }.unwrap();
        let message = read(&body);
        let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        prop_assert_eq!(parsed(message.pod.unwrap().get()), pod);
        if both {
            prop_assert_eq!(names(&message), items.iter().map(name_of).collect::<Vec<_>>());
            prop_assert_eq!(raws(&message).iter().map(|raw| parsed(raw)).collect::<Vec<_>>(), items);
        } else {
            prop_assert_eq!(names(&message), listed);
        }
    }

    #[test]
    fn no_bytes_are_a_panic(body in prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        "[{}\\[\\]\",:\\\\ NodeNamesPoditems]{0,300}".prop_map(String::into_bytes),
    ]) {
        drop(Message::read(&body).map(|message| (names(&message), raws(&message))));
    }
}
