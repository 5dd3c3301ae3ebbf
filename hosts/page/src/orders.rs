//! What a person may do from the page of the demo. Each order has an answer: what was done, or why not.

use host_kit::config::parse::object_name;
use serde::Deserialize;
use tokio::sync::{mpsc, oneshot};

/// The orders that wait at the same time; more are refused.
const WAITING_MAX: usize = 8;
/// The limits that a person may set, in watts: those of `--budget`.
const WATTS_LEAST: f64 = 100.0;
const WATTS_MOST: f64 = 1_000_000.0;

/// An order.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum UiOrder {
    /// Change the limit of the site.
    Budget {
        /// To so many watts.
        watts: f64,
    },
    /// Change the policy.
    Policy {
        /// To this one.
        name: String,
    },
    /// Break the telemetry of a node.
    Silence {
        /// Which.
        node: String,
    },
    /// Mend it.
    Hear {
        /// Which.
        node: String,
    },
    /// Stop the cooling of a zone.
    Heat {
        /// Which.
        zone: String,
    },
    /// Start it.
    Cool {
        /// Which.
        zone: String,
    },
    /// Kill the operator.
    KillLeader,
    /// Start it again.
    StartLeader,
    /// Break something else.
    Break {
        /// By its name among the controls.
        fault: String,
    },
    /// Mend it.
    Mend {
        /// By its name among the controls.
        fault: String,
    },
}

impl UiOrder {
    /// Reads an order.
    ///
    /// # Errors
    /// If it is none; the text says what is accepted.
    pub fn read(body: &[u8]) -> Result<Self, String> {
        let order: Self =
            serde_json::from_slice(body).map_err(|error| format!("this is no order: {error}"))?;
        match &order {
            Self::Budget { watts } if !(WATTS_LEAST..=WATTS_MOST).contains(watts) => {
                return Err(format!("expected a budget from {WATTS_LEAST} W to {WATTS_MOST} W"));
            }
            Self::Silence { node: name }
            | Self::Hear { node: name }
            | Self::Heat { zone: name }
            | Self::Cool { zone: name }
            | Self::Break { fault: name }
            | Self::Mend { fault: name } => {
                object_name(name).map_err(|wrong| format!("{name:?} is no name: {wrong}"))?;
            }
            Self::Budget { .. } | Self::Policy { .. } | Self::KillLeader | Self::StartLeader => {}
        }
        Ok(order)
    }
}

/// What became of an order, in words.
pub type OrderOutcome = Result<String, String>;

/// An order, and where its answer goes.
#[derive(Debug)]
pub struct GivenOrder {
    /// The order.
    pub order: UiOrder,
    /// Its answer.
    pub answer: oneshot::Sender<OrderOutcome>,
}

/// The way of orders from the page to whoever carries them out.
#[derive(Clone, Debug)]
pub struct UiOrders {
    token: String,
    sender: mpsc::Sender<GivenOrder>,
}

impl UiOrders {
    /// The way, and its other end. Only who shows the token, which is in the document, gives orders: a page of another site cannot
    /// read it.
    #[must_use]
    pub fn new(token: String) -> (Self, mpsc::Receiver<GivenOrder>) {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        (Self { token, sender }, receiver)
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// Gives an order.
    pub(crate) async fn give(&self, order: UiOrder) -> OrderOutcome {
        let (answer, answered) = oneshot::channel();
        let given = GivenOrder { order, answer };
        self.sender
            .try_send(given)
            .map_err(|_| "others give orders at the same time: try again".to_owned())?;
        answered.await.unwrap_or_else(|_| Err("the demo ends".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_and_what_is_none_is_refused_with_what_is_accepted() {
        let read = |text: &str| UiOrder::read(text.as_bytes());
        assert_eq!(read(r#"{"do": "budget", "watts": 8000}"#), Ok(UiOrder::Budget { watts: 8000.0 }));
        assert_eq!(read(r#"{"do": "kill-leader"}"#), Ok(UiOrder::KillLeader));
        assert_eq!(
            read(r#"{"do": "heat", "zone": "zone-1"}"#),
            Ok(UiOrder::Heat { zone: "zone-1".to_owned() })
        );
        for (text, said) in [
            ("", "no order"),
            ("[]", "no order"),
            (r#"{"do": "reboot"}"#, "no order"),
            (r#"{"do": "budget"}"#, "no order"),
            (r#"{"do": "budget", "watts": "8000"}"#, "no order"),
            (r#"{"do": "budget", "watts": -1}"#, "from 100 W to 1000000 W"),
            (r#"{"do": "budget", "watts": 1e300}"#, "from 100 W to 1000000 W"),
            (r#"{"do": "silence", "node": "../a"}"#, "no name"),
            (r#"{"do": "cool", "zone": ""}"#, "no name"),
            (r#"{"do": "break", "fault": "a b"}"#, "no name"),
            (r#"{"do": "mend"}"#, "no order"),
        ] {
            let why = read(text).unwrap_err();
            assert!(why.contains(said), "{text}: {why}");
        }
    }
}
