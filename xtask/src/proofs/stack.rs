//! Checks the bounded stack and the absence of recursion, on the call graph.
//!
//! The names of `link-proof`'s roots determine their bounds: a `tick_` is a control tick, that is, a law's step and
//! what feeds it; a `step_` is one of the node's slower state machines, which process all packages or GPUs; a
//! `step_engine_` is all of them together with the frequency policies.

use super::program::Program;
use anyhow::{Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The size of the return address that a call pushes.
const RETURN_ADDRESS: u64 = 8;

/// The most bytes of stack for a control tick, for a step over all packages or GPUs, and for a step of the engine
/// (docs/ARCHITECTURE.md, "Numbers").
const TICK: u64 = 256;
const STEP: u64 = 1024;
const ENGINE: u64 = 4096;

/// The bounded roots. All of them must be found, so that renaming or merging one is detected.
const BOUNDED: [(&str, u64); 9] = [
    ("tick_classic", TICK),
    ("tick_tracking", TICK),
    ("tick_energy", TICK),
    ("tick_energy_total", TICK),
    ("step_backend", STEP),
    ("step_gpus", STEP),
    ("step_lease", STEP),
    ("step_engine_machine", ENGINE),
    ("step_engine_pool", ENGINE),
];

/// The root of the violation, which has a tick's bound if it exists.
const PLANTED: (&str, u64) = ("tick_planted_stack", TICK);

/// The stack use of the bounded roots.
pub(super) struct Depths(Vec<(String, u64, u64)>);

impl fmt::Display for Depths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes of stack:")?;
        self.0.iter().try_for_each(|(name, bytes, bound)| write!(f, " {name} {bytes} of {bound},"))
    }
}

/// Follows every call path.
pub(super) fn check(program: &Program) -> Result<Depths> {
    let mut walk = Walk { program, depths: BTreeMap::new(), open: BTreeSet::new() };
    let mut depths = Vec::new();
    for (&address, function) in &program.functions {
        let depth = walk.depth(address)?;
        let name = function.name.rsplit("::").next().unwrap_or_default();
        let Some(&(_, bound)) = BOUNDED.iter().chain([&PLANTED]).find(|(known, _)| *known == name) else {
            continue;
        };
        let unknown = walk.calls_unknown(address, &mut BTreeSet::new());
        ensure!(!unknown, "{name} calls through a pointer: no bound can be told");
        ensure!(
            depth <= bound,
            "{name} uses {depth} bytes of stack, more than {bound}: {}",
            walk.deepest(address).join(", ")
        );
        depths.push((name.to_owned(), depth, bound));
    }
    for (name, _) in BOUNDED {
        ensure!(depths.iter().any(|(found, ..)| found == name), "{name} is not among the roots any more");
    }
    Ok(Depths(depths))
}

struct Walk<'a> {
    program: &'a Program,
    depths: BTreeMap<u64, u64>,
    open: BTreeSet<u64>,
}

impl Walk<'_> {
    fn depth(&mut self, address: u64) -> Result<u64> {
        if let Some(&known) = self.depths.get(&address) {
            return Ok(known);
        }
        let Some(function) = self.program.functions.get(&address) else { return Ok(RETURN_ADDRESS) };
        if !self.open.insert(address) {
            bail!("{} is part of a recursion", self.program.name(address));
        }
        let mut below = 0;
        for &callee in &function.callees {
            below = below.max(self.depth(callee)?);
        }
        self.open.remove(&address);
        let depth = function.frame + RETURN_ADDRESS + below;
        self.depths.insert(address, depth);
        Ok(depth)
    }

    /// The calls that use the most, each with its own bytes.
    fn deepest(&self, root: u64) -> Vec<String> {
        let mut chain = Vec::new();
        let mut next = Some(root);
        while let Some(function) = next.and_then(|address| self.program.functions.get(&address)) {
            let name = function.name.rsplit("::").next().unwrap_or_default();
            chain.push(format!("{name} {}", function.frame));
            next = function.callees.iter().copied().max_by_key(|callee| self.depths.get(callee));
        }
        chain
    }

    fn calls_unknown(&self, address: u64, seen: &mut BTreeSet<u64>) -> bool {
        let Some(function) = self.program.functions.get(&address) else { return false };
        seen.insert(address)
            && (function.indirect_calls > 0
                || function.callees.iter().any(|&callee| self.calls_unknown(callee, seen)))
    }
}
