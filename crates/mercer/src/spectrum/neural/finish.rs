//! The finish: Rayleigh–Ritz within the span of the functions, in double precision over a large sample.

use super::{FunctionOperator, Functions, Own, Sample};
use crate::compute::Device;
use crate::linalg::{eigh, matmul};
use crate::spectrum::ritz::orthonormalise;
use crate::spectrum::zero_threshold;
use crate::{Error, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView2, Axis, s};

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
    functions.calibrate(&sample.x)?;
    functions.forget_norm()?;
    let mut phi = functions.columns(&sample.x)?;
    if let Some(mean) = phi.mean_axis(Axis(0)).filter(|_| operator.without_constants()) {
        phi -= &mean;
    }
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
    use crate::rng::Rng;
    use crate::spectrum::neural::OnData;

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
