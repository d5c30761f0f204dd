//! The common part of random features: projections on directions, and a function of them while they are in cache.

use super::Problem;
use crate::data::Rows;
use crate::linalg::matmul_into;
use crate::operator::memory::zeros;
use crate::operator::{Real, ranges};
use crate::{Error, Result};
use faer::{Accum, Par};
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis, Zip, s};
use rayon::prelude::*;

/// Refuses fewer random features than pairs, and more of them than fit into memory, where they take `bytes`.
pub(super) fn require(problem: &Problem, count: usize, bytes: u64) -> Result<()> {
    let (k, n) = (problem.k, problem.operator.n());
    if count < k {
        return Err(Error::input(format!("{k} pairs need at least as many random features, got {count}")));
    }
    problem.context.budget.require(format!("{count} random features at {n} points"), bytes, "use fewer features")
}

/// `[n, p]` features of points `x` `[n, d]`: the first M columns of a strip of rows are filled with `(x−c)·ω` for
/// directions `ω` `[M, d]` and centre `c` `[d]`, then `finish` makes features of the strip `[h, p]`, given also the
/// `‖x−c‖²` of its rows `[h]`.
pub(super) fn projected<T: Real>(
    x: Rows<'_>,
    centre: ArrayView1<f64>,
    ω: ArrayView2<f64>,
    p: usize,
    finish: impl Fn(&mut [T], &[T]) + Sync,
) -> Array2<T> {
    // A strip of half a megabyte or so stays in the second-level cache between the product and what follows.
    let height = (128 * 1024 / p.max(1)).clamp(16, 512);
    let directions: Array2<T> = ω.t().mapv(T::of).as_standard_layout().into_owned();
    let n = x.n();
    let mut out = Array2::from_shape_vec((n, p), zeros(n * p)).expect("n·p values");
    let pieces: Vec<_> = out.axis_chunks_iter_mut(Axis(0), height).zip(ranges(n, height)).collect();
    pieces.into_par_iter().for_each(|(mut out, rows)| {
        let x = x.slice(rows).to_f64();
        let mut centred = Array2::from_elem(x.dim(), T::default());
        Zip::from(&mut centred).and(&x).and_broadcast(&centre).for_each(|t, x, c| *t = T::of(x - c));
        let norm = |row: ArrayView1<T>| T::of(row.iter().map(|v| v.wide() * v.wide()).sum());
        let norms: Array1<T> = centred.map_axis(Axis(1), norm);
        let angles = out.slice_mut(s![.., ..ω.nrows()]);
        matmul_into(angles, Accum::Replace, centred.view(), directions.view(), T::one_impl(), Par::Seq);
        let (out, norms) = (out.as_slice_mut(), norms.as_slice());
        finish(out.expect("a strip of rows is whole"), norms.expect("own array"));
    });
    out
}
