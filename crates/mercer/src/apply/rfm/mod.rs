//! Recursive feature machines: ridge regression under a metric that is learnt from its gradients.

pub(crate) mod metric;
pub(crate) mod metric_rounds;
pub(crate) mod recursive_feature_machine;
