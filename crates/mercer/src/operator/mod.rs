//! Operators: `v ↦ K v` without saying how K is stored.
//!
//! | file | form |
//! |---|---|
//! | [`KernelOperator`] | matrix-free: tiles computed, used and forgotten |
//! | [`DenseOperator`] | K in memory |
//! | [`LowRankOperator`] | `FᵀF/S` from [`FunctionSamples`], in memory or in a file larger than it |
//! | [`NtkOperator`] | the empirical NTK of a network, by its derivatives |
//! | [`Centred`] | `H K H`, `H = I − 11ᵀ/n` |
//! | [`NeighbourGraph`] | the sparse graph of nearest neighbours |
//! | [`RandomWalk`] | the random walk on an affinity: a kernel or a graph |
//!
//! A GPU or sharded form is one more file that implements [`Operator`].

mod aligned;
mod batch;
mod centred;
pub mod cuda;
mod dense;
mod function_samples;
mod graph;
mod low_rank;
mod matrix_free;
pub mod memory;
mod network;
mod network_ntk;
mod pictures;
mod points;
mod real;
mod strips;
mod tile;
mod walk;

pub use batch::{BatchOperator, Entries, Own, Sizes, batch_operator};
pub use centred::Centred;
pub use dense::{DenseOperator, gram, gram_cross};
pub use function_samples::FunctionSamples;
pub use graph::{NeighbourGraph, nearest_neighbours};
pub use low_rank::LowRankOperator;
pub use matrix_free::{KernelOperator, cross_apply};
pub use memory::Budget;
pub use network_ntk::NtkOperator;
pub use points::Points;
pub(crate) use points::profile_bytes;
pub use real::{Precision, Real};
pub(crate) use strips::{StripBuffer, Strips};
pub(crate) use walk::Heat;
pub use walk::RandomWalk;

use crate::Result;
use crate::linalg::Panel;
use ndarray::{Array1, Array2, ArrayView2};

/// How an operator's numbers lie in memory, for those who would lay them elsewhere.
#[derive(Clone, Copy)]
pub enum Stored<'a> {
    /// `FᵀF/S`
    Samples(&'a LowRankOperator),
    /// Every entry; [`Operator::block`] reads them.
    Entries,
}

/// A symmetric positive semi-definite matrix known by its action.
pub trait Operator: Send + Sync {
    /// Number of rows and columns.
    fn n(&self) -> usize;

    /// `K V` `[n, b]` for `V` `[n, b]`.
    fn apply(&self, v: ArrayView2<f64>) -> Result<Array2<f64>>;

    /// `K V` `[n, b]` on the device of `V` `[n, b]`: by [`Self::apply`] on the host, unless the operator can do better.
    fn apply_panel(&self, v: &Panel) -> Result<Panel> {
        v.through_host(|v| self.apply(v))
    }

    /// The sub-matrix `K[rows, columns]`.
    fn block(&self, rows: &[usize], columns: &[usize]) -> Result<Array2<f64>>;

    /// The diagonal `[n]`.
    fn diagonal(&self) -> Result<Array1<f64>>;

    /// Its numbers, if it is made of numbers in memory.
    fn stored(&self) -> Option<Stored<'_>> {
        None
    }

    /// Relative error of [`Self::apply`]: what lies below it, times the largest eigenvalue, is noise.
    fn roundoff(&self) -> f64;
}
