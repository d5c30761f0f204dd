//! The certificate: for every pair, how far it is from an eigenpair, measured and not assumed.

mod intervals;

use super::{BlockProblem, Negative, Problem, Solution};
use crate::compute::Device;
use crate::context::ONE_STEP;
use crate::finite::finite_rows;
use crate::linalg::{Panel, Sharding, Shares, matmul};
use crate::operator::{Operator, Points};
use crate::{Error, FitContext, Progress, Result};
use intervals::Population;
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis, CowArray, Ix2, aview1, concatenate, s};
use serde::{Deserialize, Serialize};

/// How good each pair is. Example: [`Spectrum`](crate::spectrum::Spectrum).
///
/// Residuals are those of `r_j = Kψ_j − μ_jψ_j` in a norm in which equal functions have equal residuals. With
/// `D_j = max(K, μ_j)`, which divides the part of `r_j` along a larger eigenfunction `ψ_i` by `μ_i` and everything else by
/// `μ_j`, the residual is `‖D_j⁻¹ r_j‖/‖ψ_j‖`. An error of `ε` in `ψ_j` then changes it by ε at most, in whatever direction
/// it lies. (The plain `‖r_j‖/(μ_j‖ψ_j‖)` multiplies an error along `ψ_i` by `μ_i/μ_j`: a function that is right to four
/// digits could have a residual of 10⁸.)
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Certificate {
    /// Held-out points that it was measured on; 0 means that there were none and the fitted points stood in.
    pub held_out: usize,
    /// The residual over the held-out points, with K averaging over the fitted points: the solver's error. None where
    /// `μ_j = 0`.
    pub residual: Vec<Option<f64>>,
    /// What rounding alone may contribute to [`Self::residual`]: `ε ‖|φ||a_j|‖/‖ψ_j‖` for `ψ_j = φ a_j`, ε the relative
    /// rounding of kernel values. A smaller residual may be rounding alone. None where `μ_j = 0`.
    pub rounding: Vec<Option<f64>>,
    /// The residual with K averaging over q, from the held-out points alone: the solver's error and that of having seen
    /// n points only. The estimate of its square has no bias; where it is negative, this is 0. None where `μ_j = 0` or
    /// fewer than ten points were held out.
    pub population_residual: Vec<Option<f64>>,
    /// With 95 % confidence, [`Self::population_residual`] without its sampling error is at most this. None also from the first pair on whose
    /// residual the held-out points cannot bound below 1.
    pub population_bound: Vec<Option<f64>>,
    /// `max_ij |⟨ψ_i,ψ_j⟩ − δ_ij|` over the held-out points, pairs of zero eigenvalue left out.
    pub orthonormality: f64,
    /// `E_q[κ(x,x)]`, the sum of all eigenvalues.
    pub trace: f64,
    /// How the trace was found.
    pub trace_kind: TraceKind,
    /// `Σ_j μ_j / trace`
    pub trace_captured: f64,
    /// 95 % confidence interval of `⟨ψ_j,Kψ_j⟩/⟨ψ_j,ψ_j⟩` under q for the function that was found, from the held-out points alone. This number
    /// differs from a true eigenvalue by the square of the residual. The eigenvalue `μ_j` of the sample, which is larger on average, may lie
    /// outside. None where `μ_j = 0` or fewer than ten points were held out. With a kernel
    /// that grows without bound, such as a polynomial, on points with heavy tails, the tails that no sample shows decide the
    /// eigenvalue, and the interval is too short. Where `κ(x,x)` is the same for all points, it ends there at the latest: the
    /// eigenvalues add up to it.
    pub interval: Vec<Option<[f64; 2]>>,
    /// What sort of pair each is.
    pub standing: Vec<Standing>,
    /// Whether pair k + 1, which was not asked for, may have the same eigenvalue as pair k. Then k cuts through a group of
    /// functions of which only the span has a meaning. False where the method does not know the next eigenvalue.
    #[serde(default)]
    pub cuts_group: bool,
    /// `Σ_{λ<0} |λ| / Σ|λ|` over the eigenvalues of a matrix that is not positive semi-definite, else 0. Where it is not, [`Self::trace_captured`]
    /// is the share of `Σ|λ|`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub negative: f64,
}

fn is_zero(share: &f64) -> bool {
    *share == 0.0
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
    /// On this sample, numerically equal to a neighbouring eigenvalue: only the span of the functions is determined.
    Repeated,
    /// Different from its neighbours on this sample, but so little that another sample of n points may order them otherwise:
    /// the eigenvalues under q may be equal, and only the span of the functions is determined.
    Unresolved,
    /// The kernel has no such direction; the function is zero.
    Zero,
}

/// Relative gap below which neighbouring eigenvalues count as repeated, unless the residual is larger.
const REPEATED: f64 = 1e-6;

/// Two equal eigenvalues of the distribution differ on a sample by more than this many standard errors once in twenty: with
/// normal errors in a symmetric 2×2 matrix the difference has a Rayleigh distribution, whose 95 % quantile is `√(2 ln 20)`.
const RESOLVED: f64 = 2.447_747;

impl Certificate {
    /// Measures the pairs of `solution` on `held_out` points, or on the fitted ones when there are none.
    pub fn measure(problem: &Problem, solution: &Solution, held_out: Option<Points<'_>>) -> Result<Certificate> {
        let held_out = held_out.filter(|h| h.count() > 0);
        let (operator, n, context) = (problem.operator, problem.operator.n(), &problem.context);
        let part = |number: usize, what: &str| context.stage("certificate", number, 4).step(what, 0, 1, ONE_STEP);
        part(1, "functions at the fitted points");
        let at_points = at_points(problem, solution)?;
        part(2, if held_out.is_some() { "functions at the held-out points" } else { "rounding" });
        let elsewhere = held_out.map(|h| operator.at(h)).transpose()?;
        let (at_held_out, rounding) = evaluated(problem, solution, held_out)?;
        let sharding = operator.sharding();
        part(3, "residuals");
        let (ψ, image) = match held_out {
            Some(h) => (at_held_out.into(), operator.cross(h, at_points.view())?),
            None if sharding.is_whole() => (at_points.view().into(), operator.product(0..n, 0..n, at_points.view())?),
            None => {
                let at_points = Panel::sharded(Device::Cpu, &sharding, at_points.to_owned())?;
                let image = operator.apply_panel(&at_points)?.into_host()?;
                (CowArray::from(at_points.into_host()?), image)
            }
        };
        let image = image / n as f64;
        let diagonal = operator.diagonal()?;
        let (trace, most) = (diagonal.mean().unwrap_or(0.0), largest_quotient(&diagonal, operator.outputs()));
        let fitted = Fitted { n, at_points: at_points.view(), sharding, image, trace, most };
        let points = elsewhere.as_deref().unwrap_or(operator);
        fitted.certificate(solution, (ψ.view(), rounding), points, held_out.map_or(0, |h| h.count()), context)
    }

    /// The same where the fitted points are not in memory: one more pass over them sums `Kψ` at the `held_out` points, or at some of
    /// the fitted ones when there are none. Functions at all fitted points are known from a sample.
    pub(super) fn measure_blocks(
        problem: &BlockProblem,
        solution: &Solution,
        held_out: Option<Points<'_>>,
    ) -> Result<Certificate> {
        /// Fitted points that stand in for held-out ones.
        const FITTED: usize = 2000;
        let (context, held_out) = (&problem.context, held_out.filter(|h| h.count() > 0));
        let x = problem.data.sample().1.x.rows();
        let operator = context.kernel_operator(problem.kernel, x)?;
        let sample = Problem { operator: &operator, k: problem.k, context: *context };
        let points = held_out.unwrap_or_else(|| x.slice(0..x.n().min(FITTED)).into());
        let (ψ, rounding) = evaluated(&sample, solution, Some(points))?;
        let at_points = at_points(&sample, solution)?;
        let (mut image, mut trace, [mut least, mut most]) = (Array2::zeros(ψ.dim()), 0.0, [f64::INFINITY, 0.0]);
        let FitContext { group, progress, .. } = *context;
        let n = problem.data.pass("certificate: residuals", group, progress, &mut |block| {
            let operator = context.kernel_operator(problem.kernel, &block.x)?;
            let values = solution.features.project(block.x.rows().into(), solution.coefficients.view())?;
            image += &operator.cross(points, values.view())?;
            for κ in operator.diagonal()? {
                (trace, least, most) = (trace + κ, least.min(κ), most.max(κ));
            }
            Ok(true)
        })?;
        group.sum(image.as_slice_mut().expect("own array"))?;
        trace = group.concatenated(&[trace])?.iter().sum();
        let extremes = group.concatenated(&[least, most])?;
        least = extremes.iter().step_by(2).copied().fold(least, f64::min);
        most = extremes.iter().skip(1).step_by(2).copied().fold(most, f64::max);
        let most = if least == most { most } else { f64::INFINITY };
        let (image, trace) = (image / n as f64, trace / n as f64);
        let fitted = Fitted { n, at_points: at_points.view(), sharding: Sharding::WHOLE, image, trace, most };
        let elsewhere = operator.at(points)?;
        fitted.certificate(solution, (ψ.view(), rounding), &*elsewhere, held_out.map_or(0, |h| h.count()), context)
    }

    /// Takes account of negative eigenvalues: with them, the trace is no sum of absolute eigenvalues.
    pub(super) fn has_negative(&mut self, negative: &Negative, μ: &[f64]) {
        self.negative = negative.share;
        let all = self.trace + 2.0 * negative.sum;
        self.trace_captured = if all > 0.0 { (μ.iter().sum::<f64>() / all).min(1.0) } else { 0.0 };
    }

    /// Takes account of a pair that was not found, with this Rayleigh quotient and its standard error: pairs that are not shown to be larger
    /// are not simple.
    pub(super) fn has_missed(&mut self, quotient: f64, error: f64, μ: &[f64]) {
        for (standing, μ) in self.standing.iter_mut().zip(μ) {
            if *standing == Standing::Simple && *μ <= quotient + RESOLVED * error {
                *standing = Standing::Unresolved;
            }
        }
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

/// What is known of the fitted points.
struct Fitted<'a> {
    /// How many values there are.
    n: usize,
    /// ψ at all of them, or at a sample of them, `[m, k]`.
    at_points: ArrayView2<'a, f64>,
    /// How the rows of these are sharded over ranks.
    sharding: Sharding,
    /// `Kψ` `[h, k]` at the points of the certificate, with K averaging over the fitted ones.
    image: Array2<f64>,
    /// The mean of `κ(x,x)`.
    trace: f64,
    /// The largest value that `⟨ψ,Kψ⟩/⟨ψ,ψ⟩` can have.
    most: f64,
}

impl Fitted<'_> {
    /// The certificate from the functions `ψ` `[h, k]` at the points of `operator`, of which `held_out` were held out, and what rounding
    /// contributes to them.
    fn certificate(
        self,
        solution: &Solution,
        (ψ, rounding): (ArrayView2<f64>, Vec<Option<f64>>),
        operator: &dyn Operator,
        held_out: usize,
        context: &FitContext,
    ) -> Result<Certificate> {
        let (μ, trace) = (&solution.eigenvalues, self.trace);
        let basis = Larger::new(ψ, μ);
        let error = basis.weighted(self.image - &ψ * &aview1(μ));
        let residual = per_pair(μ, |j| (basis.freedom(j) * ratio(error.view(), ψ, j)).sqrt() / μ[j]);
        let stage = context.stage("certificate", 4, 4);
        let context = FitContext { progress: &stage, ..*context };
        // The functions were fitted to the fitted points: what these show says nothing of fresh ones.
        let population = match held_out {
            0 => vec![Population::default(); μ.len()],
            _ => Population::new(operator, ψ, μ, &context)?,
        };
        let within = |[low, high]: [f64; 2]| [low.min(self.most), high.min(self.most)];
        let (standing, cuts_group) = standings(μ, solution.next, &residual, (self.at_points, &self.sharding), self.n)?;
        Ok(Certificate {
            held_out,
            rounding,
            population_residual: population.iter().map(|p| p.residual).collect(),
            population_bound: population.iter().map(|p| p.bound).collect(),
            orthonormality: orthonormality(ψ, μ),
            trace,
            trace_kind: TraceKind::Exact,
            trace_captured: if trace > 0.0 { μ.iter().sum::<f64>() / trace } else { 0.0 },
            interval: population.iter().map(|p| p.interval.map(within)).collect(),
            standing,
            cuts_group,
            residual,
            negative: 0.0,
        })
    }
}

/// The largest value that `⟨ψ,Kψ⟩/⟨ψ,ψ⟩` can have under any distribution: the trace, where `κ(x,x)` `[n]` is the same for all points.
fn largest_quotient(diagonal: &Array1<f64>, outputs: usize) -> f64 {
    let first = diagonal.first().copied().unwrap_or(f64::INFINITY);
    let constant = outputs == 1 && diagonal.iter().all(|k| *k == first);
    if constant { first } else { f64::INFINITY }
}

/// `ψ(X) = φ(X) A` `[n, k]` at the fitted points.
fn at_points<'s>(problem: &Problem, solution: &'s Solution) -> Result<CowArray<'s, f64, Ix2>> {
    Ok(match &solution.at_points {
        Some(known) => CowArray::from(known.view()),
        None => {
            let x = problem.points("the method")?;
            CowArray::from(solution.features.project(x.into(), solution.coefficients.view())?)
        }
    })
}

fn per_pair(μ: &[f64], value: impl Fn(usize) -> f64) -> Vec<Option<f64>> {
    (0..μ.len()).map(|j| (μ[j] > 0.0).then(|| value(j)).filter(|v| v.is_finite())).collect()
}

/// `‖a_j‖²/‖b_j‖²` for the columns j of `a` and `b` `[h, k]`.
fn ratio(a: ArrayView2<f64>, b: ArrayView2<f64>, j: usize) -> f64 {
    let square = |c: ArrayView1<f64>| c.dot(&c);
    square(a.column(j)) / square(b.column(j))
}

/// The functions `φ A` `[h, k]` at the held-out points, or at some of the fitted ones, and what rounding contributes to
/// them: `ε ‖|φ||a_j|‖/‖φ a_j‖`. (The signs of φ are kept, which changes nothing for features that are never negative.)
fn evaluated(
    problem: &Problem,
    solution: &Solution,
    held_out: Option<Points<'_>>,
) -> Result<(Array2<f64>, Vec<Option<f64>>)> {
    const FITTED: usize = 500;
    let (a, k) = (&solution.coefficients, solution.eigenvalues.len());
    let points = match (held_out, problem.operator.kernel()) {
        (Some(h), _) => h,
        (None, Some(kernel)) => kernel.x().slice(0..kernel.x().n().min(FITTED)).into(),
        (None, None) => return Ok((Array2::zeros((0, k)), vec![None; k])),
    };
    // One evaluation of φ for both.
    let both = concatenate![Axis(1), a.view(), a.mapv(f64::abs).view()];
    let both =
        finite_rows("a function's value", solution.features.project(points, both.view())?, problem.operator.outputs())?;
    let (ψ, sizes) = both.view().split_at(Axis(1), k);
    let ε = problem.operator.roundoff();
    let rounding = per_pair(&solution.eigenvalues, |j| ε * ratio(sizes, ψ, j).sqrt());
    Ok((ψ.to_owned(), rounding))
}

fn orthonormality(ψ: ArrayView2<f64>, μ: &[f64]) -> f64 {
    let kept = μ.iter().filter(|&&μ| μ > 0.0).count();
    let ψ = ψ.slice(s![.., ..kept]);
    let gram = matmul(ψ.t(), ψ) / ψ.nrows() as f64;
    gram.indexed_iter().map(|((i, j), g)| (g - f64::from(u8::from(i == j))).abs()).fold(0.0, f64::max)
}

/// The standing of each pair, and whether k cuts through a group: `next` is the eigenvalue after the last, `ψ` `[m, k]` are the
/// functions at the `n` fitted points, or at a sample of m of them, sharded so over ranks.
///
/// The eigenvalue `μ_j` of a sample has the influence `μ_j(ψ_j(x)² − 1)`, so the difference of two neighbours has a standard
/// error of `√(Var[μ_iψ_i² − μ_jψ_j²]/n)`.
fn standings(
    μ: &[f64],
    next: Option<f64>,
    residual: &[Option<f64>],
    (ψ, sharding): (ArrayView2<f64>, &Sharding),
    n: usize,
) -> Result<(Vec<Standing>, bool)> {
    let m = sharding.shares().map_or(ψ.nrows(), Shares::n) as f64;
    let share = (m / n as f64).sqrt();
    let sum = |of: &dyn Fn(usize) -> f64| {
        let mut sum = [(0..ψ.nrows()).map(of).sum::<f64>()];
        sharding.sum(&mut sum).map(|()| sum[0])
    };
    let standard_error = |influence: &dyn Fn(usize) -> f64| {
        let mean = sum(influence)? / m;
        Ok::<f64, Error>(sum(&|x| (influence(x) - mean).powi(2))?.sqrt() / m * share)
    };
    let square = |j: usize, x: usize| μ[j] * ψ[[x, j]].powi(2);
    // How pair j compares with the one after it. The function of the pair after the last is not known: its influence is taken
    // to be as large as the last one's, and independent of it.
    let with_next = |j: usize| {
        let (after, error) = match μ.get(j + 1) {
            Some(after) => (*after, standard_error(&|x| square(j, x) - square(j + 1, x))?),
            None => (next.unwrap_or(0.0), std::f64::consts::SQRT_2 * standard_error(&|x| square(j, x))?),
        };
        let gap = μ[j] - after;
        Ok(match after > 0.0 {
            true if gap <= REPEATED.max(residual[j].unwrap_or(0.0).min(1e-2)) * μ[j] => Standing::Repeated,
            true if gap <= RESOLVED * error => Standing::Unresolved,
            _ => Standing::Simple,
        })
    };
    let compared: Vec<Standing> = (0..μ.len()).map(with_next).collect::<Result<_>>()?;
    let standing = |j: usize| {
        let both = [compared[j], if j > 0 { compared[j - 1] } else { Standing::Simple }];
        match μ[j] {
            μ_j if μ_j <= 0.0 => Standing::Zero,
            _ if both.contains(&Standing::Repeated) => Standing::Repeated,
            _ if both.contains(&Standing::Unresolved) => Standing::Unresolved,
            _ => Standing::Simple,
        }
    };
    let cuts_group = μ.last().is_some_and(|μ| *μ > 0.0) && compared.last() != Some(&Standing::Simple);
    Ok(((0..μ.len()).map(standing).collect(), cuts_group))
}

/// The directions of larger eigenvalues among the functions themselves, orthonormal on a sample: what the weight `D_j⁻¹`
/// needs.
struct Larger<'m> {
    /// `Q` `[h, k]` with `QᵀQ = I` and the span of the first j columns that of the first j functions.
    q: Array2<f64>,
    μ: &'m [f64],
}

impl<'m> Larger<'m> {
    /// From functions ψ `[h, k]`.
    fn new(ψ: ArrayView2<f64>, μ: &'m [f64]) -> Self {
        // Of h values, a quarter are spent on directions at most, so that the others still measure the rest.
        let count = μ.iter().filter(|μ| **μ > 0.0).count().min(ψ.nrows() / 4);
        Larger { q: orthonormal_in_order(ψ.slice(s![.., ..count])), μ }
    }

    /// `1 − μ_j/μ_i`: the share of direction i that the weight takes off pair j.
    fn share(&self, i: usize, j: usize) -> f64 {
        if i < j && self.μ[i] > self.μ[j] { 1.0 - self.μ[j].max(0.0) / self.μ[i] } else { 0.0 }
    }

    /// `μ_j D_j⁻¹ r_j` for every column j of `r` `[h, k]`.
    fn weighted(&self, r: Array2<f64>) -> Array2<f64> {
        let mut along = matmul(self.q.t(), r.view());
        along.indexed_iter_mut().for_each(|((i, j), b)| *b *= self.share(i, j));
        r - matmul(self.q.view(), along.view())
    }

    /// `h/(h − m)` where m dimensions of h were taken off: a mean square over the others estimates that over all.
    fn freedom(&self, j: usize) -> f64 {
        let h = self.q.nrows() as f64;
        let taken: f64 = (0..self.q.ncols()).map(|i| 1.0 - (1.0 - self.share(i, j)).powi(2)).sum();
        h / (h - taken)
    }
}

/// The columns of `v` `[h, m]` made orthonormal one after the other, each twice against those before it; one that depends on
/// those before it becomes zero.
fn orthonormal_in_order(v: ArrayView2<f64>) -> Array2<f64> {
    let mut q = v.to_owned();
    for j in 0..q.ncols() {
        let (before, mut after) = q.view_mut().split_at(Axis(1), j);
        let mut column = after.column_mut(0);
        let length = column.dot(&column).sqrt();
        for _ in 0..2 {
            let along = before.t().dot(&column);
            column -= &before.dot(&along);
        }
        let norm = column.dot(&column).sqrt();
        column *= if norm > 1e-12 * length { 1.0 / norm } else { 0.0 };
    }
    q
}
