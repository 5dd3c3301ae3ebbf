//! The rows of one kind, and how they change with the objects that arrive. No I/O, no clock.

use super::news::{Log, RowChanges};
use super::object::{Object, ObjectKey, Row};
use crate::clock::Mono;
use crate::config::parse::show_duration;
use crate::health::CheckResult;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::watch;

/// A row, and whether its object has become unreadable since.
#[derive(Debug)]
pub struct CachedRow<R> {
    /// The row as it was last read.
    pub row: Arc<R>,
    /// Since when the present object cannot be read; `None` if the row is that of the present object.
    pub stale_since: Option<Mono>,
    uid: String,
}

impl<R> Clone for CachedRow<R> {
    fn clone(&self) -> Self {
        Self { row: self.row.clone(), stale_since: self.stale_since, uid: self.uid.clone() }
    }
}

/// The rows of one kind. Clones share the rows, but each remembers for itself which changes it has seen.
pub struct Rows<R> {
    table: Arc<RwLock<Table<R>>>,
    revision: watch::Receiver<u64>,
    /// How many changes [`Rows::news`] has reported.
    seen: u64,
    /// The version up to which it has seen them.
    version: Option<u64>,
}

impl<R> Clone for Rows<R> {
    fn clone(&self) -> Self {
        let (table, revision) = (self.table.clone(), self.revision.clone());
        Self { table, revision, seen: self.seen, version: self.version }
    }
}

/// Rows, and objects that have no row.
type Listing<R> = (BTreeMap<ObjectKey, CachedRow<R>>, BTreeMap<ObjectKey, String>);

#[derive(Debug)]
struct Table<R> {
    rows: BTreeMap<ObjectKey, CachedRow<R>>,
    malformed: BTreeMap<ObjectKey, String>,
    /// The objects of a list that has begun, so far.
    listing: Option<Listing<R>>,
    log: Log<R>,
    synced: bool,
    heard: Option<Mono>,
    /// The version of the last list or change; `None` if the server gave none that is a number.
    version: Option<u64>,
}

/// An object that was skipped.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Skipped {
    pub(super) key: ObjectKey,
    pub(super) why: String,
    /// Whether an older row of the object is kept.
    pub(super) kept: bool,
}

/// Stores the objects that arrive.
pub(super) trait Keep<R>: Send {
    /// A list begins; readers keep the previous rows until it is complete. A request is not a sign of life: while the
    /// server does not answer, the rows grow older.
    fn begin(&mut self) -> impl Future<Output = ()> + Send;
    /// An object of a list.
    fn listed(&mut self, object: Object<R>, now: Mono) -> impl Future<Output = Option<Skipped>> + Send;
    /// A list of this version is complete: what was not in it is gone.
    fn done(&mut self, version: &str, now: Mono) -> impl Future<Output = ()> + Send;
    /// An object is new or has changed.
    fn applied(&mut self, object: Object<R>, now: Mono) -> impl Future<Output = Option<Skipped>> + Send;
    /// An object was deleted.
    fn deleted(&mut self, object: Object<R>, now: Mono) -> impl Future<Output = ()> + Send;
    /// The watch is alive.
    fn heard(&mut self, now: Mono);
    /// How many rows are held.
    fn rows(&self) -> usize;
}

/// The writing side of the rows.
pub(super) struct Writer<R> {
    table: Arc<RwLock<Table<R>>>,
    revision: watch::Sender<u64>,
}

pub(super) fn rows<R>() -> (Writer<R>, Rows<R>) {
    let (sender, receiver) = watch::channel(0);
    let table = Arc::new(RwLock::new(Table {
        rows: BTreeMap::new(),
        malformed: BTreeMap::new(),
        listing: None,
        log: Log::new(),
        synced: false,
        heard: None,
        version: None,
    }));
    let rows = Rows { table: table.clone(), revision: receiver, seen: 0, version: None };
    (Writer { table, revision: sender }, rows)
}

impl<R: Row> Writer<R> {
    fn write<T>(&self, change: impl FnOnce(&mut Table<R>) -> T) -> T {
        change(&mut self.table.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Applies a change that the server reported at `now`.
    fn change<T>(&self, now: Mono, change: impl FnOnce(&mut Table<R>) -> T) -> T {
        self.write(|table| {
            table.heard = Some(now);
            change(table)
        })
    }

    fn announce(&self) {
        self.revision.send_modify(|revision| *revision = revision.wrapping_add(1));
    }
}

impl<R: Row> Keep<R> for Writer<R> {
    fn heard(&mut self, now: Mono) {
        self.change(now, |_| ());
    }

    fn rows(&self) -> usize {
        self.table.read().unwrap_or_else(PoisonError::into_inner).rows.len()
    }

    async fn begin(&mut self) {
        self.write(|table| table.listing = Some((BTreeMap::new(), BTreeMap::new())));
    }

    async fn done(&mut self, version: &str, now: Mono) {
        self.change(now, |table| {
            table.version = version.parse().ok();
            if let Some((rows, malformed)) = table.listing.take() {
                (table.rows, table.malformed) = (rows, malformed);
            }
            table.log.begin_anew();
            table.synced = true;
        });
        self.announce();
    }

    async fn listed(&mut self, object: Object<R>, now: Mono) -> Option<Skipped> {
        self.change(now, |table| {
            let Table { rows: old, listing, .. } = table;
            let (rows, malformed) = listing.get_or_insert_default();
            let before = old.get(&object.key).cloned();
            put(rows, malformed, object, before, now)
        })
    }

    async fn applied(&mut self, object: Object<R>, now: Mono) -> Option<Skipped> {
        let skipped = self.change(now, |table| {
            let before = table.rows.get(&object.key).cloned();
            table.log.note(object.key.clone(), before.clone(), table.rows.len());
            table.reach(&object.version);
            put(&mut table.rows, &mut table.malformed, object, before, now)
        });
        self.announce();
        skipped
    }

    async fn deleted(&mut self, object: Object<R>, now: Mono) {
        self.change(now, |table| {
            let before = table.rows.remove(&object.key);
            table.malformed.remove(&object.key);
            table.reach(&object.version);
            table.log.note(object.key, before, table.rows.len());
        });
        self.announce();
    }
}

impl<R> Table<R> {
    /// A change of this version is in the rows.
    fn reach(&mut self, version: &str) {
        self.version = version.parse().ok().or(self.version);
    }
}

/// A valid row replaces any previous one. An invalid one keeps the old row of the *same* object, and marks it as stale.
/// The old row of another object with that name says nothing about this one.
fn put<R>(
    rows: &mut BTreeMap<ObjectKey, CachedRow<R>>,
    malformed: &mut BTreeMap<ObjectKey, String>,
    object: Object<R>,
    before: Option<CachedRow<R>>,
    now: Mono,
) -> Option<Skipped> {
    let Object { key, uid, version: _, row } = object;
    let why = match row {
        Ok(row) => {
            malformed.remove(&key);
            rows.insert(key, CachedRow { row, stale_since: None, uid });
            return None;
        }
        Err(why) => why,
    };
    let kept = before.filter(|before| before.uid == uid && !key.name.is_empty());
    let is_kept = kept.is_some();
    match kept {
        Some(old) => {
            let stale_since = Some(old.stale_since.unwrap_or(now));
            rows.insert(key.clone(), CachedRow { stale_since, ..old });
        }
        None => drop(rows.remove(&key)),
    }
    malformed.insert(key.clone(), why.clone());
    Some(Skipped { key, why, kept: is_kept })
}

impl<R: Row> Rows<R> {
    fn read<T>(&self, read: impl FnOnce(&Table<R>) -> T) -> T {
        read(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// One row.
    pub fn get(&self, key: &ObjectKey) -> Option<CachedRow<R>> {
        self.read(|table| table.rows.get(key).cloned())
    }

    /// All rows as they are now; the copy does not change later.
    pub fn all(&self) -> BTreeMap<ObjectKey, CachedRow<R>> {
        self.read(|table| table.rows.clone())
    }

    /// Reads the rows in place, without a copy. Writers wait meanwhile.
    pub fn with<T>(&self, look: impl FnOnce(&BTreeMap<ObjectKey, CachedRow<R>>) -> T) -> T {
        self.read(|table| look(&table.rows))
    }

    /// Reads what has changed since the last call on the same clone; the first call reads everything. Returns `None` if
    /// nothing has changed. Writers wait meanwhile.
    pub fn news<T>(&mut self, look: impl FnOnce(RowChanges<'_, R>) -> T) -> Option<T> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        self.version = table.version;
        let seen = std::mem::replace(&mut self.seen, table.log.end());
        (seen != table.log.end()).then(|| look(table.log.since(seen, &table.rows)))
    }

    /// Reads all rows in place; [`Rows::news`] then reports only later changes. Writers wait meanwhile.
    pub fn catch_up<T>(&mut self, look: impl FnOnce(&BTreeMap<ObjectKey, CachedRow<R>>) -> T) -> T {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        (self.seen, self.version) = (table.log.end(), table.version);
        look(&table.rows)
    }

    /// The version of the objects up to which [`Rows::news`] and [`Rows::catch_up`] have read them: every change up to it was
    /// in the rows, and none after it. `None` before anything was read, or if the server's versions are no numbers.
    pub const fn version(&self) -> Option<u64> {
        self.version
    }

    /// The objects that exist but cannot be read, with the reasons.
    pub fn malformed(&self) -> BTreeMap<ObjectKey, String> {
        self.read(|table| table.malformed.clone())
    }

    /// Whether all objects that existed at some moment have been read. Once true it stays true: rows survive an outage
    /// of the API server, with their age.
    pub fn is_synced(&self) -> bool {
        self.read(|table| table.synced)
    }

    /// How long nothing has been heard, not even that nothing changed; `None` before anything was heard.
    pub fn silence(&self, now: Mono) -> Option<Duration> {
        self.read(|table| table.heard).map(|heard| now.since(heard))
    }

    /// Waits for the next change of any row; returns false once the writer is gone.
    pub async fn changed(&mut self) -> bool {
        self.revision.changed().await.is_ok()
    }

    /// A check for `/readyz`: synced, and not silent for longer than `most`. A server that answers is heard within
    /// [`HEARD_WITHIN`](super::HEARD_WITHIN), even if nothing changes.
    pub fn check(&self, most: Duration) -> impl Fn(Mono) -> CheckResult + Send + Sync + 'static {
        let rows = self.clone();
        move |now| match (rows.is_synced(), rows.silence(now)) {
            (false, _) => CheckResult::Fail(format!("{} are not synced yet", R::KIND)),
            (true, Some(silence)) if silence > most => CheckResult::Fail(format!(
                "the API server has said nothing of {} for {}",
                R::KIND,
                show_duration(silence)
            )),
            (true, _) => CheckResult::Pass,
        }
    }
}

#[cfg(test)]
mod tests;
