//! The words of the command line.

use anyhow::{Context, Result, bail};
use std::ops::RangeInclusive;
use virtual_cluster::demand::DemandMix;
use virtual_cluster::trials::ArmName;

/// What was asked for.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) mixes: Vec<DemandMix>,
    /// Both ends included.
    pub(super) seeds: RangeInclusive<u64>,
    pub(super) arms: Vec<ArmName>,
    pub(super) machines: usize,
    pub(super) minutes: usize,
    pub(super) json: bool,
    /// Neither a mix nor an arm was named: all experiments run.
    pub(super) is_whole: bool,
}

/// A machine more is a row of every step; a minute more is a column.
const MACHINES_MOST: usize = 5_000;
const MINUTES_MOST: usize = 1_440;
/// The demand of all steps is in memory.
const CELLS_MOST: usize = 200_000_000;
const SEEDS_MOST: u64 = 1_000;

impl Options {
    /// Reads `--NAME VALUE` and `--NAME=VALUE`.
    pub(super) fn read(words: &[&str]) -> Result<Self> {
        let mut options = Self {
            mixes: vec![DemandMix::A, DemandMix::B, DemandMix::C],
            seeds: 1..=3,
            arms: ArmName::ALL.to_vec(),
            machines: 500,
            minutes: 25,
            json: false,
            is_whole: true,
        };
        let mut words = words.iter().copied();
        while let Some(word) = words.next() {
            if word == "--json" {
                options.json = true;
                continue;
            }
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, value),
                None => (word, words.next().with_context(|| format!("{word} needs a value"))?),
            };
            options.set(name, value)?;
        }
        let steps = options.minutes * 60 * virtual_cluster::STEPS_A_SECOND;
        if options.machines * steps > CELLS_MOST {
            bail!("so many machines for so many minutes do not fit into memory; take fewer machines");
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "--mix" => {
                let read = |name: &str| {
                    DemandMix::read(name).with_context(|| {
                        format!(
                            "no mix is called {name:?}; there are A, B, C, diurnal, gangs, flash, greedy, steady, \
                            square-SECONDS and antiphase-SECONDS"
                        )
                    })
                };
                self.mixes = value.split(',').map(read).collect::<Result<_>>()?;
                self.is_whole = false;
            }
            "--arm" => {
                let read = |name: &str| {
                    ArmName::ALL.into_iter().find(|arm| arm.name() == name).with_context(|| {
                        let known: Vec<_> = ArmName::ALL.iter().map(|arm| arm.name()).collect();
                        format!("no arm is called {name:?}; there are {}", known.join(", "))
                    })
                };
                self.arms = value.split(',').map(read).collect::<Result<_>>()?;
                self.is_whole = false;
            }
            "--seeds" => self.seeds = seeds(value)?,
            "--machines" => self.machines = number(name, value, 20..=MACHINES_MOST)?,
            "--minutes" => self.minutes = number(name, value, 3..=MINUTES_MOST)?,
            _ => bail!(
                "{name} is not known; there are --mix, --seeds, --arm, --machines, --minutes and --json"
            ),
        }
        Ok(())
    }
}

fn number(name: &str, value: &str, range: RangeInclusive<usize>) -> Result<usize> {
    let number: Option<usize> = value.parse().ok();
    number.filter(|number| range.contains(number)).with_context(|| {
        format!("{name} is a whole number from {} to {}, not {value:?}", range.start(), range.end())
    })
}

/// `a..b` with both ends, or one seed.
fn seeds(value: &str) -> Result<RangeInclusive<u64>> {
    let (first, last) = value.split_once("..").unwrap_or((value, value));
    let read = |text: &str| text.trim_start_matches('=').parse::<u64>().ok();
    read(first)
        .zip(read(last))
        .filter(|(first, last)| first <= last && last - first < SEEDS_MOST)
        .map(|(first, last)| first..=last)
        .with_context(|| {
            format!("--seeds is one number, or FIRST..LAST with at most {SEEDS_MOST}, not {value:?}")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_in_both_forms_and_wrong_ones_are_refused_with_what_is_accepted() {
        let options = Options::read(&["--mix", "A,antiphase-30", "--seeds=4..6", "--json"]).unwrap();
        assert_eq!(options.mixes, [DemandMix::A, DemandMix::Square { period_s: 30, anti: true }]);
        assert_eq!((options.seeds, options.json, options.is_whole), (4..=6, true, false));
        assert!(Options::read(&[]).unwrap().is_whole);
        let refused = |words: &[&str]| format!("{:#}", Options::read(words).unwrap_err());
        assert!(refused(&["--mix", "D"]).contains("antiphase-SECONDS"));
        assert!(refused(&["--arm=theirs"]).contains("three-band"));
        assert!(refused(&["--seeds", "3..1"]).contains("FIRST..LAST"));
        assert!(refused(&["--machines", "0"]).contains("from 20"));
        assert!(refused(&["--machines=5000", "--minutes=1440"]).contains("memory"));
        assert!(refused(&["--mix"]).contains("needs a value"));
        assert!(refused(&["--nonsense", "1"]).contains("--minutes"));
    }
}
