//! Tiles of a kernel matrix on CPU threads: prepared points, products, and the entries that need more digits.
//!
//! A tile is a 384×384 block of K. Its inner products come from a matrix product, the formula is applied in place while the tile is
//! in cache, and the tile is multiplied with the vectors and dropped. Symmetric halves are computed once.
//!
//! | file | content |
//! |---|---|
//! | `points` | a few rows at a time, converted from the type in which they are stored (f64, f32 or bytes) |
//! | `workspace` | one tile: inner products, formula, product |
//! | `packed`, `few_columns` | the three steps twelve rows at a time in AVX-512 registers, for at most 256 coordinates; `packed` uses intrinsics |
//! | `strips` | which tiles belong together, and the order of their sums |
//! | `symmetric_product` | `Kv` for the points with themselves |
//! | `normal` | a strip of `κ(X,Z)` that serves the product with it and with its transpose |
//! | `near`, `recompute` | entries that would lose digits, and their values from differences of coordinates |
//! | `duplicates` | points that are equal; their value is exactly `κ(x,x)` |
//! | `network`, `real` | kernels of infinite networks, sixteen lanes at a time; the generic code, compiled once |
//!
//! Kernel values are f32 or f64; sums over points are always f64. Kernels of a distance see points with their mean subtracted,
//! so that `‖x‖² + ‖x'‖² − 2x·x'` loses no digits to a distant origin. Where it still would (clusters far apart, or points close together), the
//! sensitivity of the formula and the norms of the two points say so, and the entry is recomputed. Well-scaled data have no such
//! entries.
//!
//! Tiles are assigned to a fixed number of strips, which are summed in their order. A product with K therefore has the same bits on one
//! to eight threads; above eight, on any number with the same power of two below it.

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
