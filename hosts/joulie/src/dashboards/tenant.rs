//! For who runs workloads: what those of a namespace have drawn, what it costs, and how they are placed.

use super::grafana::{Dashboard, Panel, Row, Shape, Steps, Variable};

pub(super) static DASHBOARD: Dashboard = Dashboard {
    uid: "joulie-tenant",
    title: "Joulie: tenant",
    about: "What the workloads of a namespace have drawn, what it costs, and how they are placed. Energy needs ENERGY_LEDGER=on.",
    variables: &[Variable { name: "namespace", query: "joulie_energy_joules_total", label: "namespace" }],
    rows: &[
        Row { title: "Energy", closed: false, panels: ENERGY },
        Row { title: "Placement", closed: false, panels: PLACEMENT },
    ],
};

const ENERGY: &[Panel] = &[
    Panel {
        title: "Energy",
        about: "What the workloads have drawn in the chosen time.",
        shape: Shape::Number,
        unit: "kwatth",
        width: 6,
        queries: &[(
            r#"sum(increase(joulie_energy_joules_total{account="workload",namespace=~"$namespace"}[$__range])) / 3.6e6"#,
            "energy",
        )],
        steps: Steps::None,
    },
    Panel {
        title: "Power",
        about: "What the workloads draw now.",
        shape: Shape::Number,
        unit: "watt",
        width: 6,
        queries: &[(
            r#"sum(rate(joulie_energy_joules_total{account="workload",namespace=~"$namespace"}[5m]))"#,
            "power",
        )],
        steps: Steps::None,
    },
    Panel {
        title: "Cost",
        about: "By ENERGY_PRICE_PER_KWH, in its currency, in the chosen time.",
        shape: Shape::Number,
        unit: "short",
        width: 6,
        queries: &[(
            r#"sum(increase(joulie_energy_cost_total{account="workload",namespace=~"$namespace"}[$__range]))"#,
            "cost",
        )],
        steps: Steps::None,
    },
    Panel {
        title: "Emissions",
        about: "By ENERGY_CO2_GRAMS_PER_KWH, in the chosen time.",
        shape: Shape::Number,
        unit: "massg",
        width: 6,
        queries: &[(
            r#"sum(increase(joulie_energy_co2_grams_total{account="workload",namespace=~"$namespace"}[$__range]))"#,
            "carbon dioxide",
        )],
        steps: Steps::None,
    },
    Panel {
        title: "Power by namespace",
        about: "What the workloads of each namespace draw.",
        shape: Shape::Stack,
        unit: "watt",
        width: 12,
        queries: &[(
            r#"sum by (namespace) (rate(joulie_energy_joules_total{account="workload",namespace=~"$namespace"}[5m]))"#,
            "{{namespace}}",
        )],
        steps: Steps::None,
    },
    Panel {
        title: "Power by part",
        about: "What processors and GPUs draw.",
        shape: Shape::Stack,
        unit: "watt",
        width: 12,
        queries: &[(
            r#"sum by (part) (rate(joulie_energy_joules_total{account="workload",namespace=~"$namespace"}[5m]))"#,
            "{{part}}",
        )],
        steps: Steps::None,
    },
    Panel {
        title: "Workloads that have drawn most",
        about: "The twenty workloads with the most energy in the chosen time.",
        shape: Shape::Bars,
        unit: "kwatth",
        width: 12,
        queries: &[(
            r#"topk(20, sum by (namespace, workload) (increase(joulie_energy_joules_total{account="workload",namespace=~"$namespace"}[$__range]))) / 3.6e6"#,
            "{{namespace}}/{{workload}}",
        )],
        steps: Steps::None,
    },
    Panel {
        title: "Whose the energy is",
        about: "Power by account: workloads, the system of the nodes, nobody (idle), and what is not known.",
        shape: Shape::Stack,
        unit: "watt",
        width: 12,
        queries: &[("sum by (account) (rate(joulie_energy_joules_total[5m]))", "{{account}}")],
        steps: Steps::None,
    },
    Panel {
        title: "Gaps of the meters",
        about: "For which part of the time meters were silent; what was drawn then is unknown's.",
        shape: Shape::Lines,
        unit: "percentunit",
        width: 12,
        queries: &[("max by (part) (rate(joulie_energy_gap_seconds_total[5m]))", "{{part}}")],
        steps: Steps::BadFrom(0.05),
    },
    Panel {
        title: "Pods with an account",
        about: "Pods that are charged now, on all nodes.",
        shape: Shape::Lines,
        unit: "short",
        width: 12,
        queries: &[("sum(joulie_energy_pods)", "pods")],
        steps: Steps::None,
    },
];

const PLACEMENT: &[Panel] = &[
    Panel {
        title: "Pods by class",
        about: "Pods each second that were placed with the help of the extender, by their class.",
        shape: Shape::Lines,
        unit: "cps",
        width: 8,
        queries: &[(
            "sum by (workload_class) (rate(joulie_scheduler_prioritize_requests_total[5m]))",
            "{{workload_class}}",
        )],
        steps: Steps::None,
    },
    Panel {
        title: "Candidates that were refused",
        about: "Nodes each second to which a pod may not go, by the reason.",
        shape: Shape::Lines,
        unit: "cps",
        width: 8,
        queries: &[("sum by (reason) (rate(joulie_scheduler_rejections_total[5m]))", "{{reason}}")],
        steps: Steps::None,
    },
    Panel {
        title: "Congestion of performance nodes",
        about: "The mean use of the nodes at full power; performance pods wait when it is high.",
        shape: Shape::Lines,
        unit: "percent",
        width: 8,
        queries: &[("max(joulie_scheduler_perf_pressure)", "pressure")],
        steps: Steps::WarnFrom(80.0, 95.0),
    },
    Panel {
        title: "Pods past their bound",
        about: "Pods that ask for performance and count as standard, by the bound that they are past.",
        shape: Shape::Lines,
        unit: "short",
        width: 8,
        queries: &[(
            "max by (reason) (joulie_operator_past_bound_pods and on (instance) joulie_leader == 1)",
            "{{reason}}",
        )],
        steps: Steps::None,
    },
    Panel {
        title: "Nodes by profile",
        about: "How many nodes a performance pod may go to, and how many run capped.",
        shape: Shape::Stack,
        unit: "short",
        width: 8,
        queries: &[(
            "sum by (profile) (joulie_operator_node_profile_label and on (instance) joulie_leader == 1)",
            "{{profile}}",
        )],
        steps: Steps::None,
    },
    Panel {
        title: "Known workloads",
        about: "Workloads that run, by how their profile stands. Only where the classifier is on.",
        shape: Shape::Lines,
        unit: "short",
        width: 8,
        queries: &[(
            "max by (standing) (joulie_operator_workloads and on (instance) joulie_leader == 1)",
            "{{standing}}",
        )],
        steps: Steps::None,
    },
];
