//! The operator as it runs, on an API server in memory, with agents played by the test.

#[cfg(test)]
mod absent;
#[cfg(test)]
mod armed;
#[cfg(test)]
mod budget;
#[cfg(test)]
mod check;
#[cfg(test)]
mod classify;
#[cfg(test)]
mod config;
#[cfg(test)]
mod dated;
#[cfg(test)]
mod demand;
#[cfg(test)]
mod facility;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod grants;
#[cfg(test)]
mod leaders;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod page;
#[cfg(test)]
mod persons;
#[cfg(test)]
mod profiles;
#[cfg(test)]
mod prometheus;
#[cfg(test)]
mod releases;
#[cfg(test)]
mod reschedule;
#[cfg(test)]
mod response;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod rights;
#[cfg(test)]
mod scale;
#[cfg(test)]
mod sleep;
#[cfg(test)]
mod steady;
#[cfg(test)]
mod sushy;
#[cfg(test)]
mod tables;
#[cfg(test)]
mod transitions;
#[cfg(test)]
mod uninstall;
#[cfg(test)]
mod unread;
