//! power-hal: the verbs on the mock, the contract, and the functions that every HAL calls.

use power_hal::contract::{self, ContractBreach, ContractMode, ContractReport, Opaque, RefusableOriginals};
use power_hal::mock::{Mock, MockError, MockMachine};
use power_hal::{
    Applied, BadCpus, Counter, CpuSet, Domain, ErrorKind, Handle, Key, KeyError, OriginalsInMemory,
    PortError, PowerHal, Reading, Released, Setting, Surface, Untold, couple, lower_first,
};
use power_units::{MicroJoules, MicroWatts};

type Hal<'g> = Mock<'g, OriginalsInMemory<4>, 2>;

roots! {
    fn hal_apply(hal: &mut Hal<'_>, domain: Handle, setting: Setting) -> Result<Applied, PortError<MockError>> {
        hal.apply(domain, setting)
    }

    fn hal_release(hal: &mut Hal<'_>, domain: Handle) -> Result<Released, PortError<MockError>> {
        hal.release(domain)
    }

    fn hal_sample(hal: &mut Hal<'_>, readings: &mut [Reading]) -> bool {
        hal.sample(readings);
        hal.describe().is_ok()
    }

    fn hal_contract(hal: &mut Mock<'_, RefusableOriginals<OriginalsInMemory<4>>, 2>, mode: ContractMode) -> Result<ContractReport, ContractBreach> {
        contract::check(hal, &mut Opaque, mode)
    }

    fn hal_open(machine: &MockMachine<2>) -> Hal<'_> {
        Mock::open(machine, OriginalsInMemory::new())
    }

    fn hal_keys(text: &str, package: u16) -> (Result<Key, KeyError>, Result<Domain, KeyError>, Key) {
        (Key::parse(text), Domain::gpu(text), Key::package(package, None))
    }

    fn hal_cpus(text: &str, domains: &mut [Domain], cores: &[CpuSet]) -> Result<CpuSet, BadCpus> {
        couple(domains, cores.iter().copied());
        CpuSet::parse(text)
    }

    fn hal_counter(counter: Counter, earlier: MicroJoules, later: MicroJoules) -> Result<MicroJoules, Untold> {
        if counter.tells(later) { counter.between(earlier, later) } else { Err(Untold::WrapsUnknowable) }
    }

    fn hal_errno(errno: i32) -> ErrorKind {
        ErrorKind::from_errno(errno, Surface::PowercapWrite)
    }

    fn hal_order(limits: &[(MicroWatts, MicroWatts)]) -> Option<usize> {
        lower_first(limits).last()
    }
}
