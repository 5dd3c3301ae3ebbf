//! Property: whatever the firmware of a socket answers, a message has the shape that the driver requires, a limit
//! that is sent is in the range, and a reported value is one that a socket can have.

use crate::feed::Feed;
use crate::port::{check_domains, check_names, clock, sample};
use hal_amd::{Amd, Hsmp, HsmpCommand, HsmpMessage, Mailbox};
use hal_files::Root;
use power_hal::{Error, ErrorKind, Handle, Measured, OriginalsInMemory, PowerHal, Setting};
use power_units::{MicroWatts, Stamp};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

/// A path with nothing below it.
const NOWHERE: &str = "/nonexistent/joulie-fuzz";

/// Firmware with the answers of the input: each answer is an error number or success, and eight words.
#[derive(Clone, Debug)]
struct Firmware<'a>(Rc<RefCell<(Feed<'a>, Vec<HsmpMessage>)>>);

/// The driver's error numbers, including unusual ones.
const ERRNOS: [i32; 10] = [110, 22, 19, 16, 1, 121, 5, 42, 0, i32::MIN];

impl Mailbox for Firmware<'_> {
    fn send(&self, message: &mut HsmpMessage) -> Result<(), i32> {
        let mut state = self.0.borrow_mut();
        state.1.push(*message);
        let kind = state.0.byte();
        if kind & 0x80 != 0 {
            return Err(ERRNOS[usize::from(kind & 0x7f) % ERRNOS.len()]);
        }
        let echoes = kind & 0x40 != 0 && message.id == HsmpCommand::SetLimit.id();
        if !echoes {
            // Usually milliwatts as sockets have them.
            message.words[0] = if kind & 1 == 0 { u32::from(state.0.half()) << 4 } else { state.0.word() };
        }
        Ok(())
    }
}

pub(crate) fn run(bytes: &[u8]) {
    let mut feed = Feed::new(bytes);
    let wish = MicroWatts::new(if feed.is_set() { feed.long() } else { u64::from(feed.word()) });
    let firmware = Firmware(Rc::new(RefCell::new((feed, Vec::new()))));
    let clock: fn() -> Stamp = clock;
    let backend = Hsmp::over(Root::at(NOWHERE), firmware.clone());
    let mut hal = match Amd::open(backend, clock, OriginalsInMemory::<8>::new()) {
        Ok(hal) => hal,
        Err(error) => return check_names(&error, Path::new(NOWHERE)),
    };
    check_domains(hal.domains());
    for complaint in hal.complaints() {
        check_names(complaint, Path::new(NOWHERE));
    }
    for reading in sample(&mut hal) {
        let Ok(sample) = reading.outcome else { continue };
        if let Ok(Measured::Power(power)) = sample.meter {
            assert!(power.get() <= 20_000_000_000, "{power:?}");
        }
        if let Ok(limit) = sample.power_limit {
            assert!(limit.get() > 0 && limit.get() <= 20_000_000_000, "{limit:?}");
        }
    }
    let handles: Vec<Handle> = hal.domains().iter().map(|(handle, _)| handle).collect();
    for handle in handles {
        let Some(domain) = hal.domains().get(handle).copied() else { continue };
        firmware.0.borrow_mut().1.clear();
        let applied = hal.apply(handle, Setting::Power(wish));
        let sent = firmware.0.borrow().1.clone();
        let limits = sent.iter().filter(|message| message.id == HsmpCommand::SetLimit.id());
        for message in limits {
            let (limit, milliwatts) = (domain.power(), u64::from(message.words[0]));
            let inside = |power: &power_hal::Limit<MicroWatts>| {
                milliwatts * 1_000 <= power.upper().get() && (milliwatts + 1) * 1_000 > power.lower().get()
            };
            assert!(limit.is_some_and(inside), "{message:?} {limit:?}");
            assert!(milliwatts > 0);
        }
        if let Err(error) = &applied {
            assert!(ErrorKind::ALL.contains(&error.kind()));
        }
        // The firmware may answer anything to this as well.
        let _released = hal.release(handle);
    }
    for message in &firmware.0.borrow().1 {
        check_shape(message);
    }
}

fn check_shape(message: &HsmpMessage) {
    let shape = (message.arguments, message.answers);
    assert_eq!(shape, if message.id == HsmpCommand::SetLimit.id() { (1, 0) } else { (0, 1) }, "{message:?}");
    let is_ours = (4..=7).contains(&message.id) || message.id == HsmpCommand::FrequencyLimit.id();
    assert!(message.socket < 8 && is_ours, "{message:?}");
    assert!(message.words[1..].iter().all(|word| *word == 0), "{message:?}");
}
