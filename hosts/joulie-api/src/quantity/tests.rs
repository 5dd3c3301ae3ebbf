use super::*;
use proptest::prelude::*;

fn nanos(text: &str) -> i128 {
    Quantity::parse(text).unwrap().nanos()
}

const ONE: i128 = 1_000_000_000;
const MAX: i128 = 9_223_372_036_854_775_807 * ONE;

#[test]
fn every_form_of_the_grammar_is_read() {
    for (text, expected) in [
        ("0", 0),
        ("-0", 0),
        ("+1", ONE),
        ("12", 12 * ONE),
        ("00012", 12 * ONE),
        ("1.", ONE),
        (".5", ONE / 2),
        ("1.5", 3 * ONE / 2),
        ("-1.5", -3 * ONE / 2),
        ("1n", 1),
        ("1u", 1000),
        ("500m", ONE / 2),
        ("2k", 2000 * ONE),
        ("2.k", 2000 * ONE),
        ("3M", 3_000_000 * ONE),
        ("4G", 4_000_000_000 * ONE),
        ("5T", 5_000_000_000_000 * ONE),
        ("6P", 6_000_000_000_000_000 * ONE),
        ("7E", 7_000_000_000_000_000_000 * ONE),
        ("1Ki", 1024 * ONE),
        ("1Mi", 1_048_576 * ONE),
        ("1Gi", 1_073_741_824 * ONE),
        ("1Ti", 1_099_511_627_776 * ONE),
        ("1Pi", 1_125_899_906_842_624 * ONE),
        ("1Ei", 1_152_921_504_606_846_976 * ONE),
        ("1.5Gi", 1_610_612_736 * ONE),
        (".5Ki", 512 * ONE),
        ("1e3", 1000 * ONE),
        ("1E3", 1000 * ONE),
        ("1e+3", 1000 * ONE),
        ("15e-1", 3 * ONE / 2),
        ("1.25e1", 25 * ONE / 2),
        (".5e1", 5 * ONE),
        ("1E", 1_000_000_000_000_000_000 * ONE),
    ] {
        assert_eq!(nanos(text), expected, "{text}");
    }
}

#[test]
fn what_is_no_quantity_is_refused_by_name() {
    for text in [
        "", " ", "-", "+", ".", "m", "Ki", "1 ", " 1", "1 Gi", "1ki", "1KI", "1K", "1gi", "1g", "1i", "1e",
        "1e+", "1E-", "1e1.5", "1e3k", "1mm", "1Kib", "0x10", "--1", "+-1", "1,5", "1_000", "∞", "NaN",
        "inf", "１", "1.2.3", "1..2", "1eE3",
    ] {
        let error = Quantity::parse(text).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{text:?} is no quantity")), "{error}");
    }
}

#[test]
fn what_is_finer_than_a_billionth_is_rounded_away_from_zero() {
    for (text, expected) in [
        ("0.1n", 1),
        ("1.1n", 2),
        ("-0.1n", -1),
        ("0.0000000001", 1),
        ("1e-30", 1),
        ("0e-30", 0),
        ("1e-999999999999999999999", 1),
        ("0.0000000010", 1),
        // 0.0000000000000000001 · 2^60 = 0.1152921504606846976
        ("0.0000000000000000001Ei", 115_292_151),
        // 1.1 · 1024 = 1126.4
        ("1.1Ki", 1_126_400_000_000),
        // A third of a KiB to forty places: 341.333333333333333333…
        ("0.3333333333333333333333333333333333333333Ki", 341_333_333_334),
    ] {
        assert_eq!(nanos(text), expected, "{text}");
    }
}

#[test]
fn what_is_too_large_is_the_largest() {
    for text in [
        "9223372036854775807",
        "9223372036854775808",
        "10E",
        "8Ei",
        "9999999999Ei",
        "1e19",
        "1e999999999999999999999",
        "99999999999999999999999999999999999999999999999999",
        "99999999999999999999999999999999999999999999999999.9Ei",
    ] {
        assert_eq!(nanos(text), MAX, "{text}");
        assert_eq!(nanos(&format!("-{text}")), -MAX, "-{text}");
    }
    assert_eq!(nanos("0e999999999999999999999"), 0);
    assert_eq!(nanos("00000000000000000000000000000000000000000000001"), ONE);
}

#[test]
fn values_round_away_from_zero_as_kubernetes_does() {
    let read = |text| Quantity::parse(text).unwrap();
    for (text, value, milli) in [
        ("500m", 1, 500),
        ("1500m", 2, 1500),
        ("1", 1, 1000),
        ("1u", 1, 1),
        ("0", 0, 0),
        ("-500m", -1, -500),
        ("-1u", -1, -1),
        ("1Gi", 1_073_741_824, 1_073_741_824_000),
    ] {
        assert_eq!((read(text).value(), read(text).milli_value()), (value, milli), "{text}");
    }
    assert_eq!((read("8Ei").value(), read("8Ei").milli_value()), (i64::MAX, i64::MAX));
    assert_eq!((read("-8Ei").value(), read("-8Ei").milli_value()), (-i64::MAX, i64::MIN));
}

#[test]
fn the_canonical_form_has_the_largest_suffix_without_a_fraction() {
    for (text, canonical) in [
        ("1500m", "1500m"),
        ("0.5", "500m"),
        ("1000", "1k"),
        ("1e6", "1M"),
        ("1024", "1024"),
        ("1Ki", "1024"),
        ("-2000", "-2k"),
        ("0.0", "0"),
        ("100E", "9223372036854775807"),
    ] {
        assert_eq!(Quantity::parse(text).unwrap().to_string(), canonical, "{text}");
    }
}

#[test]
fn a_number_in_an_object_is_a_quantity() {
    let read = |json: &str| serde_json::from_str::<Quantity>(json).map(Quantity::nanos);
    assert_eq!(read("2").unwrap(), 2 * ONE);
    assert_eq!(read("-2").unwrap(), -2 * ONE);
    assert_eq!(read("0.5").unwrap(), ONE / 2);
    assert_eq!(read("\"500m\"").unwrap(), ONE / 2);
    for json in ["null", "true", "[]", "\"half\""] {
        assert!(read(json).is_err(), "{json}");
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(nanos in -MAX..=MAX) {
        let quantity = Quantity::from_nanos(nanos);
        prop_assert_eq!(Quantity::parse(&quantity.to_string()), Ok(quantity));
        let json = serde_json::to_string(&quantity).unwrap();
        prop_assert_eq!(serde_json::from_str::<Quantity>(&json).unwrap(), quantity);
    }

    /// Compared with plain integer arithmetic: digits · 10^(e − places) · 2^k, where that needs no more than 128 bits.
    #[test]
    fn every_suffix_scales_exactly(
        whole in 0_u64..1_000_000, fraction in "[0-9]{0,6}", at in 0_usize..16, negative: bool,
    ) {
        let suffixes = [
            ("n", -9, 0), ("u", -6, 0), ("m", -3, 0), ("", 0, 0), ("k", 3, 0), ("M", 6, 0), ("G", 9, 0), ("T", 12, 0),
            ("e2", 2, 0), ("E-4", -4, 0),
            ("Ki", 0, 10), ("Mi", 0, 20), ("Gi", 0, 30), ("Ti", 0, 40), ("Pi", 0, 50), ("Ei", 0, 60),
        ];
        let (suffix, ten, two) = suffixes[at];
        let sign = if negative { "-" } else { "" };
        let text = format!("{sign}{whole}.{fraction}{suffix}");
        let places = i32::try_from(fraction.len()).unwrap();
        let digits: u128 = format!("{whole}{fraction}").parse().unwrap();
        let exponent = 9 + ten - places;
        let scaled = digits << two;
        let expected = match u32::try_from(exponent) {
            Ok(up) => scaled * 10_u128.pow(up),
            Err(_) => scaled.div_ceil(10_u128.pow(exponent.unsigned_abs())),
        };
        let expected = i128::try_from(expected).unwrap().min(MAX);
        prop_assert_eq!(nanos(&text), if negative { -expected } else { expected }, "{}", text);
    }

    #[test]
    fn no_text_is_a_panic(text in "[+-]?[0-9.]{0,50}[eEinumkKMGTP]{0,3}[+-]?[0-9]{0,30}") {
        let _ = Quantity::parse(&text);
    }

    #[test]
    fn no_text_at_all_is_a_panic(text in ".{0,40}") {
        let _ = Quantity::parse(&text);
    }
}
