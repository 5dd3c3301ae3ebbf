//! For who runs the building: what the site draws against what it may draw, where, and what sensors say of heat and cooling.

use super::grafana::{Dashboard, Panel, Row, Shape, Steps, Variable};

pub(super) static DASHBOARD: Dashboard = Dashboard {
    uid: "joulie-facility",
    title: "Joulie: facility",
    about: "What the site draws against what it may draw, where, and what the building says of heat and cooling.",
    variables: &[Variable { name: "group", query: "joulie_operator_budget_watts", label: "group" }],
    rows: &[
        Row { title: "Power", closed: false, panels: POWER },
        Row { title: "Building", closed: false, panels: BUILDING },
        Row { title: "Heat and pods", closed: false, panels: HEAT_AND_PODS },
    ],
};

const POWER: &[Panel] = &[
    Panel {
        title: "Measured now",
        about: "What meters of nodes show, all together. Nodes without a measurement are left out.",
        shape: Shape::Number,
        unit: "watt",
        width: 6,
        queries: &[(
            "sum(joulie_rapl_package_total_power_watts) + (sum(joulie_gpu_total_power_watts) or vector(0))",
            "packages and GPUs",
        )],
        steps: Steps::None,
    },
    Panel {
        title: "Limit of all",
        about: "The highest limit: that of the site, where there is one.",
        shape: Shape::Number,
        unit: "watt",
        width: 6,
        queries: &[(
            r#"max(joulie_operator_budget_watts{what="limit"} and on (instance) joulie_leader == 1)"#,
            "limit",
        )],
        steps: Steps::None,
    },
    Panel {
        title: "Nodes at full power",
        about: "Nodes that run at full power now.",
        shape: Shape::Number,
        unit: "short",
        width: 6,
        queries: &[(
            r#"sum(joulie_operator_node_state{state="ActivePerformance"} and on (instance) joulie_leader == 1)"#,
            "nodes",
        )],
        steps: Steps::None,
    },
    Panel {
        title: "Nodes that run capped",
        about: "Nodes that run in eco now.",
        shape: Shape::Number,
        unit: "short",
        width: 6,
        queries: &[(
            r#"sum(joulie_operator_node_state{state="ActiveEco"} and on (instance) joulie_leader == 1)"#,
            "nodes",
        )],
        steps: Steps::None,
    },
    Panel {
        title: "Power of all nodes",
        about: "Packages and GPUs of all nodes that are measured.",
        shape: Shape::Stack,
        unit: "watt",
        width: 12,
        queries: &[
            ("sum(joulie_rapl_package_total_power_watts)", "packages"),
            ("sum(joulie_gpu_total_power_watts)", "GPUs"),
        ],
        steps: Steps::None,
    },
    Panel {
        title: "Power against the limits",
        about: "Of each budget (site, rows, racks): its limit, what counts, and what is measured.",
        shape: Shape::Lines,
        unit: "watt",
        width: 12,
        queries: &[(
            r#"max by (group, what) (joulie_operator_budget_watts{what=~"limit|load|measured",group=~"$group"} and on (instance) joulie_leader == 1)"#,
            "{{group}} {{what}}",
        )],
        steps: Steps::None,
    },
    Panel {
        title: "Room under the limits",
        about: "What could still be granted under each budget.",
        shape: Shape::Lines,
        unit: "watt",
        width: 12,
        queries: &[(
            r#"max by (group) (joulie_operator_budget_watts{what="limit",group=~"$group"} and on (instance) joulie_leader == 1) - on (group) max by (group) (joulie_operator_budget_watts{what="load",group=~"$group"} and on (instance) joulie_leader == 1)"#,
            "{{group}}",
        )],
        steps: Steps::BadBelow(0.0),
    },
    Panel {
        title: "Nodes that draw most",
        about: "The ten nodes whose packages and GPUs draw most now.",
        shape: Shape::Bars,
        unit: "watt",
        width: 12,
        queries: &[(
            "topk(10, (max by (node) (joulie_rapl_package_total_power_watts) + on (node) max by (node) (joulie_gpu_total_power_watts)) or max by (node) (joulie_rapl_package_total_power_watts) or max by (node) (joulie_gpu_total_power_watts))",
            "{{node}}",
        )],
        steps: Steps::None,
    },
    Panel {
        title: "What observed limits would do",
        about: "Watts by which nodes would be lowered if a budget that is only observed were enforced.",
        shape: Shape::Lines,
        unit: "watt",
        width: 12,
        queries: &[(
            r#"max by (group) (joulie_operator_budget_watts{what="would_lower",group=~"$group"} and on (instance) joulie_leader == 1)"#,
            "{{group}}",
        )],
        steps: Steps::None,
    },
    Panel {
        title: "Power at other meters",
        about: "What a node draws by each source that the operator asks itself, such as the plug or Kepler.",
        shape: Shape::Lines,
        unit: "watt",
        width: 12,
        queries: &[(
            "max by (node, source) (joulie_operator_node_power_watts and on (instance) joulie_leader == 1)",
            "{{node}} {{source}}",
        )],
        steps: Steps::None,
    },
];

const BUILDING: &[Panel] = &[
    Panel {
        title: "IT and cooling",
        about: "The power of all machines and of the cooling, by the building's meters.",
        shape: Shape::Lines,
        unit: "watt",
        width: 8,
        queries: &[(
            r#"max by (what) (joulie_operator_facility{what=~"it_watts|cooling_watts"} and on (instance) joulie_leader == 1)"#,
            "{{what}}",
        )],
        steps: Steps::None,
    },
    Panel {
        title: "PUE",
        about: "All power divided by that of the machines.",
        shape: Shape::Lines,
        unit: "short",
        width: 8,
        queries: &[(
            r#"max(joulie_operator_facility{what="pue"} and on (instance) joulie_leader == 1)"#,
            "PUE",
        )],
        steps: Steps::WarnFrom(1.6, 2.0),
    },
    Panel {
        title: "Temperatures",
        about: "Of the building and of its zones.",
        shape: Shape::Lines,
        unit: "celsius",
        width: 8,
        queries: &[(
            r#"max by (place) (joulie_operator_facility{what="ambient_celsius"} and on (instance) joulie_leader == 1)"#,
            "{{place}}",
        )],
        steps: Steps::WarnFrom(27.0, 32.0),
    },
    Panel {
        title: "Power of racks",
        about: "By the meters of the racks.",
        shape: Shape::Lines,
        unit: "watt",
        width: 8,
        queries: &[(
            r#"max by (place) (joulie_operator_facility{what="rack_watts"} and on (instance) joulie_leader == 1)"#,
            "{{place}}",
        )],
        steps: Steps::None,
    },
    Panel {
        title: "Age of the sensors",
        about: "How old the last good value is. An old one may make nodes look worse, never better.",
        shape: Shape::Lines,
        unit: "s",
        width: 8,
        queries: &[(
            "min by (what, place) (joulie_operator_facility_age_seconds and on (instance) joulie_leader == 1)",
            "{{what}} {{place}}",
        )],
        steps: Steps::WarnFrom(300.0, 600.0),
    },
    Panel {
        title: "Queries to Prometheus",
        about: "Questions of the operator each second, by what came of them.",
        shape: Shape::Lines,
        unit: "cps",
        width: 8,
        queries: &[(
            "sum by (purpose, result) (rate(joulie_operator_prometheus_queries_total[5m]))",
            "{{purpose}} {{result}}",
        )],
        steps: Steps::None,
    },
];

const HEAT_AND_PODS: &[Panel] = &[
    Panel {
        title: "Nodes marked with a stress",
        about: "Nodes that are too hot or whose supply is too full, so that standard pods keep away.",
        shape: Shape::Lines,
        unit: "short",
        width: 8,
        queries: &[("max(joulie_operator_marked_nodes and on (instance) joulie_leader == 1)", "nodes")],
        steps: Steps::None,
    },
    Panel {
        title: "Pods that would better run elsewhere",
        about: "By the reason, and by whether a better node is known.",
        shape: Shape::Lines,
        unit: "short",
        width: 8,
        queries: &[(
            "max by (reason, target) (joulie_operator_recommended_pods and on (instance) joulie_leader == 1)",
            "{{reason}}, target {{target}}",
        )],
        steps: Steps::None,
    },
    Panel {
        title: "Evictions",
        about: "Evictions in the last hour, by what came of them.",
        shape: Shape::Lines,
        unit: "short",
        width: 8,
        queries: &[("sum by (result) (increase(joulie_operator_evictions_total[1h]))", "{{result}}")],
        steps: Steps::None,
    },
];
