//! Rows that a test feeds by hand.

use super::object::{Object, Row};
use super::table::{Keep, Rows, Writer, rows};
use crate::clock::Mono;
use futures::FutureExt;
use serde_json::Value;

/// Feeds rows. All that it reports is heard at the beginning of time.
pub struct ByHand<R>(Writer<R>);

/// Returns rows, and what feeds them.
pub fn by_hand<R: Row>() -> (ByHand<R>, Rows<R>) {
    let (writer, rows) = rows();
    (ByHand(writer), rows)
}

impl<R: Row> ByHand<R> {
    /// Reports that exactly these objects exist.
    pub fn list<'a>(&mut self, objects: impl IntoIterator<Item = &'a Value>) {
        self.0.begin().now_or_never();
        for object in objects {
            self.0.listed(Object::of(object), Mono::START).now_or_never();
        }
        self.0.done("", Mono::START).now_or_never();
    }

    /// Reports an object that is new or has changed.
    pub fn apply(&mut self, object: &Value) {
        self.0.applied(Object::of(object), Mono::START).now_or_never();
    }

    /// Reports an object that was deleted.
    pub fn delete(&mut self, object: &Value) {
        self.0.deleted(Object::of(object), Mono::START).now_or_never();
    }
}
