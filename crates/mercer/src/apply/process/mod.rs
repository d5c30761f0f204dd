//! Gaussian processes: exact, by conjugate gradients, on features, and of classes.

pub(crate) mod feature_process;
pub(crate) mod gaussian_process;
pub(crate) mod gaussian_process_classifier;
pub(crate) mod iterative_process;
pub(crate) mod partial_inverse;
pub(crate) mod softmax_laplace;
pub(crate) mod stochastic_likelihood;
