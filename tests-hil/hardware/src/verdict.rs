//! Prints the results line by line, and counts the lines of each kind.

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
    /// A verdict that writes to this output.
    pub(crate) fn new(out: impl Write + 'static) -> Self {
        Self { out: Box::new(out), passed: 0, failed: 0, skipped: 0 }
    }

    /// Reports that a requirement holds.
    pub(crate) fn pass(&mut self, what: &str) {
        self.line(&format!("PASS {what}"));
    }

    /// Reports that a requirement does not hold.
    pub(crate) fn fail(&mut self, what: &str) {
        self.line(&format!("FAIL {what}"));
    }

    /// Reports one of the two.
    pub(crate) fn hold(&mut self, kept: bool, what: &str) {
        if kept { self.pass(what) } else { self.fail(what) }
    }

    /// Reports that something was not checked.
    pub(crate) fn skip(&mut self, why: &str) {
        self.line(&format!("SKIP({why})"));
    }

    /// Prints a line that is not a result.
    pub(crate) fn tell(&mut self, what: &str) {
        self.write(what);
    }

    /// Prints a line of any kind and counts it by its beginning.
    pub(crate) fn line(&mut self, line: &str) {
        // A device's name must not start another line, which could look like a result.
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

    /// The number of failures so far.
    pub(crate) const fn failed(&self) -> u32 {
        self.failed
    }

    /// Prints the last line, and returns the exit code.
    pub(crate) fn end(&mut self) -> ExitCode {
        let Self { passed, failed, skipped, .. } = self;
        let line = format!("hil: {passed} passed, {failed} failed, {skipped} skipped");
        self.write(&line);
        if self.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn write(&mut self, line: &str) {
        // The reader may have closed the output (`| head`), which must not stop putting back the limits.
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
