//! The mercer program.

#[allow(dead_code, unused_imports)]
mod figure;
#[allow(dead_code, unused_imports)]
mod report;

fn main() {}
