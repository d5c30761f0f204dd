//! The laboratory: one experiment a file, each returning plain numbers and a verdict in words.

pub mod classic_kernels;
pub mod eigenvalue_decay;
pub mod population;
