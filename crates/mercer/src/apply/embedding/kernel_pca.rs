//! Kernel principal component analysis.

use crate::apply::embedding::eigen_solver::{above, dropped, fix_signs};
use crate::apply::embedding::pre_image;
use crate::apply::reference::Reference;
use crate::apply::traits::{fields, finite, saved};
use crate::apply::{EigenSolver, Embedding, EmbeddingTask, Fit, Transform, check_finite, check_k, check_points};
use crate::kernel::Kernel;
use crate::operator::{Centred, DenseOperator, Operator, gram_reported};
use crate::options::{Caps, Entry, Options};
use crate::spectrum::{Eigenvectors, Negative, Origin, Problem, zero_threshold};
use crate::{FitContext, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView2, Axis, aview1};
use std::time::Instant;

/// Principal components of the features: eigenvectors `u_j` of the centred kernel matrix `HKH`, with eigenvalues `λ_j`.
///
/// A fitted point has the coordinates `u_ij √λ_j`, scikit-learn's convention; the entry of the largest magnitude of
/// each `u_j` is positive.
///
/// ```
/// use mercer::{FitContext, kernel::Kernel};
/// use mercer::apply::{EigenSolver, Fit, KernelPca, Transform};
/// let x = ndarray::array![[0.0, 0.0], [2.0, 1.0], [4.0, 2.0], [6.0, 3.0]];
/// let pca = KernelPca { k: 2, solver: EigenSolver::Exact, ..KernelPca::new(Kernel::parse("linear")?) };
/// let pca = pca.fit(x.view(), &(), &FitContext::default())?;
/// // The points lie on a line: one component has all the variance, the other does not exist.
/// assert_eq!((pca.eigenvalues.len(), pca.notes.len(), pca.reference.points()), (1, 1, x.view()));
/// assert!((pca.explained[0] - 1.0).abs() < 1e-12);
/// assert!((pca.transform(x.view())? - pca.embedding()).iter().all(|d| d.abs() < 1e-12));
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct KernelPca {
    /// κ
    pub kernel: Kernel,
    /// How many components.
    pub k: usize,
    /// How they are found.
    pub solver: EigenSolver,
    /// Residual `‖Ku − λu‖/λ` at which the Krylov solver accepts a pair; the relative error of λ is about its square
    /// (eight digits at the default 1e-4), that of u the residual over the relative gap to the next eigenvalue.
    pub tolerance: f64,
}

impl KernelPca {
    /// Two components under `kernel`.
    pub fn new(kernel: Kernel) -> Self {
        KernelPca { kernel, k: 2, solver: EigenSolver::Auto, tolerance: 1e-4 }
    }

    pub(crate) fn entry() -> Entry<EmbeddingTask> {
        Entry {
            can: Caps { matrix: true, precision: true, ..Caps::default() },
            ..Entry::<EmbeddingTask>::new(
                "kpca",
                "Kernel principal components",
                EigenSolver::OPTIONS.to_vec(),
                KernelPca::built,
            )
        }
    }

    fn built(o: &mut Options, task: &EmbeddingTask) -> Result<Embedding> {
        let (k, (solver, tolerance)) = (task.k, EigenSolver::of(o)?);
        let pca = move |kernel| {
            let usual = KernelPca::new(kernel);
            KernelPca { k, solver, tolerance: tolerance.unwrap_or(usual.tolerance), ..usual }
        };
        if task.matrix {
            let pca = pca(Kernel::parse("linear")?);
            return Ok(Embedding::new(move |k, context| pca.fit_matrix(k, context)));
        }
        let kernel = task.kernel()?;
        Ok(Embedding::new(move |x, context| pca(kernel.resolve(x, context.seed)?).fit(x, &(), context)))
    }
}

/// Kernel principal components, ready to project new points. Example: [`KernelPca`].
pub struct FittedKernelPca {
    /// `λ_j` of `HKH`, descending, none of them zero.
    pub eigenvalues: Vec<f64>,
    /// `λ_j / tr(HKH)`: the share of the features' variance that each component has.
    pub explained: Vec<f64>,
    /// Warnings: components that do not exist, an iteration that ended early.
    pub notes: Vec<String>,
    /// What it was fitted on.
    pub reference: Reference,
    kernel: Kernel,
    /// `A = u_j/√λ_j` `[n, k]`; each column sums to zero.
    coefficients: Array2<f64>,
    /// `b_j = Σ_i A_ij m_i` for the row means m of K, `[k]`.
    offsets: Array1<f64>,
}

impl Fit for KernelPca {
    type Target = ();
    type Fitted = FittedKernelPca;

    fn learn(&self, x: ArrayView2<f64>, _: &(), context: &FitContext) -> Result<FittedKernelPca> {
        let start = Instant::now();
        check_points(x)?;
        let n = x.nrows();
        check_k(self.k, n)?;
        let other = self.solver.require(n, self.k, context)?;
        let operator: Box<dyn Operator> = match self.solver.chosen(n, self.k) {
            EigenSolver::Exact => {
                let k = gram_reported::<f64>(&self.kernel, x.into(), context.device, context.progress)?;
                Box::new(DenseOperator::new(k))
            }
            _ => context.operator(&self.kernel, x, other)?,
        };
        self.components(operator.as_ref(), x, start, context)
    }
}

impl KernelPca {
    /// Fits a kernel matrix `[n, n]` instead of points and a kernel. New points are then given by their kernel values with the n
    /// fitted ones, `[m, n]`: seen by the linear kernel with the unit vectors.
    ///
    /// ```
    /// use mercer::{Device, FitContext, kernel::Kernel, operator::gram};
    /// use mercer::apply::{Fit, KernelPca, Transform};
    /// let x = ndarray::array![[0.0], [1.0], [2.5], [4.0]];
    /// let kernel = Kernel::parse("rbf(1)")?;
    /// let k = gram::<f64>(&kernel, x.view(), Device::Cpu)?;
    /// let of_points = KernelPca::new(kernel.clone()).fit(x.view(), &(), &FitContext::default())?;
    /// let of_matrix = KernelPca::new(kernel).fit_matrix(k.view(), &FitContext::default())?;
    /// assert!((of_matrix.transform(k.view())? - of_points.embedding()).iter().all(|d| d.abs() < 1e-12));
    /// # Ok::<(), mercer::Error>(())
    /// ```
    pub fn fit_matrix(&self, k: ArrayView2<f64>, context: &FitContext) -> Result<FittedKernelPca> {
        let (start, n) = (Instant::now(), k.nrows());
        check_points(k)?;
        fail_if!(k.ncols() != n, "a kernel matrix must be square, but this one has {n} rows and {} columns", k.ncols());
        check_k(self.k, n)?;
        self.solver.require(n, self.k, context)?;
        let linear = KernelPca { kernel: Kernel::parse("linear")?, ..self.clone() };
        let dense = DenseOperator::new(k.to_owned());
        let mut fitted = linear.components(&dense, Array2::eye(n).view(), start, context)?;
        let centred = Centred::new(&dense)?;
        if let Some(negative) = Negative::found(&centred, context)? {
            // Shares of Σ|λ|, since a trace has negative terms then.
            let all = centred.diagonal()?.sum() + 2.0 * n as f64 * negative.sum;
            fitted.explained = fitted.eigenvalues.iter().map(|λ| λ / all).collect();
            fitted.notes.push(negative.note());
        }
        finite(fitted)
    }

    /// The components of `operator`, `κ(X,X)` of the points `x` `[n, d]`.
    fn components(
        &self,
        operator: &dyn Operator,
        x: ArrayView2<f64>,
        start: Instant,
        context: &FitContext,
    ) -> Result<FittedKernelPca> {
        let n = operator.n();
        let centred = Centred::new(operator)?;
        let problem = Problem { operator: &centred, k: self.k, context: *context };
        let Eigenvectors { values, vectors, mut notes } =
            self.solver.method(n, self.k, self.tolerance).eigenvectors(&problem)?;
        let _keeps = context.keeps_best();
        let (means, mean) = centred.means();
        // The rounding of HKH is that of K, whose largest eigenvalue is at least n times its mean.
        let threshold = zero_threshold(centred.roundoff(), values[0].max(mean * n as f64));
        let none = "the kernel sees no difference between the points: every eigenvalue of the centred matrix is zero; \
                    use another kernel or lengthscale";
        let (eigenvalues, mut coefficients) = above(threshold, (values, vectors), none)?;
        fix_signs(&mut coefficients);
        for (mut a, λ) in coefficients.axis_iter_mut(Axis(1)).zip(&eigenvalues) {
            // Eigenvectors of HKH sum to zero; the projection relies on it, so rounding is removed.
            let mean = a.mean().unwrap_or(0.0);
            a.mapv_inplace(|u| (u - mean) / λ.sqrt());
        }
        notes.extend(dropped(self.k, eigenvalues.len(), !notes.is_empty()));
        let trace = centred.diagonal()?.sum();
        Ok(FittedKernelPca {
            explained: eigenvalues.iter().map(|λ| λ / trace).collect(),
            notes,
            offsets: means.dot(&coefficients),
            reference: Reference::new(Origin::new("kpca", &self.kernel, x.dim(), context, start), x, context),
            kernel: self.kernel.clone(),
            eigenvalues,
            coefficients,
        })
    }
}

impl FittedKernelPca {
    /// Points `[m, d]` whose features are near the coordinates `z` `[m, k]`: a point reduced to its principal components.
    ///
    /// The weighted mean of the fitted points with the nearest coordinates and, where the kernel is a single RBF,
    /// the fixed point of Mika et al. from there: `p ← Σ γ_i κ(p,x_i) x_i / Σ γ_i κ(p,x_i)`, `γ = 1/n + A z`.
    pub fn pre_image(&self, z: ArrayView2<f64>) -> Result<Array2<f64>> {
        let k = self.eigenvalues.len();
        fail_if!(z.ncols() != k, "coordinates must have {k} columns, got {}", z.ncols());
        check_finite(z)?;
        let near = pre_image::nearest_mean(self.embedding().view(), self.reference.points(), z);
        if !pre_image::is_rbf(&self.kernel) {
            return Ok(near);
        }
        let n = self.reference.origin.n as f64;
        let gamma = crate::linalg::matmul(z, self.coefficients.t()) + 1.0 / n;
        pre_image::fixed_point(&self.kernel, self.reference.points(), gamma.view(), near, self.reference.device)
    }
}

impl Transform for FittedKernelPca {
    fields! {
        origin: Origin = reference.origin;
        eigenvalues: [f64] = eigenvalues;
        notes: [String] = notes;
    }

    fn explained(&self) -> Option<&[f64]> {
        Some(&self.explained)
    }

    /// `u_ij √λ_j` `[n, k]`
    fn embedding(&self) -> Array2<f64> {
        &self.coefficients * &aview1(&self.eigenvalues)
    }

    /// `z_j(x) = Σ_i A_ij (κ(x,x_i) − m_i)`. The means of `κ(x,·)` and of all of K drop out, because each column of A sums
    /// to zero.
    fn evaluate(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        Ok(self.reference.expand(&self.kernel, 1.0, x, self.coefficients.view())? - &self.offsets)
    }
}

saved! {
    FittedKernelPca, "kpca":
    reference: Reference = whole(Reference::unpack);
    eigenvalues: Vec<f64> = value("eigenvalues");
    explained: Vec<f64> = list("explained", eigenvalues.len());
    notes: Vec<String> = value("notes");
    kernel: Kernel = known(Kernel::of_model, &reference.origin.kernel, reference.origin.d);
    coefficients: Array2<f64> = matrix("coefficients", (reference.origin.n, eigenvalues.len()));
    offsets: Array1<f64> = vector("offsets", eigenvalues.len());
}
