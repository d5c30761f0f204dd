//! The finish: Rayleigh–Ritz within the span of the functions, in double precision over a large sample.

use super::probe::directions;
use super::{FunctionOperator, Functions, Own, Sample};
use crate::compute::Device;
use crate::linalg::{eigh, matmul};
use crate::spectrum::ritz::orthonormalise;
use crate::spectrum::zero_threshold;
use crate::{Error, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView2, Axis, concatenate, s};

/// The best eigenpairs of `K` within a span: `ψ = Φ A`. Example: [the module](super).
pub struct Pairs {
    /// Eigenvalues of `K`, descending after Rayleigh–Ritz; fewer than asked for where the span has fewer dimensions.
    pub eigenvalues: Vec<f64>,
    /// `A` `[p, k]`, for the functions without their norms ([`Functions::forget_norm`]), and without their means where the operator has no
    /// constants.
    pub coefficients: Array2<f64>,
    /// `ψ` `[B·c, k]` on the sample, after Rayleigh–Ritz orthonormal there.
    pub values: Array2<f64>,
    /// `‖Kψ_j − μ_jψ_j‖` on the sample.
    pub residuals: Vec<f64>,
}

impl Pairs {
    /// The mean over the k pairs asked for of `min(1, ‖Kψ_j − μ_jψ_j‖/μ_j)`: the certificate's residual on the sample.
    /// A pair whose eigenvalue is numerically zero counts as exact, a missing one as wrong.
    pub fn mean_residual(&self, k: usize, roundoff: f64) -> f64 {
        let zero = zero_threshold(roundoff, self.largest());
        let exact = |μ: f64, r: f64| μ.abs() <= zero && r.is_finite();
        let found = self.eigenvalues.iter().zip(&self.residuals);
        let sum: f64 = found.map(|(&μ, &r)| if exact(μ, r) { 0.0 } else { (r / μ.abs()).min(1.0) }).sum();
        (sum + k.saturating_sub(self.eigenvalues.len()) as f64) / k as f64
    }

    /// The largest eigenvalue.
    pub(super) fn largest(&self) -> f64 {
        self.eigenvalues.iter().fold(0.0, |a, b| a.max(*b))
    }
}

/// The squared error of single precision is some 1e-15; at this share a direction is known to a percent.
const NOISE: f64 = 1e-11;

/// Solves `Π a = μ Σ a`, `Σ = ⟨φ,φᵀ⟩`, `Π = ⟨φ,Kφᵀ⟩`, over the points of `sample`, for at most `k` pairs.
///
/// The functions are made orthonormal first, for the reason given at [`crate::spectrum::rayleigh_ritz`].
/// Example: [the module](super).
pub fn rayleigh_ritz(
    operator: &dyn FunctionOperator,
    functions: &mut Functions,
    sample: &Sample,
    k: usize,
) -> Result<Pairs> {
    let phi = values(operator, functions, sample)?;
    within_span(phi.view(), k, |q, w| operator.image(sample, q, w, functions))
}

/// What [`ordered`] found: `ψ = (Φ − b) A`.
pub(crate) struct Ordered {
    pub pairs: Pairs,
    /// b `[p]`
    pub mean: Array1<f64>,
    /// γ
    pub gamma: f64,
}

/// The same with a ridge, for an operator that is known through pairs: solves `Π a = μ (Σ + γI) a`, where γ is the share `ridge` of the mean variance of the
/// functions; `by_direction` takes `φ/‖φ‖` for φ. `Σ + γI` and `Π` are what views have whose functions carry independent noise of variance γ: a direction counts as far
/// as its variance stands out from it.
pub(crate) fn ordered(
    operator: &dyn FunctionOperator,
    functions: &mut Functions,
    sample: &Sample,
    k: usize,
    ridge: f64,
    by_direction: bool,
) -> Result<Ordered> {
    let mut phi = bare_values(functions, sample)?;
    if by_direction {
        phi = directions(phi);
    }
    let mean = phi.mean_axis(Axis(0)).expect("there are points");
    phi -= &mean;
    let (pairs, gamma) = within_noisy_span(phi.view(), k, ridge, |q, w| operator.image(sample, q, w, functions))?;
    Ok(Ordered { pairs, mean, gamma })
}

/// [`within_span`] with a ridge, for centred values `Φ` `[m, p]`; returns γ, too. The noise is p more rows `√(mγ) I` below Φ, where K gives zero.
pub(crate) fn within_noisy_span(
    phi: ArrayView2<f64>,
    k: usize,
    ridge: f64,
    image: impl FnOnce(ArrayView2<f64>, ArrayView2<f64>) -> Result<Array2<f64>>,
) -> Result<(Pairs, f64)> {
    let (m, p) = phi.dim();
    let gamma = ridge * phi.iter().map(|v| v * v).sum::<f64>() / (m * p) as f64;
    if gamma == 0.0 {
        return Ok((within_span(phi, k, image)?, 0.0));
    }
    let noise = Array2::from_diag_elem(p, (m as f64 * gamma).sqrt());
    let rows = concatenate(Axis(0), &[phi, noise.view()]).expect("as many functions");
    let mut pairs = within_span(rows.view(), k, |q, w| {
        let of_pairs = image(q.slice(s![..m, ..]), w)?;
        let below = Array2::zeros((p, q.ncols()));
        Ok(concatenate(Axis(0), &[of_pairs.view(), below.view()]).expect("as many functions"))
    })?;
    // Means are over m + p rows there.
    let share = (m as f64 / (m + p) as f64).sqrt();
    pairs.coefficients *= share;
    pairs.values = pairs.values.slice(s![..m, ..]).to_owned() * share;
    Ok((pairs, gamma))
}

/// The functions as their objective has them, each with its Rayleigh quotient `μ_j = ⟨ψ_j,Kψ_j⟩`, in the objective's order.
///
/// A function that repeats an earlier one is no further eigenfunction, however small its residual. So that counts, too:
/// `r_j² = ‖Kψ_j − μ_jψ_j‖² + μ_j² Σ_{i<j} ⟨ψ_i,ψ_j⟩²`.
pub(super) fn own_pairs(
    operator: &dyn FunctionOperator,
    functions: &mut Functions,
    sample: &Sample,
    own: Own,
) -> Result<Pairs> {
    let phi = values(operator, functions, sample)?;
    let (values, coefficients) = normalised(phi.view(), own == Own::InOrder);
    let image = finite_image(operator.image(sample, values.view(), coefficients.view(), functions)?)?;
    let m = phi.nrows() as f64;
    let (mut eigenvalues, mut residuals) = (vec![], vec![]);
    for (j, (psi, image)) in values.columns().into_iter().zip(image.columns()).enumerate() {
        let μ = psi.dot(&image) / m;
        let error = &image - &(μ * &psi);
        let repeated: f64 =
            values.slice(s![.., ..j]).columns().into_iter().map(|o| (μ * o.dot(&psi) / m).powi(2)).sum();
        let there = psi.iter().any(|v| *v != 0.0);
        eigenvalues.push(μ);
        residuals.push(if there { (error.dot(&error) / m + repeated).sqrt() } else { f64::INFINITY });
    }
    Ok(Pairs { eigenvalues, coefficients, values, residuals })
}

/// `ψ = ΦW`, each function of Φ `[m, p]` brought to norm one and, where wanted, orthogonal to those before it; and W `[p, p]`.
/// A function that is zero, or that those before it span, is zero.
fn normalised(phi: ArrayView2<f64>, orthogonal: bool) -> (Array2<f64>, Array2<f64>) {
    let (m, p) = (phi.nrows() as f64, phi.ncols());
    let (mut psi, mut w) = (phi.to_owned(), Array2::eye(p));
    for j in 0..p {
        let before = psi.column(j).dot(&psi.column(j));
        // Twice, because the first time leaves rounding of what it takes away.
        let passes = if orthogonal { 2 } else { 0 };
        for i in (0..passes).flat_map(|_| 0..j) {
            let along = psi.column(i).dot(&psi.column(j)) / m;
            let (earlier, of_earlier) = (psi.column(i).to_owned(), w.column(i).to_owned());
            psi.column_mut(j).scaled_add(-along, &earlier);
            w.column_mut(j).scaled_add(-along, &of_earlier);
        }
        let left = psi.column(j).dot(&psi.column(j));
        let factor = if left > NOISE * before { 1.0 / (left / m).sqrt() } else { 0.0 };
        psi.column_mut(j).mapv_inplace(|v| v * factor);
        w.column_mut(j).mapv_inplace(|v| v * factor);
    }
    (psi, w)
}

/// Φ `[m, p]` on the sample, without the norms of the functions, and without their means where the operator has no constants.
fn values(operator: &dyn FunctionOperator, functions: &mut Functions, sample: &Sample) -> Result<Array2<f64>> {
    let mut phi = bare_values(functions, sample)?;
    if let Some(mean) = phi.mean_axis(Axis(0)).filter(|_| operator.without_constants()) {
        phi -= &mean;
    }
    Ok(phi)
}

/// Φ `[m, p]` on the sample, without the norms of the functions.
fn bare_values(functions: &mut Functions, sample: &Sample) -> Result<Array2<f64>> {
    functions.calibrate(&sample.x)?;
    functions.forget_norm()?;
    let phi = functions.columns(&sample.x)?;
    fail_if!(
        phi.iter().any(|v| !v.is_finite());
        Error::Numerical("a network's output is not finite; use a smaller learning rate".into())
    );
    Ok(phi)
}

fn finite_image(image: Array2<f64>) -> Result<Array2<f64>> {
    fail_if!(
        image.iter().any(|v| !v.is_finite());
        Error::Numerical("the operator's action on the networks is not finite; scale the data".into())
    );
    Ok(image)
}

/// The same for functions known by their values `Φ` `[m, p]` alone; `image` gives `K(ΦW)` for `ΦW` and `W` `[p, r]`.
pub(crate) fn within_span(
    phi: ArrayView2<f64>,
    k: usize,
    image: impl FnOnce(ArrayView2<f64>, ArrayView2<f64>) -> Result<Array2<f64>>,
) -> Result<Pairs> {
    let (q, w) = orthonormalise(phi, NOISE)?;
    let image = finite_image(image(q.view(), w.view())?)?;
    let m = phi.nrows() as f64;
    let t = matmul(q.t(), image.view()) / m;
    let (eigenvalues, v) = eigh(Device::Cpu, ((&t + &t.t()) * 0.5).view())?;
    let k = k.min(eigenvalues.len());
    let v = v.slice(s![.., ..k]);
    let eigenvalues = eigenvalues[..k].to_vec();
    let (values, image) = (matmul(q.view(), v), matmul(image.view(), v));
    let error = image - &values * &Array1::from(eigenvalues.clone());
    let residuals = error.axis_iter(Axis(1)).map(|e| (e.dot(&e) / m).sqrt()).collect();
    Ok(Pairs { coefficients: matmul(w.view(), v), eigenvalues, values, residuals })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FitContext;
    use crate::kernel::Kernel;
    use crate::net::Description;
    use crate::rng::Rng;
    use crate::spectrum::neural::{OnData, ViewPairs, partners};

    /// Two networks with the same parameters are one function, and however good it is, the second pair is missing.
    #[test]
    fn a_function_that_repeats_another_counts_as_wrong() {
        let x = Array2::from_shape_fn((60, 1), |(i, _)| i as f64 / 15.0 - 2.0);
        let kernel = Kernel::parse("rbf(1)").unwrap();
        let kernel = FitContext::default().kernel_operator(&kernel, x.view()).unwrap();
        let operator = OnData::new(&kernel).unwrap();
        let sample = operator.sample(Device::Cpu, &mut Rng::new(2), 60).unwrap();
        let net = "dense(8) tanh dense(1)";
        let mut functions = Functions::networks(net, 1, 2, true, Device::Cpu, &Rng::new(1)).unwrap();
        let mut parameters = functions.parameters().trained.to_host().unwrap();
        let half = parameters.len() / 2;
        parameters.copy_within(..half, half);
        functions.parameters_mut().trained.copy_from_host(&parameters).unwrap();
        for own in [Own::Networks, Own::InOrder] {
            let pairs = own_pairs(&operator, &mut functions, &sample, own).unwrap();
            let alone = (pairs.residuals[0] / pairs.eigenvalues[0]).min(1.0);
            assert!((pairs.mean_residual(2, operator.roundoff()) - 0.5 * (1.0 + alone)).abs() < 1e-6, "{own:?}");
        }
    }

    /// `R a = μ (Σ + γI) a` and `aᵀ(Σ + γI)a = 1` by dense matrices of the pairs, and Rayleigh–Ritz itself where the ridge is tiny.
    #[test]
    fn a_ridge_is_noise_on_the_functions() {
        let mut rng = Rng::new(5);
        let shared = rng.normals((300, 3));
        let mut view = || {
            Array2::from_shape_fn((300, 4), |(i, c)| {
                if c < 3 { shared[[i, c]] + 0.5 * c as f64 * rng.normal() } else { rng.normal() }
            })
        };
        let pairs = ViewPairs::given(view().view(), view().view()).unwrap();
        let net = Description::parse("dense(6) tanh dense(5)").unwrap();
        let mut functions = Functions::units(&net, 4, [false, false], Device::Cpu, &Rng::new(2)).unwrap();
        let sample = pairs.sample(Device::Cpu, &mut Rng::new(3), 300).unwrap();
        for by_direction in [false, true] {
            check_order(&pairs, &mut functions, &sample, by_direction);
        }
        let plain = rayleigh_ritz(&pairs, &mut functions, &sample, 5).unwrap();
        for ridge in [0.0, 1e-9] {
            let near = ordered(&pairs, &mut functions, &sample, 5, ridge, false).unwrap().pairs;
            assert!(plain.eigenvalues.iter().zip(&near.eigenvalues).all(|(a, b)| (a - b).abs() < 1e-6));
        }
    }

    fn check_order(pairs: &ViewPairs, functions: &mut Functions, sample: &Sample, by_direction: bool) {
        let Ordered { pairs: found, mean, gamma } = ordered(pairs, functions, sample, 5, 0.3, by_direction).unwrap();
        let mut phi = functions.columns(&sample.x).unwrap();
        for mut row in phi.rows_mut().into_iter().filter(|_| by_direction) {
            let norm = row.dot(&row).sqrt();
            row /= norm;
        }
        phi -= &mean;
        assert!(phi.mean_axis(Axis(0)).unwrap().iter().all(|v| v.abs() < 1e-12));
        let of = |a: ArrayView2<f64>, b: ArrayView2<f64>| a.t().dot(&b) / 600.0;
        let (sigma, r) = (of(phi.view(), phi.view()), of(phi.view(), partners(phi.view()).view()));
        assert!((gamma - 0.3 * sigma.diag().sum() / 5.0).abs() < 1e-12);
        let noisy = &sigma + &(Array2::<f64>::eye(5) * gamma);
        let a = &found.coefficients;
        let μ = Array2::from_diag(&Array1::from(found.eigenvalues.clone()));
        assert!((r.dot(a) - noisy.dot(a).dot(&μ)).iter().all(|d| d.abs() < 1e-9));
        assert!((a.t().dot(&noisy).dot(a) - Array2::<f64>::eye(5)).iter().all(|d| d.abs() < 1e-9));
        assert!((phi.dot(a) - &found.values).iter().all(|d| d.abs() < 1e-9));
    }

    #[test]
    fn functions_are_brought_to_norm_one_in_their_order() {
        let phi = Array2::from_shape_fn((40, 3), |(i, j)| (i as f64 / 7.0).sin().powi(j as i32 + 1) + 0.3 * j as f64);
        for orthogonal in [false, true] {
            let (psi, w) = normalised(phi.view(), orthogonal);
            assert!((phi.dot(&w) - &psi).iter().all(|d| d.abs() < 1e-12));
            let gram = psi.t().dot(&psi) / 40.0;
            let other = |i: usize, j: usize| if orthogonal { f64::from(u8::from(i == j)) } else { gram[[i, j]] };
            let want = Array2::from_shape_fn((3, 3), |(i, j)| if i == j { 1.0 } else { other(i, j) });
            assert!((gram - want).iter().all(|d| d.abs() < 1e-12));
            // Each is made of those up to it.
            assert!((0..3).all(|j| (j + 1..3).all(|i| w[[i, j]] == 0.0)));
        }
    }
}
