//! The control plane as a suite uses it: started, queried, compacted, restarted, killed.

#[cfg(test)]
mod absent;
#[cfg(test)]
mod bring_up;
#[cfg(test)]
mod ending;
#[cfg(test)]
mod extender;
#[cfg(test)]
mod life;
#[cfg(test)]
mod outage;
#[cfg(test)]
mod program;
#[cfg(test)]
mod support;
