//! The signals of pods: one query for each and for all pods at once, and how the series of an answer are joined to pods.
//!
//! Exporters name a pod in different labels. cAdvisor has `namespace` and `pod`; DCGM and Kepler have them too, unless
//! the scrape keeps them for the exporter's own pod, and then names the measured one in `exported_pod` or `pod_name`. A
//! series that names a pod in the labels of an exporter is about that pod, and never about the pod of `namespace` and
//! `pod`. Each query puts the cases side by side with `or`; the labels of a series tell which case it is.

use super::stats::{Fate, Signal};
use host_kit::prometheus::{Answer, Series};
use power_units::{Percent, Ratio, Role, Watts};
use std::time::Duration;

/// The labels that name a namespace and a pod, in the order in which they are believed.
const POD_LABELS: [(&str, &str); 4] = [
    ("exported_namespace", "exported_pod"),
    ("pod_namespace", "pod_name"),
    ("container_namespace", "pod_name"),
    ("namespace", "pod"),
];

/// How busy GPUs are, in percent: by DCGM, and by AMD's exporter, whose operator puts a prefix before its names.
const GPU_UTIL: &str = "DCGM_FI_DEV_GPU_UTIL|(amd_)?gpu_gfx_activity";

impl Signal {
    /// The query for it over a window.
    pub(super) fn query(self, window: Duration) -> String {
        let w = format!("{}s", window.as_secs().max(1));
        // The series of a pod's own cgroup and of its sandbox repeat those of its containers.
        const CONTAINERS: &str = r#"container!="",container!="POD""#;
        match self {
            Self::Cpu => format!(
                "sum by (namespace, pod) (rate(container_cpu_usage_seconds_total{{{CONTAINERS}}}[{w}]))"
            ),
            Self::Memory => {
                format!("sum by (namespace, pod) (container_memory_working_set_bytes{{{CONTAINERS}}})")
            }
            Self::Gpu => {
                let mean = |of: &str| format!(r#"avg_over_time({{__name__=~"{GPU_UTIL}",{of}}}[{w}])"#);
                let exported = mean(r#"exported_pod!="""#);
                let plain = mean(r#"exported_pod="",pod!="""#);
                format!(
                    "avg by (exported_namespace, exported_pod) ({exported}) or avg by (namespace, pod) ({plain})"
                )
            }
            Self::PackageEnergy => energy("package", &zone("package(-.*)?", &w), &w),
            Self::DramEnergy => energy("dram", &zone("dram", &w), &w),
            Self::GpuEnergy => energy(
                "gpu",
                &format!(r#"avg_over_time(kepler_pod_gpu_watts{{state!="terminated"}}[{w}])"#),
                &w,
            ),
        }
    }
}

/// What pods take of a zone, by Kepler since 0.10, where pods that have ended have series of their own.
fn zone(zone: &str, w: &str) -> String {
    format!(r#"rate(kepler_pod_cpu_joules_total{{zone=~"{zone}",state!="terminated"}}[{w}])"#)
}

/// The watts of a part of the machine: by Kepler before 0.10, whose series may name the pod in two ways, and since: `pods`.
fn energy(part: &str, pods: &str, w: &str) -> String {
    let containers = format!("kepler_container_{part}_joules_total");
    [
        format!("sum by (pod_namespace, pod_name) ({pods})"),
        format!(r#"sum by (container_namespace, pod_name) (rate({containers}{{pod_name!=""}}[{w}]))"#),
        format!(r#"sum by (namespace, pod) (rate({containers}{{pod_name="",pod!=""}}[{w}]))"#),
    ]
    .join(" or ")
}

/// What became of the series of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fates([u64; Fate::ALL.len()]);

impl Fates {
    fn count(&mut self, fate: Fate) {
        let at = Fate::ALL.iter().position(|one| *one == fate);
        if let Some(count) = at.and_then(|at| self.0.get_mut(at)) {
            *count += 1;
        }
    }

    /// Each fate with its count.
    pub(super) fn each(&self) -> impl Iterator<Item = (Fate, u64)> {
        Fate::ALL.iter().copied().zip(self.0)
    }
}

/// The values of an answer by pod. `place` is the index of the pod of a namespace and a name, among `pods` of them. A pod
/// for which there are two series has no value: nobody can say which one is right.
pub(super) fn by_pod<T: Copy>(
    answer: &Answer,
    pods: usize,
    place: impl Fn(&str, &str) -> Option<usize>,
    number: impl Fn(&str) -> Option<T>,
) -> (Vec<Option<T>>, Fates) {
    let (mut values, mut seen, mut fates) = (vec![None; pods], vec![false; pods], Fates::default());
    let exported = answer.series.iter().any(|series| series.label("exported_pod").is_some());
    for series in &answer.series {
        let found = named(series, exported).and_then(|(namespace, pod)| place(namespace, pod));
        let slot = found.and_then(|at| Some((values.get_mut(at)?, seen.get_mut(at)?)));
        let Some((value, seen)) = slot else {
            fates.count(Fate::OfNobody);
            continue;
        };
        let number = series.number().and_then(&number);
        fates.count(match (*seen, number) {
            (true, _) => Fate::Twice,
            (false, None) => Fate::NoNumber,
            (false, Some(_)) => Fate::Taken,
        });
        *value = number.filter(|_| !*seen);
        *seen = true;
    }
    (values, fates)
}

/// The pod that a series names. Where the scrape keeps `pod` for the exporters, a series without `exported_pod` is about
/// a device that no pod has.
fn named(series: &Series, exported: bool) -> Option<(&str, &str)> {
    let labels = if exported { POD_LABELS.get(..1)? } else { &POD_LABELS };
    labels.iter().find_map(|(namespace, pod)| Some((series.label(namespace)?, series.label(pod)?)))
}

/// Processor cores.
pub(super) fn cores(text: &str) -> Option<Ratio> {
    Ratio::parse(text, Role::Demand).ok().filter(|&cores| cores >= Ratio::ZERO)
}

/// A utilisation in percent. DCGM has marks for "no value" that are huge numbers.
pub(super) fn utilization(text: &str) -> Option<Percent> {
    let value = Percent::parse(text, Role::Nearest).ok()?;
    (Percent::ZERO..=Percent::HUNDRED).contains(&value).then_some(value)
}

/// Watts.
pub(super) fn watts(text: &str) -> Option<Watts> {
    Watts::parse(text, Role::Demand).ok().filter(|&watts| watts >= Watts::ZERO)
}

/// Bytes.
pub(super) fn bytes(text: &str) -> Option<u64> {
    // A server may write a large number with an exponent.
    let value: f64 = text.parse().ok()?;
    format!("{value:.0}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use host_kit::prometheus::SERIES_MAX;
    use http::StatusCode;
    use serde_json::{Value, json};

    fn answer(series: &[(Value, &str)]) -> Answer {
        let series = series.iter().map(|(labels, value)| json!({"metric": labels, "value": [1, value]}));
        let series: Vec<Value> = series.collect();
        let body = json!({"status": "success", "data": {"resultType": "vector", "result": series}});
        Answer::read(body.to_string().as_bytes(), StatusCode::OK).unwrap()
    }

    fn read(series: &[(Value, &str)]) -> (Vec<Option<u64>>, Vec<u64>) {
        let place = |namespace: &str, pod: &str| match (namespace, pod) {
            ("x", "a") => Some(0),
            ("x", "b") => Some(1),
            ("x", "exporter") => Some(2),
            _ => None,
        };
        let (values, fates) = by_pod(&answer(series), 3, place, bytes);
        (values, fates.each().map(|(_, count)| count).collect())
    }

    #[test]
    fn a_series_is_about_the_pod_that_the_exporter_names() {
        let own = json!({"namespace": "x", "pod": "exporter"});
        let exported =
            json!({"exported_namespace": "x", "exported_pod": "a", "namespace": "x", "pod": "exporter"});
        let old = json!({"container_namespace": "x", "pod_name": "a", "namespace": "x", "pod": "exporter"});
        let new = json!({"pod_namespace": "x", "pod_name": "b"});
        assert_eq!(read(&[(own.clone(), "7")]), (vec![None, None, Some(7)], vec![1, 0, 0, 0]));
        assert_eq!(read(&[(old, "5"), (new, "6")]), (vec![Some(5), Some(6), None], vec![2, 0, 0, 0]));
        // A device that no pod has is not one of the exporter's.
        assert_eq!(read(&[(own, "7"), (exported, "50")]), (vec![Some(50), None, None], vec![1, 1, 0, 0]));
    }

    #[test]
    fn a_value_that_is_there_twice_or_is_no_number_is_missing_and_counted() {
        let of = |pod: &str| json!({"namespace": "x", "pod": pod});
        let (values, fates) = read(&[
            (of("a"), "1"),
            (of("a"), "2"),
            (of("a"), "3"),
            (of("b"), "NaN"),
            (of("gone"), "1"),
            (json!({}), "1"),
            (json!({"namespace": "x"}), "1"),
            (json!({"pod": "a"}), "1"),
        ]);
        assert_eq!((values, fates), (vec![None; 3], vec![1, 4, 2, 1]));
    }

    #[test]
    fn what_no_meter_can_say_is_missing() {
        assert_eq!(bytes("1.5e+09"), Some(1_500_000_000));
        assert_eq!((bytes("-1"), bytes("1e300"), bytes("x")), (None, None, None));
        assert_eq!((cores("-0.1"), cores("1e12"), watts("-3"), watts("1e30")), (None, None, None, None));
        assert_eq!(utilization("2147483632"), None);
        assert_eq!(
            (utilization("-1"), utilization("100"), utilization("0")),
            (None, Some(Percent::HUNDRED), Some(Percent::ZERO))
        );
    }

    #[test]
    fn the_longest_answer_costs_one_look_for_each_of_its_series() {
        let one = |at: usize| (json!({"namespace": "x", "pod": format!("odd \u{1f}\u{ffff} {at}")}), "1");
        let series: Vec<_> = (0..SERIES_MAX).map(one).collect();
        let looks = std::cell::Cell::new(0_usize);
        let place = |_: &str, _: &str| {
            looks.set(looks.get() + 1);
            None
        };
        let (values, fates) = by_pod::<u64>(&answer(&series), 2, place, bytes);
        assert_eq!((values, looks.get()), (vec![None, None], SERIES_MAX));
        assert_eq!(fates.each().map(|(_, count)| count).sum::<u64>(), 100_000);
    }

    #[test]
    fn each_query_asks_for_all_pods_at_once() {
        for signal in Signal::ALL {
            let query = signal.query(Duration::from_secs(600));
            assert!(query.contains(" by (") && query.len() < 600, "{query}");
            for (open, close) in [('(', ')'), ('{', '}'), ('[', ']')] {
                let count = |of| query.chars().filter(|one| *one == of).count();
                assert_eq!(count(open), count(close), "{query}");
            }
        }
        assert_eq!(
            Signal::Cpu.query(Duration::from_secs(600)),
            r#"sum by (namespace, pod) (rate(container_cpu_usage_seconds_total{container!="",container!="POD"}[600s]))"#
        );
        assert_eq!(
            Signal::Gpu.query(Duration::from_secs(600)),
            "avg by (exported_namespace, exported_pod) \
             (avg_over_time({__name__=~\"DCGM_FI_DEV_GPU_UTIL|(amd_)?gpu_gfx_activity\",exported_pod!=\"\"}[600s])) or \
             avg by (namespace, pod) \
             (avg_over_time({__name__=~\"DCGM_FI_DEV_GPU_UTIL|(amd_)?gpu_gfx_activity\",exported_pod=\"\",pod!=\"\"}[600s]))"
        );
        // Kepler has no counter of GPUs since 0.10, but a power.
        assert!(Signal::GpuEnergy.query(Duration::from_secs(600)).starts_with(
            r#"sum by (pod_namespace, pod_name) (avg_over_time(kepler_pod_gpu_watts{state!="terminated"}[600s])) or "#
        ));
    }
}
