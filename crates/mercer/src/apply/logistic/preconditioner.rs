//! The preconditioner of a Newton step in logistic regression.

use crate::Result;
use crate::apply::logistic::design::Design;
use crate::compute::Device;
use crate::linalg::Cholesky;
use crate::spectrum::add_gram;
use ndarray::{Array1, Array2, Axis, s};
use rayon::prelude::*;

/// Classes up to which each has a block of its own.
const MOST_BLOCKS: usize = 32;

/// Blocks of the preconditioner for C classes.
pub(crate) fn blocks(classes: usize) -> usize {
    if classes <= MOST_BLOCKS { classes } else { 1 }
}

/// The blocks `H_c = Zᵀ diag(w p_c(1 − p_c)) Z + α` on the diagonal of the Hessian, summed over a sample of the rows and factored. Above
/// 32 classes there is one block, of the mean curvature of the classes.
pub(crate) struct Preconditioner {
    blocks: Vec<Cholesky<f64>>,
}

impl Preconditioner {
    /// From the rows `sample` of the design, with the probabilities `p` `[n, C]` and the weights `[n]` of all rows.
    pub fn new(
        design: &Design,
        sample: &[usize],
        p: &Array2<f64>,
        weights: &[f64],
        alpha: f64,
    ) -> Result<Preconditioner> {
        let z = design.rows(sample)?;
        let sampled: f64 = sample.iter().map(|&i| weights[i]).sum();
        let more = weights.iter().sum::<f64>() / sampled.max(f64::MIN_POSITIVE);
        let classes = p.ncols();
        let curvature = |i: usize, c: usize| more * weights[i] * p[[i, c]] * (1.0 - p[[i, c]]);
        let block = |b: usize| {
            let share: Array1<f64> = match blocks(classes) {
                1 => sample
                    .iter()
                    .map(|&i| (0..classes).map(|c| curvature(i, c)).sum::<f64>() / classes as f64)
                    .collect(),
                _ => sample.iter().map(|&i| curvature(i, b)).collect(),
            };
            factor(&z, share, alpha)
        };
        Ok(Preconditioner { blocks: (0..blocks(classes)).map(block).collect::<Result<_>>()? })
    }

    /// `Π B⁻¹ Π R` for `R` `[1+p, C]`, B the blocks and Π the projection on columns that add up to zero. Without it, the direction in which
    /// the columns are equal, where the Hessian is α alone, would need many products.
    pub fn solve(&self, r: &Array2<f64>) -> Result<Array2<f64>> {
        let r = without_mean(r.clone());
        if let [one] = &self.blocks[..] {
            return Ok(without_mean(one.solve(r.view())?));
        }
        let column = |(c, block): (usize, &Cholesky<f64>)| block.solve(r.slice(s![.., c..c + 1]));
        let columns: Vec<Array2<f64>> = self.blocks.par_iter().enumerate().map(column).collect::<Result<_>>()?;
        Ok(without_mean(Array2::from_shape_fn(r.dim(), |(j, c)| columns[c][[j, 0]])))
    }
}

/// The factor of `Zᵀ diag(share) Z + α` for `z` `[m, 1+p]`.
fn factor(z: &Array2<f64>, share: Array1<f64>, alpha: f64) -> Result<Cholesky<f64>> {
    /// Rows that are multiplied at once.
    const BLOCK: usize = 1024;
    let square = || Array2::<f64>::zeros((z.ncols(), z.ncols()));
    let (mut gram, mut product) = (square(), square());
    let root = share.mapv(f64::sqrt).insert_axis(Axis(1));
    for (z, root) in z.axis_chunks_iter(Axis(0), BLOCK).zip(root.axis_chunks_iter(Axis(0), BLOCK)) {
        add_gram(&mut gram, &mut product, (&z * &root).view());
    }
    gram.diag_mut().mapv_inplace(|d| d + alpha);
    Cholesky::new(Device::Cpu, gram.view())
}

/// Columns that add up to zero.
fn without_mean(a: Array2<f64>) -> Array2<f64> {
    let means = a.mean_axis(Axis(1)).expect("there are classes").insert_axis(Axis(1));
    a - &means
}
