//! The mercer program.
fn main() {}
