//! What Kepler on this node says that pods have used of the packages, where the settings name it.
//!
//! ```text
//!  Blind ──a page──▶ Based ──a page with more──▶ Live ──nothing more for 15 s──▶ Based
//!                      ▲                          │ │
//!                      └──counters begin anew─────┘ └─▶ Live, for each page with more
//! ```
//!
//! Only what the node's own meter says is ever charged. While Kepler is `Live` what the packages draw waits for its next
//! page and is divided by that; in any other state, and what has waited in vain, it is divided by processor time. Kepler
//! samples at moments of its own, so what one page tells and what has waited are of spans that differ by some seconds;
//! over a minute they must agree, and if they do not, that is told and changes nothing.

mod ask;
mod page;

pub(super) use ask::{KeplerLooks, KeplerSource};
pub(crate) use page::KeplerPage;

use super::ledger::PackageSpan;
use super::pods::{Pod, Pods};
use host_kit::clock::Mono;
use page::{KeplerDelta, KeplerGrowth, KeplerPod};
use std::time::Duration;

/// How often Kepler is asked: it takes its own samples every three or five seconds.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// So long what the packages draw waits for a page with more.
const FRESH: Duration = Duration::from_secs(15);
const _: () = assert!(FRESH.as_secs() >= 3 * ASK_EVERY.as_secs());
/// Over so many microseconds Kepler's counter and the meter are compared.
const COMPARED_OVER: u64 = 60_000_000;
/// Further apart than this, in thousandths, they disagree, until they are nearer than the second.
const DISAGREE: u64 = 100;
const AGREE: u64 = 75;

/// By what packages are divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeplerUsed {
    /// What each pod has used, if it is known whose it is.
    pub(crate) pods: Vec<(Option<Pod>, u64)>,
    /// What the idle node has, if Kepler tells it apart.
    pub(crate) idle: Option<u64>,
    /// What is of no pod that Kepler knows.
    pub(crate) rest: u64,
}

#[derive(Clone, Debug, Default)]
enum Standing {
    /// There is no page to compare with.
    #[default]
    Blind,
    /// There is one; whether Kepler counts on is not known.
    Based(KeplerPage),
    /// It counts: since the last page with more.
    Live(KeplerPage, Mono),
}

/// What is remembered of Kepler, and what waits for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeplerKeeping {
    standing: Standing,
    /// The page that came last, until it is used.
    page: Option<KeplerPage>,
    waiting: Vec<PackageSpan>,
    compared: Compared,
}

/// Kepler's counter and the meter since they were last compared.
#[derive(Clone, Copy, Debug, Default)]
struct Compared {
    kepler: u64,
    meter: u64,
    span: u64,
    /// In thousandths.
    ratio: Option<u64>,
    disagrees: bool,
}

impl KeplerKeeping {
    /// Takes a page in.
    pub(super) fn page(&mut self, page: KeplerPage) {
        self.page = Some(page);
    }

    /// Whether packages are divided by what it says.
    pub(super) const fn is_live(&self) -> bool {
        matches!(self.standing, Standing::Live(..))
    }

    /// What Kepler says the packages have drawn over what their meter says, in thousandths, of the last whole minute.
    pub(super) const fn ratio(&self) -> Option<u64> {
        self.compared.ratio
    }

    /// Takes in what the packages drew, and gives what is charged now.
    pub(super) fn take(
        &mut self,
        now: Mono,
        span: PackageSpan,
        pods: &Pods,
    ) -> (Vec<PackageSpan>, Option<KeplerUsed>) {
        self.waiting.push(span);
        let was_live = self.is_live();
        let told = match (std::mem::take(&mut self.standing), self.page.take()) {
            (standing @ (Standing::Blind | Standing::Based(_)), None) => {
                self.standing = standing;
                None
            }
            (Standing::Blind, Some(page)) => {
                self.standing = Standing::Based(page);
                None
            }
            (Standing::Based(last), Some(page)) => {
                let is_more = matches!(page.since(&last), KeplerGrowth::Grown(_));
                self.standing = if is_more { Standing::Live(page, now) } else { Standing::Based(page) };
                None
            }
            (Standing::Live(last, since), page) => match page.map(|page| (page.since(&last), page)) {
                Some((KeplerGrowth::Grown(told), page)) => {
                    self.standing = Standing::Live(page, now);
                    Some(told)
                }
                Some((KeplerGrowth::Anew, page)) => {
                    self.standing = Standing::Based(page);
                    None
                }
                Some((KeplerGrowth::Still, _)) | None if now.since(since) >= FRESH => {
                    self.standing = Standing::Based(last);
                    None
                }
                Some((KeplerGrowth::Still, _)) | None => {
                    self.standing = Standing::Live(last, since);
                    return (Vec::new(), None);
                }
            },
        };
        self.tell(was_live);
        let spans = std::mem::take(&mut self.waiting);
        if let Some(told) = &told {
            self.compared.take(told, &spans);
        }
        (spans, told.map(|told| used(told, pods)))
    }

    /// Says where Kepler begins and ceases to count.
    fn tell(&self, was_live: bool) {
        match (was_live, self.is_live()) {
            (false, true) => tracing::info!("the energy of packages is divided by what Kepler says"),
            (true, false) => tracing::warn!(
                "Kepler's counters stand still, begin anew or do not fit together: the energy of packages is divided by \
                 processor time until they count on"
            ),
            (true, true) | (false, false) => {}
        }
    }
}

impl Compared {
    fn take(&mut self, told: &KeplerDelta, spans: &[PackageSpan]) {
        self.kepler = self.kepler.saturating_add(told.node);
        for PackageSpan { span, drawn, .. } in spans {
            self.meter = self.meter.saturating_add(drawn.metered).saturating_add(drawn.gap);
            self.span = self.span.saturating_add(span.get());
        }
        if self.span < COMPARED_OVER {
            return;
        }
        let ratio = u128::from(self.kepler) * 1_000 / u128::from(self.meter.max(1));
        let ratio = u64::try_from(ratio).unwrap_or(u64::MAX);
        let apart = ratio.abs_diff(1_000);
        let disagrees = if self.disagrees { apart > AGREE } else { apart > DISAGREE };
        match (self.disagrees, disagrees) {
            (false, true) => tracing::warn!(
                "Kepler says {}.{:03} times what the meter of the packages says: the meter counts, and what pods pay is in \
                 Kepler's proportions",
                ratio / 1_000,
                ratio % 1_000
            ),
            (true, false) => tracing::info!("Kepler and the meter of the packages agree again"),
            (true, true) | (false, false) => {}
        }
        *self = Self { ratio: Some(ratio), disagrees, ..Self::default() };
    }
}

/// Whose it is what Kepler tells.
fn used(told: KeplerDelta, pods: &Pods) -> KeplerUsed {
    let KeplerDelta { node: _, idle, rest, pods: of_pods } = told;
    let of = |KeplerPod { uid, namespace, name }: KeplerPod| {
        pods.of_uid(&uid).or_else(|| pods.of_name(&namespace, &name))
    };
    KeplerUsed { pods: of_pods.into_iter().map(|(pod, used)| (of(pod), used)).collect(), idle, rest }
}

/// For the fuzz target: what a page of node `node` says that all packages drew and all pods used, in microjoules.
#[doc(hidden)]
#[must_use]
pub fn kepler_sums(page: &[u8]) -> Option<(u64, u64)> {
    let page = KeplerPage::read(page, "node").ok()?;
    assert_eq!(page.since(&page), KeplerGrowth::Still, "nothing happens between a page and itself");
    Some(page.sums())
}

#[cfg(test)]
mod tests;
