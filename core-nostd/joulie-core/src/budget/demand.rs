//! Power follows demand: what nodes or devices have lately drawn and would have drawn, the price that divides a limit
//! among them, and which orders follow.
//!
//! To draw the most under a limit, every cap must be exceeded by its own node's demand for the same share of the time.
//! That share is the group's **price** λ. It is found from what each node reports, in one pass over the tree, and
//! nothing is learned: the same reports give the same price.
//!
//! - [`ask`]: the last samples of what is drawn, and the report of the demand that is made of them;
//! - [`mod@price`]: the price of every group, and the caps that belong to it;
//! - [`mod@orders`]: which of the differences between caps and priced caps are worth an order;
//! - [`tokens`]: the bound on orders in time;
//! - [`yields`]: what a node gives back by itself.
//!
//! An **entitlement** is what a node gets when everybody wants everything, see [`allocate`](mod@super::allocate). It
//! can be called: a node that is throttled below it is raised to it whatever the price. A node that does not need it
//! lends it.

pub mod ask;
pub mod orders;
pub mod price;
pub mod tokens;
pub mod yields;

pub use ask::{DemandError, DemandHistory, DemandReport, QUANTILES, is_news};
pub use orders::{Bidders, GroupOrders, OrderBounds, OrderCount, OrderTurn, RESERVE, orders};
pub use price::{Appetite, Bid, GroupPrice, price, reserved};
pub use tokens::TokenBucket;
pub use yields::{YieldMemory, Yieldable};
