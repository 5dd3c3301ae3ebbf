//! What somebody who knows the demand would have served.
//!
//! - [`clairvoyant`] divides what is drawn anew at every step and strands nothing at a floor: the most that is possible at all.
//!   Groups within groups are a laminar family, so that serving the most valuable first is exact.
//! - [`held`] sets caps that stand for a time and keep their floors, as those of the arms do: the most that is possible when
//!   a cap is written that seldom. Each cap is exceeded by its machine's demand for the same part of the time, which is
//!   exact: the gain of a watt is the time for which it is used.
//! - [`held_entitled`] is the same for caps that throttle nobody below its entitlement, as those of the law may not.

use crate::STEPS_A_SECOND;
use crate::demand::DemandTrace;
use crate::figures::WARM_UP;
use crate::site::{LimitsNow, VirtualMachine, VirtualSite};

/// What one machine could use, and what it is worth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// The index of its rack.
    pub rack: usize,
    /// The watts above what it draws in any case.
    pub watts: f64,
    /// The value of a watt.
    pub weight: f64,
}

/// Divides a site's room and the rooms of its racks so that the sum of weight times watts is the largest.
#[must_use]
pub fn greedy(claims: &[Claim], mut site: f64, racks: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..claims.len()).collect();
    order.sort_by(|&one, &other| claims[other].weight.total_cmp(&claims[one].weight));
    let mut racks = racks.to_vec();
    let mut given = vec![0.0; claims.len()];
    for at in order {
        let claim = claims[at];
        let watts = claim.watts.min(site).min(racks[claim.rack]).max(0.0);
        given[at] = watts;
        site -= watts;
        racks[claim.rack] -= watts;
    }
    given
}

/// The energy above idle that is served when the power is divided anew at every step, in watts times steps.
#[must_use]
pub fn clairvoyant(site: &VirtualSite, trace: &DemandTrace, limits: &LimitsNow) -> f64 {
    let mut rooms: Vec<f64> = limits.racks.iter().zip(&site.base).map(|(limit, base)| limit - base).collect();
    let mut room = limits.site - site.whole_base();
    for machine in &site.machines {
        room -= machine.kind.idle();
        rooms[machine.rack] -= machine.kind.idle();
    }
    let mut served = 0.0;
    for step in WARM_UP..trace.steps() {
        let claims: Vec<Claim> = site
            .machines
            .iter()
            .zip(trace.at(step))
            .map(|(machine, demand)| Claim {
                rack: machine.rack,
                watts: demand.drawn - machine.kind.idle(),
                weight: 1.0,
            })
            .collect();
        served += greedy(&claims, room, &rooms).iter().sum::<f64>();
    }
    served
}

/// Caps of the machines above their floors for one window, by what they need above them at each step.
fn equal_shares(needs: &mut [Vec<f64>], racks: &[usize], site: f64, rooms: &[f64]) -> Vec<f64> {
    let levels = needs.first().map_or(0, Vec::len);
    for need in needs.iter_mut() {
        need.sort_by(|one, other| other.total_cmp(one));
    }
    // A machine whose cap is exceeded in k of the steps; in all of them, it has nothing.
    let cap = |machine: usize, level: usize| needs[machine].get(level).copied().unwrap_or(0.0);
    let mut columns = vec![vec![0.0; levels + 1]; rooms.len()];
    for (machine, &rack) in racks.iter().enumerate() {
        for (level, sum) in columns[rack].iter_mut().enumerate() {
            *sum += cap(machine, level);
        }
    }
    // A rack has no more than its room at any level.
    let kept = |rack: usize, level: usize| columns[rack][level].min(rooms[rack].max(0.0));
    let sum = |level: usize| (0..rooms.len()).map(|rack| kept(rack, level)).sum::<f64>();
    let level = (0..=levels).find(|&level| sum(level) <= site).unwrap_or(levels);
    let above = level.saturating_sub(1);
    let (less, more) = (sum(level), sum(above));
    let part = if more > less { ((site - less) / (more - less)).clamp(0.0, 1.0) } else { 0.0 };
    // What each rack has, and where its own column has that sum.
    let places: Vec<(usize, f64)> = (0..rooms.len())
        .map(|rack| {
            let watts = kept(rack, level) + part * (kept(rack, above) - kept(rack, level));
            let column = &columns[rack];
            let level = (0..=levels).find(|&level| column[level] <= watts).unwrap_or(levels);
            let (less, more) = (column[level], column[level.saturating_sub(1)]);
            (level, if more > less { ((watts - less) / (more - less)).clamp(0.0, 1.0) } else { 0.0 })
        })
        .collect();
    let of = |(machine, &rack): (usize, &usize)| {
        let (level, part) = places[rack];
        let (less, more) = (cap(machine, level), cap(machine, level.saturating_sub(1)));
        less + part * (more - less)
    };
    racks.iter().enumerate().map(of).collect()
}

/// Caps above the floors: each machine's highest need up to its claim, and equal shares of what is left.
fn served_first(
    needs: &mut [Vec<f64>],
    racks: &[usize],
    (mut site, rooms): (f64, &[f64]),
    claims: &[f64],
) -> Vec<f64> {
    let mut rooms = rooms.to_vec();
    let mut first = Vec::with_capacity(needs.len());
    for ((need, &rack), &claim) in needs.iter_mut().zip(racks).zip(claims) {
        let watts = need.iter().copied().fold(0.0, f64::max).min(claim);
        site -= watts;
        rooms[rack] -= watts;
        need.iter_mut().for_each(|need| *need = (*need - watts).max(0.0));
        first.push(watts);
    }
    let shares = equal_shares(needs, racks, site, &rooms);
    first.iter().zip(shares).map(|(first, share)| first + share).collect()
}

/// The energy above idle that is served when caps stand for so many seconds, in watts times steps.
#[must_use]
pub fn held(site: &VirtualSite, trace: &DemandTrace, limits: &LimitsNow, seconds: usize) -> f64 {
    held_above(site, trace, limits, (seconds, &vec![0.0; site.machines.len()]))
}

/// The same where each machine has all that it needs in a window up to its entitlement, whatever the others do with it.
#[must_use]
pub fn held_entitled(site: &VirtualSite, trace: &DemandTrace, limits: &LimitsNow, seconds: usize) -> f64 {
    let above = |(machine, entitled): (&VirtualMachine, &f64)| (entitled - machine.kind.floor()).max(0.0);
    let claims: Vec<f64> = site.machines.iter().zip(&limits.entitled).map(above).collect();
    held_above(site, trace, limits, (seconds, &claims))
}

/// `claims` are the watts above the floors up to which each machine is served first.
fn held_above(
    site: &VirtualSite,
    trace: &DemandTrace,
    limits: &LimitsNow,
    (seconds, claims): (usize, &[f64]),
) -> f64 {
    let window = (seconds * STEPS_A_SECOND).max(1);
    let mut rooms: Vec<f64> = limits.racks.iter().zip(&site.base).map(|(limit, base)| limit - base).collect();
    let mut room = limits.site - site.whole_base();
    for machine in &site.machines {
        room -= machine.kind.floor();
        rooms[machine.rack] -= machine.kind.floor();
    }
    let racks: Vec<usize> = site.machines.iter().map(|machine| machine.rack).collect();
    let mut served = 0.0;
    for from in (WARM_UP..trace.steps()).step_by(window) {
        let steps = from..(from + window).min(trace.steps());
        let mut needs: Vec<Vec<f64>> = vec![Vec::with_capacity(window); site.machines.len()];
        for step in steps.clone() {
            for ((need, machine), demand) in needs.iter_mut().zip(&site.machines).zip(trace.at(step)) {
                need.push(demand.needed - machine.kind.floor());
            }
        }
        let caps = served_first(&mut needs, &racks, (room, &rooms), claims);
        for step in steps {
            for ((cap, machine), demand) in caps.iter().zip(&site.machines).zip(trace.at(step)) {
                let kind = machine.kind;
                let missing = (demand.needed - kind.floor() - cap).max(0.0);
                served += demand.drawn - missing - kind.idle();
            }
        }
    }
    served
}

#[cfg(test)]
mod tests {
    use super::*;
    use plant::Random;

    /// The best of all divisions in steps of ten watts.
    fn brute_force(claims: &[Claim], site: f64, racks: &[f64]) -> f64 {
        let Some((claim, others)) = claims.split_first() else { return 0.0 };
        let mut best = 0.0_f64;
        let mut watts = 0.0;
        while watts <= claim.watts && watts <= site && watts <= racks[claim.rack] {
            let mut left = racks.to_vec();
            left[claim.rack] -= watts;
            let value = watts * claim.weight + brute_force(others, site - watts, &left);
            best = best.max(value);
            watts += 10.0;
        }
        best
    }

    #[test]
    fn the_greedy_division_is_the_best_one() {
        let mut random = Random::stream(5, 0);
        for _ in 0..40 {
            // All in tens of watts, so that the division in tens is exact.
            let mut tens = |most: u64| (random.bits() % most) as f64 * 10.0;
            let claims: Vec<Claim> = (0..7)
                .map(|at| Claim { rack: at % 2, watts: tens(4), weight: 1.0 + tens(3) / 10.0 })
                .collect();
            let (site, racks) = (tens(12), [tens(8), tens(8)]);
            let given = greedy(&claims, site, &racks);
            let value: f64 = given.iter().zip(&claims).map(|(watts, claim)| watts * claim.weight).sum();
            assert_eq!(value, brute_force(&claims, site, &racks), "{claims:?} {site} {racks:?}");
        }
    }

    /// Two machines for four steps: one needs 100, 100, 0 and 0 W, the other 80 all the time. With 120 W, the one that needs
    /// it always gets its 80: a watt of it is used four times. The first gets 40, which are used twice.
    #[test]
    fn a_held_cap_goes_where_it_is_used_for_longer() {
        let mut needs = [vec![100.0, 0.0, 100.0, 0.0], vec![80.0; 4]];
        assert_eq!(equal_shares(&mut needs, &[0, 0], 120.0, &[1_000.0]), [40.0, 80.0]);
        // Enough for both.
        assert_eq!(equal_shares(&mut needs, &[0, 0], 500.0, &[1_000.0]), [100.0, 80.0]);
        // In racks of their own, the second has no more than 50 W.
        assert_eq!(equal_shares(&mut needs, &[0, 1], 500.0, &[1_000.0, 50.0]), [100.0, 50.0]);
    }

    /// With a claim to 60 W the first gets them, and the second, which needs its 80 W all the time, the other 60 W.
    #[test]
    fn who_is_entitled_is_served_first_although_another_would_use_it_for_longer() {
        let needs = || [vec![100.0, 0.0, 100.0, 0.0], vec![80.0; 4]];
        let caps = |claims: [f64; 2]| served_first(&mut needs(), &[0, 0], (120.0, &[1_000.0]), &claims);
        assert_eq!(caps([0.0, 0.0]), [40.0, 80.0]);
        assert_eq!(caps([60.0, 60.0]), [60.0, 60.0]);
        // Nobody is given more than it needs.
        assert_eq!(caps([500.0, 0.0]), [100.0, 20.0]);
    }
}
