//! KFAC: the Gauss–Newton matrix of a layer as a Kronecker product.

use super::Structure;
use super::blocks::{Block, Blocks};
use super::cost::{Sizes, Work};
use super::fit::{Fit, Rows};
use super::likelihood::Curvature;
use super::method::Recipe;
use super::passes::{Cotangents, Hidden, Passes};
use crate::bundle::Bundle;
use crate::classifier::Classifier;
use crate::compute::{Device, Store, Tensor, gemm};
use crate::linalg::{eigh, matmul};
use crate::net::ntk::Jacobian;
use crate::{FitContext, Result};
use ndarray::{Array1, Array2, ArrayView2, s};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A Kronecker product for every dense and convolutional layer; norms stay as they are. Example: [the module](super).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kfac;

/// A Kronecker product, over the last layer. Example: [the module](super).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastLayerKfac;

impl Recipe for Kfac {
    fn name(&self) -> &'static str {
        "kfac"
    }

    fn about(&self) -> &'static str {
        "a Kronecker product for every dense and convolutional layer"
    }

    fn work(&self, sizes: &Sizes) -> Result<Work> {
        let &Sizes { n, c, p, pass, dense, .. } = sizes;
        let (weights, squares) = (sizes.sum(|[i, o]| i * o), sizes.sum(|[i, o]| i * i + o * o));
        let rotations = if dense { squares } else { c * sizes.sum(|[i, o]| i * o * (i + o)) };
        let factors = 10.0 * sizes.sum(|[i, o]| i.powi(3) + o.powi(3));
        Ok(Work {
            bytes: 8.0 * (3.0 * squares + weights) + sizes.batch()?,
            fit: n * (sizes.backward() + pass * c * squares / weights.max(1.0)) + factors,
            predict: sizes.backward() + rotations + c * p,
        })
    }

    fn fit(&self, rows: &Rows, context: &FitContext) -> Result<Fit> {
        fit(rows.passes, rows.x, context).map(Fit::of)
    }

    fn unpack(&self, bundle: &Bundle, _: &Classifier) -> Result<Option<Arc<dyn Structure>>> {
        Ok(Some(Arc::new(Blocks::unpack(bundle, false)?)))
    }
}

impl Recipe for LastLayerKfac {
    fn name(&self) -> &'static str {
        "last-layer-kfac"
    }

    fn about(&self) -> &'static str {
        "a Kronecker product, over the last layer"
    }

    fn instead(&self) -> &'static str {
        "use fewer rows"
    }

    fn work(&self, &Sizes { n, c, pass, hidden, .. }: &Sizes) -> Result<Work> {
        let factors = hidden * hidden + c * c;
        let fit = n * (pass + factors) + 10.0 * (hidden.powi(3) + c.powi(3));
        Ok(Work { bytes: 32.0 * factors, fit, predict: pass + factors + hidden * c })
    }

    fn fit(&self, rows: &Rows, context: &FitContext) -> Result<Fit> {
        last_layer(rows.passes, rows.x, context).map(Fit::of)
    }

    fn unpack(&self, bundle: &Bundle, _: &Classifier) -> Result<Option<Arc<dyn Structure>>> {
        Ok(Some(Arc::new(Blocks::unpack(bundle, true)?)))
    }
}

/// The two factors of a layer, as sums over rows, positions and cotangents.
struct Factors {
    /// `Σ a aᵀ` `[in, in]`
    inputs: Array2<f64>,
    /// `Σ δ δᵀ` `[out, out]`
    outputs: Array2<f64>,
    /// Positions of a filter; 1 for a dense layer.
    positions: usize,
    bias: bool,
}

impl Factors {
    fn new(inputs: usize, outputs: usize, positions: usize, bias: bool) -> Factors {
        let zeros = |n: usize| Array2::zeros((n, n));
        Factors { inputs: zeros(inputs), outputs: zeros(outputs), positions, bias }
    }

    /// The block whose weights have `A ⊗ B`, `A` the mean of `a aᵀ` over n rows and the positions, `B = Σ δδᵀ`, and whose biases have B.
    fn block(self, start: usize, n: usize) -> Result<Block> {
        let (λa, qa) = eigh(Device::Cpu, (self.inputs / (n * self.positions) as f64).view())?;
        let (λb, qb) = eigh(Device::Cpu, self.outputs.view())?;
        let weights = Array2::from_shape_fn((λa.len(), λb.len()), |(i, j)| λa[i].max(0.0) * λb[j].max(0.0));
        let biases = if self.bias { λb.iter().map(|λ| λ.max(0.0)).collect() } else { Array1::zeros(0) };
        Ok(Block { start, weights, biases, rotation: Some([qa, qb]) })
    }
}

/// KFAC of all dense and convolutional layers at rows `x` `[n, d]`, and the outputs there `[n, C]`.
fn fit(passes: &Passes, x: ArrayView2<f64>, context: &FitContext) -> Result<(Blocks, Array2<f64>)> {
    context.budget.require("the Kronecker factors of all layers", bytes(passes), "use last-layer-kfac or diagonal")?;
    let mut all: BTreeMap<usize, Factors> = BTreeMap::new();
    let n = x.nrows();
    let z = passes.derivatives(x, Cotangents::CurvatureRoots, |rows, start, jacobian| {
        context.progress.step("KFAC", rows.start, n, "rows");
        match jacobian {
            Jacobian::Outer { a, delta, bias, .. } => {
                let (inputs, outputs) = (a.stack(), delta.shape()[2]);
                let count = delta.shape()[0] * delta.shape()[1];
                let new = || Factors::new(inputs.cols(), outputs, 1, *bias > 0.0);
                let factors = all.entry(start).or_insert_with(new);
                add_gram(&mut factors.inputs, a, [1, inputs.rows(), inputs.cols()], true)?;
                add_gram(&mut factors.outputs, delta, [1, count, outputs], true)
            }
            Jacobian::Convolved(convolved) => {
                let patches = convolved.patches()?;
                let &[b, patch, positions] = patches.shape() else { unreachable!("[b, patch, positions]") };
                let (channels, count) = (convolved.shape.channels, convolved.delta.shape()[0] * b);
                let new = || Factors::new(patch, channels, positions, convolved.bias);
                let factors = all.entry(start).or_insert_with(new);
                add_gram(&mut factors.inputs, &patches, [b, patch, positions], false)?;
                add_gram(&mut factors.outputs, &convolved.delta, [count, channels, positions], false)
            }
            // Norms have no Kronecker form and stay at their values.
            _ => Ok(()),
        }
    })?;
    let blocks = all.into_iter().map(|(start, factors)| factors.block(start, n)).collect::<Result<Vec<_>>>()?;
    Ok((Blocks::new(blocks, false, &passes.trained()?), z))
}

/// Bytes of the factors, their eigenvectors and eigenvalues, over all layers.
fn bytes(passes: &Passes) -> u64 {
    let layer = |[inputs, outputs]: [usize; 2]| (3 * (inputs * inputs + outputs * outputs) + inputs * outputs) as u64;
    8 * passes.classifier.network.affine_layers().into_iter().map(layer).sum::<u64>()
}

/// Adds `Σ_j M_j M_jᵀ` to `sum`, or `Σ_j M_jᵀ M_j`, for the matrices `[count, rows, cols]` in a tensor.
fn add_gram(sum: &mut Array2<f64>, tensor: &Tensor, [count, rows, cols]: [usize; 3], transposed: bool) -> Result<()> {
    let order = sum.nrows();
    let mut gram = Tensor::zeros(tensor.device(), &[order, order])?;
    let matrices = tensor.matrices(0, rows * cols, rows, cols);
    let (left, right) = if transposed { (matrices.t(), matrices) } else { (matrices, matrices.t()) };
    gemm(1.0, left, right, Store::Replace, gram.matrices_mut(0, 0, 1, order, order).sum_of(count));
    sum.iter_mut().zip(gram.to_host()?).for_each(|(sum, v)| *sum += f64::from(v));
    Ok(())
}

/// KFAC of the last layer at rows `x` `[n, d]`, and the outputs there `[n, C]`: `A = (1/n) Σ φφᵀ`, `B = Σ_i Λ_i`.
fn last_layer(passes: &Passes, x: ArrayView2<f64>, context: &FitContext) -> Result<(Blocks, Array2<f64>)> {
    let (z, f) = passes.forward(x, Hidden::Last)?;
    let (inputs, c) = (f.ncols() - 1, z.ncols());
    let needed = 32 * (inputs * inputs + c * c) as u64;
    context.budget.require("the Kronecker factors of the last layer", needed, "use diagonal")?;
    let features = f.slice(s![.., ..inputs]);
    let outputs = Curvature::at(z.view(), passes.classes()).sum(z.nrows());
    let factors = Factors { inputs: matmul(features.t(), features), outputs, positions: 1, bias: true };
    let block = factors.block(passes.last_layer_start()?, x.nrows())?;
    Ok((Blocks::new(vec![block], true, &passes.trained()?), z))
}
