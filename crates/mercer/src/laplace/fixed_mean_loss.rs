//! What the numbers of a process with a fixed mean are found by: the loss on rows, and its derivatives.
//!
//! With the outputs `N(z/T, a² B)` of a row, `log T = φ·t`, `log a² = φ·s` and `B = LLᵀ`, probabilities are the mean of `softmax(z/T + a Lε_s)` over
//! draws `ε_s`, the same for every row: the loss is a smooth function of L, s and t, and what is minimised is what is predicted.

use super::fixed_mean::TEMPERED;
use crate::Result;
use crate::compute::Device;
use crate::linalg::{Cholesky, solve_lower};
use crate::rng::Rng;
use crate::spectrum::Sampling;
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis, concatenate, s};
use rayon::prelude::*;
use std::f64::consts::TAU;

/// S; they come in pairs of opposite signs.
pub(super) const DRAWS: usize = 128;
/// Rows that one task sums over.
pub(super) const ROWS: usize = 64;
/// Rows that each number needs: B is a full matrix, diagonal, or I, whichever is the first that the rows are enough for; T and a depend
/// on the row where they are enough for that.
const ROWS_EACH: usize = 20;
/// The precision of the prior on the entries of L, whose diagonal has logarithms: how the outputs are confused is another matter on rows of
/// another distribution, so that B stays close to I unless the rows say otherwise.
const CLOSE_TO_ONE: f64 = 1000.0;

/// For each parameter of L, its place.
pub(super) type Places = Vec<(usize, usize)>;

/// The entries of L `[C, C]` that n rows are enough for.
pub(super) fn places(c: usize, n: usize) -> Places {
    match n / ROWS_EACH {
        enough if enough >= c * (c + 1) / 2 => (0..c).flat_map(|a| (0..=a).map(move |b| (a, b))).collect(),
        enough if enough >= c => (0..c).map(|a| (a, a)).collect(),
        _ => vec![],
    }
}

/// Columns of φ, besides the constant, that n rows are enough for.
pub(super) fn columns(all: usize, n: usize) -> usize {
    if n / ROWS_EACH >= 2 * (all + 1) { all } else { 0 }
}

/// ε `[S, C]`: quasi-random normal vectors and their opposites; with the covariance I exactly, where there are enough of them.
pub(super) fn draws(c: usize) -> Result<Array2<f64>> {
    let mut half = Sampling::QuasiMonteCarlo.normals(DRAWS / 2, c, 0, &mut Rng::new(0x666d_6770));
    if 4 * c <= DRAWS {
        // (1/S) EᵀE = R Rᵀ: the rows of E R⁻ᵀ have the covariance I.
        let gram = Cholesky::new(Device::Cpu, (half.t().dot(&half) / half.nrows() as f64).view())?;
        solve_lower(gram.lower()?, half.view_mut().reversed_axes());
    }
    Ok(concatenate![Axis(0), half, -&half])
}

/// `softmax(m + a u_s)` `[S, C]` of all draws u `[S, C]` at a row with the mean m `[C]`.
pub(super) fn softmaxes(m: ArrayView1<f64>, a: f64, u: &Array2<f64>, p: &mut Array2<f64>) {
    for (mut p, u) in p.rows_mut().into_iter().zip(u.rows()) {
        let mut most = f64::NEG_INFINITY;
        for ((p, m), u) in p.iter_mut().zip(m).zip(u) {
            *p = m + a * u;
            most = most.max(*p);
        }
        p.mapv_inplace(|p| (p - most).exp());
        let total = p.sum();
        p.mapv_inplace(|p| p / total);
    }
}

/// Rows whose classes are known.
pub(super) struct Rows<'a> {
    /// Outputs z `[n, C]`.
    pub z: &'a Array2<f64>,
    /// φ `[n, 1 + q]`, ones first; t has those up to [`TEMPERED`] at most.
    pub features: Array2<f64>,
    pub labels: &'a [usize],
    pub places: Places,
}

/// The numbers that are found: L `[C, C]`, s `[1 + q]`, t `[1 + min(q, TEMPERED)]`.
pub(super) struct Parts {
    pub root: Array2<f64>,
    pub scale: Array1<f64>,
    pub temperature: Array1<f64>,
}

/// The loss of a row, with its derivatives by the mean, by a, and those by u `[S, C]` added to a sum.
struct Slopes {
    loss: f64,
    by_mean: Array1<f64>,
    by_scale: f64,
}

impl Rows<'_> {
    /// How many numbers are found.
    pub fn count(&self) -> usize {
        let q = self.features.ncols();
        self.places.len() + q + q.min(1 + TEMPERED)
    }

    pub fn parts(&self, at: &[f64]) -> Parts {
        let (c, q) = (self.z.ncols(), self.features.ncols());
        let mut root = Array2::eye(c);
        for (&(a, b), value) in self.places.iter().zip(at) {
            root[[a, b]] = if a == b { value.exp() } else { *value };
        }
        let rest = &at[self.places.len()..];
        Parts { root, scale: rest[..q].to_vec().into(), temperature: rest[q..].to_vec().into() }
    }

    /// The mean of `−log p(y)`, less the logarithm of a normal prior per row: of precision [`CLOSE_TO_ONE`] on L, and one on s and t; and its
    /// derivatives.
    ///
    /// Without a prior on the constants too, `T → 0` and `a → ∞` at a fixed ratio may have the least loss. A probability is then the share of the
    /// draws in which its output is the largest, and an output that is largest in none has the probability 0.
    pub fn penalised_loss(&self, at: &[f64], draws: &Array2<f64>) -> (f64, Vec<f64>) {
        let (n, parts, first) = (self.labels.len() as f64, self.parts(at), self.places.len());
        let (loss, of_draws, of_scale, of_temperature) = self.loss(&parts, &draws.dot(&parts.root.t()));
        // u_s = L ε_s: ∂/∂L = Σ_s (∂/∂u_s) ε_sᵀ
        let of_root = of_draws.t().dot(draws);
        let entry = |&(a, b): &(usize, usize)| of_root[[a, b]] * if a == b { parts.root[[a, b]] } else { 1.0 };
        let mut gradient: Vec<f64> = self.places.iter().map(entry).collect();
        gradient.extend(of_scale.iter().chain(&of_temperature));
        let mut penalty = 0.0;
        for (i, (value, gradient)) in at.iter().zip(&mut gradient).enumerate() {
            let precision = if i < first { CLOSE_TO_ONE } else { 1.0 };
            penalty += precision * value * value / (2.0 * n);
            *gradient += precision * value / n;
        }
        (loss + penalty, gradient)
    }

    /// The mean of `−log (1/S) Σ_s softmax(z/T + a u_s)_y`, and its derivatives by the draws u `[S, C]`, by s and by t.
    fn loss(&self, parts: &Parts, u: &Array2<f64>) -> (f64, Array2<f64>, Array1<f64>, Array1<f64>) {
        let n = self.labels.len();
        let (q, tempered) = (parts.scale.len(), parts.temperature.len());
        let of_rows = |first: usize| {
            let (mut loss, mut of_draws) = (0.0, Array2::zeros(u.dim()));
            let (mut of_scale, mut of_temperature) = (Array1::zeros(q), Array1::zeros(tempered));
            let mut p = Array2::zeros(u.dim());
            for i in first..n.min(first + ROWS) {
                let φ = self.features.row(i);
                let mean = &self.z.row(i) / φ.slice(s![..tempered]).dot(&parts.temperature).exp();
                let a = (0.5 * φ.dot(&parts.scale)).exp();
                let slopes = of_row(mean.view(), a, u, self.labels[i], (&mut p, &mut of_draws));
                loss += slopes.loss;
                of_scale.scaled_add(0.5 * a * slopes.by_scale, &φ);
                of_temperature.scaled_add(-slopes.by_mean.dot(&mean), &φ.slice(s![..tempered]));
            }
            (loss, of_draws, of_scale, of_temperature)
        };
        let tasks: Vec<usize> = (0..n).step_by(ROWS).collect();
        let all: Vec<_> = tasks.into_par_iter().map(of_rows).collect();
        // Summed in order: the same bits on any number of threads.
        let zeros = (0.0, Array2::zeros(u.dim()), Array1::zeros(q), Array1::zeros(tempered));
        let (loss, of_draws, of_scale, of_temperature) =
            all.into_iter().fold(zeros, |sum, part| (sum.0 + part.0, sum.1 + part.1, sum.2 + part.2, sum.3 + part.3));
        let n = n as f64;
        (loss / n, of_draws / n, of_scale / n, of_temperature / n)
    }
}

/// `−log (1/S) Σ_s softmax(m + a u_s)_y` of one row. With the weight `w_s = p_sy/Σ p_s'y` of a draw, its derivative by `m + a u_s` is
/// `w_s (p_s − e_y)`.
fn of_row(
    mean: ArrayView1<f64>,
    a: f64,
    u: &Array2<f64>,
    label: usize,
    (p, of_draws): (&mut Array2<f64>, &mut Array2<f64>),
) -> Slopes {
    softmaxes(mean, a, u, p);
    let total = p.column(label).sum();
    let mut slopes =
        Slopes { loss: -(total / u.nrows() as f64).ln(), by_mean: Array1::zeros(mean.len()), by_scale: 0.0 };
    for ((mut p, u), mut of_draw) in p.rows_mut().into_iter().zip(u.rows()).zip(of_draws.rows_mut()) {
        let weight = p[label] / total;
        p[label] -= 1.0;
        slopes.by_mean.scaled_add(weight, &p);
        slopes.by_scale += weight * p.dot(&u);
        of_draw.scaled_add(a * weight, &p);
    }
    slopes
}

/// The mean of `½((y − z)²/V + log 2πV)`, `V = b a² + σ²`, and its derivatives by log b and log σ², for the scales a `[n]`.
pub(super) fn loss_of_numbers(at: &[f64], z: ArrayView2<f64>, scales: &Array1<f64>, y: &[f64]) -> (f64, Vec<f64>) {
    let (b, noise, n) = (at[0].exp(), at[1].exp(), y.len() as f64);
    let mut sums = [0.0; 3];
    for ((z, a), y) in z.iter().zip(scales).zip(y) {
        let own = b * a * a;
        let (variance, square) = (own + noise, (y - z).powi(2));
        let slope = 0.5 * (1.0 - square / variance) / variance;
        let terms = [0.5 * (square / variance + (TAU * variance).ln()), slope * own, slope * noise];
        sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
    }
    let [loss, by_b, by_noise] = sums.map(|sum| sum / n);
    (loss, vec![by_b, by_noise])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normals(n: usize, c: usize, seed: u64) -> Array2<f64> {
        Rng::new(seed).normals((n, c))
    }

    #[test]
    fn draws_have_mean_zero_and_covariance_one() {
        let ε = draws(10).unwrap();
        assert_eq!(ε.dim(), (DRAWS, 10));
        assert!(ε.mean_axis(Axis(0)).unwrap().iter().all(|v| v.abs() < 1e-12));
        let covariance = ε.t().dot(&ε) / DRAWS as f64;
        assert!((covariance - Array2::<f64>::eye(10)).iter().all(|v| v.abs() < 1e-10));
        // With more outputs than that, the variances are about one.
        let many = draws(200).unwrap().mapv(|v| v * v).mean_axis(Axis(0)).unwrap();
        assert!(many.iter().all(|v| (v - 1.0).abs() < 0.5), "{many}");
    }

    /// Without a row that says otherwise, T → 0 and a → ∞ together cost what their prior says.
    #[test]
    fn the_prior_covers_the_constants() {
        let (z, labels, draws) = (normals(100, 3, 3), [1; 100], draws(3).unwrap());
        let rows = Rows { z: &z, features: Array2::ones((100, 1)), labels: &labels, places: vec![] };
        let at = [16.0, -7.5];
        let parts = rows.parts(&at);
        let plain = rows.loss(&parts, &draws.dot(&parts.root.t())).0;
        let prior = (16.0 * 16.0 + 7.5 * 7.5) / 200.0;
        assert!((rows.penalised_loss(&at, &draws).0 - plain - prior).abs() < 1e-9 * prior);
    }

    #[test]
    fn derivatives_of_the_losses_are_their_differences() {
        let (z, mut rng) = (normals(170, 3, 3) * 2.0, Rng::new(5));
        let labels: Vec<usize> = (0..170).map(|_| rng.below(3)).collect();
        let draws = draws(3).unwrap();
        fn check(loss: impl Fn(&[f64]) -> (f64, Vec<f64>), at: &[f64]) {
            let (_, gradient) = loss(at);
            for j in 0..at.len() {
                let [up, down] = [1e-5, -1e-5].map(|step| {
                    let mut moved = at.to_vec();
                    moved[j] += step;
                    loss(&moved).0
                });
                assert!((gradient[j] - (up - down) / 2e-5).abs() < 1e-8, "{j}: {gradient:?}");
            }
        }
        // B in full, diagonal, and I; with and without features of the rows.
        for (n, q, entries) in [(170, 4, 6), (100, 4, 3), (50, 0, 0)] {
            let features = concatenate![Axis(1), Array2::ones((170, 1)), normals(170, q, 7) * 0.3];
            let rows = Rows { z: &z, features, labels: &labels, places: places(3, n) };
            let at: Vec<f64> = (0..rows.count()).map(|_| 0.4 * rng.normal()).collect();
            assert_eq!(at.len(), entries + (1 + q) + (1 + q.min(TEMPERED)));
            check(|at| rows.penalised_loss(at, &draws), &at);
        }
        assert_eq!([columns(4, 200), columns(4, 199)], [4, 0]);
        let (first, scales) = (z.slice(s![.., ..1]), normals(170, 1, 4).column(0).mapv(|v| v.abs() + 0.3));
        let y: Vec<f64> = (0..170).map(|_| rng.normal()).collect();
        check(|at| loss_of_numbers(at, first, &scales, &y), &[-0.5, 0.7]);
    }
}
