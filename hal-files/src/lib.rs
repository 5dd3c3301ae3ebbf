//! The kernel's attributes as files, as all HALs on sysfs need them: paths below a configurable root, descriptors
//! kept open, text read into a buffer on the stack and accepted only when it is exactly a number.
//!
//! [`devices`] implements the port for devices with one limit each; [`hwmon`] contains the common parts of their
//! drivers, [`drm`] tells which processes use GPUs, and [`process`] which process a number means. This crate contains no driver's name, but one in [`drm`]. Errors contain the path for people and one
//! [`ErrorKind`](power_hal::ErrorKind) to branch on; neither reading nor failing allocates.
#![forbid(unsafe_code)]

mod attribute;
pub mod devices;
pub mod drm;
mod error;
pub mod hwmon;
pub mod process;
mod root;
pub mod text;

pub use attribute::{Access, Attribute, TEXT_MAX, is_only_read, only_read};
pub use error::{FileError, FileOperation};
pub use root::Root;
