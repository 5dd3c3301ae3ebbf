//! Checks that there is no floating-point instruction. Moving bytes through a vector register is permitted.

use super::program::Program;
use anyhow::{Result, bail};

const ARITHMETIC: [&str; 22] = [
    "add", "sub", "mul", "div", "sqrt", "min", "max", "cmp", "ucomi", "comi", "cvt", "round", "hadd", "hsub",
    "addsub", "dp", "rcp", "rsqrt", "fmadd", "fmsub", "fnmadd", "fnmsub",
];

/// Fails with the first function that has a floating-point instruction.
pub(super) fn refuse(program: &Program) -> Result<()> {
    for function in program.functions.values() {
        if let Some(found) = function.instructions.iter().find(|i| is_float(&i.mnemonic)) {
            bail!("{} calculates with floats: {}", function.name, found.mnemonic);
        }
    }
    Ok(())
}

fn is_float(mnemonic: &str) -> bool {
    // Every x87 instruction begins with an f, and no other instruction does.
    if mnemonic.starts_with('f') {
        return true;
    }
    let scalar_or_packed = mnemonic.strip_prefix('v').unwrap_or(mnemonic);
    if scalar_or_packed.starts_with("cvt") {
        return true;
    }
    let Some(stem) = ["ss", "sd", "ps", "pd"].iter().find_map(|end| scalar_or_packed.strip_suffix(end))
    else {
        return false;
    };
    ARITHMETIC.iter().any(|operation| stem.starts_with(operation))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calculating_is_told_from_moving() {
        for float in
            ["mulsd", "vaddps", "cvtsi2sd", "ucomisd", "vfmadd213sd", "fld", "fmulp", "sqrtss", "cmpltsd"]
        {
            assert!(is_float(float), "{float}");
        }
        for integer in
            ["add", "sub", "movups", "movaps", "xorps", "andps", "movsd", "paddq", "vpaddq", "cmp", "shld"]
        {
            assert!(!is_float(integer), "{integer}");
        }
    }
}
