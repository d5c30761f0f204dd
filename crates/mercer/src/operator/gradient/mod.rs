//! Derivatives with respect to the hyper-parameters of a kernel.
//!
//! The derivative of anything by the matrix K becomes that by amplitudes and lengthscales in a walk back through the kernel's expression. A
//! lengthscale for each column divides the points before any tile sees them; its derivative for kernels of inner products is that
//! by the points (`point_gradient`).

pub(crate) mod point_gradient;

use crate::compute::Device;
use crate::kernel::{Base, Formula, Kernel, Lift, OpenLengthscale, Pair, Statistic, Tunable, power, with_formula};
use crate::linalg::matmul;
use crate::operator::gradient::point_gradient::Leaf;
use crate::operator::gram;
use crate::operator::tile::workspace::ranges;
use crate::simd::{Dual, Lane, vectorized};
use crate::{Error, Result};
use ndarray::{Array1, Array2, ArrayView2, Axis, Zip, s};
use rayon::prelude::*;
use std::collections::VecDeque;
use std::ops::Range;

/// Rows of the matrix that are computed together.
const ROWS: usize = 128;

impl Tunable {
    /// `∂f/∂θ` `[p]` at θ of a function f of the kernel matrix `k` `[n, n]` on the points `x` `[n, d]`, from its derivative
    /// `g` = ∂f/∂K `[n, n]`, which is symmetric.
    ///
    /// ```
    /// use mercer::kernel::{Expression, Tunable};
    /// let x = ndarray::array![[0.0], [1.0]];
    /// let kernel = Tunable::new(&Expression::parse("rbf(auto)")?, x.view(), 0)?;
    /// // f = K₁₂ = c·exp(−1/2ℓ²) at c = ℓ = 1
    /// let (value, g) = ((-0.5f64).exp(), ndarray::array![[0.0, 0.5], [0.5, 0.0]]);
    /// let k = ndarray::array![[1.0, value], [value, 1.0]];
    /// let gradient = kernel.gradient(&[0.0, 0.0], x.view(), k.view(), g.view(), mercer::Device::Cpu)?;
    /// assert!((gradient[0] - value).abs() < 1e-15 && (gradient[1] - value).abs() < 1e-15);
    /// # Ok::<(), mercer::Error>(())
    /// ```
    pub fn gradient(
        &self,
        θ: &[f64],
        x: ArrayView2<f64>,
        k: ArrayView2<f64>,
        g: ArrayView2<f64>,
        device: Device,
    ) -> Result<Vec<f64>> {
        let kernel = self.at(θ)?;
        let terms = if let Kernel::Sum(terms) = &kernel { &terms[..] } else { std::slice::from_ref(&kernel) };
        let mut walk = Walk { x, device, open: self.open().into(), gradient: vec![0.0; θ.len()] };
        for (t, term) in terms.iter().enumerate() {
            // ∂K/∂log c = c·κ, the term itself.
            walk.gradient[t] = match terms {
                [_] => sum_of_products(g, k),
                _ => sum_of_products(g, gram::<f64>(term, x, device)?.view()),
            };
            walk.back(term, g, 1.0)?;
        }
        Ok(walk.gradient)
    }
}

/// `Σ_ij a_ij b_ij`
fn sum_of_products(a: ArrayView2<f64>, b: ArrayView2<f64>) -> f64 {
    let rows: Vec<usize> = (0..a.nrows()).collect();
    rows.into_par_iter().map(|i| a.row(i).dot(&b.row(i))).collect::<Vec<f64>>().iter().sum()
}

/// A walk through an expression, from the derivative with respect to its value to those with respect to its parameters.
struct Walk<'a> {
    /// `[n, d]`
    x: ArrayView2<'a, f64>,
    device: Device,
    /// The lengthscales of the base kernels still to come.
    open: VecDeque<Option<OpenLengthscale>>,
    gradient: Vec<f64>,
}

impl Walk<'_> {
    /// Adds what the lengthscales in `kernel` contribute, from the derivative `c·g` with respect to its matrix, `g` `[n, n]`.
    fn back(&mut self, kernel: &Kernel, g: ArrayView2<f64>, c: f64) -> Result<()> {
        let bases = kernel.bases().len();
        if self.open.iter().take(bases).all(Option::is_none) {
            self.open.drain(..bases);
            return Ok(());
        }
        match kernel {
            Kernel::Base(base) => {
                if let Some(open) = self.open.pop_front().flatten() {
                    let of_base = match base.statistic() {
                        Statistic::SquaredDistance | Statistic::L1 => distances(base, self.x, g, open.each)?,
                        Statistic::Dot | Statistic::Images => products(base, self.x, g, open.each)?,
                    };
                    self.gradient[open.at].iter_mut().zip(of_base).for_each(|(sum, part)| *sum += c * part);
                }
                Ok(())
            }
            Kernel::Scale(factor, inner) => self.back(inner, g, c * factor),
            Kernel::Sum(terms) => terms.iter().try_for_each(|term| self.back(term, g, c)),
            Kernel::Product(factors) => (0..factors.len()).try_for_each(|i| {
                // ∂(Π κ_j)/∂κ_i is the product of the others.
                let others = Kernel::Product([&factors[..i], &factors[i + 1..]].concat());
                let others = gram::<f64>(&others, self.x, self.device)?;
                self.back(&factors[i], (&g * &others).view(), c)
            }),
        }
    }
}

/// `Σ_ij g_ij ∂κ(x_i,x_j)/∂log ℓ` of a kernel of inner products, for one lengthscale or for that of each column: both points are divided by it, and g
/// and κ are symmetric, so that it is `−2 Σ_i x_ic ∂_c Σ_j g_ij κ(x_i, x_j)`.
fn products(base: &Base, x: ArrayView2<f64>, g: ArrayView2<f64>, each: bool) -> Result<Vec<f64>> {
    let leaf = Leaf::new(base, x)?;
    let ones = Array2::ones((x.nrows(), 1));
    let of_rows = |rows: Range<usize>| {
        let own = x.slice(s![rows.clone(), ..]);
        let gradients = leaf.gradients(&mut leaf.see(own), g.slice(s![rows, ..]).to_owned(), ones.view());
        (&own * &gradients[0]).sum_axis(Axis(0))
    };
    let parts: Vec<Array1<f64>> = ranges(x.nrows(), ROWS).into_par_iter().map(of_rows).collect();
    let sum = parts.into_iter().fold(Array1::zeros(x.ncols()), |sum, part| sum + part) * -2.0;
    Ok(if each { sum.to_vec() } else { vec![sum.sum()] })
}

/// `Σ_ij g_ij ∂κ(x_i,x_j)/∂log ℓ` of a kernel of a distance, for one lengthscale or for that of each column.
fn distances(base: &Base, x: ArrayView2<f64>, g: ArrayView2<f64>, each: bool) -> Result<Vec<f64>> {
    match base.lift_of(x.ncols()) {
        Lift::Itself | Lift::Over(_) | Lift::Circles(_) => {}
        Lift::OverNorm | Lift::OverRootOfNorm => {
            return Err(Error::input(format!(
                "the kernel {base} of distances between normalised points is not differentiated by its lengthscale; give it a number"
            )));
        }
    }
    let z = base.lift(x).unwrap_or_else(|| x.to_owned());
    let z = &z - &z.mean_axis(Axis(0)).ok_or_else(|| Error::input("a gradient needs at least one point"))?;
    let zz: Vec<f64> = z.rows().into_iter().map(|row| row.dot(&row)).collect();
    let parts: Vec<Array1<f64>> = ranges(z.nrows(), ROWS)
        .into_par_iter()
        .map(|rows| {
            let own = z.slice(s![rows.clone(), ..]);
            let mut distances = match base.statistic() {
                Statistic::L1 => l1_distances(own, z.view()),
                _ => squared_distances(own, z.view(), &zz[rows.clone()], &zz),
            };
            let mut w = g.slice(s![rows.clone(), ..]).to_owned();
            slopes(base, &mut distances, &mut w);
            match (each, base.statistic()) {
                (false, _) => Array1::from_elem(1, (&w * &distances).sum()),
                (true, Statistic::L1) => l1_by_column(own, z.view(), w.view()),
                (true, _) => squares_by_column(own, z.view(), w.view()),
            }
        })
        .collect();
    let width = if each { z.ncols() } else { 1 };
    let sum: Array1<f64> = parts.into_iter().fold(Array1::zeros(width), |sum, part| sum + part);
    let mut of_columns = vec![0.0; if each { x.ncols() } else { 1 }];
    // A periodic kernel sees each column twice, and its cosines before its sines.
    let count = of_columns.len();
    sum.iter().enumerate().for_each(|(c, sum)| of_columns[c % count] -= power(base.statistic()) * sum);
    Ok(of_columns)
}

/// `‖a_i − b_j‖²` `[m, n]` of points `[m, p]` and `[n, p]` with these squared norms.
pub(crate) fn squared_distances(a: ArrayView2<f64>, b: ArrayView2<f64>, aa: &[f64], bb: &[f64]) -> Array2<f64> {
    let mut out = matmul(a, b.t());
    for (mut row, aa) in out.rows_mut().into_iter().zip(aa) {
        row.iter_mut().zip(bb).for_each(|(dot, bb)| *dot = (aa + bb - 2.0 * *dot).max(0.0));
    }
    out
}

/// `‖a_i − b_j‖₁` `[m, n]` of points `[m, p]` and `[n, p]`.
pub(crate) fn l1_distances(a: ArrayView2<f64>, b: ArrayView2<f64>) -> Array2<f64> {
    let distance = |(i, j)| a.row(i).iter().zip(b.row(j)).map(|(a, b)| f64::abs(a - b)).sum();
    Array2::from_shape_fn((a.nrows(), b.nrows()), distance)
}

/// Multiplies the weights `w` `[m, n]` by `∂κ/∂s` at the statistics `s` `[m, n]`; by 0 where points coincide, since there every
/// lengthscale leaves κ as it is.
pub(crate) fn slopes(base: &Base, s: &mut Array2<f64>, w: &mut Array2<f64>) {
    let (s, w) = (s.as_slice_mut().expect("in memory order"), w.as_slice_mut().expect("in memory order"));
    with_formula!(base, formula => slopes_of(formula, s, w));
}

vectorized! {
    fn slopes_of<FMA, 'a, F: Formula>(formula: &'a F, s: &'a [f64], w: &'a mut [f64]) {
        // Networks have no lengthscale: this keeps their code from being compiled.
        if const { F::IS_NETWORK } {
            return;
        }
        for (w, &s) in w.iter_mut().zip(s) {
            let norm = Dual { value: Lane::<f64, FMA>(0.0), slope: Lane(0.0) };
            let at = Dual { value: Lane::<f64, FMA>(if s > 0.0 { s } else { 1.0 }), slope: Lane(1.0) };
            let slope = formula.eval(Pair { s: at, xx: norm, yy: norm }).slope.0;
            *w = if s > 0.0 { *w * slope } else { 0.0 };
        }
    }
}

/// `Σ_ij w_ij (a_ic − b_jc)²` for each column c: `Σ_i a_ic² r_i + Σ_j b_jc² q_j − 2 Σ_i a_ic (Wb)_ic`, with r and q the sums of the
/// rows and columns of W.
fn squares_by_column(a: ArrayView2<f64>, b: ArrayView2<f64>, w: ArrayView2<f64>) -> Array1<f64> {
    let of_rows = (&a * &a).t().dot(&w.sum_axis(Axis(1)));
    let of_columns = (&b * &b).t().dot(&w.sum_axis(Axis(0)));
    let mixed = (&a * &matmul(w, b)).sum_axis(Axis(0));
    of_rows + of_columns - 2.0 * mixed
}

/// `Σ_ij w_ij |a_ic − b_jc|` for each column c.
fn l1_by_column(a: ArrayView2<f64>, b: ArrayView2<f64>, w: ArrayView2<f64>) -> Array1<f64> {
    let mut sums = Array1::zeros(a.ncols());
    for (a_i, w_i) in a.rows().into_iter().zip(w.rows()) {
        for (b_j, w_ij) in b.rows().into_iter().zip(w_i) {
            Zip::from(&mut sums).and(a_i).and(b_j).for_each(|sum, a, b| *sum += w_ij * f64::abs(a - b));
        }
    }
    sums
}
