//! The compute engine of Mercer: tensors, devices, dense linear algebra and networks, but no kernels, data sets or methods.
//!
//! | module | content |
//! |---|---|
//! | [`compute`] | `f32` tensors on the CPU or a CUDA device, and their primitives |
//! | [`net`] | layers and networks that differentiate themselves |
//! | [`linalg`] | dense linear algebra in f64 on either device |
//! | [`group`] | the processes of a distributed run: one, or the ranks of an MPI job |
//! | [`simd`] | elementary functions that vectorise, selected at run time for the CPU |
//! | [`syntax`] | the parser of `name(value, key=value)` |
//! | [`rng`], [`special`] | the random generator, special functions |

#[macro_use]
mod advice;
pub mod compute;
mod dense;
pub mod error;
pub mod group;
pub mod linalg;
pub mod net;
pub mod rng;
pub mod simd;
pub mod special;
pub mod syntax;

pub use advice::Advice;
pub use error::{Error, Result};
