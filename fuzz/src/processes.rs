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
        assert!(!first || told.is_empty());
        first = false;
        let possible: u64 = samples
            .iter()
            .filter(|sample| sample.at > after && sample.percents.iter().all(|percent| *percent <= 100))
            .map(|sample| u64::from(sample.percents.into_iter().max().unwrap_or(0)))
            .sum();
        assert!(told.iter().map(|process| process.percent).sum::<u64>() <= possible);
        assert!(told.iter().all(|process| process.pid != 0 && process.percent > 0));
        let mut pids: Vec<u32> = told.iter().map(|process| process.pid).collect();
        pids.dedup();
        assert_eq!(pids.len(), told.len(), "each process is told once");
        let mut again = cursor;
        assert!(again.take(&samples).is_empty(), "the same answer again tells nothing");
    }
}
