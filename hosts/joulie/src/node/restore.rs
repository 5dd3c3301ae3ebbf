//! `joulie node restore`: puts back all originals in the journal, and reports those that are not back and why.

use super::hold::{Hold, Which};
use super::{Desk, Ending, Refusal, cap, show};
use node_kit::NodeAccess;

pub(super) fn restore(desk: &mut Desk) -> Result<Ending, Refusal> {
    let hold = Hold::begin(desk, NodeAccess::Control)?;
    if hold.journal.void() > 0 {
        desk.out.line(show::void(hold.journal.void()).trim_start());
    }
    let restored = hold.put_back(desk, Which::ALL);
    if restored.before.is_empty() {
        let _closed = hold.end();
        desk.out.line("nothing to put back: no limit on this machine is ours");
        return Ok(Ending::Done);
    }
    Ok(cap::finish(desk, hold, &restored))
}
