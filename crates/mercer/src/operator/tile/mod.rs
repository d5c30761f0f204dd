//! Tiles of a kernel matrix on CPU threads: prepared points, products, and the entries that need more digits.

pub(crate) mod aligned;
pub(crate) mod duplicates;
pub(crate) mod few_columns;
pub(crate) mod near;
pub(crate) mod network;
pub(crate) mod normal;
pub(crate) mod packed;
pub(crate) mod point_pair;
pub(crate) mod points;
pub(crate) mod real;
pub(crate) mod recompute;
pub(crate) mod strips;
pub(crate) mod symmetric_product;
pub(crate) mod workspace;
