//! joulie-core, budget and GPU fit: the operator runs the former for every plan, the extender the latter for
//! every GPU pod.

use joulie_core::budget::armed::{ArmedTimes, armed_watts, share_at};
use joulie_core::budget::demand::{
    Bid, Bidders, DemandError, DemandHistory, DemandReport, GroupOrders, GroupPrice, OrderBounds, OrderCount,
    OrderTurn, TokenBucket, is_news, orders, price,
};
use joulie_core::budget::sustained::{SustainedFacts, SustainedLimit, SustainedMemory, SustainedState};
use joulie_core::budget::{
    Admission, Allocation, BudgetError, BudgetNode, BudgetTree, Grant, GrantAccount, GrantReceipt, Group,
    GroupDemand, GroupError, GroupShare, GroupState, GroupVerdict, LawError, Move, MoveTuning, Overrun,
    Range, RangeError, Summary, TreeError, Turn, Wish, admit, allocate, demands, next_moves,
};
use joulie_core::placement::freshness::UnixTime;
use joulie_core::placement::gpu::{
    AskError, Fit, GpuPhase, GpuRequest, GroupedCards, Model, PhysicalGpu, Reject, Vram, alike, choose, fit,
    island_sets,
};
use power_units::{Micros, Ratio, Stamp, Watts};

roots! {
    fn budget_tree(groups: &[Group]) -> Result<BudgetTree<'_>, TreeError> {
        BudgetTree::new(groups)
    }

    fn budget_facts(
        parent: Option<usize>, limit: Watts, base: Option<Watts>, band: Watts,
    ) -> (Result<Group, GroupError>, Result<Range, RangeError>, Result<MoveTuning, LawError>) {
        (Group::new(parent, limit, base), Range::new(limit, base), MoveTuning::new(band))
    }

    fn budget_account(grant: Option<Grant>, receipt: Option<GrantReceipt>, sent: &[Grant], range: Range) -> (GrantAccount, bool, bool, bool, Watts) {
        let account = GrantAccount::observed(grant, receipt).after_sending(sent);
        (account, account.is_proven(), account.is_awaited(), account.is_only_raised(), account.ceiling_of(account.asked().unwrap_or(Watts::ZERO), range))
    }

    fn budget_allocate(
        tree: BudgetTree<'_>, nodes: &[BudgetNode], shares: &mut [GroupShare], targets: &mut [Watts],
    ) -> Result<Allocation, BudgetError> {
        allocate(tree, nodes, shares, targets)
    }

    fn budget_verdict(share: &GroupShare, standing: &GroupState, node: &BudgetNode) -> (GroupVerdict, Option<Overrun>, Option<Watts>) {
        (share.verdict(), standing.overrun(), node.count())
    }

    fn budget_moves(
        law: MoveTuning, tree: BudgetTree<'_>, nodes: (&[BudgetNode], &[Watts]), memory: (&mut [GroupState], &mut [Turn]), moves: &mut [Move],
    ) -> Result<Summary, BudgetError> {
        next_moves(law, tree, nodes, memory, moves)
    }

    fn budget_demands(tree: BudgetTree<'_>, nodes: &[BudgetNode], sums: &mut [GroupDemand]) -> Result<(), BudgetError> {
        demands(tree, nodes, sums)
    }

    fn budget_admit(tree: BudgetTree<'_>, sums: &mut [GroupDemand], node: &BudgetNode, wish: Wish) -> Admission {
        admit(tree, sums, node, wish)
    }

    fn demand_report(history: &mut DemandHistory, now: Stamp, drawn: Watts, throttled: Option<Watts>) -> Option<DemandReport> {
        history.record(now, drawn, throttled);
        history.report(now, drawn)
    }

    fn demand_read(quantiles: &[Watts], bites: bool, told: &DemandReport, ago: Micros) -> Result<bool, DemandError> {
        let report = DemandReport::new(quantiles, bites)?;
        Ok(is_news(Some(&report), Some(told), ago, Some(told.lowest())))
    }

    fn demand_price(
        tree: BudgetTree<'_>, bids: &[Bid], reserve: Ratio, prices: &mut [GroupPrice], targets: &mut [Watts],
    ) -> Result<(), BudgetError> {
        price(tree, bids, reserve, prices, targets)
    }

    fn demand_orders(
        bounds: OrderBounds, tree: (BudgetTree<'_>, &[GroupPrice]), bidders: Bidders<'_>, memory: (&mut [GroupOrders], &mut [OrderTurn]), targets: &mut [Watts],
    ) -> Result<OrderCount, BudgetError> {
        orders(bounds, tree, bidders, memory, targets)
    }

    fn demand_tokens(bucket: &mut TokenBucket, now: Stamp, orders: usize) -> usize {
        bucket.take(orders);
        bucket.refill(now)
    }

    fn armed_share(times: &ArmedTimes, clocks: [UnixTime; 2], share: Ratio, floor: Watts, most: Watts) -> (Watts, Option<Micros>) {
        let share = share_at(times.depth_of(clocks), share);
        (armed_watts(floor, most, share), times.stands_for(clocks[0]))
    }

    fn sustained_step(
        watts: (Watts, Watts), window: Micros, memory: &mut SustainedMemory, facts: &SustainedFacts,
    ) -> Option<SustainedState> {
        Some(SustainedLimit::new(watts.0, watts.1, window).ok()?.step(memory, facts))
    }

    fn gpu_ask(model: Option<Model>, vram_mb: Option<i64>, count: i64) -> Result<GpuRequest, AskError> {
        GpuRequest::new(model, vram_mb, count)
    }

    fn gpu_read(phase: &str, total: Option<i64>, allocated: Option<i64>) -> (GpuPhase, Option<Vram>) {
        (GpuPhase::read(phase), Vram::read(total, allocated))
    }

    fn gpu_fit(ask: GpuRequest, cards: &[PhysicalGpu]) -> Result<Fit, Reject> {
        fit(ask, cards)
    }

    fn gpu_grouped(ask: GpuRequest, cards: &[PhysicalGpu], grouped: GroupedCards<'_>) -> (Result<(), Reject>, usize, u64) {
        let islands = island_sets(cards).fold(0, |all, island| all | island);
        (grouped.fits(ask), alike(cards).fold(0_usize, |count, _| count.wrapping_add(1)), islands)
    }

    fn gpu_choose(ask: GpuRequest, cards: &[PhysicalGpu], eligible: u64) -> u64 {
        choose(ask, cards, eligible)
    }
}
