//! Random Fourier features.

use super::covariance;
use super::random_features::{FEATURES, SAMPLING};
use super::random_features::{Form, RandomFeatures, require};
use super::ritz::{MOST_RITZ_POINTS, ritz_pairs};
use super::{BlockProblem, BlockSize, Method, Problem, Sampling, Size, Solution};
use crate::context::ONE_STEP;
use crate::kernel::{Formula, Kernel, Lift, with_formula};
use crate::operator::{Extension, Precision};
use crate::options::{Entry, Opt};
use crate::rng::Rng;
use crate::{Error, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView1, Axis, concatenate, s};

static RITZ: Opt = Opt::flag("ritz", "solve for the kernel itself within the span of the features (Rayleigh–Ritz)");

/// Random Fourier features: the eigenpairs of a shift-invariant kernel within the span of random waves.
///
/// ```
/// use mercer::{FitContext, kernel::Kernel, spectrum::{Fourier, Problem, Sampling, Spectrum}};
/// let x = ndarray::Array2::from_shape_fn((1000, 1), |(i, _)| i as f64 / 250.0 - 2.0);
/// let operator = FitContext::default().kernel_operator(&Kernel::parse("rbf(1)")?, x.view())?;
/// let method = Fourier { features: 200, sampling: Sampling::QuasiMonteCarlo, ritz: true };
/// let spectrum = Spectrum::fit(&method, &Problem::new(&operator, 3), None)?;
/// assert!(spectrum.certificate.worst_residual() < 1e-4);
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Fourier {
    /// How many features: an even number, a cosine and a sine for each frequency.
    pub features: usize,
    /// How the frequencies are drawn.
    pub sampling: Sampling,
    /// Whether the pairs are those of the true kernel within the span of the features (Rayleigh–Ritz on at most
    /// 8192 points, as for networks) rather than those of the kernel that the features approximate.
    pub ritz: bool,
}

impl Fourier {
    /// 1000 features, or twice as many as pairs where that is more, of orthogonal frequencies.
    pub fn usual(k: usize) -> Fourier {
        Fourier { features: (2 * k).max(1000), sampling: Sampling::default(), ritz: false }
    }

    pub(crate) fn entry() -> Entry<Size> {
        Entry {
            aliases: &["random-features"],
            ..Entry::<Size>::new(
                "rff",
                "approximate, from random Fourier features; for shift-invariant kernels",
                vec![&FEATURES, &SAMPLING, &RITZ],
                |o, size| {
                    let usual = Fourier::usual(size.k);
                    let features = o.take(&FEATURES)?.unwrap_or(usual.features);
                    let sampling = o.take_word(&SAMPLING, &Sampling::NAMED)?.unwrap_or(usual.sampling);
                    Ok(Box::new(Fourier { features, sampling, ritz: o.flag(&RITZ)? }))
                },
            )
        }
    }
}

impl Method for Fourier {
    fn name(&self) -> String {
        "rff".into()
    }

    fn blocks(&self) -> Option<BlockSize> {
        (!self.ritz).then_some(BlockSize { features: self.features, landmarks: 0 })
    }

    fn solve(&self, problem: &Problem) -> Result<Solution> {
        let kernel = problem.kernel("random Fourier features")?;
        let (x, (n, d)) = (kernel.x(), kernel.x().dim());
        let (count, sampling) = (self.features, self.sampling);
        let sample = if self.ritz { MOST_RITZ_POINTS.min(n) as u64 } else { 0 };
        let at_sample = (3 * 8 * sample).saturating_mul(count as u64);
        require(problem, count, d, covariance::memory(count, 8).saturating_add(at_sample))?;
        let features = RandomFeatures::fourier(kernel.formula(), d, count, sampling, problem.context.seed)?;
        let mut features = features.enough(problem.k)?.centred(x);
        if !self.ritz {
            features.precision = problem.context.precision;
            return features.solution(problem, x);
        }
        // Ritz pairs mix features with large coefficients, which single precision would drown: these stay in double.
        problem.context.progress.step("Rayleigh–Ritz", 0, 1, ONE_STEP);
        let (eigenvalues, coefficients) = ritz_pairs(problem, |rows| Ok(features.at(x.select(rows).rows())))?;
        Ok(Solution::new(eigenvalues, Extension { features: Box::new(features), coefficients }))
    }

    fn solve_blocks(&self, problem: &BlockProblem) -> Result<Solution> {
        let (count, context) = (self.features, &problem.context);
        fail_if!(self.ritz, "Rayleigh–Ritz needs all points in memory; take the pairs of the features themselves");
        problem.require(count)?;
        let (kernel, d) = (problem.kernel, problem.data.d());
        let features = RandomFeatures::fourier(kernel, d, count, self.sampling, context.seed)?;
        let mut features = features.enough(problem.k)?.centred_at(problem.data.mean().to_owned());
        features.precision = context.precision;
        features.solution_in_blocks(problem)
    }
}

impl RandomFeatures {
    /// `φ(x) = √(κ(0)/M) [cos ω_1·x, …, cos ω_M·x, sin ω_1·x, …, sin ω_M·x]` with frequencies ω from the kernel's spectral
    /// measure, so that `E[φ(x)·φ(x')] = κ(x−x')`.
    ///
    /// ```
    /// use mercer::{kernel::Kernel, spectrum::{RandomFeatures, Sampling}};
    /// let kernel = Kernel::parse("2*rbf(1) + laplacian(3)")?;
    /// let map = RandomFeatures::fourier(&kernel, 2, 20_000, Sampling::Plain, 0)?;
    /// let x = ndarray::array![[0.0, 0.0], [0.5, -1.0]];
    /// let phi = map.transform::<f64>(x.view())?;
    /// let want = kernel.value(&[0.0, 0.0], &[0.5, -1.0]);
    /// assert!((phi.row(0).dot(&phi.row(1)) - want).abs() < 0.1);
    /// # Ok::<(), mercer::Error>(())
    /// ```
    ///
    /// The kernel must be shift-invariant, on `R^d`, and the number of features even.
    pub fn fourier(kernel: &Kernel, d: usize, features: usize, sampling: Sampling, seed: u64) -> Result<Self> {
        if let Some(base) = kernel.bases().into_iter().find(|base| !base.is_shift_invariant()) {
            return Err(Error::input(format!(
                "random Fourier features need a kernel of x−x' alone, and {base} is not; use {nystrom}",
                nystrom = crate::advice!(Nystrom)
            )));
        }
        kernel.check_columns(d)?;
        fail_if!(d == 0, "random Fourier features need points of at least one column");
        fail_if!(
            features == 0 || features % 2 == 1,
            "random Fourier features come in pairs, a cosine and a sine: ask for an even number, not {features}"
        );
        let mut rng = Rng::new(seed).fork(0x666f_7572);
        let count = features / 2;
        Ok(RandomFeatures {
            form: Form::Waves { centre: Array1::zeros(d) },
            amplitude: (at_zero(kernel) / count as f64).sqrt(),
            directions: frequencies(kernel, d, count, sampling, &mut rng),
            precision: Precision::F64,
        })
    }
}

/// κ(0). Every shift-invariant base kernel is one at zero.
fn at_zero(kernel: &Kernel) -> f64 {
    kernel.combine(&mut |_| 1.0)
}

/// `count` frequencies `[count, d]` of the spectral measure of `κ/κ(0)`: that of a product is the distribution of
/// the sum of its factors' frequencies; that of a sum is the mixture of its terms', each with weight `κ_i(0)`.
fn frequencies(kernel: &Kernel, d: usize, count: usize, sampling: Sampling, rng: &mut Rng) -> Array2<f64> {
    match kernel {
        Kernel::Base(base) => with_formula!(base, formula => draw(formula, d, count, sampling, rng)),
        Kernel::Scale(_, k) => frequencies(k, d, count, sampling, rng),
        Kernel::Sum(ks) => {
            let counts = shares(&ks.iter().map(at_zero).collect::<Vec<_>>(), count, rng.uniform());
            let parts: Vec<_> = ks.iter().zip(counts).map(|(k, c)| frequencies(k, d, c, sampling, rng)).collect();
            let parts: Vec<_> = parts.iter().map(|p| p.view()).collect();
            concatenate(Axis(0), &parts).expect("equal widths")
        }
        Kernel::Product(ks) => {
            let mut sum = Array2::zeros((count, d));
            for k in ks {
                // In random order, so that the frequencies of one factor meet those of another independently.
                let mut order: Vec<usize> = (0..count).collect();
                rng.shuffle(&mut order);
                sum += &frequencies(k, d, count, sampling, rng).select(Axis(0), &order);
            }
            sum
        }
    }
}

/// `count` shared out in proportion to `weights`, each share rounded down or up such that its mean over a uniform
/// `offset` in [0, 1) is exact (systematic sampling).
fn shares(weights: &[f64], count: usize, offset: f64) -> Vec<usize> {
    let total: f64 = weights.iter().sum();
    let (mut sum, mut before) = (0.0, 0);
    let share = |(i, w): (usize, &f64)| {
        sum += w;
        let upto = if i + 1 == weights.len() { count } else { (sum / total * count as f64 + offset).floor() as usize };
        let share = upto.min(count) - before;
        before += share;
        share
    };
    weights.iter().enumerate().map(share).collect()
}

/// `count` frequencies `[count, d]` of a base kernel.
fn draw<F: Formula>(formula: &F, d: usize, count: usize, sampling: Sampling, rng: &mut Rng) -> Array2<f64> {
    let mut normals = sampling.normals(count, d, F::EXTRA_NORMALS, rng);
    for mut row in normals.rows_mut() {
        formula.frequency(row.as_slice_mut().expect("rows lie in memory order"));
    }
    let ω = normals.slice_move(s![.., ..d]);
    // ω·(x/ℓ) = (ω/ℓ)·x
    match formula.columns() {
        Some(lengthscales) if !matches!(formula.lift(d), Lift::Circles(_)) => ω / ArrayView1::from(lengthscales),
        _ => ω,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::Features;

    #[test]
    fn shares_add_up_and_are_fair() {
        let weights = [0.1, 2.0, 0.7];
        let mut means = [0.0; 3];
        for i in 0..1000 {
            let shares = shares(&weights, 7, (i as f64 + 0.5) / 1000.0);
            assert_eq!(shares.iter().sum::<usize>(), 7);
            means.iter_mut().zip(shares).for_each(|(m, s)| *m += s as f64 / 1000.0);
        }
        for (mean, w) in means.iter().zip(weights) {
            assert!((mean - 7.0 * w / 2.8).abs() < 2e-3, "{means:?}");
        }
    }

    #[test]
    fn the_centre_leaves_the_kernel_alone() {
        let kernel = Kernel::parse("matern32(1)").unwrap();
        let mut map = RandomFeatures::fourier(&kernel, 2, 40, Sampling::Plain, 1).unwrap();
        let x = ndarray::array![[1.0, 2.0], [0.5, -0.3], [4.0, 0.0]];
        let before = map.eval(x.view().into()).unwrap();
        map.form = Form::Waves { centre: ndarray::array![0.7, -1.2] };
        let after = map.eval(x.view().into()).unwrap();
        assert!((before.dot(&before.t()) - after.dot(&after.t())).iter().all(|d| d.abs() < 1e-13));
        assert!((&before - &after).iter().any(|d| d.abs() > 1e-3));
    }
}
