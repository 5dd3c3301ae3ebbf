//! Chooses the candidates. The choice depends on the candidates' names, points and zones and on the pod, not on the order
//! of the request.
//!
//! Candidates of the same zone with the same points form a cell. How many each cell gives is computed from the cells'
//! counts alone; only in cells that give a part of their candidates lots are drawn, by the pod's UID.

use super::{ShortlistPods, ShortlistRule};
use crate::decide::candidates;
use crate::index;
use crate::scan::{Message, text};
use joulie_core::placement::assumed::PodUid;

/// A total is at most 1,000 by us and 200 by processors and memory.
const TOTAL_MAX: usize = 1_200;
/// Totals that differ by less share a level.
const WIDTH: usize = 4;
const LEVELS: usize = TOTAL_MAX / WIDTH + 1;
/// More zones than this share cells.
const ZONES: usize = 16;
const CELLS: usize = LEVELS * ZONES;
/// By how many levels less than the best a candidate may still be chosen by kube-scheduler for a soft spread: the
/// spread is worth at most 200 of kube-scheduler's points.
const SPREAD_LEVELS: usize = 200 / WIDTH;

/// A candidate that passed the filter.
#[derive(Clone, Copy, Debug)]
struct Entry {
    draw: u64,
    /// Its position in the request.
    at: u32,
    cell: u16,
}

/// The candidates among which is chosen.
pub(super) struct Choice {
    entries: Vec<Entry>,
    /// How many there may be.
    most: usize,
    counts: [u32; CELLS],
}

/// The positions of the chosen candidates.
pub(crate) struct Chosen {
    /// In the order of the request.
    entries: Vec<Entry>,
    /// How many were returned.
    used: usize,
}

impl Choice {
    /// Among at most so many. Memory is taken for the first of them: often none passes.
    pub(super) fn among(most: usize) -> Self {
        Self { entries: Vec::new(), most, counts: [0; CELLS] }
    }

    /// Adds the candidate at this position with what it has of kube-scheduler's total. Zone 0 is that of nodes without one.
    pub(super) fn add(&mut self, at: usize, total: u16, zone: u16) {
        let zone = usize::from(zone) % ZONES;
        let cell = zone * LEVELS + (usize::from(total) / WIDTH).min(LEVELS - 1);
        if let (Ok(at), Ok(short), Some(count)) =
            (u32::try_from(at), u16::try_from(cell), self.counts.get_mut(cell))
        {
            *count += 1;
            if self.entries.is_empty() {
                self.entries.reserve_exact(self.most);
            }
            self.entries.push(Entry { draw: 0, at, cell: short });
        }
    }

    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    /// Chooses as many as the rule says.
    pub(super) fn choose(self, rule: ShortlistRule, pod: PodUid, message: &Message<'_>) -> Chosen {
        let Self { mut entries, counts, .. } = self;
        let drawn = match rule.pods {
            ShortlistPods::All => rule.size / 4,
            ShortlistPods::Nobody | ShortlistPods::Safe => 0,
        };
        let start = usize::try_from(pod.0 % (ZONES as u128)).unwrap_or(0);
        let quotas = quotas(&counts, rule.size - drawn, start);
        let all = candidates(&message.candidates);
        let draw = |entry: &mut Entry| {
            let candidate = usize::try_from(entry.at).ok().and_then(|at| all.at(at));
            entry.draw = candidate.map_or(0, |candidate| {
                index::draw(text(message.body, candidate.name, candidate.escaped).as_bytes(), pod)
            });
        };
        let quota = |entry: &Entry| quotas.get(usize::from(entry.cell)).copied().unwrap_or(0);
        let count = |entry: &Entry| counts.get(usize::from(entry.cell)).copied().unwrap_or(0);
        // Chosen ones come first.
        let mut chosen = gather(&mut entries, |entry| quota(entry) == count(entry));
        let partial = quotas.iter().zip(&counts).enumerate();
        for (cell, (quota, _)) in partial.filter(|(_, (quota, count))| **quota > 0 && quota < count) {
            let rest = entries.get_mut(chosen..).unwrap_or_default();
            let alike = gather(rest, |entry| usize::from(entry.cell) == cell);
            chosen += first_by_lot(rest.get_mut(..alike).unwrap_or_default(), *quota, draw);
        }
        if drawn > 0 {
            let best = entries.iter().map(|entry| usize::from(entry.cell) % LEVELS).max().unwrap_or(0);
            let rest = entries.get_mut(chosen..).unwrap_or_default();
            let near = gather(rest, |entry| usize::from(entry.cell) % LEVELS + SPREAD_LEVELS >= best);
            // Other lots than those by which some of them were left out before.
            let again = |entry: &mut Entry| {
                draw(entry);
                entry.draw = entry.draw.reverse_bits();
            };
            chosen += first_by_lot(rest.get_mut(..near).unwrap_or_default(), drawn, again);
            // If so few are near, any others, so that there are as many as the rule says.
            let missing = rule.size.saturating_sub(u32::try_from(chosen).unwrap_or(u32::MAX));
            chosen += first_by_lot(entries.get_mut(chosen..).unwrap_or_default(), missing, draw);
        }
        entries.truncate(chosen);
        entries.sort_unstable_by_key(|entry| entry.at);
        Chosen { entries, used: 0 }
    }
}

/// Moves the entries for which `is` returns true to the front, and returns how many these are.
fn gather(entries: &mut [Entry], is: impl Fn(&Entry) -> bool) -> usize {
    let mut count = 0;
    for at in 0..entries.len() {
        if entries.get(at).is_some_and(&is) {
            entries.swap(at, count);
            count += 1;
        }
    }
    count
}

/// Moves the `most` entries with the highest lots to the front, and returns how many these are.
fn first_by_lot(entries: &mut [Entry], most: u32, draw: impl FnMut(&mut Entry)) -> usize {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    if most == 0 || entries.len() <= most {
        return if most == 0 { 0 } else { entries.len() };
    }
    entries.iter_mut().for_each(draw);
    entries.select_nth_unstable_by_key(most - 1, |entry| std::cmp::Reverse(entry.draw));
    most
}

/// How many each cell gives: first the best of each zone, up to half of all; then the best of all, evenly over zones
/// where points are equal.
fn quotas(counts: &[u32; CELLS], size: u32, start: usize) -> [u32; CELLS] {
    let mut quotas = [0; CELLS];
    let used = counts.chunks(LEVELS).filter(|zone| zone.iter().any(|count| *count > 0)).count();
    let zones = u32::try_from(used).unwrap_or(1).max(1);
    let least = if size < zones { 0 } else { (size / zones / 2).max(1) };
    let mut left = size;
    for (counts, quotas) in counts.chunks(LEVELS).zip(quotas.chunks_mut(LEVELS)) {
        let mut own = least;
        for (count, quota) in counts.iter().zip(quotas).rev() {
            *quota = own.min(*count);
            own -= *quota;
            left -= *quota;
        }
    }
    for points in (0..LEVELS).rev() {
        loop {
            let cells = (0..ZONES).map(|step| (start + step) % ZONES * LEVELS + points);
            let room = |quotas: &[u32; CELLS], cell: usize| {
                let all = counts.get(cell).copied().unwrap_or(0);
                all.saturating_sub(quotas.get(cell).copied().unwrap_or(0))
            };
            let open = cells.clone().filter(|&cell| room(&quotas, cell) > 0).count();
            let Some(share) = u32::try_from(open).ok().and_then(|open| left.checked_div(open)) else { break };
            if left == 0 {
                break;
            }
            for cell in cells {
                let more = room(&quotas, cell).min(share.max(1)).min(left);
                if let Some(quota) = quotas.get_mut(cell) {
                    *quota += more;
                    left -= more;
                }
            }
        }
    }
    quotas
}

impl Chosen {
    /// The chosen ones of the next `count` candidates, as bits. The groups are asked for in the order of the request;
    /// `first` is the position of the first of them.
    pub(crate) fn bits(&mut self, first: usize, count: usize) -> u64 {
        let mut bits = 0;
        while let Some(entry) = self.entries.get(self.used) {
            let place = usize::try_from(entry.at).unwrap_or(usize::MAX).saturating_sub(first);
            if place >= count {
                break;
            }
            bits |= 1 << place;
            self.used += 1;
        }
        bits
    }
}

#[cfg(test)]
mod tests;
