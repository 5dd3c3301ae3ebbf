//! Property: of any samples of a GPU's processes each counts at most once, none of before the first question, and nobody uses
//! more than the samples say.

use crate::feed::Feed;
use hal_nvidia::{UseCursor, UseSample};

pub(crate) fn run(bytes: &[u8]) {
    let mut feed = Feed::new(bytes);
    let mut cursor = UseCursor::default();
    let mut first = true;
    while !feed.is_empty() {
        let samples: Vec<UseSample> = (0..feed.byte() % 8)
            .map(|_| UseSample {
                at: if feed.is_set() { feed.long() } else { feed.half().into() },
                pid: feed.byte().into(),
                percents: [feed.byte(), feed.byte(), feed.byte()].map(u32::from),
            })
            .collect();
        let after = cursor.after();
        let told = cursor.take(&samples);
        assert!(!first || told.is_none(), "before the first question nobody knows it");
        first = false;
        let is_possible = |sample: &&UseSample| {
            let is_dated = sample.at > 0 && sample.at <= 100_000_000_000_000_000;
            is_dated && sample.pid != 0 && sample.percents.iter().all(|percent| *percent <= 100)
        };
        let possible = samples.iter().filter(is_possible);
        if possible.clone().map(|sample| sample.at).max().is_some_and(|newest| newest < after) {
            assert!(told.is_none(), "the clock was set back");
        }
        let possible: u64 = possible
            .filter(|sample| sample.at > after)
            .map(|sample| u64::from(sample.percents.into_iter().max().unwrap_or(0)))
            .sum();
        let told = told.unwrap_or_default();
        assert!(told.iter().map(|process| process.percent).sum::<u64>() <= possible);
        assert!(told.iter().all(|process| process.pid != 0 && process.percent > 0));
        let mut pids: Vec<u32> = told.iter().map(|process| process.pid).collect();
        pids.dedup();
        assert_eq!(pids.len(), told.len(), "each process is told once");
        let mut again = cursor;
        assert!(
            again.take(&samples).is_none_or(|told| told.is_empty()),
            "the same answer again tells nothing"
        );
    }
}
