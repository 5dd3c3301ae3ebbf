//! The layout of a virtual /sys and /dev: folders, links and files by path. The machine provides the contents of
//! files.

use crate::machine::VirtualAttribute;
use std::collections::BTreeMap;

/// The entry at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeEntry {
    /// A folder.
    Folder,
    /// A symbolic link, relative as in sysfs.
    Link(String),
    /// A file with the permission bits of the driver.
    File(u16, VirtualAttribute),
}

/// Every path that exists, without a leading slash; the root is the empty path.
#[derive(Clone, Debug, Default)]
pub struct FileTree {
    entries: BTreeMap<String, TreeEntry>,
}

impl FileTree {
    /// A tree with only the root.
    #[must_use]
    pub fn new() -> Self {
        Self { entries: BTreeMap::from([(String::new(), TreeEntry::Folder)]) }
    }

    /// Adds a file and its parent folders.
    pub fn file(&mut self, path: &str, mode: u16, attribute: VirtualAttribute) {
        self.put(path, TreeEntry::File(mode, attribute));
    }

    /// Adds a file with constant content.
    pub fn text(&mut self, path: &str, text: impl Into<String>) {
        self.put(path, TreeEntry::File(0o444, VirtualAttribute::Text(text.into())));
    }

    /// Adds a symbolic link and its parent folders.
    pub fn link(&mut self, path: &str, target: impl Into<String>) {
        self.put(path, TreeEntry::Link(target.into()));
    }

    /// Adds a folder and its parent folders.
    pub fn folder(&mut self, path: &str) {
        self.put(path, TreeEntry::Folder);
    }

    fn put(&mut self, path: &str, entry: TreeEntry) {
        for (at, _) in path.match_indices('/') {
            self.entries.entry(path[..at].to_owned()).or_insert(TreeEntry::Folder);
        }
        self.entries.insert(path.to_owned(), entry);
    }

    /// The entry at a path.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&TreeEntry> {
        self.entries.get(path)
    }

    /// The names and entries in a folder, in order.
    pub fn children<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = (&'a str, &'a TreeEntry)> {
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let length = prefix.len();
        self.entries
            .range(prefix.clone()..)
            .take_while(move |(path, _)| path.starts_with(&prefix))
            .filter(move |(path, _)| path.len() > length && !path[length..].contains('/'))
            .map(move |(path, entry)| (&path[length..], entry))
    }

    /// Every path with its entry.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &TreeEntry)> {
        self.entries.iter().map(|(path, entry)| (path.as_str(), entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_appear_with_what_is_in_them() {
        let mut tree = FileTree::new();
        tree.text("sys/class/a", "1\n");
        tree.text("sys/class-b", "2\n");
        tree.link("sys/class/l", "../class-b");
        let names = |folder: &str| tree.children(folder).map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(names(""), ["sys"]);
        assert_eq!(names("sys"), ["class", "class-b"]);
        assert_eq!(names("sys/class"), ["a", "l"]);
        assert_eq!(tree.get("sys/class"), Some(&TreeEntry::Folder));
        assert_eq!(tree.get("sys/none"), None);
    }
}
