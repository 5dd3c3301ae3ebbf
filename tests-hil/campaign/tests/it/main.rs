//! The campaign in the size for every day.

#[cfg(test)]
mod everyday;
