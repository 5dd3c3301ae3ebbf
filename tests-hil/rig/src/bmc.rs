//! A management controller (BMC) that answers IPMI commands with the bytes that a real one sends.
//!
//! The kernel's `/dev/ipmi0` takes pointers inside its messages, which a device in user space cannot follow. So this is
//! a controller behind that driver: whoever stands in for the driver hands it the bytes of a request.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BmcFault {
    /// It answers with this completion code.
    Code(u8),
    /// It sends only so many bytes of its answer.
    Short(usize),
    /// It does not answer.
    Silent,
    /// Its driver answers with this error number.
    Driver(i32),
    /// It says that it does not measure.
    Paused,
}

/// A request, as it was received.
pub type BmcRequest = (u8, u8, Vec<u8>);

#[derive(Debug, Default)]
struct State {
    watts: u16,
    least: u16,
    most: u16,
    period_ms: u32,
    time: u32,
    fault: Option<BmcFault>,
    asked: Vec<BmcRequest>,
}

/// The controller. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct VirtualBmc(Arc<Mutex<State>>);

/// DCMI among the group extensions.
const GROUP: u8 = 0xDC;

impl VirtualBmc {
    /// One that measures this power, as the mean of a second.
    #[must_use]
    pub fn drawing(watts: u16) -> Self {
        let bmc = Self::default();
        bmc.lock().period_ms = 1_000;
        bmc.draw(watts);
        bmc
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what it measures.
    pub fn draw(&self, watts: u16) {
        let mut state = self.lock();
        state.least = if state.time == 0 { watts } else { state.least.min(watts) };
        state.most = state.most.max(watts);
        state.watts = watts;
        state.time = state.time.saturating_add(1);
    }

    /// Makes it fail from now on, or not any more.
    pub fn fail(&self, fault: Option<BmcFault>) {
        self.lock().fault = fault;
    }

    /// Everything that it was asked.
    #[must_use]
    pub fn asked(&self) -> Vec<BmcRequest> {
        self.lock().asked.clone()
    }

    /// Answers a request, beginning with the completion code; `None` if it never does.
    ///
    /// # Errors
    /// The error number of its driver.
    pub fn command(&self, function: u8, command: u8, data: &[u8]) -> Result<Option<Vec<u8>>, i32> {
        let mut state = self.lock();
        state.asked.push((function, command, data.to_vec()));
        let mut answer = match (function, command, data) {
            (0x2C, 0x02, &[GROUP, 0x01, _, _]) => state.power_reading(),
            // Another mode, or another length.
            (0x2C, 0x02, &[GROUP, _, _, _]) => vec![0xCC],
            (0x2C, 0x02, _) => vec![0xC7],
            _ => vec![0xC1],
        };
        match state.fault {
            None | Some(BmcFault::Paused) => {}
            Some(BmcFault::Code(code)) => answer = vec![code],
            Some(BmcFault::Short(length)) => answer.truncate(length),
            Some(BmcFault::Silent) => return Ok(None),
            Some(BmcFault::Driver(errno)) => return Err(errno),
        }
        Ok(Some(answer))
    }
}

impl State {
    fn power_reading(&self) -> Vec<u8> {
        let mut answer = vec![0x00, GROUP];
        for watts in [self.watts, self.least, self.most, self.watts] {
            answer.extend(watts.to_le_bytes());
        }
        answer.extend(self.time.to_le_bytes());
        answer.extend(self.period_ms.to_le_bytes());
        answer.push(if self.fault == Some(BmcFault::Paused) { 0x00 } else { 0x40 });
        answer
    }
}
