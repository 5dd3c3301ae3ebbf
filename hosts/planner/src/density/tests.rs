use super::*;
use crate::catalog::Catalog;
use crate::inventory::{HardwareFacts, LabelFacts, Reported, resolve};
use power_units::Watts;

struct Node {
    cpu: &'static str,
    sockets: Option<u32>,
    cores: Option<u32>,
    gpus: Option<(&'static str, u32)>,
}

fn facts(node: &Node) -> HardwareFacts {
    HardwareFacts {
        reported: None,
        labels: LabelFacts {
            cpu_model: Some(node.cpu.into()),
            sockets: node.sockets,
            gpu_model: node.gpus.map(|(model, _)| model.into()),
            gpu_count: node.gpus.map(|(_, count)| count),
        },
        capacity_cpus: node.cores,
        allocatable_gpus: 0,
    }
}

fn density(node: &Node) -> Density {
    let catalog = Catalog::embedded().unwrap();
    Density::of(&resolve(&facts(node), None, false, &catalog))
}

fn family(facts: &HardwareFacts) -> String {
    Family::of(&resolve(facts, None, false, &Catalog::embedded().unwrap()).hardware).to_string()
}

fn node(cpu: &'static str, sockets: u32, cores: u32, gpus: Option<(&'static str, u32)>) -> Node {
    Node { cpu, sockets: Some(sockets), cores: Some(cores), gpus }
}

fn text(value: Ratio) -> String {
    format!("{value:.1}")
}

#[test]
fn the_metrics_components_are_the_published_ones() {
    // Table C5.
    let (cores_unknown, nothing_known) = (None, None);
    for (node, cpu, gpu, of) in [
        (node("AMD EPYC 9654 96-Core Processor", 2, 192, None), "136396.8", "0.0", "cpu:AMD_EPYC_9654"),
        (node("AMD_EPYC_9655", 2, 192, None), "199680.0", "0.0", "cpu:AMD_EPYC_9655"),
        (node("AMD_EPYC_9965", 2, 384, None), "681984.0", "0.0", "cpu:AMD_EPYC_9965"),
        (node("AMD_EPYC_9534", 2, 128, None), "60620.8", "0.0", "cpu:AMD_EPYC_9534"),
        (node("AMD_EPYC_9375F", 2, 64, None), "31129.6", "0.0", "cpu:AMD_EPYC_9375F"),
        (node("INTEL_XEON_GOLD_6530", 2, 64, None), "16384.0", "0.0", "cpu:INTEL_XEON_GOLD_6530"),
        (
            node("INTEL_XEON_GOLD_6530", 2, 64, Some(("NVIDIA-H100-80GB-HBM3", 8))),
            "16384.0",
            "5600.0",
            "gpu:NVIDIA_H100_SXM",
        ),
        (
            node("AMD_EPYC_9654", 2, 192, Some(("AMD Instinct MI300X", 8))),
            "136396.8",
            "6000.0",
            "gpu:AMD_INSTINCT_MI300X",
        ),
        (
            Node { cpu: "AMD_EPYC_9654", sockets: None, cores: nothing_known, gpus: None },
            "710.4",
            "0.0",
            "cpu:AMD_EPYC_9654",
        ),
        (
            Node { cpu: "AMD_EPYC_9654", sockets: Some(2), cores: cores_unknown, gpus: None },
            "1420.8",
            "0.0",
            "cpu:AMD_EPYC_9654",
        ),
    ] {
        let density = density(&node);
        assert_eq!((text(density.cpu).as_str(), text(density.gpu).as_str()), (cpu, gpu), "{}", node.cpu);
        assert_eq!(family(&facts(&node)), of);
    }
    // The row "GPU label L40S, count 0": the component's rule counts one, and the node is of its CPU's family. The
    // component is never computed for a node without a GPU.
    assert_eq!(gpu_component(Ratio::from_int(350), 0), Ratio::from_int(350));
    let labelled = node("AMD_EPYC_9654", 2, 192, Some(("NVIDIA L40S", 0)));
    assert_eq!(family(&facts(&labelled)), "cpu:AMD_EPYC_9654");
    assert_eq!(density(&labelled).gpu, Ratio::ZERO);
}

#[test]
fn of_equal_parts_the_node_with_the_most_gpu_compute_comes_first() {
    // Table C5, test: densities {500+0, 300+2400, 700+700}, the node of 2700 first.
    let mut nodes = [(500, 0), (300, 2400), (700, 700)];
    nodes.sort_by_key(|&(cpu, gpu)| std::cmp::Reverse(order(Ratio::from_int(cpu), Ratio::from_int(gpu))));
    assert_eq!(nodes, [(300, 2400), (700, 700), (500, 0)]);
}

#[test]
fn a_cpu_only_node_does_not_outrank_a_node_full_of_gpus() {
    // Fix list operator B18: by the sum of the components the first would lead by a factor of 30.
    let cpu_only = density(&node("AMD_EPYC_9965", 2, 384, None));
    let full = density(&node("INTEL_XEON_GOLD_6530", 2, 64, Some(("NVIDIA-H100-80GB-HBM3", 8))));
    assert!(full.order > cpu_only.order);
    assert!(full.cpu + full.gpu < cpu_only.cpu + cpu_only.gpu);
    // Two packages of the densest CPU count 2; 2 × 256/1776 + 8 × 700/750 = 0.288288 + 7.466667 = 7.754955.
    assert_eq!(cpu_only.order, Ratio::from_int(2));
    assert_eq!(format!("{:.4}", full.order), "7.7550");
}

#[test]
fn the_order_is_linear_in_cores_and_bounded_by_packages() {
    let order = |sockets, cores| {
        let node = Node { cpu: "AMD_EPYC_9965", sockets, cores, gpus: None };
        format!("{:.3}", density(&node).order)
    };
    assert_eq!(order(Some(2), Some(384)), "2.000");
    assert_eq!(order(Some(2), Some(768)), "2.000", "two threads a core");
    assert_eq!(order(Some(1), Some(48)), "0.250", "a virtual machine with a quarter of a package");
    assert_eq!(order(None, Some(192)), "1.000");
    assert_eq!(order(Some(2), None), "2.000");
    assert_eq!(order(None, None), "1.000");
}

#[test]
fn what_is_unknown_adds_nothing_except_the_power_of_a_gpu_that_reports_it() {
    let unknown = node("weird", 2, 64, Some(("NVIDIA H200", 8)));
    assert_eq!(density(&unknown), Density { cpu: Ratio::ZERO, gpu: Ratio::ZERO, order: Ratio::ZERO });
    let ranged = HardwareFacts {
        reported: Some(Reported { gpu_max: Some(Watts::from_int(750)), ..Reported::default() }),
        ..facts(&unknown)
    };
    let density = Density::of(&resolve(&ranged, None, false, &Catalog::embedded().unwrap()));
    assert_eq!((density.gpu, density.order), (Ratio::from_int(6000), Ratio::from_int(8)));
}

#[test]
fn a_model_without_a_published_figure_counts_by_frequency_and_power() {
    let (mut cpus, mut gpus) = Catalog::embedded_models();
    cpus.iter_mut().for_each(|cpu| cpu.density = None);
    gpus.iter_mut().for_each(|gpu| gpu.density = None);
    let catalog = Catalog::new(cpus, gpus).unwrap();
    let node = node("AMD_EPYC_9654", 2, 192, Some(("NVIDIA L40S", 2)));
    let density = Density::of(&resolve(&facts(&node), None, false, &catalog));
    // 3.7 GHz × 360 W = 1332, times 192 cores.
    assert_eq!((text(density.cpu).as_str(), text(density.gpu).as_str()), ("255744.0", "700.0"));
}

#[test]
fn a_count_that_no_machine_has_makes_no_node_the_densest() {
    let density = density(&node("AMD_EPYC_9965", u32::MAX, u32::MAX, Some(("NVIDIA L40S", u32::MAX))));
    // One package, as when the number is unknown.
    assert_eq!((text(density.cpu).as_str(), density.gpu), ("1776.0", Ratio::ZERO));
    assert!(density.order > Ratio::ZERO);
}

#[test]
fn a_family_is_the_model_however_it_is_spelled() {
    // Table C5, family rows.
    let family_of = |cpu: Option<&str>, gpu: Option<&str>| {
        family(&HardwareFacts {
            labels: LabelFacts {
                cpu_model: cpu.map(Into::into),
                gpu_model: gpu.map(Into::into),
                gpu_count: gpu.map(|_| 8),
                sockets: None,
            },
            ..HardwareFacts::default()
        })
    };
    assert_eq!(family_of(Some("EPYC"), Some("A100")), "gpu:A100");
    assert_eq!(family_of(Some("EPYC"), None), "cpu:EPYC");
    assert_eq!(family_of(None, Some("NVIDIA-L41")), "gpu:NVIDIA-L41");
    assert_eq!(family_of(Some("AMD-EPYC-7"), None), "cpu:AMD-EPYC-7");
    assert_eq!(family_of(None, None), "cpu:unknown-cpu");
    // Fix list operator B19: two spellings of an unrecognised model are one family; a CPU and a GPU never are.
    let of = |device, model: &str| Family { device, model: model.into() };
    assert_eq!(of(Device::Gpu, "NVIDIA-A100 SXM"), of(Device::Gpu, "nvidia_a100-sxm"));
    assert_ne!(of(Device::Gpu, "A100"), of(Device::Gpu, "A100 SXM"));
    assert_ne!(of(Device::Gpu, "A100"), of(Device::Cpu, "A100"));
}
