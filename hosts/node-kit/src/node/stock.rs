//! What hardware there is: the units that the laws decide on, made anew when a backend lists something else.

use super::Node;
use crate::curb::Curb;
use crate::unit::{self, Unit};
use joulie_core::node::backend::{Mode, Package, PackageFacts, Route};
use joulie_core::node::cap::CapRange;
use joulie_core::node::gpu_cap::{Gpu, GpuFacts, GpuLimits};
use joulie_core::node::lever::Lever;
use joulie_core::node::limiter::LimitFacts;

impl Node {
    /// Makes the units and policies of what the backends list now; what was known of the same hardware goes on.
    pub(super) fn take_stock(&mut self) {
        let (packages, gpus) = unit::units(&self.workers, self.config.period);
        (self.package_units, self.packages) = merge(
            packages,
            std::mem::take(&mut self.package_units),
            &std::mem::take(&mut self.packages),
            |unit| {
                let facts = PackageFacts {
                    range: CapRange::UNKNOWN,
                    has_limit: false,
                    limit: LimitFacts::UNKNOWN,
                    most: None,
                };
                if unit.is_touched(&self.journal) {
                    Package::adopted(facts)
                } else {
                    Package::untouched(facts)
                }
            },
            |package| package.limiter().lever() == Lever::Free,
        );
        (self.gpu_units, self.gpus) = merge(
            gpus,
            std::mem::take(&mut self.gpu_units),
            &std::mem::take(&mut self.gpus),
            |unit| {
                let limits = GpuLimits::new(None, None);
                let facts = GpuFacts { limits, limit: LimitFacts::UNKNOWN, most: None };
                if unit.is_touched(&self.journal) { Gpu::adopted(facts) } else { Gpu::untouched(facts) }
            },
            |gpu| gpu.limiter().lever() == Lever::Free,
        );
        let existed = self.curb.exists();
        let mut curb = Curb::of(&self.workers, &self.curb, self.config.frequency_floor);
        curb.goes_on(std::mem::take(&mut self.curb), &self.workers);
        self.curb = curb;
        if !existed && self.curb.is_touched(&self.journal) {
            self.mode = Mode::start(Route::Host, true);
        }
    }
}

/// The new units with what the law remembers of them. A unit that is not listed any more stays as long as the law holds
/// something on it: what was capped must not be forgotten because its driver went away.
fn merge<L: Copy>(
    new: Vec<Unit>,
    old: Vec<Unit>,
    memories: &[L],
    begin: impl Fn(&Unit) -> L,
    is_free: impl Fn(&L) -> bool,
) -> (Vec<Unit>, Vec<L>) {
    let mut known: Vec<(Unit, L)> = old.into_iter().zip(memories.iter().copied()).collect();
    let mut units = Vec::with_capacity(new.len());
    let mut laws = Vec::with_capacity(new.len());
    for mut unit in new {
        match known.iter().position(|(before, _)| before.key == unit.key) {
            Some(at) => {
                let (before, law) = known.swap_remove(at);
                // What is free has no memory worth keeping, and may be ours by what the journal says of it now: until
                // its backend was listed nobody could look that up. Nor does the law of one backend's limit hold for
                // another backend's.
                let same = unit.is_bare() || before.is_bare() || before.backend == unit.backend;
                let anew = is_free(&law) || !same;
                // That a package is there, and no more, is less than what was known of it: it stays one with a limit
                // and a meter, which are away.
                if unit.is_bare() && !before.is_bare() {
                    unit = before.gone();
                } else {
                    unit.goes_on(&before);
                }
                laws.push(if anew { begin(&unit) } else { law });
                units.push(unit);
            }
            None => {
                laws.push(begin(&unit));
                units.push(unit);
            }
        }
    }
    for (unit, law) in known.into_iter().filter(|(_, law)| !is_free(law)) {
        log::warn!("{} is not there any more, and a cap of ours was on it", unit.key.as_str());
        let unit = unit.gone();
        // Of a socket whose limit is away its meter in another backend is left: that is the same package, and counted
        // beside it would double the node's cap.
        let same = |new: &Unit| !new.has_limit && new.package_number() == unit.package_number();
        match units.iter().position(|new| unit.package_number().is_some() && same(new)) {
            Some(at) => {
                units[at] = unit.metered_by(&units[at]);
                laws[at] = law;
            }
            None => {
                units.push(unit);
                laws.push(law);
            }
        }
    }
    (units, laws)
}
