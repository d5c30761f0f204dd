use super::pre_image;
use super::reference::{Reference, Saved, fits};
use super::{check_k, check_points, fix_signs};
use crate::FitContext;
use crate::compute::Device;
use crate::kernel::Kernel;
use crate::linalg::eigh;
use crate::model::Bundle;
use crate::operator::{Centred, DenseOperator, Operator, cross_apply, gram};
use crate::spectrum::{top_pairs, zero_threshold};
use crate::{Error, Result};
use ndarray::{Array1, Array2, ArrayView2, Axis, aview1, s};
use std::time::Instant;

/// Principal components of the features: eigenvectors `u_j` of the centred kernel matrix `HKH`, with eigenvalues `λ_j`.
///
/// A fitted point has the coordinates `u_ij √λ_j`, scikit-learn's convention; the entry of the largest magnitude of
/// each `u_j` is positive.
///
/// ```
/// use mercer::apply::{KernelPca, FitContext};
/// use mercer::kernel::Kernel;
/// let x = ndarray::array![[0.0, 0.0], [2.0, 1.0], [4.0, 2.0], [6.0, 3.0]];
/// let pca = KernelPca { k: 2, ..Default::default() }.fit(&Kernel::parse("linear")?, x.view(), &FitContext::default())?;
/// // The points lie on a line: one component has all the variance, the other does not exist.
/// assert_eq!((pca.k(), pca.dropped), (1, 1));
/// assert!((pca.explained[0] - 1.0).abs() < 1e-12);
/// assert!((pca.transform(x.view())? - pca.projections()).iter().all(|d| d.abs() < 1e-12));
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct KernelPca {
    /// How many components.
    pub k: usize,
    /// How they are found.
    pub solver: EigenSolver,
    /// Residual `‖Ku − λu‖/λ` at which the Krylov solver is done with a pair; the relative error of λ is about its square
    /// (eight digits at the default 1e-4), that of u the residual over the relative gap to the next eigenvalue.
    pub tolerance: f64,
}

/// How eigenpairs are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EigenSolver {
    /// [`Exact`](EigenSolver::Exact) for few points or many pairs, else [`Krylov`](EigenSolver::Krylov).
    #[default]
    Auto,
    /// Dense eigendecomposition.
    Exact,
    /// Block Krylov iteration on the operator; the kernel matrix is stored only where it fits easily.
    Krylov,
}

impl EigenSolver {
    /// The solver for `k` pairs of `n` points: below a few hundred points, or for a sixth of all pairs, dense is faster.
    pub(super) fn chosen(self, n: usize, k: usize) -> EigenSolver {
        match self {
            EigenSolver::Auto if n <= 400 || (k + 8) * 6 >= n => EigenSolver::Exact,
            EigenSolver::Auto => EigenSolver::Krylov,
            chosen => chosen,
        }
    }
}

impl Default for KernelPca {
    fn default() -> Self {
        KernelPca { k: 2, solver: EigenSolver::Auto, tolerance: 1e-4 }
    }
}

/// Kernel principal components, ready to project new points.
pub struct FittedKernelPca {
    /// `λ_j` of `HKH`, descending, none of them zero.
    pub eigenvalues: Vec<f64>,
    /// `λ_j / tr(HKH)`: the share of the features' variance that each component has.
    pub explained: Vec<f64>,
    /// Components that were asked for but do not exist: their eigenvalue is not told from zero.
    pub dropped: usize,
    /// What it was fitted on.
    pub reference: Reference,
    kernel: Kernel,
    /// `A = u_j/√λ_j` `[n, k]`; each column sums to zero.
    coefficients: Array2<f64>,
    /// `b_j = Σ_i A_ij m_i` for the row means m of K, `[k]`.
    offsets: Array1<f64>,
}

/// Eigenpairs of `HKH`, and what centring needs.
struct CentredPairs {
    values: Vec<f64>,
    /// `[n, k]`
    vectors: Array2<f64>,
    /// Row means of K `[n]`.
    means: Array1<f64>,
    trace: f64,
    /// Eigenvalues up to this are rounding.
    threshold: f64,
}

impl KernelPca {
    /// Finds the components of the points `x` `[n, d]`.
    pub fn fit(&self, kernel: &Kernel, x: ArrayView2<f64>, context: &FitContext) -> Result<FittedKernelPca> {
        let start = Instant::now();
        check_points(x)?;
        check_k(self.k, x.nrows())?;
        let pairs = match self.solver.chosen(x.nrows(), self.k) {
            EigenSolver::Exact => self.exact(kernel, x, context)?,
            _ => self.krylov(kernel, x, context)?,
        };
        let kept = pairs.values.iter().take_while(|&&λ| λ > pairs.threshold).count();
        if kept == 0 {
            return Err(Error::input(
                "the kernel sees no difference between the points: every centred eigenvalue is zero; \
                 use another kernel or lengthscale",
            ));
        }
        let eigenvalues = pairs.values[..kept].to_vec();
        let mut coefficients = pairs.vectors.slice(s![.., ..kept]).to_owned();
        fix_signs(&mut coefficients);
        for (mut a, λ) in coefficients.axis_iter_mut(Axis(1)).zip(&eigenvalues) {
            // Eigenvectors of HKH sum to zero; rounding is taken off, for the projection rests on it.
            let mean = a.mean().unwrap_or(0.0);
            a.mapv_inplace(|u| (u - mean) / λ.sqrt());
        }
        Ok(FittedKernelPca {
            explained: eigenvalues.iter().map(|λ| λ / pairs.trace).collect(),
            dropped: self.k - kept,
            offsets: pairs.means.dot(&coefficients),
            reference: Reference::new("kpca", kernel, x, context, start),
            kernel: kernel.clone(),
            eigenvalues,
            coefficients,
        })
    }

    fn exact(&self, kernel: &Kernel, x: ArrayView2<f64>, context: &FitContext) -> Result<CentredPairs> {
        let n = x.nrows();
        context.budget.require(
            format!("the exact eigendecomposition of {n} points"),
            4 * (n as u64).pow(2) * 8,
            "use the Krylov solver, which does not store the kernel matrix",
        )?;
        let k = DenseOperator::new(gram::<f64>(kernel, x, context.device)?);
        let centred = Centred::new(&k)?;
        let all: Vec<usize> = (0..n).collect();
        let (values, u) = eigh(context.device, centred.block(&all, &all)?.view())?;
        pairs(&centred, values[..self.k].to_vec(), u.slice(s![.., ..self.k]).to_owned())
    }

    fn krylov(&self, kernel: &Kernel, x: ArrayView2<f64>, context: &FitContext) -> Result<CentredPairs> {
        // The solver keeps up to six blocks of k + 8 vectors and their images.
        let basis = 18 * (x.nrows() * (self.k + 8)) as u64 * 8;
        context.budget.require(
            format!("the Krylov basis for k = {} at {} points", self.k, x.nrows()),
            basis,
            "ask for fewer components",
        )?;
        let operator = context.operator(kernel, x, basis)?;
        let centred = Centred::new(operator.as_ref())?;
        let top = top_pairs(&centred, self.k, self.tolerance, context)?;
        pairs(&centred, top.values, top.vectors)
    }
}

fn pairs(centred: &Centred, values: Vec<f64>, vectors: Array2<f64>) -> Result<CentredPairs> {
    let (means, mean) = centred.means();
    // The rounding of HKH is that of K, whose largest eigenvalue is at least n times its mean.
    let scale = values[0].max(mean * values.len().max(means.len()) as f64);
    let threshold = zero_threshold(centred.roundoff(), scale);
    Ok(CentredPairs { means: means.clone(), trace: centred.diagonal()?.sum(), threshold, values, vectors })
}

impl FittedKernelPca {
    /// Number of components.
    pub fn k(&self) -> usize {
        self.eigenvalues.len()
    }

    /// Coordinates `u_ij √λ_j` `[n, k]` of the fitted points.
    pub fn projections(&self) -> Array2<f64> {
        &self.coefficients * &aview1(&self.eigenvalues)
    }

    /// Coordinates `[m, k]` of new points `[m, d]`: `z_j(x) = Σ_i A_ij (κ(x,x_i) − m_i)`. The means of `κ(x,·)` and of
    /// all of K drop out, because each column of A sums to zero.
    pub fn transform(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        let x = self.reference.prepare(x)?;
        let precision = self.reference.origin.precision;
        let z = cross_apply(
            &self.kernel,
            x.view(),
            self.reference.points(),
            self.coefficients.view(),
            precision,
            self.reference.device,
        )?;
        Ok(z - &self.offsets)
    }

    /// Points `[m, d]` whose features are near the coordinates `z` `[m, k]`: what is left of a point when only its
    /// principal components are kept. In the scale of the fit, that is after the scaler where there is one.
    ///
    /// The weighted mean of the fitted points with the nearest coordinates and, where the kernel is a single RBF,
    /// the fixed point of Mika et al. from there: `p ← Σ γ_i κ(p,x_i) x_i / Σ γ_i κ(p,x_i)`, `γ = 1/n + A z`.
    pub fn pre_image(&self, z: ArrayView2<f64>) -> Result<Array2<f64>> {
        if z.ncols() != self.k() {
            return Err(Error::input(format!("coordinates must have {} columns, got {}", self.k(), z.ncols())));
        }
        super::check_finite(z)?;
        let near = pre_image::nearest_mean(self.projections().view(), self.reference.points(), z);
        if !pre_image::is_rbf(&self.kernel) {
            return Ok(near);
        }
        let n = self.reference.origin.n as f64;
        let gamma = crate::linalg::matmul(z, self.coefficients.t()) + 1.0 / n;
        pre_image::fixed_point(&self.kernel, self.reference.points(), gamma.view(), near, self.reference.device)
    }
}

impl Saved for FittedKernelPca {
    const KIND: &'static str = "kpca";

    fn pack<'a>(&'a self, bundle: &mut Bundle<'a>) {
        self.reference.pack(bundle);
        bundle.set("eigenvalues", &self.eigenvalues);
        bundle.set("explained", &self.explained);
        bundle.set("dropped", self.dropped);
        bundle.put("coefficients", self.coefficients.view());
        bundle.put("offsets", self.offsets.view().insert_axis(Axis(0)));
    }

    fn unpack(bundle: &Bundle, device: Device) -> Result<Self> {
        let reference = Reference::unpack(bundle, device)?;
        let eigenvalues: Vec<f64> = bundle.value("eigenvalues")?;
        let (coefficients, offsets) = (bundle.matrix("coefficients")?, bundle.matrix("offsets")?);
        fits("coefficients", coefficients.dim(), (reference.origin.n, eigenvalues.len()))?;
        fits("offsets", offsets.dim(), (1, eigenvalues.len()))?;
        Ok(FittedKernelPca {
            explained: bundle.value("explained")?,
            dropped: bundle.value("dropped")?,
            kernel: reference.kernel()?,
            offsets: offsets.row(0).to_owned(),
            reference,
            eigenvalues,
            coefficients,
        })
    }
}
