//! SpIN: spectral inference networks, ordered by a masked gradient through a Cholesky factor.

use super::OnDevice;
use super::objective::{MovingAverage, Objective, Outcome, Step, mix};
use crate::compute::{self, Device, Store, Tensor, gemm};
use crate::linalg::{Cholesky, solve_lower, solve_lower_transposed};
use crate::model::Bundle;
use crate::{Error, Result};
use ndarray::{Array2, ArrayView2, s};

/// Maximises `Tr Λ`, `Λ = L⁻¹ΠL⁻ᵀ`, `Σ = ⟨ψ,ψᵀ⟩ = LLᵀ`, `Π = ⟨ψ,Kψᵀ⟩`, where `ψ_i` follows the gradient of `Λ_ii`
/// alone: `Λ_jj` depends on `ψ_i` for all `i ≤ j`, and without the mask the functions would find the span but no order.
///
/// With `A = L⁻ᵀ diag(L)⁻¹` and `G = L⁻ᵀ triu(Λ diag(L)⁻¹)` the masked gradient is
/// `∂Λ_ii/∂θ_i = 2 Σ_b A_bi ⟨∂ψ_i,Kψ_b⟩ − 2 Σ_b G_bi ⟨∂ψ_i,ψ_b⟩`.
///
/// It is not linear in Σ, so the mean of a batch's gradient is not the gradient of the mean. Hence two moving averages,
/// faster than the parameters: of Σ, from which L comes, and of its Jacobian `J_b = ⟨∂ψ_i,ψ_b⟩`, k times as many
/// numbers as there are parameters. That needs networks without a shared trunk.
pub struct Spin {
    sigma: MovingAverage,
    /// `J_b` `[P]` for each b, each network's part in the place of its parameters.
    jacobian: Vec<Tensor>,
    decay: f64,
    scratch: Option<[Tensor; 2]>,
    /// A Jacobian from a checkpoint, until the next step gives it a device: `[k, P]`.
    loaded: Option<Array2<f64>>,
}

impl Spin {
    /// With moving averages that keep the share `decay` of their value at each step; 0.99 is published, 0 takes the
    /// batch's own.
    pub fn new(decay: f64) -> Result<Self> {
        if !(0.0..1.0).contains(&decay) {
            return Err(Error::input(format!("SpIN's decay must lie in [0, 1), got {decay}")));
        }
        Ok(Spin { sigma: MovingAverage::new(decay), jacobian: vec![], decay, scratch: None, loaded: None })
    }

    /// Gives a Jacobian from a checkpoint, if there is one, its device.
    fn unload(&mut self, device: Device, length: usize) -> Result<()> {
        if let Some(loaded) = self.loaded.take() {
            let row = |row: ArrayView2<f64>| row.iter().map(|v| *v as f32).collect::<Vec<f32>>();
            let tensor = |b| Tensor::from_host(device, &[length], &row(loaded.slice(s![b..=b, ..])));
            self.jacobian = (0..loaded.nrows()).map(tensor).collect::<Result<_>>()?;
        }
        Ok(())
    }

    /// Share of the old value that the moving averages keep at each step.
    pub(super) fn decay(&self) -> f64 {
        self.decay
    }

    /// The averages for steps that `device` makes by itself: of Σ, where it has begun, and of the Jacobian, `length`
    /// numbers for each of `k` functions, zeros where it has not. [`Spin::take_back`] ends it.
    pub(super) fn lend(
        &mut self,
        device: Device,
        k: usize,
        length: usize,
    ) -> Result<(Option<&Array2<f64>>, Vec<Tensor>)> {
        self.unload(device, length)?;
        let mut jacobian = std::mem::take(&mut self.jacobian);
        if jacobian.is_empty() {
            jacobian = (0..k).map(|_| Tensor::zeros(device, &[length])).collect::<Result<_>>()?;
        }
        Ok((self.sigma.value.as_ref(), jacobian))
    }

    /// The averages after those steps; none where they have not begun.
    pub(super) fn take_back(&mut self, sigma: Option<Array2<f64>>, jacobian: Vec<Tensor>) {
        self.jacobian = if sigma.is_some() { jacobian } else { vec![] };
        self.sigma.value = sigma;
    }

    /// `J̄_b ← β J̄_b + (1 − β) ⟨∂ψ_i,ψ_b⟩`: one backward pass for each b, with `ψ_b` as every network's cotangent.
    fn update_jacobian(&mut self, step: &mut Step<'_>, cotangent: &mut Tensor) -> Result<()> {
        let k = step.psi.shape()[0];
        let length = step.functions.network().parameters();
        self.unload(step.psi.device(), length)?;
        let first = self.jacobian.is_empty();
        for b in 0..k {
            let mut pick = Array2::zeros((k, k));
            pick.column_mut(b).fill(1.0 / step.points() as f64);
            mix(&pick, step.psi, Store::Replace, cotangent)?;
            step.backward(cotangent)?;
            if first {
                self.jacobian.push(step.gradient.clone());
            } else {
                compute::scale(self.decay as f32, &mut self.jacobian[b]);
                compute::axpy((1.0 - self.decay) as f32, step.gradient, &mut self.jacobian[b]);
            }
        }
        Ok(())
    }
}

/// What the masked gradient is made of.
pub(super) struct Masked {
    /// `Λ` `[k, k]`
    pub lambda: Array2<f64>,
    /// `A = L⁻ᵀ diag(L)⁻¹` `[k, k]`
    pub a: Array2<f64>,
    /// `G = L⁻ᵀ triu(Λ diag(L)⁻¹)` `[k, k]`
    pub g: Array2<f64>,
    factor: Cholesky<f64>,
}

impl Masked {
    pub fn new(sigma: &Array2<f64>, pi: &Array2<f64>) -> Result<Masked> {
        let k = sigma.nrows();
        let factor = cholesky(sigma)?;
        let l = factor.lower()?;
        let mut a = Array2::from_diag(&(0..k).map(|i| 1.0 / l[(i, i)]).collect::<ndarray::Array1<f64>>());
        let lambda = rotated(&factor, pi)?;
        let mut g = Array2::from_shape_fn((k, k), |(j, i)| if j <= i { lambda[[j, i]] / l[(i, i)] } else { 0.0 });
        solve_lower_transposed(l, a.view_mut());
        solve_lower_transposed(l, g.view_mut());
        Ok(Masked { lambda, a, g, factor })
    }
}

/// `L⁻¹ΠL⁻ᵀ`
fn rotated(factor: &Cholesky<f64>, pi: &Array2<f64>) -> Result<Array2<f64>> {
    let mut half = (pi + &pi.t()) * 0.5;
    solve_lower(factor.lower()?, half.view_mut());
    let mut whole = half.t().to_owned();
    solve_lower(factor.lower()?, whole.view_mut());
    Ok(whole)
}

/// The Cholesky factor of Σ, with as much of the identity added as it takes: functions may coincide.
fn cholesky(sigma: &Array2<f64>) -> Result<Cholesky<f64>> {
    let size = (sigma.diag().sum() / sigma.nrows() as f64).max(f64::MIN_POSITIVE);
    let mut jitter = 1e-7 * size;
    loop {
        let factor = Cholesky::new(Device::Cpu, (sigma + Array2::<f64>::eye(sigma.nrows()) * jitter).view());
        if factor.is_ok() || jitter > size || !jitter.is_finite() {
            return factor;
        }
        jitter *= 10.0;
    }
}

impl Objective for Spin {
    fn name(&self) -> &'static str {
        "spin"
    }

    fn describe(&self) -> String {
        format!("spin (decay {})", self.decay)
    }

    fn on_device(&mut self) -> Option<OnDevice<'_>> {
        Some(OnDevice::Spin(self))
    }

    fn step(&mut self, step: &mut Step<'_>) -> Result<Outcome> {
        let (k, m) = (step.psi.shape()[0], step.points() as f64);
        let device = step.psi.device();
        let masked = Masked::new(self.sigma.update(step.covariance), step.r)?;
        let [mut g, mut total] = match self.scratch.take() {
            Some(scratch) => scratch,
            None => [Tensor::zeros(device, &[0])?, Tensor::zeros(device, &[0])?],
        };
        self.update_jacobian(step, &mut g)?;
        // −∂Λ_ii/∂θ_i: the part of Π by one backward pass, the part of Σ from the averaged Jacobian.
        mix(&(&masked.a.t() * (-2.0 / m)), step.kpsi, Store::Replace, &mut g)?;
        step.backward(&g)?;
        total.reshape(&[step.gradient.len()])?;
        compute::copy(step.gradient, &mut total);
        let own = total.len() / k;
        for (b, jacobian) in self.jacobian.iter().enumerate() {
            let row: Vec<f32> = masked.g.row(b).iter().map(|v| 2.0 * *v as f32).collect();
            let row = Tensor::from_host(device, &[k, 1, 1], &row)?;
            let jacobian = jacobian.matrices(0, own, 1, own);
            gemm(1.0, row.matrices(0, 1, 1, 1), jacobian, Store::Add, total.matrices_mut(0, own, k, 1, own));
        }
        compute::copy(&total, step.gradient);
        self.scratch = Some([g, total]);
        let eigenvalues = rotated(&masked.factor, step.unbiased)?.diag().to_vec();
        Ok(Outcome { loss: -masked.lambda.diag().sum(), eigenvalues })
    }

    fn save(&self, bundle: &mut Bundle) {
        self.sigma.save("spin.sigma", bundle);
        let rows: Vec<Vec<f32>> = self.jacobian.iter().filter_map(|j| j.to_host().ok()).collect();
        let length = rows.first().map_or(0, Vec::len);
        let jacobian = Array2::from_shape_fn((rows.len(), length), |(b, p)| f64::from(rows[b][p]));
        bundle.put("spin.jacobian", self.loaded.clone().unwrap_or(jacobian));
    }

    fn load(&mut self, bundle: &Bundle) -> Result<()> {
        self.sigma.load("spin.sigma", bundle)?;
        let jacobian = bundle.matrix("spin.jacobian")?;
        self.jacobian.clear();
        self.loaded = (!jacobian.is_empty()).then_some(jacobian);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// `Λ_ii` by itself, from functions at m points `u` `[k, m]` and a symmetric `K` `[m, m]`.
    fn lambda_ii(u: &Array2<f64>, kernel: &Array2<f64>, i: usize) -> f64 {
        let m = u.ncols() as f64;
        let (sigma, pi) = (u.dot(&u.t()) / m, u.dot(&kernel.dot(&u.t())) / m);
        let factor = Cholesky::new(Device::Cpu, sigma.view()).unwrap();
        rotated(&factor, &pi).unwrap()[[i, i]]
    }

    #[test]
    fn the_masked_gradient_is_that_of_its_own_eigenvalue_alone() {
        let (k, m) = (4, 12);
        let mut rng = Rng::new(3);
        let u = Array2::from_shape_simple_fn((k, m), || rng.normal());
        let b = Array2::from_shape_simple_fn((m, m), || rng.normal());
        let kernel = b.dot(&b.t()) / m as f64;
        let (sigma, pi) = (u.dot(&u.t()) / m as f64, u.dot(&kernel.dot(&u.t())) / m as f64);
        let masked = Masked::new(&sigma, &pi).unwrap();
        // ∂Λ_ii/∂u_i(x) = (2/m) (Σ_b A_bi Ku_b(x) − Σ_b G_bi u_b(x))
        let gradient = (masked.a.t().dot(&u.dot(&kernel)) - masked.g.t().dot(&u)) * (2.0 / m as f64);
        for i in 0..k {
            for x in 0..m {
                let at = |h: f64| {
                    let mut u = u.clone();
                    u[[i, x]] += h;
                    lambda_ii(&u, &kernel, i)
                };
                let difference = (at(1e-5) - at(-1e-5)) / 2e-5;
                assert!((difference - gradient[[i, x]]).abs() < 1e-5, "{i} {x}: {difference} {}", gradient[[i, x]]);
            }
        }
    }

    #[test]
    fn coinciding_functions_are_told_apart_by_jitter() {
        let sigma = Array2::from_elem((3, 3), 1.0);
        let masked = Masked::new(&sigma, &sigma).unwrap();
        assert!(masked.a.iter().chain(&masked.g).all(|v| v.is_finite()));
    }
}
