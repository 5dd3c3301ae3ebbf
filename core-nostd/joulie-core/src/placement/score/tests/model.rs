//! Compares the score with a model of it in binary floating point, from raw facts.

use super::*;

fn number(bits: i64) -> f64 {
    bits as f64 / (1_u64 << 32) as f64
}

/// The reference of a pod's watts: the cap, else the most that the hardware draws.
fn model_budget(twin: &TwinStatus, hardware: &HardwareRecord) -> Option<f64> {
    let power = twin.power?;
    let above_zero =
        |watts: Option<Watts>| watts.map(|watts| number(watts.to_bits())).filter(|&watts| watts > 0.0);
    let gpus = hardware
        .gpus
        .map_or(0.0, |gpus| above_zero(gpus.max).unwrap_or(0.0) * f64::from(gpus.count.unwrap_or(0)));
    let most = above_zero(hardware.cpu_max).unwrap_or(0.0) + gpus;
    above_zero(power.capped).or((most > 0.0).then_some(most))
}

/// The formula as the page defines it, from unprocessed records.
fn model(
    twin: &TwinStatus,
    (hardware, demand): (&HardwareRecord, &PodDemand),
    assumed: f64,
    cluster: &ClusterAggregates,
    scoring: &Scoring,
) -> f64 {
    let class = demand.class;
    let percent = |percent: Option<Percent>, missing: f64| percent.map_or(missing, |p| number(p.to_bits()));
    let pue = twin.pue.map_or(1.0, |pue| number(pue.to_bits()));
    let marginal = crate::placement::estimate::tests::model(hardware, demand, [0.7, 0.65, 0.85]);
    let added = assumed + if scoring.facility_metrics && pue > 1.0 { marginal * pue } else { marginal };
    let power = twin.power;
    let measured = power.and_then(|p| p.measured).map(|m| number(m.to_bits()).max(0.0));
    let capped = power.and_then(|p| p.capped).map(|c| number(c.to_bits())).filter(|&c| c > 0.0);
    let headroom = match (measured, capped) {
        (Some(measured), Some(capped)) => (capped - (measured + added)) / capped * 100.0,
        _ => {
            let taken = model_budget(twin, hardware).map_or(0.0, |budget| added / budget * 100.0);
            percent(twin.headroom, 0.0).min(100.0) - taken
        }
    };
    let cooling = percent(twin.cooling, 100.0).clamp(0.0, 100.0);
    let psu = twin.psu.map(|psu| number(psu.to_bits()).clamp(0.0, 100.0));
    let burst = number(cluster.trend.unwrap().to_bits()).abs() > 500.0;
    let trend = power.and_then(|p| p.trend).map_or(0.0, |t| number(t.to_bits()));
    let trend = -(trend / if burst { 2.0 } else { 6.0 }).clamp(-25.0, 25.0);
    let mut score = match scoring.formula {
        Formula::Headroom | Formula::Consolidate => headroom * 0.7 + (100.0 - cooling) * 0.15 + trend,
        Formula::Facility => match psu {
            Some(psu) => headroom * 0.4 + (100.0 - cooling) * 0.3 + (100.0 - psu) * 0.3,
            None => headroom * 0.55 + (100.0 - cooling) * 0.45,
        },
    };
    if class == WorkloadClass::Standard && twin.class == Eco {
        score += 10.0;
    }
    if class == WorkloadClass::Standard && twin.marked {
        score -= 25.0;
    }
    if class == WorkloadClass::Standard && twin.class == Performance {
        score -= number(cluster.pressure.unwrap().to_bits()) * 0.3;
    }
    score
}

#[test]
fn a_million_scores_lie_within_a_millionth_of_the_model() {
    let mut dice = Dice::new(3);
    let (mut worst, mut undecided, mut blind, mut small) = (0.0_f64, 0, 0, 0);
    for _ in 0..1_000_000 {
        let scoring = Scoring {
            formula: if dice.below(4) == 0 { Formula::Facility } else { Formula::Headroom },
            facility_metrics: dice.below(2) == 0,
            ..SEEDS
        };
        let cluster = ClusterAggregates {
            pressure: Some(Percent::from_bits(dice.below(100 << 32) as i64)),
            trend: Some(WattsPerMinute::from_int(dice.below(2000) as i32 - 1000)),
            ..calm()
        };
        let (mut node, hardware, mut demand) = (dice.twin(), dice.hardware(), dice.demand());
        if dice.below(16) == 0 {
            // A cap below a watt, under which only the smallest pods score.
            let capped = Some(Watts::from_bits((1 << 27) + dice.below(31 << 27) as i64));
            let measured = Some(Watts::from_bits(dice.below(1 << 30) as i64));
            node.power = Some(TwinPower { measured, capped, trend: None });
            demand = PodDemand { cpu: MilliCores::new(dice.below(50) as u32), gpus: None, ..demand };
            small += 1;
        }
        let assumed = if dice.below(2) == 0 { Watts::ZERO } else { dice.watts(0, 2000) };
        let facts = NodeFacts { freshness: FRESH, twin: Some(&node), hardware: Some(&hardware) };
        let pod = PodTerms::of(&demand, &scoring.coefficients);
        let score = score_of(&facts, &cluster, &scoring, &pod, assumed).unwrap();
        let model = model(&node, (&hardware, &demand), number(assumed.to_bits()), &cluster, &scoring);
        let budget = model_budget(&node, &hardware);
        blind += u32::from(node.against_cap().is_none() && budget.is_some());
        // Below a watt, the rounding of the watts counts more, the smaller the reference is.
        let accuracy = budget.map_or(1.0, |budget| (1.0 / budget).max(1.0));
        // Far below zero points a double is not accurate to millionths.
        if model > -10_000.0 && accuracy <= 32.0 {
            worst = worst.max((points(score) - model).abs() / accuracy);
        }
        let (whole, clamped) = (f64::from(score.whole()), model.clamp(0.0, 100.0));
        let to_boundary = (clamped - clamped.round()).abs();
        if to_boundary > 1e-6 * accuracy {
            assert_eq!(whole, clamped.trunc(), "{model}");
        } else if to_boundary < 1e-8 {
            assert_eq!(whole, clamped.round(), "{model}");
        } else {
            undecided += 1;
        }
    }
    assert!(worst < 1e-6, "{worst}");
    assert!(undecided < 200, "{undecided}");
    assert!(blind > 90_000 && small > 50_000, "{blind} {small}");
}

#[test]
fn under_next_to_no_cap_a_pod_of_a_watt_scores_nothing() {
    let hardware = HardwareRecord { cpu_max: Some(Watts::from_int(10)), cores: Some(1), gpus: None };
    let seven = pod(WorkloadClass::Standard, &[container(Runs::Main, asks(1000))]);
    let seven = PodTerms::of(&seven, &Coefficients::REFERENCE);
    for shift in 0..32 {
        let capped = Some(Watts::from_bits(1 << shift));
        for measured in [None, Some(Watts::ZERO)] {
            let power = TwinPower { measured, capped, trend: Some(WattsPerMinute::MIN) };
            let node = TwinStatus { power: Some(power), ..twin(Eco, 100, 0) };
            assert_eq!(score_with(&node, Some(&hardware), &calm(), &seven).whole(), 0, "{shift}");
        }
    }
}
