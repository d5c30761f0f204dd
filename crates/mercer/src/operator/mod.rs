//! Operators: `v ↦ K v` without saying how K is stored.
//!
//! | file | form |
//! |---|---|
//! | [`KernelOperator`] | matrix-free: tiles computed, used and forgotten |
//! | [`DenseOperator`] | K in memory |
//! | [`LowRankOperator`] | `FᵀF/S` from [`FunctionSamples`], in memory or in a file larger than it |
//! | [`NtkOperator`] | the empirical NTK of a network, by its derivatives |
//! | [`Centred`] | `H K H`, `H = I − 11ᵀ/n` |
//!
//! A GPU or sharded form is one more file that implements [`Operator`].

mod centred;
mod dense;
mod function_samples;
mod low_rank;
mod matrix_free;
pub mod memory;
mod network_ntk;
mod points;
mod real;
mod strips;
mod tile;

pub use centred::Centred;
pub use dense::{DenseOperator, gram, gram_cross};
pub use function_samples::FunctionSamples;
pub use low_rank::LowRankOperator;
pub use matrix_free::{KernelOperator, cross_apply};
pub use memory::Budget;
pub use network_ntk::NtkOperator;
pub use points::Points;
pub use real::{Precision, Real};
pub(crate) use strips::{StripBuffer, Strips};

use ndarray::{Array1, Array2, ArrayView2};

/// A symmetric positive semi-definite matrix known by its action.
pub trait Operator: Send + Sync {
    /// Number of rows and columns.
    fn n(&self) -> usize;

    /// `K V` `[n, b]` for `V` `[n, b]`.
    fn apply(&self, v: ArrayView2<f64>) -> Array2<f64>;

    /// The sub-matrix `K[rows, columns]`.
    fn block(&self, rows: &[usize], columns: &[usize]) -> Array2<f64>;

    /// The diagonal `[n]`.
    fn diagonal(&self) -> Array1<f64>;

    /// Relative error of [`Self::apply`]: what lies below it, times the largest eigenvalue, is noise.
    fn roundoff(&self) -> f64;
}
