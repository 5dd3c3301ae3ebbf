//! The indexes of names in a list, by a hash that is the same in every run. Names in one cluster differ only near
//! their ends, so comparing them would dominate a search.

/// The index of each name of a list. The list itself is kept by the caller.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Hash and index, each in the first free slot from the hash's position on. At least half of the slots are free,
    /// so that every walk ends.
    slots: Vec<Option<(u64, usize)>>,
}

impl Places {
    /// The indexes of these names, counted from 0. Of equal names the first is found.
    #[must_use]
    pub fn new<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> Self {
        let mut places = Self { slots: vec![None; names.len().saturating_mul(2).next_power_of_two()] };
        for (at, name) in names.enumerate() {
            places.put(hash(name), at);
        }
        places
    }

    /// Adds the name at the end of the list; `name_at` returns the list's names. The name must be new.
    pub fn push<'a>(&mut self, at: usize, name_at: impl Fn(usize) -> Option<&'a str>) {
        let name = |at| name_at(at).unwrap_or_default();
        if self.slots.len() / 2 <= at {
            *self = Self::new((0..at + 1).map(name));
        } else {
            self.put(hash(name(at)), at);
        }
    }

    fn put(&mut self, hash: u64, at: usize) {
        let free = self.walk(hash).find(|&slot| self.slots.get(slot) == Some(&None));
        if let Some(slot) = free.and_then(|slot| self.slots.get_mut(slot)) {
            *slot = Some((hash, at));
        }
    }

    /// The index of a name in the list; `name_at` returns the list's names.
    pub fn find<'a>(&self, name: &str, name_at: impl Fn(usize) -> Option<&'a str>) -> Option<usize> {
        let hash = hash(name);
        for slot in self.walk(hash) {
            let (of, at) = self.slots.get(slot).copied().flatten()?;
            if of == hash && name_at(at) == Some(name) {
                return Some(at);
            }
        }
        None
    }

    /// Visits every slot once, from the hash's position on. The hash's high bits depend on every byte of the name.
    fn walk(&self, hash: u64) -> impl Iterator<Item = usize> + use<> {
        let mask = self.slots.len().wrapping_sub(1);
        let first = usize::try_from(hash >> 32).unwrap_or_default() & mask;
        (0..self.slots.len()).map(move |step| first.wrapping_add(step) & mask)
    }
}

/// Eight bytes at a time, each folded in by a multiplication with the golden ratio.
fn hash(name: &str) -> u64 {
    let (words, rest) = name.as_bytes().as_chunks();
    let last = rest.iter().fold(0, |word: u64, &byte| word << 8 | u64::from(byte));
    let words = words.iter().map(|&word| u64::from_le_bytes(word)).chain([last]);
    words.fold(0, |hash: u64, word| (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_at_its_place_and_no_other() {
        let names: Vec<String> = (0..3000).map(|at| format!("ip-10-0-0-{at}.internal")).collect();
        let name_at = |at: usize| names.get(at).map(String::as_str);
        let places = Places::new(names.iter().map(String::as_str));
        for (at, name) in names.iter().enumerate() {
            assert_eq!(places.find(name, name_at), Some(at));
        }
        for absent in ["", "ip-10-0-0-3000.internal", "ip-10-0-0-1.interna", "ip-10-0-0-1.internal "] {
            assert_eq!(places.find(absent, name_at), None);
        }
    }

    #[test]
    fn names_that_come_one_by_one_are_found_as_those_that_come_together() {
        let names: Vec<String> = (0..100).map(|at| format!("n{}", at * 7)).collect();
        let name_at = |at: usize| names.get(at).map(String::as_str);
        let mut places = Places::default();
        for at in 0..names.len() {
            assert_eq!(places.find(&names[at], name_at), None);
            places.push(at, name_at);
            assert!((0..=at).all(|at| places.find(&names[at], name_at) == Some(at)), "{at}");
        }
    }

    #[test]
    fn a_list_of_nothing_has_no_places() {
        assert_eq!(Places::default().find("a", |_| Some("a")), None);
        assert_eq!(Places::new([].into_iter()).find("a", |_| Some("a")), None);
    }
}
