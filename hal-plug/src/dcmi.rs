//! Get Power Reading of the Data Center Manageability Interface (DCMI 1.5, section 6.6.1), a command of IPMI to the
//! management controller of the board (BMC).
//!
//! ```text
//!  request   NetFn 2Ch  command 02h  DCh 01h 00h 00h
//!  answer    completion code  DCh  now[2]  least[2]  most[2]  mean[2]  time[4]  period in ms[4]  state
//! ```
//!
//! It is the only request that there is here. The commands that set and activate DCMI's power limit are numbers 04h and
//! 05h: a BMC may answer a limit that is exceeded by powering the host off.

mod device;

pub use device::DevIpmi;

use crate::{PlugError, PlugReading};
use power_hal::ErrorKind;
use power_units::{MicroWatts, Micros};
use std::fmt;

/// No answer to a request that exists here is longer.
pub const ANSWER_MAX: usize = 64;

/// Identifies DCMI among the group extensions of IPMI.
const GROUP: u8 = 0xDC;
/// With the completion code and the group.
const READING_BYTES: usize = 19;
/// In the state: the measurement is active.
const ACTIVE: u8 = 0x40;
/// A power that the controller does not know.
const UNSET: u16 = 0xFFFF;

/// A request to a BMC. Only code of this crate makes one, and each reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpmiRequest {
    function: u8,
    command: u8,
    data: [u8; 4],
}

impl IpmiRequest {
    /// Get Power Reading, mode 01h: the power of the whole system.
    pub const POWER_READING: Self = Self { function: 0x2C, command: 0x02, data: [GROUP, 0x01, 0x00, 0x00] };

    /// The network function.
    #[must_use]
    pub const fn function(&self) -> u8 {
        self.function
    }

    /// The command.
    #[must_use]
    pub const fn command(&self) -> u8 {
        self.command
    }

    /// Its data.
    #[must_use]
    pub const fn data(&self) -> &[u8] {
        &self.data
    }
}

/// Why a BMC was not reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BmcError {
    /// It did not answer in time.
    Late,
    /// The driver's error number: ENODEV once the BMC is gone, EBUSY, ENOTTY if the file is none of the driver.
    Device(i32),
}

impl fmt::Display for BmcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late => f.write_str("the BMC did not answer in time"),
            Self::Device(errno) => write!(f, "the driver of the BMC answers with errno {errno}"),
        }
    }
}

/// A management controller.
pub trait Bmc {
    /// Sends a request, waits for its answer, and returns it: the completion code and what follows it.
    ///
    /// # Errors
    /// [`PlugError::Absent`] if the node has none, [`PlugError::File`] if it cannot be opened, [`PlugError::Bmc`] if
    /// no answer came.
    fn ask<'a>(
        &mut self,
        request: &IpmiRequest,
        answer: &'a mut [u8; ANSWER_MAX],
    ) -> Result<&'a [u8], PlugError>;
}

/// The meter of a BMC.
#[derive(Debug)]
pub struct DcmiMeter<B> {
    bmc: B,
}

impl<B: Bmc> DcmiMeter<B> {
    /// The meter of this one.
    pub const fn over(bmc: B) -> Self {
        Self { bmc }
    }

    /// What the BMC measures now. This can take seconds.
    ///
    /// # Errors
    /// When there is no BMC, or it says nothing that can be used.
    pub fn read(&mut self) -> Result<PlugReading, PlugError> {
        let mut answer = [0; ANSWER_MAX];
        power_reading(self.bmc.ask(&IpmiRequest::POWER_READING, &mut answer)?)
    }
}

/// Reads the answer to Get Power Reading, from its completion code on.
///
/// # Errors
/// When it is refused, is not such an answer, or says nothing that a node can draw.
pub fn power_reading(answer: &[u8]) -> Result<PlugReading, PlugError> {
    let malformed = PlugError::Malformed(answer.len());
    let Some((&code, _)) = answer.split_first() else { return Err(malformed) };
    if code != 0 {
        return Err(PlugError::Refused(CompletionCode(code)));
    }
    // A BMC that appends bytes says what it says before them.
    let Some(&[_, group, now, now_high, _, _, _, _, _, _, _, _, _, _, p0, p1, p2, p3, state]) =
        answer.first_chunk::<READING_BYTES>()
    else {
        return Err(malformed);
    };
    if group != GROUP {
        return Err(malformed);
    }
    if state & ACTIVE == 0 {
        return Err(PlugError::NotMeasuring);
    }
    let watts = u16::from_le_bytes([now, now_high]);
    let power = MicroWatts::new(u64::from(watts) * 1_000_000);
    if watts == UNSET {
        return Err(PlugError::Impossible(power));
    }
    let millis = u64::from(u32::from_le_bytes([p0, p1, p2, p3]));
    PlugReading::new(power, Some(Micros::new(millis * 1_000)))
}

/// What a BMC says instead of an answer (IPMI 2.0, table 5-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionCode(pub u8);

impl CompletionCode {
    /// What to branch on.
    #[must_use]
    pub const fn kind(self) -> ErrorKind {
        match self.0 {
            // It knows no such command, for this part of it or with these data.
            0xC1 | 0xC2 | 0xC7..=0xC9 | 0xCB..=0xCD | 0xD6 => ErrorKind::NotSupported,
            // It is busy, took too long itself, is being updated or starts.
            0xC0 | 0xC3 | 0xC4 | 0xCE..=0xD3 | 0xD5 | 0xDF => ErrorKind::Busy,
            0xD4 => ErrorKind::PermissionDenied,
            _ => ErrorKind::Io,
        }
    }
}

impl fmt::Display for CompletionCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let means = match self.kind() {
            ErrorKind::NotSupported => "it does not know Get Power Reading of DCMI",
            ErrorKind::Busy => "it is busy",
            ErrorKind::PermissionDenied => "it does not permit the command",
            ErrorKind::Locked
            | ErrorKind::OutOfRange
            | ErrorKind::Gone
            | ErrorKind::Timeout
            | ErrorKind::BadData
            | ErrorKind::Io => "it failed",
        };
        write!(f, "the BMC answers with completion code {:02X}h: {means}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // 4Ah 01h = 330 W now; least 112, most 501, mean 298 W; 1,000 ms (E8h 03h); active.
    const ANSWER: [u8; READING_BYTES] = [
        0x00, 0xDC, 0x4A, 0x01, 0x70, 0x00, 0xF5, 0x01, 0x2A, 0x01, 0x10, 0x20, 0x30, 0x65, 0xE8, 0x03, 0, 0,
        0x40,
    ];

    #[test]
    fn an_answer_is_read_by_the_layout_of_the_specification() {
        let reading = PlugReading { power: MicroWatts::new(330_000_000), over: Some(Micros::new(1_000_000)) };
        assert_eq!(power_reading(&ANSWER), Ok(reading));
        let mut longer = ANSWER.to_vec();
        longer.extend([1, 2, 3]);
        assert_eq!(power_reading(&longer), Ok(reading));
        // A controller that averages over no time, or over longer than a day, does not say over what.
        for period in [[0, 0, 0, 0], [0xFF; 4]] {
            let mut answer = ANSWER;
            answer[14..18].copy_from_slice(&period);
            assert_eq!(power_reading(&answer).unwrap().over, None);
        }
    }

    #[test]
    fn what_is_not_such_an_answer_is_no_reading() {
        for length in 0..READING_BYTES {
            assert_eq!(power_reading(&ANSWER[..length]), Err(PlugError::Malformed(length)));
        }
        let with = |at: usize, byte: u8| {
            let mut answer = ANSWER;
            answer[at] = byte;
            power_reading(&answer)
        };
        assert_eq!(with(1, 0xDB), Err(PlugError::Malformed(READING_BYTES)), "another group");
        assert_eq!(with(18, 0x00), Err(PlugError::NotMeasuring));
        for (low, high) in [(0, 0), (0xFF, 0xFF)] {
            let mut answer = ANSWER;
            (answer[2], answer[3]) = (low, high);
            assert!(matches!(power_reading(&answer), Err(PlugError::Impossible(_))), "{low} {high}");
        }
    }

    #[test]
    fn every_completion_code_has_a_kind() {
        use power_hal::Error;
        for (code, kind) in [
            (0xC1, ErrorKind::NotSupported),
            (0xCC, ErrorKind::NotSupported),
            (0xC0, ErrorKind::Busy),
            (0xC3, ErrorKind::Busy),
            (0xD5, ErrorKind::Busy),
            (0xDF, ErrorKind::Busy),
            (0xD4, ErrorKind::PermissionDenied),
            (0xFF, ErrorKind::Io),
        ] {
            let refused = power_reading(&[code, 0xDC]).unwrap_err();
            assert_eq!((refused.kind(), &refused), (kind, &PlugError::Refused(CompletionCode(code))));
            assert!(refused.to_string().contains(&format!("{code:02X}h")), "{refused}");
        }
    }

    #[test]
    fn the_only_request_reads() {
        let request = IpmiRequest::POWER_READING;
        assert_eq!((request.function(), request.command()), (0x2C, 0x02));
        assert_eq!(request.data(), [0xDC, 1, 0, 0]);
    }
}
