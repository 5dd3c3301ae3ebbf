//! The columns of the built-in kinds.

use crate::jsonpath::JsonPath;
use crate::kind::{Cell, Column, Flavour};
use jiff::Timestamp;
use serde_json::{Value, json};

type Of = fn(&Value, Timestamp) -> Value;

/// The columns after the name.
pub(crate) fn built_in(flavour: Flavour) -> Vec<Column> {
    let of = |name: &str, cell: Of| column(name, 0, Cell::Of(cell));
    let wide = |name: &str, cell: Of| column(name, 1, Cell::Of(cell));
    let path = |name: &str, path: &str| JsonPath::parse(path).map(|path| column(name, 0, Cell::Path(path)));
    let mut columns = match flavour {
        Flavour::Node => vec![of("Status", node_status), of("Roles", roles)],
        Flavour::Pod => vec![of("Ready", pod_ready), of("Status", pod_status), of("Restarts", restarts)],
        Flavour::Event | Flavour::EventView => vec![of("Last Seen", last_seen)],
        Flavour::Namespace => path("Status", ".status.phase").into_iter().collect(),
        Flavour::Lease => path("Holder", ".spec.holderIdentity").into_iter().collect(),
        Flavour::Budget => {
            let paths = [
                path("Min Available", ".spec.minAvailable"),
                path("Max Unavailable", ".spec.maxUnavailable"),
            ];
            paths.into_iter().flatten().collect()
        }
        Flavour::Definition => {
            vec![of("Created At", |object, _| object["metadata"]["creationTimestamp"].clone())]
        }
        Flavour::Plain | Flavour::Workload | Flavour::Custom => Vec::new(),
    };
    match flavour {
        Flavour::Event | Flavour::EventView => {
            columns.extend([path("Type", ".type"), path("Reason", ".reason")].into_iter().flatten());
            columns.push(of("Object", event_object));
            columns.extend(path("Message", if flavour == Flavour::Event { ".message" } else { ".note" }));
        }
        Flavour::Definition => {}
        Flavour::Plain
        | Flavour::Workload
        | Flavour::Node
        | Flavour::Pod
        | Flavour::Namespace
        | Flavour::Lease
        | Flavour::Budget
        | Flavour::Custom => columns.push(of("Age", age)),
    }
    match flavour {
        Flavour::Node => {
            columns.extend(path("Version", ".status.nodeInfo.kubeletVersion"));
            columns.push(wide("Internal-IP", internal_ip));
        }
        Flavour::Pod => {
            columns.push(wide("IP", |pod, _| pod["status"]["podIP"].clone()));
            columns.push(wide("Node", |pod, _| pod["spec"]["nodeName"].clone()));
        }
        Flavour::Plain
        | Flavour::Workload
        | Flavour::Namespace
        | Flavour::Lease
        | Flavour::Event
        | Flavour::EventView
        | Flavour::Budget
        | Flavour::Definition
        | Flavour::Custom => {}
    }
    columns
}

fn column(name: &str, priority: i32, cell: Cell) -> Column {
    let (of, format, description) = ("string".to_owned(), String::new(), String::new());
    Column { name: name.to_owned(), of, format, description, priority, cell }
}

/// The time since the object was created.
pub(crate) fn age(object: &Value, now: Timestamp) -> Value {
    since(&object["metadata"]["creationTimestamp"], now)
}

/// The age of a time, in kubectl's format.
pub(crate) fn since(time: &Value, now: Timestamp) -> Value {
    let then = time.as_str().and_then(|text| text.parse::<Timestamp>().ok());
    json!(then.map_or_else(|| "<unknown>".to_owned(), |then| duration(now.as_second() - then.as_second())))
}

/// A duration in at most two units.
fn duration(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |large: i64, unit: &str, small: i64, rest: &str| match small {
        0 => format!("{large}{unit}"),
        small => format!("{large}{unit}{small}{rest}"),
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1..0 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{days}d"),
        _ => two(days / 365, "y", days % 365, "d"),
    }
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn node_status(node: &Value, _: Timestamp) -> Value {
    let ready = items(&node["status"]["conditions"]).find(|condition| condition["type"] == "Ready");
    let ready = match ready.map(|condition| condition["status"] == "True") {
        Some(true) => "Ready",
        Some(false) => "NotReady",
        None => "Unknown",
    };
    let cordoned = node["spec"]["unschedulable"] == true;
    json!(if cordoned { format!("{ready},SchedulingDisabled") } else { ready.to_owned() })
}

fn roles(node: &Value, _: Timestamp) -> Value {
    let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    let roles: Vec<_> = labels.filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/")).collect();
    json!(if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") })
}

fn internal_ip(node: &Value, _: Timestamp) -> Value {
    let address = items(&node["status"]["addresses"]).find(|address| address["type"] == "InternalIP");
    address.map_or_else(|| json!("<none>"), |address| address["address"].clone())
}

fn pod_ready(pod: &Value, _: Timestamp) -> Value {
    let ready = items(&pod["status"]["containerStatuses"]).filter(|status| status["ready"] == true).count();
    json!(format!("{ready}/{}", items(&pod["spec"]["containers"]).count()))
}

fn pod_status(pod: &Value, _: Timestamp) -> Value {
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        return json!("Terminating");
    }
    let waiting = items(&pod["status"]["containerStatuses"])
        .find_map(|status| status["state"]["waiting"]["reason"].as_str());
    let said = pod["status"]["reason"].as_str().or(waiting);
    json!(said.or(pod["status"]["phase"].as_str()).unwrap_or("Unknown"))
}

fn restarts(pod: &Value, _: Timestamp) -> Value {
    let restarts =
        items(&pod["status"]["containerStatuses"]).filter_map(|status| status["restartCount"].as_u64());
    json!(restarts.sum::<u64>().to_string())
}

fn last_seen(event: &Value, now: Timestamp) -> Value {
    let times = ["lastTimestamp", "deprecatedLastTimestamp", "eventTime", "firstTimestamp"];
    let time = times.iter().map(|name| &event[*name]).find(|time| !time.is_null());
    since(time.unwrap_or(&event["metadata"]["creationTimestamp"]), now)
}

fn event_object(event: &Value, _: Timestamp) -> Value {
    let about = if event["regarding"].is_null() { &event["involvedObject"] } else { &event["regarding"] };
    let kind = about["kind"].as_str().unwrap_or("").to_lowercase();
    json!(format!("{kind}/{}", about["name"].as_str().unwrap_or("")))
}

#[cfg(test)]
mod tests {
    #[test]
    fn ages_read_as_kubectl_tells_them() {
        let told = [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_860, "3h1m"),
            (28_800, "8h"),
            (172_800, "2d"),
            (180_000, "2d2h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (63_158_400, "2y1d"),
            (-10, "<invalid>"),
        ];
        for (seconds, text) in told {
            assert_eq!(super::duration(seconds), text);
        }
    }
}
