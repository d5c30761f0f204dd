//! One file a subcommand: its arguments, and what it does with them.

pub mod completions;
pub mod datasets;
pub mod demo;
pub mod devices;
pub mod embed;
pub mod evaluate;
pub mod fit;
pub mod gram;
pub mod inspect;
pub mod kernels;
pub mod man;
pub mod ntk;
pub mod regress;
pub mod reproduce;
pub mod sample;
pub mod train;
pub mod transform;
