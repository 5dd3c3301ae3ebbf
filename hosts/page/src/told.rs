//! The lines that follow from two pictures. What happened to many nodes at once is one line.

use crate::picture::{UiBudget, UiLine, UiNode, UiPicture, UiTone};
use std::collections::BTreeMap;

/// The nodes that are named in one line.
const NAMED: usize = 4;
/// A leader confirms the plan every ten seconds, and a Lease is good for ninety.
pub(crate) const PLAN_SILENT: u64 = 60;

/// What happened, by how it is said, and to which nodes.
type Happened<'p> = BTreeMap<(u8, String), (UiTone, Vec<&'p str>)>;

/// What happened between two pictures. Nothing is told of what the first one begins with.
pub(crate) fn lines(old: &UiPicture, new: &UiPicture) -> Vec<UiLine> {
    let mut happened = Happened::new();
    for (name, node) in &new.nodes {
        match old.nodes.get(name) {
            Some(before) if before == node => {}
            Some(before) => differs(before, node, &mut |tone, what| say(&mut happened, name, tone, what)),
            None => say(&mut happened, name, UiTone::Plain, "new"),
        }
    }
    for name in old.nodes.keys().filter(|name| !new.nodes.contains_key(*name)) {
        say(&mut happened, name, UiTone::Warn, "gone");
    }
    let line = |tone: UiTone, text: String| UiLine { at: new.at, tone, text };
    let mut all: Vec<UiLine> =
        happened.into_iter().map(|((_, what), (tone, nodes))| line(tone, about(&nodes, &what))).collect();
    all.extend(budgets(old, new).into_iter().map(|(tone, text)| line(tone, text)));
    all.extend(plan(old, new).into_iter().map(|(tone, text)| line(tone, text)));
    all
}

fn say<'p>(happened: &mut Happened<'p>, node: &'p str, tone: UiTone, what: &str) {
    let (_, nodes) = happened.entry((order(tone), what.to_owned())).or_insert_with(|| (tone, Vec::new()));
    nodes.push(node);
}

const fn order(tone: UiTone) -> u8 {
    match tone {
        UiTone::Bad => 0,
        UiTone::Warn => 1,
        UiTone::Act => 2,
        UiTone::Plain => 3,
        UiTone::Good => 4,
    }
}

fn about(nodes: &[&str], what: &str) -> String {
    let first: Vec<&str> = nodes.iter().take(NAMED).copied().collect();
    match nodes.len() {
        1 => format!("{}: {what}", first.join("")),
        many if many <= NAMED => format!("{}: {what}", first.join(", ")),
        many => format!("{many} nodes: {what} ({} and {} more)", first.join(", "), many - NAMED),
    }
}

fn differs(old: &UiNode, new: &UiNode, say: &mut dyn FnMut(UiTone, &str)) {
    if old.class != new.class {
        let tone = if new.class == "unknown" { UiTone::Warn } else { UiTone::Plain };
        say(tone, &format!("{} now, was {}", new.class, old.class));
    }
    match (old.watts, new.watts) {
        (Some(_), None) => say(UiTone::Warn, "not measured any more"),
        (None, Some(_)) => say(UiTone::Good, "measured"),
        (Some(_), Some(_)) | (None, None) => {}
    }
    if old.enforced != new.enforced {
        match new.enforced {
            "no" => say(
                UiTone::Warn,
                &format!(
                    "does not hold what is asked: {}",
                    new.why.as_deref().unwrap_or("its agent does not say why")
                ),
            ),
            "yes" if old.enforced == "no" => say(UiTone::Good, "holds what is asked again"),
            _ => {}
        }
    }
    for (before, now, begins, ends) in [
        (old.reserved, new.reserved, "reserved by a person, and out of the plan", "in the plan again"),
        (
            old.by_hand,
            new.by_hand,
            "capped by a person, which the plan leaves alone",
            "the plan's to cap again",
        ),
    ] {
        match (before, now) {
            (false, true) => say(UiTone::Plain, begins),
            (true, false) => say(UiTone::Plain, ends),
            (true, true) | (false, false) => {}
        }
    }
    match (old.not_ready, new.not_ready) {
        (false, true) => say(UiTone::Warn, "not ready"),
        (true, false) => say(UiTone::Good, "ready again"),
        (true, true) | (false, false) => {}
    }
}

fn budgets(old: &UiPicture, new: &UiPicture) -> Vec<(UiTone, String)> {
    let mut all = Vec::new();
    for (name, budget) in &new.budgets {
        match old.budgets.get(name) {
            Some(before) => all.extend(
                budget_differs(before, budget)
                    .into_iter()
                    .map(|(tone, what)| (tone, format!("PowerBudget {name}: {what}"))),
            ),
            None => all.push((UiTone::Plain, format!("PowerBudget {name}: new, {}", limit(budget)))),
        }
    }
    let gone = old.budgets.keys().filter(|name| !new.budgets.contains_key(*name));
    all.extend(gone.map(|name| (UiTone::Warn, format!("PowerBudget {name}: gone, and its limit with it"))));
    all
}

fn limit(budget: &UiBudget) -> String {
    let watts = budget.limit.map_or("unreadable".to_owned(), |watts| format!("{watts:.0} W"));
    format!("limit {watts}, {}", if budget.enforced { "enforced" } else { "observed" })
}

fn budget_differs(old: &UiBudget, new: &UiBudget) -> Vec<(UiTone, String)> {
    let mut all = Vec::new();
    if (old.limit, old.enforced) != (new.limit, new.enforced) {
        all.push((UiTone::Plain, format!("{}; was {}", limit(new), limit(old))));
    }
    if old.paused != new.paused {
        all.push((UiTone::Plain, if new.paused { "paused" } else { "not paused any more" }.to_owned()));
    }
    match (old.kept, new.kept) {
        (before, Some(false)) if before != Some(false) => {
            all.push((
                UiTone::Bad,
                format!("not kept: {}", new.why.as_deref().unwrap_or("the operator does not say why")),
            ));
        }
        (Some(false), Some(true)) => all.push((UiTone::Good, "kept again".to_owned())),
        _ => {}
    }
    all
}

fn plan(old: &UiPicture, new: &UiPicture) -> Vec<(UiTone, String)> {
    let mut all = Vec::new();
    let silent = |picture: &UiPicture| picture.site.plan_age.is_some_and(|age| age > PLAN_SILENT);
    match (silent(old), silent(new)) {
        (false, true) => all.push((
            UiTone::Warn,
            format!(
                "nobody has planned for {} s: caps and labels stay as they are",
                new.site.plan_age.unwrap_or_default()
            ),
        )),
        (true, false) => all.push((UiTone::Good, "somebody plans again".to_owned())),
        (true, true) | (false, false) => {}
    }
    if let Some(leader) =
        new.site.leader.as_deref().filter(|leader| old.site.leader.as_deref() != Some(*leader))
    {
        all.push((UiTone::Plain, format!("{leader} plans")));
    }
    match (old.site.api_silent, new.site.api_silent) {
        (None, Some(seconds)) => all.push((
            UiTone::Bad,
            format!("the API server has said nothing for {seconds} s: what is shown is old"),
        )),
        (Some(_), None) => all.push((UiTone::Good, "the API server answers again".to_owned())),
        (Some(_), Some(_)) | (None, None) => {}
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(class: &str, watts: Option<f64>) -> UiNode {
        UiNode { class: class.to_owned(), watts, enforced: "yes", ..UiNode::default() }
    }

    fn picture(nodes: &[(&str, UiNode)]) -> UiPicture {
        let nodes = nodes.iter().map(|(name, node)| ((*name).to_owned(), node.clone())).collect();
        UiPicture { at: 7.0, nodes, ..UiPicture::default() }
    }

    fn texts(old: &UiPicture, new: &UiPicture) -> Vec<String> {
        lines(old, new).into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn each_change_of_a_node_is_a_line_and_the_same_of_many_is_one() {
        let eco = |watts| node("eco", watts);
        let full = || node("performance", Some(400.0));
        let old = picture(&[("a", full()), ("b", eco(Some(1.0))), ("z", eco(None))]);
        let new = picture(&[("a", eco(Some(300.0))), ("b", eco(None)), ("c", full())]);
        // Warnings first, each group by its words.
        let expected = ["z: gone", "b: not measured any more", "a: eco now, was performance", "c: new"];
        assert_eq!(texts(&old, &new), expected);
        assert_eq!(texts(&new, &new), [""; 0]);
    }

    #[test]
    fn many_nodes_are_counted_and_the_first_named() {
        let all =
            |class: &str| picture(&["a", "b", "c", "d", "e", "f"].map(|name| (name, node(class, None))));
        assert_eq!(
            texts(&all("performance"), &all("eco")),
            ["6 nodes: eco now, was performance (a, b, c, d and 2 more)"]
        );
    }

    #[test]
    fn a_budget_that_is_not_kept_is_bad_and_a_limit_that_changes_is_told() {
        let budget = |limit: f64, kept: bool| {
            let budget =
                UiBudget { limit: Some(limit), enforced: true, kept: Some(kept), ..UiBudget::default() };
            UiPicture { budgets: [("site".to_owned(), budget)].into(), ..UiPicture::default() }
        };
        let told = lines(&budget(9000.0, true), &budget(8000.0, false));
        assert_eq!(told[0].text, "PowerBudget site: limit 8000 W, enforced; was limit 9000 W, enforced");
        assert_eq!(
            (told[1].tone, told[1].text.as_str()),
            (UiTone::Bad, "PowerBudget site: not kept: the operator does not say why")
        );
        assert_eq!(texts(&budget(1.0, false), &budget(1.0, true)), ["PowerBudget site: kept again"]);
        assert_eq!(
            texts(&budget(1.0, true), &UiPicture::default()),
            ["PowerBudget site: gone, and its limit with it"]
        );
    }

    #[test]
    fn a_plan_that_nobody_confirms_is_told_once() {
        let age = |age| {
            let mut picture = UiPicture::default();
            (picture.site.plan_age, picture.site.leader) = (Some(age), Some("operator-0".to_owned()));
            picture
        };
        assert_eq!(
            texts(&age(60), &age(61)),
            ["nobody has planned for 61 s: caps and labels stay as they are"]
        );
        assert_eq!(texts(&age(61), &age(62)), [""; 0]);
        assert_eq!(texts(&age(62), &age(0)), ["somebody plans again"]);
        assert_eq!(texts(&UiPicture::default(), &age(0)), ["operator-0 plans"]);
    }
}
