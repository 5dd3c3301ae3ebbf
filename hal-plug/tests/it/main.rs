//! The meters of a board, on files as the kernel shows them and on a controller that answers with real bytes.

use hal_plug::{
    ANSWER_MAX, AcpiMeter, Bmc, BmcError, DcmiMeter, DevIpmi, IpmiRequest, PlugError, PlugReading, Root,
};
use power_hal::{Error, ErrorKind};
use power_units::{MicroWatts, Micros};
use rig::bmc::{BmcFault, VirtualBmc};
use rig::test_machine::Folder;
use std::time::Duration;

/// Stands in for the driver.
struct Behind(VirtualBmc);

impl Bmc for Behind {
    fn ask<'a>(
        &mut self,
        request: &IpmiRequest,
        answer: &'a mut [u8; ANSWER_MAX],
    ) -> Result<&'a [u8], PlugError> {
        let said = self.0.command(request.function(), request.command(), request.data());
        match said.map_err(|errno| PlugError::Bmc(BmcError::Device(errno)))? {
            Some(bytes) => {
                answer[..bytes.len()].copy_from_slice(&bytes);
                Ok(&answer[..bytes.len()])
            }
            None => Err(PlugError::Bmc(BmcError::Late)),
        }
    }
}

fn reading(watts: u64, millis: u64) -> PlugReading {
    PlugReading { power: MicroWatts::new(watts * 1_000_000), over: Some(Micros::new(millis * 1_000)) }
}

#[test]
fn a_controller_is_asked_for_its_power_and_nothing_else() {
    let bmc = VirtualBmc::drawing(812);
    let mut meter = DcmiMeter::over(Behind(bmc.clone()));
    assert_eq!(meter.read(), Ok(reading(812, 1_000)));
    bmc.draw(430);
    assert_eq!(meter.read(), Ok(reading(430, 1_000)));
    for (fault, kind) in [
        (BmcFault::Code(0xC1), ErrorKind::NotSupported),
        (BmcFault::Code(0xC3), ErrorKind::Busy),
        (BmcFault::Code(0xDF), ErrorKind::Busy),
        (BmcFault::Short(7), ErrorKind::BadData),
        (BmcFault::Short(0), ErrorKind::BadData),
        (BmcFault::Silent, ErrorKind::Timeout),
        (BmcFault::Driver(16), ErrorKind::Busy),
        (BmcFault::Driver(19), ErrorKind::Gone),
        (BmcFault::Paused, ErrorKind::Busy),
    ] {
        bmc.fail(Some(fault));
        assert_eq!(meter.read().map_err(|error| error.kind()), Err(kind), "{fault:?}");
    }
    bmc.fail(None);
    bmc.draw(0);
    assert_eq!(meter.read(), Err(PlugError::Impossible(MicroWatts::ZERO)));
    bmc.draw(431);
    assert_eq!(meter.read(), Ok(reading(431, 1_000)), "what failed before is over");
    // A limit whose exception action may power the host off is set by commands 04h and 05h.
    let all = bmc.asked();
    assert!(all.iter().all(|one| *one == (0x2C, 0x02, vec![0xDC, 1, 0, 0])), "{all:?}");
}

#[test]
fn a_node_without_a_controller_has_no_such_meter_and_a_file_is_none() {
    let folder = Folder::new();
    let dev = || DcmiMeter::over(DevIpmi::new(Root::at(&folder.0), Duration::ZERO));
    assert_eq!(dev().read(), Err(PlugError::Absent));
    folder.put("dev/ipmi0", "not a device");
    // ENOTTY: what is there is not the driver's.
    assert_eq!(dev().read(), Err(PlugError::Bmc(BmcError::Device(25))));
}

#[test]
fn the_files_of_the_acpi_meter_are_read_where_every_kernel_has_them() {
    for inside in ["", "device/"] {
        let folder = Folder::new();
        let at = |file: &str| format!("sys/class/hwmon/hwmon2/{inside}{file}");
        folder.put("sys/class/hwmon/hwmon0/name", "coretemp\n");
        folder.put("sys/class/hwmon/hwmon0/power1_average", "5000000\n");
        let mut meter = AcpiMeter::new(Root::at(&folder.0));
        assert_eq!(meter.read(), Err(PlugError::Absent), "another driver's power is not the plug's");
        folder.put(&at("name"), "power_meter\n");
        folder.put(&at("power1_average"), "344000000\n");
        folder.put(&at("power1_average_interval"), "2000\n");
        assert_eq!(meter.read(), Ok(reading(344, 2_000)), "{inside:?}");
        // The file stays open, and what is in it changes.
        folder.put(&at("power1_average"), "90000000\n");
        assert_eq!(meter.read(), Ok(reading(90, 2_000)));
        for (text, kind) in [
            ("0\n", ErrorKind::BadData),
            ("-5\n", ErrorKind::BadData),
            ("\n", ErrorKind::BadData),
            ("nan\n", ErrorKind::BadData),
            // What the firmware says when it does not know, in milliwatts of 32 bits.
            ("4294967295000\n", ErrorKind::BadData),
        ] {
            folder.put(&at("power1_average"), text);
            assert_eq!(meter.read().map_err(|error| error.kind()), Err(kind), "{text:?}");
        }
    }
}

#[test]
fn two_acpi_meters_are_none_and_that_of_a_battery_is_not_the_plugs() {
    let folder = Folder::new();
    for number in [1, 2] {
        folder.put(&format!("sys/class/hwmon/hwmon{number}/name"), "power_meter\n");
        folder.put(&format!("sys/class/hwmon/hwmon{number}/power1_average"), "200000000\n");
    }
    let mut meter = AcpiMeter::new(Root::at(&folder.0));
    assert_eq!(meter.read(), Err(PlugError::Several(2)));
    folder.put("sys/class/hwmon/hwmon1/power1_is_battery", "1\n");
    let read = meter.read().unwrap();
    assert_eq!((read.power, read.over), (MicroWatts::new(200_000_000), None));
}
