//! Kernel ridge regression on the points themselves, and what averages or filters like it.

pub(crate) mod direct;
pub mod filter;
pub(crate) mod kernel_ridge;
pub(crate) mod nadaraya_watson;
pub(crate) mod ntk_ensemble;
pub(crate) mod refinement;
pub(crate) mod regression;
pub(crate) mod sharded_points;
pub(crate) mod spectral_ridge;
pub(crate) mod system;
