//! What is chosen for a user: hyper-parameters, kernels, and the estimator that fits the data.
//!
//! Hyper-parameters are found along exact gradients. A [`Tunable`](crate::kernel::Tunable) is a kernel as a function of the logarithms of its amplitudes and
//! lengthscales; `operator/gradient` turns a derivative by the matrix K into one by them. `criterion` has the marginal likelihood and
//! the leave-one-out error with their derivatives, `lbfgs` the minimiser, `tuning` the search from several starts, `automatic` the choice
//! of the estimator by n, d, the kernel, the memory and the device.

pub(crate) mod automatic;
pub(crate) mod criterion;
pub(crate) mod kernel_search;
pub(crate) mod lbfgs;
pub(crate) mod memory;
pub(crate) mod tuning;
