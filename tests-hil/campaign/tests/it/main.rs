//! The campaign, everyday size.

#[cfg(test)]
mod everyday;
