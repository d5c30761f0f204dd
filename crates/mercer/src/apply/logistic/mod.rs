//! Multinomial logistic regression, on given columns and on features.

pub(crate) mod design;
pub(crate) mod feature_logistic;
pub(crate) mod on_columns;
pub(crate) mod preconditioner;
pub(crate) mod solver;
