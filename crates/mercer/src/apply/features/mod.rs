//! Ridge regression on features: linear, Nyström, random, and on landmarks by iterative solvers.

pub(crate) mod combined;
pub(crate) mod device_sums;
pub(crate) mod falkon;
pub(crate) mod feature_blocks;
pub(crate) mod feature_map;
pub(crate) mod feature_ridge;
pub(crate) mod fold_sums;
pub(crate) mod krill;
pub(crate) mod landmark_design;
pub(crate) mod ridge_head;
