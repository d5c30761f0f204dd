//! Mercer: spectral kernel learning.

pub mod compute;
pub mod data;
pub mod error;
pub mod net;
pub mod rng;
pub mod simd;

pub use error::{Error, Result};
