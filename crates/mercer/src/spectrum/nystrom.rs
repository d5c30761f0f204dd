//! Nyström's method.

use super::covariance::{self, BLOCK, covariance, covariance_on, principal_pairs};
use super::exact::decomposed;
use super::ritz::{over_roots, ritz_pairs};
use super::{BlockProblem, BlockSize, Landmarks, Method, Problem, Size, Solution, check_columns, zero_threshold};
use crate::compute::Device;
use crate::context::ONE_STEP;
use crate::data::Rows;
use crate::kernel::Kernel;
use crate::linalg::{Cholesky, Panel, Part, matmul, matmul_into, solve_lower_transposed};
use crate::operator::memory::zeros;
use crate::operator::{
    Extension, Factor, KernelFeatures, Operator, Pair, Precision, Real, Side, Strips, Workspace, gram, in_precision,
    ranges, typed,
};
use crate::options::{Entry, Kind, Opt};
use crate::{Error, FitContext, Result, fail_if};
use faer::{Accum, Par};
use ndarray::{Array2, ArrayView2, ArrayViewMut2, Axis, s};
use rayon::prelude::*;
use std::any::Any;
use std::ops::Range;

static LANDMARKS: Opt = Opt::new(
    "landmarks",
    "N",
    Kind::Count(1),
    "number of landmarks [default: 500, or twice the number of pairs where that is more]",
);
static CHOICE: Opt = Opt::new(
    "choice",
    "CHOICE",
    Kind::Word(|| Landmarks::NAMED.map(|(word, _)| word).to_vec()),
    "how the landmarks are chosen among the points [default: kmeans++]",
);

/// Nyström's method: the eigenpairs, over all n points, of the kernel `κ(x,Z) κ(Z,Z)⁺ κ(Z,x')` that the landmarks Z
/// leave of κ. With every point a landmark it is exact.
///
/// ```
/// use mercer::{FitContext, kernel::Kernel, spectrum::{Landmarks, Nystrom, NystromRitz, Problem, Spectrum}};
/// let x = ndarray::Array2::from_shape_fn((2000, 1), |(i, _)| i as f64 / 500.0 - 2.0);
/// let operator = FitContext::default().kernel_operator(&Kernel::parse("rbf(1)")?, x.view())?;
/// let method = Nystrom { landmarks: 30, choice: Landmarks::PivotedCholesky };
/// let spectrum = Spectrum::fit(&method, &Problem::new(&operator, 3), None)?;
/// assert!(spectrum.certificate.worst_residual() < 1e-6);
/// assert!(Spectrum::fit(&NystromRitz(method), &Problem::new(&operator, 3), None)?.certificate.worst_residual() < 1e-6);
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Nystrom {
    /// How many landmarks; no more than there are points.
    pub landmarks: usize,
    /// How they are chosen.
    pub choice: Landmarks,
}

impl Nystrom {
    /// 500 landmarks, or twice as many as pairs where that is more, by k-means++; all of n points where they are fewer.
    pub fn usual(n: usize, k: usize) -> Nystrom {
        Nystrom { landmarks: (2 * k).max(500).min(n), choice: Landmarks::KMeansPlusPlus }
    }

    pub(crate) fn entry() -> Entry<Size> {
        Entry::<Size>::new(
            "nystrom",
            "approximate, from a few landmark points; time grows like n",
            vec![&LANDMARKS, &CHOICE],
            |o, size| {
                let usual = Nystrom::usual(size.n, size.k);
                let landmarks = o.take(&LANDMARKS)?.unwrap_or(usual.landmarks);
                let choice = o.take_word(&CHOICE, &Landmarks::NAMED)?.unwrap_or(usual.choice);
                Ok(Box::new(Nystrom { landmarks, choice }))
            },
        )
    }

    /// Rows of the landmarks, where the problem fits into memory.
    fn landmarks(&self, problem: &Problem) -> Result<Vec<usize>> {
        let (n, m, context) = (problem.operator.n(), self.landmarks, &problem.context);
        fail_if!(m < problem.k, "{} pairs need at least as many landmarks, got {m}", problem.k);
        let d = problem.operator.points().map_or(0, |x| x.d());
        context.budget.require(
            format!("Nyström's method with {m} landmarks at {n} points"),
            self.choice.memory((n, d), m, context.precision).max(covariance::memory(m, context.precision.bytes())),
            "use fewer landmarks, or choose them uniformly",
        )?;
        self.choice.choose_reported(problem.operator, m, context)
    }

    /// The map of landmarks among the values of an operator with a formula.
    pub(crate) fn features(&self, problem: &Problem) -> Result<NystromFeatures> {
        let kernel = problem.kernel("Nyström features")?;
        NystromFeatures::new(kernel.formula(), &kernel.x().select(&self.landmarks(problem)?), &problem.context)
    }
}

impl Method for Nystrom {
    fn name(&self) -> String {
        "nystrom".into()
    }

    fn blocks(&self) -> Option<BlockSize> {
        Some(BlockSize { features: self.landmarks, landmarks: self.landmarks })
    }

    /// With features `Φ = κ(X,Z) N` `[n, r]` as in [`NystromFeatures`], the pairs are those of `ΦᵀΦ/n`:
    /// `ψ_j(x) = κ(x,Z) N v_j / √μ_j`.
    fn solve(&self, problem: &Problem) -> Result<Solution> {
        let (chosen, context) = (self.landmarks(problem)?, &problem.context);
        let map = Map::new(problem, &chosen)?;
        let (n, r) = (problem.operator.n(), map.normalisation().ncols());
        let sigma = match map.covariance_on_gpu(context)? {
            Some(sigma) => sigma,
            None => in_precision!(context.precision, T => {
                covariance(n, r, context.progress, |rows| map.range::<T>(rows))?
            }),
        };
        let (eigenvalues, a) = principal_pairs(context, sigma.view(), problem.k)?;
        let _keeps = context.keeps_best();
        map.solution(eigenvalues, a.view())
    }

    /// As [`Self::solve`]; landmarks are chosen among rows that are in memory.
    fn solve_blocks(&self, problem: &BlockProblem) -> Result<Solution> {
        problem.require(self.landmarks)?;
        let context = &problem.context;
        let candidates = Landmarks::candidates(problem.data.drawn_of(), self.landmarks, context.seed);
        let (_, some) = problem.data.rows(&candidates);
        let operator = context.kernel_operator(problem.kernel, &some.x)?;
        let map = self.features(&Problem { operator: &operator, k: problem.k, context: *context })?;
        let (sigma, note) = in_precision!(context.precision, T => {
            problem.covariance(map.dim(), |x| Ok(map.eval::<T>(x)))?
        });
        let (eigenvalues, a) = principal_pairs(context, sigma.view(), problem.k)?;
        let solution = Solution::new(eigenvalues, map.functions(a.view(), context));
        Ok(Solution { notes: note.into_iter().collect(), ..solution })
    }
}

/// As [`Nystrom`], but the pairs are those of κ itself within the span of `κ(·,Z)` (Rayleigh–Ritz on at most 8192
/// points): a better use of the same landmarks, at the same cost for a new point. Example: [`Nystrom`].
#[derive(Clone, Copy, Debug)]
pub struct NystromRitz(pub Nystrom);

impl Method for NystromRitz {
    fn name(&self) -> String {
        "nystrom-ritz".into()
    }

    fn solve(&self, problem: &Problem) -> Result<Solution> {
        let chosen = self.0.landmarks(problem)?;
        let map = Map::new(problem, &chosen)?;
        problem.context.progress.step("Rayleigh–Ritz", 0, 1, ONE_STEP);
        let (eigenvalues, a) = ritz_pairs(problem, |rows| map.rows(rows))?;
        map.solution(eigenvalues, a.view())
    }
}

/// `Φ = κ(X,Z) N` at the values X of a sample.
struct Map<'a> {
    operator: &'a dyn Operator,
    /// Rows of Z.
    chosen: &'a [usize],
    values: Values<'a>,
}

/// How the features are computed: tile by tile from a formula, or from blocks of any operator.
enum Values<'a> {
    Formula(Box<NystromFeatures>, Rows<'a>),
    Blocks(Array2<f64>),
}

impl<'a> Map<'a> {
    fn new(problem: &Problem<'a>, chosen: &'a [usize]) -> Result<Self> {
        let (operator, context) = (problem.operator, &problem.context);
        let values = match operator.kernel() {
            Some(kernel) => {
                let map = NystromFeatures::new(kernel.formula(), &kernel.x().select(chosen), context)?;
                Values::Formula(Box::new(map), kernel.x())
            }
            None => Values::Blocks(normalisation(&operator.block(chosen, chosen)?, context)?.0),
        };
        Ok(Map { operator, chosen, values })
    }

    /// N `[m, r]`
    fn normalisation(&self) -> ArrayView2<'_, f64> {
        match &self.values {
            Values::Formula(map, _) => map.normalisation.view(),
            Values::Blocks(normalisation) => normalisation.view(),
        }
    }

    /// `ΦᵀΦ/n` `[r, r]` by a GPU, where the context has one that computes the kernel of points.
    fn covariance_on_gpu(&self, context: &FitContext) -> Result<Option<Array2<f64>>> {
        let Values::Formula(map, x) = &self.values else { return Ok(None) };
        let on_gpu = self.operator.kernel().is_some_and(|kernel| kernel.runs_on() == context.device);
        if context.device == Device::Cpu || !on_gpu || map.kernel.sees_images() {
            return Ok(None);
        }
        let pair = Pair::new(&map.kernel, *x, map.landmarks(), context.precision, context.device)?;
        let normalisation = Panel::from_host(context.device, map.normalisation.clone())?;
        let sizes = (x.n(), normalisation.ncols());
        let sigma = covariance_on(context.device, sizes, context.progress, |rows| {
            pair.block((Side::X, Part::Range(rows)), (Side::Z, Part::All))?.times(&normalisation)
        })?;
        Ok(Some(sigma))
    }

    /// `Φ[rows]`
    fn range<T: Real>(&self, rows: Range<usize>) -> Result<Array2<T>> {
        match &self.values {
            Values::Formula(map, x) => Ok(map.eval(x.slice(rows))),
            Values::Blocks(_) => Ok(self.rows(&rows.collect::<Vec<_>>())?.mapv(T::of)),
        }
    }

    fn rows(&self, rows: &[usize]) -> Result<Array2<f64>> {
        match &self.values {
            Values::Formula(map, x) => Ok(map.eval(x.select(rows).rows())),
            Values::Blocks(normalisation) => {
                Ok(matmul(self.operator.block(rows, self.chosen)?.view(), normalisation.view()))
            }
        }
    }

    /// The functions `ψ = κ(·,Z) N A`.
    fn solution(&self, eigenvalues: Vec<f64>, a: ArrayView2<f64>) -> Result<Solution> {
        let coefficients = matmul(self.normalisation(), a);
        // Without a formula, the functions are not known by coordinates; their values on the sample are.
        let at_points = match &self.values {
            Values::Formula(..) => None,
            Values::Blocks(_) => {
                let all: Vec<usize> = (0..self.operator.n()).collect();
                let mut ψ = Array2::zeros((all.len(), a.ncols()));
                for (rows, mut ψ) in all.chunks(BLOCK).zip(ψ.axis_chunks_iter_mut(Axis(0), BLOCK)) {
                    ψ.assign(&matmul(self.operator.block(rows, self.chosen)?.view(), coefficients.view()));
                }
                Some(ψ)
            }
        };
        let extension = self.operator.extend(Some(self.chosen), coefficients)?;
        Ok(Solution { at_points, ..Solution::new(eigenvalues, extension) })
    }
}

/// Nyström's feature map `φ(x) = κ(x,Z) N` with `N Nᵀ = κ(Z,Z)⁺`, so that `φ(x)·φ(x') = κ(x,Z) κ(Z,Z)⁺ κ(Z,x')`.
///
/// Features are only defined up to a rotation. Where `W = κ(Z,Z)` is well conditioned, `N = L⁻ᵀ` with `W = L Lᵀ`, whose
/// zeros spare nearly half the work; otherwise `N = U Λ^{−1/2}` over the eigenvalues of W that rounding has left
/// intact, and there are fewer features than landmarks.
///
/// ```
/// use mercer::{FitContext, kernel::Kernel, spectrum::NystromFeatures};
/// let z = ndarray::array![[0.0], [1.0], [2.5]];
/// let map = NystromFeatures::new(&Kernel::parse("rbf(1)")?, z.view(), &FitContext::default())?;
/// let phi = map.transform::<f64>(z.view())?;
/// // At the landmarks themselves the features give the kernel back.
/// assert!((phi.row(0).dot(&phi.row(1)) - (-0.5f64).exp()).abs() < 1e-14);
/// # Ok::<(), mercer::Error>(())
/// ```
pub struct NystromFeatures {
    kernel: Kernel,
    /// Z `[m, d]`
    landmarks: Array2<f64>,
    /// N `[m, r]`
    normalisation: Array2<f64>,
    /// Whether N is zero below its diagonal.
    triangular: bool,
}

impl NystromFeatures {
    /// The map of landmarks `z` `[m, d]`, for kernel values of the given precision.
    pub fn new<'z>(kernel: &Kernel, z: impl Into<Rows<'z>>, context: &FitContext<'_>) -> Result<Self> {
        let z = z.into();
        let w = gram::<f64>(kernel, z, context.device)?;
        if let Some(((i, j), value)) = w.indexed_iter().find(|(_, v)| !v.is_finite()) {
            return Err(Error::Numerical(format!(
                "the kernel {kernel} of landmarks {i} and {j} is {value}: scale the data down or the lengthscale up"
            )));
        }
        let (normalisation, triangular) = normalisation(&w, context)?;
        Ok(NystromFeatures { kernel: kernel.clone(), landmarks: z.to_f64().into_owned(), normalisation, triangular })
    }

    /// As [`Self::new`], for so many landmarks that an eigendecomposition of `W = κ(Z,Z)` would take longer than all else: `N = L⁻ᵀ` with `LLᵀ = W + δI`. In
    /// single precision δ is what the rounding of m kernel values may take from an eigenvalue; in double precision it is a hundredth of that, where that is
    /// enough.
    pub(crate) fn shifted<'z>(kernel: &Kernel, z: impl Into<Rows<'z>>, context: &FitContext<'_>) -> Result<Self> {
        let z = z.into();
        let mut w = gram::<f64>(kernel, z, context.device)?;
        let rounding = 1e-6 * (z.n() as f64).sqrt() * w.diag().mean().unwrap_or(1.0);
        let double = FitContext { precision: Precision::F64, ..*context };
        let shares: &[f64] = if context.precision == Precision::F64 { &[0.01, 1.0] } else { &[1.0] };
        let mut added = 0.0;
        for share in shares {
            w.diag_mut().mapv_inplace(|d| d + share * rounding - added);
            added = share * rounding;
            if let Some(normalisation) = inverse_factor(&w, &double) {
                let landmarks = z.to_f64().into_owned();
                return Ok(NystromFeatures { kernel: kernel.clone(), landmarks, normalisation, triangular: true });
            }
        }
        NystromFeatures::new(kernel, z, context)
    }

    /// The functions `x ↦ φ(x)W` for `w` `[r, k]`, as combinations of `κ(·, z_m)`.
    pub(crate) fn functions(self, w: ArrayView2<f64>, context: &FitContext<'_>) -> Extension {
        let coefficients = matmul(self.normalisation.view(), w);
        let features = KernelFeatures::new(&self.kernel, self.landmarks, context.precision, context.device);
        Extension { features: Box::new(features), coefficients }
    }

    /// κ
    pub(crate) fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Z `[m, d]`
    pub(crate) fn landmarks(&self) -> ArrayView2<'_, f64> {
        self.landmarks.view()
    }

    /// N `[m, r]`
    pub(crate) fn normalisation(&self) -> ArrayView2<'_, f64> {
        self.normalisation.view()
    }

    /// r, the number of features.
    pub fn dim(&self) -> usize {
        self.normalisation.ncols()
    }

    /// `φ(x)` `[n, r]` at points `[n, d]`, computed in `T`.
    pub fn transform<'x, T: Real>(&self, x: impl Into<Rows<'x>>) -> Result<Array2<T>> {
        let x = x.into();
        check_columns(x, self.landmarks.ncols())?;
        Ok(typed(self.computed(x, T::PRECISION)))
    }

    fn computed(&self, x: Rows<'_>, precision: Precision) -> Box<dyn Any> {
        in_precision!(precision, T => Box::new(self.eval::<T>(x)))
    }

    /// Strip by strip: kernel values, then their product with N while they are in cache, straight into the result.
    fn eval<T: Real>(&self, x: Rows<'_>) -> Array2<T> {
        if let Some(normalisation) = Factor::new(self.normalisation.view(), self.triangular) {
            return self.strips(x, self.dim(), |c, out| normalisation.product(c, out));
        }
        let normalisation = self.normalisation.mapv(T::of);
        self.strips(x, self.dim(), |c, out| self.normalise(c, normalisation.view(), out))
    }

    /// `κ(x,Z)` `[n, m]` at points `[n, d]`: the features before N.
    pub(crate) fn values(&self, x: Rows<'_>) -> Array2<f64> {
        self.strips(x, self.landmarks.nrows(), |c, mut out| out.assign(&c))
    }

    /// `[n, width]`, of which `put(κ(x,Z), out)` writes the rows of a strip.
    fn strips<T: Real>(
        &self,
        x: Rows<'_>,
        width: usize,
        put: impl Fn(ArrayView2<T>, ArrayViewMut2<T>) + Sync,
    ) -> Array2<T> {
        let (n, m) = (x.n(), self.landmarks.nrows());
        let strips = Strips::<T>::new(&self.kernel, (&self.landmarks).into());
        let mut out = Array2::from_shape_vec((n, width), zeros(n * width)).expect("as many values");
        // Half of it, because the rows of the result take up as much room in the cache.
        let height = strips.height().div_ceil(2);
        let pieces: Vec<_> = out.axis_chunks_iter_mut(Axis(0), height).zip(ranges(n, height)).collect();
        pieces.into_par_iter().for_each_init(Workspace::default, |buffer, (out, rows)| {
            put(strips.block(buffer, x.slice(rows), 0..m).view(), out);
        });
        out
    }

    /// `out = C N`, by panels of columns that leave out the zeros where N is triangular.
    fn normalise<T: Real>(&self, c: ArrayView2<T>, n: ArrayView2<T>, mut out: ArrayViewMut2<T>) {
        const PANEL: usize = 96;
        let r = n.ncols();
        let width = if self.triangular { PANEL } else { r.max(1) };
        for start in (0..r).step_by(width) {
            let end = r.min(start + width);
            let rows = if self.triangular { end } else { n.nrows() };
            let panel = out.slice_mut(s![.., start..end]);
            let (c, n) = (c.slice(s![.., ..rows]), n.slice(s![..rows, start..end]));
            matmul_into(panel, Accum::Replace, c, n, T::one_impl(), Par::Seq);
        }
    }
}

/// `N` `[m, r]` with `N Nᵀ = W⁺` for `W` `[m, m]`, and whether it is zero below its diagonal.
fn normalisation(w: &Array2<f64>, context: &FitContext<'_>) -> Result<(Array2<f64>, bool)> {
    match inverse_factor(w, context) {
        Some(factor) => Ok((factor, true)),
        None => Ok((inverse_root(w, context)?, false)),
    }
}

/// `L⁻ᵀ` for `W = L Lᵀ`, where W is so well conditioned that rounding in `κ(x,Z)` stays small after the product: it grows with
/// `‖L⁻ᵀ‖`, the root of the condition number. `cond W ≤ ‖W‖_F tr W⁻¹`, and `tr W⁻¹ = ‖L⁻ᵀ‖²_F`.
fn inverse_factor(w: &Array2<f64>, context: &FitContext<'_>) -> Option<Array2<f64>> {
    context.progress.step("factorisation of the landmarks' matrix", 0, 1, ONE_STEP);
    let limit = if context.precision == Precision::F64 { 1e12 } else { 1e7 };
    let factor = Cholesky::new(context.device, w.view()).ok()?;
    let mut inverse = Array2::eye(w.nrows());
    solve_lower_transposed(factor.lower().ok()?, inverse.view_mut());
    let squares = |a: &Array2<f64>| a.iter().map(|v| v * v).sum::<f64>();
    (squares(w).sqrt() * squares(&inverse) < limit).then_some(inverse)
}

/// `U Λ^{−1/2}` `[m, r]` over the eigenvalues of `W = U Λ Uᵀ` above ten times the rounding of kernel values. In single
/// precision that is also where the loss from leaving a direction out equals the noise from keeping it.
fn inverse_root(w: &Array2<f64>, context: &FitContext<'_>) -> Result<Array2<f64>> {
    let (λ, u) = decomposed(context, w.view())?;
    let threshold = zero_threshold(context.roundoff(), λ.first().copied().unwrap_or(0.0));
    let rank = λ.iter().take_while(|l| **l > threshold).count();
    Ok(over_roots(&u, &λ[..rank]))
}
