//! The port between control laws and power hardware.
#![no_std]
#![forbid(unsafe_code)]
