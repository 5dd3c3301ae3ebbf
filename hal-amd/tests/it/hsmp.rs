//! The mailbox of EPYC sockets: the backend's reaction to any answer, with a scripted mailbox, and the system call
//! itself on a virtual `/dev/hsmp`.

use crate::contract::{UNSEEN, run};
use crate::support::{
    Drivers, Folder, Hal, TestMachine, apply, effective, find, keys, over, release, sample, w,
};
use hal_amd::{DevHsmp, DeviceBackend, DeviceSelection, Hsmp, HsmpCommand, HsmpMessage, Hwmon, Mailbox};
use hal_files::Root;
use power_hal::contract::Rule;
use power_hal::{
    ApplyOutcome, Error, ErrorKind, Key, Measured, PowerHal, Released, Setting, Throttled, ThrottledMeter,
};
use power_units::MicroWatts;
use rig::faults::{Direction, Effect, Fault};
use rig::machine::VirtualAttribute;
use std::cell::RefCell;
use std::fs::OpenOptions;
use std::rc::Rc;

/// Firmware of two sockets with scripted answers.
#[derive(Clone, Default)]
struct Scripted(Rc<RefCell<Firmware>>);

struct Firmware {
    limit: [u32; 2],
    max: u32,
    /// What limits the frequency; `None` where the firmware does not know the question.
    reasons: Option<u32>,
    failing: Vec<(HsmpCommand, i32)>,
    sent: Vec<HsmpMessage>,
}

impl Default for Firmware {
    fn default() -> Self {
        Self { limit: [400_000; 2], max: 400_000, reasons: None, failing: Vec::new(), sent: Vec::new() }
    }
}

impl Mailbox for Scripted {
    fn send(&self, message: &mut HsmpMessage) -> Result<(), i32> {
        let mut firmware = self.0.borrow_mut();
        firmware.sent.push(*message);
        let at = usize::from(message.socket);
        if at >= firmware.limit.len() {
            return Err(libc::ENODEV);
        }
        if let Some((_, errno)) = firmware.failing.iter().find(|(ask, _)| ask.id() == message.id) {
            return Err(*errno);
        }
        match message.id {
            4 => message.words[0] = 123_456,
            5 => firmware.limit[at] = message.words[0].min(firmware.max),
            6 => message.words[0] = firmware.limit[at],
            7 => message.words[0] = firmware.max,
            0x19 => message.words[0] = (3_000 << 16) | firmware.reasons.ok_or(libc::ENOMSG)?,
            other => panic!("message {other}"),
        }
        Ok(())
    }
}

fn scripted() -> (Scripted, Hal<Hsmp<Scripted>>, Folder) {
    let (mailbox, folder) = (Scripted::default(), Folder::new());
    let hal = over(Hsmp::over(Root::at(&folder.0), mailbox.clone()));
    (mailbox, hal, folder)
}

#[test]
fn a_socket_is_measured_and_limited_in_milliwatts() {
    let (mailbox, mut hal, _folder) = scripted();
    assert_eq!(keys(&hal), ["socket-0", "socket-1"]);
    let limit = *hal.domains().as_slice()[0].power().unwrap();
    assert_eq!((limit.min(), limit.max(), limit.lower(), limit.upper()), (None, Some(w(400)), w(1), w(400)));
    let sampled = sample(&mut hal, &Key::socket(1)).unwrap();
    assert_eq!(sampled.meter, Ok(Measured::Power(MicroWatts::new(123_456_000))));
    assert_eq!(sampled.power_limit, Ok(w(400)));
    let applied = apply(&mut hal, &Key::socket(1), MicroWatts::new(250_000_999)).unwrap();
    assert_eq!((applied.outcome(), applied.effective()), (ApplyOutcome::Exact, Setting::Power(w(250))));
    assert_eq!(mailbox.0.borrow().limit, [400_000, 250_000], "the other socket is untouched");
    assert_eq!(release(&mut hal, &Key::socket(1)), Ok(Released::Restored));
    assert_eq!(mailbox.0.borrow().limit, [400_000; 2]);
}

#[test]
fn each_message_has_its_number_and_the_counts_that_the_driver_insists_on() {
    let (mailbox, mut hal, _folder) = scripted();
    apply(&mut hal, &Key::socket(0), w(300)).unwrap();
    let sent = mailbox.0.borrow().sent.clone();
    assert!(sent.iter().any(|message| message.id == 5 && message.words == [300_000, 0, 0, 0, 0, 0, 0, 0]));
    for message in sent {
        let shape = if message.id == 5 { (1, 0) } else { (0, 1) };
        assert_eq!((message.arguments, message.answers), shape, "{message:?}");
    }
}

#[test]
fn what_limits_the_frequency_tells_whether_the_power_limit_does() {
    let (mailbox, mut hal, _folder) = scripted();
    assert_eq!(hal.domains().as_slice()[0].throttled(), None);
    let throttled = |hal: &mut Hal<Hsmp<Scripted>>| sample(hal, &Key::socket(0)).unwrap().throttled;
    assert_eq!(throttled(&mut hal), Err(ErrorKind::NotSupported));
    // None; the power limit; heat and current; all of them.
    for (reasons, held) in [(0, false), (1 << 3, true), (1 << 1 | 1 << 2, false), (0xff, true)] {
        mailbox.0.borrow_mut().reasons = Some(reasons);
        hal.describe().unwrap();
        assert_eq!(hal.domains().as_slice()[0].throttled(), Some(ThrottledMeter::Instant));
        assert_eq!(throttled(&mut hal), Ok(Throttled::Instant(held)), "{reasons:#x}");
    }
    mailbox.0.borrow_mut().failing = vec![(HsmpCommand::FrequencyLimit, libc::ETIMEDOUT)];
    assert_eq!(throttled(&mut hal), Err(ErrorKind::Timeout));
    hal.describe().unwrap();
    assert_eq!(hal.domains().as_slice()[0].throttled(), Some(ThrottledMeter::Instant), "it knew before");
}

#[test]
fn a_socket_in_hwmon_is_asked_what_limits_it_through_the_mailbox_and_nothing_else() {
    let (mailbox, folder) = (Scripted::default(), Folder::new());
    let files = [("power1_cap", "400000000"), ("power1_cap_max", "400000000"), ("power1_input", "123456000")];
    folder.hwmon(7, "platform/AMDI0097:00", "amd_hsmp_hwmon", &files);
    folder.put("sys/devices/platform/AMDI0097:00/firmware_node/uid", "ID01\n");
    let root = || Root::at(&folder.0);
    let mut hal = over(Hwmon::over(root(), DeviceSelection::Sockets, mailbox.clone()));
    let throttled = |hal: &mut Hal<Hwmon<Scripted>>| sample(hal, &Key::socket(1)).unwrap().throttled;
    assert_eq!(hal.domains().as_slice()[0].throttled(), None, "its firmware does not know the question");
    assert_eq!(throttled(&mut hal), Err(ErrorKind::NotSupported));
    mailbox.0.borrow_mut().reasons = Some(1 << 3);
    hal.describe().unwrap();
    assert_eq!(hal.domains().as_slice()[0].throttled(), Some(ThrottledMeter::Instant));
    assert_eq!(throttled(&mut hal), Ok(Throttled::Instant(true)));
    mailbox.0.borrow_mut().reasons = Some(1 << 1);
    assert_eq!(throttled(&mut hal), Ok(Throttled::Instant(false)), "heat is no power limit");
    mailbox.0.borrow_mut().failing = vec![(HsmpCommand::FrequencyLimit, libc::ETIMEDOUT)];
    hal.describe().unwrap();
    assert_eq!(throttled(&mut hal), Err(ErrorKind::Timeout), "it knew before");
    apply(&mut hal, &Key::socket(1), w(300)).unwrap();
    let sent = mailbox.0.borrow().sent.clone();
    assert!(sent.iter().all(|message| (message.id, message.socket) == (0x19, 1)), "{sent:?}");
    // Without the device the socket says nothing of it, and that is no complaint.
    let hal = over(Hwmon::new(root(), DeviceSelection::Sockets));
    assert_eq!((hal.domains().as_slice()[0].throttled(), hal.complaints()), (None, &[][..]));
}

#[test]
fn every_error_number_of_the_driver_is_a_kind_and_is_told_with_the_message() {
    for (errno, kind) in [
        (libc::ETIMEDOUT, ErrorKind::Timeout),
        (libc::EINVAL, ErrorKind::OutOfRange),
        (libc::ENODEV, ErrorKind::Gone),
        (libc::EBUSY, ErrorKind::Busy),
        (libc::EPERM, ErrorKind::PermissionDenied),
        (libc::EREMOTEIO, ErrorKind::Io),
        (libc::EIO, ErrorKind::Io),
        (libc::ENOMSG, ErrorKind::NotSupported),
    ] {
        let (mailbox, mut hal, _folder) = scripted();
        mailbox.0.borrow_mut().failing = vec![(HsmpCommand::SetLimit, errno)];
        let handle = find(&hal, &Key::socket(0));
        let failure = hal.apply(handle, Setting::Power(w(300))).unwrap_err();
        assert_eq!(failure.kind(), kind, "{errno}");
        let text = failure.to_string();
        assert!(
            text.contains("socket-0: setting the power limit") && text.contains(&errno.to_string()),
            "{text}"
        );
        assert_eq!(release(&mut hal, &Key::socket(0)), Ok(Released::Untouched), "nothing was touched");
    }
}

#[test]
fn a_message_that_the_firmware_does_not_know_is_something_that_the_socket_does_not_have() {
    let shape = |failing: &[(HsmpCommand, i32)]| {
        let (mailbox, mut hal, _folder) = scripted();
        mailbox.0.borrow_mut().failing = failing.to_vec();
        hal.describe().unwrap();
        let first = hal.domains().as_slice().first().copied();
        first.map(|domain| (domain.meter().is_some(), domain.power().map(|power| power.max())))
    };
    let unknown = libc::ENOMSG;
    assert_eq!(shape(&[(HsmpCommand::Limit, unknown)]), Some((true, None)));
    assert_eq!(shape(&[(HsmpCommand::Power, unknown)]), Some((false, Some(Some(w(400))))));
    assert_eq!(shape(&[(HsmpCommand::Power, unknown), (HsmpCommand::Limit, unknown)]), None);
    // A time-out is no answer, and the known values stay valid.
    let late = libc::ETIMEDOUT;
    assert_eq!(
        shape(&[(HsmpCommand::Power, late), (HsmpCommand::Limit, late), (HsmpCommand::LimitMax, late)]),
        Some((true, Some(Some(w(400)))))
    );
}

#[test]
fn one_message_without_an_answer_leaves_the_other_value() {
    let (mailbox, mut hal, _folder) = scripted();
    mailbox.0.borrow_mut().failing = vec![(HsmpCommand::Power, libc::ETIMEDOUT)];
    let sampled = sample(&mut hal, &Key::socket(0)).unwrap();
    assert_eq!((sampled.meter, sampled.power_limit), (Err(ErrorKind::Timeout), Ok(w(400))));
    mailbox.0.borrow_mut().failing.push((HsmpCommand::Limit, libc::ETIMEDOUT));
    assert_eq!(sample(&mut hal, &Key::socket(0)), Err(ErrorKind::Timeout));
}

#[test]
fn numbers_that_cannot_be_are_bad_data() {
    let (mailbox, mut hal, _folder) = scripted();
    for limit in [0, u32::MAX] {
        mailbox.0.borrow_mut().limit = [limit; 2];
        assert_eq!(
            sample(&mut hal, &Key::socket(0)).unwrap().power_limit,
            Err(ErrorKind::BadData),
            "{limit}"
        );
        assert_eq!(apply(&mut hal, &Key::socket(0), w(300)), Err(ErrorKind::BadData), "{limit}");
        assert_eq!(mailbox.0.borrow().limit, [limit; 2], "nothing was written");
    }
    mailbox.0.borrow_mut().max = u32::MAX;
    hal.describe().unwrap();
    assert_eq!(hal.domains().as_slice()[0].power().unwrap().max(), Some(w(400)));
    assert_eq!(hal.complaints().iter().map(Error::kind).collect::<Vec<_>>(), [ErrorKind::BadData; 2]);
}

#[test]
fn the_mailbox_is_left_alone_where_a_socket_stands_in_hwmon() {
    let (mailbox, mut hal, folder) = scripted();
    let files = [("power1_cap", "400000000")];
    folder.hwmon(3, "platform/amd_hsmp", "amd_hsmp_hwmon", &files);
    mailbox.0.borrow_mut().sent.clear();
    assert_eq!(hal.describe().unwrap().len(), 0);
    assert_eq!(mailbox.0.borrow().sent, []);
    folder.gpu(4, "0000:0c:00.0");
    folder.remove("sys/class/hwmon/hwmon3");
    assert_eq!(hal.describe().unwrap().len(), 2, "a GPU in hwmon is no socket");
}

#[test]
fn a_machine_without_the_device_has_no_socket() {
    let folder = Folder::new();
    let mut hal = over(Hsmp::new(Root::at(&folder.0)));
    assert_eq!((hal.describe().unwrap().len(), hal.complaints()), (0, &[][..]));
    // Another file under that name does not know the call.
    folder.put("dev/hsmp", "");
    assert_eq!(hal.describe().unwrap().len(), 0);
}

#[test]
fn a_sample_and_a_limit_allocate_nothing() {
    let Some(room) = old() else { return };
    let mut hal = real(&room);
    let mut batch = [power_hal::Reading::new(find(&hal, &Key::socket(0)))];
    let allocations = allocation_counter::measure(|| {
        hal.sample(&mut batch);
        hal.apply(batch[0].domain, Setting::Power(w(300))).unwrap();
        hal.release(batch[0].domain).unwrap();
    });
    assert_eq!(allocations.count_total, 0);
    assert!(batch[0].outcome.is_ok());
}

/// A machine whose driver does not register hwmon yet.
fn old() -> Option<TestMachine> {
    let room = TestMachine::profile("epyc")?;
    room.machine.lock().age_hsmp_driver();
    Some(room)
}

fn real(room: &TestMachine) -> Hal<Hsmp<DevHsmp>> {
    over(Hsmp::new(Root::at(&room.folder.0)))
}

#[test]
fn the_contract_holds_through_the_device() {
    let Some(room) = old() else { return };
    let report = run(&room, || Hsmp::new(Root::at(&room.folder.0)));
    assert_eq!((report.domains, report.controls, report.blocked, report.blind), (2, 2, 0, 0));
    assert_eq!(report.unseen().collect::<Vec<_>>(), UNSEEN);
    assert!(report.looks(Rule::GoneSaid) > 0);
    assert_eq!(keys(&room.open()), [""; 0], "and hwmon has none of them");
}

#[test]
fn a_driver_that_knows_hwmon_leaves_the_device_unused() {
    let Some(room) = TestMachine::profile("epyc") else { return };
    assert!(room.folder.0.join("dev/hsmp").exists());
    assert_eq!(keys(&real(&room)), [""; 0]);
    assert_eq!(keys(&room.open()), ["socket-0", "socket-1"]);
}

/// HSMP: clip to max.
#[test]
fn the_firmware_clips_at_a_maximum_that_has_fallen() {
    let Some(room) = old() else { return };
    let mut hal = real(&room);
    room.device(&Key::socket(0), |_, slot| slot.hwmon.max_uw = 300_000_000);
    let applied = apply(&mut hal, &Key::socket(0), w(350)).unwrap();
    let (requested, in_force) = (Setting::Power(w(350)), Setting::Power(w(300)));
    assert_eq!(applied.outcome(), ApplyOutcome::Clamped { requested, effective: in_force });
    assert_eq!(effective(&mut hal, &Key::socket(0), w(500)), w(300));
}

fn strike(room: &TestMachine, ask: HsmpCommand, errno: i32) {
    let direction = if ask == HsmpCommand::SetLimit { Direction::Write } else { Direction::Read };
    let at = room.device(&Key::socket(0), |at, _| at);
    let fault = Fault {
        on: VirtualAttribute::HsmpMessage(at, ask.id()),
        direction,
        effect: Effect::Fails(errno),
        times: 1,
    };
    room.machine.lock().faults().add(fault);
}

/// HSMP: ETIMEDOUT.
#[test]
fn a_mailbox_that_does_not_answer_is_a_time_out_of_that_value() {
    let Some(room) = old() else { return };
    let mut hal = real(&room);
    strike(&room, HsmpCommand::Power, libc::ETIMEDOUT);
    let sampled = sample(&mut hal, &Key::socket(0)).unwrap();
    assert_eq!((sampled.meter, sampled.power_limit), (Err(ErrorKind::Timeout), Ok(w(400))));
    strike(&room, HsmpCommand::SetLimit, libc::ETIMEDOUT);
    assert_eq!(apply(&mut hal, &Key::socket(0), w(300)), Err(ErrorKind::Timeout));
    assert_eq!(effective(&mut hal, &Key::socket(0), w(300)), w(300));
}

/// HSMP: ENOMSG.
#[test]
fn firmware_without_a_message_is_a_socket_without_that() {
    let Some(room) = old() else { return };
    strike(&room, HsmpCommand::Limit, libc::ENOMSG);
    let mut hal = real(&room);
    let has: Vec<bool> = hal.domains().iter().map(|(_, domain)| domain.power().is_some()).collect();
    assert_eq!(has, [false, true]);
    assert_eq!(apply(&mut hal, &Key::socket(0), w(300)), Err(ErrorKind::NotSupported));
}

/// HSMP: GET via O_WRONLY → EINVAL; a read-only file cannot set.
#[test]
fn a_device_that_was_opened_for_one_direction_refuses_the_other() {
    let Some(room) = old() else { return };
    let path = room.folder.0.join("dev/hsmp");
    let to_set = DevHsmp::over(OpenOptions::new().write(true).open(&path).unwrap());
    assert_eq!(to_set.send(&mut HsmpMessage::ask(0, HsmpCommand::Limit)), Err(libc::EINVAL));
    assert_eq!(to_set.send(&mut HsmpMessage::set_limit(0, 300_000)), Ok(()));
    let to_ask = DevHsmp::over(OpenOptions::new().read(true).open(&path).unwrap());
    assert_eq!(to_ask.send(&mut HsmpMessage::set_limit(0, 200_000)), Err(libc::EINVAL));
    let mut message = HsmpMessage::ask(0, HsmpCommand::Limit);
    assert_eq!((to_ask.send(&mut message), message.words[0]), (Ok(()), 300_000));
    assert_eq!(to_ask.send(&mut HsmpMessage::ask(2, HsmpCommand::Limit)), Err(libc::ENODEV));
}

#[test]
fn a_device_that_may_only_be_read_says_that_it_is_not_permitted_to_set() {
    // A kernel file that not even root may write, used as the device.
    const READ_ONLY: &str = "/sys/devices/system/cpu/kernel_max";
    let Ok(device) = DevHsmp::open(READ_ONLY.as_ref()) else {
        println!("SKIP(no {READ_ONLY})");
        return;
    };
    assert_eq!(device.send(&mut HsmpMessage::set_limit(0, 300_000)), Err(libc::EACCES));
    assert_eq!(
        device.send(&mut HsmpMessage::ask(0, HsmpCommand::Limit)),
        Err(libc::ENOTTY),
        "asking reaches the driver"
    );
}

#[test]
fn a_place_beyond_the_list_is_gone() {
    let (_mailbox, _hal, folder) = scripted();
    let backend = Hsmp::over(Root::at(&folder.0), Scripted::default());
    assert_eq!(backend.measured(0).unwrap_err().kind(), ErrorKind::Gone);
    assert_eq!(backend.set_cap(9, w(1)).unwrap_err().kind(), ErrorKind::Gone);
}
