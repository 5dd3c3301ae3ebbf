//! Runs the suite and compares the results with the list of differences.

use crate::{CASES, Case, DIFFERENCES, Difference, ServerKind, TestServer};
use std::time::Duration;
use tokio::time::Instant;

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct ConformanceReport {
    /// The errors: failed cases, and listed differences that no longer exist.
    pub wrong: Vec<String>,
    /// The differences that were observed.
    pub differs: Vec<Difference>,
    /// How long each case took.
    pub took: Vec<(&'static str, Duration)>,
}

impl ConformanceReport {
    /// Panics with all errors.
    ///
    /// # Panics
    /// If there is any error.
    #[track_caller]
    pub fn check(&self) {
        let (wrong, all) = (&self.wrong, CASES.len());
        assert!(wrong.is_empty(), "{} wrong of {all} cases:\n{}", wrong.len(), wrong.join("\n"));
    }
}

/// Runs all cases one after the other. `server` returns the server for each case.
pub async fn run(kind: ServerKind, server: impl AsyncFn() -> TestServer) -> ConformanceReport {
    let mut outcome = ConformanceReport::default();
    for &(name, case) in CASES {
        let begin = Instant::now();
        let failure = fails(case, server().await).await;
        outcome.took.push((name, begin.elapsed()));
        let allowed = DIFFERENCES.iter().find(|line| line.case == name && line.server == kind);
        judge(name, allowed, failure, &mut outcome);
    }
    outcome
}

/// The message of a case that panics.
async fn fails(case: Case, server: TestServer) -> Option<String> {
    let panic = tokio::spawn(case(server)).await.err()?;
    Some(panic.to_string())
}

fn judge(name: &str, allowed: Option<&Difference>, failure: Option<String>, outcome: &mut ConformanceReport) {
    match (allowed, failure) {
        (None, None) => {}
        (None, Some(said)) => outcome.wrong.push(format!("{name}: {said}")),
        (Some(line), Some(said)) if said.contains(line.says) => outcome.differs.push(*line),
        (Some(line), Some(said)) => {
            outcome.wrong.push(format!("{name}: is to differ by {:?} and says: {said}", line.says));
        }
        (Some(line), None) => {
            let why = line.why;
            outcome.wrong.push(format!("{name}: passes, so it differs no more: take out the line ({why})"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(allowed: Option<&Difference>, failure: Option<&str>) -> (usize, usize) {
        let mut outcome = ConformanceReport::default();
        judge("a::case", allowed, failure.map(str::to_owned), &mut outcome);
        (outcome.wrong.len(), outcome.differs.len())
    }

    #[test]
    fn only_a_listed_failure_in_its_own_words_is_let_through() {
        let line =
            Difference { case: "a::case", server: ServerKind::Embedded, says: "no rules", why: "none" };
        assert_eq!(judged(None, None), (0, 0));
        assert_eq!(judged(None, Some("no rules")), (1, 0));
        assert_eq!(judged(Some(&line), Some("it has no rules")), (0, 1));
        assert_eq!(judged(Some(&line), Some("out of memory")), (1, 0));
        assert_eq!(judged(Some(&line), None), (1, 0), "a difference that is none any more");
    }

    #[test]
    fn every_line_names_a_case() {
        for line in DIFFERENCES {
            assert!(CASES.iter().any(|(name, _)| *name == line.case), "{}", line.case);
        }
    }
}
