//! Bytes as numbers and choices, for targets whose input is no text. When they have run out everything is zero, so that
//! a short input is a simple one.

use power_units::Watts;

/// What is left of an input.
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

    /// All that is left, and nothing after it.
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

    /// One of several; the first when the bytes have run out.
    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::from(self.byte()) % of.len()]
    }

    /// Mostly watts as a machine has them, and now and then any value of the type.
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
