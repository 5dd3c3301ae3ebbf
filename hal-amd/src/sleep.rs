//! Whether a GPU sleeps.

use hal_files::{Attribute, TEXT_MAX, text};

/// Whether the device behind `power/runtime_status` sleeps, or is about to. One that does not say so is awake.
pub(crate) fn sleeps(runtime_status: Option<&Attribute>) -> bool {
    let Some(status) = runtime_status else { return false };
    let mut buffer = [0; TEXT_MAX];
    let read = status.read(&mut buffer);
    read.is_ok_and(|status| matches!(text::line(status), Some("suspended" | "suspending")))
}
