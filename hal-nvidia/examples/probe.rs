//! Looks at the NVIDIA GPUs of this machine and writes nothing: `probe [--lib PATH] [--rounds N]`.
//!
//! It prints each GPU's facts, range, limits, energy and power, runs the port's contract read-only with a second HAL as
//! its witness, and measures what reading costs. Each line begins with PASS, FAIL, SKIP, or nothing where it only tells;
//! the exit status is 1 if a line is FAIL. `apply`, `release` and `restore` are not in here.
#![expect(clippy::print_stdout, reason = "this is a program for a person at a terminal")]

use hal_nvidia::{GpuFacts, Library, Nvidia, NvidiaError, Scope};
use power_hal::contract::{Ledger, Mode, Rule, Twin, check};
use power_hal::{Clock, Control, Domain, ErrorKind, Handle, Measured, Memory, PowerHal, Reading};
use power_units::{MicroWatts, Micros, Stamp};
use std::process::ExitCode;
use std::time::{Duration, Instant};

type Hal = Nvidia<Monotonic, Ledger<Memory<64>>>;

/// The time since the program began.
#[derive(Clone, Copy)]
struct Monotonic(Instant);

impl Clock for Monotonic {
    fn now(&self) -> Stamp {
        Stamp::new(Micros::new(u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX)))
    }
}

#[expect(clippy::disallowed_methods, reason = "the program measures time, and nobody hands it in")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "the program has no event loop")]
fn wait(span: Duration) {
    std::thread::sleep(span);
}

/// What was found so far.
#[derive(Default)]
struct Verdict {
    passed: u32,
    failed: u32,
    skipped: u32,
}

impl Verdict {
    fn hold(&mut self, kept: bool, what: &str) {
        if kept {
            self.passed += 1;
        } else {
            self.failed += 1;
        }
        println!("{} {what}", if kept { "PASS" } else { "FAIL" });
    }

    fn skip(&mut self, why: &str) {
        self.skipped += 1;
        println!("SKIP({why})");
    }

    fn end(&self) -> ExitCode {
        println!("total: {} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped);
        if self.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

struct Asked {
    library: Library,
    rounds: usize,
}

fn asked() -> Result<Asked, String> {
    let mut asked = Asked { library: Library::of_the_system(), rounds: 1_000 };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} wants a value"));
        match word.as_str() {
            "--lib" => asked.library = Library::at(value?),
            "--rounds" => {
                let rounds = value?.parse().ok().filter(|&rounds| rounds > 0);
                asked.rounds = rounds.ok_or("--rounds wants a number above zero")?;
            }
            _ => return Err(format!("expected --lib PATH or --rounds N, not {word}")),
        }
    }
    Ok(asked)
}

fn main() -> ExitCode {
    let asked = match asked() {
        Ok(asked) => asked,
        Err(error) => {
            println!("FAIL {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut verdict = Verdict::default();
    println!("library: {}", asked.library.path().display());
    let began = now();
    match open(&asked.library, Scope::Gpu) {
        Ok(mut hal) => {
            println!("opened in {} µs", micros(began.elapsed()));
            look(&mut hal, &asked, &mut verdict);
        }
        Err(error) => verdict.hold(false, &format!("opening: {error}")),
    }
    verdict.end()
}

fn open(library: &Library, scope: Scope) -> Result<Hal, NvidiaError> {
    Nvidia::open(library.clone(), scope, Monotonic(now()), Ledger::new(Memory::new()))
}

fn look(hal: &mut Hal, asked: &Asked, verdict: &mut Verdict) {
    if let Some(absent) = hal.absent() {
        verdict.skip(&format!("absent: {absent}"));
        return;
    }
    let facts = hal.facts();
    println!("driver: {}", facts.driver.as_deref().unwrap_or("unknown"));
    for complaint in hal.complaints().iter().chain(&facts.complaints) {
        verdict.hold(false, &format!("{complaint}"));
    }
    let before = limits(hal);
    let list: Vec<(Handle, Domain)> =
        Hal::domains(hal).iter().map(|(handle, domain)| (handle, *domain)).collect();
    for ((handle, domain), gpu) in list.iter().zip(&facts.gpus) {
        println!();
        tell(gpu);
        hold_limit(hal, *handle, domain, verdict);
        hold_meter(hal, *handle, verdict);
    }
    println!();
    cost(hal, asked.rounds, verdict);
    contract(hal, asked, verdict);
    module(asked, verdict);
    verdict.hold(limits(hal) == before, "the limits are as they were");
}

fn tell(gpu: &GpuFacts) {
    fn known<T: ToString>(fact: Option<&T>) -> String {
        fact.map_or_else(|| "unknown".to_owned(), ToString::to_string)
    }
    println!("{}", gpu.uuid);
    println!("  model: {}", known(gpu.model.as_ref()));
    println!("  memory: {} MiB", known(gpu.vram_mib.as_ref()));
    println!("  PCI address: {}", known(gpu.pci.as_ref()));
    println!("  MIG: {}", gpu.mig.map_or_else(|| "unknown".to_owned(), |mig| format!("{mig:?}")));
    println!("  persistence mode: {}", known(gpu.persistence.as_ref()));
    let island = gpu.island.map_or_else(|| "none".to_owned(), |island| island.to_string());
    println!("  NVLinks up: {}, island: {island}", gpu.links);
}

/// What was asked of each card. To save an original writes nothing.
fn limits(hal: &mut Hal) -> Vec<Result<u64, ErrorKind>> {
    let handles: Vec<Handle> = Hal::domains(hal).iter().map(|(handle, _)| handle).collect();
    handles.into_iter().map(|handle| requested(hal, handle)).collect()
}

fn requested(hal: &mut Hal, handle: Handle) -> Result<u64, ErrorKind> {
    let original = hal.save(handle, Control::Power).map_err(|error| power_hal::Error::kind(&error))?;
    original.words().first().copied().ok_or(ErrorKind::BadData)
}

fn hold_limit(hal: &mut Hal, handle: Handle, domain: &Domain, verdict: &mut Verdict) {
    let Some(range) = domain.power() else {
        verdict.skip("it has no power limit that can be set");
        return;
    };
    let shown = |limit: Option<MicroWatts>| limit.map_or_else(|| "unknown".to_owned(), watts);
    let (min, max) = (shown(range.min()), shown(range.max()));
    println!("  range: {min} to {max} W, default {} W", shown(range.default()));
    let requested = requested(hal, handle).map(|limit| MicroWatts::new(limit * 1_000));
    let mut batch = [Reading::new(handle)];
    hal.sample(&mut batch);
    let [Reading { outcome, .. }] = batch;
    let enforced = outcome.and_then(|sample| sample.power_limit);
    match (requested, enforced) {
        (Ok(requested), Ok(enforced)) => {
            println!("  limit: {} W asked, {} W enforced", watts(requested), watts(enforced));
            verdict.hold(enforced <= requested, "what is enforced is not above what was asked");
            let inside = range.lower() <= requested && requested <= range.upper();
            verdict.hold(inside, "what was asked lies in the range");
        }
        (requested, enforced) => {
            verdict.hold(false, &format!("its limits: asked {requested:?}, enforced {enforced:?}"));
        }
    }
}

/// The counter over two seconds: how often it moves, and whether it agrees with the power.
fn hold_meter(hal: &mut Hal, handle: Handle, verdict: &mut Verdict) {
    let draw = hal.draw(handle);
    let told =
        |power: Result<MicroWatts, ErrorKind>| power.map_or_else(|kind| kind.label().to_owned(), watts);
    match &draw {
        Ok(draw) => println!(
            "  power: {} W now, {} W over the last second, {} W by nvmlDeviceGetPowerUsage",
            told(draw.instant),
            told(draw.average),
            told(draw.usage)
        ),
        Err(error) => verdict.hold(false, &format!("{error}")),
    }
    let mut moves: Vec<(u64, u64)> = Vec::new();
    let began = now();
    while began.elapsed() < Duration::from_secs(2) {
        let mut batch = [Reading::new(handle)];
        hal.sample(&mut batch);
        let [Reading { outcome, .. }] = batch;
        let Ok(Measured::Energy(energy)) = outcome.and_then(|sample| sample.meter) else {
            verdict.skip("it has no counter of energy that answers");
            return;
        };
        if moves.last().is_none_or(|(_, last)| *last != energy.get()) {
            moves.push((micros(began.elapsed()), energy.get()));
        }
        wait(Duration::from_millis(1));
    }
    verdict.hold(moves.len() > 2, &format!("the counter of energy moves: {} times in 2 s", moves.len() - 1));
    // The first value was not seen to come.
    let (Some((from, first)), Some((to, last))) = (moves.get(1), moves.last()) else { return };
    if let Some(span) = to.checked_sub(*from).filter(|&span| span > 0) {
        let period = span / u64::try_from(moves.len() - 2).unwrap_or(1).max(1);
        let mean_mw = last.saturating_sub(*first).saturating_mul(1_000) / span;
        println!("  energy: {last} µJ, a step each {period} µs, {mean_mw} mW on the way");
        if let Ok(Ok(average)) = draw.map(|draw| draw.usage) {
            let near = mean_mw.abs_diff(average.get() / 1_000) <= average.get() / 4_000;
            verdict.hold(near, "the counter agrees with the power within a quarter");
        }
    }
}

fn cost(hal: &mut Hal, rounds: usize, verdict: &mut Verdict) {
    let mut batch: Vec<Reading> = Hal::domains(hal).iter().map(|(handle, _)| Reading::new(handle)).collect();
    let mut spans = Vec::with_capacity(rounds);
    let counted = allocation_counter::measure(|| {
        for _ in 0..rounds {
            let began = now();
            hal.sample(&mut batch);
            spans.push(micros(began.elapsed()));
        }
    });
    print_spans(&format!("sample of {} GPUs", batch.len()), &mut spans);
    // Only what goes through Rust's allocator is counted; what the vendor's library does inside is its own.
    verdict.hold(counted.count_total == 0, &format!("sampling: {} heap allocations", counted.count_total));
    let mut spans = Vec::new();
    for _ in 0..10 {
        let began = now();
        if let Err(error) = hal.describe() {
            verdict.hold(false, &format!("{error}"));
        }
        spans.push(micros(began.elapsed()));
    }
    print_spans("describe", &mut spans);
    let began = now();
    let facts = hal.facts();
    println!("facts of {} GPUs: {} µs", facts.gpus.len(), micros(began.elapsed()));
}

fn print_spans(what: &str, spans: &mut [u64]) {
    spans.sort_unstable();
    let at = |percent: usize| spans.get(spans.len().saturating_sub(1) * percent / 100).copied().unwrap_or(0);
    let (best, median, most, worst) = (at(0), at(50), at(99), at(100));
    println!("{what}: {best} µs best, {median} median, {most} at 99 %, {worst} worst of {}", spans.len());
}

fn contract(hal: &mut Hal, asked: &Asked, verdict: &mut Verdict) {
    let twin = match open(&asked.library, Scope::Gpu) {
        Ok(twin) => twin,
        Err(error) => return verdict.hold(false, &format!("a second HAL: {error}")),
    };
    let mut world = Twin::new(twin, |span: Micros| wait(Duration::from_micros(span.get())));
    match check(hal, &mut world, Mode::ReadOnly) {
        Ok(report) => {
            let looks: u32 = Rule::ALL.into_iter().map(|rule| report.looks(rule)).sum();
            verdict
                .hold(true, &format!("the contract, read-only: {looks} looks at {} domains", report.domains));
        }
        Err(breach) => verdict.hold(false, &format!("{breach}")),
    }
}

fn module(asked: &Asked, verdict: &mut Verdict) {
    match open(&asked.library, Scope::Module) {
        Ok(hal) if Hal::domains(&hal).as_slice().iter().any(|domain| domain.has(Control::Power)) => {
            for domain in Hal::domains(&hal).as_slice() {
                println!("module of {}: {:?}", domain.key(), domain.power());
            }
        }
        Ok(_) => verdict.skip("no GPU sits on a module with a limit of its own"),
        Err(error) => verdict.hold(false, &format!("the module's scope: {error}")),
    }
}

fn watts(power: MicroWatts) -> String {
    let milliwatts = power.get() / 1_000;
    format!("{}.{:03}", milliwatts / 1_000, milliwatts % 1_000)
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
