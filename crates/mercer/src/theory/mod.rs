//! The laboratory: one experiment a file. Each returns plain data, which the program draws and puts into words.
//!
//! | file | question |
//! |---|---|
//! | [`classic_kernels`] | polynomial and RBF on the line, by every method: who finds the spectrum, and does training help? |

pub mod classic_kernels;
pub mod population;
