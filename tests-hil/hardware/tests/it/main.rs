//! The program on virtual machines, which this process serves and the program, a child, meets as files.

#[cfg(test)]
mod killed;
#[cfg(test)]
mod line;
#[cfg(test)]
mod runs;
#[cfg(test)]
mod test_machine;
