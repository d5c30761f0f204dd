//! Ridge regression on features: linear, Nyström, random, and on landmarks by iterative solvers.
//!
//! `ridge_head` is written once for all features: a pass over blocks of rows sums `ΦᵀΦ` and `Φᵀy`, and one eigendecomposition serves every α,
//! leave-one-out in closed form and all targets. `feature_blocks` is the same for rows in a file; its cross-validation takes sums over the
//! rows of each fold (`fold_sums`) and no other pass. Nyström's features `κ(x,Z)N` are not formed where rounding allows:
//! `κ(Z,X)κ(X,Z)` is summed, and multiplied by N afterwards (`combined`). Features and their normalisation are f64 in every precision.

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
