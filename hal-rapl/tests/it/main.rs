//! hal-rapl on plain folders, and on the rig mounted by FUSE, which needs root and /dev/fuse; a test that cannot run
//! prints that.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "all of it is tests, and a skip is printed")]

mod bench;
mod contract;
mod elsewhere;
mod frugal;
mod golden;
mod plain;
mod registers;
mod trouble;
