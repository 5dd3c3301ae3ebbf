//! `/dev/hsmp`: messages to the firmware of EPYC sockets, as the kernel's driver executes them.
//!
//! It supports the messages about a socket's power. The sockets are the machine's hwmon devices of that driver, in
//! order; both interfaces reach the same firmware.

use crate::hwmon::HwmonChip;
use crate::machine::{RigMachine, Shared};
use crate::number::Errno;
use libc::{EINVAL, ENODEV, ENOMSG, ENOTTY};

/// `_IOWR(0xF8, 0, struct hsmp_message)`.
const COMMAND: u32 = 0xC02C_F800;
/// The struct's size.
const SIZE: usize = 44;
/// Power in milliwatts.
pub const GET_POWER: u32 = 4;
/// Sets the power limit, in milliwatts.
pub const SET_LIMIT: u32 = 5;
/// The most constraining power limit, in milliwatts.
pub const GET_LIMIT: u32 = 6;
/// The largest power limit, in milliwatts.
pub const GET_LIMIT_MAX: u32 = 7;
/// Message numbers from here on do not exist.
const MESSAGES: u32 = 0x27;

/// The access mode of an open `/dev/hsmp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HsmpOpenMode {
    /// Only messages that read.
    Read,
    /// Only messages that set.
    Write,
    /// Both.
    Both,
}

/// `struct hsmp_message`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HsmpRequest {
    /// The message number.
    pub id: u32,
    /// The number of arguments.
    pub arguments: u16,
    /// The number of answer words.
    pub answers: u16,
    /// The arguments, replaced by the answers.
    pub words: [u32; 8],
    /// The socket.
    pub socket: u16,
}

impl HsmpRequest {
    fn parse(data: &[u8]) -> Option<Self> {
        let data: &[u8; SIZE] = data.try_into().ok()?;
        let half = |at: usize| u16::from_ne_bytes([data[at], data[at + 1]]);
        let word = |at: usize| u32::from_ne_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]]);
        Some(Self {
            id: word(0),
            arguments: half(4),
            answers: half(6),
            words: std::array::from_fn(|at| word(8 + 4 * at)),
            socket: half(40),
        })
    }

    fn bytes(&self) -> [u8; SIZE] {
        let mut data = [0; SIZE];
        data[..4].copy_from_slice(&self.id.to_ne_bytes());
        data[4..6].copy_from_slice(&self.arguments.to_ne_bytes());
        data[6..8].copy_from_slice(&self.answers.to_ne_bytes());
        for (at, word) in self.words.iter().enumerate() {
            data[8 + 4 * at..12 + 4 * at].copy_from_slice(&word.to_ne_bytes());
        }
        data[40..42].copy_from_slice(&self.socket.to_ne_bytes());
        data
    }
}

/// The system call: `mode` is the access mode of the open file.
pub(crate) fn ioctl(machine: &Shared, mode: u64, command: u32, data: &[u8]) -> Result<[u8; SIZE], Errno> {
    if command != COMMAND {
        return Err(ENOTTY);
    }
    let mut message = HsmpRequest::parse(data).ok_or(EINVAL)?;
    let access = match mode {
        0 => HsmpOpenMode::Read,
        1 => HsmpOpenMode::Write,
        _ => HsmpOpenMode::Both,
    };
    machine.message(&mut message, access)?;
    Ok(message.bytes())
}

/// The driver's checks before it calls the firmware. Returns the index of the socket among the hwmon devices.
pub(crate) fn admit(
    machine: &RigMachine,
    message: &HsmpRequest,
    access: HsmpOpenMode,
) -> Result<usize, Errno> {
    if message.id == 0 || message.id >= MESSAGES {
        return Err(ENOMSG);
    }
    let sets = message.id == SET_LIMIT;
    if (sets && access == HsmpOpenMode::Read) || (!sets && access == HsmpOpenMode::Write) {
        return Err(EINVAL);
    }
    let shape = match message.id {
        GET_POWER | GET_LIMIT | GET_LIMIT_MAX => (0, 1),
        SET_LIMIT => (1, 0),
        _ => return Err(ENOMSG),
    };
    if (message.arguments, message.answers) != shape {
        return Err(EINVAL);
    }
    let mut sockets =
        (0..machine.hwmons.len()).filter(|&at| machine.hwmons[at].hwmon.device == HwmonChip::Hsmp);
    let at = sockets.nth(message.socket.into()).ok_or(ENODEV)?;
    machine.hwmon(at).map(|_| at)
}

/// The firmware's part.
pub(crate) fn carry_out(machine: &mut RigMachine, at: usize, message: &mut HsmpRequest) -> Result<(), Errno> {
    let milliwatts = |microwatts: u64| u32::try_from(microwatts / 1000).unwrap_or(u32::MAX);
    let slot = machine.hwmon(at)?;
    message.words[0] = match message.id {
        GET_POWER => milliwatts(machine.drawn_uw(slot)),
        GET_LIMIT => milliwatts(slot.hwmon.cap_in_force_uw()),
        GET_LIMIT_MAX => milliwatts(slot.hwmon.max_uw),
        _ => {
            let wish = u64::from(message.words[0]) * 1000;
            let hwmon = &mut machine.hwmons.get_mut(at).ok_or(ENODEV)?.hwmon;
            hwmon.cap_uw = wish.min(hwmon.max_uw);
            return Ok(());
        }
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::RigTime;
    use crate::profile;

    fn get(id: u32, socket: u16) -> HsmpRequest {
        HsmpRequest { id, answers: 1, socket, ..HsmpRequest::default() }
    }

    fn set(milliwatts: u32) -> HsmpRequest {
        HsmpRequest {
            id: SET_LIMIT,
            arguments: 1,
            words: [milliwatts, 0, 0, 0, 0, 0, 0, 0],
            ..HsmpRequest::default()
        }
    }

    fn epyc() -> Shared {
        Shared::new(profile::find("epyc").unwrap()(RigTime::Manual).unwrap())
    }

    /// Sends a message as the system call does.
    fn send(machine: &Shared, mode: u64, message: HsmpRequest) -> Result<u32, Errno> {
        let answer = ioctl(machine, mode, COMMAND, &message.bytes())?;
        Ok(HsmpRequest::parse(&answer).unwrap().words[0])
    }

    #[test]
    fn a_limit_is_clipped_at_the_maximum_and_the_strictest_one_is_told() {
        let machine = epyc();
        assert_eq!(send(&machine, 2, get(GET_LIMIT_MAX, 1)), Ok(400_000));
        send(&machine, 2, set(500_000)).unwrap();
        assert_eq!(send(&machine, 2, get(GET_LIMIT, 0)), Ok(400_000));
        machine.lock().change(|_, _, hwmons| hwmons[0].hwmon.out_of_band_uw = Some(300_000_000));
        send(&machine, 2, set(350_000)).unwrap();
        assert_eq!(send(&machine, 2, get(GET_LIMIT, 0)), Ok(300_000));
    }

    #[test]
    fn what_the_driver_refuses_has_the_drivers_numbers() {
        let machine = epyc();
        for (mode, message, errno) in [
            (1, get(GET_LIMIT, 0), EINVAL),
            (0, set(100_000), EINVAL),
            (2, get(GET_LIMIT, 2), ENODEV),
            (2, get(0x27, 0), ENOMSG),
            (2, HsmpRequest { answers: 2, ..get(GET_LIMIT, 0) }, EINVAL),
        ] {
            assert_eq!(send(&machine, mode, message), Err(errno), "{message:?}");
        }
        assert_eq!(ioctl(&machine, 2, COMMAND, &[0; 43]), Err(EINVAL));
        assert_eq!(ioctl(&machine, 2, 1, &[0; 44]), Err(ENOTTY));
    }
}
