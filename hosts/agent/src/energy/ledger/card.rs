//! Whom the energy of a GPU is charged to.
//!
//! | who holds it | what processes say | who pays |
//! |---|---|---|
//! | one pod | | that pod, all of it |
//! | several pods | nobody computes | `idle` |
//! | | some of them compute | by use above the idle floor; what others use is `system` or `unknown` |
//! | | only others compute, or nothing is known | the holders in equal parts |
//! | MIG instances | | their holders by the sizes of the instances |
//! | nobody | somebody computes | by use above the idle floor |
//! | | | `idle` |
//! | it is not known | somebody computes | by use above the idle floor |
//! | | nobody computes | `idle` |
//! | | nothing is known | `unknown` |
//!
//! That only others compute is what a driver says whose processes belong to a server (MPS), and what it would say if its
//! numbers were those of another process namespace: then the holders are believed.

use super::super::source::EnergySource;
use super::{CardSpan, Holders};
use crate::energy::pods::Pod;

/// What processes used of a card, in a unit that is the same for all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CardUsed {
    /// Of each pod, if it is known whose it is.
    pub(crate) pods: Vec<(Option<Pod>, u64)>,
    /// Of whatever is no pod.
    pub(crate) system: u64,
}

impl CardUsed {
    /// Whether nobody used it.
    pub(crate) fn is_nothing(&self) -> bool {
        self.system == 0 && self.pods.iter().all(|(_, used)| *used == 0)
    }

    fn users(&self) -> Vec<(CardUser<'_>, u64)> {
        let pods = self.pods.iter().map(|(pod, used)| (CardUser::Pod(pod.as_ref()), *used));
        pods.chain([(CardUser::System, self.system)]).collect()
    }

    /// The users where only these pods may use the card; `None` if none of them did.
    fn of_holders<'a>(&'a self, holders: &'a [Option<Pod>]) -> Option<Vec<(CardUser<'a>, u64)>> {
        let mut users = self.users();
        let is_holder = |pod: &Pod| holders.iter().flatten().any(|holder| holder == pod);
        for (user, _) in &mut users {
            if let CardUser::Pod(Some(pod)) = user
                && !is_holder(pod)
            {
                *user = CardUser::Pod(None);
            }
        }
        users.iter().any(|(user, used)| matches!(user, CardUser::Pod(Some(_))) && *used > 0).then_some(users)
    }
}

/// Who pays for a part of a card's energy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CardUser<'a> {
    /// A pod; `None` is one that is not known.
    Pod(Option<&'a Pod>),
    /// Whatever is no pod.
    System,
    /// Nobody.
    Idle,
}

/// How a card's energy is divided.
#[derive(Clone, Debug)]
pub(super) struct CardDivision<'a> {
    pub(super) source: EnergySource,
    /// Whether the idle floor is told apart first.
    pub(super) above_floor: bool,
    pub(super) users: Vec<(CardUser<'a>, u64)>,
}

impl<'a> CardDivision<'a> {
    fn whole(source: EnergySource, user: CardUser<'a>) -> Self {
        Self { source, above_floor: false, users: vec![(user, 1)] }
    }

    const fn shared(source: EnergySource, users: Vec<(CardUser<'a>, u64)>) -> Self {
        Self { source, above_floor: true, users }
    }
}

/// How the energy of a card is divided.
pub(super) fn division(card: &CardSpan) -> CardDivision<'_> {
    let used = card.used.as_ref();
    let idle = CardDivision::whole(EnergySource::Processes, CardUser::Idle);
    match (&card.holders, used) {
        (Holders::Instances(pods), _) => {
            let users = pods.iter().map(|(pod, size)| (CardUser::Pod(pod.as_ref()), *size));
            CardDivision::shared(EnergySource::Instances, users.collect())
        }
        (Holders::Pods(pods), used) => match (pods.as_slice(), used) {
            ([], _) => CardDivision::whole(EnergySource::Holders, CardUser::Idle),
            ([one], _) => CardDivision::whole(EnergySource::Holders, CardUser::Pod(one.as_ref())),
            (_, Some(used)) if used.is_nothing() => idle,
            (several, used) => match used.and_then(|used| used.of_holders(several)) {
                Some(users) => CardDivision::shared(EnergySource::Processes, users),
                None => {
                    let users = several.iter().map(|pod| (CardUser::Pod(pod.as_ref()), 1));
                    CardDivision::shared(EnergySource::Holders, users.collect())
                }
            },
        },
        (Holders::Nobody | Holders::Unknown, Some(used)) if !used.is_nothing() => {
            CardDivision::shared(EnergySource::Processes, used.users())
        }
        (Holders::Nobody, _) => CardDivision::whole(EnergySource::Holders, CardUser::Idle),
        (Holders::Unknown, Some(_)) => idle,
        (Holders::Unknown, None) => CardDivision::whole(EnergySource::Nothing, CardUser::Pod(None)),
    }
}
