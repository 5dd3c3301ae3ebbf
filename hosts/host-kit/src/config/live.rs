//! Follows the file of settings while the program runs.
//!
//! ```text
//! look ──▶ other content? ──▶ the same at the next look? ──▶ whole file valid? ──▶ live settings published
//!                                                                 │ no
//!                                                                 └──▶ refused as a whole, what is in force stays
//! ```
//!
//! A file that is being replaced may be missing or half written for a moment, so that only what two looks in a row find
//! is judged. A file is judged with all flags and variables, as at a start: what a restart would refuse is refused
//! here too. Of a valid file, the settings that are declared live are taken; a change of any other is told and waits
//! for a restart.

use super::sources::{FileContent, read_text};
use super::{Held, Refusals, SettingSources, SettingsTable, Values, load};
use crate::clock::HostClock;
use crate::log::Logs;
use crate::metrics::MetricsRegistry;
use crate::program::LOG_LEVEL;
use crate::shutdown::{Stop, Tasks};
use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// How often the file is read.
const LOOK: Duration = Duration::from_secs(5);
/// So many mistakes of one file are told.
const MISTAKES_MAX: usize = 50;

crate::closed_label! {
    /// What became of a change of the file.
    pub enum ConfigOutcome {
        /// The live settings of the file are in force.
        Applied = "applied",
        /// The file is refused as a whole, and the settings of before stay in force.
        Refused = "refused",
    }
}

crate::label_set! {
    /// What became of a change of the file.
    struct ByOutcome {
        outcome: ConfigOutcome,
    }
}

/// What is counted about the file of settings.
#[derive(Clone, Debug)]
pub struct ConfigMetrics {
    changes: Family<ByOutcome, Counter>,
    refused: Gauge,
    waiting: Gauge,
}

impl ConfigMetrics {
    /// Registers them.
    pub fn register(registry: &mut MetricsRegistry) -> Self {
        let all = Self { changes: Family::default(), refused: Gauge::default(), waiting: Gauge::default() };
        for outcome in ConfigOutcome::ALL {
            drop(all.changes.get_or_create(&ByOutcome { outcome: *outcome }));
        }
        registry.register("joulie_config_changes", "Changes of the file of settings", all.changes.clone());
        let help = "1 while the file of settings is refused as it is, and what was in force before stays";
        registry.register("joulie_config_refused", help, all.refused.clone());
        let help = "Settings whose value in the file waits for a restart";
        registry.register("joulie_config_waiting", help, all.waiting.clone());
        all
    }
}

/// What became of the last change of the file, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigNews {
    /// Whether it was applied.
    pub outcome: ConfigOutcome,
    /// What has changed, or every mistake.
    pub text: String,
}

/// The settings in force after a change of the file, and what became of that change.
struct Taken<S> {
    /// `None` while they are those of the start.
    settings: Option<Arc<S>>,
    news: Arc<ConfigNews>,
}

impl<S> Clone for Taken<S> {
    fn clone(&self) -> Self {
        Self { settings: self.settings.clone(), news: self.news.clone() }
    }
}

/// A program's settings, as they are in force.
pub struct Live<S> {
    in_force: Arc<S>,
    changes: Option<watch::Receiver<Option<Taken<S>>>>,
}

impl<S> Clone for Live<S> {
    fn clone(&self) -> Self {
        Self { in_force: self.in_force.clone(), changes: self.changes.clone() }
    }
}

impl<S> Live<S> {
    /// The settings in force, as of the last [`Live::changed`] or [`Live::refresh`].
    pub fn in_force(&self) -> &Arc<S> {
        &self.in_force
    }

    /// What is in force now, whether it was taken over here or not.
    pub fn newest(&self) -> Arc<S> {
        let taken = self.changes.as_ref().and_then(|changes| changes.borrow().clone());
        taken.and_then(|taken| taken.settings).unwrap_or_else(|| self.in_force.clone())
    }

    /// Takes over what is in force now, without waiting.
    pub fn refresh(&mut self) -> &Arc<S> {
        let taken = self.changes.as_mut().and_then(|changes| changes.borrow_and_update().clone());
        if let Some(settings) = taken.and_then(|taken| taken.settings) {
            self.in_force = settings;
        }
        &self.in_force
    }

    /// Waits for the next change of the file, and takes over what is in force then; without a file it waits forever.
    pub async fn changed(&mut self) -> Arc<ConfigNews> {
        loop {
            let Some(changes) = &mut self.changes else { return std::future::pending().await };
            if changes.changed().await.is_err() {
                self.changes = None;
                continue;
            }
            let Some(taken) = changes.borrow_and_update().clone() else { continue };
            if let Some(settings) = taken.settings {
                self.in_force = settings;
            }
            return taken.news;
        }
    }
}

/// Publishes settings whose type it alone knows.
trait Publish: Send + Sync {
    fn check(&self, values: &Values) -> Result<(), Refusals>;
    fn publish(&self, values: &Values, news: &ConfigNews) -> Result<(), Refusals>;
    fn tell(&self, news: &ConfigNews);
    fn changes(&self) -> Box<dyn Any>;
}

struct Publisher<S, R> {
    read: R,
    taken: watch::Sender<Option<Taken<S>>>,
}

impl<S: Send + Sync + 'static, R: Fn(&Values) -> Result<S, Refusals> + Send + Sync> Publish
    for Publisher<S, R>
{
    fn check(&self, values: &Values) -> Result<(), Refusals> {
        (self.read)(values).map(drop)
    }

    fn publish(&self, values: &Values, news: &ConfigNews) -> Result<(), Refusals> {
        let settings = Some(Arc::new((self.read)(values)?));
        self.taken.send_replace(Some(Taken { settings, news: Arc::new(news.clone()) }));
        Ok(())
    }

    fn tell(&self, news: &ConfigNews) {
        self.taken.send_modify(|taken| {
            let settings = taken.take().and_then(|taken| taken.settings);
            *taken = Some(Taken { settings, news: Arc::new(news.clone()) });
        });
    }

    fn changes(&self) -> Box<dyn Any> {
        Box::new(self.taken.subscribe())
    }
}

/// The configuration of a program: what is in force, and how it follows its file. Clones share it.
#[derive(Clone)]
pub struct LiveConfig(Kind);

#[derive(Clone)]
enum Kind {
    Fixed(String),
    Following(Arc<Following>),
}

struct Following {
    table: &'static SettingsTable,
    sources: SettingSources,
    path: Option<PathBuf>,
    publisher: Box<dyn Publish>,
    state: Mutex<State>,
}

struct State {
    values: Values,
    started: Timestamp,
    /// When a setting was last changed, of those that were.
    since: BTreeMap<&'static str, Timestamp>,
    /// The settings that wait for a restart, and what the file says.
    waiting: BTreeMap<&'static str, String>,
    /// When the content of the file was judged, and every mistake in it.
    judged: (Timestamp, Vec<String>),
    content: Option<FileContent>,
    /// Another content that was found at the last look.
    found: Option<FileContent>,
}

impl LiveConfig {
    /// A configuration that never changes, with its page.
    pub fn fixed(page: String) -> Self {
        Self(Kind::Fixed(page))
    }

    /// The configuration with which a program starts; `read` makes its settings of the values.
    pub fn new<S: Send + Sync + 'static>(
        table: &'static SettingsTable,
        sources: SettingSources,
        values: Values,
        read: impl Fn(&Values) -> Result<S, Refusals> + Send + Sync + 'static,
        now: Timestamp,
    ) -> Self {
        let file = sources.named_file();
        let (path, content) = file.map(|file| (file.path.clone(), file.content.clone())).unzip();
        let state = State {
            values,
            started: now,
            since: BTreeMap::new(),
            waiting: BTreeMap::new(),
            judged: (now, Vec::new()),
            content,
            found: None,
        };
        let publisher = Box::new(Publisher { read, taken: watch::Sender::new(None) });
        Self(Kind::Following(Arc::new(Following {
            table,
            sources,
            path,
            publisher,
            state: Mutex::new(state),
        })))
    }

    /// The settings of the start, and those that follow.
    pub fn settings<S: 'static>(&self, at_start: S) -> Live<S> {
        let changes = match &self.0 {
            Kind::Fixed(_) => None,
            Kind::Following(following) => {
                following.publisher.changes().downcast().ok().map(|changes| *changes)
            }
        };
        Live { in_force: Arc::new(at_start), changes }
    }

    /// The page of `/debug/config`: every setting with its origin and since when it is in force, and what is told of the
    /// file. Secrets are not shown.
    pub fn page(&self) -> String {
        match &self.0 {
            Kind::Fixed(page) => page.clone(),
            Kind::Following(following) => following.page(),
        }
    }

    /// Follows the file in a task, if there is one. The level of `logs` follows LOG_LEVEL.
    pub fn start(
        &self,
        metrics: ConfigMetrics,
        logs: Option<Logs>,
        clock: &Arc<dyn HostClock>,
        (tasks, stop): (&mut Tasks, &Stop),
    ) {
        match &self.0 {
            Kind::Following(following) if following.path.is_some() => {}
            Kind::Fixed(_) | Kind::Following(_) => return,
        }
        let (config, clock, stop) = (self.clone(), clock.clone(), stop.clone());
        tasks.spawn("config", async move {
            while !stop.requested_within(LOOK).await {
                if let Some(change) = config.look(&metrics, clock.wall()) {
                    config.switch_logs(logs.as_ref(), &change);
                }
            }
        });
    }

    /// Reads the file once; returns what became of it, if there is anything to tell.
    pub fn look(&self, metrics: &ConfigMetrics, now: Timestamp) -> Option<ConfigChange> {
        match &self.0 {
            Kind::Fixed(_) => None,
            Kind::Following(following) => following.look(metrics, now),
        }
    }

    /// A level that somebody has set at /debug/log stays until that of the file changes.
    fn switch_logs(&self, logs: Option<&Logs>, change: &ConfigChange) {
        let Kind::Following(following) = &self.0 else { return };
        if !change.settings.contains(&LOG_LEVEL.name()) {
            return;
        }
        let levels = following.state().values.get(&LOG_LEVEL);
        if let (Some(logs), Ok(levels)) = (logs, levels)
            && let Err(error) = logs.set(&levels)
        {
            tracing::error!("LOG_LEVEL: {error}");
        }
    }
}

/// A change of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigChange {
    /// What became of it.
    pub news: ConfigNews,
    /// The settings that have changed.
    pub settings: Vec<&'static str>,
}

/// The values in force after a change of the file.
struct Merged {
    values: Values,
    changed: Vec<&'static str>,
    waiting: BTreeMap<&'static str, String>,
    /// What has changed, for people.
    text: String,
}

impl Following {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self, metrics: &ConfigMetrics, now: Timestamp) -> Option<ConfigChange> {
        let content = read_text(self.path.as_ref()?);
        let mut state = self.state();
        if state.content.as_ref() == Some(&content) {
            state.found = None;
            return None;
        }
        if state.found.as_ref() != Some(&content) {
            state.found = Some(content);
            return None;
        }
        state.found = None;
        state.content = Some(content.clone());
        let change = match self.judge(&mut state, content) {
            Ok(merged) => {
                state.since.extend(merged.changed.iter().map(|name| (*name, now)));
                (state.values, state.waiting) = (merged.values, merged.waiting);
                state.judged = (now, Vec::new());
                let news = ConfigNews { outcome: ConfigOutcome::Applied, text: said(merged.text) };
                tracing::info!("the file of settings is applied: {}", news.text);
                ConfigChange { news, settings: merged.changed }
            }
            Err(mistakes) => {
                let news = ConfigNews { outcome: ConfigOutcome::Refused, text: mistakes.join("; ") };
                tracing::error!(
                    "the file of settings is refused as a whole, and what is in force stays; a restart would refuse it too: {}",
                    news.text
                );
                self.publisher.tell(&news);
                state.judged = (now, mistakes);
                ConfigChange { news, settings: Vec::new() }
            }
        };
        metrics.changes.get_or_create(&ByOutcome { outcome: change.news.outcome }).inc();
        metrics.refused.set(i64::from(change.news.outcome == ConfigOutcome::Refused));
        metrics.waiting.set(i64::try_from(state.waiting.len()).unwrap_or(i64::MAX));
        Some(change)
    }

    /// Takes a file in, or returns every mistake in it.
    fn judge(&self, state: &mut State, content: FileContent) -> Result<Merged, Vec<String>> {
        let sources = self.sources.with_file(content);
        let wanted = load(self.table, &sources)
            .and_then(|wanted| self.publisher.check(&wanted).map(|()| wanted))
            .map_err(|refusals| mistakes(&refusals))?;
        let merged = merge(self.table, state, wanted);
        let news = ConfigNews { outcome: ConfigOutcome::Applied, text: said(merged.text.clone()) };
        self.publisher.publish(&merged.values, &news).map_err(|refusals| {
            let mut all = mistakes(&refusals);
            all.push(
                "this is so only beside settings that wait for a restart: a restart takes the whole file"
                    .to_owned(),
            );
            all
        })?;
        Ok(merged)
    }

    fn page(&self) -> String {
        let state = self.state();
        let mut page = String::new();
        // Writing to a text does not fail.
        if let Some(path) = &self.path {
            let (at, mistakes) = &state.judged;
            let path = path.display();
            let _ = match mistakes.as_slice() {
                [] => writeln!(page, "# {path}: taken at {at}"),
                _ => writeln!(page, "# {path}: refused as a whole at {at}; what is below stays in force"),
            };
            for mistake in mistakes {
                let _ = writeln!(page, "#   {mistake}");
            }
        }
        for (name, Held { shown, origin, .. }) in &state.values.held {
            let since = state.since.get(name).unwrap_or(&state.started);
            let _ = write!(page, "{name}={shown} ({origin}, since {since})");
            if let Some(wanted) = state.waiting.get(name) {
                let _ = write!(page, "; the file says {wanted}, which waits for a restart");
            }
            page.push('\n');
        }
        page
    }
}

/// What is told of a change, in a sentence.
fn said(text: String) -> String {
    if text.is_empty() { "every setting stays as it is".to_owned() } else { text }
}

fn mistakes(refusals: &Refusals) -> Vec<String> {
    let mut all: Vec<String> = refusals.each().take(MISTAKES_MAX).map(ToString::to_string).collect();
    let more = refusals.each().count().saturating_sub(MISTAKES_MAX);
    if more > 0 {
        all.push(format!("and {more} more"));
    }
    all
}

/// Takes the live settings of `wanted`, and all others as they are in force.
fn merge(table: &SettingsTable, state: &State, mut wanted: Values) -> Merged {
    let (mut changed, mut waiting, mut text) = (Vec::new(), BTreeMap::new(), Vec::new());
    for setting in table.settings {
        let name = setting.name();
        let (Some(old), Some(new)) = (state.values.held.get(name), wanted.held.get_mut(name)) else {
            continue;
        };
        if old.text == new.text {
            continue;
        }
        if setting.live() {
            text.push(format!("{name} was {} and is {}", old.shown, new.shown));
            changed.push(name);
        } else {
            if state.waiting.get(name) != Some(&new.shown) {
                text.push(format!("{name} stays {}, since {} waits for a restart", old.shown, new.shown));
            }
            waiting.insert(name, std::mem::replace(new, old.clone()).shown);
        }
    }
    let before = state.values.warnings();
    text.extend(wanted.warnings.iter().filter(|warning| !before.contains(warning)).cloned());
    Merged { values: wanted, changed, waiting, text: text.join("; ") }
}

#[cfg(test)]
mod tests;
