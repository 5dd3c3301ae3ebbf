//! A linked program as functions: their instructions, their callees, and their frame sizes.

use crate::succeed;
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// A program's functions by address.
pub(super) struct Program {
    pub(super) functions: BTreeMap<u64, Function>,
}

/// One function.
pub(super) struct Function {
    pub(super) name: String,
    pub(super) instructions: Vec<Instruction>,
    /// The frame in bytes, as the compiler reported it, otherwise as computed from the instructions (precompiled
    /// code).
    pub(super) frame: u64,
    /// The targets of calls, and of jumps to other functions.
    pub(super) callees: BTreeSet<u64>,
    /// Calls whose target is unknown.
    pub(super) indirect_calls: usize,
}

/// One instruction, as the disassembler prints it.
pub(super) struct Instruction {
    pub(super) mnemonic: String,
    operands: String,
}

impl Program {
    /// Reads a static executable with the installed binutils.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let listing = succeed(Command::new("objdump").args(["-d", "-C", "--no-show-raw-insn"]).arg(path))?;
        let mut functions = disassemble(std::str::from_utf8(&listing.stdout)?, &offset_table(path)?);
        ensure!(!functions.is_empty(), "no functions found in {}", path.display());
        for (address, size) in stack_sizes(path)? {
            if let Some(function) = functions.get_mut(&address) {
                function.frame = size;
            }
        }
        Ok(Self { functions })
    }

    /// The name of the function at an address.
    pub(super) fn name(&self, address: u64) -> &str {
        self.functions.get(&address).map_or("(outside)", |function| &function.name)
    }
}

fn disassemble(listing: &str, table: &BTreeMap<u64, u64>) -> BTreeMap<u64, Function> {
    let mut functions = BTreeMap::new();
    let mut current: Option<(u64, Function)> = None;
    for line in listing.lines() {
        if let Some((address, name)) = header(line) {
            functions.extend(current.take());
            let (instructions, callees) = (Vec::new(), BTreeSet::new());
            let function = Function { name, instructions, frame: 0, callees, indirect_calls: 0 };
            current = Some((address, function));
        } else if let (Some((_, function)), Some(instruction)) = (&mut current, instruction(line)) {
            function.instructions.push(instruction);
        }
    }
    functions.extend(current);
    let starts: BTreeSet<u64> = functions.keys().copied().collect();
    for (&start, function) in &mut functions {
        function.frame = frame_of(&function.instructions);
        let end = starts.range(start + 1..).next().copied().unwrap_or(u64::MAX);
        for instruction in &function.instructions {
            let call = instruction.mnemonic.starts_with("call");
            let Some(target) = instruction.target(table) else {
                function.indirect_calls += usize::from(call);
                continue;
            };
            if call || (instruction.mnemonic.starts_with('j') && !(start..end).contains(&target)) {
                function.callees.insert(target);
            }
        }
    }
    functions
}

/// Parses `0000000000201980 <name>:`.
fn header(line: &str) -> Option<(u64, String)> {
    let (address, rest) = line.split_once(" <")?;
    Some((u64::from_str_radix(address, 16).ok()?, rest.strip_suffix(">:")?.to_owned()))
}

/// Parses `  202d03:\tcall   202fd0 <name>`.
fn instruction(line: &str) -> Option<Instruction> {
    let (_, text) = line.split_once(":\t")?;
    let mut words =
        text.split_whitespace().skip_while(|word| ["lock", "rep", "repz", "notrack", "bnd"].contains(word));
    let mnemonic = words.next()?.to_owned();
    Some(Instruction { mnemonic, operands: words.collect::<Vec<_>>().join(" ") })
}

impl Instruction {
    /// The target of a call or jump: in the instruction, or in the address table that the linker has filled in.
    fn target(&self, table: &BTreeMap<u64, u64>) -> Option<u64> {
        if self.operands.starts_with('*') {
            let (_, slot) = self.operands.split_once("(%rip) # ")?;
            let slot = u64::from_str_radix(slot.split_whitespace().next()?, 16).ok()?;
            return table.get(&slot).copied();
        }
        u64::from_str_radix(self.operands.split_whitespace().next()?, 16).ok()
    }

    fn pushed(&self) -> u64 {
        match self.mnemonic.as_str() {
            "push" => 8,
            "sub" => self
                .operands
                .strip_suffix(",%rsp")
                .and_then(|by| by.strip_prefix("$0x"))
                .map_or(0, |by| u64::from_str_radix(by, 16).unwrap_or(u64::MAX)),
            _ => 0,
        }
    }
}

fn frame_of(instructions: &[Instruction]) -> u64 {
    instructions.iter().map(Instruction::pushed).fold(0, u64::saturating_add)
}

/// Parses the global offset table: ` 203c08 f0182000 00000000 f0182000 00000000  text`, two addresses per line.
fn offset_table(path: &Path) -> Result<BTreeMap<u64, u64>> {
    let sections = succeed(Command::new("objdump").arg("-h").arg(path))?;
    if !std::str::from_utf8(&sections.stdout)?.contains(" .got ") {
        return Ok(BTreeMap::new());
    }
    let dump = succeed(Command::new("objdump").args(["-s", "-j", ".got"]).arg(path))?;
    let mut table = BTreeMap::new();
    for line in std::str::from_utf8(&dump.stdout)?.lines().filter(|line| line.starts_with(' ')) {
        let (data, _) = line.trim_start().split_once("  ").context("a line of .got")?;
        let (start, digits) = data.split_once(' ').context("a line of .got")?;
        let start = u64::from_str_radix(start, 16).context("an address in .got")?;
        let digits = digits.replace(' ', "");
        for (slot, entry) in (start..).step_by(8).zip(digits.as_bytes().chunks_exact(16)) {
            let little_endian = u64::from_str_radix(std::str::from_utf8(entry)?, 16)?;
            table.insert(slot, little_endian.swap_bytes());
        }
    }
    Ok(table)
}

/// The compiler's list of stack sizes: repeatedly an address of eight bytes and a size in LEB128.
fn stack_sizes(path: &Path) -> Result<Vec<(u64, u64)>> {
    let dump = path.with_extension("stack_sizes");
    let section = format!(".stack_sizes={}", dump.display());
    succeed(Command::new("objcopy").args(["--dump-section", &section]).arg(path).arg("/dev/null"))?;
    let bytes = std::fs::read(&dump)?;
    let mut rest = bytes.as_slice();
    let mut sizes = Vec::new();
    while let Some((address, tail)) = rest.split_first_chunk::<8>() {
        let mut size = 0_u64;
        let mut shift = 0;
        rest = tail;
        loop {
            let (&byte, tail) =
                rest.split_first().context("the section .stack_sizes ends within a number")?;
            rest = tail;
            size |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
        sizes.push((u64::from_le_bytes(*address), size));
    }
    ensure!(!sizes.is_empty(), "the compiler wrote no frame sizes into {}", path.display());
    Ok(sizes)
}
