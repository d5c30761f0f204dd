//! Cross-validation of ridge regression in one pass over rows that are not in memory: sums over the rows of each fold are enough.

use crate::apply::Tried;
use crate::apply::features::ridge_head::{Part, Sums};
use crate::linalg::matmul;
use crate::rng::Rng;
use crate::{FitContext, Result};
use ndarray::{Array2, Axis, s};

/// The sums over the rows of each fold, about one shift.
///
/// The normal equations of all rows but a fold's are the difference of sums, and so is the squared error of their solution on the fold:
///
/// `Σ w ‖y − b − φW‖² = Σ w‖y‖² − 2 b·Σwy + Σw ‖b‖² − 2 tr(WᵀΣwφyᵀ) + 2 b·WᵀΣwφ + tr(WᵀΣwφφᵀ W)`
pub(crate) struct Folds {
    sums: Vec<Sums>,
    /// `Σ w ‖y‖²` of each.
    squares: Vec<f64>,
    /// Draws the fold of each row.
    rng: Rng,
    intercept: bool,
}

impl Folds {
    /// None yet, for rows like those of `part`.
    pub fn new(count: usize, part: &Part, intercept: bool, seed: u64) -> Folds {
        let first = Sums::new(part.phi.view(), part.y.ncols(), intercept);
        let sums = (0..count).map(|_| first.empty()).collect();
        Folds { sums, squares: vec![0.0; count], rng: Rng::new(seed).fork(0x666f_6c64), intercept }
    }

    /// Adds some rows, each to a fold that is drawn for it.
    pub fn add(&mut self, part: Part) {
        let count = self.sums.len();
        let of_row: Vec<usize> = (0..part.phi.nrows()).map(|_| self.rng.below(count)).collect();
        for (fold, sums) in self.sums.iter_mut().enumerate() {
            let rows: Vec<usize> = (0..of_row.len()).filter(|&i| of_row[i] == fold).collect();
            let (phi, y) = (part.phi.select(Axis(0), &rows), part.y.select(Axis(0), &rows));
            let w = part.weights.select(Axis(0), &rows);
            self.squares[fold] += y.rows().into_iter().zip(&w).map(|(y, w)| w * y.dot(&y)).sum::<f64>();
            sums.add(phi, y, w.mapv(f64::sqrt));
        }
    }

    /// The sums over all rows.
    pub fn whole(&self) -> Sums {
        let mut whole = self.sums[0].empty();
        self.sums.iter().for_each(|fold| whole.accumulate(fold, 1.0));
        whole
    }

    /// The mean squared error of each α on left-out rows.
    pub fn errors(&self, grid: &[f64], context: &FitContext) -> Result<Vec<Tried>> {
        let whole = self.whole();
        let mut errors = vec![0.0; grid.len()];
        for (f, (fold, squares)) in self.sums.iter().zip(&self.squares).enumerate() {
            // A fold that no row was drawn for has no error, and leaves nothing out.
            if fold.total == 0.0 {
                continue;
            }
            let mut rest = whole.empty();
            rest.accumulate(&whole, 1.0);
            rest.accumulate(fold, -1.0);
            let path = rest.decompose(self.intercept, context)?;
            let weights: Vec<Array2<f64>> = grid.iter().map(|&alpha| path.weights(alpha)).collect();
            let gram = fold.symmetric();
            for (error, w) in errors.iter_mut().zip(&weights) {
                // b of features about the shift.
                let b = &path.y_mean - &(&path.mean - &whole.shift).dot(w);
                let square = (w * &matmul(gram.view(), w.view())).sum() + 2.0 * b.dot(&w.t().dot(&fold.phi));
                let mixed = (w * &fold.cross).sum() + b.dot(&fold.y);
                *error += (squares - 2.0 * mixed + square + fold.total * b.dot(&b)).max(0.0);
            }
            context.progress.step("cross-validation", f + 1, self.sums.len(), "");
        }
        Ok(grid.iter().zip(errors).map(|(&value, sum)| Tried { value, error: sum / whole.total }).collect())
    }
}

impl Sums {
    /// Of no rows, about the same shift.
    fn empty(&self) -> Sums {
        let zeros = |a: &Array2<f64>| Array2::zeros(a.dim());
        let (gram, cross, product) = (zeros(&self.gram), zeros(&self.cross), zeros(&self.product));
        Sums { shift: self.shift.clone(), gram, cross, phi: &self.phi * 0.0, y: &self.y * 0.0, total: 0.0, product }
    }

    /// Adds `factor` times other sums about the same shift.
    fn accumulate(&mut self, other: &Sums, factor: f64) {
        self.gram.scaled_add(factor, &other.gram);
        self.cross.scaled_add(factor, &other.cross);
        self.phi.scaled_add(factor, &other.phi);
        self.y.scaled_add(factor, &other.y);
        self.total += factor * other.total;
    }

    /// `Σ w φφᵀ` `[p, p]`, both halves.
    pub(crate) fn symmetric(&self) -> Array2<f64> {
        let mut gram = self.gram.clone();
        for i in 0..gram.nrows() {
            let row = gram.slice(s![i, ..i]).to_owned();
            gram.slice_mut(s![..i, i]).assign(&row);
        }
        gram
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::Array1;

    /// Against predictions for the rows that each fold leaves out.
    #[test]
    fn errors_are_those_of_the_rows_that_were_left_out() {
        let mut rng = Rng::new(2);
        let phi = Array2::from_shape_simple_fn((90, 4), || 3.0 + rng.normal());
        let w = Array1::from_shape_simple_fn(90, || 0.5 + rng.uniform());
        let y = Array2::from_shape_fn((90, 2), |(i, c)| phi[[i, c]] - 0.3 * phi[[i, 3]] + (i % 7) as f64);
        let (grid, context) = ([1e-3, 1.0, 50.0], FitContext::default());
        let part = |rows: &[usize]| Part {
            phi: phi.select(Axis(0), rows),
            y: y.select(Axis(0), rows),
            weights: w.select(Axis(0), rows),
        };
        for intercept in [true, false] {
            let blocks: [Vec<usize>; 2] = [(0..50).collect(), (50..90).collect()];
            let mut folds = Folds::new(3, &part(&blocks[0]), intercept, 4);
            blocks.iter().for_each(|rows| folds.add(part(rows)));
            let mut draws = Rng::new(4).fork(0x666f_6c64);
            let of_row: Vec<usize> = (0..90).map(|_| draws.below(3)).collect();
            let mut want = [0.0; 3];
            for fold in 0..3 {
                let [out, rest] =
                    [true, false].map(|is| -> Vec<usize> { (0..90).filter(|&i| (of_row[i] == fold) == is).collect() });
                let Part { phi: f, y: t, weights: v } = part(&rest);
                let mut sums = Sums::new(f.view(), 2, intercept);
                sums.add(f, t, v.mapv(f64::sqrt));
                let path = sums.decompose(intercept, &context).unwrap();
                for (want, alpha) in want.iter_mut().zip(grid) {
                    let Part { phi: f, y: t, weights: v } = part(&out);
                    let off = t - &path.y_mean - (f - &path.mean).dot(&path.weights(alpha));
                    *want += off.rows().into_iter().zip(&v).map(|(e, w)| w * e.dot(&e)).sum::<f64>() / w.sum();
                }
            }
            for (got, want) in folds.errors(&grid, &context).unwrap().iter().zip(want) {
                assert!((got.error / want - 1.0).abs() < 1e-9, "{got:?} {want}");
            }
        }
    }
}
