//! Gauss–Newton matrices that are diagonal in a basis of their own in every layer: KFAC and the diagonal.

use super::Structure;
use super::passes::{Cotangents, Hidden, Passes, host, matrix};
use crate::bundle::Bundle;
use crate::compute::{self, Device, Store, Tensor, gemm};
use crate::linalg::matmul;
use crate::net::ntk::{Convolved, Jacobian};
use crate::{Result, fail_if};
use ndarray::{Array1, Array2, Array3, ArrayView2, Axis, s};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One layer: `H = (Q_A ⊗ Q_B) diag(h) (Q_A ⊗ Q_B)ᵀ` over its weights `[in, out]`, `Q_B diag(h_b) Q_Bᵀ` over its biases.
pub(super) struct Block {
    /// Place of its first parameter.
    pub start: usize,
    /// h `[in, out]`
    pub weights: Array2<f64>,
    /// `h_b` `[out]`, or nothing.
    pub biases: Array1<f64>,
    /// `Q_A` `[in, in]` and `Q_B` `[out, out]`; without them, the identity.
    pub rotation: Option<[Array2<f64>; 2]>,
}

/// All layers.
pub(super) struct Blocks {
    pub blocks: Vec<Block>,
    /// Whether there is one block, of the last layer.
    pub last_layer: bool,
    /// `‖θ‖²` of the parameters in the blocks.
    pub square: f64,
}

/// What a file says of a block.
#[derive(Serialize, Deserialize)]
struct Shape {
    start: usize,
    rotated: bool,
}

/// Covariances `[n, C, C]`, or their diagonals `[n, C, 1]`, one for each shift.
pub(super) struct Sums<'a> {
    pub shifts: &'a [f64],
    pub full: bool,
    pub sums: Vec<Array3<f64>>,
    /// What blocks keep on the device for all rows, by their first parameter; no more than [`KEPT`] bytes.
    kept: BTreeMap<usize, Arc<Kept>>,
    bytes: usize,
}

/// What a block that is written out multiplies derivatives with, in single precision.
struct Kept {
    /// `Q_A` and `Q_B`.
    rotation: Option<[Tensor; 2]>,
    /// `1/(h_p + s)` `[shifts, p]`; nothing where covariances are wanted in full.
    inverse: Option<Tensor>,
}

/// Bytes of all that blocks keep on the device: 512 MiB.
const KEPT: usize = 1 << 29;

impl<'a> Sums<'a> {
    pub fn new(n: usize, c: usize, shifts: &'a [f64], full: bool) -> Sums<'a> {
        let sums = vec![Array3::zeros((n, c, if full { c } else { 1 })); shifts.len()];
        Sums { shifts, full, sums, kept: BTreeMap::new(), bytes: 0 }
    }

    /// What a block multiplies derivatives with on a device: made once, unless there is too much of it.
    fn kept(&mut self, block: &Block, device: Device) -> Result<Arc<Kept>> {
        if let Some(kept) = self.kept.get(&block.start) {
            return Ok(kept.clone());
        }
        let kept = Arc::new(block.on_device(device, if self.full { &[] } else { self.shifts })?);
        let tensors = kept.rotation.iter().flatten().chain(&kept.inverse);
        let bytes = 4 * tensors.map(|tensor| tensor.shape().iter().product::<usize>()).sum::<usize>();
        if self.bytes + bytes <= KEPT {
            self.bytes += bytes;
            self.kept.insert(block.start, kept.clone());
        }
        Ok(kept)
    }

    /// `Σ_cc'(n) += Σ_j δ_cnj δ_c'nj w_nj` for derivatives `δ` `[C, b, m]` at the rows from `first` on, with the weights `w(shift, n, j)`
    /// as a matrix `[b, m]`.
    fn add(&mut self, first: usize, delta: &Array3<f64>, weights: impl Fn(f64) -> Array2<f64>) {
        let (c, b, _) = delta.dim();
        for (sum, &shift) in self.sums.iter_mut().zip(self.shifts) {
            let w = weights(shift);
            for n in 0..b {
                for a in 0..c {
                    let weighted = &delta.slice(s![a, n, ..]) * &w.row(n);
                    let others = if self.full { 0..a + 1 } else { a..a + 1 };
                    for other in others {
                        let value = weighted.dot(&delta.slice(s![other, n, ..]));
                        let place = if self.full { other } else { 0 };
                        sum[[first + n, a, place]] += value;
                        if self.full && other != a {
                            sum[[first + n, other, a]] += value;
                        }
                    }
                }
            }
        }
    }
}

impl Block {
    /// Adds `J (H + s)⁻¹ Jᵀ` of an affine map with the inputs `a` `[b, in]` and the signals `δ` `[C, b, out]`: with `a' = Q_Aᵀ a` and
    /// `δ' = Q_Bᵀ δ`, `Σ_j δ'_cj δ'_c'j (Σ_i a'_i²/(h_ij + s) + 1/(h_bj + s))`.
    fn add_outer(&self, first: usize, mut a: Array2<f64>, mut delta: Array3<f64>, sums: &mut Sums) {
        if let Some([qa, qb]) = &self.rotation {
            a = matmul(a.view(), qa.view());
            for mut signals in delta.outer_iter_mut() {
                let rotated = matmul(signals.view(), qb.view());
                signals.assign(&rotated);
            }
        }
        let squares = a.mapv(|a| a * a);
        sums.add(first, &delta, |shift| self.of_inputs(&squares, shift));
    }

    /// `Σ_i a'_i²/(h_ij + s) + 1/(h_bj + s)` `[b, out]` for the squares of `a'` `[b, in]`.
    fn of_inputs(&self, squares: &Array2<f64>, shift: f64) -> Array2<f64> {
        let inverse = self.weights.mapv(|h| 1.0 / (h + shift));
        let mut w = matmul(squares.view(), inverse.view());
        if !self.biases.is_empty() {
            w += &self.biases.mapv(|h| 1.0 / (h + shift));
        }
        w
    }

    /// The same for the last layer, whose signals are the unit vectors at every row: the rows of `Q_B`.
    fn add_last_layer(&self, a: ArrayView2<f64>, sums: &mut Sums) {
        let Some([qa, qb]) = &self.rotation else { unreachable!("the last layer by itself has factors") };
        let (squares, signals) = (matmul(a, qa.view()).mapv(|a| a * a), qb.mapv(|q| q * q));
        for (sum, &shift) in sums.sums.iter_mut().zip(sums.shifts) {
            let w = self.of_inputs(&squares, shift);
            if sums.full {
                for (mut sum, w) in sum.outer_iter_mut().zip(w.rows()) {
                    sum += &matmul((qb * &w).view(), qb.t());
                }
            } else {
                sum.index_axis_mut(Axis(2), 0).scaled_add(1.0, &matmul(w.view(), signals.t()));
            }
        }
    }

    /// `1/(h_p + s)` `[p]`: of the weights `[out, in]`, then of the biases.
    fn inverse(&self, shift: f64) -> impl Iterator<Item = f64> {
        self.weights.t().into_iter().chain(&self.biases).map(move |h| 1.0 / (h + shift))
    }

    /// Its rotation, and `1/(h_p + s)` for some shifts, on a device.
    fn on_device(&self, device: Device, shifts: &[f64]) -> Result<Kept> {
        let single = |shape: &[usize], values: &mut dyn Iterator<Item = f64>| {
            Tensor::from_host(device, shape, &values.map(|v| v as f32).collect::<Vec<_>>())
        };
        let matrix = |q: &Array2<f64>| single(&[q.nrows(), q.ncols()], &mut q.iter().copied());
        let rotation = match &self.rotation {
            Some([qa, qb]) => Some([matrix(qa)?, matrix(qb)?]),
            None => None,
        };
        let shape = [shifts.len(), self.parameters()];
        let inverse = match shifts {
            [] => None,
            shifts => Some(single(&shape, &mut shifts.iter().flat_map(|shift| self.inverse(*shift)))?),
        };
        Ok(Kept { rotation, inverse })
    }

    /// The same for derivatives written out, `rows` `[C, b, p]`: by the weights `[out, in]`, then by the biases.
    fn add_rows(&self, first: usize, mut rows: Tensor, sums: &mut Sums) -> Result<()> {
        let kept = sums.kept(self, rows.device())?;
        if let Some(rotation) = &kept.rotation {
            self.rotate(&mut rows, rotation)?;
        }
        let &[c, b, p] = rows.shape() else { unreachable!("[C, b, p]") };
        let Some(inverse) = &kept.inverse else {
            let weights = |shift: f64| {
                let inverse: Array1<f64> = self.inverse(shift).collect();
                inverse.broadcast((b, p)).expect("alike at all points").to_owned()
            };
            sums.add(first, &host(&rows)?, weights);
            return Ok(());
        };
        // Variances alone: Σ_p r_p²/(h_p + s) for all shifts by one product.
        let copy = rows.clone();
        compute::multiply(&mut rows, &copy);
        let count = sums.shifts.len();
        let mut products = Tensor::zeros(rows.device(), &[c * b, count])?;
        gemm(1.0, rows.matrices(0, 0, c * b, p), inverse.stack().t(), Store::Replace, products.stack_mut());
        for (i, value) in products.to_host()?.into_iter().enumerate() {
            let (row, shift) = (i / count, i % count);
            sums.sums[shift][[first + row % b, row / b, 0]] += f64::from(value);
        }
        Ok(())
    }

    /// Derivatives `[C, b, p]` in the basis where H is diagonal: `Q_Bᵀ G Q_A` for those by the weights, G `[out, in]`.
    fn rotate(&self, rows: &mut Tensor, [qa, qb]: &[Tensor; 2]) -> Result<()> {
        let (device, &[c, b, p]) = (rows.device(), rows.shape()) else { unreachable!("[C, b, p]") };
        let (inputs, outputs) = self.weights.dim();
        let mut half = Tensor::zeros(device, &[c * b, outputs, inputs])?;
        gemm(1.0, rows.matrices(0, p, outputs, inputs), qa.stack(), Store::Replace, half.stack_mut());
        let turned = rows.matrices_mut(0, p, c * b, outputs, inputs);
        gemm(1.0, qb.stack().t(), half.stack(), Store::Replace, turned);
        if !self.biases.is_empty() {
            let (before, start) = (rows.clone(), inputs * outputs);
            let turned = rows.matrices_mut(start, p, c * b, 1, outputs);
            gemm(1.0, before.matrices(start, p, 1, outputs), qb.stack(), Store::Replace, turned);
        }
        Ok(())
    }

    /// Adds the part of a layer with these derivatives, by each output.
    fn add(&self, first: usize, jacobian: &Jacobian, sums: &mut Sums) -> Result<()> {
        let (inputs, outputs) = self.weights.dim();
        let fits = match jacobian {
            Jacobian::Outer { a, delta, .. } => a.stack().cols() == inputs && delta.shape()[2] == outputs,
            Jacobian::Convolved(Convolved { shape, bias, .. }) => {
                let biases = if *bias { outputs } else { 0 };
                [shape.patch(), shape.channels, biases] == [inputs, outputs, self.biases.len()]
            }
            Jacobian::Rows(rows) => rows.shape()[2] == self.parameters() && self.rotation.is_none(),
            Jacobian::None | Jacobian::Several(_) => false,
        };
        fail_if!(!fits, "its parts do not fit together: the block at parameter {} is of another network", self.start);
        match jacobian {
            Jacobian::Outer { a, delta, .. } => self.add_outer(first, matrix(a)?, host(delta)?, sums),
            Jacobian::Convolved(convolved) => self.add_rows(first, convolved.rows()?, sums)?,
            Jacobian::Rows(rows) => self.add_rows(first, rows.clone(), sums)?,
            Jacobian::None | Jacobian::Several(_) => unreachable!("layers of weights only"),
        }
        Ok(())
    }

    fn parameters(&self) -> usize {
        self.weights.len() + self.biases.len()
    }
}

impl Blocks {
    /// The blocks, with the square of their parameters among `theta`.
    pub fn new(mut blocks: Vec<Block>, last_layer: bool, theta: &[f32]) -> Blocks {
        blocks.sort_by_key(|block| block.start);
        let square = blocks.iter().map(|b| super::passes::square(&theta[b.start..b.start + b.parameters()])).sum();
        Blocks { blocks, last_layer, square }
    }

    pub fn unpack(bundle: &Bundle, last_layer: bool) -> Result<Blocks> {
        let shapes: Vec<Shape> = bundle.value("blocks")?;
        let block = |(i, shape): (usize, Shape)| {
            let weights = bundle.matrix(&format!("block{i}.weights"))?;
            let biases = bundle.matrix(&format!("block{i}.biases"))?;
            let rotation = match shape.rotated {
                true => {
                    Some([bundle.matrix(&format!("block{i}.inputs"))?, bundle.matrix(&format!("block{i}.outputs"))?])
                }
                false => None,
            };
            let (inputs, outputs) = weights.dim();
            let fits = |[a, b]: &[Array2<f64>; 2]| a.dim() == (inputs, inputs) && b.dim() == (outputs, outputs);
            fail_if!(
                biases.nrows() != 1
                    || ![0, outputs].contains(&biases.ncols())
                    || !rotation.as_ref().is_none_or(fits)
                    || weights.iter().chain(&biases).any(|h| *h < 0.0),
                "its parts do not fit together: block {i} of the parameters"
            );
            Ok(Block { start: shape.start, weights, biases: biases.remove_axis(Axis(0)), rotation })
        };
        let mut blocks = shapes.into_iter().enumerate().map(block).collect::<Result<Vec<_>>>()?;
        blocks.sort_by_key(|block| block.start);
        fail_if!(last_layer && blocks.len() != 1, "its parts do not fit together: {} last layers", blocks.len());
        Ok(Blocks { blocks, last_layer, square: bundle.value("square")? })
    }

    /// The block whose parameters start there.
    fn at(&self, start: usize) -> Option<&Block> {
        self.blocks.binary_search_by_key(&start, |block| block.start).ok().map(|i| &self.blocks[i])
    }
}

impl Structure for Blocks {
    fn eigenvalues(&self) -> Vec<f64> {
        self.blocks.iter().flat_map(|block| block.weights.iter().chain(&block.biases).copied()).collect()
    }

    fn square(&self) -> f64 {
        self.square
    }

    fn covariance(
        &self,
        passes: &Passes,
        x: ArrayView2<f64>,
        shifts: &[f64],
        full: bool,
    ) -> Result<(Array2<f64>, Vec<Array3<f64>>)> {
        let c = passes.outputs();
        let mut sums = Sums::new(x.nrows(), c, shifts, full);
        if self.last_layer {
            let (z, f) = passes.forward(x, Hidden::Last)?;
            let inputs = f.ncols() - 1;
            let block = &self.blocks[0];
            fail_if!(block.weights.dim() != (inputs, c), "its parts do not fit together: the last layer is another");
            block.add_last_layer(f.slice(s![.., ..inputs]), &mut sums);
            return Ok((z, sums.sums));
        }
        let mut seen = BTreeSet::new();
        let z = passes.derivatives(x, Cotangents::Units, |rows, start, jacobian| {
            let Some(block) = self.at(start) else { return Ok(()) };
            seen.insert(start);
            block.add(rows.start, jacobian, &mut sums)
        })?;
        fail_if!(
            seen.len() != self.blocks.len() && x.nrows() > 0,
            "its parts do not fit together: {} of {} blocks are of the network",
            seen.len(),
            self.blocks.len()
        );
        Ok((z, sums.sums))
    }

    fn pack<'a>(&'a self, bundle: &mut Bundle<'a>) -> Result<()> {
        let shape = |block: &Block| Shape { start: block.start, rotated: block.rotation.is_some() };
        bundle.set("blocks", self.blocks.iter().map(shape).collect::<Vec<_>>());
        bundle.set("square", self.square);
        for (i, block) in self.blocks.iter().enumerate() {
            bundle.put(&format!("block{i}.weights"), block.weights.view());
            bundle.put(&format!("block{i}.biases"), block.biases.view().insert_axis(Axis(0)));
            if let Some([inputs, outputs]) = &block.rotation {
                bundle.put(&format!("block{i}.inputs"), inputs.view());
                bundle.put(&format!("block{i}.outputs"), outputs.view());
            }
        }
        Ok(())
    }
}
