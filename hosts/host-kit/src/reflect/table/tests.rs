use super::*;
use crate::reflect::news::RowChange;
use futures::FutureExt;
use proptest::prelude::*;
use serde_json::{Value, json};

/// The watts of an object.
#[derive(Debug, PartialEq)]
struct Cap(u64);

impl Row for Cap {
    const KIND: &'static str = "caps";
    const OWNERS: bool = false;

    fn read(object: &Value) -> Result<Self, String> {
        object["spec"]["watts"]
            .as_u64()
            .map(Cap)
            .ok_or_else(|| format!("spec.watts is {}", object["spec"]["watts"]))
    }
}

fn at(seconds: u64) -> Mono {
    Mono::at(Duration::from_secs(seconds))
}

fn object(name: &str, uid: &str, watts: &Value) -> Object<Cap> {
    Object::of(
        &json!({"metadata": {"name": name, "uid": uid, "resourceVersion": "1"}, "spec": {"watts": watts}}),
    )
}

fn seen(rows: &Rows<Cap>) -> Vec<(String, u64, Option<Mono>)> {
    rows.with(|rows| rows.iter().map(|(key, held)| (key.to_string(), held.row.0, held.stale_since)).collect())
}

fn row(name: &str, watts: u64, stale: Option<Mono>) -> (String, u64, Option<Mono>) {
    (name.to_owned(), watts, stale)
}

#[tokio::test]
async fn rows_are_shown_when_a_list_is_whole_and_not_before() {
    let (mut writer, rows) = rows();
    writer.begin().await;
    assert_eq!(writer.listed(object("a", "1", &json!(100)), at(0)).await, None);
    assert_eq!((seen(&rows), rows.is_synced()), (vec![], false));
    writer.done("7", at(1)).await;
    assert_eq!((seen(&rows), rows.is_synced()), (vec![row("a", 100, None)], true));
    writer.begin().await;
    writer.listed(object("b", "2", &json!(200)), at(2)).await;
    assert_eq!(
        (seen(&rows), rows.is_synced()),
        (vec![row("a", 100, None)], true),
        "during a second list the first stands"
    );
    writer.done("7", at(3)).await;
    assert_eq!(seen(&rows), [row("b", 200, None)], "what is not in the list is gone");
}

#[tokio::test]
async fn an_object_that_becomes_malformed_keeps_its_last_good_row_and_says_since_when() {
    let (mut writer, rows) = rows();
    writer.applied(object("a", "1", &json!(100)), at(0)).await;
    for second in [5, 7] {
        let skipped = writer.applied(object("a", "1", &json!("lots")), at(second)).await;
        let why = "spec.watts is \"lots\"".to_owned();
        assert_eq!(skipped, Some(Skipped { key: ObjectKey::cluster("a"), why, kept: true }));
    }
    assert_eq!(seen(&rows), [row("a", 100, Some(at(5)))]);
    writer.begin().await;
    writer.listed(object("a", "1", &json!(null)), at(8)).await;
    writer.done("7", at(8)).await;
    assert_eq!(seen(&rows), [row("a", 100, Some(at(5)))], "a list changes nothing about it");
    assert_eq!(rows.malformed()[&ObjectKey::cluster("a")], "spec.watts is null");
    writer.applied(object("a", "1", &json!(120)), at(9)).await;
    assert_eq!((seen(&rows), rows.malformed().len()), (vec![row("a", 120, None)], 0));
}

#[tokio::test]
async fn a_malformed_object_says_nothing_of_an_older_one_with_its_name() {
    let (mut writer, rows) = rows();
    writer.applied(object("a", "1", &json!(100)), at(0)).await;
    let skipped = writer.applied(object("a", "2", &json!(-1)), at(1)).await.unwrap();
    assert!(!skipped.kept);
    assert_eq!((seen(&rows), rows.malformed().len()), (vec![], 1));
    writer.deleted(object("a", "2", &json!(-1)), at(2)).await;
    assert_eq!(rows.malformed().len(), 0);
}

#[tokio::test]
async fn what_is_no_object_at_all_is_skipped_too() {
    let (mut writer, rows) = rows::<Cap>();
    for value in [
        json!(null),
        json!(7),
        json!([]),
        json!({}),
        json!({"metadata": {"name": 7}}),
        json!({"metadata": "x"}),
    ] {
        let skipped = writer.applied(Object::of(&value), at(0)).await.unwrap();
        assert_eq!(skipped.why, "it has no metadata.name");
    }
    assert_eq!(seen(&rows), []);
}

#[tokio::test]
async fn what_somebody_wrote_is_not_kept_whole_because_it_is_malformed() {
    let (mut writer, rows) = rows();
    writer.applied(object("a", "1", &json!("w".repeat(1 << 20))), at(0)).await;
    assert_eq!(rows.malformed()[&ObjectKey::cluster("a")].len(), 1024);
}

#[tokio::test]
async fn silence_and_a_missing_list_make_us_unready() {
    let (mut writer, rows) = rows::<Cap>();
    let check = rows.check(Duration::from_secs(60));
    assert_eq!(check(at(0)), CheckResult::Fail("caps are not synced yet".to_owned()));
    writer.done("7", at(0)).await;
    assert_eq!(check(at(60)), CheckResult::Pass);
    assert_eq!(
        check(at(61)),
        CheckResult::Fail("the API server has said nothing of caps for 1m1s".to_owned())
    );
    // The watch has ended, and each list that is requested is refused.
    writer.begin().await;
    assert_eq!(rows.silence(at(90)), Some(Duration::from_secs(90)), "to ask is not to hear");
    assert!(matches!(check(at(90)), CheckResult::Fail(_)));
    writer.heard(at(91));
    assert_eq!(check(at(91)), CheckResult::Pass);
}

proptest! {
    #[test]
    fn the_news_make_the_rows_of_one_look_those_of_the_next(
        looks in prop::collection::vec(prop::collection::vec((0_u8..40, 0_u8..20), 0..200), 1..8)
    ) {
        let (mut writer, mut rows) = rows();
        let mut known: BTreeMap<ObjectKey, (u64, bool)> = BTreeMap::new();
        let flat = |held: &CachedRow<Cap>| (held.row.0, held.stale_since.is_some());
        for (look, changes) in (0_u64..).zip(looks) {
            for (name, what) in &changes {
                let watts = if *what == 1 { json!("lots") } else { json!(look * 1000 + u64::from(*what)) };
                let object = object(&format!("n{name}"), "u", &watts);
                match what {
                    0 => writer.deleted(object, at(0)).now_or_never().unwrap(),
                    // An object that is missing from a list is gone, and no other event reports it.
                    2 if *name == 0 => {
                        writer.begin().now_or_never().unwrap();
                        writer.listed(object, at(0)).now_or_never().unwrap();
                        writer.done("7", at(0)).now_or_never().unwrap();
                    }
                    _ => drop(writer.applied(object, at(0)).now_or_never().unwrap()),
                }
            }
            let told = rows.news(|news| match news.changes {
                None => known = news.rows.iter().map(|(key, held)| (key.clone(), flat(held))).collect(),
                Some(changes) => {
                    for RowChange { key, before, now } in changes {
                        assert_eq!(known.remove(key), before.map(flat));
                        known.extend(now.map(|held| (key.clone(), flat(held))));
                    }
                }
            });
            prop_assert_eq!(told.is_some(), !changes.is_empty());
            let wanted = rows.with(|rows| rows.iter().map(|(key, held)| (key.clone(), flat(held))).collect::<BTreeMap<_, _>>());
            prop_assert_eq!(&known, &wanted);
        }
    }
}

#[tokio::test]
async fn an_object_that_cannot_be_read_is_news_although_it_has_no_row() {
    let (mut writer, mut rows) = rows();
    assert!(rows.news(|_| ()).is_none());
    writer.done("7", at(0)).await;
    assert_eq!(rows.news(|news| news.changes.is_none()), Some(true));
    writer.applied(object("a", "1", &json!("lots")), at(1)).await;
    let about = |news: RowChanges<'_, Cap>| -> Vec<(ObjectKey, bool)> {
        news.changes.unwrap().iter().map(|change| (change.key.clone(), change.now.is_some())).collect()
    };
    assert_eq!(rows.news(about), Some(vec![(ObjectKey::cluster("a"), false)]));
    assert_eq!(rows.clone().news(about), None, "a clone has seen what this one has");
}

#[tokio::test]
async fn where_there_is_one_object_its_rows_of_long_ago_are_not_kept() {
    let (mut writer, mut rows) = rows();
    writer.done("7", at(0)).await;
    rows.news(|_| ());
    let mut old = Vec::new();
    for watts in 0..300_u64 {
        writer.applied(object("a", "1", &json!(watts)), at(watts)).await;
        let row = rows.get(&ObjectKey::cluster("a")).unwrap().row;
        old.push(std::sync::Arc::downgrade(&row));
    }
    // The present row, and those from before the last eight changes.
    assert_eq!(old.iter().filter(|row| row.upgrade().is_some()).count(), 9);
    // Whoever has missed more reads everything.
    assert_eq!(rows.news(|news| (news.changes.is_none(), news.rows.len())), Some((true, 1)));
    writer.applied(object("a", "1", &json!(7)), at(300)).await;
    assert_eq!(rows.news(|news| news.changes.map(|all| all.len())), Some(Some(1)));
}

#[tokio::test]
async fn a_reader_knows_up_to_which_version_it_has_read() {
    let of = |name: &str, version: &str| {
        let head = json!({"name": name, "uid": name, "resourceVersion": version});
        Object::<Cap>::of(&json!({"metadata": head, "spec": {"watts": 1}}))
    };
    let (mut writer, mut rows) = rows();
    assert_eq!(rows.version(), None);
    writer.begin().await;
    writer.listed(of("a", "3"), at(0)).await;
    writer.done("7", at(0)).await;
    assert_eq!(rows.version(), None, "nothing was read yet");
    rows.news(|_| ());
    assert_eq!(rows.version(), Some(7));
    writer.applied(of("a", "9"), at(1)).await;
    let mut other = rows.clone();
    assert_eq!((rows.version(), other.news(|_| ()).is_some()), (Some(7), true));
    assert_eq!((rows.version(), other.version()), (Some(7), Some(9)), "each clone reads for itself");
    writer.deleted(of("a", "12"), at(2)).await;
    assert!(rows.catch_up(BTreeMap::is_empty));
    assert_eq!((rows.version(), rows.news(|_| ())), (Some(12), None));
    // One that cannot be read counts, a version that is no number does not, and a list begins anew.
    writer.applied(object("b", "1", &json!("lots")), at(3)).await;
    rows.news(|_| ());
    assert_eq!(rows.version(), Some(1));
    writer.applied(of("b", "x"), at(4)).await;
    rows.news(|_| ());
    assert_eq!(rows.version(), Some(1));
    writer.begin().await;
    writer.done("", at(5)).await;
    rows.news(|_| ());
    assert_eq!(rows.version(), None);
}
