//! What a pass through the network yields at rows of data: outputs, hidden units, derivatives.

use super::likelihood::curvature_root;
use crate::classifier::Classifier;
use crate::compute::{Device, Tensor};
use crate::net::ntk::{EmpiricalNtk, Jacobian};
use crate::net::{Mode, Network, Parameters};
use crate::{Error, Result, fail_if};
use ndarray::{Array2, Array3, ArrayView2, Axis, s};
use std::ops::Range;

/// Rows of a batch that only goes forward.
pub(super) const FORWARD: usize = 256;

/// Numbers of the cotangents `[C, b, C]` of a batch, for networks of thousands of classes: 64 MiB.
const COTANGENTS: usize = 1 << 24;

/// Which hidden units are wanted of a pass.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hidden {
    /// None.
    No,
    /// The input of the last layer, and a one for its bias.
    Last,
    /// The units of all layers, of images the mean of every channel, and a one.
    Means,
    /// The input of the last layer, then those of all layers, and a one.
    Both,
}

/// Cotangents of the outputs.
#[derive(Clone, Copy)]
pub(crate) enum Cotangents {
    /// Each output by itself.
    Units,
    /// The columns of `L_i`, `Λ_i = L_i L_iᵀ`.
    CurvatureRoots,
}

/// A network that was trained, seen as a function of rows and of its parameters.
pub(crate) struct Passes<'a> {
    pub classifier: &'a Classifier,
    folded: Network,
    folded_parameters: Parameters,
    device: Device,
}

impl<'a> Passes<'a> {
    pub fn new(classifier: &'a Classifier) -> Result<Passes<'a>> {
        classifier.require_nonlinear("linearised Laplace")?;
        let (folded, folded_parameters) = classifier.network.fold(&classifier.parameters)?;
        Ok(Passes { classifier, folded, folded_parameters, device: classifier.parameters.trained.device() })
    }

    /// C
    pub fn outputs(&self) -> usize {
        self.classifier.network.outputs()
    }

    /// The width of the last layer's input.
    pub fn last_width(&self) -> usize {
        self.classifier.network.affine_layers().last().map_or(0, |[inputs, _]| *inputs)
    }

    /// Whether the outputs are logits of classes.
    pub fn classes(&self) -> bool {
        self.classifier.number.is_none()
    }

    /// The outputs `[n, C]` and the hidden units `[n, q]` at rows `x` `[n, d]`, by one forward pass, batch norms folded.
    pub fn forward(&self, x: ArrayView2<f64>, hidden: Hidden) -> Result<(Array2<f64>, Array2<f64>)> {
        self.classifier.check_columns(x.ncols())?;
        self.device.enter(|| {
            let mut workspace = self.folded.workspace(self.device)?;
            let (mut z, mut units) = (Array2::zeros((x.nrows(), self.outputs())), Array2::zeros((x.nrows(), 0)));
            for rows in batches(x.nrows(), FORWARD) {
                let points = self.points(x.slice(s![rows.clone(), ..]))?;
                self.folded.forward(&self.folded_parameters, &points, Mode::Eval, &mut workspace)?;
                z.slice_mut(s![rows.clone(), ..]).assign(&host(workspace.output())?.index_axis(Axis(0), 0));
                let parts = match hidden {
                    Hidden::No => continue,
                    Hidden::Last => vec![self.folded.last_layer(&points, &workspace)?.0.clone()],
                    Hidden::Means => self.folded.hidden_means(&workspace)?,
                    Hidden::Both => {
                        let last = self.folded.last_layer(&points, &workspace)?.0.clone();
                        std::iter::once(last).chain(self.folded.hidden_means(&workspace)?).collect()
                    }
                };
                let parts = parts.iter().map(matrix).collect::<Result<Vec<_>>>()?;
                let q = parts.iter().map(|part| part.ncols()).sum::<usize>() + 1;
                if units.ncols() != q {
                    units = Array2::ones((x.nrows(), q));
                }
                let mut at = 0;
                for part in parts {
                    units.slice_mut(s![rows.clone(), at..at + part.ncols()]).assign(&part);
                    at += part.ncols();
                }
            }
            check_finite(&z)?;
            Ok((z, units))
        })
    }

    /// Back from the outputs at rows `x` `[n, d]`, a few at a time: calls `each` with the rows, the place of the first parameter of
    /// every layer of weights, and its derivatives. Returns the outputs `[n, C]`.
    pub fn derivatives(
        &self,
        x: ArrayView2<f64>,
        cotangents: Cotangents,
        mut each: impl FnMut(Range<usize>, usize, &Jacobian<'_>) -> Result<()>,
    ) -> Result<Array2<f64>> {
        self.classifier.check_columns(x.ncols())?;
        let (ntk, c) = (self.ntk()?, self.outputs());
        let mut z = Array2::zeros((x.nrows(), c));
        for rows in batches(x.nrows(), points_at_a_time(&ntk, c)) {
            let points = self.points(x.slice(s![rows.clone(), ..]))?;
            let of = |outputs: &Tensor| self.cotangents(outputs, cotangents);
            let outputs = ntk.derivatives(&points, of, |start, jacobian| each(rows.clone(), start, jacobian))?;
            z.slice_mut(s![rows, ..]).assign(&host(&outputs)?.index_axis(Axis(0), 0));
        }
        check_finite(&z)?;
        Ok(z)
    }

    /// `[C, n, C]`
    fn cotangents(&self, outputs: &Tensor, kind: Cotangents) -> Result<Tensor> {
        let (z, c) = (host(outputs)?.index_axis_move(Axis(0), 0), self.outputs());
        let root = match kind {
            Cotangents::Units => Array3::from_shape_fn((z.nrows(), c, c), |(_, a, b)| f64::from(u8::from(a == b))),
            Cotangents::CurvatureRoots => curvature_root(z.view(), self.classes()),
        };
        let values: Vec<f32> = root.permuted_axes([2, 0, 1]).iter().map(|v| *v as f32).collect();
        Tensor::from_host(self.device, &[c, z.nrows(), c], &values)
    }

    /// Where the network computes.
    pub fn device(&self) -> Device {
        self.device
    }

    /// The kernel of the network's derivatives.
    pub fn ntk(&self) -> Result<EmpiricalNtk<'a>> {
        EmpiricalNtk::new(&self.classifier.network, &self.classifier.parameters)
    }

    /// Rows `[n, d]` as the network takes them.
    pub fn points(&self, x: ArrayView2<f64>) -> Result<Tensor> {
        self.classifier.standardizer.apply(x, self.device)
    }

    /// The trained numbers.
    pub fn trained(&self) -> Result<Vec<f32>> {
        self.classifier.parameters.trained.to_host()
    }

    /// The place of the last layer's first parameter.
    pub fn last_layer_start(&self) -> Result<usize> {
        let network = &self.classifier.network;
        let empty = Tensor::zeros(self.device, &[0])?;
        network.last_layer(&empty, &network.workspace(self.device)?).map(|(_, start)| start)
    }

    /// `‖θ‖²` of the last layer.
    pub fn square_of_last_layer(&self) -> Result<f64> {
        Ok(square(&self.trained()?[self.last_layer_start()?..]))
    }
}

/// Rows that go back at a time, from each of c outputs.
pub(super) fn points_at_a_time(ntk: &EmpiricalNtk, c: usize) -> usize {
    ntk.points_at_a_time(c).min(COTANGENTS / (c * c)).max(1)
}

/// `‖θ‖²`
pub(super) fn square(theta: &[f32]) -> f64 {
    theta.iter().map(|v| f64::from(*v).powi(2)).sum()
}

/// Consecutive ranges of `n` rows, `size` each.
pub(crate) fn batches(n: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    (0..n).step_by(size.max(1)).map(move |start| start..n.min(start + size))
}

/// A tensor `[c, b, m]` on the host, in double precision.
pub(super) fn host(tensor: &Tensor) -> Result<Array3<f64>> {
    let &[c, b, m] = tensor.shape() else { unreachable!("{:?} has not three axes", tensor.shape()) };
    let values = tensor.to_host()?.into_iter().map(f64::from).collect();
    Ok(Array3::from_shape_vec((c, b, m), values).expect("as many numbers as its shape says"))
}

/// A tensor `[b, m]` or `[1, b, m]` as a matrix in double precision.
pub(super) fn matrix(tensor: &Tensor) -> Result<Array2<f64>> {
    let shape = tensor.shape();
    let (b, m) = (shape[shape.len() - 2], shape[shape.len() - 1]);
    let values = tensor.to_host()?.into_iter().map(f64::from).collect();
    Ok(Array2::from_shape_vec((b, m), values).expect("one matrix"))
}

pub(super) fn check_finite(z: &Array2<f64>) -> Result<()> {
    fail_if!(
        z.iter().any(|v| !v.is_finite());
        Error::Numerical("an output of the network is not finite: a row is too large for it; scale the rows".into())
    );
    Ok(())
}
