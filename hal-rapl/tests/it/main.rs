//! hal-rapl against plain folders, and against the rig mounted by FUSE: root and /dev/fuse are needed for that, and a
//! test that has to go without says so.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "all of it is tests, and a skip is printed")]

mod bench;
mod contract;
mod elsewhere;
mod frugal;
mod golden;
mod plain;
mod registers;
mod trouble;
