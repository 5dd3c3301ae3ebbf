//! The child processes, and how it is ensured that all of them end.
//!
//! - The keeper thread starts the children and lives as long as they are needed. The kernel kills a child when the
//!   thread that started it ends. So the children end with the keeper and with the whole process, however that is
//!   killed. (The thread of a test cannot be the keeper, because tests share control planes.)
//! - The watchdog is a shell that waits for the end of its standard input. The kernel closes that pipe when this
//!   process ends. The shell then kills the children that it knows and removes the folder. It works even when this
//!   process was killed, and it always removes the folder.
//!
//! Children are in process groups of their own, so that an interrupt at the terminal reaches their owner first.

use crate::component::Component;
use crate::error::ClusterError;
use crate::ffi::{self, ProcessSignal};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// Reads the ids of children. At the end of the input it kills those that still run in the folder (an id may have
/// been reused by another process) and removes the folder. A process that is being killed may still write, so
/// removing is repeated. If a killed program has mounted something in the folder, it stays mounted, and nothing is
/// removed through the mount.
const WATCHDOG: &str = r#"
trap '' HUP INT TERM QUIT
folder=$1
children=
while read -r child; do children="$children $child"; done
for child in $children; do
    [ "/proc/$child/cwd" -ef "$folder" ] && kill -KILL "$child" 2>/dev/null
done
while read -r _ at _; do
    case $at in "$folder"/*) umount -l "$at" ;; esac
done </proc/self/mounts
for again in 1 2 3 4 5 6 7 8 9 10; do
    rm -rf -- "$folder" && exit 0
    sleep 0.2
done
"#;

type Job = Box<dyn FnOnce(&mut Children) + Send>;

/// The thread that owns the children. Dropping it ends them and removes the folder.
pub(crate) struct ProcessKeeper {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

/// The data of the keeper.
struct Children {
    folder: PathBuf,
    watchdog: Child,
    running: BTreeMap<Who, Child>,
}

/// The owner of a process, in the order in which they are ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    /// A program of a suite, by name.
    Program(String),
    /// A component of the control plane.
    Component(Component),
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(name) => f.write_str(name),
            Self::Component(component) => component.fmt(f),
        }
    }
}

/// A program and its arguments. Its only inherited variable is `HOME`, which is set to the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: BTreeMap<String, String>,
}

impl ProcessKeeper {
    pub(crate) fn start(folder: &Path) -> Result<Self, ClusterError> {
        let watchdog = start_watchdog(folder)?;
        let children = Children { folder: folder.to_owned(), watchdog, running: BTreeMap::new() };
        let (jobs, received) = channel();
        let thread = std::thread::Builder::new()
            .name("cluster-keeper".to_owned())
            .spawn(move || keep(children, &received))
            .map_err(ClusterError::system("starting the thread that keeps the processes"))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Starts a process, and replaces one of that name. Its log is `NAME.log` in the folder.
    pub(crate) fn spawn(&self, who: Who, start: Start) -> Result<(), ClusterError> {
        self.call(move |children| children.spawn(who, &start))
    }

    /// Kills a process and waits for its end.
    pub(crate) fn kill(&self, who: Who) {
        self.call(move |children| children.kill(&who));
    }

    /// Sends a signal to a running process.
    pub(crate) fn signal(&self, who: Who, signal: ProcessSignal) -> Result<(), ClusterError> {
        self.call(move |children| match children.running.get(&who) {
            // A child that has ended but was not waited for keeps its id, so the signal cannot reach another process.
            Some(child) => {
                ffi::send(child.id(), signal).map_err(ClusterError::system("sending a signal to a child"))
            }
            None => Err(ClusterError::Asked(format!("{who} was not started, so it gets no signal"))),
        })
    }

    /// The exit status of a process that has ended without being killed here.
    pub(crate) fn how_ended(&self, who: Who) -> Option<ExitStatus> {
        self.call(move |children| children.running.get_mut(&who)?.try_wait().ok().flatten())
    }

    /// A component that has ended without being killed here, and its exit status.
    pub(crate) fn ended(&self) -> Option<(Component, ExitStatus)> {
        self.call(|children| {
            children.running.iter_mut().find_map(|(who, child)| match who {
                Who::Program(_) => None,
                Who::Component(component) => {
                    child.try_wait().ok().flatten().map(|status| (*component, status))
                }
            })
        })
    }

    pub(crate) fn pid(&self, who: Who) -> Option<u32> {
        self.call(move |children| children.running.get(&who).map(Child::id))
    }

    fn call<T: Send + 'static>(&self, job: impl FnOnce(&mut Children) -> T + Send + 'static) -> T {
        let (answer, answered) = channel();
        let job: Job = Box::new(move |children| {
            // The receiver is gone only if the caller's thread is gone.
            let _ = answer.send(job(children));
        });
        if let Some(jobs) = &self.jobs {
            jobs.send(job).expect("the keeper lives as long as its handle");
        }
        answered.recv().expect("the keeper answers every job")
    }
}

impl Drop for ProcessKeeper {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // If the keeper panicked, its children were killed with its thread.
            let _ = thread.join();
        }
    }
}

fn start_watchdog(folder: &Path) -> Result<Child, ClusterError> {
    Command::new("/bin/sh")
        .args(["-c", WATCHDOG, "joulie-cluster-watchdog"])
        .arg(folder)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(ClusterError::system("starting the watchdog, /bin/sh"))
}

fn keep(mut children: Children, jobs: &Receiver<Job>) {
    for job in jobs {
        job(&mut children);
    }
}

impl Children {
    fn spawn(&mut self, who: Who, start: &Start) -> Result<(), ClusterError> {
        self.kill(&who);
        let log = log_file(&self.folder, &who);
        let out = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .map_err(ClusterError::file("opening the log", &log))?;
        let err = out.try_clone().map_err(ClusterError::file("opening the log", &log))?;
        let mut command = Command::new(&start.program);
        command
            .args(&start.arguments)
            // etcd takes every variable ETCD_* as a flag.
            .env_clear()
            .env("HOME", &self.folder)
            .envs(&start.environment)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .process_group(0);
        ffi::die_with_this_thread(&mut command);
        let child = command.spawn().map_err(ClusterError::file("starting", &start.program))?;
        let told = self.watchdog.stdin.as_mut().map(|pipe| writeln!(pipe, "{}", child.id()));
        self.running.insert(who, child);
        match told {
            Some(Ok(())) => Ok(()),
            Some(Err(source)) => {
                Err(ClusterError::System { doing: "telling the watchdog about a child", source })
            }
            None => Ok(()),
        }
    }

    fn kill(&mut self, who: &Who) {
        if let Some(mut child) = self.running.remove(who) {
            // It may have ended already; then there is nothing to kill, and waiting returns at once.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        while let Some((who, _)) = self.running.first_key_value() {
            let who = who.clone();
            self.kill(&who);
        }
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
    }
}

pub(crate) fn log_file(folder: &Path, who: &Who) -> PathBuf {
    folder.join(format!("{who}.log"))
}

#[cfg(test)]
mod tests;
