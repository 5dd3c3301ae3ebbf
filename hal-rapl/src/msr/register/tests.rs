use super::*;
use proptest::prelude::*;

/// 1/8 W, 2⁻¹⁴ J, 976.5625 µs: the unit register of a Xeon.
const XEON: u64 = 0xa_0e03;

fn xeon() -> Units {
    Units::from_bits(XEON)
}

#[test]
fn units_are_powers_of_one_half() {
    assert_eq!(xeon(), Units { power: 3, energy: 14, time: 10 });
    assert_eq!(xeon().step_uw(), 125_000);
    assert_eq!(xeon().power_uw(1), 125_000);
    // 2³² × 2⁻¹⁴ J = 262 144 J, and 2³² × 2⁻¹⁶ J = 65 536 J.
    assert_eq!(xeon().energy_modulus_uj(), 262_144_000_000);
    assert_eq!(Units::from_bits(0xa_1003).energy_modulus_uj(), 65_536_000_000);
    // 61.035 µJ and 15.258 µJ.
    assert_eq!(xeon().energy_uj(1_000), 61_035);
    assert_eq!(Units::from_bits(0xa_1003).energy_uj(1_000), 15_258);
}

#[test]
fn a_counter_has_32_bits() {
    assert_eq!(xeon().energy_uj(0xdead_beef_0000_0000), 0);
    assert!(xeon().energy_uj(u64::MAX) < xeon().energy_modulus_uj());
}

#[test]
fn windows_are_what_the_hardware_facts_say() {
    // 0x6E → 28 s, 0x0A → 1 s, 0x08 → 0.25 s, 0x46 → 94 ms, 0x63 → 13.7 ms, in units of 976.5625 µs.
    for (field, us) in
        [(0x6e, 28_000_000), (0x0a, 1_000_000), (0x08, 250_000), (0x46, 93_750), (0x63, 13_671)]
    {
        assert_eq!(xeon().window_us(field), us, "{field:#x}");
    }
    assert_eq!(xeon().window_field(1_000_000), 0x0a);
    assert_eq!(xeon().window_field(999_999), 0x69, "1.75 × 2⁹ units are 875 ms");
    assert_eq!(xeon().window_field(0), 0);
}

#[test]
fn the_limit_register_of_a_xeon_is_understood() {
    // 250 W is 0x7d0, 300 W is 0x960; both enabled and clamping; 0x6e is 28 s.
    let register = PackageLimit::from_bits(0x00dd_8960_00dd_87d0);
    assert_eq!(xeon().power_uw(register.long().power()), 250_000_000);
    assert_eq!(xeon().power_uw(register.short().power()), 300_000_000);
    assert!(register.long().enabled() && register.short().enabled() && !register.locked());
    assert_eq!((register.long().window(), register.short().window()), (0x6e, 0x6e));
    assert!(PackageLimit::from_bits(1 << 63).locked());
}

#[test]
fn a_cap_changes_what_it_must_and_nothing_else() {
    let before = PackageLimit::from_bits(0x00dd_8960_00dd_87d0);
    let units = xeon();
    let long = before.long().limited_to(units.power_raw(100_000_000)).within_the_longest_window(units);
    let short = before.short().with_power(units.power_raw(120_000_000));
    // 100 W is 0x320 with ½ s (0x09 << 17 = 0x12_0000), 120 W is 0x3c0 with its 28 s kept.
    assert_eq!(before.with_long(long).with_short(short).to_bits(), 0x00dd_83c0_0013_8320);
    let off = PackageLimit::from_bits(0);
    assert_eq!(off.with_long(off.long().limited_to(8)).to_bits(), 0x0001_8008);
    assert_eq!(off.in_force_uw(units), 4_095_875_000, "what is not enabled limits nothing");
}

#[test]
fn what_does_not_fit_the_power_field_is_its_end_and_never_wraps() {
    for huge in [4_095_875_000, 4_096_000_000, 5_000_000_000, u64::MAX] {
        assert_eq!(xeon().power_raw(huge), POWER_MAX, "{huge}");
    }
    assert_eq!(xeon().power_raw(99_999_999), 799);
}

#[test]
fn power_info_holds_thermal_and_minimum_power() {
    // TSP 270 W is 0x870, minimum 75 W is 0x258, maximum 540 W is 0x10e0.
    let info = PackageInfo::from_bits(0x0000_10e0_0258_0870);
    assert_eq!((info.thermal(), info.min()), (0x870, 0x258));
}

proptest! {
    #[test]
    fn any_units_and_fields_are_answered(bits in any::<u64>(), raw in any::<u64>(), us in any::<u64>()) {
        let units = Units::from_bits(bits);
        let register = PackageLimit::from_bits(raw);
        prop_assert!(units.step_uw() > 0 && units.energy_uj(raw) < units.energy_modulus_uj());
        prop_assert_eq!(register.with_long(register.long()).with_short(register.short()), register);
        let field = units.window_field(us);
        prop_assert!(field == 0 || units.window_us(field) <= us);
        let shortened = register.long().within_the_longest_window(units);
        prop_assert_eq!(shortened.power(), register.long().power());
        prop_assert!(units.window_us(shortened.window()) <= WINDOW_MAX_US || shortened.window() == 0);
    }

    #[test]
    fn a_limit_is_rounded_down_by_less_than_a_step(power in 0_u64..16, uw in 0_u64..2_000_000_000) {
        let units = Units::from_bits(power);
        let raw = units.power_raw(uw);
        let back = units.power_uw(raw);
        prop_assert!(back <= uw);
        prop_assert!(raw == POWER_MAX || uw - back < units.step_uw() + 1);
    }
}
