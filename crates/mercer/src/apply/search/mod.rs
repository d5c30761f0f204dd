//! What is chosen for a user: hyper-parameters, kernels, and the estimator that fits the data.

pub(crate) mod automatic;
pub(crate) mod criterion;
pub(crate) mod kernel_search;
pub(crate) mod lbfgs;
pub(crate) mod memory;
pub(crate) mod tuning;
