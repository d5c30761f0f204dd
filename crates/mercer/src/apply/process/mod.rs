//! Gaussian processes: exact, by conjugate gradients, on features, and of classes.
//!
//! | file | posterior |
//! |---|---|
//! | `gaussian_process` | exact, from the matrix of all rows |
//! | `iterative_process` | all rows by conjugate gradients; its likelihood is in `stochastic_likelihood`, its variances in `partial_inverse` |
//! | `feature_process` | on landmarks, random features, eigenfunctions, or sampled functions |
//! | `gaussian_process_classifier` | classes; the approximate posterior and its derivative are in `softmax_laplace` |
//!
//! Each file declares its entry of the registry; `process_task` is what entries are built for, `fitted_process` what they become.
//!
//! A process by conjugate gradients that does not converge is an error with its residual: its deviations would be wrong.

pub(crate) mod feature_process;
pub(crate) mod fitted_process;
pub(crate) mod gaussian_process;
pub(crate) mod gaussian_process_classifier;
pub(crate) mod iterative_process;
pub(crate) mod partial_inverse;
pub(crate) mod process_task;
pub(crate) mod softmax_laplace;
pub(crate) mod stochastic_likelihood;
