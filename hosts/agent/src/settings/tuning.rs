//! The tuning of the DVFS fallback.

use super::{Dvfs, DvfsLaw};
use host_kit::clock::micros;
use host_kit::config::{ConfigSetting, Refusals, Values, Wrong, parse};
use joulie_core::node::classic::{Classic, Tuning};
use joulie_core::node::engine::LoopLaw;
use joulie_core::node::throttle::ThrottlePercent;
use power_units::{KiloHertz, Ratio, Role, Watts};
use std::time::Duration;

pub(super) const LAW: ConfigSetting<Option<DvfsLaw>> = ConfigSetting::optional(
    "DVFS_LAW",
    |text| {
        let words = [("classic", DvfsLaw::Classic), ("tracking", DvfsLaw::Tracking)];
        parse::one_of(text, &words).map(Some)
    },
    "tracking or classic",
    "The law that holds a cap by frequencies where no power limit does: tracking models the machine; classic takes steps, \
     by the tuning below. Without it tracking, or classic if a variable of its tuning is set",
);
pub(super) const EMA_ALPHA: ConfigSetting<Ratio> = ConfigSetting::with_default(
    "DVFS_EMA_ALPHA",
    "0.30",
    |text| Ratio::parse(text.trim(), Role::Nearest).map_err(|error| Wrong(error.to_string())),
    "a number above 0, up to 1",
    "classic: the weight of a new reading against the mean of those before",
);
pub(super) const HIGH_MARGIN: ConfigSetting<Watts> = ConfigSetting::with_default(
    "DVFS_HIGH_MARGIN_W",
    "10",
    |text| parse::watts(text, Role::Nearest, Watts::ZERO..=Watts::from_int(100_000)),
    "watts from 0",
    "classic: so far above the cap the loop throttles more",
);
pub(super) const LOW_MARGIN: ConfigSetting<Watts> = ConfigSetting::with_default(
    "DVFS_LOW_MARGIN_W",
    "15",
    |text| parse::watts(text, Role::Nearest, Watts::ZERO..=Watts::from_int(100_000)),
    "watts from 0",
    "classic: so far below the cap the loop throttles less",
);
pub(super) const STEP: ConfigSetting<ThrottlePercent> = ConfigSetting::with_default(
    "DVFS_STEP_PCT",
    "10",
    |text| {
        let percent = parse::whole::<i64>(text, 1..=100)?;
        ThrottlePercent::new(percent).ok_or_else(|| Wrong("it is not between 1 and 100".to_owned()))
    },
    "a whole number from 1 to 100",
    "classic: by how much one step throttles, in percent of the frequency policies",
);
pub(super) const MIN_FREQ: ConfigSetting<Option<KiloHertz>> = ConfigSetting::optional(
    "DVFS_MIN_FREQ_KHZ",
    |text| parse::whole::<i32>(text, 100_000..=20_000_000).map(|khz| Some(KiloHertz::from_int(khz))),
    "a whole number of kHz from 100000 to 20000000",
    "A throttled policy is limited to this, brought into its own range; without it to the lowest that it takes",
);
pub(super) const COOLDOWN: ConfigSetting<Duration> = ConfigSetting::with_default(
    "DVFS_COOLDOWN",
    "20s",
    |text| parse::duration(text, Duration::ZERO..=Duration::from_secs(3600)),
    "a duration up to 1h",
    "classic: after a step the loop waits for so long",
);
pub(super) const TRIP_COUNT: ConfigSetting<u32> = ConfigSetting::with_default(
    "DVFS_TRIP_COUNT",
    "2",
    |text| parse::whole(text, 1..=1000),
    "a whole number from 1 to 1000",
    "classic: the loop acts at so many readings in a row beyond a margin",
);

pub(super) fn read(values: &Values) -> Result<Dvfs, Refusals> {
    let tuning = Tuning {
        ema_alpha: values.get(&EMA_ALPHA)?,
        high_margin: values.get(&HIGH_MARGIN)?,
        low_margin: values.get(&LOW_MARGIN)?,
        step: values.get(&STEP)?,
        trip_count: values.get(&TRIP_COUNT)?,
        cooldown: micros(values.get(&COOLDOWN)?),
    };
    let names = [EMA_ALPHA.name(), HIGH_MARGIN.name(), LOW_MARGIN.name(), STEP.name(), TRIP_COUNT.name()];
    let wrong = |error: joulie_core::node::classic::TuningError| {
        let text = error.to_string();
        let about: Vec<&str> = names.into_iter().filter(|name| text.contains(name)).collect();
        values.conflict(&about, &text)
    };
    let classic = Classic::new(tuning).map_err(wrong)?;
    let given: Vec<&str> =
        names.into_iter().chain([COOLDOWN.name()]).filter(|name| values.is_given(name)).collect();
    let given = given.join(", ");
    let (law, note) = match (values.get(&LAW)?, given.is_empty()) {
        (Some(DvfsLaw::Classic), _) => (DvfsLaw::Classic, None),
        (Some(DvfsLaw::Tracking), true) | (None, true) => (DvfsLaw::Tracking, None),
        (Some(DvfsLaw::Tracking), false) => {
            (DvfsLaw::Tracking, Some(format!("{given}: no effect, because DVFS_LAW=tracking")))
        }
        (None, false) => {
            let note = format!(
                "the closed loop is classic, because its tuning is set ({given}); DVFS_LAW says which"
            );
            (DvfsLaw::Classic, Some(note))
        }
    };
    let law = match law {
        DvfsLaw::Classic => LoopLaw::Classic(classic),
        DvfsLaw::Tracking => node_kit::Config::tracking(),
    };
    Ok(Dvfs { law, floor: values.get(&MIN_FREQ)?, note })
}
