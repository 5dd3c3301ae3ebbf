//! How a node over HTTP keeps to its grant: all its packages have one limit and all its GPUs another.

use super::{Laws, Levers};
use joulie_core::node::cap::{Backend, CapRange, CapResult, Desired, Report};
use joulie_core::node::grant::{Holder, divide, pace};
use joulie_core::node::law::PowerReading;
use node_kit::Desire;
use power_units::{Amount, Role, Watts};

impl Levers {
    /// Divides the grant: what each package and each GPU may have, and what of it now.
    pub(in crate::pool) fn share(&mut self, laws: &Laws, desire: Desire) {
        (self.shares, self.most) = ((None, None), (None, None));
        let Some(grant) = desire.grant else { return };
        let mut holders = [self.packages(laws, desire.cpu), self.boards(laws, desire.gpu)];
        divide(grant.watts, &mut holders);
        pace(grant.watts, &mut holders);
        let [packages, boards] = holders;
        let of = |holder: Holder, amount: Watts| holder.capped.then_some(amount);
        self.shares = (of(packages, packages.share), of(boards, boards.share));
        self.most = (of(packages, packages.may), of(boards, boards.may));
    }

    fn packages(&self, laws: &Laws, desired: Desired) -> Holder {
        let range = self.shape.range.unwrap_or(CapRange::UNKNOWN);
        let count = u32::try_from(self.packages.len()).unwrap_or(u32::MAX);
        if !self.reach.cpu {
            return Holder { count, ..Holder::uncapped(range.max()) };
        }
        let in_force = self.looped().or(self.back[0]);
        let holder = Holder::capped(range, laws.cpu.floor, desired, in_force);
        Holder { count, ordered: self.ordered[0].filter(|_| self.looped().is_none()), ..holder }
    }

    fn boards(&self, laws: &Laws, desired: Desired) -> Holder {
        let range = self.shape.gpu_range.unwrap_or(CapRange::UNKNOWN);
        let count = self.shape.gpus;
        if !self.reach.gpu {
            return Holder { count, ..Holder::uncapped(range.max()) };
        }
        let holder = Holder::capped(range, laws.gpu.floor, desired, self.back[1]);
        Holder { count, ordered: self.ordered[1], ..holder }
    }

    /// The part of a package in the cap that a closed loop holds, while no more than that is drawn.
    fn looped(&self) -> Option<Watts> {
        let status = self.cpu?.status;
        let (Backend::Dvfs, Report::Cap(CapResult::Applied { effective })) = (status.backend, status.report)
        else {
            return None;
        };
        let holds = match self.power {
            PowerReading::Fresh { watts, .. } => watts <= effective,
            PowerReading::Missing | PowerReading::Stale | PowerReading::Impossible => false,
        };
        let count = u64::try_from(self.packages.len()).unwrap_or(1);
        effective.part(1, count, Role::Demand).filter(|_| holds)
    }
}
