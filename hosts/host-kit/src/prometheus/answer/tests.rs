use super::*;
use proptest::prelude::*;

fn read(body: &str) -> Result<Answer, QueryError> {
    Answer::read(body.as_bytes(), StatusCode::OK)
}

fn vector(series: &str) -> Result<Answer, QueryError> {
    read(&format!(r#"{{"status":"success","data":{{"resultType":"vector","result":[{series}]}}}}"#))
}

fn numbers(answer: &Answer) -> Vec<Option<&str>> {
    answer.series.iter().map(Series::number).collect()
}

#[test]
fn series_have_labels_a_time_and_a_number() {
    // As Prometheus 2.42 writes them.
    let answer = vector(
        r#"{"metric":{"__name__":"up","instance":"a:9100","job":"n"},"value":[1700000000.123,"1"]},
           {"metric":{},"value":[1700000000,"-0.25e3"]}"#,
    )
    .unwrap();
    assert_eq!(numbers(&answer), [Some("1"), Some("-0.25e3")]);
    let [first, second] = answer.series.as_slice() else { panic!("{answer:?}") };
    assert_eq!((first.label("instance"), first.label("node")), (Some("a:9100"), None));
    assert_eq!(first.at(), "2023-11-14T22:13:20.123Z".parse().unwrap());
    assert_eq!(second.at(), "2023-11-14T22:13:20Z".parse().unwrap());
    let scalar = read(r#"{"status":"success","data":{"result":[1700000000.1,"4"],"resultType":"scalar"}}"#);
    assert_eq!(numbers(&scalar.unwrap()), [Some("4")]);
    assert_eq!(vector("").unwrap(), Answer::default());
}

#[test]
fn a_sample_is_as_old_as_the_server_says_and_never_younger_than_now() {
    let age = |at: &str, seconds: &str| {
        vector(&format!(r#"{{"metric":{{}},"value":[{at},"{seconds}"]}}"#)).unwrap().series[0].age()
    };
    assert_eq!(age("600.5", "300.5"), Some(Duration::from_secs(300)));
    assert_eq!((age("600.5", "600.5"), age("600.5", "900")), (Some(Duration::ZERO), Some(Duration::ZERO)));
    for none in ["NaN", "+Inf", "-1", "1e300", "1e"] {
        assert_eq!(age("600.5", none), None, "{none}");
    }
    assert_eq!(age("-1", "1"), None);
}

#[test]
fn what_is_no_number_is_missing_and_not_zero() {
    for text in ["NaN", "+Inf", "-Inf"] {
        let answer = vector(&format!(r#"{{"metric":{{}},"value":[1,"{text}"]}}"#)).unwrap();
        assert_eq!(numbers(&answer), [None], "{text}");
    }
    let histogram =
        r#"{"metric":{"a":"b"},"histogram":[1,{"count":"3","sum":"4","buckets":[[0,"1","2","3"]]}]}"#;
    assert_eq!(numbers(&vector(histogram).unwrap()), [None]);
    for wrong in ["", "1e", "0x1", "one", " 1"] {
        let answer = vector(&format!(r#"{{"metric":{{}},"value":[1,"{wrong}"]}}"#));
        // A text of signs that are digits is left to whoever knows what it is to be.
        assert!(answer.is_err() || wrong == "1e", "{wrong}");
    }
}

#[test]
fn a_server_that_refuses_or_answers_in_part_gives_no_values_and_says_why() {
    let refused = r#"{"status":"error","errorType":"bad_data","error":"1:5: parse error: unexpected \")\""}"#;
    assert_eq!(
        Answer::read(refused.as_bytes(), StatusCode::BAD_REQUEST).unwrap_err().to_string(),
        r#"the server refuses the query: bad_data 1:5: parse error: unexpected ")""#
    );
    let partial = r#"{"status":"success","warnings":["store b: \u0007 away"],"data":{"resultType":"vector","result":[]}}"#;
    assert_eq!(read(partial).unwrap_err().to_string(), "the server answers only in part: store b:   away");
    let page = Answer::read(b"<html>", StatusCode::SERVICE_UNAVAILABLE).unwrap_err();
    assert_eq!(page.to_string(), "it answers 503 Service Unavailable");
    let long = format!(r#"{{"status":"error","error":"{}"}}"#, "x".repeat(10_000));
    assert!(read(&long).unwrap_err().to_string().len() < 400);
}

#[test]
fn what_is_no_answer_is_refused() {
    for body in [
        "",
        "<html>",
        "[]",
        "{}",
        r#"{"status":"success"}"#,
        r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#,
        r#"{"status":"success","data":{"resultType":"string","result":[1,"x"]}}"#,
        r#"{"status":"success","data":{"resultType":"vector","result":{}}}"#,
        r#"{"status":"success","data":{"resultType":"vector"}}"#,
    ] {
        assert!(matches!(read(body), Err(QueryError::Malformed(_))), "{body}");
    }
    for series in [
        "3",
        r#"{"metric":{}}"#,
        r#"{"value":[1,"1"]}"#,
        r#"{"metric":{"a":1},"value":[1,"1"]}"#,
        r#"{"metric":{},"value":["1","1"]}"#,
        r#"{"metric":{},"value":[1,1]}"#,
        r#"{"metric":{},"value":[1e300,"1"]}"#,
        r#"{"metric":{},"value":[1,"1",2]}"#,
    ] {
        assert!(matches!(vector(series), Err(QueryError::Malformed(_))), "{series}");
    }
    assert!(matches!(Answer::read(b"\xff\xfe", StatusCode::OK), Err(QueryError::Malformed(_))));
}

#[test]
fn an_answer_with_too_many_series_is_refused() {
    let one = r#"{"metric":{},"value":[1,"1"]}"#;
    let many = |count: usize| vector(&vec![one; count].join(","));
    assert_eq!(many(SERIES_MAX).unwrap().series.len(), SERIES_MAX);
    let why = many(SERIES_MAX + 1).unwrap_err().to_string();
    assert!(why.contains("more than 100000 series"), "{why}");
}

proptest! {
    #[test]
    fn no_bytes_are_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Answer::read(&bytes, StatusCode::OK);
    }
}
