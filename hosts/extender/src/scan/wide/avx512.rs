//! Sixty-four bytes in a register, compared straight into masks.
#![allow(unsafe_code, reason = "as in avx2 (docs/adr/0010)")]

use super::avx2::{self, ahead, prefix_xor};
use super::{BracketsEnd, Masks, Odd, brackets_end_by};
use std::arch::x86_64::{
    __m512i, _mm512_cmpeq_epi8_mask, _mm512_loadu_si512, _mm512_movepi8_mask, _mm512_or_si512,
    _mm512_set1_epi8,
};

/// That this machine has AVX-512 with masks of bytes, and all that [`avx2::Proof`] stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Proof(avx2::Proof);

impl Proof {
    pub(super) fn of_this_machine() -> Option<Self> {
        let narrower = avx2::Proof::of_this_machine()?;
        let has =
            std::arch::is_x86_feature_detected!("avx512f") && std::arch::is_x86_feature_detected!("avx512bw");
        has.then_some(Self(narrower))
    }

    pub(super) fn narrower(self) -> avx2::Proof {
        self.0
    }

    pub(super) fn brackets_end(self, bytes: &[u8], at: usize) -> Option<BracketsEnd> {
        // SAFETY: the function needs the instructions that a `Proof` is only made with; it takes references alone.
        unsafe { brackets_end(bytes, at) }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx2,bmi1,bmi2,pclmulqdq,popcnt")]
fn brackets_end(bytes: &[u8], at: usize) -> Option<BracketsEnd> {
    brackets_end_by(bytes, at, |block| masks(block), |block| odd(block), |mask| prefix_xor(mask))
}

#[target_feature(enable = "avx512f,avx512bw,avx2,bmi1,bmi2,pclmulqdq,popcnt")]
#[inline]
fn equal(lanes: __m512i, byte: u8) -> u64 {
    _mm512_cmpeq_epi8_mask(lanes, _mm512_set1_epi8(i8::from_ne_bytes([byte])))
}

#[target_feature(enable = "avx512f,avx512bw,avx2,bmi1,bmi2,pclmulqdq,popcnt")]
#[inline]
fn load(block: &[u8; 64]) -> __m512i {
    // SAFETY: the reference is to the 64 bytes that are read; the load needs no alignment.
    unsafe { _mm512_loadu_si512(block.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f,avx512bw,avx2,bmi1,bmi2,pclmulqdq,popcnt")]
#[inline]
fn masks(block: &[u8; 64]) -> Masks {
    ahead(block);
    let lanes = load(block);
    let folded = _mm512_or_si512(lanes, _mm512_set1_epi8(0x20));
    let closing = equal(folded, b'}');
    Masks {
        quotes: equal(lanes, b'"'),
        brackets: equal(folded, b'{') | closing,
        closing,
        odd: equal(lanes, b'\\') | _mm512_movepi8_mask(lanes) != 0,
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx2,bmi1,bmi2,pclmulqdq,popcnt")]
#[inline]
fn odd(block: &[u8; 64]) -> Odd {
    let lanes = load(block);
    Odd { backslashes: equal(lanes, b'\\'), high: _mm512_movepi8_mask(lanes) != 0 }
}
