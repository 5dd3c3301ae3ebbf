//! Property: a list of CPUs gives the same set as a simple parser, its display reads back, and an invalid list is
//! refused; and the lowest CPU of a policy is the lowest of its set.

use power_hal::{BadCpus, Covers, CpuSet};
use std::collections::BTreeSet;

/// The set, by a second implementation of the rule.
fn plainly(text: &str) -> Result<BTreeSet<u16>, BadCpus> {
    let mut set = BTreeSet::new();
    for item in text.split([',', ' ', '\t', '\n']).filter(|item| !item.is_empty()) {
        let ends: Vec<&str> = item.splitn(2, '-').collect();
        let mut numbers = Vec::new();
        for end in &ends {
            if end.is_empty() || end.chars().any(|c| !c.is_ascii_digit()) {
                return Err(BadCpus::NotAList);
            }
            let significant = end.trim_start_matches('0');
            let number = if significant.len() > 5 { u32::MAX } else { significant.parse().unwrap_or(0) };
            match u16::try_from(number) {
                Ok(number) if number < CpuSet::CAPACITY => numbers.push(number),
                Ok(_) | Err(_) => return Err(BadCpus::Beyond),
            }
        }
        let (first, last) = (numbers[0], numbers[numbers.len() - 1]);
        if first > last {
            return Err(BadCpus::NotAList);
        }
        set.extend(first..=last);
    }
    Ok(set)
}

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (set, plain) = match (CpuSet::parse(text), plainly(text)) {
        (Ok(set), Ok(plain)) => (set, plain),
        (parsed, plain) => {
            assert_eq!(parsed.err(), plain.err(), "{text:?}");
            return;
        }
    };
    assert!(set.iter().eq(plain.iter().copied()), "{text:?}: {set}");
    assert_eq!((usize::from(set.count()), set.lowest()), (plain.len(), plain.first().copied()));
    assert_eq!(CpuSet::parse(&set.to_string()), Ok(set), "{set}");
    match Covers::new(0, set) {
        Ok(covers) => assert_eq!(Some(covers.lowest()), set.lowest()),
        Err(bad) => assert!(bad == BadCpus::Empty && plain.is_empty()),
    }
}
