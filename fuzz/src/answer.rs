//! Property: of any answer of a Prometheus server no more is believed than `serde_json` reads in it: the series are there,
//! in order, with their labels, and their numbers are finite. What is refused is refused in a few words.

use host_kit::prometheus::{Answer, Series};
use http::StatusCode;
use serde_json::Value;

pub(crate) fn run(bytes: &[u8]) {
    // The first byte chooses the status, with which an error comes.
    let (status, body) = match bytes.split_first() {
        Some((b'!', body)) => (StatusCode::BAD_REQUEST, body),
        Some((b'?', body)) => (StatusCode::SERVICE_UNAVAILABLE, body),
        Some(_) | None => (StatusCode::OK, bytes),
    };
    match Answer::read(body, status) {
        Ok(answer) => {
            let whole: Value = serde_json::from_slice(body).expect("what was read is JSON");
            assert_eq!(whole["status"], "success");
            let result = &whole["data"]["result"];
            match whole["data"]["resultType"].as_str() {
                Some("scalar") => {
                    let [series] = answer.series.as_slice() else { panic!("a scalar is one series") };
                    agrees(series, &serde_json::json!({}), result);
                }
                _ => {
                    let all = result.as_array().expect("a vector is an array");
                    assert_eq!(answer.series.len(), all.len());
                    for (series, one) in answer.series.iter().zip(all) {
                        let value = if one["value"].is_null() { &one["histogram"] } else { &one["value"] };
                        agrees(series, &one["metric"], value);
                    }
                }
            }
        }
        Err(why) => assert!(why.to_string().len() < 2_000, "{why}"),
    }
}

fn agrees(series: &Series, labels: &Value, value: &Value) {
    for (name, text) in labels.as_object().into_iter().flatten() {
        let text = text.as_str().expect("a label is a text");
        assert_eq!(series.label(name), Some(text).filter(|text| !text.is_empty()));
    }
    if let Some(number) = series.number() {
        assert_eq!(value[1].as_str(), Some(number));
        assert!(number.bytes().all(|byte| byte.is_ascii_graphic()), "{number:?}");
    }
}
