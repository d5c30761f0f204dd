//! Mercer: spectral kernel learning.

pub mod data;
pub mod error;
pub mod rng;

pub use error::{Error, Result};
