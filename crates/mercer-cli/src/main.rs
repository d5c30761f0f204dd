//! The mercer program.

#[allow(dead_code)]
mod figure;
#[allow(dead_code)]
mod report;

fn main() {}
