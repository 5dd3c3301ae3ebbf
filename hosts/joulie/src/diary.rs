//! Writes the log of the libraries to standard error. A repeated text is written once.

use log::{Level, LevelFilter, Log, Metadata, Record};
use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

struct Diary {
    /// The texts that were written already.
    told: Mutex<BTreeSet<String>>,
}

static DIARY: Diary = Diary { told: Mutex::new(BTreeSet::new()) };

/// At most this many different texts are remembered, because a text with a counter in it never repeats.
const TOLD_MOST: usize = 200;

/// Starts logging at this level.
pub(crate) fn begin(from: LevelFilter) {
    if log::set_logger(&DIARY).is_ok() {
        log::set_max_level(from);
    }
}

impl Log for Diary {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let word = match record.level() {
            Level::Error => "error",
            Level::Warn => "warning",
            Level::Info | Level::Debug | Level::Trace => "info",
        };
        let text = format!("joulie: {word}: {}", record.args());
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.contains(&text) {
            return;
        }
        if told.len() == TOLD_MOST {
            told.clear();
        }
        // If standard error is closed, the text is lost.
        let _written = writeln!(std::io::stderr(), "{text}");
        told.insert(text);
    }

    fn flush(&self) {}
}
