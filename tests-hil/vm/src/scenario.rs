//! A scenario: a shell script for the guest, whose first line describes the machine.
//!
//! ```text
//! # vm: amd smp=4,sockets=2,cores=2 keep disk api boots=2 short limit=120
//! ```

use anyhow::{Context, Result, bail};
use std::path::Path;

/// A scenario and its machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    /// Whether the processor is AMD's.
    pub(crate) amd: bool,
    pub(crate) smp: String,
    /// Whether registers survive kexec.
    pub(crate) keep: bool,
    /// Whether there is a disk that survives the boots.
    pub(crate) disk: bool,
    /// Whether there is an API server outside, and a network card.
    pub(crate) api: bool,
    pub(crate) boots: u32,
    /// Whether it is part of the short run.
    pub(crate) short: bool,
    /// After this many seconds the scenario is ended and has failed.
    pub(crate) limit_s: u32,
}

impl Scenario {
    /// All scenarios of a folder, the longest first, so that two parallel queues end together.
    pub(crate) fn all(folder: &Path) -> Result<Vec<Self>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))? {
            let path = entry?.path();
            let name =
                path.file_stem().and_then(|name| name.to_str()).context("a scenario has a plain name")?;
            let text = std::fs::read_to_string(&path)?;
            found.push(Self::parse(name, &text).with_context(|| format!("{}", path.display()))?);
        }
        found.sort_by(|a, b| b.limit_s.cmp(&a.limit_s).then_with(|| a.name.cmp(&b.name)));
        Ok(found)
    }

    pub(crate) fn parse(name: &str, text: &str) -> Result<Self> {
        let line = text.lines().next().and_then(|line| line.strip_prefix("# vm:"));
        let line = line.context("the first line does not begin with `# vm:`")?;
        let mut scenario = Self {
            name: name.to_owned(),
            amd: false,
            smp: "4,sockets=2,cores=2".to_owned(),
            keep: false,
            disk: false,
            api: false,
            boots: 1,
            short: false,
            limit_s: 120,
        };
        for word in line.split_whitespace() {
            match word.split_once('=') {
                None if word == "amd" => scenario.amd = true,
                None if word == "keep" => scenario.keep = true,
                None if word == "disk" => scenario.disk = true,
                None if word == "api" => scenario.api = true,
                None if word == "short" => scenario.short = true,
                Some(("smp", topology)) => scenario.smp = topology.to_owned(),
                Some(("boots", count)) => scenario.boots = count.parse()?,
                Some(("limit", seconds)) => scenario.limit_s = seconds.parse()?,
                _ => bail!("{word} is not understood"),
            }
        }
        Ok(scenario)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_says_which_machine() {
        let told = Scenario::parse("x", "# vm: amd smp=2 keep disk api boots=3 short limit=9\n").unwrap();
        assert_eq!((told.amd, told.keep, told.disk, told.api, told.short), (true, true, true, true, true));
        assert_eq!((told.smp.as_str(), told.boots, told.limit_s), ("2", 3, 9));
        for bad in ["", "# a comment\n", "# vm: speed\n", "# vm: boots=x\n"] {
            assert!(Scenario::parse("x", bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_scenarios_of_this_crate_are_sound_and_six_are_short() {
        let all =
            Scenario::all(Path::new(env!("CARGO_MANIFEST_DIR")).join("guest/scenarios").as_path()).unwrap();
        assert_eq!(all.iter().filter(|scenario| scenario.short).count(), 6);
    }
}
