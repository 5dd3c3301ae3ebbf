//! The port's contract, on virtual GPUs of several kinds.

use crate::support::{Bench, Hal, THIRD};
use hal_nvidia::{Library, LimitScope, Nvidia};
use power_hal::contract::{
    ContractMode, ContractReport, ContractWorld, DomainFault, RefusableOriginals, Rule, check,
};
use power_hal::{Control, Key, OriginalsInMemory, PowerHal, Setting};
use power_units::{MicroWatts, Micros};

/// The files of the GPUs, which the HAL under test does not read itself.
struct Files<'b> {
    bench: &'b Bench,
    scope: LimitScope,
}

impl Files<'_> {
    /// The folder of a domain's limit.
    fn folder(&self, domain: &Key) -> String {
        let name = self.bench.name(domain).unwrap();
        match self.scope {
            LimitScope::Gpu => format!("gpus/{name}"),
            LimitScope::Module => format!("gpus/{name}/module"),
        }
    }

    fn errors(&self, domain: &Key) -> String {
        format!("gpus/{}/errors", self.bench.name(domain).unwrap())
    }
}

impl ContractWorld<Hal> for Files<'_> {
    fn in_force(&mut self, domain: &Key, control: Control) -> Option<Setting> {
        if control == Control::Frequency {
            return self.bench.lock(domain).filter(|_| self.scope == LimitScope::Gpu);
        }
        let folder = self.folder(domain);
        let number = |file: &str| self.bench.get(&format!("{folder}/{file}"))?.parse::<u64>().ok();
        // A card that reports no range has no limit that the port could set.
        number("min_mw")?;
        let limit = number("limit_mw")?;
        let enforced = number("oob_mw").map_or(limit, |oob| oob.min(limit));
        (control == Control::Power).then(|| Setting::Power(MicroWatts::new(enforced * 1_000)))
    }

    fn advance(&mut self, span: Micros) -> bool {
        self.bench.ticks.advance(span);
        for name in self.bench.names() {
            let file = format!("gpus/{name}/energy_mj");
            if self.bench.get(&file).is_some() {
                // 300 W for the span.
                let energy = self.bench.number(&file) + span.get() * 300 / 1_000;
                self.bench.put(&file, &energy.to_string()).unwrap();
            }
        }
        true
    }

    fn cause(&mut self, trouble: DomainFault) -> bool {
        match trouble {
            // NVML has no lock: a process without permission gets a permission error.
            DomainFault::Locked(_) => return false,
            DomainFault::Unreadable(domain) => self.bench.put(&self.errors(&domain), "* 999").unwrap(),
            DomainFault::Vanished(domain) => self.bench.put(&self.errors(&domain), "* 15").unwrap(),
            DomainFault::Moved(domain, Setting::Power(to)) => {
                let file = format!("{}/limit_mw", self.folder(&domain));
                self.bench.put(&file, &(to.get() / 1_000).to_string()).unwrap();
            }
            DomainFault::Moved(_, Setting::Frequency(_) | Setting::Throttle(_)) => return false,
            DomainFault::Renumbered => {
                let turned: Vec<String> = self.bench.names().into_iter().rev().collect();
                self.bench.put("order", &turned.join("\n")).unwrap();
                // Numbers change with a reload; here it keeps the limits, as persistenced may have restored them.
                self.bench.end_sessions().unwrap();
            }
        }
        true
    }

    fn heal(&mut self, trouble: DomainFault) {
        match trouble {
            DomainFault::Unreadable(domain) | DomainFault::Vanished(domain) => {
                self.bench.remove(&self.errors(&domain));
            }
            DomainFault::Renumbered => self.bench.remove("order"),
            DomainFault::Locked(_) | DomainFault::Moved(..) => {}
        }
    }

    fn restart(&mut self, hal: &mut Hal) -> bool {
        let journal = hal.originals().clone();
        // The old session ends with the process, before the next one begins.
        let library = Library::at("/nowhere/libnvidia-ml.so.1");
        *hal = Nvidia::open(library, self.scope, self.bench.ticks.clone(), journal.clone()).unwrap();
        *hal = self.bench.open_with(self.scope, journal).unwrap();
        true
    }
}

fn run(bench: &Bench, scope: LimitScope, mode: ContractMode) -> ContractReport {
    let mut hal = bench.open_with(scope, RefusableOriginals::new(OriginalsInMemory::new())).unwrap();
    let before: Vec<_> =
        bench.names().iter().map(|name| bench.get(&format!("gpus/{name}/limit_mw"))).collect();
    let report =
        check(&mut hal, &mut Files { bench, scope }, mode).unwrap_or_else(|breach| panic!("{breach}"));
    let after: Vec<_> =
        bench.names().iter().map(|name| bench.get(&format!("gpus/{name}/limit_mw"))).collect();
    assert_eq!(before, after);
    report
}

fn unseen(report: &ContractReport) -> Vec<Rule> {
    report.unseen().collect()
}

#[test]
fn the_contract_holds_on_three_cards() {
    let report = run(&Bench::three(), LimitScope::Gpu, ContractMode::Full);
    assert_eq!((report.domains, report.controls, report.blocked, report.blind), (3, 3, 0, 0));
    // The library changes one limit in one call, and has no lock.
    assert_eq!(unseen(&report), [Rule::Ordered, Rule::LockedSaid]);
}

#[test]
fn the_contract_holds_where_a_stricter_limit_is_set_out_of_band() {
    let bench = Bench::three();
    bench.put("gpus/a/oob_mw", "400000").unwrap();
    bench.put("gpus/c/oob_mw", "100000").unwrap();
    let report = run(&bench, LimitScope::Gpu, ContractMode::Full);
    assert_eq!((report.domains, report.controls, report.blocked, report.blind), (3, 3, 0, 0));
}

#[test]
fn the_contract_holds_on_the_limit_of_a_module() {
    let bench = Bench::module();
    let report = run(&bench, LimitScope::Module, ContractMode::Full);
    assert_eq!((report.domains, report.controls), (1, 1));
    assert_eq!(unseen(&report), [Rule::BatchSurvives, Rule::Ordered, Rule::LockedSaid]);
    assert_eq!(bench.get("gpus/a/log"), None, "the limit of the card itself was never set");
}

#[test]
fn the_contract_holds_without_a_counter_and_on_a_card_that_cannot_be_limited() {
    let bench = Bench::three();
    bench.remove("gpus/a/energy_mj");
    bench.remove("gpus/b/min_mw");
    let report = run(&bench, LimitScope::Gpu, ContractMode::Full);
    assert_eq!((report.domains, report.controls), (3, 2));
}

#[test]
fn the_contract_holds_where_nobody_may_set_a_limit() {
    let bench = Bench::three();
    for name in bench.names() {
        bench.put(&format!("gpus/{name}/errors"), "nvmlDeviceSetPowerManagementLimit 4").unwrap();
    }
    let report = run(&bench, LimitScope::Gpu, ContractMode::Lowering);
    assert_eq!((report.domains, report.controls, report.blocked), (3, 0, 3));
}

#[test]
fn the_modes_for_real_machines_raise_nothing_and_write_nothing() {
    let bench = Bench::three();
    let report = run(&bench, LimitScope::Gpu, ContractMode::ReadOnly);
    assert_eq!((report.domains, report.controls), (3, 0));
    for name in bench.names() {
        assert_eq!(bench.get(&format!("gpus/{name}/log")), None);
    }
    let report = run(&bench, LimitScope::Gpu, ContractMode::Lowering);
    assert_eq!((report.domains, report.controls), (3, 3));
    for name in bench.names() {
        let log = bench.get(&format!("gpus/{name}/log")).unwrap();
        let default = bench.number(&format!("gpus/{name}/default_mw"));
        assert!(log.lines().all(|set| set.parse::<u64>().unwrap() <= default), "{name}: {log}");
    }
    // Its default is below its maximum, and the maximum was not requested.
    assert_eq!(bench.number("gpus/c/limit_mw"), u64::from(THIRD.default_mw));
}

/// The driver tells nobody what it has locked, so the world reads it from the stub's file.
#[test]
fn the_contract_holds_for_the_lock_of_the_clock() {
    let bench = Bench::three();
    for name in bench.names() {
        bench.put(&format!("gpus/{name}/clocks_mhz"), "345 1980 15").unwrap();
        bench.put(&format!("gpus/{name}/clock_mhz"), "345").unwrap();
    }
    let report = run(&bench, LimitScope::Gpu, ContractMode::Full);
    assert_eq!((report.domains, report.controls, report.blocked, report.blind), (3, 6, 0, 0));
    assert_eq!(unseen(&report), [Rule::Ordered, Rule::LockedSaid]);
    for name in bench.names() {
        assert_eq!(bench.get(&format!("gpus/{name}/lock_mhz")).as_deref(), Some("0 0"));
    }
    // A module has a processor beside its GPU, which a lock of the GPU's clock would not hold.
    let module = Bench::module();
    module.put("gpus/a/clocks_mhz", "345 1980 15").unwrap();
    assert_eq!(run(&module, LimitScope::Module, ContractMode::Full).controls, 1);
}

#[test]
fn the_contract_holds_where_the_library_is_absent() {
    let bench = Bench::empty();
    bench.remove("libnvidia-ml.so.1");
    assert_eq!(run(&bench, LimitScope::Gpu, ContractMode::Full).domains, 0);
}
