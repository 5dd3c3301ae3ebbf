//! What `kubectl joulie doctor` asks for is what the roles of the chart give, part by part.

use crate::values::rendered;
use install::roles::role_rights;
use install::{Helm, NAMESPACE, deploy};
use kubectl_joulie::{RightScope, RightsPart};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Where, the group, the kind, the only name (or none), and what may be done.
type Allowed = (RightScope, String, String, String, String);

/// An account, and what it has beside the base.
type More = (&'static str, &'static [RightsPart]);

use RightsPart::{
    Agent, Bind, Bounds, Cards, Claims, Evictions, Extender, GpuRepair, Ledger, Operator, Page, Placement,
    Pool, Scrapers, Slices, Victims,
};

const BASE: [More; 4] = [
    ("joulie-operator", &[Operator]),
    ("joulie-agent", &[Agent]),
    ("joulie-agent-pool", &[Agent, Pool]),
    ("joulie-extender", &[Extender]),
];

/// Values beside those of both kinds of agents, and what they give.
const CASES: [(&str, &[More]); 13] = [
    ("operator.replicas=2", &[]),
    ("operator.ui=read", &[("joulie-operator", &[Page])]),
    ("operator.config.PERFORMANCE_NODES_MAX=2", &[("joulie-operator", &[Bounds])]),
    ("operator.env.PERFORMANCE_NAMESPACES=train", &[("joulie-operator", &[Bounds])]),
    ("operator.rescheduling.enabled=true", &[("joulie-operator", &[Evictions])]),
    // The Secret of the controllers is mounted, and nodes may be patched anyway.
    ("operator.sleep.enabled=true,operator.sleep.secret=bmc", &[]),
    ("agent.energyLedger.enabled=true", &[("joulie-agent", &[Ledger])]),
    ("gpuPlacement.enabled=true", &[("joulie-agent", &[Cards]), ("joulie-extender", &[Placement])]),
    (
        "gpuPlacement.enabled=true,gpuPlacement.dra=read",
        &[("joulie-agent", &[Cards, Slices]), ("joulie-extender", &[Placement, Claims])],
    ),
    (
        "gpuPlacement.enabled=true,gpuPlacement.bind=true",
        &[
            ("joulie-agent", &[Cards]),
            ("joulie-extender", &[Placement, Victims, Bind]),
            ("joulie-operator", &[GpuRepair]),
        ],
    ),
    (
        "gpuPlacement.enabled=true,gpuPlacement.bind=true,gpuPlacement.bindAccount=own",
        &[
            ("joulie-agent", &[Cards]),
            ("joulie-extender", &[Placement, Victims]),
            ("joulie-binder", &[Extender, Placement, Victims, Bind]),
            ("joulie-operator", &[GpuRepair]),
        ],
    ),
    (
        "metricsTls.enabled=true,metricsAuth.enabled=true",
        &[
            ("joulie-operator", &[Scrapers]),
            ("joulie-agent", &[Scrapers]),
            ("joulie-agent-pool", &[Scrapers]),
            ("joulie-extender", &[Scrapers]),
        ],
    ),
    // Nobody's of the programs: a second kube-scheduler, and the simulator's account.
    (
        "scheduler.enabled=true,scheduler.image.repository=kube-scheduler,scheduler.image.tag=v1.36.3,simulator.enabled=true",
        &[],
    ),
];

/// The accounts of the programs that doctor asks about.
const ACCOUNTS: [&str; 5] =
    ["joulie-operator", "joulie-agent", "joulie-agent-pool", "joulie-extender", "joulie-binder"];

fn scope(namespace: Option<&str>) -> RightScope {
    match namespace {
        None => RightScope::Cluster,
        Some(NAMESPACE) => RightScope::Installation,
        Some("default") => RightScope::Default,
        Some(other) => panic!("a role in namespace {other}"),
    }
}

/// What the roles give, by account.
fn given(objects: &[Value]) -> BTreeMap<String, BTreeSet<Allowed>> {
    let mut all: BTreeMap<String, BTreeSet<Allowed>> = BTreeMap::new();
    let of_programs = |account: &String| ACCOUNTS.contains(&account.as_str());
    for right in role_rights(objects).into_iter().filter(|right| right.accounts.iter().any(of_programs)) {
        let scope = scope(right.namespace.as_deref());
        let names = if right.names.is_empty() { vec![String::new()] } else { right.names };
        for account in right.accounts.iter().filter(|account| of_programs(account)) {
            let of = all.entry(account.clone()).or_default();
            of.extend(names.iter().map(|name| {
                (scope, right.group.clone(), right.resource.clone(), name.clone(), right.verb.clone())
            }));
        }
    }
    all
}

/// What doctor asks for, by account.
fn asked(more: &[More]) -> BTreeMap<String, BTreeSet<Allowed>> {
    let mut all: BTreeMap<String, BTreeSet<Allowed>> = BTreeMap::new();
    for (account, parts) in BASE.iter().chain(more) {
        let of = all.entry((*account).to_owned()).or_default();
        for right in parts.iter().flat_map(|part| part.rights()) {
            let names = if right.names.is_empty() { &[""] } else { right.names };
            for (resource, name) in
                right.resources.iter().flat_map(|one| names.iter().map(move |name| (one, name)))
            {
                let row = |verb: &&str| {
                    let [group, resource, name, verb] =
                        [right.group, resource, name, *verb].map(str::to_owned);
                    (right.scope, group, resource, name, verb)
                };
                of.extend(right.verbs.iter().map(row));
            }
        }
    }
    all
}

fn values(case: &str) -> [String; 4] {
    [
        "--set".to_owned(),
        "agent.mode=both,agent.pool.replicas=1".to_owned(),
        "--set".to_owned(),
        case.to_owned(),
    ]
}

#[test]
fn doctor_asks_for_what_the_roles_of_each_part_give_and_for_nothing_else() {
    let Some(helm) = Helm::or_skip() else { return };
    let mut seen = BTreeSet::new();
    for (case, more) in CASES {
        let flags = values(case);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let (given, asked) = (given(&rendered(&helm, &flags)), asked(more));
        for account in ACCOUNTS {
            let (given, asked) = (
                given.get(account).cloned().unwrap_or_default(),
                asked.get(account).cloned().unwrap_or_default(),
            );
            let forgotten: Vec<_> = given.difference(&asked).collect();
            let too_much: Vec<_> = asked.difference(&given).collect();
            assert!(
                forgotten.is_empty(),
                "{case}: {account} has what doctor does not ask for: {forgotten:#?}"
            );
            assert!(
                too_much.is_empty(),
                "{case}: doctor asks for what {account} does not have: {too_much:#?}"
            );
        }
        seen.extend(BASE.iter().chain(more).flat_map(|(_, parts)| parts.iter().copied()));
    }
    assert_eq!(seen, RightsPart::ALL.into_iter().collect(), "a part that no case switches on");
}

/// The lines of each rule in a text of YAML or of a template, from the groups to the verbs.
fn rules(text: &str) -> BTreeSet<String> {
    let (mut all, mut rule) = (BTreeSet::new(), String::new());
    for line in text.lines().map(str::trim) {
        if line.starts_with("- apiGroups: ") {
            rule = line.to_owned();
        } else if line.starts_with("resources: ") {
            rule.push_str(line);
        } else if line.starts_with("verbs: ") && !rule.is_empty() {
            all.insert(std::mem::take(&mut rule) + line);
        }
    }
    all
}

/// A role behind a value that no case sets would be compared with nothing.
#[test]
fn every_rule_in_the_templates_is_in_one_of_the_cases() {
    let Some(helm) = Helm::or_skip() else { return };
    let mut written = BTreeSet::new();
    for entry in std::fs::read_dir(deploy().join("chart/templates")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            written.extend(rules(&std::fs::read_to_string(path).unwrap()));
        }
    }
    let mut shown = BTreeSet::new();
    for (case, _) in CASES {
        let flags = values(case);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        shown.extend(rules(&helm.template("chart", &flags).unwrap()));
    }
    assert!(written.len() > 25, "{written:#?}");
    let unseen: Vec<_> = written.difference(&shown).collect();
    assert!(unseen.is_empty(), "set a value in CASES that renders these: {unseen:#?}");
}
