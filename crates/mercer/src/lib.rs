//! Mercer: spectral kernel learning.

pub mod compute;
pub mod data;
pub mod error;
pub mod kernel;
pub mod linalg;
pub mod model;
pub mod net;
pub mod operator;
pub mod rng;
pub mod simd;
pub mod special;
pub mod spectrum;
pub mod theory;

pub use error::{Error, Result};
