//! The certificate: for every pair, how far it is from an eigenpair, measured and not assumed.

use super::{Problem, Solution};
use crate::Result;
use crate::linalg::matmul;
use crate::operator::{Operator, Points};
use ndarray::{Array2, ArrayView1, ArrayView2, Axis, CowArray, s};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// How good each pair is. Example: [`Spectrum`](crate::spectrum::Spectrum).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Certificate {
    /// Held-out points that it was measured on; 0 means that there were none and the fitted points stood in.
    pub held_out: usize,
    /// `‖K̂ψ_j − μ_jψ_j‖ / (μ_j‖ψ_j‖)` over the held-out points, `K̂` averaging over the fitted points: the solver's
    /// error. None where `μ_j = 0`.
    pub residual: Vec<Option<f64>>,
    /// The same with the true average over q, estimated without bias from the held-out points alone (see
    /// [`Certificate::measure`]): the solver's error and that of having seen n points only. None where `μ_j = 0`.
    pub population_residual: Vec<Option<f64>>,
    /// Size of the sampling noise in [`Self::population_residual`]; an estimate below it says no more than "small".
    pub population_noise: Vec<Option<f64>>,
    /// `max_ij |⟨ψ_i,ψ_j⟩ − δ_ij|` over the held-out points, pairs of zero eigenvalue left out.
    pub orthonormality: f64,
    /// `E_q[κ(x,x)]`, the sum of all eigenvalues.
    pub trace: f64,
    /// How the trace was found.
    pub trace_kind: TraceKind,
    /// `Σ_j μ_j / trace`
    pub trace_captured: f64,
    /// 95 % confidence interval of `⟨ψ_j,Kψ_j⟩/⟨ψ_j,ψ_j⟩` under q, from the held-out points; it differs from the true
    /// eigenvalue by the square of the residual. None where `μ_j = 0` or fewer than ten points were held out.
    pub interval: Vec<Option<[f64; 2]>>,
    /// What sort of pair each is.
    pub standing: Vec<Standing>,
}

/// How the trace of the kernel was found. Example: [`Spectrum`](crate::spectrum::Spectrum).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TraceKind {
    /// The mean of `κ(x,x)` over the fitted points.
    Exact,
}

/// What sort of eigenpair it is. Example: [`Spectrum`](crate::spectrum::Spectrum).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// One eigenvalue, one function.
    Simple,
    /// Numerically equal to a neighbouring eigenvalue: only the span of the functions is determined.
    Repeated,
    /// The kernel has no such direction; the function is zero.
    Zero,
}

/// Relative gap below which neighbouring eigenvalues count as repeated, unless the residual is larger.
const REPEATED: f64 = 1e-6;

impl Certificate {
    /// Measures the pairs of `solution` on `held_out` points, or on the fitted ones when there are none.
    ///
    /// The population residual uses two independent halves A, B of the held-out points for the average:
    /// `r² = mean_x (K_Aψ − μψ)(K_Bψ − μψ) / (μ²⟨ψ,ψ⟩)`, each average leaving `x` itself out, has no noise term in
    /// its mean, so small residuals are not drowned by `1/√h`.
    pub fn measure(problem: &Problem, solution: &Solution, held_out: Option<Points<'_>>) -> Result<Certificate> {
        let held_out = held_out.filter(|h| h.count() > 0);
        let (operator, a) = (problem.operator, solution.coefficients.view());
        let n = operator.n();
        let at_points = match &solution.at_points {
            Some(known) => CowArray::from(known.view()),
            None => CowArray::from(solution.features.project(problem.points("the method")?.into(), a)?),
        };
        let (elsewhere, at_held_out) = match held_out {
            Some(h) => (Some(operator.at(h)?), Some(solution.features.project(h, a)?)),
            None => (None, None),
        };
        let ψ = at_held_out.as_ref().map_or(at_points.view(), |ψ| ψ.view());
        let μ = &solution.eigenvalues;

        let image = match held_out {
            Some(h) => operator.cross(h, at_points.view())?,
            None => operator.product(0..n, 0..n, at_points.view())?,
        } / n as f64;
        let residual: Vec<Option<f64>> =
            per_pair(μ, |j| norm_ratio((&image.column(j) - &(μ[j] * &ψ.column(j))).view(), ψ.column(j)) / μ[j]);

        let sampled = Halves::new(elsewhere.as_deref().unwrap_or(operator), ψ)?;
        let trace = operator.diagonal()?.mean().unwrap_or(0.0);
        Ok(Certificate {
            held_out: held_out.map_or(0, |h| h.count()),
            population_residual: per_pair(μ, |j| sampled.residual(j, μ[j])),
            population_noise: per_pair(μ, |j| sampled.noise(j, μ[j])),
            orthonormality: orthonormality(ψ, μ),
            trace,
            trace_kind: TraceKind::Exact,
            trace_captured: if trace > 0.0 { μ.iter().sum::<f64>() / trace } else { 0.0 },
            interval: (0..μ.len()).map(|j| (μ[j] > 0.0).then(|| sampled.interval(j)).flatten()).collect(),
            standing: standings(μ, &residual),
            residual,
        })
    }

    /// The mean over the pairs of `min(1, residual)`; a missing pair counts as 1.
    pub fn mean_residual(&self) -> f64 {
        let sum: f64 = self.residual.iter().map(|r| r.map_or(1.0, |r| r.min(1.0))).sum();
        sum / self.residual.len().max(1) as f64
    }

    /// The largest residual of the pairs with a non-zero eigenvalue.
    pub fn worst_residual(&self) -> f64 {
        self.residual.iter().flatten().fold(0.0, |worst, r| worst.max(*r))
    }
}

fn per_pair(μ: &[f64], value: impl Fn(usize) -> f64) -> Vec<Option<f64>> {
    (0..μ.len()).map(|j| (μ[j] > 0.0).then(|| value(j)).filter(|v| v.is_finite())).collect()
}

/// `‖a‖/‖b‖`
fn norm_ratio(a: ArrayView1<f64>, b: ArrayView1<f64>) -> f64 {
    (a.dot(&a) / b.dot(&b)).sqrt()
}

fn orthonormality(ψ: ArrayView2<f64>, μ: &[f64]) -> f64 {
    let kept = μ.iter().filter(|&&μ| μ > 0.0).count();
    let ψ = ψ.slice(s![.., ..kept]);
    let gram = matmul(ψ.t(), ψ) / ψ.nrows() as f64;
    gram.indexed_iter().map(|((i, j), g)| (g - f64::from(u8::from(i == j))).abs()).fold(0.0, f64::max)
}

fn standings(μ: &[f64], residual: &[Option<f64>]) -> Vec<Standing> {
    let close = |i: usize, j: usize| {
        let width = REPEATED.max(residual[i].unwrap_or(0.0).min(1e-2));
        μ[j] > 0.0 && μ[i] - μ[j] <= width * μ[i]
    };
    let standing = |j: usize| match μ[j] {
        μ_j if μ_j <= 0.0 => Standing::Zero,
        _ if (j > 0 && close(j - 1, j)) || (j + 1 < μ.len() && close(j, j + 1)) => Standing::Repeated,
        _ => Standing::Simple,
    };
    (0..μ.len()).map(standing).collect()
}

/// Averages over two halves of a sample, each point left out of its own average.
struct Halves {
    ψ: Array2<f64>,
    /// `K_Aψ` and `K_Bψ` `[h, k]`
    image: [Array2<f64>; 2],
    /// Weights of the halves in the average over all other points `[h]`.
    share: [Vec<f64>; 2],
}

impl Halves {
    /// At most this many values; the cost is their square.
    const MOST: usize = 4000;

    /// Of functions ψ `[n, k]` on the operator's sample.
    fn new(operator: &dyn Operator, ψ: ArrayView2<f64>) -> Result<Halves> {
        let c = operator.outputs();
        let points = (operator.n() / c).min((Self::MOST / c).max(1));
        let h = points * c;
        let ψ = ψ.slice(s![..h, ..]).to_owned();
        let own = own_images(operator, &ψ)?;
        let mut share = [vec![0.0; h], vec![0.0; h]];
        let mut image_over = |side: usize, half: Range<usize>| -> Result<Array2<f64>> {
            let mut sum = operator.product(0..h, half.clone(), ψ.slice(s![half.clone(), ..]))?;
            for (i, mut row) in sum.axis_iter_mut(Axis(0)).enumerate() {
                let inside = half.contains(&i);
                if inside {
                    row -= &own.row(i);
                }
                let others = half.len().saturating_sub(if inside { c } else { 0 });
                share[side][i] = others as f64;
                row.mapv_inplace(|v| v / others.max(1) as f64);
            }
            Ok(sum)
        };
        let middle = points / 2 * c;
        let image = [image_over(0, 0..middle)?, image_over(1, middle..h)?];
        Ok(Halves { ψ, image, share })
    }

    fn residual(&self, j: usize, μ: f64) -> f64 {
        let ψ = self.ψ.column(j);
        let error = |half: usize| &self.image[half].column(j) - &(μ * &ψ);
        let squared = error(0).dot(&error(1)) / (μ * μ * ψ.dot(&ψ));
        squared.max(0.0).sqrt()
    }

    fn noise(&self, j: usize, μ: f64) -> f64 {
        let difference = &self.image[0].column(j) - &self.image[1].column(j);
        0.5 * norm_ratio(difference.view(), self.ψ.column(j)) / μ
    }

    /// The ratio `ρ = R/C` of `R = mean_i ψ_i g_i`, `g_i` the average of `κ(x_i,·)ψ` over the other points, and
    /// `C = mean_i ψ_i²`, with the spread of its influence function `(2(ψ_i g_i − R) − ρ(ψ_i² − C))/C`.
    fn interval(&self, j: usize) -> Option<[f64; 2]> {
        let h = self.ψ.nrows();
        if h < 10 {
            return None;
        }
        let ψ = self.ψ.column(j);
        let g = |i: usize| {
            let (a, b) = (self.share[0][i], self.share[1][i]);
            (a * self.image[0][[i, j]] + b * self.image[1][[i, j]]) / (a + b)
        };
        let ψg: Vec<f64> = (0..h).map(|i| ψ[i] * g(i)).collect();
        let (r, c) = (ψg.iter().sum::<f64>() / h as f64, ψ.dot(&ψ) / h as f64);
        let quotient = r / c;
        let influence = |i: usize| (2.0 * (ψg[i] - r) - quotient * (ψ[i] * ψ[i] - c)) / c;
        let variance = (0..h).map(|i| influence(i).powi(2)).sum::<f64>() / (h - 1) as f64;
        let half_width = 1.959_964 * (variance / h as f64).sqrt();
        (half_width.is_finite()).then(|| [(quotient - half_width).max(0.0), quotient + half_width])
    }
}

/// `K[x,x] ψ(x)` `[h, k]` of every point x by itself, over its outputs.
fn own_images(operator: &dyn Operator, ψ: &Array2<f64>) -> Result<Array2<f64>> {
    const POINTS: usize = 8;
    let c = operator.outputs();
    if c == 1 {
        let diagonal = operator.diagonal()?;
        return Ok(ψ * &diagonal.slice(s![..ψ.nrows()]).insert_axis(Axis(1)));
    }
    let mut own = Array2::zeros(ψ.dim());
    for start in (0..ψ.nrows()).step_by(POINTS * c) {
        let values: Vec<usize> = (start..ψ.nrows().min(start + POINTS * c)).collect();
        let k = operator.block(&values, &values)?;
        for point in (0..values.len()).step_by(c) {
            let (here, there) = (s![point..point + c, point..point + c], s![start + point..start + point + c, ..]);
            own.slice_mut(there).assign(&k.slice(here).dot(&ψ.slice(there)));
        }
    }
    Ok(own)
}
