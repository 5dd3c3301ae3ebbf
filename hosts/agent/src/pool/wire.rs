//! The format of the HTTP contract: telemetry, requests to a control, and their answers (facts/agent.md section 12).
//! Every field may be missing. An impossible value is not taken for a number.

use crate::counts::Refused;
use joulie_api::number::Number;
use planner::inventory::{GPUS_MAX, PROCESSORS_MAX, SOCKETS_MAX};
use power_units::{Role, Watts};
use serde::Deserialize;
use serde_json::{Value, json};

/// The largest answer that is read.
pub(super) const BYTES_MOST: usize = 1 << 20;
/// The kernel's boot ID has 36.
const BOOT_BYTES_MOST: usize = 64;
/// More than any node draws; a number above it is in another unit.
const WATTS_MOST: f64 = 1_000_000.0;

/// A number of watts, if the value is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Said {
    /// The value is missing or not a number, such as a text.
    #[default]
    Nothing,
    /// This many watts.
    Watts(Watts),
    /// The value is negative or too large.
    Impossible,
}

impl Said {
    fn of(value: &Value, role: Role) -> Self {
        let Some(number) = value.as_f64() else { return Self::Nothing };
        if !(0.0..=WATTS_MOST).contains(&number) {
            return Self::Impossible;
        }
        let text = Number::new(number).map(|number| number.to_string()).unwrap_or_default();
        Watts::parse(&text, role).map_or(Self::Impossible, Self::Watts)
    }

    /// The value as a limit; zero is none.
    pub(super) fn limit(self) -> Option<Watts> {
        match self {
            Self::Watts(watts) => Some(watts).filter(|&watts| watts > Watts::ZERO),
            Self::Nothing | Self::Impossible => None,
        }
    }

    pub(super) const fn watts(self) -> Option<Watts> {
        match self {
            Self::Watts(watts) => Some(watts),
            Self::Nothing | Self::Impossible => None,
        }
    }
}

/// What telemetry says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Telemetry {
    /// The boot ID.
    pub(super) boot: Option<String>,
    /// The power of all packages.
    pub(super) cpu: Said,
    pub(super) gpu: Said,
    pub(super) node: Said,
    /// The power of each package, if they are reported one by one.
    pub(super) packages: Vec<Said>,
    pub(super) sockets: Option<u32>,
    pub(super) cores: Option<u32>,
    pub(super) cpu_model: Option<String>,
    /// The limit in force for each package, and its range.
    pub(super) cap: Option<Watts>,
    pub(super) cap_min: Option<Watts>,
    pub(super) cap_max: Option<Watts>,
    pub(super) throttle: Option<i64>,
    /// The number of GPUs; `None` if telemetry says nothing of them.
    pub(super) gpus: Option<u32>,
    pub(super) gpu_vendor: Option<String>,
    pub(super) gpu_product: Option<String>,
    /// The power of each GPU, if they are reported one by one.
    pub(super) gpu_devices: Vec<Said>,
    pub(super) gpu_cap: Option<Watts>,
    pub(super) gpu_cap_min: Option<Watts>,
    pub(super) gpu_cap_max: Option<Watts>,
    /// Impossible counts.
    pub(super) refused: Refused,
}

/// The members of an answer that are read; the others are not even kept.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Members {
    #[serde(rename = "bootID")]
    boot_id: Value,
    cpu: Value,
    gpu: Value,
    hardware_model: Value,
    node_power_watts: Value,
    package_power_watts: Value,
}

impl Telemetry {
    /// Reads an answer; returns an error if it is not a JSON object.
    pub(super) fn read(body: &[u8]) -> Result<Self, String> {
        // A struct could be read from an array too.
        if body.trim_ascii_start().first() != Some(&b'{') {
            return Err("the answer is no JSON object".to_owned());
        }
        let members: Members = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let Members { boot_id, cpu, gpu, hardware_model, node_power_watts, package_power_watts } = &members;
        let mut refused = Refused::default();
        let mut count = |what: &str, value: &Value, within| {
            refused.number(&format!("the member {what} of the telemetry"), value, &within)
        };
        let sockets = count("cpu.sockets", &cpu["sockets"], 1..=SOCKETS_MAX);
        let cores = count("cpu.cores", &cpu["cores"], 0..=PROCESSORS_MAX);
        let listed = count("gpu.count", &gpu["count"], 0..=GPUS_MAX);
        let text =
            |value: &Value| value.as_str().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
        let demand = |value: &Value| Said::of(value, Role::Demand);
        let limit = |value: &Value| Said::of(value, Role::Limit).limit();
        // The processors' own power takes precedence: a simulator reports processors and GPUs together at the top
        // level.
        let of_cpu = demand(&cpu["packagePowerWatts"]);
        let total = demand(package_power_watts);
        let present = gpu["present"].as_bool();
        // An impossible count is none: that there is a GPU does not say how many there are.
        let one = present.map(u32::from).filter(|_| gpu["count"].is_null());
        // The commanded limit comes first: it shows whose it is, and the applied one may still be on its way there.
        let cap = [&cpu["raplCapWatts"], &cpu["targetCapWatts"], &cpu["capWatts"]];
        let gpu_cap = [&gpu["capWattsPerGpuTarget"], &gpu["capWattsPerGpuApplied"]];
        Ok(Self {
            boot: text(boot_id).filter(|boot| boot.len() <= BOOT_BYTES_MOST),
            cpu: if of_cpu == Said::Nothing { total } else { of_cpu },
            gpu: demand(&gpu["powerWattsTotal"]),
            node: demand(node_power_watts),
            packages: parts(&cpu["packages"], SOCKETS_MAX),
            sockets,
            cores,
            cpu_model: text(&hardware_model["cpuModel"]),
            cap: cap.into_iter().find_map(limit),
            cap_min: Said::of(&cpu["capMinWatts"], Role::Demand).limit(),
            cap_max: limit(&cpu["capMaxWatts"]),
            throttle: cpu["throttlePct"].as_f64().and_then(percent),
            gpus: if present == Some(false) { Some(0) } else { listed.or(one) },
            gpu_vendor: text(&gpu["vendor"]),
            gpu_product: text(&gpu["product"]),
            gpu_devices: parts(&gpu["devices"], GPUS_MAX),
            gpu_cap: gpu_cap.into_iter().find_map(limit),
            gpu_cap_min: Said::of(&gpu["capMinWattsPerGpu"], Role::Demand).limit(),
            gpu_cap_max: limit(&gpu["capMaxWattsPerGpu"]),
            refused,
        })
    }
}

impl Telemetry {
    /// With what another answer says of the GPUs instead.
    pub(super) fn with_gpus_of(self, other: &Self) -> Self {
        Self {
            boot: self.boot.or_else(|| other.boot.clone()),
            gpu: other.gpu,
            gpus: other.gpus,
            gpu_vendor: other.gpu_vendor.clone(),
            gpu_product: other.gpu_product.clone(),
            gpu_devices: other.gpu_devices.clone(),
            gpu_cap: other.gpu_cap,
            gpu_cap_min: other.gpu_cap_min,
            gpu_cap_max: other.gpu_cap_max,
            ..self
        }
    }
}

fn parts(value: &Value, most: u32) -> Vec<Said> {
    let all = value.as_array().into_iter().flatten();
    all.take(usize::try_from(most).unwrap_or(0))
        .map(|part| Said::of(&part["powerWatts"], Role::Demand))
        .collect()
}

/// A whole percentage; `None` outside of 0 to 100.
fn percent(number: f64) -> Option<i64> {
    Some(number)
        .filter(|number| (0.0..=100.0).contains(number))
        .and_then(|number| format!("{number:.0}").parse().ok())
}

/// A request to a control.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Action {
    /// The limit of each package.
    Cap(Watts),
    /// A throttle, and the cap that it is for; `None` if no cap is known.
    Throttle { percent: u8, cap: Option<Watts> },
    /// The limit of each GPU.
    GpuCap(Watts),
}

impl Action {
    /// The body of the request.
    pub(super) fn body(self, node: &str, now: &str) -> Value {
        let watts = |watts: Watts| json!(Number::from(watts));
        match self {
            Self::Cap(cap) => json!({
                "node": node, "action": "rapl.set_power_cap_watts", "capWatts": watts(cap), "throttlePct": -1,
                "ts": now,
            }),
            Self::Throttle { percent, cap } => json!({
                "node": node, "action": "dvfs.set_throttle_pct", "capWatts": watts(cap.unwrap_or(Watts::ZERO)),
                "throttlePct": percent, "ts": now,
            }),
            Self::GpuCap(cap) => json!({
                "node": node, "action": "gpu.set_power_cap_watts", "capWattsPerGpu": watts(cap), "ts": now,
            }),
        }
    }
}

/// The answer of a control. An endpoint may leave out every field.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Reply {
    ok: Option<bool>,
    result: Option<String>,
    message: Option<String>,
    state: Value,
}

/// The outcome of a request to a control.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Became {
    /// It was accepted, with the limit that was read back, if the answer contains it.
    Applied(Option<Watts>),
    /// The node has nothing to apply it to.
    Blocked(String),
    /// It is not in force.
    Error(String),
}

impl Became {
    /// Reads the body of an answer with a success status. By the contract of the first implementation, an endpoint that
    /// answers nothing has accepted the request; that does not say what is in force. An endpoint that reports something
    /// else is believed.
    pub(super) fn read(action: Action, body: &[u8]) -> Self {
        let reply: Reply = serde_json::from_slice(body).unwrap_or_default();
        let message = || reply.message.clone().unwrap_or_else(|| "the endpoint does not say why".to_owned());
        match (reply.result.as_deref(), reply.ok) {
            (Some("blocked"), _) => Self::Blocked(message()),
            (Some("applied"), _) | (None, Some(true) | None) => {
                Self::Applied(read_back(action, &reply.state))
            }
            (Some(_), _) | (None, Some(false)) => Self::Error(message()),
        }
    }
}

fn read_back(action: Action, state: &Value) -> Option<Watts> {
    let fields = match action {
        Action::Cap(_) => ["targetCapWatts", "capWatts"],
        Action::GpuCap(_) => ["gpuCapWattsPerGpuTarget", "gpuCapWattsPerGpuApplied"],
        Action::Throttle { .. } => return None,
    };
    fields.into_iter().find_map(|field| Said::of(&state[field], Role::Limit).limit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Telemetry {
        Telemetry::read(json.as_bytes()).unwrap()
    }

    fn watts(count: &str) -> Said {
        Said::Watts(Watts::parse(count, Role::Nearest).unwrap())
    }

    #[test]
    fn power_is_at_the_top_level_or_with_the_processors() {
        // Agent table, rows 8 and 9: floats and whole numbers are numbers, texts and null are not.
        assert_eq!(read(r#"{"packagePowerWatts":222.5}"#).cpu, watts("222.5"));
        assert_eq!(read(r#"{"cpu":{"packagePowerWatts":111}}"#).cpu, watts("111"));
        for nothing in [r#"{}"#, r#"{"packagePowerWatts":"200"}"#, r#"{"packagePowerWatts":null}"#] {
            assert_eq!(read(nothing).cpu, Said::Nothing, "{nothing}");
        }
    }

    #[test]
    fn the_loop_of_the_processors_does_not_fight_the_gpus() {
        // Fix list agent C5: the top level is processors and GPUs together.
        let both = read(r#"{"packagePowerWatts":900,"cpu":{"packagePowerWatts":200}}"#);
        assert_eq!(both.cpu, watts("200"));
    }

    #[test]
    fn of_two_answers_each_counts_for_its_devices() {
        let of = |boot: &str, watts: u32| {
            read(&format!(
                r#"{{"bootID":"{boot}","nodePowerWatts":{watts},"cpu":{{"packagePowerWatts":{watts},"sockets":2}},
                    "gpu":{{"present":true,"count":{watts},"powerWattsTotal":{watts},"capWattsPerGpuApplied":{watts}}}}}"#
            ))
        };
        let (cpu, gpu) = (of("one", 3), of("other", 4));
        let both = cpu.clone().with_gpus_of(&gpu);
        assert_eq!(
            (both.cpu, both.node, both.sockets, both.boot.as_deref()),
            (watts("3"), watts("3"), Some(2), Some("one"))
        );
        assert_eq!((both.gpu, both.gpus, both.gpu_cap), (watts("4"), Some(4), watts("4").limit()));
        let alone = Telemetry::default().with_gpus_of(&gpu);
        assert_eq!((alone.cpu, alone.node, alone.sockets), (Said::Nothing, Said::Nothing, None));
        assert_eq!((alone.gpu, alone.boot.as_deref()), (watts("4"), Some("other")));
        assert_eq!(cpu.with_gpus_of(&Telemetry::default()).gpus, None);
    }

    #[test]
    fn what_cannot_be_true_is_no_number() {
        for text in ["-1", "1e300", "1000001"] {
            let json = format!(r#"{{"packagePowerWatts":{text}}}"#);
            assert_eq!(read(&json).cpu, Said::Impossible, "{text}");
        }
        for junk in ["", "[]", "3", "{", "null"] {
            assert!(Telemetry::read(junk.as_bytes()).is_err(), "{junk}");
        }
        let odd = read(r#"{"cpu":{"sockets":0,"throttlePct":120,"capMaxWatts":-5},"gpu":[1]}"#);
        assert_eq!((odd.sockets, odd.throttle, odd.cap_max, odd.gpus), (None, None, None, None));
    }

    #[test]
    fn a_count_that_cannot_be_is_unknown_and_a_node_is_made_of_no_more_than_can_be() {
        for count in ["4000000000", "4e9", "9223372036854775808", "-1", "1e300", "\"NaN\"", "65"] {
            let told =
                read(&format!(r#"{{"cpu":{{"sockets":{count}}},"gpu":{{"present":true,"count":{count}}}}}"#));
            assert_eq!((told.sockets, told.gpus, told.refused.count()), (None, None, 2), "{count}: {told:?}");
        }
        let told = read(r#"{"cpu":{"sockets":2.0,"cores":128},"gpu":{"present":true,"count":8}}"#);
        assert_eq!((told.sockets, told.cores, told.gpus), (Some(2), Some(128), Some(8)));
        assert_eq!((read(r#"{"gpu":{"present":true}}"#).gpus, told.refused.count()), (Some(1), 0));
        let many = format!(r#"{{"cpu":{{"packages":[{}{{}}]}}}}"#, "{},".repeat(10_000));
        assert_eq!(read(&many).packages.len(), 64);
    }

    #[test]
    fn an_answer_is_believed() {
        // Fix list agent C4: blocked and error come with status 200.
        let cap = Action::Cap(Watts::from_int(120));
        let became = |body: &str| Became::read(cap, body.as_bytes());
        assert_eq!(
            became(r#"{"ok":false,"result":"blocked","message":"no"}"#),
            Became::Blocked("no".to_owned())
        );
        assert!(matches!(became(r#"{"result":"error"}"#), Became::Error(_)));
        assert!(matches!(became(r#"{"ok":false}"#), Became::Error(_)));
        assert!(matches!(became(r#"{"result":"maybe"}"#), Became::Error(_)));
        for silent in ["", "{}", "ok", r#"{"ok":true}"#] {
            assert_eq!(became(silent), Became::Applied(None), "{silent}");
        }
        let clamped = became(r#"{"result":"applied","state":{"capWatts":150.5}}"#);
        assert_eq!(clamped, Became::Applied(watts("150.5").watts()));
    }

    #[test]
    fn a_control_is_told_in_the_words_of_the_contract() {
        // Agent table, row 15.
        let body = Action::Throttle { percent: 30, cap: Some(Watts::from_int(120)) }.body("node-a", "T");
        let expected = json!({"node": "node-a", "action": "dvfs.set_throttle_pct", "capWatts": 120, "throttlePct": 30, "ts": "T"});
        assert_eq!(body, expected);
        assert_eq!(Action::Cap(Watts::from_int(120)).body("a", "T")["throttlePct"], -1);
        assert_eq!(Action::GpuCap(Watts::from_int(250)).body("a", "T")["capWattsPerGpu"], 250);
    }
}
