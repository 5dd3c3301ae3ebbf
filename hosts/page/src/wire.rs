//! The format of the stream.
//!
//! The data of `full` is one object: `at` (seconds since 1970), `site`, `budgets` and `nodes` (objects by their names),
//! `placements`, `lines` and `points` (lists, the newest last). The fields are those of [`picture`](crate::picture); what is not
//! known is not there.
//!
//! The data of `change` has the same fields, as far as something in them has changed: of `site`, `budgets` and `nodes` it is a merge
//! patch (RFC 7386), in which `null` takes a field or a whole node away; to the lists it is what is new, to be put at their ends.

use crate::picture::{UiBudget, UiLine, UiNode, UiPicture, UiPlacement, UiPoint, UiSite};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, VecDeque};

/// The placements that are shown.
pub const PLACEMENTS_MAX: usize = 60;
/// The lines that are shown.
pub const LINES_MAX: usize = 200;
/// The points of the curve: a quarter of an hour of seconds.
pub const POINTS_MAX: usize = 900;

/// What has come since the last picture.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UiNews {
    /// Pods that got a node.
    pub placements: Vec<UiPlacement>,
    /// What happened.
    pub lines: Vec<UiLine>,
}

/// The lists as they are kept for pages that are opened later.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    pub(crate) placements: VecDeque<UiPlacement>,
    pub(crate) lines: VecDeque<UiLine>,
    pub(crate) points: VecDeque<UiPoint>,
}

impl Kept {
    pub(crate) fn add(&mut self, news: &UiNews, point: Option<UiPoint>) {
        push(&mut self.placements, &news.placements, PLACEMENTS_MAX);
        push(&mut self.lines, &news.lines, LINES_MAX);
        push(&mut self.points, point.as_slice(), POINTS_MAX);
    }
}

fn push<T: Clone>(kept: &mut VecDeque<T>, new: &[T], most: usize) {
    kept.extend(new.iter().cloned());
    let old = kept.len().saturating_sub(most);
    kept.drain(..old);
}

#[derive(Serialize)]
struct Full<'p> {
    at: f64,
    site: &'p UiSite,
    budgets: &'p BTreeMap<String, UiBudget>,
    nodes: &'p BTreeMap<String, UiNode>,
    placements: &'p VecDeque<UiPlacement>,
    lines: &'p VecDeque<UiLine>,
    points: &'p VecDeque<UiPoint>,
}

/// The data of `full`.
pub(crate) fn full(picture: &UiPicture, kept: &Kept) -> String {
    let UiPicture { at, site, budgets, nodes } = picture;
    let Kept { placements, lines, points } = kept;
    json(&Full { at: *at, site, budgets, nodes, placements, lines, points })
}

#[derive(Serialize)]
struct Change<'p> {
    at: f64,
    #[serde(skip_serializing_if = "Map::is_empty")]
    site: Map<String, Value>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    budgets: Map<String, Value>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    nodes: Map<String, Value>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    placements: &'p [UiPlacement],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    lines: &'p [UiLine],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    points: &'p [UiPoint],
}

/// The data of `change`; `None` if nothing but the time has changed.
pub(crate) fn change(
    old: &UiPicture,
    new: &UiPicture,
    news: &UiNews,
    point: Option<UiPoint>,
) -> Option<String> {
    let change = Change {
        at: new.at,
        site: if old.site == new.site { Map::new() } else { patch(&old.site, &new.site) },
        budgets: patches(&old.budgets, &new.budgets),
        nodes: patches(&old.nodes, &new.nodes),
        placements: last(&news.placements, PLACEMENTS_MAX),
        lines: last(&news.lines, LINES_MAX),
        points: point.as_slice(),
    };
    let Change { at: _, site, budgets, nodes, placements, lines, points } = &change;
    let lists = placements.is_empty() && lines.is_empty() && points.is_empty();
    let same = site.is_empty() && budgets.is_empty() && nodes.is_empty() && lists;
    (!same).then(|| json(&change))
}

fn last<T>(all: &[T], most: usize) -> &[T] {
    all.get(all.len().saturating_sub(most)..).unwrap_or_default()
}

fn patches<T: Serialize + PartialEq>(
    old: &BTreeMap<String, T>,
    new: &BTreeMap<String, T>,
) -> Map<String, Value> {
    let mut all = Map::new();
    for (name, after) in new {
        match old.get(name) {
            Some(before) if before == after => {}
            Some(before) => drop(all.insert(name.clone(), Value::Object(patch(before, after)))),
            None => drop(all.insert(name.clone(), Value::Object(fields(after)))),
        }
    }
    all.extend(old.keys().filter(|name| !new.contains_key(*name)).map(|name| (name.clone(), Value::Null)));
    all
}

/// The fields that differ; one that is no longer known is null.
fn patch<T: Serialize>(old: &T, new: &T) -> Map<String, Value> {
    let (old, new) = (fields(old), fields(new));
    let gone = old.keys().filter(|name| !new.contains_key(*name)).map(|name| (name.clone(), Value::Null));
    let mut differs: Map<String, Value> = gone.collect();
    differs.extend(new.into_iter().filter(|(name, value)| old.get(name) != Some(value)));
    differs
}

fn fields<T: Serialize>(value: &T) -> Map<String, Value> {
    match serde_json::to_value(value) {
        Ok(Value::Object(fields)) => fields,
        // Nothing that is shown is anything but an object.
        Ok(_) | Err(_) => Map::new(),
    }
}

fn json(value: &impl Serialize) -> String {
    // There is no key that is no text, and a number that JSON does not have is null.
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(watts: Option<f64>) -> UiNode {
        UiNode { class: "eco".to_owned(), watts, enforced: "yes", ..UiNode::default() }
    }

    fn picture(at: f64, nodes: &[(&str, Option<f64>)]) -> UiPicture {
        let nodes = nodes.iter().map(|&(name, watts)| (name.to_owned(), node(watts))).collect();
        UiPicture { at, nodes, ..UiPicture::default() }
    }

    fn change_of(old: &UiPicture, new: &UiPicture) -> Option<Value> {
        change(old, new, &UiNews::default(), None).map(|text| serde_json::from_str(&text).unwrap())
    }

    #[test]
    fn a_change_has_only_what_differs_and_takes_away_what_is_not_known_any_more() {
        let old = picture(1.0, &[("a", Some(100.0)), ("b", Some(200.0)), ("c", Some(300.0))]);
        let new = picture(2.0, &[("a", Some(100.0)), ("b", Some(201.5)), ("d", None)]);
        let expected = json!({"at": 2.0, "nodes": {"b": {"watts": 201.5}, "c": null,
            "d": {"class": "eco", "enforced": "yes", "pods": 0}}});
        assert_eq!(change_of(&old, &new), Some(expected));
        let blind = picture(3.0, &[("a", None), ("b", Some(201.5)), ("d", None)]);
        assert_eq!(change_of(&new, &blind), Some(json!({"at": 3.0, "nodes": {"a": {"watts": null}}})));
    }

    #[test]
    fn the_time_alone_is_no_change() {
        let nodes = [("a", Some(100.0))];
        assert_eq!(change_of(&picture(1.0, &nodes), &picture(2.0, &nodes)), None);
        let point = Some((2.0, Some(100.0), None, None));
        let text = change(&picture(1.0, &nodes), &picture(2.0, &nodes), &UiNews::default(), point).unwrap();
        assert_eq!(text, r#"{"at":2.0,"points":[[2.0,100.0,null,null]]}"#);
    }

    #[test]
    fn lists_are_bounded_and_the_newest_stay() {
        let line = |at: f64| UiLine { at, tone: crate::picture::UiTone::Plain, text: "x".to_owned() };
        let lines: Vec<UiLine> = (0..300_u16).map(|at| line(at.into())).collect();
        let news = UiNews { lines, placements: Vec::new() };
        let mut kept = Kept::default();
        kept.add(&news, None);
        assert_eq!((kept.lines.len(), kept.lines[0].at), (200, 100.0));
        let sent = change(&UiPicture::default(), &UiPicture::default(), &news, None).unwrap();
        let sent: Value = serde_json::from_str(&sent).unwrap();
        assert_eq!((sent["lines"].as_array().unwrap().len(), &sent["lines"][0]["at"]), (200, &json!(100.0)));
    }

    #[test]
    fn what_is_no_number_is_null_and_breaks_nothing() {
        let text = full(&picture(1.0, &[("a", Some(f64::NAN))]), &Kept::default());
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["nodes"]["a"]["watts"], Value::Null);
    }
}
