//! The command line.

use anyhow::{Context, Result, bail};
use std::path::PathBuf;

pub(crate) const USAGE: &str = "\
usage: vm --programs DIR [SCENARIO ...] [--kernel 6.1|6.12] [--short] [--require vm] [--update-golden] [--list]
  without a scenario all of them, without a kernel both; --short: six scenarios on the first kernel
  --programs DIR    where joulie, hil and joulie-agent were built
  --update-golden   write what the scenario `golden` found into the rig's tables";

/// The kernel series with recorded tables of the rig.
const KERNELS: [&str; 2] = ["6.1", "6.12"];

#[derive(Debug)]
pub(crate) struct Args {
    pub(crate) programs: PathBuf,
    pub(crate) scenarios: Vec<String>,
    pub(crate) kernels: Vec<String>,
    pub(crate) short: bool,
    pub(crate) required: bool,
    pub(crate) update_golden: bool,
    pub(crate) list: bool,
}

impl Args {
    pub(crate) fn of_this_process() -> Result<Self> {
        Self::parse(std::env::args().skip(1))
    }

    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let mut args = Self {
            programs: PathBuf::new(),
            scenarios: Vec::new(),
            kernels: Vec::new(),
            short: false,
            required: false,
            update_golden: false,
            list: false,
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match word.as_str() {
                "--programs" => args.programs = value()?.into(),
                "--kernel" => args.kernels.push(series(value()?)?),
                "--require" if value()? == "vm" => args.required = true,
                "--short" => args.short = true,
                "--update-golden" => args.update_golden = true,
                "--list" => args.list = true,
                _ if word.starts_with('-') => bail!("{word} is not understood"),
                _ => args.scenarios.push(word),
            }
        }
        if args.programs.as_os_str().is_empty() && !args.list {
            bail!("--programs is missing");
        }
        if args.kernels.is_empty() {
            let count = if args.short { 1 } else { KERNELS.len() };
            args.kernels = KERNELS.iter().take(count).map(|&kernel| kernel.to_owned()).collect();
        }
        Ok(args)
    }
}

/// Checks a series such as `6.12`, because it becomes a part of package names.
fn series(text: String) -> Result<String> {
    let numbers =
        text.split('.').filter(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    if numbers.count() == 2 && text.split('.').count() == 2 {
        return Ok(text);
    }
    bail!("--kernel takes a series such as 6.12, not {text:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Args> {
        Args::parse(words.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn a_command_line_is_understood_or_refused() {
        let args = parse("--programs target/debug zero --kernel 6.12 --require vm").unwrap();
        assert_eq!((args.scenarios, args.kernels), (vec!["zero".to_owned()], vec!["6.12".to_owned()]));
        assert!(args.required && !args.short);
        assert_eq!(parse("--programs x").unwrap().kernels, KERNELS);
        assert_eq!(parse("--programs x --short").unwrap().kernels, ["6.1"]);
        for bad in [
            "",
            "--programs",
            "--programs x --kernel 6",
            "--programs x --kernel 6.1;rm",
            "--programs x --wat",
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
