//! Code that must fail a proof. Each is built only to check that its proof fails.

#[cfg(feature = "plant-vec")]
extern crate alloc;

roots! {
    #[cfg(feature = "plant-vec")]
    fn planted_vec(n: usize) -> alloc::vec::Vec<u8> {
        alloc::vec![1; n]
    }

    #[cfg(feature = "plant-index")]
    fn planted_index(all: &[u64], at: usize) -> u64 {
        all[at]
    }

    #[cfg(feature = "plant-float")]
    fn planted_float(a: f64, b: f64) -> f64 {
        a * b
    }

    #[cfg(feature = "plant-recursion")]
    fn planted_recursion(depth: u64) -> u64 {
        if depth == 0 { 1 } else { core::hint::black_box(planted_recursion(depth.wrapping_sub(1))).wrapping_mul(depth) }
    }

    #[cfg(feature = "plant-stack")]
    fn tick_planted_stack(seed: u8) -> u8 {
        let mut page = [seed; 512];
        core::hint::black_box(&mut page);
        page.iter().fold(0, |sum, byte| sum ^ byte)
    }
}
