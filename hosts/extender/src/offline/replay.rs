//! Answers the requests of a log from a saved cluster, and tells where the answers differ.

use super::saved::Saved;
use crate::decide;
use crate::expected::Expected;
use crate::metrics::Verb;
use crate::probe::ProbeResponse;
use crate::request_log;
use crate::settings::PlacementSettings;
use crate::shortlist::{ListAnswer, Remembered, ShortlistRule};
use crate::snapshot::View;
use bytes::Bytes;
use host_kit::clock::Mono;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// How many nodes are named of an answer that differs.
const NAMED_MAX: usize = 5;

/// A line of the log.
#[derive(Debug, Deserialize)]
struct Record {
    verb: String,
    at: String,
    list: Option<String>,
    expected: usize,
    request: Value,
    answer: BTreeMap<String, String>,
}

/// Replays a log. Returns what there is to say, and whether every answer is the same.
pub(super) fn replay(log: &str, saved: &Saved, placement: &PlacementSettings) -> (String, bool) {
    let (mut said, mut same, mut differ, mut unreadable) = (String::new(), 0_u64, 0_u64, 0_u64);
    for (number, line) in (1..).zip(log.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let answered = serde_json::from_str::<Record>(line)
            .map_err(|error| error.to_string())
            .and_then(|record| again(&record, saved, placement).map(|now| (record, now)));
        // Writing into memory does not fail.
        let _ = match answered {
            Ok((record, now)) if record.answer == now => {
                same += 1;
                Ok(())
            }
            Ok((record, now)) => {
                differ += 1;
                writeln!(
                    said,
                    "line {number}, {} at {}: {}",
                    record.verb,
                    record.at,
                    difference(&record, &now)
                )
            }
            Err(why) => {
                unreadable += 1;
                writeln!(said, "line {number} cannot be answered: {why}")
            }
        };
    }
    let _ =
        writeln!(said, "{same} answers are the same, {differ} differ, {unreadable} lines cannot be answered");
    (said, differ == 0 && unreadable == 0)
}

/// The answer to a logged request now.
fn again(
    record: &Record,
    saved: &Saved,
    placement: &PlacementSettings,
) -> Result<BTreeMap<String, String>, String> {
    let is = |verb: Verb| record.verb == verb.word();
    let verb = Verb::ALL.iter().copied().find(|verb| is(*verb));
    let verb = verb.ok_or_else(|| format!("there is no verb {}", record.verb))?;
    let mut placement = *placement;
    // A pod that was given all candidates because it came back is given all again.
    let came_back = [ListAnswer::Again, ListAnswer::Full].map(|list| Some(list.word()));
    if came_back.contains(&record.list.as_deref()) {
        placement.shortlist = ShortlistRule::OFF;
    }
    let snapshot =
        crate::snapshot::Snapshot { remembered: Arc::new(Remembered::new()), ..saved.snapshot.alike() };
    let expected = Expected::new(Duration::ZERO).load();
    let view = View { snapshot: &snapshot, expected: &expected, now: Mono::START };
    let body: Bytes = record.request.to_string().into();
    let decide = match verb {
        Verb::Filter => decide::filter,
        Verb::Prioritize => decide::prioritize,
    };
    let (reply, _) = decide(&view, &placement, &body).map_err(|why| why.to_string())?;
    let answer =
        serde_json::from_slice(&ProbeResponse::of(reply).whole()).map_err(|error| error.to_string())?;
    Ok(request_log::told(verb, &answer))
}

/// The nodes of which something else is said.
fn difference(record: &Record, now: &BTreeMap<String, String>) -> String {
    let names: BTreeSet<&String> = record.answer.keys().chain(now.keys()).collect();
    let other: Vec<&String> =
        names.into_iter().filter(|name| record.answer.get(*name) != now.get(*name)).collect();
    let word = |said: Option<&String>| said.map_or("left out".to_owned(), Clone::clone);
    let first: Vec<String> = other
        .iter()
        .take(NAMED_MAX)
        .map(|name| format!("{name} {} then, {} now", word(record.answer.get(*name)), word(now.get(*name))))
        .collect();
    let mut text = format!("{} nodes: {}", other.len(), first.join("; "));
    if other.len() > NAMED_MAX {
        text.push_str("; …");
    }
    if record.expected > 0 {
        // They are not in a saved cluster.
        let _ = write!(text, " ({} other pods were expected on nodes then)", record.expected);
    }
    text
}
