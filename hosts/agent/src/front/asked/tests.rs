use super::*;
use crate::settings::{HttpTerms, NodeEndpoint};
use bytes::Bytes;
use host_kit::clock::ManualClock;
use host_kit::http_client::Carrier;
use http::{Request, Response, StatusCode};
use jiff::Timestamp;
use std::io;
use std::pin::Pin;
use std::sync::Mutex;

/// An answer with these series, which are evaluated at 1,000 s: labels and value.
fn body(series: &[(&str, &str)]) -> String {
    let one =
        |(labels, value): &(&str, &str)| format!(r#"{{"metric":{{{labels}}},"value":[1000,"{value}"]}}"#);
    let all: Vec<String> = series.iter().map(one).collect();
    format!(r#"{{"status":"success","data":{{"resultType":"vector","result":[{}]}}}}"#, all.join(","))
}

fn answer(series: &[(&str, &str)]) -> Answer {
    Answer::read(body(series).as_bytes(), StatusCode::OK).unwrap()
}

const W: &str = r#""joulie_says":"watts""#;
const T: &str = r#""joulie_says":"time""#;

fn watts(text: &str) -> Watts {
    Watts::parse(text, Role::Demand).unwrap()
}

fn old(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_query_is_asked_for_its_value_and_for_the_time_of_its_sample() {
    let asked = question("node_watts{node=\"{node}\"} # of {node}", "a-1");
    let expected = "label_replace(node_watts{node=\"a-1\"} # of a-1\n, \"joulie_says\", \"watts\", \"\", \"\") or \
                    label_replace(timestamp(node_watts{node=\"a-1\"} # of a-1\n), \"joulie_says\", \"time\", \"\", \"\")";
    assert_eq!(asked, expected);
}

#[test]
fn one_value_with_one_time_is_what_the_node_draws() {
    let sample = |series: &[(&str, &str)]| sample(&answer(series), "a", true);
    assert_eq!(sample(&[(W, "321.5"), (T, "970")]), Ok((watts("321.5"), old(30))));
    assert_eq!(sample(&[(T, "850"), (W, "0")]), Ok((Watts::ZERO, old(150))), "the oldest that counts");
    assert_eq!(sample(&[(W, "7"), (T, "2000")]), Ok((watts("7"), old(0))), "from the future: of now");
    let unusable: [(&[(&str, &str)], &str); 12] = [
        (&[], "no series, so nothing was scraped lately"),
        (&[(W, "NaN"), (T, "970")], "the value is no number"),
        (&[(W, "+Inf"), (T, "970")], "the value is no number"),
        (&[(W, "-1"), (T, "970")], "-1 is no power in watts"),
        // 321 W in microwatts.
        (&[(W, "321000000"), (T, "970")], "321000000 is no power in watts"),
        (
            &[(W, "1"), (W, "2"), (T, "970"), (T, "970")],
            "2 series of the answer are of the node; ask for one",
        ),
        (&[(W, "1"), (W, "1"), (T, "970")], "2 series of the answer"),
        (&[(W, "1")], "does not say when it was sampled"),
        (&[(W, "1"), (T, "970"), (T, "980")], "does not say when it was sampled"),
        (&[(W, "1"), (T, "NaN")], "does not say when it was sampled"),
        (&[(W, "1"), (T, "849")], "older than 150 s"),
        (&[(T, "970")], "no series of the answer names the node"),
    ];
    for (series, why) in unusable {
        let said = sample(series).unwrap_err();
        assert!(said.contains(why), "{series:?}: {said}");
    }
}

#[test]
fn a_query_without_the_name_of_the_node_counts_where_a_label_names_it() {
    let of = |labels: &str, says: &str| format!("{labels}{says}");
    let (a, b, all) = (r#""instance":"a:9100","#, r#""node":"b","#, "");
    let (aw, at, bw, bt) = (of(a, W), of(a, T), of(b, W), of(b, T));
    let both = answer(&[(&aw, "100"), (&bw, "200"), (&at, "990"), (&bt, "980")]);
    assert_eq!(sample(&both, "a", false), Ok((watts("100"), old(10))));
    assert_eq!(sample(&both, "b", false), Ok((watts("200"), old(20))));
    // A sum over the cluster is nobody's.
    let sum = answer(&[(&of(all, W), "300"), (&of(all, T), "990")]);
    assert!(sample(&sum, "a", false).unwrap_err().contains("names the node"));
}

/// A Prometheus whose answer the test sets; `None`: it does not answer.
#[derive(Default)]
struct Server {
    body: Mutex<Option<String>>,
    asked: Mutex<Vec<String>>,
    /// So long it takes by the clock of the test.
    takes: Mutex<Option<(ManualClock, Duration)>>,
}

struct To(Arc<Server>);

type Carried = io::Result<Response<Bytes>>;

impl Carrier for To {
    fn carry(&self, request: Request<Bytes>) -> Pin<Box<dyn Future<Output = Carried> + Send>> {
        self.0.asked.lock().unwrap().push(request.uri().to_string());
        let body = self.0.body.lock().unwrap().clone();
        if let Some((clock, takes)) = &*self.0.takes.lock().unwrap() {
            clock.advance(*takes);
        }
        let answer = body.map(|body| Response::new(Bytes::from(body)));
        Box::pin(std::future::ready(answer.ok_or_else(|| io::Error::other("nobody is there"))))
    }
}

fn query(text: &str) -> NodeQuery {
    let url = "http://prom:9090/prefix/".parse().unwrap();
    NodeQuery { server: NodeEndpoint { url, timeout: old(2), shows_token: false }, text: text.to_owned() }
}

fn own() -> Power {
    Power { cpu: Some(watts("400")), gpu: Some(watts("900")), dram: Some(watts("20")), ..Power::default() }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_had_is_unknown_with_its_reason_and_never_what_the_machine_measures_itself() {
    let server = Arc::new(Server::default());
    let terms = HttpTerms { timeout: old(2), authorities: None, token: None };
    let http = Arc::new(Http::new(4, &terms, false, Some(Arc::new(To(server.clone())))).unwrap());
    let hands = ManualClock::at(Timestamp::UNIX_EPOCH);
    let clock: Arc<dyn HostClock> = Arc::new(hands.clone());
    let set = |series: Option<&[(&str, &str)]>| *server.body.lock().unwrap() = series.map(body);
    let mut asked = AskedPower::default();
    let cpu_of = |asked: &AskedPower| asked.instead_of(own(), clock.mono()).cpu;

    asked.follow("a", &PowerQueries::default(), &http, &clock);
    assert_eq!(
        (asked.instead_of(own(), clock.mono()), asked.look("a", clock.mono())),
        (own(), None),
        "nothing is asked"
    );

    let queries = PowerQueries { cpu: Some(query("w{n=\"{node}\"}")), gpu: None };
    set(Some(&[(W, "321"), (T, "990")]));
    asked.follow("a", &queries, &http, &clock);
    assert_eq!(cpu_of(&asked), None, "it was not asked yet");
    tokio::time::sleep(old(1)).await;
    assert_eq!(asked.instead_of(own(), clock.mono()), Power { cpu: Some(watts("321")), ..own() });
    assert_eq!(
        (asked.look("a", clock.mono()), asked.source(own()), asked.parts()),
        (Some((true, 0)), Some("prometheus"), (true, false))
    );
    let url = server.asked.lock().unwrap()[0].clone();
    assert!(
        url.starts_with("http://prom:9090/prefix/api/v1/query?query=label_replace%28w%7Bn%3D%22a%22%7D%0A"),
        "{url}"
    );
    assert!(url.ends_with("&timeout=2s&lookback_delta=150s"), "{url}");

    // It grows old where nothing new is heard.
    hands.advance(old(140));
    assert_eq!((cpu_of(&asked), asked.age(clock.mono())), (Some(watts("321")), old(150)));
    hands.advance(old(1));
    assert_eq!((cpu_of(&asked), asked.age(clock.mono())), (None, old(0)));
    assert!(asked.cpu(clock.mono()).unwrap().unwrap_err().contains("older than 150 s"));
    assert_eq!(asked.look("a", clock.mono()), Some((false, 0)));

    tokio::time::sleep(ASK_EVERY).await;
    assert_eq!(cpu_of(&asked), Some(watts("321")), "it was asked again");
    for (series, why) in [
        (None, "http://prom:9090/prefix/: nobody is there"),
        (Some(&[(W, "NaN"), (T, "990")][..]), "no number"),
    ] {
        set(series);
        tokio::time::sleep(ASK_EVERY).await;
        assert_eq!(cpu_of(&asked), None);
        let said = asked.cpu(clock.mono()).unwrap().unwrap_err();
        assert!(said.contains(why), "{said}");
    }
    assert!(matches!(asked.look("a", clock.mono()), Some((false, troubles)) if troubles > 0));

    // The same query goes on, and another one begins with nothing.
    set(Some(&[(W, "5"), (T, "990")]));
    tokio::time::sleep(ASK_EVERY).await;
    asked.follow("a", &queries, &http, &clock);
    assert_eq!(cpu_of(&asked), Some(watts("5")));
    asked.follow("a", &PowerQueries { cpu: Some(query("other")), gpu: None }, &http, &clock);
    assert_eq!(cpu_of(&asked), None);
    // Of the GPUs alone nothing is published, or their watts are in what is.
    asked.follow("a", &PowerQueries { cpu: None, gpu: Some(query("g")) }, &http, &clock);
    let without = Power { gpu: None, ..own() };
    assert_eq!([own(), without].map(|published| asked.source(published)), [Some("prometheus"), None]);
    asked.follow("a", &PowerQueries::default(), &http, &clock);
    assert_eq!((asked.instead_of(own(), clock.mono()), asked.source(own())), (own(), None));
    let count = server.asked.lock().unwrap().len();
    tokio::time::sleep(ASK_EVERY * 4).await;
    assert_eq!(server.asked.lock().unwrap().len(), count, "nothing is asked any more");
}

/// A plain selector of the node.
const W_OF: &str = "w{n=\"{node}\"}";

#[tokio::test(start_paused = true)]
async fn what_is_published_is_as_old_as_its_sample_however_late_the_answer_comes() {
    let server = Arc::new(Server::default());
    let terms = HttpTerms { timeout: old(2), authorities: None, token: None };
    let http = Arc::new(Http::new(4, &terms, false, Some(Arc::new(To(server.clone())))).unwrap());
    let hands = ManualClock::at(Timestamp::UNIX_EPOCH);
    let clock: Arc<dyn HostClock> = Arc::new(hands.clone());
    let mut asked = AskedPower::default();
    for (text, sampled, takes, age) in [
        (W_OF, "990", 0, 10),
        // The answer comes 40 s late, to a question of a moment at which the sample was 10 s old.
        (W_OF, "990", 40, 50),
        // Of the future: of the moment at which it was asked for.
        (W_OF, "1060", 40, 40),
        (W_OF, "1e300", 0, 0),
        // Of an expression the server says the time of its evaluation: 10 min of the range, and 40 s.
        ("avg_over_time(w{n=\"{node}\"}[10m])", "1000", 40, 640),
        // The server looks back five minutes.
        ("sum(w{n=\"{node}\"})", "1000", 0, 300),
    ] {
        *server.body.lock().unwrap() = Some(body(&[(W, "321"), (T, sampled)]));
        *server.takes.lock().unwrap() = Some((hands.clone(), old(takes)));
        asked.follow("a", &PowerQueries::default(), &http, &clock);
        asked.follow("a", &PowerQueries { cpu: Some(query(text)), gpu: None }, &http, &clock);
        tokio::time::sleep(old(1)).await;
        if sampled == "1e300" {
            assert_eq!(asked.instead_of(own(), clock.mono()).cpu, None, "no time");
            continue;
        }
        assert_eq!(asked.cpu(clock.mono()), Some(Ok(())), "{text} {sampled} {takes}");
        assert_eq!(asked.age(clock.mono()), old(age), "{text} {sampled} {takes}");
    }
    // The older of two counts.
    let both = PowerQueries { cpu: Some(query(W_OF)), gpu: Some(query("sum(g{n=\"{node}\"})")) };
    asked.follow("a", &both, &http, &clock);
    tokio::time::sleep(old(1)).await;
    assert_eq!(asked.age(clock.mono()), old(300));
}
