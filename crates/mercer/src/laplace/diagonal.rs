//! The diagonal of the Gauss–Newton matrix over all parameters.

use super::Structure;
use super::blocks::{Block, Blocks};
use super::cost::{Sizes, Work};
use super::fit::{Fit, Rows};
use super::method::Recipe;
use super::passes::{Cotangents, Passes, host, matrix};
use crate::bundle::Bundle;
use crate::classifier::Classifier;
use crate::compute::{self, Store, Tensor, gemm};
use crate::linalg::matmul;
use crate::net::ntk::Jacobian;
use crate::{FitContext, Result};
use ndarray::{Array1, Array2, ArrayView2, Axis, s};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The diagonal of H, over all parameters. Example: [the module](super).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagonal;

impl Recipe for Diagonal {
    fn name(&self) -> &'static str {
        "diagonal"
    }

    fn about(&self) -> &'static str {
        "the diagonal of the Gauss–Newton matrix, over all parameters"
    }

    fn work(&self, sizes: &Sizes) -> Result<Work> {
        let &Sizes { n, c, p, .. } = sizes;
        let predict = sizes.backward() + c * p;
        Ok(Work { bytes: 32.0 * p + sizes.batch()?, fit: n * predict, predict })
    }

    fn fit(&self, rows: &Rows, context: &FitContext) -> Result<Fit> {
        fit(rows.passes, rows.x, context).map(Fit::of)
    }

    fn unpack(&self, bundle: &Bundle, _: &Classifier) -> Result<Option<Arc<dyn Structure>>> {
        Ok(Some(Arc::new(Blocks::unpack(bundle, false)?)))
    }
}

/// `h_p = Σ_i Σ_c (J_iᵀ L_i)_{pc}²` with `Λ_i = L_i L_iᵀ`, at rows `x` `[n, d]`, and the outputs there `[n, C]`.
fn fit(passes: &Passes, x: ArrayView2<f64>, context: &FitContext) -> Result<(Blocks, Array2<f64>)> {
    let p = passes.classifier.network.parameters() as u64;
    context.budget.require(format!("a diagonal of {p} numbers"), 32 * p, "use last-layer")?;
    let mut blocks: BTreeMap<usize, Block> = BTreeMap::new();
    let n = x.nrows();
    let z = passes.derivatives(x, Cotangents::CurvatureRoots, |rows, start, jacobian| {
        context.progress.step("diagonal", rows.start, n, "rows");
        let (weights, biases) = squares(jacobian)?;
        match blocks.get_mut(&start) {
            Some(block) => {
                block.weights += &weights;
                block.biases += &biases;
            }
            None => {
                blocks.insert(start, Block { start, weights, biases, rotation: None });
            }
        }
        Ok(())
    })?;
    Ok((Blocks::new(blocks.into_values().collect(), false, &passes.trained()?), z))
}

/// The sums of squares of derivatives by the weights `[in, out]` and by the biases `[out]` of a layer, over points and cotangents.
fn squares(jacobian: &Jacobian) -> Result<(Array2<f64>, Array1<f64>)> {
    let square = |v: f64| v * v;
    Ok(match jacobian {
        Jacobian::Outer { a, delta, bias, .. } => {
            let signals = host(delta)?.mapv(square).sum_axis(Axis(0));
            let biases = if *bias > 0.0 { signals.sum_axis(Axis(0)) } else { Array1::zeros(0) };
            (matmul(matrix(a)?.mapv(square).t(), signals.view()), biases)
        }
        Jacobian::Convolved(convolved) => {
            let (out, patch) = (convolved.shape.channels, convolved.shape.patch());
            let sums = summed(convolved.rows()?)?;
            let weights = sums.slice(s![..out * patch]).to_owned().into_shape_with_order((out, patch));
            let weights = weights.expect("the filters").reversed_axes().as_standard_layout().into_owned();
            (weights, sums.slice(s![out * patch..]).to_owned())
        }
        Jacobian::Rows(rows) => (summed(rows.clone())?.insert_axis(Axis(1)), Array1::zeros(0)),
        Jacobian::None | Jacobian::Several(_) => unreachable!("layers of weights only"),
    })
}

/// `Σ_{c,n} r²` `[p]` of derivatives `[c, n, p]`.
fn summed(mut rows: Tensor) -> Result<Array1<f64>> {
    let &[c, n, p] = rows.shape() else { unreachable!("[c, n, p]") };
    let copy = rows.clone();
    compute::multiply(&mut rows, &copy);
    let ones = Tensor::from_host(rows.device(), &[1, c * n], &vec![1.0; c * n])?;
    let mut sums = Tensor::zeros(rows.device(), &[1, p])?;
    gemm(1.0, ones.stack(), rows.matrices(0, 0, c * n, p), Store::Replace, sums.stack_mut());
    Ok(sums.to_host()?.into_iter().map(f64::from).collect())
}
