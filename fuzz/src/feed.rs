//! Converts bytes to numbers and choices, for targets whose input is not text. After the last byte everything is
//! zero, so that a short input is a simple one.

use power_units::Watts;

/// The remaining part of an input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Feed<'a>(&'a [u8]);

impl<'a> Feed<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut taken = [0; N];
        let (now, later) = self.0.split_at(N.min(self.0.len()));
        for (slot, byte) in taken.iter_mut().zip(now) {
            *slot = *byte;
        }
        self.0 = later;
        taken
    }

    /// All remaining bytes; none remain after it.
    pub(crate) const fn rest(&mut self) -> &'a [u8] {
        let rest = self.0;
        self.0 = &[];
        rest
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let [byte] = self.take();
        byte
    }

    pub(crate) fn is_set(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    pub(crate) fn half(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }

    pub(crate) fn word(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    pub(crate) fn long(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    /// One of several values; the first one after the last byte.
    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::from(self.byte()) % of.len()]
    }

    /// Usually the watts of a real machine, and occasionally any value of the type.
    pub(crate) fn watts(&mut self) -> Watts {
        match self.byte() {
            0 => Watts::ZERO,
            1 => Watts::MAX,
            2 => Watts::MIN,
            3 => Watts::from_bits(1),
            4..32 => Watts::from_bits(self.long().cast_signed()),
            _ => Watts::from_int(i32::from(self.half()) >> 4),
        }
    }
}
