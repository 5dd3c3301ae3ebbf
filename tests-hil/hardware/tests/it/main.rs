//! The program on virtual machines. This process serves their files, and the program, as a child process, uses them.

#[cfg(test)]
mod killed;
#[cfg(test)]
mod line;
#[cfg(test)]
mod runs;
#[cfg(test)]
mod test_machine;
