//! The mailbox of EPYC sockets through `/dev/hsmp`, for kernels whose driver does not register `amd_hsmp_hwmon` (before
//! about 6.16). As soon as one socket is in hwmon, [`Hwmon`](crate::Hwmon) lists all of them and this backend lists
//! none: otherwise one firmware would be two domains with one key.
//!
//! Power is in mW. The firmware clips a limit at its maximum, and the read-back is the strictest of the limits that
//! were set in band and out of band. A limit below what the silicon can reach is stored but has no further effect, and
//! no message reports that minimum: the minimum of such a socket is unknown.
//!
//! Firmware that says what limits the frequency at this instant says by that whether the power limit does.

mod message;

pub use message::{DevHsmp, HsmpCommand, HsmpMessage, Mailbox};

use crate::hwmon::has_sockets;
use crate::watts::{self, Told};
use crate::{AmdError, DeviceBackend};
use hal_files::{FileError, Root};
use message::HELD_BY_POWER;
use power_hal::{
    Control, Domain, Error, ErrorKind, Key, Measured, Original, Sample, Throttled, ThrottledMeter,
};
use power_units::{MicroWatts, MilliWatts};
use std::path::Path;

/// The driver supports no more sockets than this.
const SOCKETS_MAX: u16 = 8;

/// The firmware's unit is milliwatts.
const STEP: MicroWatts = MicroWatts::new(1_000);

/// The sockets behind a mailbox.
#[derive(Debug)]
pub struct Hsmp<M> {
    root: Root,
    mailbox: Option<M>,
    /// How to open the device again at each enumeration; `None` for a mailbox that the caller provided.
    open: Option<Open<M>>,
    found: Vec<Socket>,
}

type Open<M> = fn(&Path) -> Result<M, FileError>;

#[derive(Clone, Copy, Debug)]
struct Socket {
    number: u16,
    key: Key,
    told: Told,
    /// Whether its firmware says what limits the frequency.
    says_reasons: bool,
}

fn send<M: Mailbox>(
    mailbox: &M,
    key: Key,
    ask: HsmpCommand,
    mut message: HsmpMessage,
) -> Result<u32, AmdError> {
    mailbox.send(&mut message).map_err(|errno| AmdError::Mailbox(key, ask, errno))?;
    let [word, ..] = message.words;
    Ok(word)
}

/// Whether the power limit holds a socket back at this instant.
pub(crate) fn held<M: Mailbox>(mailbox: &M, number: u16, key: Key) -> Result<bool, AmdError> {
    let ask = HsmpCommand::FrequencyLimit;
    Ok(send(mailbox, key, ask, HsmpMessage::ask(number, ask))? & HELD_BY_POWER != 0)
}

impl Hsmp<DevHsmp> {
    /// The sockets of the machine below `root`. Nothing is opened yet.
    #[must_use]
    pub const fn new(root: Root) -> Self {
        Self { root, mailbox: None, open: Some(DevHsmp::open), found: Vec::new() }
    }
}

impl<M: Mailbox> Hsmp<M> {
    /// The sockets behind a mailbox that the caller provides, on the machine below `root`.
    #[must_use]
    pub const fn over(root: Root, mailbox: M) -> Self {
        Self { root, mailbox: Some(mailbox), open: None, found: Vec::new() }
    }

    /// Opens the device again, since a reloaded driver replaces it. Returns false if there is none.
    fn reach(&mut self) -> Result<bool, AmdError> {
        let Some(open) = self.open else { return Ok(self.mailbox.is_some()) };
        match open(&self.root.join("dev/hsmp")) {
            Ok(device) => self.mailbox = Some(device),
            Err(error) if error.kind == ErrorKind::Gone => self.mailbox = None,
            Err(error) => return Err(AmdError::File(None, error)),
        }
        Ok(self.mailbox.is_some())
    }

    fn socket(&self, at: usize) -> Result<&Socket, AmdError> {
        self.found.get(at).ok_or(AmdError::Gone)
    }

    fn send(&self, key: Key, ask: HsmpCommand, message: HsmpMessage) -> Result<u32, AmdError> {
        send(self.mailbox.as_ref().ok_or(AmdError::Gone)?, key, ask, message)
    }

    fn ask(&self, number: u16, key: Key, ask: HsmpCommand) -> Result<MicroWatts, AmdError> {
        let milliwatts = MilliWatts::new(self.send(key, ask, HsmpMessage::ask(number, ask))?);
        let power = MicroWatts::new(u64::from(milliwatts.get()).saturating_mul(1_000));
        watts::possible(power).ok_or(AmdError::Answer(key, ask))
    }

    /// Whether the power limit holds a socket back at this instant.
    fn held(&self, number: u16, key: Key) -> Result<bool, AmdError> {
        held(self.mailbox.as_ref().ok_or(AmdError::Gone)?, number, key)
    }

    /// A socket and its controls; `None` where there is none, or its firmware knows none of the messages.
    fn describe(&self, number: u16, complaints: &mut Vec<AmdError>) -> Option<(Domain, Socket)> {
        let (bare, key) = (Domain::socket(number), Key::socket(number));
        let answers = [HsmpCommand::Power, HsmpCommand::Limit, HsmpCommand::LimitMax]
            .map(|ask| self.ask(number, key, ask));
        if answers.iter().any(|answer| answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Gone)) {
            return None;
        }
        // If the firmware does not know a message, the socket does not have that feature. After any other failure, it
        // has the feature but did not answer.
        let has = |answer: &Result<_, AmdError>| {
            answer.as_ref().err().is_none_or(|error| error.kind() != ErrorKind::NotSupported)
        };
        let [has_meter, has_limit] = [has(&answers[0]), has(&answers[1])];
        let [_, _, max] = answers;
        let before = self.found.iter().find(|before| before.key == key).and_then(|before| before.told.max);
        let max = max.map(Some).unwrap_or_else(|error| {
            complaints.push(error);
            before
        });
        let told = Told { max, ..Told::default() };
        let mut domain = if has_meter { bare.with_power_meter() } else { bare };
        match told.limit(STEP) {
            Ok(limit) if has_limit => domain = domain.with_power(limit),
            Err(bad) if has_limit => complaints.push(AmdError::Range(key, bad)),
            Ok(_) | Err(_) => {}
        }
        let said_before = self.found.iter().any(|before| before.key == key && before.says_reasons);
        let says_reasons = match self.held(number, key) {
            Ok(_) => true,
            // It has not answered, which says nothing of what it knows.
            Err(error) => said_before && matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Busy),
        };
        if says_reasons {
            domain = domain.with_throttled(ThrottledMeter::Instant);
        }
        let something = domain.meter().is_some() || domain.power().is_some();
        something.then_some((domain, Socket { number, key, told, says_reasons }))
    }
}

impl<M: Mailbox> DeviceBackend for Hsmp<M> {
    type Error = AmdError;

    fn look(
        &mut self,
        _: &dyn Fn(&Key, Control) -> Option<Original>,
        complaints: &mut Vec<AmdError>,
    ) -> Result<Vec<Domain>, AmdError> {
        if has_sockets(&self.root)? || !self.reach()? {
            self.found.clear();
            return Ok(Vec::new());
        }
        let sockets = (0..SOCKETS_MAX).filter_map(|number| self.describe(number, complaints));
        let (domains, found) = sockets.unzip();
        self.found = found;
        Ok(domains)
    }

    fn awake(&self, at: usize) -> Result<(), AmdError> {
        self.socket(at).map(|_| ())
    }

    fn measured(&self, at: usize) -> Result<Measured, AmdError> {
        let socket = self.socket(at)?;
        self.ask(socket.number, socket.key, HsmpCommand::Power).map(Measured::Power)
    }

    fn state(&self, at: usize, sample: &mut Sample) {
        if let Some(socket) = self.found.get(at).filter(|socket| socket.says_reasons) {
            let held = self.held(socket.number, socket.key);
            sample.throttled = held.map(Throttled::Instant).map_err(|error| error.kind());
        }
    }

    fn cap(&self, at: usize) -> Result<MicroWatts, AmdError> {
        let socket = self.socket(at)?;
        let limit = self.ask(socket.number, socket.key, HsmpCommand::Limit)?;
        watts::in_force(limit).ok_or(AmdError::Answer(socket.key, HsmpCommand::Limit))
    }

    fn set_cap(&self, at: usize, cap: MicroWatts) -> Result<(), AmdError> {
        let socket = self.socket(at)?;
        // A cap in the range is below 32 bits of milliwatts; a larger one is not a valid cap.
        let milliwatts = u32::try_from(cap.get() / 1_000).map_err(|_| AmdError::Unfit(socket.key))?;
        self.send(socket.key, HsmpCommand::SetLimit, HsmpMessage::set_limit(socket.number, milliwatts))
            .map(|_| ())
    }
}
