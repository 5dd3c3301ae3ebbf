//! A process and its output until both have ended, and the end of one that runs too long.
//!
//! The process is left in the group of this program, so that an interrupt at the terminal still reaches all of them. What is ended
//! is therefore looked up in `/proc`: the process and everything below it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, PipeReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// For how long what was killed may keep its output open.
const GRACE: Duration = Duration::from_secs(5);

/// How often the processes are listed at most until all of them stand still.
const LISTINGS: usize = 20;

/// How a process went.
pub(super) struct Followed {
    /// Whether its exit status was 0.
    pub(super) succeeded: bool,
    /// Whether it was ended because it ran too long.
    pub(super) hung: bool,
    /// All that it wrote, and a line at the end if it was ended.
    pub(super) output: String,
}

/// What is heard of a process.
enum News {
    Wrote(Vec<u8>),
    /// Nobody can write any more.
    Closed,
    Ended(Option<ExitStatus>),
}

/// What was heard so far.
#[derive(Default)]
struct Heard {
    output: Vec<u8>,
    is_closed: bool,
    has_ended: bool,
    succeeded: bool,
}

impl Followed {
    /// One that did not even start.
    pub(super) const fn failed(output: String) -> Self {
        Self { succeeded: false, hung: false, output }
    }

    /// Follows a process that writes into this pipe to its end. After `limit` it is killed with all that it has started.
    pub(super) fn of(mut child: Child, reader: PipeReader, limit: Duration) -> Self {
        let pid = child.id();
        let (sender, news) = channel();
        let ending = sender.clone();
        std::thread::spawn(move || forward(reader, &sender));
        // Nobody listens any more if it ends after all.
        std::thread::spawn(move || ending.send(News::Ended(child.wait().ok())));
        let mut heard = Heard::default();
        let hung = !heard.listen(&news, limit);
        let mut last = String::new();
        if hung {
            // The number of one that has ended may be another's now.
            if !heard.has_ended {
                end(pid);
            }
            last = format!("\nended after {} s: it ran too long\n", limit.as_secs());
            if !heard.listen(&news, GRACE) {
                last.push_str("a process that it has started still has its output open\n");
            }
        }
        let output = String::from_utf8_lossy(&heard.output).into_owned() + &last;
        Self { succeeded: heard.succeeded && !hung, hung, output }
    }
}

impl Heard {
    /// Listens until the process has ended and its output is closed; false if that takes longer than `most`.
    fn listen(&mut self, news: &Receiver<News>, most: Duration) -> bool {
        let until = now() + most;
        while !(self.is_closed && self.has_ended) {
            // Of one that writes all the time there are always news.
            let left = until.saturating_duration_since(now());
            let Some(new) = news.recv_timeout(left).ok().filter(|_| !left.is_zero()) else { return false };
            match new {
                News::Wrote(part) => self.output.extend_from_slice(&part),
                News::Closed => self.is_closed = true,
                News::Ended(status) => {
                    (self.has_ended, self.succeeded) = (true, status.is_some_and(|status| status.success()));
                }
            }
        }
        true
    }
}

/// The time, which only bounds a wait and tells a person how long it took.
#[expect(clippy::disallowed_methods, reason = "programs run in real time")]
pub(super) fn now() -> Instant {
    Instant::now()
}

fn forward(mut reader: PipeReader, news: &Sender<News>) {
    let mut part = vec![0; 1 << 16];
    loop {
        let new = match reader.read(&mut part) {
            Ok(0) => break,
            Ok(length) => part[..length].to_vec(),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => {
                let _unheard =
                    news.send(News::Wrote(format!("\nreading its output: {error}\n").into_bytes()));
                break;
            }
        };
        if news.send(News::Wrote(new)).is_err() {
            return;
        }
    }
    // Nobody listens any more to one that was ended.
    let _unheard = news.send(News::Closed);
}

/// Ends a process and everything below it. All are stopped first, so that none starts another one meanwhile.
fn end(pid: u32) {
    let mut stopped = BTreeSet::new();
    for _ in 0..LISTINGS {
        let found = below(pid, &parents());
        let new: Vec<u32> = found.difference(&stopped).copied().collect();
        if new.is_empty() {
            break;
        }
        signal("STOP", &new);
        stopped.extend(new);
    }
    signal("KILL", &Vec::from_iter(stopped));
}

/// Each process with its parent. One that ends meanwhile is missing.
fn parents() -> BTreeMap<u32, u32> {
    let listed = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = listed.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| Some((pid, parent(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?)))
        .collect()
}

/// The parent in the text of a `stat`. The name in parentheses may contain anything.
fn parent(stat: &str) -> Option<u32> {
    let (_, words) = stat.rsplit_once(')')?;
    words.split_whitespace().nth(1)?.parse().ok()
}

/// A process that there is, and everything below it.
fn below(pid: u32, parents: &BTreeMap<u32, u32>) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut next = Vec::from_iter(parents.contains_key(&pid).then_some(pid));
    while let Some(above) = next.pop() {
        if found.insert(above) {
            next.extend(parents.iter().filter(|(_, parent)| **parent == above).map(|(child, _)| *child));
        }
    }
    found
}

/// Sends a signal to these processes by the shell's own `kill`; one that has ended already is no error.
fn signal(name: &str, pids: &[u32]) {
    let script = format!("kill -{name} \"$@\"");
    let pids = pids.iter().map(u32::to_string);
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, "sh"]).args(pids).stdin(Stdio::null()).stderr(Stdio::null());
    // Without a shell nothing can be ended, and the output says so.
    let _sent = shell.status();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn followed(script: &str) -> Followed {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        let child = command.stdout(writer.try_clone().unwrap()).stderr(writer).spawn().unwrap();
        drop(command);
        Followed::of(child, reader, Duration::from_secs(2))
    }

    #[test]
    fn what_runs_too_long_is_killed_with_all_that_it_has_started() {
        // A child of a child, and one with a session of its own: what does not end keeps the output open.
        let all = followed("(sleep 1000; true) & setsid sleep 1000 & echo here; wait");
        assert!(all.hung && !all.succeeded);
        assert_eq!(all.output, "here\n\nended after 2 s: it ran too long\n");
    }

    #[test]
    fn one_that_writes_all_the_time_is_killed_too_and_one_that_only_leaves_its_output_open() {
        let writes = followed("while :; do echo again; sleep 0.01; done");
        assert!(writes.hung && writes.output.starts_with("again\n"), "{}", writes.output);
        assert!(writes.output.ends_with("it ran too long\n"), "{}", writes.output);
        // Of a faster one there are news at any moment.
        let (sender, news) = channel();
        sender.send(News::Wrote(b"more".to_vec())).unwrap();
        let mut heard = Heard::default();
        assert!(!heard.listen(&news, Duration::ZERO) && heard.output.is_empty(), "its time is over");
        // Its parent has ended, so that nobody knows whose it was.
        let left = followed("sleep 30 & exit 0");
        assert!(left.hung && !left.succeeded);
        assert!(left.output.ends_with("still has its output open\n"), "{}", left.output);
    }

    #[test]
    fn the_processes_below_one_are_found_whatever_their_names() {
        assert_eq!(parent("12 (a ) R 1 (b) S 7 12 12 0 -1"), Some(7));
        assert_eq!([parent(""), parent("12 (sh"), parent("12 (sh) S")], [None; 3]);
        let parents = BTreeMap::from([(1, 0), (7, 1), (8, 7), (9, 8), (10, 1), (11, 10)]);
        assert_eq!(below(7, &parents), BTreeSet::from([7, 8, 9]));
        assert_eq!(below(99, &parents), BTreeSet::new(), "it has ended");
        assert_eq!(below(3, &BTreeMap::from([(3, 3)])), BTreeSet::from([3]), "a loop ends");
    }
}
