//! The Gaussian process whose mean is fixed at the network (FMGP), on few landmarks.
//!
//! `z'(x) = z(x) + √b a(x) g(x)`, one independent g with the kernel k for each output, `a(x)² = ‖f(x)‖²` of the last layer's input f (its part of
//! the NTK), and b one amplitude for each output. Noise of the variance `σ² b a(x_i)²` at the rows leaves g the variance
//!
//! `v(x) = k(x,x) − ‖φ(x)‖² + φ(x)(I + ΦᵀΦ/σ²)⁻¹φ(x)ᵀ`
//!
//! with Nyström's features `φ(x) = k(x,Z) k(Z,Z)^{−1/2}` at landmarks Z: far from the rows it is that of the prior. The mean does not
//! depend on it, so σ² and b are found by the loss on other rows, where the network makes the mistakes that it makes on new ones.

use super::Structure;
use super::likelihood::Likelihood;
use super::passes::{Hidden, Passes};
use super::predictive::probit;
use super::search::{Searched, search};
use crate::apply::{minimise, softmax_rows};
use crate::compute::Device;
use crate::kernel::{Expression, Kernel};
use crate::linalg::{eigh, matmul};
use crate::model::Bundle;
use crate::operator::{Precision, gram, gram_cross};
use crate::spectrum::Landmarks;
use crate::{Error, FitContext, Result, fail_if};
use ndarray::{Array1, Array2, Array3, ArrayView1, ArrayView2, Axis, s};
use std::f64::consts::PI;

/// k on the units of the last hidden layer, each divided by its deviation.
const KERNEL: &str = "rbf(lengthscale=median)";
/// Directions of the landmarks' kernel below this share of its largest eigenvalue are left out.
const LEAST: f64 = 1e-9;
/// The range of the logarithm of an amplitude or of the noise of a number.
const BOUNDS: (f64, f64) = (-30.0, 30.0);
/// Where the search for amplitudes ends: the largest component of the gradient, and steps.
const END: (f64, usize) = (1e-7, 200);

/// The posterior of g, and the amplitudes.
pub(super) struct FixedMean {
    kernel: Kernel,
    /// Z `[m, q]`, scaled.
    landmarks: Array2<f64>,
    /// One over the deviation of each unit `[q]`; zero for one that does not vary.
    scale: Array1<f64>,
    /// `k(Z,Z)^{−1/2} Q` `[m, k]` with `ΦᵀΦ = Q diag(λ) Qᵀ`.
    root: Array2<f64>,
    /// λ `[k]`
    eigenvalues: Array1<f64>,
    /// σ²
    noise: f64,
    /// b `[C]`, the mean of their logarithms zero.
    amplitudes: Array1<f64>,
}

/// What the variances at some rows are made of.
struct Parts {
    /// Outputs `[n, C]`, of classes with mean zero.
    z: Array2<f64>,
    /// a² `[n]`
    prior: Array1<f64>,
    /// `k(x,x) − ‖φ‖²` `[n]`
    rest: Array1<f64>,
    /// `(φQ)²` `[n, k]`
    squares: Array2<f64>,
}

impl Parts {
    /// `a² v` `[n]` for the noise σ² and the eigenvalues λ of `ΦᵀΦ`.
    fn variances(&self, noise: f64, eigenvalues: &Array1<f64>) -> Array1<f64> {
        let weights = eigenvalues.mapv(|λ| 1.0 / (1.0 + λ / noise));
        &self.prior * &(&self.rest + &self.squares.dot(&weights))
    }
}

/// Fits the process: landmarks among the rows `x` `[n, d]`; σ² and b on the `validation` rows. Returns it with the precision τ of the
/// prior, one over the geometric mean of b, and the noise of a number.
pub(super) fn fit(
    count: usize,
    passes: &Passes,
    x: ArrayView2<f64>,
    (validation, likelihood): (ArrayView2<f64>, &Likelihood),
    context: &FitContext,
) -> Result<(FixedMean, Searched, f64)> {
    fail_if!(count == 0, "at least one landmark is needed");
    let (_, units) = passes.forward(x, Hidden::Last)?;
    let mut process = FixedMean::on_landmarks(count, units.slice(s![.., ..units.ncols() - 1]), context)?;
    process.amplitudes = Array1::ones(passes.outputs());
    let parts = process.parts(passes, validation)?;
    // For each σ², b and the noise of a number with the least loss; each search starts where the one before ended.
    let mut start = vec![0.0; passes.outputs() + usize::from(!passes.classes())];
    let mut at = |noise: f64| -> Result<(f64, Vec<f64>)> {
        let variances = parts.variances(noise, &process.eigenvalues);
        let loss = |logarithms: &[f64]| Ok(Some(loss(logarithms, &parts.z, &variances, likelihood)));
        let found = minimise(start.clone(), &vec![BOUNDS; start.len()], END, loss, |_, _, _| true)?;
        let found = found.ok_or_else(|| Error::Numerical("the loss has no value for any amplitude".into()))?;
        start.clone_from(&found.x);
        Ok((found.value, found.x))
    };
    let found = search(|values| values.iter().map(|noise| at(*noise).map(|(loss, _)| loss)).collect())?;
    let (loss, logarithms) = at(found.value)?;
    let (amplitudes, noise) = logarithms.split_at(passes.outputs());
    let mean = amplitudes.iter().sum::<f64>() / amplitudes.len() as f64;
    process.amplitudes = amplitudes.iter().map(|b| (b - mean).exp()).collect();
    process.noise = found.value;
    // σ² at an end of its range is an answer: g as before the rows, or known at them.
    let precision = Searched { value: (-mean).exp(), loss, at_end: false };
    Ok((process, precision, noise.first().map_or(1.0, |noise| noise.exp())))
}

/// The mean loss, and its derivatives by the logarithms of b `[C]` and, for a number, of its noise; for outputs `z` `[n, C]` and
/// variances `a²v` `[n]`.
fn loss(logarithms: &[f64], z: &Array2<f64>, variances: &Array1<f64>, likelihood: &Likelihood) -> (f64, Vec<f64>) {
    let (n, c) = (z.nrows() as f64, z.ncols());
    let b = Array1::from_iter(logarithms[..c].iter().map(|b| b.exp()));
    let of_outputs = outer(variances, &b);
    match likelihood {
        // s = z/√(1 + q), q = π/8 b a²v: ∂s/∂log b = −s q/(2(1 + q)).
        Likelihood::Classes(labels) => {
            let scores = probit(z.view(), of_outputs.view());
            let value = likelihood.mean_loss(scores.view(), scores.view());
            let mut error = softmax_rows(scores.clone());
            labels.iter().enumerate().for_each(|(i, &label)| error[[i, label]] -= 1.0);
            let slope = of_outputs.mapv(|v| -0.5 * (PI / 8.0 * v) / (1.0 + PI / 8.0 * v)) * scores;
            (value, (error * slope).sum_axis(Axis(0)).mapv(|g| g / n).to_vec())
        }
        // ½((y − z)²/V + log 2πV), V = b a²v + σ².
        Likelihood::Numbers(y) => {
            let noise = logarithms[c].exp();
            let total = &of_outputs + noise;
            let by_total = |(i, v): (usize, &f64)| 0.5 * (1.0 - (y[i] - z[[i, 0]]).powi(2) / v) / v;
            let slopes: Vec<f64> = total.iter().enumerate().map(by_total).collect();
            let by_b = slopes.iter().zip(&of_outputs).map(|(g, v)| g * v).sum::<f64>() / n;
            let by_noise = slopes.iter().sum::<f64>() * noise / n;
            (likelihood.mean_loss(z.view(), total.view()), vec![by_b, by_noise])
        }
    }
}

/// `v bᵀ` `[n, C]`
fn outer(v: &Array1<f64>, b: &Array1<f64>) -> Array2<f64> {
    matmul(v.view().insert_axis(Axis(1)), b.view().insert_axis(Axis(0)))
}

impl FixedMean {
    /// The posterior of g on `count` landmarks among the rows with the hidden units `h` `[n, q]`; noise and amplitudes one.
    fn on_landmarks(count: usize, h: ArrayView2<f64>, context: &FitContext) -> Result<FixedMean> {
        let scale = h.std_axis(Axis(0), 0.0).mapv(|s| if s > 0.0 { 1.0 / s } else { 0.0 });
        let scaled = &h * &scale;
        let kernel = Expression::parse(KERNEL)?.resolve(scaled.view(), context.seed)?;
        let operator = context.kernel_operator(&kernel, scaled.view())?;
        let rows = Landmarks::KMeansPlusPlus.choose(&operator, count.min(h.nrows()), context.seed, Precision::F64)?;
        let landmarks = scaled.select(Axis(0), &rows);
        let (values, vectors) = eigh(context.device, gram::<f64>(&kernel, landmarks.view(), Device::Cpu)?.view())?;
        let kept = values.iter().take_while(|λ| **λ > LEAST * values[0]).count();
        let inverse = Array1::from_iter(values[..kept].iter().map(|λ| λ.sqrt().recip()));
        let root = vectors.slice(s![.., ..kept]).to_owned() * &inverse;
        let φ = matmul(gram_cross::<f64>(&kernel, scaled.view(), landmarks.view(), Device::Cpu)?.view(), root.view());
        let (eigenvalues, rotation) = eigh(context.device, matmul(φ.t(), φ.view()).view())?;
        let eigenvalues = Array1::from_iter(eigenvalues.into_iter().map(|λ| λ.max(0.0)));
        let root = matmul(root.view(), rotation.view());
        Ok(FixedMean { kernel, landmarks, scale, root, eigenvalues, noise: 1.0, amplitudes: Array1::ones(1) })
    }

    /// `k(x,x) − ‖φ‖²` `[n]` and `(φQ)²` `[n, k]` at hidden units `h` `[n, q]`.
    fn features(&self, h: ArrayView2<f64>) -> Result<(Array1<f64>, Array2<f64>)> {
        let scaled = &h * &self.scale;
        let across = gram_cross::<f64>(&self.kernel, scaled.view(), self.landmarks.view(), Device::Cpu)?;
        let squares = matmul(across.view(), self.root.view()).mapv(|φ| φ * φ);
        let own = |h: ArrayView1<f64>| self.kernel.value(&h.to_vec(), &h.to_vec());
        let rest = scaled.rows().into_iter().map(own).zip(squares.rows()).map(|(own, φ)| (own - φ.sum()).max(0.0));
        Ok((rest.collect(), squares))
    }

    fn parts(&self, passes: &Passes, x: ArrayView2<f64>) -> Result<Parts> {
        let (mut z, units) = passes.forward(x, Hidden::Last)?;
        if passes.classes() {
            z = &z - &z.mean_axis(Axis(1)).expect("there are outputs").insert_axis(Axis(1));
        }
        fail_if!(
            units.ncols() != self.scale.len() + 1 || z.ncols() != self.amplitudes.len(),
            "its parts do not fit together: the landmarks are of another network"
        );
        let prior = units.rows().into_iter().map(|f| f.dot(&f)).collect();
        let (rest, squares) = self.features(units.slice(s![.., ..units.ncols() - 1]))?;
        Ok(Parts { z, prior, rest, squares })
    }

    pub fn unpack(bundle: &Bundle) -> Result<FixedMean> {
        let vector = |name: &str| -> Result<Array1<f64>> {
            let row = bundle.matrix(name)?;
            fail_if!(row.nrows() != 1, "its parts do not fit together: {name} has {} rows", row.nrows());
            Ok(row.remove_axis(Axis(0)))
        };
        let process = FixedMean {
            kernel: Kernel::parse(&bundle.value::<String>("landmark_kernel")?)?,
            landmarks: bundle.matrix("landmarks")?,
            scale: vector("scale")?,
            root: bundle.matrix("root")?,
            eigenvalues: vector("eigenvalues")?,
            noise: bundle.value("process_noise")?,
            amplitudes: vector("amplitudes")?,
        };
        let FixedMean { landmarks, scale, root, eigenvalues, noise, amplitudes, .. } = &process;
        let positive = |values: &Array1<f64>| values.iter().all(|v| *v > 0.0);
        fail_if!(
            landmarks.ncols() != scale.len()
                || root.dim() != (landmarks.nrows(), eigenvalues.len())
                || eigenvalues.iter().any(|λ| *λ < 0.0)
                || !(*noise > 0.0 && positive(amplitudes)),
            "its parts do not fit together: the landmarks, their eigenvalues and the amplitudes"
        );
        Ok(process)
    }
}

impl Structure for FixedMean {
    fn eigenvalues(&self) -> Vec<f64> {
        vec![]
    }

    fn square(&self) -> f64 {
        0.0
    }

    /// `b a² v/s`: outputs are independent.
    fn covariance(
        &self,
        passes: &Passes,
        x: ArrayView2<f64>,
        shifts: &[f64],
        full: bool,
    ) -> Result<(Array2<f64>, Vec<Array3<f64>>)> {
        let parts = self.parts(passes, x)?;
        let variances = outer(&parts.variances(self.noise, &self.eigenvalues), &self.amplitudes);
        let (n, c) = variances.dim();
        let covariance = |shift: &f64| {
            Array3::from_shape_fn((n, c, if full { c } else { 1 }), |(i, a, b)| {
                if !full || a == b { variances[[i, a]] / shift } else { 0.0 }
            })
        };
        Ok((parts.z, shifts.iter().map(covariance).collect()))
    }

    fn pack<'a>(&'a self, bundle: &mut Bundle<'a>) {
        bundle.set("landmark_kernel", self.kernel.to_string());
        bundle.set("process_noise", self.noise);
        bundle.put("landmarks", self.landmarks.view());
        bundle.put("root", self.root.view());
        for (name, row) in
            [("scale", &self.scale), ("eigenvalues", &self.eigenvalues), ("amplitudes", &self.amplitudes)]
        {
            bundle.put(name, row.view().insert_axis(Axis(0)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::Cholesky;
    use crate::rng::Rng;

    fn units(n: usize, q: usize, seed: u64) -> Array2<f64> {
        let mut rng = Rng::new(seed);
        Array2::from_shape_simple_fn((n, q), || rng.normal())
    }

    /// With every row a landmark, v is `k(x,x) − k_x(K + σ²)⁻¹k_xᵀ`; it falls at the rows, and far from them it is that of the prior.
    #[test]
    fn all_rows_as_landmarks_are_the_dense_posterior() {
        let (h, mut new) = (units(25, 3, 1), units(12, 3, 2));
        new.slice_mut(s![6..9, ..]).assign(&h.slice(s![..3, ..]));
        new.slice_mut(s![9.., ..]).mapv_inplace(|v| v + 1e3);
        let process = FixedMean::on_landmarks(25, h.view(), &FitContext::default()).unwrap();
        let (rest, squares) = process.features(new.view()).unwrap();
        let parts = Parts { z: Array2::zeros((12, 1)), prior: Array1::ones(12), rest, squares };
        let [x, z] = [&h, &new].map(|h| h * &process.scale);
        let gram = gram::<f64>(&process.kernel, x.view(), Device::Cpu).unwrap();
        let across = gram_cross::<f64>(&process.kernel, z.view(), x.view(), Device::Cpu).unwrap();
        for noise in [0.01, 1.0] {
            let dense = Cholesky::new(Device::Cpu, (&gram + &(Array2::<f64>::eye(25) * noise)).view()).unwrap();
            let solved = dense.solve(across.t()).unwrap();
            let want = 1.0 - (&across.t() * &solved).sum_axis(Axis(0));
            let found = parts.variances(noise, &process.eigenvalues);
            assert!(found.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-6), "{found} {want}");
            assert!(found.slice(s![6..9]).iter().all(|v| *v < noise / (1.0 + noise) + 1e-6));
            assert!(found.slice(s![9..]).iter().all(|v| (v - 1.0).abs() < 1e-9));
        }
    }

    #[test]
    fn derivatives_of_the_loss_are_its_differences() {
        let (z, variances) = (units(40, 3, 3) * 2.0, units(40, 1, 4).column(0).mapv(|v| v * v + 0.1));
        let mut rng = Rng::new(5);
        let classes = Likelihood::Classes((0..40).map(|_| rng.below(3)).collect());
        let numbers = Likelihood::Numbers((0..40).map(|_| rng.normal()).collect());
        for (likelihood, z, at) in
            [(classes, z.clone(), vec![0.3, -1.0, 2.0]), (numbers, z.slice(s![.., ..1]).to_owned(), vec![-0.5, 0.7])]
        {
            let (_, gradient) = loss(&at, &z, &variances, &likelihood);
            for j in 0..at.len() {
                let [up, down] = [1e-5, -1e-5].map(|step| {
                    let mut moved = at.clone();
                    moved[j] += step;
                    loss(&moved, &z, &variances, &likelihood).0
                });
                assert!((gradient[j] - (up - down) / 2e-5).abs() < 1e-8, "{j}: {gradient:?}");
            }
        }
    }
}
