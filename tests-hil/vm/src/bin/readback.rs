//! Writes many frequency limits through the HAL, and reports wrong read-backs and the time. It runs in the guest
//! while all processors are busy.
//!
//! The kernel answers a write before its worker has applied it. The limit that the HAL reports must be in force and
//! must stay, because no other program writes.
#![expect(clippy::print_stdout, reason = "it talks to a scenario")]

use anyhow::{Context, Result, anyhow, bail};
use hal_cpufreq::Cpufreq;
use hal_files::Root;
use power_hal::{OriginalsInMemory, PowerHal, Setting};
use power_units::{KiloHertz, Micros, Stamp};
use std::time::{Duration, Instant};

/// The number of writes.
const WRITES: u32 = 1000;
/// The pause between two writes to a policy.
const PAUSE: Duration = Duration::from_millis(2);

fn main() -> Result<()> {
    let clock = || Stamp::new(Micros::ZERO);
    let mut hal = Cpufreq::open(Root::machine(), clock, OriginalsInMemory::<64>::new())
        .context("opening the policies")?;
    let policies: Vec<_> = hal.domains().iter().map(|(handle, _)| handle).collect();
    if policies.is_empty() {
        bail!("there is no frequency policy");
    }
    let mut waits = Vec::new();
    let (mut wrong, mut late) = (0, 0);
    for at in 0..WRITES {
        let policy = policies.get(usize::try_from(at)? % policies.len()).context("a policy")?;
        // Steps of 400 MHz, a different one each time.
        let khz = 1_200_000 + 400_000 * (at * 7 % 6);
        let begun = now();
        let applied = hal.apply(*policy, Setting::Frequency(KiloHertz::from_int(i32::try_from(khz)?)));
        waits.push(begun.elapsed());
        let reported = applied.context("a limit was refused")?.effective();
        rest(PAUSE);
        let mut batch = [power_hal::Reading::new(*policy)];
        hal.sample(&mut batch);
        let [reading] = batch;
        let found =
            reading.outcome.map_err(|kind| anyhow!("a policy could not be read: {kind}"))?.frequency_limit;
        wrong += u32::from(found.map(Setting::Frequency) != Ok(reported));
        late += u32::from(reported != Setting::Frequency(KiloHertz::from_int(i32::try_from(khz)?)));
    }
    waits.sort();
    let share = |hundredths: usize| waits.get(waits.len() * hundredths / 100).copied().unwrap_or_default();
    println!(
        "{wrong} {late} {} {} {}",
        share(50).as_micros(),
        share(99).as_micros(),
        waits.last().copied().unwrap_or_default().as_micros()
    );
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "how long a write takes is what is measured")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "another writer would come into force meanwhile")]
fn rest(pause: Duration) {
    std::thread::sleep(pause);
}
