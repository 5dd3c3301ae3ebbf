//! The kernel's attributes as files, the way every HAL that stands on them needs it: paths below a configurable root,
//! descriptors kept open, text read into a buffer on the stack and believed only when it is exactly a number.
//!
//! [`devices`] is the port over devices with one limit each, [`hwmon`] what its drivers have in common. It knows no driver
//! by name. Errors carry the path for a person and one [`ErrorKind`](power_hal::ErrorKind) to branch on;
//! neither reading nor failing allocates.
#![forbid(unsafe_code)]

mod attribute;
pub mod devices;
mod error;
pub mod hwmon;
mod root;
pub mod text;

pub use attribute::{Access, Attribute, TEXT_MAX, is_only_read, only_read};
pub use error::{FileError, FileOperation};
pub use root::Root;
