//! The values of the command line, parsed once into types. A unit is always required: a `120` could mean `120W` or
//! `120kW`, and a wrong unit can stop machines.

use host_kit::clock::micros;
use host_kit::config::Listen;
use host_kit::config::parse::{duration, show_duration};
use joulie_core::node::cap::{CAP_LEAST, CapIntent};
use power_units::{Micros, Percent, Role, Watts};
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

/// A cap of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cap {
    /// A number of watts.
    Watts(Watts),
    /// A percentage of the device's own maximum.
    Percent(Percent),
}

/// The total power that many nodes may draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget(Watts);

/// A span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(Micros);

/// Where the page of the demo is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageAt {
    /// Nowhere.
    Off,
    /// On an address that only this machine reaches.
    At(SocketAddr),
}

/// How often the hardware is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Period(Micros);

/// Why a value is refused. The text names what is accepted; the caller adds the value itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueError {
    /// It is not a cap.
    Cap,
    /// A number without a unit.
    CapUnit,
    /// A cap outside the range of all devices.
    CapRange,
    /// A percentage above 100 or below 1.
    PercentRange,
    /// It is not a power with a unit.
    Budget,
    /// A budget outside the accepted range.
    BudgetRange,
    /// It is not a span of time, or one of nothing, or of more than a month.
    Span,
    /// It is no period, or one at which no control loop runs.
    Period,
    /// It is no address, or one that other machines reach.
    Page,
}

/// More than any package or GPU accepts; a higher value has a wrong unit.
const CAP_MOST: Watts = Watts::from_int(10_000);
const BUDGET_LEAST: Watts = Watts::from_int(100);
const BUDGET_MOST: Watts = Watts::from_int(1_000_000);
const SPAN_LEAST: Duration = Duration::from_millis(1);
const SPAN_MOST: Duration = Duration::from_secs(30 * 24 * 3600);
const PERIOD_LEAST: Duration = Duration::from_millis(100);
const PERIOD_MOST: Duration = Duration::from_secs(60);

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cap => "expected a number and its unit without a space: 120W, 0.5kW or 80%",
            Self::CapUnit => {
                "a cap needs its unit: W, kW or % (of the device's maximum), as in 120W, 0.5kW or 80%"
            }
            Self::CapRange => "expected a cap from 1W to 10kW for each device",
            Self::PercentRange => "expected a percentage from 1% to 100% of the device's maximum",
            Self::Budget => "expected a number and its unit without a space: 9kW or 9000W",
            Self::BudgetRange => "expected a budget from 100W to 1000kW",
            Self::Span => {
                "expected a time with its unit, such as 90s, 10m, 1h30m or 2d, above zero and of at most 30d"
            }
            Self::Period => "expected a period from 100ms to 60s, with its unit",
            Self::Page => {
                "expected off, or an address that only this machine reaches, such as 127.0.0.1:8080: whoever opens the page can break the demo"
            }
        })
    }
}

impl std::error::Error for ValueError {}

impl Cap {
    /// The cap as an intent for each device.
    pub(crate) const fn intent(self) -> CapIntent {
        match self {
            Self::Watts(watts) => CapIntent::of_watts(watts),
            Self::Percent(percent) => CapIntent::of_percent(percent),
        }
    }
}

impl fmt::Display for Cap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Watts(watts) => write!(f, "{watts} W"),
            Self::Percent(percent) => write!(f, "{percent} % of the maximum"),
        }
    }
}

impl FromStr for Cap {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        if !is_plain(number) {
            return Err(ValueError::Cap);
        }
        match unit {
            "W" => watts(number, 1),
            "kW" => watts(number, 1000),
            "%" => match Percent::parse(number, Role::Limit) {
                Ok(percent) if percent >= Percent::from_int(1) && percent <= Percent::HUNDRED => {
                    Ok(Self::Percent(percent))
                }
                Ok(_) | Err(_) => Err(ValueError::PercentRange),
            },
            "" => Err(ValueError::CapUnit),
            _ => Err(ValueError::Cap),
        }
    }
}

impl Budget {
    pub(crate) const fn watts(self) -> Watts {
        self.0
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}W", self.0)
    }
}

impl FromStr for Budget {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let (number, each) = match (text.strip_suffix("kW"), text.strip_suffix('W')) {
            (Some(number), _) => (number, 1000),
            (None, Some(number)) => (number, 1),
            (None, None) => return Err(ValueError::Budget),
        };
        if !is_plain(number) {
            return Err(ValueError::Budget);
        }
        let watts = Watts::parse(number, Role::Limit).map_err(|_| ValueError::BudgetRange)?.times(each);
        let fits = watts >= BUDGET_LEAST && watts <= BUDGET_MOST;
        if fits { Ok(Self(watts)) } else { Err(ValueError::BudgetRange) }
    }
}

/// Digits with at most one point, and neither a sign nor an exponent.
fn is_plain(number: &str) -> bool {
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits(whole) && digits(part)
}

fn watts(number: &str, each: u32) -> Result<Cap, ValueError> {
    let watts = Watts::parse(number, Role::Limit).map_err(|_| ValueError::CapRange)?.times(each);
    if watts < CAP_LEAST || watts > CAP_MOST { Err(ValueError::CapRange) } else { Ok(Cap::Watts(watts)) }
}

impl FromStr for PageAt {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if text == "off" {
            return Ok(Self::Off);
        }
        match text.parse() {
            Ok(Listen::At(address)) if address.ip().is_loopback() => Ok(Self::At(address)),
            Ok(Listen::At(_) | Listen::Everywhere { .. }) | Err(_) => Err(ValueError::Page),
        }
    }
}

impl Span {
    pub(crate) const fn micros(self) -> Micros {
        self.0
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&show_duration(Duration::from_micros(self.0.get())))
    }
}

impl FromStr for Span {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let span = duration(text, SPAN_LEAST..=SPAN_MOST).map_err(|_| ValueError::Span)?;
        Ok(Self(micros(span)))
    }
}

impl Period {
    pub(crate) const fn micros(self) -> Micros {
        self.0
    }
}

impl FromStr for Period {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let period = duration(text, PERIOD_LEAST..=PERIOD_MOST).map_err(|_| ValueError::Period)?;
        Ok(Self(micros(period)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cap_is_a_plain_number_with_its_unit() {
        let watts = |text: &str| text.parse::<Cap>();
        assert_eq!(watts("120W"), Ok(Cap::Watts(Watts::from_int(120))));
        assert_eq!(watts("0.5kW"), Ok(Cap::Watts(Watts::from_int(500))));
        assert_eq!(watts("10kW"), Ok(Cap::Watts(Watts::from_int(10_000))));
        assert_eq!(watts("80%"), Ok(Cap::Percent(Percent::from_int(80))));
        for bare in ["120", "0.5", "0"] {
            assert_eq!(watts(bare), Err(ValueError::CapUnit), "{bare}");
        }
        for junk in [
            "", "W", "NaN", "NaNW", "-5W", "+5W", "1e3W", "120 W", "120Wx", "120w", "120mW", "1.W", ".5kW",
            "1.2.3W", "½W", "inf%",
        ] {
            assert_eq!(watts(junk), Err(ValueError::Cap), "{junk}");
        }
        for beyond in ["0W", "0.9W", "10001W", "11kW", "99999999999999999999W"] {
            assert_eq!(watts(beyond), Err(ValueError::CapRange), "{beyond}");
        }
        for beyond in ["0%", "0.5%", "100.1%", "99999999999999%"] {
            assert_eq!(watts(beyond), Err(ValueError::PercentRange), "{beyond}");
        }
    }

    #[test]
    fn a_span_is_a_duration_with_its_units() {
        let seconds = |count: u64| Ok(Span(Micros::new(count * 1_000_000)));
        let span = |text: &str| text.parse::<Span>();
        assert_eq!(span("90s"), seconds(90));
        assert_eq!(span("10m"), seconds(600));
        assert_eq!(span("1h30m"), seconds(5400));
        assert_eq!(span("1.5h"), seconds(5400));
        assert_eq!(span("30d"), seconds(2_592_000));
        assert_eq!(span("1s500ms"), Ok(Span(Micros::new(1_500_000))));
        for junk in ["", "10", "m", "30m1h", "1h1h", "-1s", "10mx", "10M", "NaN"] {
            assert_eq!(span(junk), Err(ValueError::Span), "{junk}");
        }
        for beyond in ["0s", "0", "0h0m", "999us", "31d", "99999999999999999999s", "18446744073709551615d"] {
            assert_eq!(span(beyond), Err(ValueError::Span), "{beyond}");
        }
        assert_eq!(span("1h30m").unwrap().to_string(), "1h30m");
        assert_eq!(span("2d").unwrap().to_string(), "48h");
    }

    #[test]
    fn a_budget_is_a_plain_power_of_a_cluster() {
        let budget = |text: &str| text.parse::<Budget>();
        assert_eq!(budget("9kW"), Ok(Budget(Watts::from_int(9000))));
        assert_eq!(budget("8500W").unwrap().to_string(), "8500W");
        for junk in ["", "9", "kW", "-9kW", "9 kW", "9MW", "1e3W", "80%"] {
            assert_eq!(budget(junk), Err(ValueError::Budget), "{junk}");
        }
        for beyond in ["99W", "1001kW", "99999999999999999999W"] {
            assert_eq!(budget(beyond), Err(ValueError::BudgetRange), "{beyond}");
        }
    }

    #[test]
    fn a_period_is_one_that_the_loop_runs_at() {
        assert_eq!("500ms".parse(), Ok(Period(Micros::new(500_000))));
        for refused in ["99ms", "61s", "1"] {
            assert_eq!(refused.parse::<Period>(), Err(ValueError::Period));
        }
    }
}
