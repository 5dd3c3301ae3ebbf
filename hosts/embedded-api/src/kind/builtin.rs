//! The built-in kinds: their schemas come from k8s-openapi, and the tables below add what these lack.

use super::{Cell, Column, Flavour, Kind, Registry};
use crate::jsonpath::JsonPath;
use crate::schema::Definitions;
use crate::table::cells;
use k8s_openapi::api::{apps::v1 as apps, batch::v1 as batch, coordination::v1 as coordination};
use k8s_openapi::api::{core::v1 as core, events::v1 as events, policy::v1 as policy};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
use k8s_openapi::{ClusterResourceScope, Metadata, NamespaceResourceScope};
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Lists that merge by key or as a set, which the schemas of k8s-openapi do not state.
const LISTS: &[(&str, &str, &[&str])] = &[
    ("apimachinery.pkg.apis.meta.v1.ObjectMeta", "finalizers", &[]),
    ("apimachinery.pkg.apis.meta.v1.ObjectMeta", "ownerReferences", &["uid"]),
    ("api.core.v1.NodeSpec", "podCIDRs", &[]),
    ("api.core.v1.NodeStatus", "conditions", &["type"]),
    ("api.core.v1.NodeStatus", "addresses", &["type"]),
    ("api.core.v1.PodSpec", "containers", &["name"]),
    ("api.core.v1.PodSpec", "initContainers", &["name"]),
    ("api.core.v1.PodSpec", "ephemeralContainers", &["name"]),
    ("api.core.v1.PodSpec", "volumes", &["name"]),
    ("api.core.v1.PodSpec", "imagePullSecrets", &["name"]),
    ("api.core.v1.PodSpec", "hostAliases", &["ip"]),
    ("api.core.v1.PodSpec", "schedulingGates", &["name"]),
    ("api.core.v1.PodSpec", "resourceClaims", &["name"]),
    ("api.core.v1.PodSpec", "topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"]),
    ("api.core.v1.PodStatus", "conditions", &["type"]),
    ("api.core.v1.PodStatus", "podIPs", &["ip"]),
    ("api.core.v1.Container", "env", &["name"]),
    ("api.core.v1.Container", "ports", &["containerPort", "protocol"]),
    ("api.core.v1.Container", "volumeMounts", &["mountPath"]),
    ("api.core.v1.Container", "volumeDevices", &["devicePath"]),
    ("api.core.v1.NamespaceStatus", "conditions", &["type"]),
    ("api.policy.v1.PodDisruptionBudgetStatus", "conditions", &["type"]),
];

/// Maps that one manager owns as a whole.
const ATOMIC_MAPS: &[&str] = &[
    "apimachinery.pkg.apis.meta.v1.LabelSelector",
    "apimachinery.pkg.apis.meta.v1.OwnerReference",
    "api.core.v1.ObjectReference",
    "api.core.v1.NodeSelector",
    "api.core.v1.NodeSelectorTerm",
    "api.core.v1.LocalObjectReference",
    "api.core.v1.ObjectFieldSelector",
    "api.core.v1.ConfigMapKeySelector",
    "api.core.v1.SecretKeySelector",
    "api.core.v1.ResourceFieldSelector",
];

/// Defaults that readers of pods rely on.
const DEFAULTS: &[(&str, &str, &str)] = &[
    ("api.core.v1.PodSpec", "restartPolicy", "\"Always\""),
    ("api.core.v1.PodSpec", "dnsPolicy", "\"ClusterFirst\""),
    ("api.core.v1.PodSpec", "schedulerName", "\"default-scheduler\""),
    ("api.core.v1.PodSpec", "terminationGracePeriodSeconds", "30"),
    ("api.core.v1.PodSpec", "securityContext", "{}"),
    ("api.core.v1.PodSpec", "enableServiceLinks", "true"),
    ("api.core.v1.Container", "terminationMessagePath", "\"/dev/termination-log\""),
    ("api.core.v1.Container", "terminationMessagePolicy", "\"File\""),
    ("api.core.v1.Container", "imagePullPolicy", "\"IfNotPresent\""),
    ("api.core.v1.Container", "resources", "{}"),
    ("api.core.v1.ContainerPort", "protocol", "\"TCP\""),
];

/// The registry with the kinds that are always served.
pub(crate) fn registry() -> Registry {
    let mut generator = SchemaSettings::draft07().into_generator();
    let served = kinds(&mut generator);
    let raw = generator.take_definitions(true);
    let mut raw: BTreeMap<String, Value> = raw.into_iter().collect();
    say_more(&mut raw);
    let mut registry = Registry { kinds: BTreeMap::new(), definitions: Definitions::new(raw, true) };
    for mut kind in served {
        kind.schema = registry.definitions.named(&kind.openapi.0);
        if let Some(raw) = registry.definitions.raw.get_mut(&kind.openapi.0) {
            raw["x-kubernetes-group-version-kind"] =
                json!([{"group": kind.group, "version": kind.version, "kind": kind.kind}]);
        }
        registry.serve(kind);
    }
    registry
}

/// Adds the data of the tables above.
fn say_more(raw: &mut BTreeMap<String, Value>) {
    for (definition, field, keys) in LISTS {
        let Some(schema) = raw.get_mut(&format!("io.k8s.{definition}")) else { continue };
        let list = &mut schema["properties"][*field];
        if keys.is_empty() {
            list["x-kubernetes-list-type"] = json!("set");
        } else {
            list["x-kubernetes-list-type"] = json!("map");
            list["x-kubernetes-list-map-keys"] = json!(keys);
        }
    }
    for definition in ATOMIC_MAPS {
        if let Some(schema) = raw.get_mut(&format!("io.k8s.{definition}")) {
            schema["x-kubernetes-map-type"] = json!("atomic");
        }
    }
    for (definition, field, default) in DEFAULTS {
        let Some(schema) = raw.get_mut(&format!("io.k8s.{definition}")) else { continue };
        let field = &mut schema["properties"][*field];
        // A `$ref` must not have siblings, so it is moved into `allOf`.
        if let Some(reference) = field.get("$ref").cloned() {
            *field = json!({"allOf": [{"$ref": reference}]});
        }
        field["default"] = serde_json::from_str(default).unwrap_or_default();
    }
}

fn kinds(generator: &mut SchemaGenerator) -> Vec<Kind> {
    let mut kinds = vec![
        cluster::<core::Namespace>(generator, "namespaces", "ns", Flavour::Namespace),
        cluster::<core::Node>(generator, "nodes", "no", Flavour::Node),
        namespaced::<core::Pod>(generator, "pods", "po", Flavour::Pod),
        namespaced::<core::Event>(generator, "events", "ev", Flavour::Event),
        namespaced::<core::ConfigMap>(generator, "configmaps", "cm", Flavour::Plain),
        namespaced::<core::Service>(generator, "services", "svc", Flavour::Plain),
        namespaced::<core::ServiceAccount>(generator, "serviceaccounts", "sa", Flavour::Plain),
        namespaced::<events::Event>(generator, "events", "ev", Flavour::EventView),
        namespaced::<coordination::Lease>(generator, "leases", "", Flavour::Lease),
        namespaced::<policy::PodDisruptionBudget>(generator, "poddisruptionbudgets", "pdb", Flavour::Budget),
        namespaced::<apps::ReplicaSet>(generator, "replicasets", "rs", Flavour::Workload),
        namespaced::<apps::StatefulSet>(generator, "statefulsets", "sts", Flavour::Workload),
        namespaced::<apps::Deployment>(generator, "deployments", "deploy", Flavour::Workload),
        namespaced::<apps::DaemonSet>(generator, "daemonsets", "ds", Flavour::Workload),
        namespaced::<batch::Job>(generator, "jobs", "", Flavour::Workload),
        cluster::<apiextensions::CustomResourceDefinition>(
            generator,
            "customresourcedefinitions",
            "crd",
            Flavour::Definition,
        ),
    ];
    for kind in &mut kinds {
        kind.columns = cells::built_in(kind.flavour);
        kind.selectable = selectable(kind.flavour);
        kind.status =
            !matches!(kind.flavour, Flavour::Plain | Flavour::Event | Flavour::EventView | Flavour::Lease);
        if kind.flavour == Flavour::Pod {
            kind.categories.push("all".to_owned());
        }
    }
    kinds
}

fn cluster<T>(generator: &mut SchemaGenerator, plural: &str, short: &str, flavour: Flavour) -> Kind
where
    T: JsonSchema + Metadata<Scope = ClusterResourceScope>,
{
    kind::<T>(generator, (plural, short), flavour, false)
}

fn namespaced<T>(generator: &mut SchemaGenerator, plural: &str, short: &str, flavour: Flavour) -> Kind
where
    T: JsonSchema + Metadata<Scope = NamespaceResourceScope>,
{
    kind::<T>(generator, (plural, short), flavour, true)
}

fn kind<T: JsonSchema + Metadata>(
    generator: &mut SchemaGenerator,
    (plural, short): (&str, &str),
    flavour: Flavour,
    namespaced: bool,
) -> Kind {
    generator.subschema_for::<T>();
    let core_events = T::GROUP.is_empty() || flavour == Flavour::EventView;
    let resource = if core_events { plural.to_owned() } else { format!("{plural}.{}", T::GROUP) };
    Kind {
        group: T::GROUP.to_owned(),
        version: T::VERSION.to_owned(),
        plural: plural.to_owned(),
        singular: T::KIND.to_lowercase(),
        kind: T::KIND.to_owned(),
        short_names: if short.is_empty() { Vec::new() } else { vec![short.to_owned()] },
        categories: Vec::new(),
        namespaced,
        status: false,
        flavour,
        resource: resource.into(),
        schema: Arc::default(),
        openapi: (T::schema_name().into_owned(), None),
        columns: Vec::new(),
        selectable: Vec::new(),
    }
}

/// The selectable fields besides name and namespace.
fn selectable(flavour: Flavour) -> Vec<(String, JsonPath)> {
    let paths: &[&str] = match flavour {
        Flavour::Node => &["spec.unschedulable"],
        Flavour::Pod => &["spec.nodeName", "status.phase", "spec.schedulerName", "spec.restartPolicy"],
        Flavour::Namespace => &["status.phase"],
        Flavour::Event | Flavour::EventView => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "type",
        ],
        Flavour::Plain
        | Flavour::Workload
        | Flavour::Lease
        | Flavour::Budget
        | Flavour::Definition
        | Flavour::Custom => &[],
    };
    let parsed = paths.iter().filter_map(|path| Some(((*path).to_owned(), JsonPath::parse(path)?)));
    parsed.collect()
}

/// The column that every kind has.
pub(super) fn age() -> Column {
    Column {
        name: "Age".to_owned(),
        of: "date".to_owned(),
        format: String::new(),
        description: "CreationTimestamp is the time when this object was created.".to_owned(),
        priority: 0,
        cell: Cell::Of(cells::age),
    }
}
