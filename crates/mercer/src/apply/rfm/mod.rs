//! Recursive feature machines: ridge regression under a metric that is learnt from its gradients.
//!
//! The machine is ridge regression on `M^{1/2}x`, so that it has every estimator, kernel and device below it unchanged. The gradients of
//! `Σ_i κ(x, z_i) a_i` by x come from the formulas on dual numbers (`operator/gradient/point_gradient.rs`); `metric` makes M and the importances of
//! columns of them. The plain kernel (no rounds) is kept unless another number of rounds lowers the left-out error by more than two
//! standard errors.

pub(crate) mod metric;
pub(crate) mod metric_rounds;
pub(crate) mod recursive_feature_machine;
