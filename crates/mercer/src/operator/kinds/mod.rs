//! The operators: one form of a symmetric matrix per file.

pub(crate) mod dense;
pub(crate) mod derived;
pub(crate) mod graph;
pub(crate) mod low_rank;
pub(crate) mod matrix_free;
pub(crate) mod network_ntk;
pub(crate) mod sharded;
pub(crate) mod sharded_features;
pub(crate) mod walk;
