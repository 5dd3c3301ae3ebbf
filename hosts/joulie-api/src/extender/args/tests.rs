use super::*;

fn names<'a>(candidates: &'a Candidates<'_>) -> Vec<Option<&'a str>> {
    match candidates {
        Candidates::None => Vec::new(),
        Candidates::Names(names) => names.iter().map(|name| Some(name.as_str())).collect(),
        Candidates::Nodes(items) => items.iter().map(|item| item.name.as_ref().map(Name::as_str)).collect(),
    }
}

fn parse(body: &str) -> Args<'_> {
    Args::parse(body.as_bytes()).unwrap()
}

fn refused(body: &str) -> String {
    Args::parse(body.as_bytes()).unwrap_err().to_string()
}

#[test]
fn both_forms_are_read_in_any_casing() {
    for body in [
        r#"{"Pod":{"metadata":{}},"Nodes":null,"NodeNames":["a","b"]}"#,
        r#"{"pod":{"metadata":{}},"nodenames":["a","b"],"more":[{}]}"#,
        r#"{"POD":{"metadata":{}},"nodes":{"items":[{"metadata":{"name":"a"}},{"kind":"Node","metadata":{"labels":{},"name":"b"}}]}}"#,
        r#"{"Pod":{"metadata":{}},"Nodes":{"metadata":{},"Items":[{"Metadata":{"Name":"a"}},{"metadata":{"name":"b"}}]}}"#,
        r#"{"NodeNames":["x"],"Pod":{"metadata":{}},"Nodes":{"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}}  "#,
    ] {
        let args = parse(body);
        assert_eq!(names(&args.candidates), [Some("a"), Some("b")], "{body}");
        assert_eq!(args.pod.unwrap().get(), r#"{"metadata":{}}"#, "{body}");
    }
}

#[test]
fn null_is_said_everywhere_and_means_nothing() {
    for body in ["null", "{}", r#"{"Pod":null,"Nodes":null,"NodeNames":null}"#, " {} \n"] {
        let args = parse(body);
        assert!(args.pod.is_none() && matches!(args.candidates, Candidates::None), "{body}");
    }
    assert!(
        matches!(parse(r#"{"Nodes":{"items":null}}"#).candidates, Candidates::Nodes(items) if items.is_empty())
    );
    assert!(matches!(parse(r#"{"Nodes":{}}"#).candidates, Candidates::Nodes(items) if items.is_empty()));
}

#[test]
fn nodes_keep_their_bytes_and_names_are_borrowed() {
    let node = r#"{ "metadata" : {"name":"a","annotations":{"x":"\u003c\"}"}}, "status":{"images":[[]]} }"#;
    let body = format!(r#"{{"Nodes":{{"items":[{node},{{"metadata":{{"name":"b\u002d1"}}}}]}}}}"#);
    let args = parse(&body);
    let Candidates::Nodes(items) = &args.candidates else { panic!("nodes") };
    assert_eq!(items[0].raw.get(), node);
    assert!(matches!(items[0].name.as_ref().unwrap(), Name(Cow::Borrowed("a"))));
    assert_eq!(items[1].name.as_ref().unwrap().as_str(), "b-1");
    let args = parse(r#"{"NodeNames":["a","b\u002d1"]}"#);
    let Candidates::Names(names) = &args.candidates else { panic!("names") };
    assert!(matches!(&names[0], Name(Cow::Borrowed("a"))));
    assert_eq!(names[1].as_str(), "b-1");
}

#[test]
fn a_node_without_a_name_does_not_spoil_the_others() {
    let body = r#"{"Nodes":{"items":[{},{"metadata":{}},{"metadata":{"name":7}},{"metadata":{"name":""}},
        {"metadata":null},null,3,{"metadata":{"name":"good"}}]}}"#;
    let args = parse(body);
    assert_eq!(names(&args.candidates), [None, None, None, None, None, None, None, Some("good")]);
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
fn what_is_no_request_is_refused() {
    for body in [
        "",
        " ",
        "[]",
        "3",
        "\"x\"",
        "{",
        r#"{"Pod":{}"#,
        r#"{"Pod":{}} garbage"#,
        r#"{"Pod":{}}{}"#,
        r#"{"NodeNames":"a"}"#,
        r#"{"NodeNames":[1]}"#,
        r#"{"Nodes":[]}"#,
        r#"{"Nodes":{"items":"a"}}"#,
        r#"{"Nodes":{"items":[{"a":]}]}}"#,
        "{\"NodeNames\":[\"a\nb\"]}",
    ] {
        assert!(refused(body).starts_with("malformed body: "), "{body}");
    }
    assert!(Args::parse(b"{\"NodeNames\":[\"\xff\"]}").is_err());
    assert!(Args::parse(b"{\"Pod\":{\"x\":\"\xff\"}}").is_err());
}

#[test]
fn depth_costs_no_stack() {
    // 200 000 brackets kill parsers that recurse.
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    for body in [
        format!(r#"{{"Nodes":{{"items":[{{"x":{deep},"metadata":{{"name":"a"}}}}]}}}}"#),
        format!(r#"{{"other":{deep},"NodeNames":["a"]}}"#),
        format!(r#"{{"Pod":{deep},"NodeNames":["a"]}}"#),
    ] {
        assert_eq!(names(&parse(&body).candidates), [Some("a")]);
    }
}

#[test]
fn thousands_of_nodes_cost_a_few_allocations() {
    let name = |at: u32| format!("ip-10-0-{}-{}.eu.compute.internal", at / 256, at % 256);
    let names: Vec<String> = (0..5000).map(|at| format!("\"{}\"", name(at))).collect();
    let names = format!(r#"{{"Pod":{{}},"NodeNames":[{}]}}"#, names.join(","));
    let padding = "x".repeat(9000);
    let nodes: Vec<String> = (0..5000)
        .map(|at| format!(r#"{{"metadata":{{"name":"{}","annotations":{{"x":"{padding}"}}}}}}"#, name(at)))
        .collect();
    let nodes = format!(r#"{{"Nodes":{{"items":[{}]}}}}"#, nodes.join(","));
    for body in [names, nodes] {
        let counted = allocation_counter::measure(|| {
            assert_eq!(super::tests::names(&parse(&body).candidates).len(), 5000);
        });
        // One for the list, and those of the list that this test makes of it.
        assert!(counted.count_total <= 3, "{} allocations", counted.count_total);
    }
    // A body that claims to be long gets no more than the bound.
    let hollow = format!(r#"{{"x":"{padding}","NodeNames":[]}}"#, padding = " ".repeat(1 << 22));
    let counted = allocation_counter::measure(|| drop(Args::parse(hollow.as_bytes())));
    assert!(counted.bytes_max <= 8192 * 32, "{} bytes", counted.bytes_max);
}
