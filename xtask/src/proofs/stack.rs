//! Bounded stack and no recursion, over the graph of who calls whom.

use super::program::Program;
use anyhow::{Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A call leaves its return address on the stack.
const RETURN_ADDRESS: u64 = 8;

/// The control tick that goes deepest.
pub(super) struct Deepest {
    ticks: Vec<(String, u64)>,
    bound: u64,
}

impl fmt::Display for Deepest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stack of a control tick, of {} bytes:", self.bound)?;
        self.ticks.iter().try_for_each(|(name, bytes)| write!(f, " {name} {bytes}"))
    }
}

/// Walks every call path. The roots whose name begins with `tick_` are the control ticks.
pub(super) fn check(program: &Program, bound: u64) -> Result<Deepest> {
    let mut walk = Walk { program, depths: BTreeMap::new(), open: BTreeSet::new() };
    let mut ticks = Vec::new();
    for (&address, function) in &program.functions {
        let depth = walk.depth(address)?;
        let name = function.name.rsplit("::").next().unwrap_or_default();
        if !name.starts_with("tick_") {
            continue;
        }
        ensure!(
            !walk.calls_unknown(address, &mut BTreeSet::new()),
            "{name} calls through a pointer: no bound can be told"
        );
        ensure!(depth <= bound, "{name} uses {depth} bytes of stack, more than {bound}");
        ticks.push((name.to_owned(), depth));
    }
    Ok(Deepest { ticks, bound })
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

    fn calls_unknown(&self, address: u64, seen: &mut BTreeSet<u64>) -> bool {
        let Some(function) = self.program.functions.get(&address) else { return false };
        seen.insert(address)
            && (function.indirect_calls > 0
                || function.callees.iter().any(|&callee| self.calls_unknown(callee, seen)))
    }
}
