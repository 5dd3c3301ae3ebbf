//! joulie-core, budget and GPU fit: what the operator runs for every plan and the extender for every GPU pod.

use joulie_core::budget::{
    Account, Admission, Allocation, BudgetError, Demand, Grant, Group, GroupError, Law, LawError, Move, Node,
    Overrun, Range, RangeError, Receipt, Share, Standing, Summary, Tree, TreeError, Turn, Verdict,
    Wish, admit, allocate, demands, next_moves,
};
use joulie_core::placement::gpu::{Ask, AskError, Fit, Gpu, Model, Phase, Reject, Vram, choose, fit};
use power_units::Watts;

roots! {
    fn budget_tree(groups: &[Group]) -> Result<Tree<'_>, TreeError> {
        Tree::new(groups)
    }

    fn budget_facts(
        parent: Option<usize>, limit: Watts, base: Option<Watts>, band: Watts,
    ) -> (Result<Group, GroupError>, Result<Range, RangeError>, Result<Law, LawError>) {
        (Group::new(parent, limit, base), Range::new(limit, base), Law::new(band))
    }

    fn budget_account(grant: Option<Grant>, receipt: Option<Receipt>, sent: &[Grant]) -> (Account, bool, bool, Watts) {
        let account = Account::observed(grant, receipt).after_sending(sent);
        (account, account.is_proven(), account.is_awaited(), account.ceiling_of(account.asked().unwrap_or(Watts::ZERO)))
    }

    fn budget_allocate(
        tree: Tree<'_>, nodes: &[Node], shares: &mut [Share], targets: &mut [Watts],
    ) -> Result<Allocation, BudgetError> {
        allocate(tree, nodes, shares, targets)
    }

    fn budget_verdict(share: &Share, standing: &Standing, node: &Node) -> (Verdict, Option<Overrun>, Option<Watts>) {
        (share.verdict(), standing.overrun(), node.count())
    }

    fn budget_moves(
        law: Law, tree: Tree<'_>, nodes: (&[Node], &[Watts]), memory: (&mut [Standing], &mut [Turn]), moves: &mut [Move],
    ) -> Result<Summary, BudgetError> {
        next_moves(law, tree, nodes, memory, moves)
    }

    fn budget_demands(tree: Tree<'_>, nodes: &[Node], sums: &mut [Demand]) -> Result<(), BudgetError> {
        demands(tree, nodes, sums)
    }

    fn budget_admit(tree: Tree<'_>, sums: &mut [Demand], node: &Node, wish: Wish) -> Admission {
        admit(tree, sums, node, wish)
    }

    fn gpu_ask(model: Option<Model>, vram_mb: Option<i64>, count: i64) -> Result<Ask, AskError> {
        Ask::new(model, vram_mb, count)
    }

    fn gpu_read(phase: &str, total: Option<i64>, allocated: Option<i64>) -> (Phase, Option<Vram>) {
        (Phase::read(phase), Vram::read(total, allocated))
    }

    fn gpu_fit(ask: Ask, cards: &[Gpu]) -> Result<Fit, Reject> {
        fit(ask, cards)
    }

    fn gpu_choose(ask: Ask, cards: &[Gpu], eligible: u64) -> u64 {
        choose(ask, cards, eligible)
    }
}
