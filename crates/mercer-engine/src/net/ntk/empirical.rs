//! The empirical NTK, exactly and as a product with vectors.

use super::jacobian::{Evaluated, Jacobian, Parameterisation, Scratch};
use crate::compute::{self, Device, Tensor};
use crate::net::{Mode, Network, Parameters, Workspace};
use crate::{Error, Result, fail_if};
use ndarray::{Array2, Array4, ArrayView2, s};
use std::ops::Range;

/// The empirical NTK of one network at its present parameters, with the statistics that [`Network::calibrate`] fixed.
///
/// ```
/// use mercer_engine::compute::{Device, Tensor};
/// use mercer_engine::net::{Network, ntk::{Derivative, Directions, EmpiricalNtk, Law, Parameterisation}};
/// use mercer_engine::rng::Rng;
///
/// // g(x) = w·x + b has Θ(x,x') = x·x' + 1.
/// let net = Network::parse("dense(1)", 2, 1)?;
/// let theta = net.init(Device::Cpu, &Rng::new(0))?;
/// let x = Tensor::from_host(Device::Cpu, &[2, 2], &[1.0, 2.0, 3.0, 4.0])?;
/// let ntk = EmpiricalNtk::new(&net, &theta)?.parameterised(Parameterisation::Standard);
/// let exact = ntk.exact(&x, None, &[0])?;
/// assert_eq!((exact.shape(), exact[[0, 1, 0, 0]]), (&[2, 2, 1, 1][..], 12.0));
/// let directions = Directions { count: 5000, law: Law::Rademacher, derivative: Derivative::Exact, seed: 0 };
/// let mut mean = 0.0;
/// ntk.directions(&x, &directions, |_, f| { mean += f64::from(f[0] * f[1]) / 5000.0; Ok(()) })?;
/// assert!((mean - 12.0).abs() < 1.0);
/// # Ok::<(), mercer_engine::Error>(())
/// ```
pub struct EmpiricalNtk<'a> {
    pub(super) net: &'a Network,
    pub(super) theta: &'a Parameters,
    pub(super) parameterisation: Parameterisation,
    pub(super) device: Device,
}

/// Numbers of one layer's cotangents and written-out derivatives that a block of points may take: half a gigabyte.
const BLOCK_NUMBERS: usize = 1 << 27;
/// Most points of a block: enough for fast products.
const BLOCK_POINTS: usize = 512;

impl<'a> EmpiricalNtk<'a> {
    /// Of `net`, which is one network, at `theta`.
    pub fn new(net: &'a Network, theta: &'a Parameters) -> Result<Self> {
        let count = net.networks();
        fail_if!(count != 1, "the empirical NTK is that of one network; {count} were given");
        let device = theta.trained.device();
        Ok(EmpiricalNtk { net, theta, parameterisation: Parameterisation::Standard, device })
    }

    /// With derivatives by other numbers than the weights themselves.
    pub fn parameterised(self, parameterisation: Parameterisation) -> Self {
        EmpiricalNtk { parameterisation, ..self }
    }

    /// Outputs of the network.
    pub fn outputs(&self) -> usize {
        self.net.outputs()
    }

    /// `Θ(x_n, x'_m)_{cc'}` `[n, m, c, c]` for the chosen outputs, between `x` `[n, d]` and `other` `[m, d]`, or x itself.
    pub fn exact(&self, x: &Tensor, other: Option<&Tensor>, outputs: &[usize]) -> Result<Array4<f32>> {
        let (n, m) = (self.points(x)?, self.points(other.unwrap_or(x))?);
        let c = self.check(outputs)?;
        let mut out = Array4::zeros((n, m, c, c));
        self.pairs(x, other, c, |rows, columns, left, right, own| {
            // Θ_{c'c}(x',x) = Θ_{cc'}(x,x'): of a block with itself, half of the pairs of outputs will do.
            let first = |output: usize| if own { output } else { 0 };
            let mut tiles = (0..c)
                .map(|output| Tensor::zeros(self.device, &[c - first(output), rows.len(), columns.len()]))
                .collect::<Result<Vec<_>>>()?;
            let mut scratch = Scratch::new(self.device)?;
            self.layers(
                left,
                right,
                |pass| self.units(pass, outputs),
                |j, k| j.add_products(k, &mut tiles, &mut scratch),
            )?;
            for (output, tile) in tiles.iter().enumerate() {
                let tile = tile.to_host()?;
                let mut values = tile.chunks_exact(rows.len() * columns.len());
                for other_output in first(output)..c {
                    let value = values.next().expect("a matrix for each output");
                    let value = ndarray::ArrayView2::from_shape((rows.len(), columns.len()), value).expect("a tile");
                    out.slice_mut(s![rows.clone(), columns.clone(), output, other_output]).assign(&value);
                    if other.is_none() {
                        out.slice_mut(s![columns.clone(), rows.clone(), other_output, output]).assign(&value.t());
                    }
                }
            }
            Ok(())
        })?;
        Ok(out)
    }

    /// `(1/c) Σ_c Θ(x_n, x'_m)_{cc}` `[n, m]` over the chosen outputs, for the price of one output where the layers allow.
    pub fn mean(&self, x: &Tensor, other: Option<&Tensor>, outputs: &[usize]) -> Result<Array2<f32>> {
        let (n, m) = (self.points(x)?, self.points(other.unwrap_or(x))?);
        let c = self.check(outputs)?;
        let mut out = Array2::zeros((n, m));
        self.pairs(x, other, c, |rows, columns, left, right, _| {
            let mut sum = Tensor::zeros(self.device, &[rows.len(), columns.len()])?;
            let mut scratch = Scratch::new(self.device)?;
            self.layers(left, right, |pass| self.units(pass, outputs), |j, k| j.add_trace(k, &mut sum, &mut scratch))?;
            compute::scale(1.0 / c as f32, &mut sum);
            let sum = Array2::from_shape_vec((rows.len(), columns.len()), sum.to_host()?).expect("a tile");
            out.slice_mut(s![rows.clone(), columns.clone()]).assign(&sum);
            if other.is_none() {
                out.slice_mut(s![columns.clone(), rows.clone()]).assign(&sum.t());
            }
            Ok(())
        })?;
        Ok(out)
    }

    /// `g_nᵀ Θ(x_n, x_m) g_m` `[n, n]` for one cotangent `g_n` of the outputs of each point of `x` `[n, d]`, in the rows of `g` `[n, c]`.
    #[doc(hidden)]
    pub fn contracted(&self, x: &Tensor, g: ArrayView2<f32>) -> Result<Array2<f32>> {
        let (n, shape) = (self.points(x)?, g.dim());
        fail_if!(
            shape != (n, self.net.outputs()),
            "cotangents of shape {shape:?} do not fit {n} points of {} outputs",
            self.net.outputs()
        );
        let mut out = Array2::zeros((n, n));
        self.pairs(x, None, 1, |rows, columns, left, right, _| {
            let mut sum = Tensor::zeros(self.device, &[rows.len(), columns.len()])?;
            let mut scratch = Scratch::new(self.device)?;
            let cotangents = |pass: &Pass| {
                let g: Vec<f32> = g.slice(s![pass.rows.clone(), ..]).iter().copied().collect();
                Tensor::from_host(self.device, &[1, pass.rows.len(), shape.1], &g)
            };
            self.layers(left, right, cotangents, |j, k| j.add_trace(k, &mut sum, &mut scratch))?;
            let sum = Array2::from_shape_vec((rows.len(), columns.len()), sum.to_host()?).expect("a tile");
            out.slice_mut(s![rows.clone(), columns.clone()]).assign(&sum);
            out.slice_mut(s![columns.clone(), rows.clone()]).assign(&sum.t());
            Ok(())
        })?;
        Ok(out)
    }

    /// Back from the outputs at the points `x` `[n, d]` with the cotangents `g` `[c, n, outputs]` that `cotangents` makes of the
    /// outputs `[1, n, outputs]`: calls `each` with the place of the first parameter of every layer of weights and its
    /// derivatives, last layer first. Returns the outputs.
    #[doc(hidden)]
    pub fn derivatives(
        &self,
        x: &Tensor,
        cotangents: impl FnOnce(&Tensor) -> Result<Tensor>,
        mut each: impl FnMut(usize, &Jacobian<'_>) -> Result<()>,
    ) -> Result<Tensor> {
        let pass = self.forward(x, 0..self.points(x)?)?;
        let mut g = cotangents(pass.workspace.output())?;
        for (i, start) in self.net.starts().iter().enumerate().rev() {
            let (jacobian, next) = self.jacobian(i, &pass, g)?;
            jacobian.each(start[0], &mut each)?;
            g = next;
        }
        Ok(pass.workspace.output().clone())
    }

    /// Points that [`Self::derivatives`] should get at a time, for c cotangents.
    #[doc(hidden)]
    pub fn points_at_a_time(&self, c: usize) -> usize {
        self.block(c)
    }

    /// `Θv = J(Jᵀv)` `[n, c]` over all c outputs at the points `x` `[n, d]`, for `v` `[n, c]`: no kernel and no Jacobian.
    pub fn apply(&self, x: &Tensor, v: &Tensor) -> Result<Tensor> {
        let (n, c, len) = (self.points(x)?, self.net.outputs(), v.len());
        fail_if!(len != n * c, "a vector of {len} numbers does not fit {n} points of {c} outputs");
        let mut workspace = self.net.workspace(self.device)?;
        self.net.forward(self.theta, x, Mode::Eval, &mut workspace)?;
        let mut g = v.clone();
        g.reshape(&[1, n, c])?;
        let mut pulled = Tensor::zeros(self.device, &[0])?;
        self.net.vjp(self.theta, x, &mut workspace, &mut g, &mut pulled, None)?;
        if let Some(spread) = self.spread()? {
            compute::multiply(&mut pulled, &spread);
            compute::multiply(&mut pulled, &spread);
        }
        let mut image = self.net.jvp(self.theta, x, &mut workspace, Some(&pulled), None)?.clone();
        image.reshape(&[n, c])?;
        Ok(image)
    }

    /// The standard deviation of each parameter, in the NTK parameterisation; `None` in the standard one.
    pub(super) fn spread(&self) -> Result<Option<Tensor>> {
        match self.parameterisation {
            Parameterisation::Standard => Ok(None),
            Parameterisation::Ntk => {
                Tensor::from_host(self.device, &[self.net.parameters()], &self.net.spread()).map(Some)
            }
        }
    }

    /// Points of an input `[n, d]`.
    pub fn points(&self, x: &Tensor) -> Result<usize> {
        match *x.shape() {
            [n, d] if n > 0 && d == self.net.inputs() => Ok(n),
            _ => Err(Error::input(format!(
                "points of shape {:?} do not fit a network on {} inputs",
                x.shape(),
                self.net.inputs()
            ))),
        }
    }

    fn check(&self, outputs: &[usize]) -> Result<usize> {
        let all = self.net.outputs();
        match outputs.iter().find(|o| **o >= all) {
            Some(o) => Err(Error::input(format!("there is no output {o}: the network has {all}, counted from 0"))),
            None if outputs.is_empty() => Err(Error::input("no outputs were chosen; name at least one")),
            None => Ok(outputs.len()),
        }
    }

    /// Calls `tile(rows, columns, left, right, own)` for every pair of blocks of points, with the forward passes at the rows
    /// and at the columns; `own` if the blocks are the same. For one set of points, only pairs with `rows ≤ columns`.
    fn pairs(
        &self,
        x: &Tensor,
        other: Option<&Tensor>,
        c: usize,
        mut tile: impl FnMut(Range<usize>, Range<usize>, &Pass, &Pass, bool) -> Result<()>,
    ) -> Result<()> {
        let block = self.block(c);
        for rows in blocks(self.points(x)?, block) {
            let left = self.forward(x, rows.clone())?;
            let columns = blocks(self.points(other.unwrap_or(x))?, block);
            for columns in columns.filter(|columns| other.is_some() || columns.start >= rows.start) {
                let own = other.is_none() && columns == rows;
                let right = if own { None } else { Some(self.forward(other.unwrap_or(x), columns.clone())?) };
                tile(rows.clone(), columns, &left, right.as_ref().unwrap_or(&left), own)?;
            }
        }
        Ok(())
    }

    /// Points of a block, for c cotangents.
    fn block(&self, c: usize) -> usize {
        let mut inputs = self.net.inputs();
        let mut widest = 0;
        for layer in &self.net.layers {
            let outputs = layer.facts().outputs;
            widest = widest.max(inputs + outputs + layer.written_out());
            inputs = outputs;
        }
        (BLOCK_NUMBERS / (c * widest).max(1)).clamp(1, BLOCK_POINTS)
    }

    pub(super) fn forward(&self, x: &Tensor, rows: Range<usize>) -> Result<Pass> {
        let mut workspace = self.net.workspace(self.device)?;
        let mut points = Tensor::zeros(self.device, &[0])?;
        compute::gather_rows(x, &rows.clone().collect::<Vec<_>>(), &mut points)?;
        self.net.forward(self.theta, &points, Mode::Eval, &mut workspace)?;
        Ok(Pass { x: points, rows, workspace })
    }

    /// Back through the layers from the `cotangents` of a pass, at one or two sets of points, giving `term` each layer's Jacobians.
    fn layers(
        &self,
        left: &Pass,
        right: &Pass,
        cotangents: impl Fn(&Pass) -> Result<Tensor>,
        mut term: impl FnMut(&Jacobian<'_>, &Jacobian<'_>) -> Result<()>,
    ) -> Result<()> {
        let own = std::ptr::eq(left, right);
        let mut g = cotangents(left)?;
        let mut h = if own { None } else { Some(cotangents(right)?) };
        for i in (0..self.net.layers.len()).rev() {
            let (j, next) = self.jacobian(i, left, g)?;
            match h.take() {
                None => term(&j, &j)?,
                Some(of_right) => {
                    let (k, next) = self.jacobian(i, right, of_right)?;
                    h = Some(next);
                    term(&j, &k)?;
                }
            }
            g = next;
        }
        Ok(())
    }

    /// The cotangents that pick the outputs `[c, n, all]`.
    pub(super) fn units(&self, pass: &Pass, outputs: &[usize]) -> Result<Tensor> {
        let (n, all) = (pass.x.shape()[0], self.net.outputs());
        let mut units = vec![0.0; outputs.len() * n * all];
        for (unit, &output) in units.chunks_exact_mut(n * all).zip(outputs) {
            unit.iter_mut().skip(output).step_by(all).for_each(|g| *g = 1.0);
        }
        Tensor::from_host(self.device, &[outputs.len(), n, all], &units)
    }

    /// Layer `i`'s Jacobian, and the cotangents of its input.
    fn jacobian<'p>(&self, i: usize, pass: &'p Pass, g: Tensor) -> Result<(Jacobian<'p>, Tensor)> {
        let traces = &pass.workspace.traces;
        let x = if i == 0 { &pass.x } else { &traces[i - 1].y };
        let theta = self.net.shared_weights(i, self.theta);
        let at = Evaluated { theta, x, trace: &traces[i], parameterisation: self.parameterisation };
        let mut dx = Tensor::zeros(self.device, &[0])?;
        let jacobian = self.net.layers[i].jacobian(&at, g, (i > 0).then_some(&mut dx))?;
        Ok((jacobian, dx))
    }
}

/// A forward pass and its points, the `rows` of a larger set.
pub(super) struct Pass {
    x: Tensor,
    rows: Range<usize>,
    pub(super) workspace: Workspace,
}

fn blocks(n: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    (0..n).step_by(size).map(move |start| start..(start + size).min(n))
}
