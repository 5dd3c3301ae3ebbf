//! The boundary to code outside of std: the system calls of `/dev/ipmi0` (`include/uapi/linux/ipmi.h`).
//!
//! No function here sends anything but an [`IpmiRequest`].

use crate::dcmi::{ANSWER_MAX, IpmiRequest};
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::ptr;
use std::time::Duration;

/// `IPMI_SYSTEM_INTERFACE_ADDR_TYPE`: the BMC of this machine, by the interface of its board.
const SYSTEM_INTERFACE: i32 = 0x0C;
/// `IPMI_BMC_CHANNEL`.
const BMC_CHANNEL: i16 = 0x0F;
/// `IPMI_RESPONSE_RECV_TYPE`: a message that answers a request.
pub(crate) const RESPONSE: i32 = 1;

/// `IPMICTL_SEND_COMMAND`, `_IOR('i', 13, struct ipmi_req)`.
const SEND_COMMAND: libc::Ioctl = 0x8028_690D;
/// `IPMICTL_RECEIVE_MSG_TRUNC`, `_IOWR('i', 11, struct ipmi_recv)`: a message that is longer than the buffer is cut off.
const RECEIVE_MSG_TRUNC: libc::Ioctl = 0xC030_690B;

/// `struct ipmi_system_interface_addr`.
#[repr(C)]
struct Address {
    kind: i32,
    channel: i16,
    unit: u8,
}

/// `struct ipmi_msg`.
#[repr(C)]
struct Message {
    function: u8,
    command: u8,
    length: u16,
    data: *mut u8,
}

/// `struct ipmi_req`.
#[repr(C)]
struct Request {
    address: *mut Address,
    address_length: u32,
    number: libc::c_long,
    message: Message,
}

/// `struct ipmi_recv`.
#[repr(C)]
struct Receive {
    kind: i32,
    address: *mut u8,
    address_length: u32,
    number: libc::c_long,
    message: Message,
}

// The numbers of the calls have the sizes of 64-bit machines in them, and the kernel copies that many bytes.
const _: () = assert!(size_of::<Address>() == 8 && size_of::<Message>() == 16);
const _: () = assert!(size_of::<Request>() == 0x28 && offset_of!(Request, message) == 24);
const _: () = assert!(size_of::<Receive>() == 0x30 && offset_of!(Receive, message) == 32);

/// `struct ipmi_addr` of the kernel, of which an answer's address is a part.
const ADDRESS_MAX: usize = 40;

/// A message that was received; its data are in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) kind: i32,
    pub(crate) number: libc::c_long,
    pub(crate) function: u8,
    pub(crate) command: u8,
    pub(crate) length: usize,
}

/// Hands a request for the BMC to the driver behind `file`; the number comes back with the answer.
pub(crate) fn send(file: &File, request: &IpmiRequest, number: libc::c_long) -> io::Result<()> {
    let mut address = Address { kind: SYSTEM_INTERFACE, channel: BMC_CHANNEL, unit: 0 };
    let mut data = [0_u8; 4];
    data.copy_from_slice(request.data());
    let mut asks = Request {
        address: ptr::from_mut(&mut address),
        address_length: 8,
        number,
        message: Message {
            function: request.function(),
            command: request.command(),
            length: 4,
            data: data.as_mut_ptr(),
        },
    };
    // SAFETY: the descriptor is open, as `file` is borrowed. The number of the call tells the driver to read 40 bytes,
    // the size of `Request` (asserted above). Through its pointers the driver reads 8 bytes of `address` and 4 of
    // `data`, their sizes, which live until the call returns; it copies them before that. std has no ioctl.
    let answer = unsafe { libc::ioctl(file.as_raw_fd(), SEND_COMMAND, ptr::from_mut(&mut asks)) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Waits until the driver has a message; `false` if none came in time.
pub(crate) fn wait(file: &File, patience: Duration) -> io::Result<bool> {
    let mut polled = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let millis = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: the pointer is to one `pollfd` of ours that lives through the call, and the count is one. std has no poll.
    let answer = unsafe { libc::poll(&raw mut polled, 1, millis) };
    match answer {
        0 => Ok(false),
        1 if polled.revents & libc::POLLIN != 0 => Ok(true),
        // Only an error or a hang-up was reported: the driver is gone.
        1 => Err(io::Error::from_raw_os_error(libc::ENODEV)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Takes a message from the driver. One that is longer than the buffer is an error.
pub(crate) fn receive(file: &File, buffer: &mut [u8; ANSWER_MAX]) -> io::Result<Received> {
    let mut address = [0_u8; ADDRESS_MAX];
    let mut takes = Receive {
        kind: 0,
        address: address.as_mut_ptr(),
        address_length: 40,
        number: 0,
        message: Message { function: 0, command: 0, length: 64, data: buffer.as_mut_ptr() },
    };
    // SAFETY: the descriptor is open, as `file` is borrowed. The number of the call tells the driver to read and write
    // 48 bytes, the size of `Receive` (asserted above). Through its pointers the driver writes at most 40 bytes to
    // `address` and 64 to `buffer`, their sizes (asserted here below), both of which live through the call and are
    // borrowed exclusively. Every bit pattern of integers is valid. std has no ioctl.
    let answer = unsafe { libc::ioctl(file.as_raw_fd(), RECEIVE_MSG_TRUNC, ptr::from_mut(&mut takes)) };
    const _: () = assert!(ANSWER_MAX == 64 && ADDRESS_MAX == 40);
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    let Receive { kind, number, message: Message { function, command, length, .. }, .. } = takes;
    Ok(Received { kind, number, function, command, length: usize::from(length).min(ANSWER_MAX) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_none_of_the_driver_answers_with_an_error_number() {
        let file = File::open("/dev/null").unwrap();
        let errno = |error: io::Error| error.raw_os_error();
        assert_eq!(send(&file, &IpmiRequest::POWER_READING, 1).map_err(errno), Err(Some(libc::ENOTTY)));
        let mut buffer = [0; ANSWER_MAX];
        assert_eq!(receive(&file, &mut buffer).map_err(errno), Err(Some(libc::ENOTTY)));
        assert_eq!(wait(&file, Duration::ZERO).map_err(errno), Ok(true), "it can always be read");
    }
}
