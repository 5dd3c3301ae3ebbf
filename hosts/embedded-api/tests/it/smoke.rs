//! Every case, in process.

use crate::cases::CASES;

#[tokio::test(flavor = "multi_thread")]
async fn every_case_holds_in_process() {
    let mut failed = Vec::new();
    for (name, case) in CASES {
        // A server of its own for each, so that one that fails does not fail the next.
        let client = crate::server().client_as("conformance");
        if let Err(panic) = tokio::spawn(case(client)).await {
            failed.push(format!("{name}: {panic}"));
        }
    }
    assert!(failed.is_empty(), "{} of {} cases failed:\n{}", failed.len(), CASES.len(), failed.join("\n"));
}
