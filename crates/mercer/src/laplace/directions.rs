//! Directions V `[k, P]` in the space of parameters: combinations of derivatives, and derivatives along them.
//!
//! Both come from the derivatives of the network layer by layer, for all directions at once: products of a few large matrices, where a pass
//! for each direction has many small ones.

use super::passes::{Cotangents, FORWARD, Passes, batches, points_at_a_time};
use crate::compute::{self, Device, Store, Tensor, gemm};
use crate::net::Mode;
use crate::net::ntk::{Convolved, Jacobian};
use crate::{Result, fail_if};
use ndarray::{Array2, ArrayView2, Axis, s};
use std::collections::BTreeMap;

/// The part of directions that belongs to one layer, on the device.
struct Part {
    /// Of an affine map its weights `[in, out·k]`, else all numbers `[p, k]`.
    weights: Tensor,
    /// Of an affine map its biases `[out, k]`, where it has some.
    biases: Option<Tensor>,
}

impl Part {
    /// From directions `v` `[k, P]`; the layer's first parameter is `start`.
    fn new(v: ArrayView2<f32>, start: usize, jacobian: &Jacobian, device: Device) -> Result<Part> {
        let k = v.nrows();
        let numbers = |from: usize, count: usize| {
            fail_if!(from + count > v.ncols(), "its parts do not fit together: the directions are of another network");
            let numbers: Vec<f32> = v.slice(s![.., from..from + count]).t().iter().copied().collect();
            Ok(numbers)
        };
        let tensor = |shape: [usize; 2], values: Vec<f32>| Tensor::from_host(device, &shape, &values);
        if let Jacobian::Outer { a, delta, bias, .. } = jacobian {
            let (inputs, outputs) = (a.stack().cols(), delta.shape()[2]);
            let weights = tensor([inputs, outputs * k], numbers(start, inputs * outputs)?)?;
            let after = start + inputs * outputs;
            let biases = (*bias != 0.0).then(|| tensor([outputs, k], numbers(after, outputs)?)).transpose()?;
            return Ok(Part { weights, biases });
        }
        let p = match jacobian {
            Jacobian::Convolved(Convolved { shape, bias, .. }) => shape.channels * (shape.patch() + usize::from(*bias)),
            Jacobian::Rows(rows) => rows.shape()[2],
            _ => unreachable!("layers of weights only"),
        };
        Ok(Part { weights: tensor([p, k], numbers(start, p)?)?, biases: None })
    }

    /// `psi += J v_j` `[b, C, k]` for the layer's derivatives J of C cotangents at b rows.
    fn add_along(&self, jacobian: &Jacobian, psi: &mut Tensor) -> Result<()> {
        let &[b, c, k] = psi.shape() else { unreachable!("[b, C, k]") };
        let mut by_row = Tensor::zeros(psi.device(), &[0])?;
        if let Jacobian::Outer { a, delta, .. } = jacobian {
            // J^c v_j = δ^c · (a v_j): with u = a V `[b, out, k]`, `δ u` for every row.
            let outputs = delta.shape()[2];
            compute::gather_rows(delta, &rows_first(b, c), &mut by_row)?;
            by_row.reshape(&[b, c, outputs])?;
            let mut u = Tensor::zeros(psi.device(), &[1, b, outputs * k])?;
            gemm(1.0, a.matrices(0, 0, b, a.stack().cols()), self.weights.stack(), Store::Replace, u.stack_mut());
            u.reshape(&[b, outputs, k])?;
            gemm(1.0, by_row.stack(), u.stack(), Store::Add, psi.stack_mut());
            if let Some(biases) = &self.biases {
                let signals = by_row.matrices(0, 0, b * c, outputs);
                gemm(1.0, signals, biases.stack(), Store::Add, psi.matrices_mut(0, 0, 1, b * c, k));
            }
            return Ok(());
        }
        let written;
        let rows = match jacobian {
            Jacobian::Rows(rows) => rows,
            Jacobian::Convolved(convolved) => {
                written = convolved.rows()?;
                &written
            }
            _ => unreachable!("layers of weights only"),
        };
        let mut products = Tensor::zeros(psi.device(), &[1, c * b, k])?;
        let derivatives = rows.matrices(0, 0, c * b, rows.shape()[2]);
        gemm(1.0, derivatives, self.weights.stack(), Store::Replace, products.stack_mut());
        compute::gather_rows(&products, &rows_first(b, c), &mut by_row)?;
        by_row.reshape(&[b, c, k])?;
        compute::axpy(1.0, &by_row, psi);
        Ok(())
    }
}

/// The places in `[C, b]` of the entries of `[b, C]`.
fn rows_first(b: usize, c: usize) -> Vec<usize> {
    (0..b).flat_map(|row| (0..c).map(move |output| output * b + row)).collect()
}

impl Passes<'_> {
    /// `J(x) v_j` `[n·C, k]` for directions `v` `[k, P]` at rows `x` `[n, d]`, and the outputs `[n, C]`: back from every output, or, where
    /// these are more than the directions, forward along each of them.
    pub fn along(&self, x: ArrayView2<f64>, v: ArrayView2<f32>) -> Result<(Array2<f64>, Array2<f64>)> {
        let ((n, c), k) = ((x.nrows(), self.outputs()), v.nrows());
        fail_if!(
            v.ncols() != self.classifier.network.parameters(),
            "its parts do not fit together: the directions are of another network"
        );
        if c > k {
            return self.forward_along(x, v);
        }
        let mut parts: BTreeMap<usize, Part> = BTreeMap::new();
        let mut all = Array2::zeros((n * c, k));
        let mut psi: Option<(std::ops::Range<usize>, Tensor)> = None;
        let mut store = |(rows, psi): (std::ops::Range<usize>, Tensor)| -> Result<()> {
            let to = all.slice_mut(s![rows.start * c..rows.end * c, ..]);
            to.into_iter().zip(psi.to_host()?).for_each(|(to, v)| *to = f64::from(v));
            Ok(())
        };
        let z = self.derivatives(x, Cotangents::Units, |rows, start, jacobian| {
            if matches!(jacobian, Jacobian::None) {
                return Ok(());
            }
            if psi.as_ref().is_none_or(|(of, _)| *of != rows) {
                psi.take().map(&mut store).transpose()?;
                psi = Some((rows.clone(), Tensor::zeros(self.device(), &[rows.len(), c, k])?));
            }
            let (_, psi) = psi.as_mut().expect("it was made");
            let part = match parts.remove(&start) {
                Some(part) => part,
                None => Part::new(v, start, jacobian, self.device())?,
            };
            part.add_along(jacobian, psi)?;
            parts.insert(start, part);
            Ok(())
        })?;
        psi.map(store).transpose()?;
        Ok((all, z))
    }

    /// The same by a forward pass along each direction.
    fn forward_along(&self, x: ArrayView2<f64>, v: ArrayView2<f32>) -> Result<(Array2<f64>, Array2<f64>)> {
        self.classifier.check_columns(x.ncols())?;
        let (network, theta, c) = (&self.classifier.network, &self.classifier.parameters, self.outputs());
        let tensor = |v: ndarray::ArrayView1<f32>| Tensor::from_host(self.device(), &[v.len()], &v.to_vec());
        let directions = v.rows().into_iter().map(tensor).collect::<Result<Vec<_>>>()?;
        let (mut psi, mut z) = (Array2::zeros((x.nrows() * c, directions.len())), Array2::zeros((x.nrows(), c)));
        let mut workspace = network.workspace(self.device())?;
        for rows in batches(x.nrows(), FORWARD) {
            let points = self.points(x.slice(s![rows.clone(), ..]))?;
            let outputs = network.forward(theta, &points, Mode::Eval, &mut workspace)?.to_host()?;
            let to = z.slice_mut(s![rows.clone(), ..]);
            to.into_iter().zip(outputs).for_each(|(to, v)| *to = f64::from(v));
            for (j, v) in directions.iter().enumerate() {
                let image = network.jvp(theta, &points, &mut workspace, Some(v), None)?.to_host()?;
                let to = psi.slice_mut(s![rows.start * c..rows.end * c, j]);
                to.into_iter().zip(image).for_each(|(to, v)| *to = f64::from(v));
            }
        }
        super::passes::check_finite(&z)?;
        Ok((psi, z))
    }

    /// `Σ_n w_nj J_{o(n)}(x_n)` `[k, P]`: combinations, with the weights `w` `[n, k]`, of the derivatives of one output o of each row of `x`
    /// `[n, d]`.
    pub fn combined(&self, x: ArrayView2<f64>, outputs: &[usize], w: ArrayView2<f64>) -> Result<Array2<f32>> {
        let (ntk, c, k) = (self.ntk()?, self.outputs(), w.ncols());
        let mut sum = Array2::<f64>::zeros((k, self.classifier.network.parameters()));
        for rows in batches(x.nrows(), points_at_a_time(&ntk, 1)) {
            let points = self.points(x.slice(s![rows.clone(), ..]))?;
            let mut units = vec![0.0; rows.len() * c];
            outputs[rows.clone()].iter().enumerate().for_each(|(n, output)| units[n * c + output] = 1.0);
            let units = Tensor::from_host(self.device(), &[1, rows.len(), c], &units)?;
            let w = w.slice(s![rows, ..]);
            ntk.derivatives(
                &points,
                |_| Ok(units),
                |start, jacobian| {
                    for (from, values) in weighted(jacobian, w)? {
                        let count = values.len() / k;
                        let mut to = sum.slice_mut(s![.., start + from..start + from + count]);
                        to.iter_mut().zip(values).for_each(|(to, v)| *to += f64::from(v));
                    }
                    Ok(())
                },
            )?;
        }
        Ok(sum.mapv(|v| v as f32))
    }
}

/// `Σ_n w_nj J(n)` `[k, p]` of one layer's derivatives J of one cotangent at b rows, with the weights `w` `[b, k]`: parts of consecutive numbers,
/// each with the place of its first.
fn weighted(jacobian: &Jacobian, w: ArrayView2<f64>) -> Result<Vec<(usize, Vec<f32>)>> {
    let (b, k) = w.dim();
    let single = |shape: &[usize], values: &mut dyn Iterator<Item = f64>, device: Device| {
        Tensor::from_host(device, shape, &values.map(|v| v as f32).collect::<Vec<_>>())
    };
    let times = |rows: &Tensor, p: usize| -> Result<Vec<f32>> {
        let weights = single(&[b, k], &mut w.iter().copied(), rows.device())?;
        let mut out = Tensor::zeros(rows.device(), &[1, k, p])?;
        gemm(1.0, weights.stack().t(), rows.matrices(0, 0, b, p), Store::Replace, out.stack_mut());
        out.to_host()
    };
    Ok(match jacobian {
        Jacobian::None | Jacobian::Several(_) => vec![],
        Jacobian::Outer { a, delta, bias, .. } => {
            let (inputs, outputs) = (a.stack().cols(), delta.shape()[2]);
            // Σ_n a_n ⊗ w_nj δ_n = aᵀ (w_j ∘ δ)
            let signals = ArrayView2::from_shape((b, outputs), &delta.to_host()?).expect("[1, b, out]").to_owned();
            let mut scaled = w.axis_iter(Axis(1)).flat_map(|w| {
                let scaled = signals.mapv(f64::from) * w.insert_axis(Axis(1));
                scaled.into_iter()
            });
            let scaled = single(&[k, b, outputs], &mut scaled, delta.device())?;
            let mut out = Tensor::zeros(delta.device(), &[k, inputs, outputs])?;
            gemm(1.0, a.matrices(0, 0, b, inputs).t(), scaled.stack(), Store::Replace, out.stack_mut());
            let mut parts = vec![(0, out.to_host()?)];
            if *bias != 0.0 {
                parts.push((inputs * outputs, times(delta, outputs)?));
            }
            parts
        }
        Jacobian::Convolved(convolved) => {
            let rows = convolved.rows()?;
            vec![(0, times(&rows, rows.shape()[2])?)]
        }
        Jacobian::Rows(rows) => vec![(0, times(rows, rows.shape()[2])?)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classifier::Classifier;
    use crate::data::{Dataset, Target};
    use crate::rng::Rng;

    fn network(net: &str) -> (Classifier, Array2<f64>) {
        let x = Rng::new(3).normals((30, 36));
        let labels = (0..30).map(|i| i % 3).collect();
        let classes = ["a", "b", "c"].map(String::from).to_vec();
        let y = Target::Classes { labels, names: classes };
        let data = Dataset { shape: Some([1, 6, 6]), ..Dataset::new("rows", x.clone(), Some(y)).unwrap() };
        (Classifier::new(net, &data, Device::Cpu, 1).unwrap(), x)
    }

    /// Derivatives along directions, back from every output, are those by forward passes; and combinations of derivatives are their transpose.
    #[test]
    fn both_ways_along_directions_agree_and_combinations_are_the_transpose() {
        for net in ["dense(8) tanh dense(3)", "conv(4, 3) relu maxpool(2) flatten dense(5) bn relu dense(3)"] {
            let (classifier, x) = network(net);
            let passes = Passes::new(&classifier).unwrap();
            let (p, k) = (classifier.network.parameters(), 4);
            let mut rng = Rng::new(5);
            let v = Array2::from_shape_simple_fn((k, p), || rng.normal() as f32);
            let (back, z) = passes.along(x.view(), v.view()).unwrap();
            let (forward, same) = passes.forward_along(x.view(), v.view()).unwrap();
            let close = |a: &Array2<f64>, b: &Array2<f64>| {
                let size = b.iter().fold(0.0f64, |m, v| m.max(v.abs()));
                a.iter().zip(b).all(|(a, b)| (a - b).abs() < 2e-5 * size)
            };
            assert!(back.dim() == (90, k) && close(&back, &forward) && close(&z, &same), "{net}");
            // ⟨w_j, J v_i⟩ over one output of each row is ⟨Jᵀ w_j, v_i⟩.
            let outputs: Vec<usize> = (0..30).map(|_| rng.below(3)).collect();
            let w = rng.normals((30, 2));
            let combined = passes.combined(x.view(), &outputs, w.view()).unwrap().mapv(f64::from);
            let picked = Array2::from_shape_fn((30, k), |(n, j)| forward[[3 * n + outputs[n], j]]);
            assert!(close(&combined.dot(&v.mapv(f64::from).t()), &w.t().dot(&picked)), "{net}");
        }
    }
}
