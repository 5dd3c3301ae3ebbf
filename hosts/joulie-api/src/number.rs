//! Numbers in objects, which may be whole or not.
//!
//! The API server returns a whole number as an integer, whatever the schema says, so every number is read from either
//! form. The fixed-point types of the core interpret a number, from its decimal text.

use power_units::{Percent, Ratio, Watts, WattsPerMinute};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;

/// A finite number. Its text is the shortest decimal that is this number, without an exponent.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Number(f64);

/// A whole number; `2.0` is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Whole(i64);

impl Number {
    /// Creates a number; `None` if the value is infinite or NaN.
    #[must_use]
    pub fn new(value: f64) -> Option<Self> {
        value.is_finite().then_some(Self(value))
    }

    /// Watts for people and metrics: rounded to a tenth. Values in a spec are exact.
    #[must_use]
    pub fn tenths(watts: Watts) -> Self {
        // The decimal text of a 32.32 number always parses.
        Self(format!("{watts:.1}").parse().unwrap_or(0.0))
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl From<i32> for Number {
    fn from(value: i32) -> Self {
        Self(f64::from(value))
    }
}

macro_rules! from_quantity {
    ($($quantity:ty),*) => {
        $(impl From<$quantity> for Number {
            fn from(quantity: $quantity) -> Self {
                // The decimal text of a 32.32 number always parses.
                Self(quantity.to_string().parse().unwrap_or(0.0))
            }
        })*
    };
}
from_quantity!(Watts, WattsPerMinute, Percent, Ratio);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Minus zero is zero.
        if self.0 == 0.0 { f.write_str("0") } else { self.0.fmt(f) }
    }
}

impl Serialize for Number {
    /// A whole number is written as an integer, the form in which the API server returns it.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.to_string().parse::<i64>() {
            Ok(whole) => serializer.serialize_i64(whole),
            Err(_) => serializer.serialize_f64(self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = f64::deserialize(deserializer)?;
        Self::new(value).ok_or_else(|| D::Error::invalid_value(Unexpected::Float(value), &"a finite number"))
    }
}

impl JsonSchema for Number {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Number".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "number"})
    }
}

impl Whole {
    /// The number.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }
}

impl From<i64> for Whole {
    fn from(value: i64) -> Self {
        Self(value)
    }
}

impl From<u32> for Whole {
    fn from(value: u32) -> Self {
        Self(i64::from(value))
    }
}

impl Serialize for Whole {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(self.0)
    }
}

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WholeVisitor)
    }
}

struct WholeVisitor;

impl Visitor<'_> for WholeVisitor {
    type Value = Whole;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number")
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Whole, E> {
        Ok(Whole(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Whole, E> {
        i64::try_from(value).map(Whole).map_err(|_| E::invalid_value(Unexpected::Unsigned(value), &self))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Whole, E> {
        // The text of a float has no exponent, and no point when it is whole.
        let whole = value.to_string().parse().map(Whole);
        whole.map_err(|_| E::invalid_value(Unexpected::Float(value), &self))
    }
}

impl JsonSchema for Whole {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Whole".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "integer", "format": "int64"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use power_units::Role;
    use proptest::prelude::*;

    fn number(text: &str) -> Number {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn whole_watts_are_watts() {
        // Fix list operator B3: 360 and 360.0 are the same cap, and 360.5 is another one.
        for text in ["360", "360.0", "3.6e2"] {
            let watts = Watts::parse(&number(text).to_string(), Role::Limit).unwrap();
            assert_eq!(watts, Watts::from_int(360), "{text}");
        }
        assert_eq!(number("360.5").to_string(), "360.5");
        assert_eq!(number("-0.0").to_string(), "0");
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in ["\"360\"", "null", "true", "[360]", "{}", "1e999", "NaN"] {
            assert!(serde_json::from_str::<Number>(text).is_err(), "{text}");
        }
        for text in ["\"2\"", "null", "2.5", "1e300", "9223372036854775808", "false"] {
            assert!(serde_json::from_str::<Whole>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_whole_number_may_be_written_with_a_point() {
        for text in ["2", "2.0", "2e0"] {
            assert_eq!(serde_json::from_str::<Whole>(text).unwrap().get(), 2, "{text}");
        }
    }

    #[test]
    fn a_number_is_written_as_the_api_server_gives_it_back() {
        let written = |value: f64| serde_json::to_string(&Number::new(value).unwrap()).unwrap();
        assert_eq!(written(120.0), "120");
        assert_eq!(written(0.5), "0.5");
        assert_eq!(written(-3.0), "-3");
        assert_eq!(Number::new(f64::NAN), None);
        assert_eq!(Number::new(f64::INFINITY), None);
    }

    proptest! {
        #[test]
        fn watts_of_the_grid_survive_the_way_through_an_object(thousandths in 0_i64..10_000_000_000) {
            let text = format!("{}.{:03}", thousandths / 1000, thousandths % 1000);
            let watts = Watts::parse(&text, Role::Nearest).unwrap();
            let json = serde_json::to_string(&Number::from(watts)).unwrap();
            let back = Watts::parse(&number(&json).to_string(), Role::Nearest).unwrap();
            // A float has 53 bits: below 2^20 W that is finer than 2^-32 W.
            let off = (back.to_bits() - watts.to_bits()).unsigned_abs();
            prop_assert!(off <= u64::from(thousandths >= 1 << 30), "{} bits off", off);
        }
    }

    #[test]
    fn watts_are_told_to_a_tenth() {
        let told = |text: &str| Number::tenths(Watts::parse(text, Role::Nearest).unwrap()).to_string();
        // A budget in 32.32 fixed point has such digits: 2.8 nW are 12 · 2⁻³² W.
        assert_eq!(told("60677.0000000028"), "60677");
        assert_eq!(told("283.3333333"), "283.3");
        assert_eq!((told("0.04"), told("-0.04"), told("349.96")), ("0".into(), "0".into(), "350".into()));
    }
}
