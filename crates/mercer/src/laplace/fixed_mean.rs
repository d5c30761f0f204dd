//! The Gaussian process whose mean is fixed at the network (FMGP).
//!
//! `z'(x) = z(x) + W f(x)` with `W_c· ~ N(0, I)` correlated over the outputs by B: its kernel `f(x)·f(x') B` is that of the last layer, with f
//! the layer's input, and B `[C, C]` says how far each output, and each difference of two, may be off. At a row the outputs are
//! `N(z, a² B)` with `a² = ‖f‖²`. The mean does not depend on B, so B has the least loss on other rows, where the network makes the
//! mistakes that it makes on new ones.
//!
//! Probabilities are the mean of `softmax(z + a u_s)` over S draws `u_s ~ N(0, B)`, the same for every row: the loss is a smooth function of
//! B, and what is minimised is what is predicted.

use super::Structure;
use super::likelihood::Likelihood;
use super::outputs::{Outputs, Spread};
use super::passes::{Hidden, Passes};
use super::search::Searched;
use crate::apply::minimise;
use crate::compute::Device;
use crate::linalg::{Cholesky, solve_lower};
use crate::model::Bundle;
use crate::rng::Rng;
use crate::spectrum::Sampling;
use crate::{Error, Result, fail_if};
use ndarray::{Array1, Array2, Array3, ArrayView1, ArrayView2, Axis, concatenate};
use rayon::prelude::*;
use std::f64::consts::TAU;

/// S; they come in pairs of opposite signs.
pub(super) const DRAWS: usize = 128;
/// Rows that one task sums over.
const ROWS: usize = 64;
/// Rows that each number of B needs: B is a full matrix, diagonal, or a multiple of I, whichever is the first that they are enough for.
const ROWS_EACH: usize = 20;
/// The range of the logarithm of an amplitude or of the noise of a number.
const BOUNDS: (f64, f64) = (-30.0, 30.0);
/// Where the search ends: the largest component of the gradient, and steps.
const END: (f64, usize) = (1e-6, 200);

/// For each parameter of L, the entries that have it.
type Places = Vec<Vec<(usize, usize)>>;

/// A loss and its derivatives.
type Loss<'a> = Box<dyn Fn(&[f64]) -> (f64, Vec<f64>) + 'a>;

/// `B = L Lᵀ`, the mean of the logarithms of L's diagonal zero.
pub(super) struct FixedMean {
    /// L `[C, C]`, lower triangular.
    root: Array2<f64>,
}

/// Outputs at rows `x` `[n, d]`, those of classes with mean zero, and the scales `a²`.
pub(super) fn outputs(passes: &Passes, x: ArrayView2<f64>) -> Result<Outputs> {
    let (mut mean, units) = passes.forward(x, Hidden::Last)?;
    if passes.classes() {
        mean = &mean - &mean.mean_axis(Axis(1)).expect("there are outputs").insert_axis(Axis(1));
    }
    let squares = units.rows().into_iter().map(|f| f.dot(&f)).collect();
    Ok(Outputs { mean, spread: Spread::Scale(squares) })
}

/// Finds B on rows with these outputs. Returns the process with the precision τ, one over the square of the mean amplitude, and the noise of
/// a number.
pub(super) fn fit(outputs: &Outputs, likelihood: &Likelihood) -> Result<(FixedMean, Searched, f64)> {
    let Spread::Scale(squares) = &outputs.spread else { unreachable!("the outputs are those of a fixed mean") };
    let (z, c) = (&outputs.mean, outputs.mean.ncols());
    let mean_square = squares.mean().unwrap_or(1.0).max(f64::MIN_POSITIVE);
    // In units of the mean scale, so that the start is a doubt of one logit.
    let scales = &squares.mapv(|square| (square / mean_square).sqrt());
    let (start, loss): (Vec<f64>, Loss<'_>) = match likelihood {
        Likelihood::Classes(labels) => {
            let (rows, draws) = (Rows { z, scales, labels, places: places(c, labels.len()) }, draws(c)?);
            (vec![0.0; rows.places.len()], Box::new(move |at: &[f64]| rows.penalised_loss(at, &draws)))
        }
        Likelihood::Numbers(y) => (vec![0.0; 2], Box::new(move |at: &[f64]| loss_of_numbers(at, z, scales, y))),
    };
    let bounds = vec![BOUNDS; start.len()];
    let found = minimise(start, &bounds, END, |at| Ok(Some(loss(at))), |_, _, _| true)?;
    let found = found.ok_or_else(|| Error::Numerical("the loss has no value for any amplitude".into()))?;
    let (root, noise) = match likelihood {
        Likelihood::Classes(labels) => (lower(&found.x, &places(c, labels.len()), c), 1.0),
        Likelihood::Numbers(_) => (Array2::from_elem((1, 1), (0.5 * found.x[0]).exp()), found.x[1].exp()),
    };
    let amplitude = (root.diag().mapv(f64::ln).mean().unwrap_or(0.0)).exp();
    let precision = Searched { value: mean_square / amplitude.powi(2), loss: found.value, at_end: false };
    Ok((FixedMean { root: root / amplitude }, precision, noise))
}

/// The entries of L that each of its parameters is of, for n rows.
fn places(c: usize, n: usize) -> Places {
    let diagonal = || (0..c).map(|a| (a, a));
    match n / ROWS_EACH {
        enough if enough >= c * (c + 1) / 2 => (0..c).flat_map(|a| (0..=a).map(move |b| vec![(a, b)])).collect(),
        enough if enough >= c => diagonal().map(|place| vec![place]).collect(),
        _ => vec![diagonal().collect()],
    }
}

/// L `[C, C]` with the given entries below the diagonal, and on it their exponentials.
fn lower(at: &[f64], places: &Places, c: usize) -> Array2<f64> {
    let mut root = Array2::zeros((c, c));
    for (places, value) in places.iter().zip(at) {
        places.iter().for_each(|&(a, b)| root[[a, b]] = if a == b { value.exp() } else { *value });
    }
    root
}

/// ε `[S, C]`: quasi-random normal vectors and their opposites; with the covariance I exactly, where there are enough of them.
fn draws(c: usize) -> Result<Array2<f64>> {
    let mut half = Sampling::QuasiMonteCarlo.normals(DRAWS / 2, c, 0, &mut Rng::new(0x666d_6770));
    if 4 * c <= DRAWS {
        // (1/S) EᵀE = R Rᵀ: the rows of E R⁻ᵀ have the covariance I.
        let gram = Cholesky::new(Device::Cpu, (half.t().dot(&half) / half.nrows() as f64).view())?;
        solve_lower(gram.lower()?, half.view_mut().reversed_axes());
    }
    Ok(concatenate![Axis(0), half, -&half])
}

/// Rows that B is found on.
struct Rows<'a> {
    /// Outputs `[n, C]`.
    z: &'a Array2<f64>,
    /// a `[n]`
    scales: &'a Array1<f64>,
    labels: &'a [usize],
    places: Places,
}

impl Rows<'_> {
    /// The mean of `−log p(y)` at the parameters of L, plus the logarithm of a standard normal prior on how they differ from those of a
    /// multiple of I, per row; and its derivatives.
    fn penalised_loss(&self, at: &[f64], draws: &Array2<f64>) -> (f64, Vec<f64>) {
        let (n, c) = (self.labels.len() as f64, draws.ncols());
        let root = lower(at, &self.places, c);
        let (loss, of_draws) = self.loss(&draws.dot(&root.t()));
        // u_s = L ε_s: ∂/∂L = Σ_s (∂/∂u_s) ε_sᵀ
        let of_root = of_draws.t().dot(draws);
        let mean = root.diag().mapv(f64::ln).sum() / c as f64;
        let (mut penalty, mut gradient) = (0.0, vec![0.0; at.len()]);
        for ((places, value), gradient) in self.places.iter().zip(at).zip(&mut gradient) {
            for &(a, b) in places {
                let (away, factor) = if a == b { (value - mean, root[[a, b]]) } else { (*value, 1.0) };
                penalty += away * away / (2.0 * n);
                *gradient += of_root[[a, b]] * factor + away / n;
            }
        }
        (loss + penalty, gradient)
    }

    /// The mean of `−log (1/S) Σ_s softmax(z + a u_s)_y`, and its derivatives by the draws u `[S, C]`: with the weight
    /// `w_s = p_s,y/Σ p_s',y` of a draw at a row, `−(a/n) w_s (e_y − p_s)`.
    fn loss(&self, u: &Array2<f64>) -> (f64, Array2<f64>) {
        let (n, s) = (self.labels.len(), u.nrows());
        let of_rows = |first: usize| {
            let (mut loss, mut slopes) = (0.0, Array2::zeros(u.dim()));
            let mut p = Array2::zeros(u.dim());
            for i in first..n.min(first + ROWS) {
                let (a, label) = (self.scales[i], self.labels[i]);
                softmaxes(self.z.row(i), a, u, &mut p);
                let total = p.column(label).sum();
                loss -= (total / s as f64).ln();
                for (mut slope, p) in slopes.rows_mut().into_iter().zip(p.rows()) {
                    let weight = a * p[label] / total;
                    slope.scaled_add(weight, &p);
                    slope[label] -= weight;
                }
            }
            (loss, slopes)
        };
        let tasks: Vec<usize> = (0..n).step_by(ROWS).collect();
        let parts: Vec<(f64, Array2<f64>)> = tasks.into_par_iter().map(of_rows).collect();
        // Summed in order: the same bits on any number of threads.
        let (mut loss, mut slopes) = (0.0, Array2::zeros(u.dim()));
        for (of_rows, slopes_of_rows) in parts {
            loss += of_rows;
            slopes += &slopes_of_rows;
        }
        (loss / n as f64, slopes / n as f64)
    }
}

/// `softmax(z + a u_s)` `[S, C]` of all draws u `[S, C]` at a row with the outputs z `[C]`.
fn softmaxes(z: ArrayView1<f64>, a: f64, u: &Array2<f64>, p: &mut Array2<f64>) {
    for (mut p, u) in p.rows_mut().into_iter().zip(u.rows()) {
        let mut most = f64::NEG_INFINITY;
        for ((p, z), u) in p.iter_mut().zip(z).zip(u) {
            *p = z + a * u;
            most = most.max(*p);
        }
        p.mapv_inplace(|p| (p - most).exp());
        let total = p.sum();
        p.mapv_inplace(|p| p / total);
    }
}

/// The mean of `½((y − z)²/V + log 2πV)`, `V = b a² + σ²`, and its derivatives by log b and log σ².
fn loss_of_numbers(at: &[f64], z: &Array2<f64>, scales: &Array1<f64>, y: &[f64]) -> (f64, Vec<f64>) {
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

impl FixedMean {
    /// The logarithms of the mean of `softmax(z + a u_s/√τ)` `[n, C]` over the draws, for outputs of classes.
    fn mean_of_draws(&self, outputs: &Outputs, τ: f64) -> Result<Array2<f64>> {
        let Spread::Scale(squares) = &outputs.spread else { unreachable!("the outputs are those of a fixed mean") };
        let u = draws(self.root.nrows())?.dot(&self.root.t());
        let (n, c) = outputs.mean.dim();
        let of_rows = |first: usize| {
            let (mut scores, mut p) = (vec![], Array2::zeros(u.dim()));
            for i in first..n.min(first + ROWS) {
                softmaxes(outputs.mean.row(i), (squares[i] / τ).sqrt(), &u, &mut p);
                scores.extend(p.columns().into_iter().map(|p| (p.sum() / DRAWS as f64).max(f64::MIN_POSITIVE).ln()));
            }
            scores
        };
        let tasks: Vec<usize> = (0..n).step_by(ROWS).collect();
        let scores = tasks.into_par_iter().map(of_rows).collect::<Vec<Vec<f64>>>().concat();
        Ok(Array2::from_shape_vec((n, c), scores).expect("a score for each output of each row"))
    }

    pub fn unpack(bundle: &Bundle, outputs: usize) -> Result<FixedMean> {
        let root = bundle.matrix("root")?;
        let positive = root.diag().iter().all(|v| *v > 0.0) && root.iter().all(|v| v.is_finite());
        fail_if!(
            root.dim() != (outputs, outputs) || !positive,
            "its parts do not fit together: the amplitudes of the outputs"
        );
        Ok(FixedMean { root })
    }
}

impl Structure for FixedMean {
    fn eigenvalues(&self) -> Vec<f64> {
        vec![]
    }

    fn square(&self) -> f64 {
        0.0
    }

    /// `a² B/s`
    fn covariance(
        &self,
        passes: &Passes,
        x: ArrayView2<f64>,
        shifts: &[f64],
        full: bool,
    ) -> Result<(Array2<f64>, Vec<Array3<f64>>)> {
        let Outputs { mean, spread } = outputs(passes, x)?;
        let Spread::Scale(squares) = spread else { unreachable!("the outputs are those of a fixed mean") };
        let (b, (n, c)) = (self.root.dot(&self.root.t()), mean.dim());
        let of = |shift: &f64| {
            Array3::from_shape_fn((n, c, if full { c } else { 1 }), |(i, j, k)| {
                squares[i] * b[[j, if full { k } else { j }]] / shift
            })
        };
        Ok((mean, shifts.iter().map(of).collect()))
    }

    fn scores(&self, passes: &Passes, x: ArrayView2<f64>, τ: f64) -> Result<Array2<f64>> {
        self.mean_of_draws(&outputs(passes, x)?, τ)
    }

    fn scores_of(&self, outputs: &Outputs, τ: f64) -> Result<Array2<f64>> {
        self.mean_of_draws(outputs, τ)
    }

    fn pack<'a>(&'a self, bundle: &mut Bundle<'a>) -> Result<()> {
        bundle.put("root", self.root.view());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::s;

    fn normals(n: usize, c: usize, seed: u64) -> Array2<f64> {
        let mut rng = Rng::new(seed);
        Array2::from_shape_simple_fn((n, c), || rng.normal())
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

    #[test]
    fn derivatives_of_the_losses_are_their_differences() {
        let (z, scales) = (normals(150, 3, 3) * 2.0, normals(150, 1, 4).column(0).mapv(|v| v.abs() + 0.3));
        let mut rng = Rng::new(5);
        let labels: Vec<usize> = (0..150).map(|_| rng.below(3)).collect();
        let draws = draws(3).unwrap();
        let rows = |n: usize| Rows { z: &z, scales: &scales, labels: &labels, places: places(3, n) };
        let first = z.slice(s![.., ..1]).to_owned();
        let y: Vec<f64> = (0..150).map(|_| rng.normal()).collect();
        let numbers = |at: &[f64]| loss_of_numbers(at, &first, &scales, &y);
        let check = |loss: Loss<'_>, at: Vec<f64>| {
            let (_, gradient) = loss(&at);
            for j in 0..at.len() {
                let [up, down] = [1e-5, -1e-5].map(|step| {
                    let mut moved = at.clone();
                    moved[j] += step;
                    loss(&moved).0
                });
                assert!((gradient[j] - (up - down) / 2e-5).abs() < 1e-8, "{j}: {gradient:?}");
            }
        };
        // B in full, diagonal, and a multiple of I.
        for (n, at) in [(150, vec![0.3, -0.4, -1.0, 0.2, 0.7, 0.5]), (100, vec![0.3, -1.0, 0.5]), (50, vec![0.4])] {
            assert_eq!(places(3, n).len(), at.len());
            check(Box::new(|at: &[f64]| rows(n).penalised_loss(at, &draws)), at);
        }
        check(Box::new(numbers), vec![-0.5, 0.7]);
    }

    /// Labels that are drawn from the process have its B as the one with the least loss, up to what softmax does not see.
    #[test]
    fn the_covariance_that_labels_were_drawn_with_is_found() {
        let (n, c) = (10_000, 3);
        let (z, scales) = (normals(n, c, 1) * 2.0, normals(n, 1, 2).column(0).mapv(|v| 0.5 + v.abs()));
        let root = ndarray::array![[1.5, 0.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 0.3]];
        let (mut rng, noise) = (Rng::new(3), normals(n, c, 4).dot(&root.t()));
        let drawn = &z + &(&noise * &scales.view().insert_axis(Axis(1)));
        let label = |z: ArrayView1<f64>| {
            let gumbel: Vec<f64> = z.iter().map(|z| z - (-rng.uniform().max(1e-300).ln()).ln()).collect();
            (0..c).fold(0, |best, k| if gumbel[k] > gumbel[best] { k } else { best })
        };
        let labels = Likelihood::Classes(drawn.rows().into_iter().map(label).collect());
        let outputs = Outputs { mean: z, spread: Spread::Scale(scales.mapv(|a| a * a)) };
        let (process, precision, _) = fit(&outputs, &labels).unwrap();
        let differences =
            |b: Array2<f64>| [(0, 1), (0, 2), (1, 2)].map(|(i, j)| b[[i, i]] + b[[j, j]] - 2.0 * b[[i, j]]);
        let found = differences(process.root.dot(&process.root.t()) / precision.value);
        let want = differences(root.dot(&root.t()));
        // The draws stand for a normal distribution: 128 of them find variances that are somewhat too small.
        assert!(found.iter().zip(want).all(|(a, b)| (a / b - 1.0).abs() < 0.3), "{found:?} {want:?}");
    }
}
