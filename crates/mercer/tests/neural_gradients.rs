//! Each objective's gradient against finite differences of the scalar that defines it.

mod common;
#[path = "common/neural.rs"]
mod neural;

use common::*;
use mercer::linalg::{Cholesky, eigh, solve_lower, solve_lower_transposed};
use mercer::spectrum::neural::{
    Functions, Kind, Nested, Nesting, NeuralEf, Objective, Omm, OnData, Ritz, Spin, sample_rows,
};
use neural::{Batch, moved};

const NETWORKS: &str = "dense(6, b=1) tanh dense(1)";
const BATCH: usize = 24;

/// A kernel's points, functions, and the `K/(Bτ)` of a batch of all points in double precision.
struct Setting {
    kernel: KernelOperator<'static>,
    /// Draws the batch.
    rng: Rng,
    functions: Functions,
    k: Array2<f64>,
}

impl Setting {
    fn new(kind: Kind, k: usize) -> Setting {
        let mut rng = Rng::new(11);
        let x = rng.normals((BATCH, 2));
        let functions = kind.functions(NETWORKS, 2, k, Device::Cpu, &Rng::new(5)).unwrap();
        let kernel = on_own(&kernel("rbf(1)"), x);
        let points = kernel.x().select(&sample_rows(&mut rng.clone(), BATCH, BATCH)).into_f64();
        let k = matrix(kernel.formula(), points.view()) / (BATCH as f64 * OnData::new(&kernel).unwrap().trace());
        Setting { kernel, rng, functions, k }
    }

    /// The batch, always the same one, at the functions as they are.
    fn batch(&mut self) -> Batch {
        Batch::draw(&OnData::new(&self.kernel).unwrap(), &mut self.functions, &mut self.rng.clone(), BATCH)
    }

    fn parameters(&self) -> Vec<f32> {
        self.functions.parameters().trained.to_host().unwrap()
    }

    fn set_parameters(&mut self, theta: &[f32]) {
        self.functions.parameters_mut().trained.copy_from_host(theta).unwrap();
    }

    /// ψ `[k, B]` in double precision at parameters `θ + h·d`.
    fn psi(&mut self, d: &[f32], h: f32) -> Array2<f64> {
        let (operator, mut rng) = (OnData::new(&self.kernel).unwrap(), self.rng.clone());
        moved(&mut self.functions, d, h, |functions| Batch::draw(&operator, functions, &mut rng, BATCH).values())
    }

    fn gradient(&mut self, objective: &mut dyn Objective) -> (f64, Vec<f32>) {
        self.batch().gradient(objective, &mut self.functions)
    }

    /// A random direction of unit length in the parameters of one network, or of all.
    fn direction(&self, of: Option<usize>, seed: u64) -> Vec<f32> {
        let network = self.functions.network();
        let own = network.parameters() / network.networks();
        let mut rng = Rng::new(seed);
        let value = |i: usize| if of.is_none_or(|j| i / own == j) { rng.normal() as f32 } else { 0.0 };
        let d: Vec<f32> = (0..network.parameters()).map(value).collect();
        let length = d.iter().map(|d| d * d).sum::<f32>().sqrt();
        d.iter().map(|d| d / length).collect()
    }

    /// `gradient·d` against the central difference of `scalar(ψ)` along `d`, fourth order in the step.
    fn check(&mut self, gradient: &[f32], d: &[f32], scalar: impl Fn(&Setting, &Array2<f64>) -> f64) {
        let h = 0.02;
        let mut at = |h: f32| {
            let psi = self.psi(d, h);
            scalar(self, &psi)
        };
        let difference = (8.0 * (at(h) - at(-h)) - (at(2.0 * h) - at(-2.0 * h))) / (12.0 * f64::from(h));
        let (analytic, size) = along(gradient, d);
        assert!(
            (analytic - difference).abs() < 1e-3 * size.max(1e-3),
            "{analytic} for {difference}, gradient of {size}"
        );
    }

    fn r(&self, psi: &Array2<f64>) -> Array2<f64> {
        psi.dot(&self.k).dot(&psi.t()) / BATCH as f64
    }
}

/// `gradient·d` and the length of the gradient.
fn along(gradient: &[f32], d: &[f32]) -> (f64, f64) {
    let slope = gradient.iter().zip(d).map(|(g, d)| f64::from(*g) * f64::from(*d)).sum();
    (slope, gradient.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt())
}

fn objective(setting: &Setting, kind: Kind, k: usize) -> Box<dyn Objective> {
    kind.objective(&setting.functions, k).unwrap()
}

/// The gradient of `kind` in each of four functions' parameters is that of its own `loss(ψ, j)`, the others held fixed.
/// Returns the loss that the objective reports, and the sum of these.
fn each_follows_its_own(kind: Kind, seed: u64, loss: impl Fn(&Setting, &Array2<f64>, usize) -> f64) -> [f64; 2] {
    let mut setting = Setting::new(kind, 4);
    let mut objective = objective(&setting, kind, 4);
    let (total, gradient) = setting.gradient(objective.as_mut());
    for j in 0..4 {
        let d = setting.direction(Some(j), seed + j as u64);
        setting.check(&gradient, &d, |setting, psi| loss(setting, psi, j));
    }
    let psi = setting.psi(&setting.direction(None, 0), 0.0);
    [total, (0..4).map(|j| loss(&setting, &psi, j)).sum()]
}

/// The gradient of `kind` in all parameters, along a direction for each seed, is that of `loss(ψ)`, which it reports within
/// `tolerance`.
fn all_follow(
    kind: Kind,
    k: usize,
    seeds: std::ops::Range<u64>,
    tolerance: f64,
    loss: impl Fn(&Setting, &Array2<f64>) -> f64,
) {
    let mut setting = Setting::new(kind, k);
    let mut objective = objective(&setting, kind, k);
    let (total, gradient) = setting.gradient(objective.as_mut());
    let psi = setting.psi(&setting.direction(None, 0), 0.0);
    assert!((total - loss(&setting, &psi)).abs() < tolerance);
    for seed in seeds {
        let d = setting.direction(None, seed);
        setting.check(&gradient, &d, &loss);
    }
}

#[test]
fn neuralef_follows_each_functions_own_objective() {
    // ℓ_j = −(R_jj − Σ_{i<j} R_ij²/R_ii)
    let [total, sum] = each_follows_its_own(Kind::NeuralEf(NeuralEf::Published), 20, |setting, psi, j| {
        let r = setting.r(psi);
        (0..j).map(|i| r[[i, j]].powi(2) / r[[i, i]]).sum::<f64>() - r[[j, j]]
    });
    assert!((total - sum).abs() < 1e-5);
}

#[test]
fn joint_neuralef_takes_off_what_the_earlier_functions_span() {
    // ℓ_j = −(R_jj − r_jᵀR⁻¹r_j): with R = LLᵀ the last pivot of j + 1 functions.
    let [total, sum] = each_follows_its_own(Kind::NeuralEf(NeuralEf::Joint), 30, |setting, psi, j| {
        let lower = Cholesky::new(Device::Cpu, setting.r(psi).slice(s![..=j, ..=j])).unwrap();
        -lower.lower().unwrap()[(j, j)].powi(2)
    });
    assert!((total - sum).abs() < 1e-5);
}

/// `L⁻¹ΠL⁻ᵀ` with `Σ = LLᵀ`.
fn rotated(sigma: &Array2<f64>, pi: &Array2<f64>) -> Array2<f64> {
    let factor = Cholesky::new(Device::Cpu, sigma.view()).unwrap();
    let mut half = pi.clone();
    solve_lower(factor.lower().unwrap(), half.view_mut());
    let mut whole = half.t().to_owned();
    solve_lower(factor.lower().unwrap(), whole.view_mut());
    whole
}

#[test]
fn spin_follows_each_functions_own_eigenvalue() {
    // The first step's averages are the batch's own.
    for decay in [0.0, 0.9] {
        let [total, sum] = each_follows_its_own(Kind::Spin(Spin { decay }), 40, |setting, psi, i| {
            -rotated(&(psi.dot(&psi.t()) / BATCH as f64), &setting.r(psi))[[i, i]]
        });
        assert!((total - sum).abs() < 1e-4, "{total} {sum}");
    }
}

/// One backward pass without averages, k + 1 with them: where the averages hold one batch only, the gradient is the same.
#[test]
fn spin_without_averages_has_the_gradient_of_one_batch() {
    let [once, averaged] = [0.0, 0.99].map(|decay| {
        let kind = Kind::Spin(Spin { decay });
        let mut setting = Setting::new(kind, 5);
        let mut spin = objective(&setting, kind, 5);
        assert_eq!(spin.state().is_empty(), decay == 0.0);
        setting.gradient(spin.as_mut()).1
    });
    let size = along(&averaged, &averaged).1;
    assert!(once.iter().zip(&averaged).all(|(a, b)| f64::from((a - b).abs()) < 1e-5 * size), "{once:?} {averaged:?}");
}

/// What follows a gradient without averages does not depend on the batches before it.
#[test]
fn spin_without_averages_remembers_nothing() {
    let kind = Kind::Spin(Spin::default());
    let mut setting = Setting::new(kind, 3);
    let mut spin = objective(&setting, kind, 3);
    let first = setting.gradient(spin.as_mut());
    let (here, shift) = (setting.parameters(), setting.direction(None, 77));
    setting.set_parameters(&here.iter().zip(&shift).map(|(t, d)| t + 1.5 * d).collect::<Vec<f32>>());
    assert_ne!(setting.gradient(spin.as_mut()), first);
    setting.set_parameters(&here);
    assert_eq!(setting.gradient(spin.as_mut()), first);
}

#[test]
fn spin_averages_the_covariance_and_its_jacobian() {
    let (k, decay, kind) = (3, 0.7, Kind::Spin(Spin { decay: 0.7 }));
    let mut setting = Setting::new(kind, k);
    let mut spin = objective(&setting, kind, k);
    setting.gradient(spin.as_mut());
    // Other parameters stand in for another batch: Σ and ∂Σ differ.
    let (before, shift) = (setting.parameters(), setting.direction(None, 77));
    let psi_before = setting.psi(&shift, 0.0);
    let after: Vec<f32> = before.iter().zip(&shift).map(|(t, d)| t + 1.5 * d).collect();
    setting.set_parameters(&after);
    let (_, gradient) = setting.gradient(spin.as_mut());
    let psi_after = setting.psi(&shift, 0.0);
    let mean = |a: &Array2<f64>, b: &Array2<f64>| a.dot(&b.t()) / BATCH as f64;
    let sigma = decay * mean(&psi_before, &psi_before) + (1.0 - decay) * mean(&psi_after, &psi_after);
    let pi = setting.r(&psi_after);
    let lambda = rotated(&sigma, &pi);
    let factor = Cholesky::new(Device::Cpu, sigma.view()).unwrap();
    let l = factor.lower().unwrap();
    let mut a = Array2::from_diag(&Array1::from_shape_fn(k, |i| 1.0 / l[(i, i)]));
    let mut g = Array2::from_shape_fn((k, k), |(j, i)| if j <= i { lambda[[j, i]] / l[(i, i)] } else { 0.0 });
    solve_lower_transposed(l, a.view_mut());
    solve_lower_transposed(l, g.view_mut());
    for i in 0..k {
        let d = setting.direction(Some(i), 60 + i as u64);
        let mut slope = |theta: &[f32]| {
            setting.set_parameters(theta);
            let h = 0.02;
            (setting.psi(&d, h) - setting.psi(&d, -h)) / (2.0 * f64::from(h))
        };
        // ⟨∂ψ_i,ψ_b⟩ along d
        let then = mean(&slope(&before), &psi_before);
        let slope_now = slope(&after);
        let now = mean(&slope_now, &psi_after);
        let image = mean(&slope_now, &psi_after.dot(&setting.k));
        let jacobian = decay * &then + (1.0 - decay) * &now;
        let want: f64 = (0..k).map(|b| -2.0 * a[[b, i]] * image[[i, b]] + 2.0 * g[[b, i]] * jacobian[[i, b]]).sum();
        let (got, size) = along(&gradient, &d);
        assert!((got - want).abs() < 2e-3 * size, "function {i}: {got} for {want}, gradient of {size}");
    }
}

/// `−2 Σ_l m_l R_ll + Σ_lm M_lm Λ_lm Λ'_lm` with the two halves of the batch.
fn nested_loss(
    setting: &Setting,
    f: &Array2<f64>,
    m: impl Fn(usize) -> f64,
    big_m: impl Fn(usize, usize) -> f64,
) -> f64 {
    let r = setting.r(f);
    let half = |range: std::ops::Range<usize>| {
        let part = f.slice(s![.., range.clone()]);
        part.dot(&part.t()) / range.len() as f64
    };
    let (a, b) = (half(0..BATCH / 2), half(BATCH / 2..BATCH));
    let k = f.nrows();
    let penalty: f64 = (0..k * k).map(|i| (i / k, i % k)).map(|(l, o)| big_m(l, o) * a[[l, o]] * b[[l, o]]).sum();
    penalty - 2.0 * (0..k).map(|l| m(l) * r[[l, l]]).sum::<f64>()
}

#[test]
fn nested_follows_the_low_rank_problems() {
    // Function j sees the problem of rank j + 1 alone.
    let one = |inside: bool| f64::from(u8::from(inside));
    each_follows_its_own(Kind::Nested(Nested { nesting: Some(Nesting::Sequential) }), 80, |setting, f, j| {
        nested_loss(setting, f, |l| one(l <= j), |l, o| one(l <= j && o <= j))
    });
    let m = |l: usize| (4 - l) as f64 / 4.0;
    all_follow(Kind::Nested(Nested { nesting: Some(Nesting::Joint) }), 4, 90..91, 1e-5, |setting, f| {
        nested_loss(setting, f, m, |l, o| m(l.max(o)))
    });
}

#[test]
fn omm_follows_the_problem_of_the_functions_up_to_each() {
    each_follows_its_own(Kind::Omm(Omm), 85, |setting, f, j| {
        let (r, lambda) = (setting.r(f), f.dot(&f.t()) / BATCH as f64);
        let first = s![..=j, ..=j];
        (&lambda.slice(first) * &r.slice(first)).sum() - 2.0 * r.slice(first).diag().sum()
    });
}

#[test]
fn ritz_follows_the_trace_that_its_span_captures() {
    all_follow(Kind::Ritz(Ritz), 2, 100..103, 1e-4, |setting, phi| {
        let lambda = rotated(&(phi.dot(&phi.t()) / BATCH as f64), &setting.r(phi));
        -eigh(Device::Cpu, lambda.view()).unwrap().0[..2].iter().sum::<f64>()
    });
}
