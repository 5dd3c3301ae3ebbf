use super::*;
use host_kit::bearer::TokenFile;
use host_kit::reflect::Row;
use serde_json::{Value, json};

fn row(name: &str, spec: Value) -> (String, Arc<RouteRow>) {
    let object = json!({
        "apiVersion": "joulie.io/v1alpha1", "kind": "TelemetryProfile",
        "metadata": {"name": name, "uid": format!("uid-{name}"), "generation": 1}, "spec": spec,
    });
    (name.to_owned(), Arc::new(RouteRow::read(&object).unwrap()))
}

fn known(all: &[(String, Arc<RouteRow>)]) -> Profiles {
    Profiles { known: true, all: all.to_vec() }
}

fn for_node(more: Value) -> Value {
    with_target(json!({"scope": "node", "nodeName": "a"}), more)
}

fn for_cluster(more: Value) -> Value {
    with_target(json!({"scope": "cluster"}), more)
}

fn with_target(target: Value, mut more: Value) -> Value {
    more["target"] = target;
    more
}

fn http(what: &str) -> Value {
    json!({"type": "http", "http": {"endpoint": format!("http://sim/{what}/{{node}}")}})
}

fn terms() -> HttpTerms {
    HttpTerms { timeout: Duration::from_secs(2), authorities: None, token: None }
}

fn host() -> Base {
    Base { place: Place::OnNode, reached: Reached::Host { cpu: true, gpu: true }, http: terms() }
}

fn endpoint(url: &str, seconds: u64) -> NodeEndpoint {
    let timeout = Duration::from_secs(seconds);
    NodeEndpoint { url: url.parse().unwrap(), timeout, shows_token: false }
}

fn pool() -> Base {
    let routing = NodeRouting {
        source: Some(endpoint("http://base/telemetry/{node}", 2)),
        gpu_source: Some(endpoint("http://base/telemetry/{node}", 2)),
        cpu: Some(endpoint("http://base/control/{node}", 2)),
        ..NodeRouting::NOWHERE
    };
    Base { place: Place::Elsewhere, reached: Reached::Http(routing), http: terms() }
}

/// By one profile, after the settings.
fn by(base: &Base, spec: Value) -> Standing {
    base.choose("a", &known(&[row("p", spec)]), &base.choose("a", &known(&[]), &base.start()))
}

fn refused(base: &Base, spec: Value) -> String {
    let standing = by(base, spec);
    assert_eq!(*standing.reached, base.reached, "the last good route stays");
    standing.refused.unwrap().1
}

#[test]
fn the_nodes_own_profile_holds_before_the_clusters_and_that_before_the_settings() {
    let own = row("z-own", for_node(json!({"controls": {"gpu": {"type": "none"}}})));
    let rival = row("zz-own", for_node(json!({})));
    let other = row("b", with_target(json!({"scope": "node", "nodeName": "b"}), json!({})));
    let all = row("a-all", for_cluster(json!({"controls": {"cpu": {"type": "none"}}})));
    let base = host();
    let choose = |rows: &[(String, Arc<RouteRow>)]| base.choose("a", &known(rows), &base.start());
    let by_own = choose(&[all.clone(), other.clone(), own, rival]);
    assert_eq!(*by_own.reached, Reached::Host { cpu: true, gpu: false });
    assert_eq!((by_own.by.unwrap().name.as_str(), by_own.rivals), ("z-own", vec!["zz-own".to_owned()]));
    let by_all = choose(&[all, other]);
    assert_eq!(*by_all.reached, Reached::Host { cpu: false, gpu: true });
    let by_settings = choose(&[]);
    assert_eq!((&*by_settings.reached, by_settings.by), (&base.reached, None));
}

#[test]
fn a_node_goes_over_http_with_the_times_of_each_endpoint_and_the_mode() {
    let mut cpu = http("control");
    cpu["http"]["timeoutSeconds"] = json!(30);
    cpu["http"]["mode"] = json!("dvfs");
    let spec = for_node(json!({"sources": {"cpu": http("telemetry")}, "controls": {"cpu": cpu}}));
    let wanted = NodeRouting {
        source: Some(endpoint("http://sim/telemetry/{node}", 2)),
        gpu_source: Some(endpoint("http://sim/telemetry/{node}", 2)),
        cpu: Some(endpoint("http://sim/control/{node}", 30)),
        preference: ControlPreference::ThrottleOnly,
        gpu: None,
    };
    assert_eq!(*by(&host(), spec.clone()).reached, Reached::Http(wanted.clone()));
    assert_eq!(*by(&pool(), spec).reached, Reached::Http(wanted));
    // What is left out is as in the settings, where these reach the node by the same means.
    let spec = for_node(json!({"controls": {"gpu": http("control")}}));
    let Reached::Http(routing) = &*by(&pool(), spec.clone()).reached.clone() else { panic!() };
    assert_eq!(routing.source, Some(endpoint("http://base/telemetry/{node}", 2)));
    let Reached::Http(routing) = &*by(&host(), spec).reached.clone() else { panic!() };
    assert_eq!((&routing.source, &routing.cpu), (&None, &None), "never the host beside an endpoint");
    let over_http = Base { place: Place::OnNode, ..pool() };
    let spec = for_node(json!({"controls": {"cpu": {"type": "host"}}}));
    assert_eq!(*by(&over_http, spec).reached, Reached::Host { cpu: true, gpu: true });
}

#[test]
fn what_cannot_be_followed_is_refused_and_says_what_to_do() {
    let prometheus = |endpoint: &str, query: &str| {
        let query = json!({"endpoint": endpoint, "query": query});
        json!({"sources": {"gpu": {"type": "prometheus", "prometheus": query}}})
    };
    let own = "spec.sources.gpu.prometheus.query: it reads a metric of Joulie's programs";
    let mut clocks = http("control");
    clocks["http"]["mode"] = json!("clocks");
    let url = |url: &str| json!({"type": "http", "http": {"endpoint": url}});
    for (base, spec, words) in [
        (
            host(),
            json!({"sources": {"cpu": http("t")}, "controls": {"cpu": {"type": "host"}}}),
            "spec.controls.cpu is host and spec.sources.cpu is http: a node is reached over HTTP or by its own hardware, \
             not half and half",
        ),
        (
            pool(),
            json!({"controls": {"gpu": {"type": "host"}}}),
            "spec.controls.gpu: in mode pool the host of the agent is none of the nodes",
        ),
        (host(), json!({"sources": {"cpu": {"type": "none"}}}), "own meters cannot be turned off"),
        (
            host(),
            prometheus("http://p?x=1", "w"),
            "spec.sources.gpu.prometheus.endpoint: the address of a server",
        ),
        (
            host(),
            prometheus("p:9090", "w"),
            "spec.sources.gpu.prometheus.endpoint: it does not begin with http",
        ),
        (
            host(),
            prometheus("http://p", &"w".repeat(2049)),
            "spec.sources.gpu.prometheus.query: it has more than 2048",
        ),
        (host(), prometheus("http://p", "w or joulie_operator_node_power_watts"), own),
        (pool(), prometheus("http://p", "joulie_sim_a + joulie_b"), own),
        (host(), json!({"controls": {"gpu": clocks}}), "use powercap or auto"),
        (
            host(),
            json!({"sources": {"cpu": url("ftp://x")}}),
            "spec.sources.cpu.http.endpoint: its scheme is",
        ),
        (host(), json!({"sources": {"cpu": url("http://x/{host}")}}), "only {node} is filled in"),
        (host(), json!({"sources": {"cpu": url(&format!("http://{}", "x".repeat(3000)))}}), "more than 2048"),
        (host(), json!({"controls": {"cpu": {"type": "rapl"}}}), "expected none, host or http, found rapl"),
        (host(), json!({"sources": {"cpu": "http"}}), "spec.sources.cpu"),
    ] {
        let said = refused(&base, for_node(spec.clone()));
        assert!(said.contains(words), "{spec}: {said}");
    }
}

/// A source of type prometheus.
fn prometheus(query: &str) -> Value {
    json!({"type": "prometheus", "prometheus": {"endpoint": "http://p", "query": query}})
}

fn query(text: &str) -> Option<NodeQuery> {
    Some(NodeQuery { server: endpoint("http://p", 2), text: text.to_owned() })
}

#[test]
fn prometheus_tells_what_is_drawn_beside_any_control_and_controls_nothing() {
    // Fix list agent S11: what is controlled is as without it.
    let spec = for_cluster(json!({"sources": {"cpu": prometheus("c"), "gpu": prometheus("joulie_sim_g")}}));
    let standing = by(&host(), spec.clone());
    assert_eq!(*standing.reached, Reached::Host { cpu: true, gpu: true });
    assert_eq!(*standing.queries, PowerQueries { cpu: query("c"), gpu: query("joulie_sim_g") });
    assert!(
        standing.say().contains("what the GPUs draw is told by Prometheus at http://p"),
        "{}",
        standing.say()
    );
    // Over HTTP nothing else is read, so that there is no meter for a loop.
    let Reached::Http(routing) = &*by(&pool(), spec).reached.clone() else { panic!() };
    assert_eq!((&routing.source, &routing.cpu), (&None, &Some(endpoint("http://base/control/{node}", 2))));
    // Only the GPUs: the telemetry of the others stays.
    let mut gpu = prometheus("g");
    gpu["prometheus"]["timeoutSeconds"] = json!(9);
    let standing = by(&pool(), for_node(json!({"sources": {"gpu": gpu}})));
    let Reached::Http(routing) = &*standing.reached else { panic!() };
    assert_eq!(routing.source, Some(endpoint("http://base/telemetry/{node}", 2)));
    assert_eq!(
        (&standing.queries.cpu, standing.queries.gpu.as_ref().unwrap().server.timeout.as_secs()),
        (&None, 9)
    );
}

#[test]
fn processors_and_gpus_have_a_source_each() {
    let of = |base: &Base, sources: Value| {
        let standing = by(base, for_node(json!({"sources": sources})));
        assert_eq!(standing.refused, None);
        let Reached::Http(routing) = &*standing.reached else { panic!() };
        let url = |at: &Option<NodeEndpoint>| at.as_ref().map_or("none".to_owned(), |at| at.url.to_string());
        let asked = (standing.queries.cpu.is_some(), standing.queries.gpu.is_some());
        ([url(&routing.source), url(&routing.gpu_source)], asked, standing.say().contains(", GPUs at http"))
    };
    let at = |cpu: &str, gpu: &str| [cpu.to_owned(), gpu.to_owned()];
    let (t, other, base) = ("http://sim/t/{node}", "http://sim/other/{node}", "http://base/telemetry/{node}");
    for (settings, sources, urls, asked) in [
        (host(), json!({"cpu": prometheus("w"), "gpu": http("t")}), at("none", t), (true, false)),
        (pool(), json!({"cpu": prometheus("w"), "gpu": http("t")}), at("none", t), (true, false)),
        (host(), json!({"cpu": {"type": "none"}, "gpu": http("t")}), at("none", t), (false, false)),
        // A control judges its limits by what the other endpoint says of the GPUs.
        (host(), json!({"cpu": http("t"), "gpu": prometheus("g")}), at(t, t), (false, true)),
        (host(), json!({"cpu": http("t"), "gpu": http("t")}), at(t, t), (false, false)),
        (host(), json!({"cpu": http("t"), "gpu": http("other")}), at(t, other), (false, false)),
        (pool(), json!({"gpu": http("other")}), at(base, other), (false, false)),
        (pool(), json!({"cpu": prometheus("w")}), at("none", "none"), (true, false)),
    ] {
        let says_both = urls[0] != urls[1];
        assert_eq!(of(&settings, sources.clone()), (urls, asked, says_both), "{sources}");
    }
}

#[test]
fn another_query_is_another_way_on_the_same_machine_and_a_refused_one_changes_nothing() {
    let base = host();
    let of = |query: &str| known(&[row("p", for_node(json!({"sources": {"cpu": prometheus(query)}})))]);
    let first = base.choose("a", &of("one"), &base.start());
    let second = base.choose("a", &of("two"), &first);
    assert!(second.differs(&first) && second.reached == first.reached, "the control goes on");
    let refused = base.choose("a", &of("joulie_x"), &second);
    assert!(refused.refused.is_some() && !refused.differs(&second));
    // The agent has started anew: nothing is asked by a profile that cannot be followed.
    assert_eq!(*base.choose("a", &of("joulie_x"), &base.start()).queries, PowerQueries::default());
    assert_eq!(*base.choose("a", &known(&[]), &second).queries, PowerQueries::default());
}

#[test]
fn a_refused_profile_keeps_the_last_good_route_and_a_first_one_leaves_the_node_alone() {
    let base = host();
    let bad = known(&[row("p", for_node(json!({"controls": {"cpu": {"type": "rapl"}}})))]);
    let good = known(&[row("p", for_node(json!({"sources": {"cpu": http("telemetry")}})))]);
    let followed = base.choose("a", &good, &base.start());
    let kept = base.choose("a", &bad, &followed);
    assert_eq!((&kept.reached, &kept.by), (&followed.reached, &followed.by));
    // Whom it is for cannot be read any more either.
    let lost = known(&[row("p", with_target(json!({"scope": "rack"}), json!({})))]);
    let kept = base.choose("a", &lost, &kept);
    assert_eq!(kept.reached, followed.reached, "the host is not tried instead");
    assert!(kept.refused.unwrap().1.contains("expected node or cluster"));
    // Somebody else's object of that kind changes nothing.
    assert_eq!(*base.choose("a", &lost, &base.start()).reached, base.reached);
    // The agent has started anew: where the node is, nobody knows.
    let first = base.choose("a", &bad, &base.start());
    assert_eq!(*first.reached, Reached::Http(NodeRouting::NOWHERE));
    assert_eq!(*base.choose("a", &bad, &first).reached, Reached::Http(NodeRouting::NOWHERE));
    assert_eq!(base.choose("a", &good, &first).reached, followed.reached);
    // Nothing is concluded from a list that is not complete.
    let unknown = Profiles { known: false, ..bad };
    assert_eq!(base.choose("a", &unknown, &followed), followed);
}

#[test]
fn a_server_that_only_a_profile_names_does_not_see_the_token_in_the_clear() {
    let file = std::env::temp_dir().join(format!("agent-route-token-{}", std::process::id()));
    std::fs::write(&file, "secret").unwrap();
    let token = Some(TokenFile::new(&file).unwrap());
    let shown = |url: &str, authorities: Option<&str>| {
        let base = pool();
        let http = HttpTerms { token: token.clone(), authorities: authorities.map(Into::into), ..terms() };
        let base = Base { http, ..base };
        let source = json!({"type": "http", "http": {"endpoint": url}});
        let asked = json!({"type": "prometheus", "prometheus": {"endpoint": url, "query": "w"}});
        let standing = by(&base, for_node(json!({"sources": {"cpu": source, "gpu": asked}})));
        let Reached::Http(routing) = &*standing.reached else { panic!() };
        let shows = routing.source.as_ref().unwrap().shows_token;
        assert_eq!(standing.queries.gpu.as_ref().unwrap().server.shows_token, shows, "{url}");
        shows
    };
    assert!(shown("http://base/elsewhere", None), "a server of the settings");
    assert!(!shown("http://base:81/", None));
    assert!(!shown("http://base.evil/", None));
    assert!(!shown("https://evil/", None), "anybody may have a certificate of the system's authorities");
    assert!(shown("https://ours/", Some("/ca.pem")));
    std::fs::remove_file(&file).unwrap();
}
