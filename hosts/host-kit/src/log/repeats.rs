//! What is said again and again: the first time at once, then at most once a window, with how often it was.

use crate::clock::Mono;
use crate::config::parse::show_duration;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// More different lines than this are forgotten oldest first: a hostile peer can choose what is in one.
const LINES_MAX: usize = 1024;

/// Which lines were said when.
#[derive(Debug)]
pub struct Repeats {
    window: Duration,
    lines: BTreeMap<String, Line>,
}

#[derive(Clone, Copy, Debug)]
struct Line {
    said: Mono,
    kept_back: u64,
}

/// Leave to say a line; to be shown at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    kept_back: u64,
    over: Duration,
}

impl Repeats {
    /// Lets each line through once in `window`.
    pub fn every(window: Duration) -> Self {
        Self { window, lines: BTreeMap::new() }
    }

    /// Leave to say the line that `key` stands for, or `None` where it was said a moment ago and is only counted.
    pub fn note(&mut self, key: &str, now: Mono) -> Option<Said> {
        if let Some(line) = self.lines.get_mut(key) {
            let over = now.since(line.said);
            if over < self.window {
                line.kept_back = line.kept_back.saturating_add(1);
                return None;
            }
            let said = Said { kept_back: line.kept_back, over };
            *line = Line { said: now, kept_back: 0 };
            return Some(said);
        }
        self.make_room();
        self.lines.insert(key.to_owned(), Line { said: now, kept_back: 0 });
        Some(Said { kept_back: 0, over: Duration::ZERO })
    }

    fn make_room(&mut self) {
        if self.lines.len() < LINES_MAX {
            return;
        }
        let oldest = self.lines.iter().min_by_key(|(_, line)| line.said).map(|(key, _)| key.clone());
        if let Some(key) = oldest {
            self.lines.remove(&key);
        }
    }

    /// What was counted and then stopped: its last count would otherwise never be said. Forgets what is over.
    pub fn flush(&mut self, now: Mono) -> Vec<(String, Said)> {
        let window = self.window;
        let over: Vec<String> = self
            .lines
            .iter()
            .filter(|(_, line)| now.since(line.said) >= window)
            .map(|(key, _)| key.clone())
            .collect();
        over.into_iter()
            .filter_map(|key| self.lines.remove(&key).map(|line| (key, line)))
            .filter(|(_, line)| line.kept_back > 0)
            .map(|(key, line)| (key, Said { kept_back: line.kept_back, over: now.since(line.said) }))
            .collect()
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kept_back == 0 {
            return Ok(());
        }
        write!(f, " (and {} times more in the last {})", self.kept_back, show_duration(self.over))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono::at(Duration::from_secs(seconds))
    }

    #[test]
    fn a_repeated_line_is_said_once_a_window_with_its_count() {
        let mut repeats = Repeats::every(Duration::from_secs(300));
        assert_eq!(repeats.note("a", at(0)).unwrap().to_string(), "");
        for second in 1..=214 {
            assert_eq!(repeats.note("a", at(second)), None);
        }
        assert_eq!(repeats.note("b", at(200)).unwrap().to_string(), "", "another line is not held back");
        assert_eq!(repeats.note("a", at(300)).unwrap().to_string(), " (and 214 times more in the last 5m)");
        assert_eq!(repeats.note("a", at(301)), None);
    }

    #[test]
    fn the_last_count_of_a_line_that_stopped_is_said() {
        let mut repeats = Repeats::every(Duration::from_secs(10));
        repeats.note("a", at(0));
        repeats.note("a", at(1));
        repeats.note("b", at(1));
        assert_eq!(repeats.flush(at(9)), []);
        let flushed = repeats.flush(at(11));
        assert_eq!(flushed.len(), 1, "what was said once needs no count");
        assert_eq!(
            (flushed[0].0.as_str(), flushed[0].1.to_string().as_str()),
            ("a", " (and 1 times more in the last 11s)")
        );
        assert_eq!(repeats.flush(at(99)), []);
    }

    #[test]
    fn endless_different_lines_do_not_take_endless_memory() {
        let mut repeats = Repeats::every(Duration::from_secs(300));
        for line in 0..10 * LINES_MAX {
            assert!(
                repeats.note(&line.to_string(), Mono::from_millis(u64::try_from(line).unwrap())).is_some()
            );
        }
        assert_eq!(repeats.lines.len(), LINES_MAX);
        assert!(repeats.note("10239", at(20)).is_none(), "the newest are kept");
    }
}
