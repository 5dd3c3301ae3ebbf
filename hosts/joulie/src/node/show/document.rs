//! The JSON form of `joulie node show`. Its names are stable and described in docs/OPERATE.md; fields are only ever
//! added. A null means absent or unknown. If it is unknown, the object `unknown` beside it has the field's name and
//! the reason.

use crate::node::show::{AtPlug, setting};
use crate::node::view::{Device, Policies, View};
use crate::node::words::Fact;
use power_units::{KiloHertz, Micros, Role, Watts};
use serde_json::{Map, Number, Value, json};

pub(super) fn of(view: &View, plug: &AtPlug) -> String {
    let mut root = Fields::new();
    root.put("format", json!("joulie node"));
    root.put("version", json!(1));
    root.put("machine", json!(view.machine));
    root.put("packages", view.packages.iter().map(device).collect());
    root.put("gpus", view.gpus.iter().map(device).collect());
    root.put("policies", policies(&view.policies));
    root.put("fallback", json!({ "possible": view.fallback.is_ok(), "why_not": view.fallback.err() }));
    root.fact("power_watts", &view.power, |&(power, _)| watts(power));
    root.fact("plug_watts", plug, |&(_, power)| watts(power));
    root.put("plug_source", if let Fact::Is((name, _)) = plug { json!(name) } else { Value::Null });
    let backends = view.backends.iter().map(|backend| {
        json!({
            "name": backend.name,
            "standing": backend.standing,
            "domains": backend.domains,
            "complaints": backend.complaints,
        })
    });
    root.put("backends", backends.collect());
    root.put("journal", journal(view));
    let writer = view
        .writer
        .as_ref()
        .map_or_else(|why| Fact::Unknown(why.clone()), |holder| holder.clone().map_or(Fact::None, Fact::Is));
    root.fact("writer", &writer, |holder| json!(holder));
    format!("{:#}\n", root.end())
}

fn device(device: &Device) -> Value {
    let mut fields = Fields::new();
    fields.put("key", json!(device.key));
    fields.fact("backend", &device.backend, |name| json!(name));
    fields.fact("min_watts", &device.min, |&min| watts(min));
    fields.fact("max_watts", &device.max, |&max| watts(max));
    fields.fact("limit_watts", &device.limit, |&limit| watts(limit));
    fields.fact("ours", &device.ours, |ours| json!(ours));
    fields.fact("power_watts", &device.power, |&(power, _)| watts(power));
    fields.fact("power_over_seconds", &device.power, |&(_, over)| seconds(over));
    fields.fact("dram_watts", &device.dram, |&(power, _)| watts(power));
    let state = &device.state;
    fields.fact("temperature_celsius", &state.temperature, |it| number(&format!("{it:.3}")));
    fields.fact("utilisation_percent", &state.utilisation, |it| number(&format!("{it:.3}")));
    fields.fact("memory_used_bytes", &state.memory, |it| json!(it.used_bytes()));
    fields.fact("memory_total_bytes", &state.memory, |it| json!(it.total_bytes()));
    fields.fact("slowed_by", &state.slowdowns, |it| it.iter().map(|cause| json!(cause.label())).collect());
    fields.fact("throttled_percent", &state.throttled, |it| number(&format!("{it:.3}")));
    let clock = device.clock.as_ref();
    let none = Fact::None;
    let range = clock.map_or(Fact::None, |clock| Fact::Is(clock.range));
    fields.fact("clock_min_khz", &range, |&(min, _)| khz(min));
    fields.fact("clock_max_khz", &range, |&(_, max)| khz(max));
    fields.fact("clock_limit_khz", clock.map_or(&none, |clock| &clock.limit), |&limit| khz(limit));
    fields.fact("clock_ours", &clock.map_or(Fact::None, |clock| clock.ours.clone()), |ours| json!(ours));
    fields.fact("clock_khz", clock.map_or(&none, |clock| &clock.running), |&running| khz(running));
    fields.end()
}

fn policies(policies: &Policies) -> Value {
    let mut fields = Fields::new();
    fields.put("count", json!(policies.count));
    fields.fact("min_khz", &policies.range, |&(min, _)| khz(min));
    fields.fact("max_khz", &policies.range, |&(_, max)| khz(max));
    fields.fact("lowest_limit_khz", &policies.limits, |&(low, _)| khz(low));
    fields.fact("highest_limit_khz", &policies.limits, |&(_, high)| khz(high));
    fields.end()
}

fn journal(view: &View) -> Value {
    match &view.journal {
        Err(why) => json!({ "originals": null, "void": null, "unknown": { "originals": why, "void": why } }),
        Ok(originals) => {
            let entries = originals.entries.iter().map(|entry| {
                json!({
                    "key": entry.domain.as_str(),
                    "backend": entry.backend.label(),
                    "control": entry.control.label(),
                    "was": entry.was.map(setting),
                })
            });
            json!({ "originals": entries.collect::<Value>(), "void": originals.void, "unknown": {} })
        }
    }
}

/// The fields of an object, and why some of them are unknown.
struct Fields {
    known: Map<String, Value>,
    unknown: Map<String, Value>,
}

impl Fields {
    fn new() -> Self {
        Self { known: Map::new(), unknown: Map::new() }
    }

    fn put(&mut self, name: &str, value: Value) {
        self.known.insert(name.to_owned(), value);
    }

    fn fact<T>(&mut self, name: &str, fact: &Fact<T>, say: impl Fn(&T) -> Value) {
        let value = match fact {
            Fact::Is(value) => say(value),
            Fact::None => Value::Null,
            Fact::Unknown(why) => {
                self.unknown.insert(name.to_owned(), json!(why));
                Value::Null
            }
        };
        self.put(name, value);
    }

    fn end(mut self) -> Value {
        self.known.insert("unknown".to_owned(), Value::Object(self.unknown));
        Value::Object(self.known)
    }
}

/// A number from its decimal text.
fn number(text: &str) -> Value {
    text.parse::<f64>().ok().and_then(Number::from_f64).map_or(Value::Null, Value::Number)
}

fn watts(watts: Watts) -> Value {
    number(&format!("{watts:.3}"))
}

fn seconds(span: Micros) -> Value {
    number(&format!("{}.{:06}", span.get() / 1_000_000, span.get() % 1_000_000))
}

fn khz(frequency: KiloHertz) -> Value {
    json!(frequency.to_whole(Role::Nearest))
}
