//! The devices of a node: from its telemetry, else from the catalogue's entry for the models that telemetry or labels
//! name.

use super::super::engine::Shape;
use super::{Hints, Task};
use joulie_core::node::cap::CapRange;
use power_units::Watts;

impl Task {
    /// Whether the numbers of packages and GPUs are known, from a Node object or from the node itself.
    pub(super) fn is_described(&self) -> bool {
        let told = self.described.as_ref();
        self.hints.borrow().is_some() || told.is_some_and(|it| it.sockets.is_some() && it.gpus.is_some())
    }

    pub(super) fn hints(&self) -> Hints {
        self.hints.borrow().clone().unwrap_or_default()
    }

    /// The devices of the node: from its telemetry, else from the catalogue's entry for its models.
    pub(super) fn shape(&self) -> Shape {
        let told = self.described.as_ref();
        let hints = self.hints();
        let catalog = &self.common.catalog;
        let cpu_names = [told.and_then(|it| it.cpu_model.as_deref()), hints.cpu_model.as_deref()];
        let cpu = cpu_names.into_iter().flatten().find_map(|name| catalog.cpu(name));
        let gpu_names = [told.and_then(|it| it.gpu_product.as_deref()), hints.gpu_model.as_deref()];
        let gpu = gpu_names.into_iter().flatten().find_map(|name| catalog.gpu(name));
        // Before the first answer.
        let [heard, gpus_heard] = self.heard;
        let is_unheard = !heard && self.routing.source.is_some();
        let are_gpus_unheard = !gpus_heard && self.routing.gpu_source.is_some();
        let by_model = cpu.map(|model| (model.least(), Some(model.most())));
        let gpu_by_model = gpu.map(|model| (model.min, Some(model.max)));
        Shape {
            packages: told.and_then(|it| it.sockets).or(hints.sockets).unwrap_or(1),
            range: range(told.map(|it| (it.cap_min, it.cap_max)), by_model, is_unheard),
            gpus: told.and_then(|it| it.gpus).unwrap_or(hints.gpus),
            gpu_range: range(told.map(|it| (it.gpu_cap_min, it.gpu_cap_max)), gpu_by_model, are_gpus_unheard),
        }
    }
}

/// The lowest and the highest limit that can be set.
type Ends = (Option<Watts>, Option<Watts>);

/// The range that the node reports. An end that it does not report is that of its model, so that nothing is capped
/// below what it is built for. Before the node's first answer the model's lowest limit is not used: the node may hold
/// less, and a limit that is raised to it would exceed the node's grant.
fn range(told: Option<Ends>, model: Option<Ends>, is_unheard: bool) -> Option<CapRange> {
    let ((told_min, told_max), (min, max)) = (told.unwrap_or_default(), model.unwrap_or_default());
    let max = told_max.or(max);
    max.map(|_| CapRange::new(told_min.or(min.filter(|_| !is_unheard)), max, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_of_a_range_that_a_node_does_not_tell_is_that_of_its_model() {
        let ends = |min: i32, max: i32| {
            let watts = |count: i32| Some(count).filter(|&count| count > 0).map(Watts::from_int);
            (watts(min), watts(max))
        };
        let with =
            |told, model, is_unheard| range(told, model, is_unheard).map(|range| (range.min(), range.max()));
        let of = |told, model| with(told, model, false);
        let model = Some(ends(320, 400));
        assert_eq!(of(None, model), model);
        assert_eq!(of(Some(ends(0, 0)), model), model, "a node that tells neither");
        assert_eq!(of(Some(ends(0, 380)), model), Some(ends(320, 380)));
        assert_eq!(of(Some(ends(100, 380)), model), Some(ends(100, 380)));
        assert_eq!(of(Some(ends(0, 250)), model), Some(ends(0, 250)), "of another model than it says");
        assert_eq!(of(Some(ends(100, 0)), None), None);
        assert_eq!(with(None, model, true), Some(ends(0, 400)), "it may hold less than its model's least");
    }
}
