//! power-units.

use power_units::{
    Celsius, DecimalError, Kelvins, KiloHertz, MicroJoules, MicroWatts, Micros, MilliWatts, NonZeroMicros,
    Percent, Ratio, Role, Stamp, Watts, WattsPerMinute,
};

roots! {
    fn units_parse(text: &str, role: Role) -> Result<Watts, DecimalError> {
        Watts::parse(text, role)
    }

    fn units_arithmetic(a: Watts, b: Watts, r: Ratio, role: Role, n: u32) -> (Watts, Option<Ratio>, Watts) {
        (a + b - -a.times(n), a.ratio_to(b, role), b.scale(r, role).abs().or_zero().within(a, b))
    }

    fn units_edges(a: Watts, role: Role, energy: MicroJoules, t: NonZeroMicros) -> (MicroWatts, MilliWatts, Watts) {
        (a.to_micro_watts(role), a.to_milli_watts(role), energy.over(t))
    }

    fn units_measured(micro: MicroWatts, milli: MilliWatts, role: Role) -> Watts {
        micro.to_watts(role) + milli.to_watts(role)
    }

    fn units_slope(a: Watts, t: NonZeroMicros, role: Role, span: Micros) -> (WattsPerMinute, MicroJoules) {
        (a.per(t, role), a.during(span))
    }

    fn units_percent(p: Percent, r: Ratio, role: Role) -> (Ratio, Percent, i32) {
        (p.to_ratio(role), r.to_percent(), p.round())
    }

    fn units_others(f: KiloHertz, role: Role, t: Celsius, d: Kelvins, now: Stamp, then: Stamp) -> (u32, Celsius, Option<Micros>) {
        (f.to_whole(role), t + d - (t - t), now.since(then))
    }

    fn units_sum(all: &[Watts]) -> Option<Watts> {
        Watts::checked_sum(all.iter().copied())
    }
}
