//! Reads the fields of a small message by name, in any casing, each at most once.

use super::{BadBody, Name};
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::fmt;

/// Reads the fields with these names; null is the same as missing.
pub(super) fn read<'a, const N: usize>(
    body: &'a [u8],
    names: &[&'static str; N],
) -> Result<[Option<&'a RawValue>; N], BadBody> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let fields = Fields(names).deserialize(&mut deserializer).map_err(BadBody::new)?;
    deserializer.end().map_err(BadBody::new)?;
    Ok(fields)
}

/// Reads one field.
pub(super) fn value<'a, T: Deserialize<'a>>(name: &str, field: &'a RawValue) -> Result<T, BadBody> {
    serde_json::from_str(field.get()).map_err(|error| BadBody::new(format_args!("{name}: {error}")))
}

struct Fields<'n, const N: usize>(&'n [&'static str; N]);

impl<'de, const N: usize> DeserializeSeed<'de> for Fields<'_, N> {
    type Value = [Option<&'de RawValue>; N];

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, const N: usize> Visitor<'de> for Fields<'_, N> {
    type Value = [Option<&'de RawValue>; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with {}", self.0.join(", "))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut values = [None; N];
        let mut seen = [false; N];
        while let Some(key) = map.next_key::<Name<'de>>()? {
            let Some(at) = self.0.iter().position(|name| name.eq_ignore_ascii_case(key.as_str())) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if std::mem::replace(&mut seen[at], true) {
                return Err(A::Error::duplicate_field(self.0[at]));
            }
            values[at] = map.next_value()?;
        }
        Ok(values)
    }
}
