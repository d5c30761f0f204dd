//! Operators: `v ↦ K v` without saying how K is stored.
//!
//! | file | form |
//! |---|---|
//! | [`KernelOperator`] | matrix-free: tiles computed, used and forgotten |
//! | [`ShardedOperator`] | the same, of points that several processes have |
//! | [`DenseOperator`] | K in memory |
//! | [`LowRankOperator`] | `FᵀF/S` from [`FunctionSamples`], in memory or in a file larger than it |
//! | [`NtkOperator`] | the empirical NTK of a network, by its derivatives |
//! | [`Centred`] | `H K H`, `H = I − 11ᵀ/n` |
//! | [`NeighbourGraph`] | the sparse graph of nearest neighbours |
//! | [`RandomWalk`] | the random walk on an affinity: a kernel or a graph |
//! | [`OnPoints`] | any of them, with coordinates for its points |
//!
//! An operator also says how a function on its sample reaches new points: [`Operator::extend`] gives [`Features`] that
//! take [`Points`]. Another form is one more file that implements [`Operator`].

mod batch;
#[doc(hidden)]
pub mod cuda;
mod features;
mod function_samples;
mod gradient;
mod gram;
mod images;
mod kinds;
pub mod memory;
mod nearest;
mod pair;
pub(crate) mod tile;

pub use crate::budget::Budget;
pub use crate::precision::Precision;
#[doc(hidden)]
pub use batch::{BatchOperator, Own, Sizes, batch_operator};
pub(crate) use cuda::compiles;
pub use features::{Extension, Features};
pub(crate) use features::{KernelFeatures, RowFeatures, SampleFeatures};
pub use function_samples::{FunctionSamples, Points};
pub(crate) use gradient::point_gradient::Combination;
pub(crate) use gram::gram_reported;
pub use gram::{gram, gram_cross, gram_rows};
pub use kinds::dense::DenseOperator;
use kinds::derived::Restricted;
pub(crate) use kinds::derived::Scaled;
pub use kinds::derived::{Centred, OnPoints};
pub use kinds::graph::{NeighbourGraph, nearest_neighbours};
pub use kinds::low_rank::LowRankOperator;
pub use kinds::matrix_free::{KernelOperator, cross_apply};
pub use kinds::network_ntk::NtkOperator;
pub use kinds::sharded::ShardedOperator;
pub(crate) use kinds::walk::Heat;
pub use kinds::walk::RandomWalk;
pub use nearest::Metric;
pub(crate) use nearest::{Items, check_rows};
pub(crate) use pair::{Pair, Side};
pub(crate) use tile::packed::Factor;
pub(crate) use tile::points::profile_bytes;
pub use tile::real::Real;
pub(crate) use tile::real::{in_precision, typed};
pub(crate) use tile::strips::Strips;
pub(crate) use tile::workspace::{Workspace, ranges};

use crate::compute::Device;
use crate::data::Rows;
use crate::linalg::{Panel, Part, Sharding, matmul};
use crate::{Error, FitContext, Progress, Result};
use ndarray::{Array1, Array2, ArrayView2, Axis};
use std::ops::Range;

/// A symmetric positive semi-definite matrix known by its action: the kernel `κ` between the values of a function on a
/// sample, `outputs` values at each point, side by side.
///
/// The first four methods make an operator that the exact and the Krylov method decompose. The others, which have
/// defaults, tell methods more: coordinates for networks, a formula for random features, and how functions reach new points.
/// `examples/own_operator.rs` implements one.
pub trait Operator: Send + Sync {
    /// Number of rows and columns: points × outputs.
    fn n(&self) -> usize;

    /// `K V` `[n, b]` for `V` `[n, b]`.
    fn apply(&self, v: ArrayView2<f64>) -> Result<Array2<f64>>;

    /// The sub-matrix `K[rows, columns]`.
    fn block(&self, rows: &[usize], columns: &[usize]) -> Result<Array2<f64>>;

    /// The diagonal `[n]`.
    fn diagonal(&self) -> Result<Array1<f64>>;

    /// How the rows of vectors are sharded over ranks by those who hold many of them. Where they are, [`Self::apply_panel`] takes such vectors,
    /// [`Self::extend`] and [`Self::cross`] take the rows of this rank, and functions are those of all ranks together.
    fn sharding(&self) -> Sharding {
        Sharding::WHOLE
    }

    /// Relative error of [`Self::apply`]: below it, times the largest eigenvalue, is noise. That of double precision, unless
    /// the operator says otherwise.
    fn roundoff(&self) -> f64 {
        Precision::F64.roundoff(Device::Cpu)
    }

    /// `K V` `[n, b]` on the device of `V` `[n, b]`: by [`Self::apply`] on the host, unless the operator can do better.
    fn apply_panel(&self, v: &Panel) -> Result<Panel> {
        v.through_host(|v| self.apply(v))
    }

    /// `K[rows, columns] V` `[rows, b]` for `V` `[columns, b]`.
    fn product(&self, rows: Range<usize>, columns: Range<usize>, v: ArrayView2<f64>) -> Result<Array2<f64>> {
        let (rows, columns): (Vec<usize>, Vec<usize>) = (rows.collect(), columns.collect());
        block_product(self, &rows, &columns, v)
    }

    /// `K[rows, columns] V` `[rows, b]` for `V` `[columns, b]`, on the device of `V`: through the host, unless the operator can do
    /// better.
    fn product_panel(&self, rows: &Part<'_>, columns: &Part<'_>, v: &Panel) -> Result<Panel> {
        let n = self.n();
        if rows.is_all(n) && columns.is_all(n) {
            return self.apply_panel(v);
        }
        v.through_host(|v| match (rows.range(n), columns.range(n)) {
            (Some(rows), Some(columns)) => self.product(rows, columns, v),
            _ => block_product(self, &rows.list(n), &columns.list(n), v),
        })
    }

    /// The sub-matrix `K[rows, columns]` on `device`: by [`Self::block`] on the host, unless the operator can do better.
    fn block_panel(&self, rows: &Part<'_>, columns: &Part<'_>, device: Device) -> Result<Panel> {
        let n = self.n();
        Panel::from_host(device, self.block(&rows.list(n), &columns.list(n))?)
    }

    /// All of K `[n, n]`; kernels report the tiles that are done.
    fn to_dense(&self, _progress: &dyn Progress) -> Result<Array2<f64>> {
        let all: Vec<usize> = (0..self.n()).collect();
        self.block(&all, &all)
    }

    /// Values of a function at each point.
    fn outputs(&self) -> usize {
        1
    }

    /// The coordinates `[points, d]`, where the points have some: networks are functions of them.
    fn points(&self) -> Option<Rows<'_>> {
        None
    }

    /// Columns of the points' coordinates; 0 where they have none.
    fn coordinates(&self) -> usize {
        self.points().map_or(0, |x| x.d())
    }

    /// The operator as a formula on coordinates, where it is one.
    fn kernel(&self) -> Option<&KernelOperator<'_>> {
        None
    }

    /// The operator as `FᵀF/S`, where it is of low rank.
    fn low_rank(&self) -> Option<&LowRankOperator> {
        None
    }

    /// Whether every entry is in memory, so that [`Self::block`] only reads.
    fn is_stored(&self) -> bool {
        false
    }

    /// K in memory, where it fits into the context's budget beside `other` bytes and products become faster by it.
    fn stored(&self, _context: &FitContext<'_>, _other: u64) -> Result<Option<Box<dyn Operator>>> {
        Ok(None)
    }

    /// The functions `x ↦ Σ_m κ(x, z_m) a_m` for the values z of the sample that `rows` names (all of them without it) and
    /// `a` `[m, k]`. Without a formula for κ, new points are given by their kernel values with the sample.
    fn extend(&self, rows: Option<&[usize]>, a: Array2<f64>) -> Result<Extension> {
        let coefficients = match rows {
            None => a,
            Some(rows) => {
                let mut all = Array2::zeros((self.n(), a.ncols()));
                rows.iter().zip(a.rows()).for_each(|(&i, a)| all.row_mut(i).assign(&a));
                all
            }
        };
        let features = RowFeatures { values: self.n(), outputs: self.outputs() };
        Ok(Extension { features: Box::new(features), coefficients })
    }

    /// `κ(x, X) A` `[m·C, k]` at m new points, X the sample and `A` `[n, k]`.
    fn cross(&self, points: Points<'_>, a: ArrayView2<f64>) -> Result<Array2<f64>> {
        let Extension { features, coefficients } = self.extend(None, a.to_owned())?;
        features.project(points, coefficients.view())
    }

    /// The same kernel on other points.
    fn at<'p>(&'p self, _points: Points<'p>) -> Result<Box<dyn Operator + 'p>> {
        Err(Error::input(format!("{} is known at its own points alone; hold none out", self.describe())))
    }

    /// What it is, in a few words; a spectrum keeps them.
    fn describe(&self) -> String {
        format!("an operator on {} values", self.n())
    }
}

/// `K[rows, columns] V` `[rows, b]` for `V` `[columns, b]`, by strips of rows, so that a large block is never whole in memory.
pub(crate) fn block_product<O: Operator + ?Sized>(
    operator: &O,
    rows: &[usize],
    columns: &[usize],
    v: ArrayView2<f64>,
) -> Result<Array2<f64>> {
    const STRIP: usize = 1024;
    let mut out = Array2::zeros((rows.len(), v.ncols()));
    for (rows, mut out) in rows.chunks(STRIP).zip(out.axis_chunks_iter_mut(Axis(0), STRIP)) {
        out.assign(&matmul(operator.block(rows, columns)?.view(), v));
    }
    Ok(out)
}

impl dyn Operator + '_ {
    /// The same kernel on some of the sample's values.
    pub fn restricted<'r>(&'r self, rows: &'r [usize]) -> Result<Box<dyn Operator + 'r>> {
        match self.kernel() {
            Some(kernel) => Ok(Box::new(kernel.select(rows)?)),
            None => Ok(Box::new(Restricted { inner: self, rows })),
        }
    }
}
