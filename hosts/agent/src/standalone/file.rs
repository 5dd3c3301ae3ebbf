//! Watches a file by reading it again and again. A text is taken in when two readings in a row gave it: an editor that is writing, and
//! a copy that is under way, are not.

use std::io::Read;
use std::path::Path;

/// Far more than a file of settings has.
const BYTES_MOST: u64 = 1 << 20;

/// A reading of the file: its text, or why there is none.
pub(super) type Reading = Result<String, String>;

/// Reads the file.
pub(super) fn read(path: &Path) -> Reading {
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let length = file.take(BYTES_MOST + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if u64::try_from(length).is_ok_and(|length| length <= BYTES_MOST) {
        Ok(text)
    } else {
        Err(format!("it has more than {BYTES_MOST} bytes"))
    }
}

/// What was read last, and what was last taken in.
#[derive(Clone, Debug, Default)]
pub(super) struct Settling {
    last: Option<Reading>,
    settled: Option<Reading>,
}

impl Settling {
    /// Takes a reading; true when it is to be taken in: it is new, and the reading before was the same.
    pub(super) fn take(&mut self, reading: Reading) -> bool {
        let is_settled = self.last.as_ref() == Some(&reading) && self.settled.as_ref() != Some(&reading);
        if is_settled {
            self.settled = Some(reading.clone());
        }
        self.last = Some(reading);
        is_settled
    }

    /// Forgets what was taken in, because it was not what was then used.
    pub(super) fn again(&mut self) {
        *self = Self::default();
    }

    /// What was last taken in.
    pub(super) const fn settled(&self) -> Option<&Reading> {
        self.settled.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rig::test_machine::Folder;

    #[test]
    fn a_text_is_taken_in_when_two_readings_in_a_row_gave_it() {
        let mut settling = Settling::default();
        let text = |text: &str| Ok(text.to_owned());
        let readings = [
            (text("a"), false),
            (text("a"), true),
            (text("a"), false),
            // An editor has cut the file off, and writes.
            (text(""), false),
            (text("ab"), false),
            (text("abc"), false),
            (text("abc"), true),
            // For a moment it is not there, and then as before.
            (Err("gone".to_owned()), false),
            (text("abc"), false),
            (text("abc"), false),
            (Err("gone".to_owned()), false),
            (Err("gone".to_owned()), true),
            (text("abc"), false),
            (text("abc"), true),
        ];
        for (at, (reading, settles)) in readings.into_iter().enumerate() {
            assert_eq!(settling.take(reading), settles, "reading {at}");
        }
    }

    #[test]
    fn what_is_no_text_is_refused() {
        let folder = Folder::new();
        let path = folder.0.join("file");
        assert!(read(&path).unwrap_err().contains("No such file"));
        assert!(read(&folder.0).is_err(), "a folder");
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(read(&path).is_err(), "no UTF-8");
        std::fs::write(&path, vec![b'#'; 1 << 20]).unwrap();
        assert_eq!(read(&path).unwrap().len(), 1 << 20);
        std::fs::write(&path, vec![b'#'; (1 << 20) + 1]).unwrap();
        assert_eq!(read(&path).unwrap_err(), "it has more than 1048576 bytes");
    }
}
