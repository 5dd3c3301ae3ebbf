//! A folder with the files of a healthy machine, some of which the input replaces.
//!
//! The input is *records* separated by `|`. The first is the wish, in decimal. Each of the others is a letter and a
//! text. The letter selects a file by its position in the target's list: a small letter replaces the file before the
//! HAL opens it, a capital letter afterwards. The text `!` removes the file, and `/` replaces it by a folder. So a
//! seed can be read and written by hand, and a mutation of it is a valid input again.

use crate::text::number;
use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A file of the healthy machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct File {
    pub(crate) path: &'static str,
    pub(crate) text: &'static str,
    /// Whether a HAL may write it.
    is_set: bool,
}

/// A file that must only be read.
pub(crate) const fn file(path: &'static str, text: &'static str) -> File {
    File { path, text, is_set: false }
}

/// A file that a HAL may write.
pub(crate) const fn setting(path: &'static str, text: &'static str) -> File {
    File { path, text, is_set: true }
}

/// The content of an input.
#[derive(Clone, Debug)]
pub(crate) struct Script<'a> {
    pub(crate) wish: u64,
    edits: Vec<Edit<'a>>,
}

#[derive(Clone, Copy, Debug)]
struct Edit<'a> {
    at: usize,
    late: bool,
    text: &'a [u8],
}

impl<'a> Script<'a> {
    /// Parses the records of an input for this number of files.
    pub(crate) fn of(bytes: &'a [u8], files: usize, default_wish: u64) -> Self {
        let mut records = bytes.split(|byte| *byte == b'|');
        let wish = records.next().and_then(number).unwrap_or(default_wish);
        let edit = |record: &'a [u8]| {
            let (letter, text) = record.split_first()?;
            let at = usize::from(letter & 0x1f).checked_sub(1)? % files;
            Some(Edit { at, late: letter & 0x20 == 0, text })
        };
        // A longer script covers no additional cases.
        Self { wish, edits: records.filter_map(edit).take(64).collect() }
    }

    /// Whether one of these files is replaced before the HAL opens it.
    pub(crate) fn replaces(&self, files: &[usize]) -> bool {
        self.edits.iter().any(|edit| !edit.late && files.contains(&edit.at))
    }
}

/// The folder.
#[derive(Debug)]
pub(crate) struct Tree {
    root: PathBuf,
    files: &'static [File],
    /// The content that a descriptor sees if it was opened after the early edits.
    open: Vec<Option<Vec<u8>>>,
    /// Whether the path still refers to the same file.
    linked: Vec<bool>,
    /// Whether a script has replaced the file.
    edited: Vec<bool>,
}

impl Tree {
    /// A folder with these files, and with links from the first path of each pair to the second.
    pub(crate) fn new(files: &'static [File], links: &[(&str, &str)]) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let root = base.join(format!("joulie-fuzz-{}-{number}", std::process::id()));
        for file in files {
            done(fs::create_dir_all(root.join(file.path).parent().unwrap_or(&root)));
            done(fs::write(root.join(file.path), file.text));
        }
        for (link, to) in links {
            done(fs::create_dir_all(root.join(link).parent().unwrap_or(&root)));
            done(std::os::unix::fs::symlink(to, root.join(link)));
        }
        let count = files.len();
        Self { root, files, open: vec![None; count], linked: vec![true; count], edited: vec![false; count] }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Applies the early edits of a script to the healthy machine.
    pub(crate) fn stage(&mut self, script: &Script<'_>) {
        for (at, file) in self.files.iter().enumerate() {
            if self.edited[at] || file.is_set {
                let path = self.root.join(file.path);
                remove(&path);
                done(fs::write(&path, file.text));
            }
            (self.edited[at], self.linked[at]) = (false, true);
            self.open[at] = Some(file.text.into());
        }
        for edit in &script.edits {
            self.edited[edit.at] = true;
        }
        for edit in script.edits.iter().filter(|edit| !edit.late) {
            let path = self.root.join(self.files[edit.at].path);
            remove(&path);
            self.open[edit.at] = None;
            match edit.text {
                b"!" => {}
                b"/" => done(fs::create_dir(&path)),
                text => {
                    done(fs::write(&path, text));
                    self.open[edit.at] = Some(text.into());
                }
            }
        }
    }

    /// Applies the late edits, while the HAL has its files open.
    pub(crate) fn change(&mut self, script: &Script<'_>) {
        for edit in script.edits.iter().filter(|edit| edit.late) {
            let path = self.root.join(self.files[edit.at].path);
            match edit.text {
                b"!" | b"/" => {
                    remove(&path);
                    self.linked[edit.at] = false;
                    if edit.text == b"/" {
                        done(fs::create_dir(&path));
                    }
                }
                text => {
                    if path.is_dir() {
                        remove(&path);
                    }
                    done(fs::write(&path, text));
                    if self.linked[edit.at] && self.open[edit.at].is_some() {
                        self.open[edit.at] = Some(text.into());
                    }
                }
            }
        }
    }

    /// The content that an open descriptor of a file sees; `None` if it was not a file when the HAL opened it.
    pub(crate) fn read(&self, at: usize) -> Option<&[u8]> {
        self.open[at].as_deref()
    }

    /// The current content of a file; `None` if an open descriptor refers to another file.
    pub(crate) fn now(&self, at: usize) -> Option<Vec<u8>> {
        let seen = self.linked[at] && self.open[at].is_some();
        seen.then(|| fs::read(self.root.join(self.files[at].path)).ok()).flatten()
    }

    /// The current content of every file that a HAL may write, by position.
    pub(crate) fn settings(&self) -> Vec<Option<Vec<u8>>> {
        (0..self.files.len()).map(|at| self.files[at].is_set.then(|| self.now(at)).flatten()).collect()
    }

    /// Checks that files which must only be read are unchanged.
    pub(crate) fn check_untouched(&self) {
        for (at, file) in self.files.iter().enumerate().filter(|(_, file)| !file.is_set) {
            let expected = self.linked[at].then(|| self.read(at)).flatten();
            if let Some(expected) = expected {
                assert_eq!(self.now(at).as_deref(), Some(expected), "{} was written", file.path);
            }
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // If removing fails, the folder stays among the temporary ones.
        let _left = fs::remove_dir_all(&self.root);
    }
}

/// One tree for each thread, created on first use, because creating one takes longer than a run.
pub(crate) fn with(tree: &RefCell<Option<Tree>>, make: fn() -> Tree, run: impl FnOnce(&mut Tree)) {
    run(tree.borrow_mut().get_or_insert_with(make));
}

fn remove(path: &Path) {
    // There may be nothing at this path.
    let _gone = if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
}

fn done(outcome: std::io::Result<()>) {
    if let Err(error) = outcome {
        panic!("the test's own folder: {error}");
    }
}
