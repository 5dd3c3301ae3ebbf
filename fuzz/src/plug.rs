//! Property: of the answer of a management controller, in the bytes of DCMI or as a document of Redfish, no more is believed
//! than is in it: a power is above zero, possible, and the number that stands there, and a link leads to the same server. What
//! is refused is refused in a few words.

use agent::redfish;
use hal_plug::{CompletionCode, PlugError, power_reading};
use power_units::{MicroWatts, Role, Watts};
use serde_json::Value;

pub(crate) fn run(bytes: &[u8]) {
    match bytes.split_first() {
        // A document.
        Some((b'{', _)) => document(bytes),
        // An answer behind its length, as the driver hands it over.
        Some((_, answer)) => dcmi(answer),
        None => {}
    }
}

fn dcmi(answer: &[u8]) {
    match power_reading(answer) {
        Ok(reading) => {
            assert_eq!((answer[0], answer[1], answer[18] & 0x40), (0, 0xDC, 0x40));
            let watts = u64::from(u16::from_le_bytes([answer[2], answer[3]]));
            assert!((1..0xFFFF).contains(&watts), "{watts}");
            assert_eq!(reading.power, MicroWatts::new(watts * 1_000_000));
            let millis = u64::from(u32::from_le_bytes([answer[14], answer[15], answer[16], answer[17]]));
            let day = 86_400_000;
            assert_eq!(
                reading.over.map(|over| over.get()),
                (1..=day).contains(&millis).then_some(millis * 1_000)
            );
        }
        Err(PlugError::Refused(CompletionCode(code))) => assert!(code != 0 && code == answer[0]),
        Err(error) => {
            assert!(answer.first().is_none_or(|code| *code == 0), "{error}");
            assert!(error.to_string().len() < 500, "{error}");
        }
    }
}

/// The numbers that may be the power in a document.
fn powers(whole: &Value) -> Vec<&Value> {
    let reading = &whole["PowerWatts"]["Reading"];
    if !reading.is_null() {
        return vec![reading];
    }
    let controls = whole["PowerControl"].as_array().into_iter().flatten();
    controls.map(|control| &control["PowerConsumedWatts"]).collect()
}

fn document(bytes: &[u8]) {
    let told = |error: redfish::RedfishError| assert!(error.to_string().len() < 500, "{error}");
    match redfish::power(bytes) {
        Ok(watts) => {
            assert!(watts > Watts::ZERO);
            let whole: Value = serde_json::from_slice(bytes).expect("what was read is JSON");
            let all = powers(&whole);
            let is_it = |one: &&Value| Watts::parse(&one.to_string(), Role::Demand) == Ok(watts);
            assert!(all.iter().any(is_it), "{watts} is none of {all:?}");
        }
        Err(error) => told(error),
    }
    let mut links = Vec::new();
    match redfish::members(bytes) {
        Ok(members) => {
            assert!((1..=32).contains(&members.len()));
            links.extend(members);
        }
        Err(error) => told(error),
    }
    match redfish::chassis(bytes) {
        Ok(chassis) => links.extend(chassis.power.into_iter().chain(chassis.inside)),
        Err(error) => told(error),
    }
    for link in links {
        assert!(link.starts_with("/redfish/v1") && !link.contains("..") && link.len() <= 256, "{link:?}");
        assert!(link.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#@\\".contains(&byte)), "{link:?}");
    }
}
