//! What a period costs.

use crate::test_machine::{PERIOD, TestMachine, watts};

/// Sample, decide, write nothing: the loop's own part. The threads' own tests count their allocations.
#[test]
fn a_steady_period_allocates_nothing() {
    let Some(room) = TestMachine::profile("xeon-2s").map(TestMachine::busy) else { return };
    let mut node = room.open(room.config());
    node.handle().desire(watts(120));
    room.periods(&mut node, 5);
    for _ in 0..3 {
        room.pass(PERIOD);
        let counted = allocation_counter::measure(|| node.period());
        assert_eq!(counted.count_total, 0);
    }
    let orders = node.report().counts.orders;
    room.periods(&mut node, 3);
    assert_eq!(node.report().counts.orders, orders, "and it was steady");
}
