//! What was found, a line at a time, and how many lines of each sort there were.

use std::io::Write;
use std::process::ExitCode;

/// The lines of a run.
pub(crate) struct Verdict {
    out: Box<dyn Write>,
    passed: u32,
    failed: u32,
    skipped: u32,
}

impl Verdict {
    /// Told to somebody who reads lines.
    pub(crate) fn new(out: impl Write + 'static) -> Self {
        Self { out: Box::new(out), passed: 0, failed: 0, skipped: 0 }
    }

    /// Something holds.
    pub(crate) fn pass(&mut self, what: &str) {
        self.line(&format!("PASS {what}"));
    }

    /// Something does not hold.
    pub(crate) fn fail(&mut self, what: &str) {
        self.line(&format!("FAIL {what}"));
    }

    /// One of the two.
    pub(crate) fn hold(&mut self, kept: bool, what: &str) {
        if kept { self.pass(what) } else { self.fail(what) }
    }

    /// Something was not looked at.
    pub(crate) fn skip(&mut self, why: &str) {
        self.line(&format!("SKIP({why})"));
    }

    /// What is no verdict.
    pub(crate) fn tell(&mut self, what: &str) {
        self.write(what);
    }

    /// A line that begins as the lines of this do, and is counted by that.
    pub(crate) fn line(&mut self, line: &str) {
        // Whatever a device calls itself, it is one line, and none that begins another verdict.
        let line = line.replace(['\n', '\r'], " ");
        let count = match line.get(..5) {
            Some("PASS ") => Some(&mut self.passed),
            Some("FAIL ") => Some(&mut self.failed),
            Some("SKIP(") => Some(&mut self.skipped),
            Some(_) | None => None,
        };
        if let Some(count) = count {
            *count += 1;
        }
        self.write(&line);
    }

    /// How many failed so far.
    pub(crate) const fn failed(&self) -> u32 {
        self.failed
    }

    /// The closing line, and what the process answers.
    pub(crate) fn end(&mut self) -> ExitCode {
        let Self { passed, failed, skipped, .. } = self;
        let line = format!("hil: {passed} passed, {failed} failed, {skipped} skipped");
        self.write(&line);
        if self.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn write(&mut self, line: &str) {
        // Whoever reads may have gone away (`| head`), which must not stop what puts limits back.
        let _reader_gone = writeln!(self.out, "{line}").and_then(|()| self.out.flush());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_by_how_they_begin_and_stay_one_line() {
        let mut verdict = Verdict::new(std::io::sink());
        verdict.pass("a");
        verdict.fail("named\nPASS by a device");
        verdict.line("SKIP(b)");
        verdict.line("passed by");
        verdict.line("");
        verdict.tell("FAIL is a word here");
        assert_eq!((verdict.passed, verdict.failed, verdict.skipped), (1, 1, 1));
        assert_eq!(verdict.end(), ExitCode::FAILURE);
    }
}
