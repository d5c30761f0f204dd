//! Wide networks in the parameterisation in which the NTK has a limit, trained by gradient descent on all points at once.
//!
//! A weight is `w = s·θ` with θ standard normal and s its standard deviation. Descent in θ on the loss
//! `L = (1/2n) Σ_i (f(x_i) − y_i)²` moves w by `−η s² ∂L/∂w`, and outputs by `ḟ = −(1/n) Θ(·,X)(f(X) − y)`.

use mercer::Result;
use mercer::compute::{self, Device, Tensor};
use mercer::net::ntk::{EmpiricalNtk, Parameterisation};
use mercer::net::{Mode, Network, Parameters, Workspace};
use mercer::rng::Rng;
use ndarray::{Array2, ArrayView2};

/// k networks of one architecture with random weights.
pub struct Wide {
    pub network: Network,
    pub theta: Parameters,
    /// `s` of every weight.
    deviations: Tensor,
    workspace: Workspace,
    gradient: Tensor,
    residual: Tensor,
}

impl Wide {
    /// `count` networks of the architecture `text` on `d` inputs, drawn on the device.
    pub fn new(text: &str, d: usize, count: usize, device: Device, rng: &mut Rng) -> Result<Wide> {
        let network = Network::parse(text, d, count)?;
        let trained = Tensor::zeros(device, &[network.parameters()])?;
        let empty = || Tensor::zeros(device, &[0]);
        let mut wide = Wide {
            workspace: network.workspace(device)?,
            theta: Parameters { trained, constants: Tensor::zeros(device, &[network.constants()])? },
            deviations: Tensor::from_host(device, &[network.parameters()], &network.spread())?,
            gradient: empty()?,
            residual: empty()?,
            network,
        };
        wide.draw(rng);
        Ok(wide)
    }

    /// Draws all weights anew.
    pub fn draw(&mut self, rng: &mut Rng) {
        compute::fill_normal(&mut self.theta.trained, rng);
        compute::multiply(&mut self.theta.trained, &self.deviations);
    }

    fn device(&self) -> Device {
        self.theta.trained.device()
    }

    /// The values `[k, n]` at the points `x` `[n, d]`.
    pub fn values(&mut self, x: &Tensor) -> Result<Array2<f64>> {
        let y = self.network.forward(&self.theta, x, Mode::Eval, &mut self.workspace)?;
        let (k, n) = (y.shape()[0], y.shape()[1]);
        let values = y.to_host()?.into_iter().map(f64::from).collect();
        Ok(Array2::from_shape_vec((k, n), values).expect("one output"))
    }

    /// One step `θ ← θ − η ∇L` of every network, for `L = (1/2n) Σ_i (f(x_i) − y_i)²`; `x` `[n, d]`, `y` `[k, n, 1]`.
    pub fn descend(&mut self, x: &Tensor, y: &Tensor, rate: f64) -> Result<()> {
        let n = x.shape()[0];
        let values = self.network.forward(&self.theta, x, Mode::Train, &mut self.workspace)?;
        self.residual.reshape(values.shape())?;
        compute::copy(values, &mut self.residual);
        compute::axpy(-1.0, y, &mut self.residual);
        compute::scale(1.0 / n as f32, &mut self.residual);
        self.network.vjp(&self.theta, x, &mut self.workspace, &mut self.residual, &mut self.gradient, None)?;
        compute::multiply(&mut self.gradient, &self.deviations);
        compute::multiply(&mut self.gradient, &self.deviations);
        compute::axpy(-rate as f32, &self.gradient, &mut self.theta.trained);
        Ok(())
    }

    /// `steps` steps of [`Wide::descend`].
    pub fn train(&mut self, x: &Tensor, y: &Tensor, rate: f64, steps: usize) -> Result<()> {
        let device = self.device();
        device.enter(|| (0..steps).try_for_each(|_| self.descend(x, y, rate)))
    }

    /// The weights `θ = w/s` as they are; what they moved by is [`Wide::moved`].
    pub fn weights(&self) -> Tensor {
        self.theta.trained.clone()
    }

    /// `‖θ − θ₀‖` and `‖θ₀‖` for the weights `start` that [`Wide::weights`] returned.
    pub fn moved(&self, start: &Tensor) -> Result<[f64; 2]> {
        let by_deviation: Vec<f32> =
            self.network.spread().iter().map(|s| if *s > 0.0 { 1.0 / s } else { 0.0 }).collect();
        let inverse = Tensor::from_host(self.device(), &[by_deviation.len()], &by_deviation)?;
        let mut difference = self.theta.trained.clone();
        compute::axpy(-1.0, start, &mut difference);
        compute::multiply(&mut difference, &inverse);
        let mut first = start.clone();
        compute::multiply(&mut first, &inverse);
        Ok([length(&difference)?, length(&first)?])
    }

    /// `‖∇²f‖ = max Σ_i c_i vᵀ∇²f(x_i)v` over `‖c‖ = ‖v‖ = 1` at the points `x` `[n, d]`, for a single network: power iteration, in turn on
    /// v with `Σ_i c_i ∇²f(x_i)` and on c with `vᵀ∇²f(x_i)v`.
    pub fn curvature(&mut self, x: &Tensor, iterations: usize, rng: &mut Rng) -> Result<f64> {
        let (n, device) = (x.shape()[0], self.device());
        let mut v = Tensor::zeros(device, &[self.network.parameters()])?;
        compute::fill_normal(&mut v, rng);
        // The padding between layers is no parameter.
        let used: Vec<f32> = self.network.spread().iter().map(|s| f32::from(u8::from(*s > 0.0))).collect();
        compute::multiply(&mut v, &Tensor::from_host(device, &[used.len()], &used)?);
        let mut c = vec![(n as f64).powf(-0.5); n];
        let mut size = 0.0;
        for _ in 0..iterations {
            normalise(&mut v)?;
            let weights: Vec<f32> = c.iter().map(|c| *c as f32).collect();
            let weights = Tensor::from_host(device, &[1, n, 1], &weights)?;
            let [(mut up, forward), (down, backward)] =
                [self.derivatives(x, &v, STEP, &weights)?, self.derivatives(x, &v, -STEP, &weights)?];
            c = forward.iter().zip(&backward).map(|(f, b)| (f - b) / (2.0 * f64::from(STEP))).collect();
            size = c.iter().map(|c| c * c).sum::<f64>().sqrt();
            c.iter_mut().for_each(|c| *c /= size.max(f64::MIN_POSITIVE));
            compute::axpy(-1.0, &down, &mut up);
            v = up;
        }
        Ok(size)
    }

    /// At the weights `θ + εv`: the gradient of `Σ_i c_i f(x_i)` in θ, and `∂_θ f(x_i)·v`.
    fn derivatives(&mut self, x: &Tensor, v: &Tensor, step: f32, c: &Tensor) -> Result<(Tensor, Vec<f64>)> {
        let mut along = v.clone();
        compute::multiply(&mut along, &self.deviations);
        let mut theta = self.theta.clone();
        compute::axpy(step, &along, &mut theta.trained);
        self.network.forward(&theta, x, Mode::Eval, &mut self.workspace)?;
        let tangent = self.network.jvp(&theta, x, &mut self.workspace, Some(&along), None)?.to_host()?;
        let (mut g, mut gradient) = (c.clone(), Tensor::zeros(self.device(), &[0])?);
        self.network.vjp(&theta, x, &mut self.workspace, &mut g, &mut gradient, None)?;
        compute::multiply(&mut gradient, &self.deviations);
        Ok((gradient, tangent.into_iter().map(f64::from).collect()))
    }

    /// The empirical NTK `[n, m]` of a single network between `x` `[n, d]` and `other` `[m, d]`, or x itself.
    pub fn ntk(&self, x: &Tensor, other: Option<&Tensor>) -> Result<Array2<f64>> {
        let ntk = EmpiricalNtk::new(&self.network, &self.theta)?.parameterised(Parameterisation::Ntk);
        Ok(ntk.mean(x, other, &[0])?.mapv(f64::from))
    }
}

/// Step of the differences of derivatives, along directions of length one: truncation and rounding are both below a thousandth.
const STEP: f32 = 0.03;

/// `‖v‖`
fn length(v: &Tensor) -> Result<f64> {
    let mut square = Tensor::zeros(v.device(), &[1])?;
    compute::sum_squares(v, &mut square);
    Ok(f64::from(square.to_host()?[0]).sqrt())
}

fn normalise(v: &mut Tensor) -> Result<()> {
    let length = length(v)?;
    compute::scale((1.0 / length.max(f64::MIN_POSITIVE)) as f32, v);
    Ok(())
}

/// Points `[n, d]` as a tensor.
pub fn tensor(x: ArrayView2<f64>, device: Device) -> Result<Tensor> {
    let numbers: Vec<f32> = x.iter().map(|v| *v as f32).collect();
    Tensor::from_host(device, &[x.nrows(), x.ncols()], &numbers)
}

/// The same targets `[n]` for `count` networks, `[count, n, 1]`.
pub fn targets(y: &[f64], count: usize, device: Device) -> Result<Tensor> {
    let numbers: Vec<f32> = (0..count).flat_map(|_| y.iter().map(|v| *v as f32)).collect();
    Tensor::from_host(device, &[count, y.len(), 1], &numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mercer::kernel::Kernel;
    use ndarray::array;

    const NET: &str = "dense(3, w=1.5, b=0.5) erf dense(1, w=0.8, b=no)";

    /// Outputs move by `−(η/n) Θ (f − y)` in a small step, with Θ the empirical NTK in the same parameterisation.
    #[test]
    fn a_small_step_follows_the_empirical_kernel() {
        let x = array![[0.3, -1.0], [1.2, 0.4], [-0.7, 0.9]];
        let (points, y) = (tensor(x.view(), Device::Cpu).unwrap(), [0.5, -1.0, 2.0]);
        let mut net = Wide::new(NET, 2, 1, Device::Cpu, &mut Rng::new(3)).unwrap();
        let (before, ntk) = (net.values(&points).unwrap(), net.ntk(&points, None).unwrap());
        let rate = 1e-2;
        net.descend(&points, &targets(&y, 1, Device::Cpu).unwrap(), rate).unwrap();
        let moved = net.values(&points).unwrap() - &before;
        for i in 0..3 {
            let want: f64 = (0..3).map(|j| -rate / 3.0 * ntk[[i, j]] * (before[[0, j]] - y[j])).sum();
            assert!((moved[[0, i]] - want).abs() < 2e-2 * want.abs() + 1e-5, "{} {want}", moved[[0, i]]);
        }
    }

    /// `f = a·erf(w·x)·s_a`, one unit: the Hessian in (θ_w, θ_a) at one point is dense algebra.
    #[test]
    fn the_curvature_is_that_of_the_dense_hessian() {
        let x = array![[0.8, -0.5]];
        let points = tensor(x.view(), Device::Cpu).unwrap();
        let text = "dense(1, w=1, b=no) erf dense(1, w=1, b=no)";
        let mut net = Wide::new(text, 2, 1, Device::Cpu, &mut Rng::new(8)).unwrap();
        let w: Vec<f64> = net.weights().to_host().unwrap().into_iter().map(f64::from).collect();
        // z = w·x; θ_w = √2 w; f = a erf(z), erf' = 2/√π e^{−z²}, erf'' = −2z erf'.
        let z = w[0] * 0.8 - w[1] * 0.5;
        let slope = 2.0 / std::f64::consts::PI.sqrt() * (-z * z).exp();
        let u = [0.8 / 2f64.sqrt(), -0.5 / 2f64.sqrt()];
        let mut h = Array2::zeros((3, 3));
        for i in 0..2 {
            for j in 0..2 {
                h[[i, j]] = w[2] * -2.0 * z * slope * u[i] * u[j];
            }
            (h[[i, 2]], h[[2, i]]) = (slope * u[i], slope * u[i]);
        }
        let (values, _) = mercer::linalg::eigh(Device::Cpu, h.view()).unwrap();
        let want = values.iter().fold(0.0, |most: f64, v| most.max(v.abs()));
        let found = net.curvature(&points, 60, &mut Rng::new(1)).unwrap();
        assert!((found - want).abs() < 5e-3 * want, "{found} {want}");
    }

    #[test]
    fn weights_move_in_units_of_their_deviations() {
        let x = tensor(array![[1.0, 2.0]].view(), Device::Cpu).unwrap();
        let mut net = Wide::new("dense(1, w=3, b=no)", 2, 1, Device::Cpu, &mut Rng::new(8)).unwrap();
        let start = net.weights();
        let value = net.values(&x).unwrap()[[0, 0]];
        net.descend(&x, &targets(&[value + 2.0], 1, Device::Cpu).unwrap(), 0.1).unwrap();
        // ∇L in θ is −2·s·x with s = 3/√2.
        let [moved, _] = net.moved(&start).unwrap();
        assert!((moved - 0.2 * 3.0 / 2f64.sqrt() * 5f64.sqrt()).abs() < 1e-4, "{moved}");
    }

    /// Every network of several starts and moves by itself, and the mean of many kernels is the infinite one's.
    #[test]
    fn the_kernel_of_wide_networks_is_the_infinite_one() {
        let text = "dense(2000, w=1.5, b=0.5) erf dense(1, w=0.8, b=no)";
        let x = array![[0.3, -1.0], [1.2, 0.4]];
        let points = tensor(x.view(), Device::Cpu).unwrap();
        let net = Wide::new(text, 2, 1, Device::Cpu, &mut Rng::new(1)).unwrap();
        let kernel = Kernel::parse(&format!("ntk('{text}')")).unwrap();
        let found = net.ntk(&points, None).unwrap();
        for (i, j) in [(0, 0), (0, 1), (1, 1)] {
            let want = kernel.value(&x.row(i).to_vec(), &x.row(j).to_vec());
            assert!((found[[i, j]] - want).abs() < 0.1 * want.abs(), "{} {want}", found[[i, j]]);
        }
        let mut several = Wide::new(NET, 2, 4, Device::Cpu, &mut Rng::new(2)).unwrap();
        let values = several.values(&points).unwrap();
        assert!(values.dim() == (4, 2) && values[[0, 0]] != values[[1, 0]]);
    }
}
