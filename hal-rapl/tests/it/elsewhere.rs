//! Tests that need another process: one in a mount namespace, where the msru crate's path leads to the rig, and one
//! without root's privileges. Each starts this test program again with the single test for that process.

use crate::bench::{Bench, Ticks};
use crate::golden::{apply, kind, sample, w};
use hal_files::Root;
use hal_rapl::Powercap;
use power_hal::contract::RefusableOriginals;
use power_hal::{ErrorKind, OriginalsInMemory, PowerHal};
use std::path::PathBuf;
use std::process::{Command, Output};

const FOLDER: &str = "HAL_RAPL_TEST_FOLDER";

/// The folder that the outer test mounted; `None` when this test is run by itself and has nothing to do.
#[expect(clippy::disallowed_methods, reason = "how the outer test hands its folder over")]
fn handed_over() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

/// Starts one test of this program by way of `shell`, which gets the program and its arguments as `"$@"`.
fn again(bench: &Bench, by: &[&str], test: &str) -> Option<Output> {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(by[0]);
    command.args(&by[1..]).arg(program).args(["--exact", test, "--nocapture"]);
    match command.env(FOLDER, &bench.folder.0).output() {
        Ok(output) => Some(output),
        Err(error) => {
            println!("SKIP(no {}: {error})", by[0]);
            None
        }
    }
}

fn passed(output: &Output) {
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    assert!(!said.contains("SKIP"), "{said}");
}

#[test]
fn without_privileges_the_counter_is_denied_and_the_limit_is_readable() {
    let Some(bench) = Bench::mounted("xeon-2s") else { return };
    let drop = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let Some(output) = again(&bench, &drop, "elsewhere::inside_without_privileges") else { return };
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("Permission denied") && !said.contains("panicked") {
        println!("SKIP(the test program is in a folder that others may not enter)");
        return;
    }
    passed(&output);
    assert!(bench.writes().is_empty());
}

#[test]
fn inside_without_privileges() {
    let Some(folder) = handed_over() else { return };
    let mut hal = Powercap::open(
        Root::at(folder),
        Ticks::default(),
        RefusableOriginals::new(OriginalsInMemory::<2>::new()),
    )
    .unwrap();
    assert_eq!(hal.domains().len(), 2);
    let said = sample(&mut hal, "package-0").unwrap();
    assert_eq!((said.meter, said.power_limit), (Err(ErrorKind::PermissionDenied), Ok(w(250))));
    assert_eq!(kind(apply(&mut hal, "package-0", w(100))), ErrorKind::PermissionDenied);
    assert_eq!(hal.originals().inner().len(), 0);
}

#[cfg(feature = "msru")]
mod msru {
    use super::{
        Bench, OriginalsInMemory, PowerHal, RefusableOriginals, Root, Ticks, again, handed_over, passed,
        sample, w,
    };
    use crate::golden::{effective, find};
    use hal_rapl::MsrRapl;
    use hal_rapl::msr::{MsrIo, Msru};
    use power_hal::{ErrorKind, Released};

    /// Where a machine has no /dev/cpu to mount on, all of /dev is covered: the inner test opens nothing else there.
    const MOUNT: &str = r#"set -e
if [ -d /dev/cpu ]; then mount --bind "$HAL_RAPL_TEST_FOLDER/dev/cpu" /dev/cpu
else mount --bind "$HAL_RAPL_TEST_FOLDER/dev" /dev; fi
echo namespace-ready >&2
exec "$@""#;

    #[test]
    fn the_msru_crate_reaches_the_registers_of_the_rig() {
        let Some(bench) = Bench::of("xeon-2s", |machine| machine.boot_without_powercap()) else { return };
        let by = ["unshare", "-m", "--propagation", "private", "sh", "-c", MOUNT, "sh"];
        let Some(output) = again(&bench, &by, "elsewhere::msru::inside_the_namespace") else { return };
        let said = String::from_utf8_lossy(&output.stderr);
        if !said.contains("namespace-ready") {
            println!("SKIP(no mount namespace here: {said})");
            return;
        }
        passed(&output);
        assert_eq!(bench.writes().len(), 2, "a cap and its release");
        assert_eq!(bench.zone("intel-rapl:0", |slot| slot.zone.power_limit_uw(0)), 250_000_000);
    }

    #[test]
    fn inside_the_namespace() {
        let Some(folder) = handed_over() else { return };
        let mut registers = Msru::new();
        assert_eq!(registers.read(0, 0x606), Ok(0xa_0e03));
        assert_eq!(registers.read(0, 0x123).unwrap_err().kind, ErrorKind::Io);
        assert_eq!(registers.read(9_999, 0x606).unwrap_err().kind, ErrorKind::Gone);
        let journal = RefusableOriginals::new(OriginalsInMemory::<2>::new());
        let mut hal = MsrRapl::open(Root::at(folder), registers, Ticks::default(), journal).unwrap();
        assert_eq!(hal.domains().len(), 2);
        assert_eq!(sample(&mut hal, "package-1").unwrap().power_limit, Ok(w(250)));
        assert_eq!(effective(&mut hal, "package-0", w(100)), (100_000_000, true));
        let handle = find(&hal, "package-0").0;
        assert_eq!(hal.release(handle).unwrap(), Released::Restored);
    }
}
