//! What was in force before the first write. The port saves it through this hook before a HAL writes anything, and
//! restores it on release. A host implements the hook with a journal that outlives the process.
//!
//! The journal, not the HAL, knows which controls were changed. A HAL that opens on a machine with limits already in
//! force, and with a journal that holds their originals, continues from there and releases to the originals, never to
//! the limits that it found.

use crate::{Control, ErrorKind, Key};
use core::fmt;
use heapless::Vec;

const WORDS: usize = 16;

/// All that a HAL must write to restore a control: a few words whose meaning only the HAL knows. For a package that is
/// more than the limit: the short-term limit, the time windows, the enable flags, and the same again for a second set
/// of registers.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Original {
    layout: u8,
    len: u8,
    words: [u64; WORDS],
}

impl Original {
    /// The maximum number of words.
    pub const CAPACITY: usize = WORDS;

    /// Words in a layout that the HAL numbers, so that a later version of the HAL can read what an earlier one saved.
    /// `None` if there are too many words.
    #[must_use]
    pub fn new(layout: u8, words: &[u64]) -> Option<Self> {
        let len = u8::try_from(words.len()).ok().filter(|_| words.len() <= WORDS)?;
        let mut original = Self { layout, len, words: [0; WORDS] };
        for (slot, word) in original.words.iter_mut().zip(words) {
            *slot = *word;
        }
        Some(original)
    }

    /// The layout of the words.
    #[must_use]
    pub const fn layout(&self) -> u8 {
        self.layout
    }

    /// The words.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        self.words.get(..usize::from(self.len)).unwrap_or(&self.words)
    }
}

impl fmt::Debug for Original {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "layout {}: {:?}", self.layout, self.words())
    }
}

/// Where originals are saved.
///
/// # Contract
/// - When `keep` has returned `Ok`, the original survives any later event, including a power cut.
/// - `keep` never overwrites: an original that is held already stays, and the result is `Ok`.
/// - When `keep` or `forget` returns `Err`, the earlier content is still held.
pub trait Originals {
    /// Saves what was in force, before anything is written.
    ///
    /// # Errors
    /// When it cannot be saved; then nothing is written to the hardware.
    fn keep(&mut self, domain: &Key, control: Control, original: &Original) -> Result<(), ErrorKind>;

    /// What was in force before the first write, if anything was written.
    fn kept(&self, domain: &Key, control: Control) -> Option<Original>;

    /// Removes an original that is in force again. Removing one that is not held succeeds.
    ///
    /// # Errors
    /// When the journal cannot be written; it then still holds the original.
    fn forget(&mut self, domain: &Key, control: Control) -> Result<(), ErrorKind>;
}

impl<T: Originals + ?Sized> Originals for &mut T {
    fn keep(&mut self, domain: &Key, control: Control, original: &Original) -> Result<(), ErrorKind> {
        (**self).keep(domain, control, original)
    }

    fn kept(&self, domain: &Key, control: Control) -> Option<Original> {
        (**self).kept(domain, control)
    }

    fn forget(&mut self, domain: &Key, control: Control) -> Result<(), ErrorKind> {
        (**self).forget(domain, control)
    }
}

/// Up to `N` originals in memory: for tests, and for a caller that releases before it ends. They do not survive the
/// process.
#[derive(Clone, Debug, Default)]
pub struct OriginalsInMemory<const N: usize> {
    held: Vec<(Key, Control, Original), N>,
}

impl<const N: usize> OriginalsInMemory<N> {
    /// An empty memory.
    #[must_use]
    pub const fn new() -> Self {
        Self { held: Vec::new() }
    }

    /// How many are held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether none is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

fn is_of(held: &(Key, Control, Original), domain: &Key, control: Control) -> bool {
    held.0 == *domain && held.1 == control
}

impl<const N: usize> Originals for OriginalsInMemory<N> {
    fn keep(&mut self, domain: &Key, control: Control, original: &Original) -> Result<(), ErrorKind> {
        if self.kept(domain, control).is_some() {
            return Ok(());
        }
        self.held.push((*domain, control, *original)).map_err(|_| ErrorKind::Io)
    }

    fn kept(&self, domain: &Key, control: Control) -> Option<Original> {
        self.held.iter().find(|held| is_of(held, domain, control)).map(|held| held.2)
    }

    fn forget(&mut self, domain: &Key, control: Control) -> Result<(), ErrorKind> {
        // The last one takes its index: this order of steps cannot panic.
        if let Some(last) = self.held.pop().filter(|last| !is_of(last, domain, control)) {
            match self.held.iter_mut().find(|held| is_of(held, domain, control)) {
                Some(gone) => *gone = last,
                None => return self.held.push(last).map_err(|_| ErrorKind::Io),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_original_stays_until_it_is_let_go() {
        let mut memory = OriginalsInMemory::<2>::new();
        let (a, b) = (Key::package(0, None), Key::package(1, None));
        let original = |word| Original::new(1, &[word]).unwrap();
        assert_eq!(memory.keep(&a, Control::Power, &original(250)), Ok(()));
        assert_eq!(memory.keep(&a, Control::Power, &original(120)), Ok(()));
        assert_eq!(memory.kept(&a, Control::Power), Some(original(250)));
        assert_eq!(memory.kept(&a, Control::Frequency), None);
        assert_eq!(memory.kept(&b, Control::Power), None);
        assert_eq!(memory.forget(&b, Control::Power), Ok(()));
        assert_eq!(memory.forget(&a, Control::Power), Ok(()));
        assert!(memory.is_empty());
        assert_eq!(memory.keep(&a, Control::Power, &original(120)), Ok(()));
        assert_eq!(memory.kept(&a, Control::Power), Some(original(120)));
    }

    #[test]
    fn a_full_memory_refuses_instead_of_dropping_one() {
        let mut memory = OriginalsInMemory::<1>::new();
        let original = Original::new(0, &[]).unwrap();
        assert_eq!(memory.keep(&Key::socket(0), Control::Power, &original), Ok(()));
        assert_eq!(memory.keep(&Key::socket(1), Control::Power, &original), Err(ErrorKind::Io));
        assert_eq!(memory.keep(&Key::socket(0), Control::Power, &original), Ok(()));
        assert_eq!(memory.len(), 1);
    }

    #[test]
    fn an_original_holds_sixteen_words_and_no_more() {
        let words: [u64; 17] = core::array::from_fn(|at| u64::MAX - at as u64);
        for len in 0..=16 {
            let original = Original::new(7, &words[..len]).unwrap();
            assert_eq!((original.layout(), original.words()), (7, &words[..len]));
        }
        assert_eq!(Original::new(7, &words), None);
    }
}
