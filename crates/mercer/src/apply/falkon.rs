//! Ridge regression on many landmarks by conjugate gradients.

use super::class_weights::ClassWeights;
use super::conjugate_gradients::conjugate_gradients;
use super::feature_map::{FeatureFunctions, FeatureMap};
use super::targets::Encoding;
use super::{Alpha, FeatureRidge, Fit, FittedFeatureRidge, check_points};
use crate::data::Target;
use crate::kernel::Kernel;
use crate::linalg::{Cholesky, Panel, matmul};
use crate::operator::ranges;
use crate::rng::Rng;
use crate::spectrum::{Landmarks, NystromFeatures, Origin};
use crate::{FitContext, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView2, Axis, s};
use std::ops::Range;
use std::time::Instant;

/// Rows of κ(X,Z) that are in memory at once.
const ROWS: usize = 4096;

/// Landmarks up to which α is found in closed form.
const FEW: usize = 1000;

/// Ridge regression on the features of M landmarks Z, [`FeatureMap::Nystrom`], for M so large that the matrix of the features would take too
/// long: Falkon (Rudi, Carratino and Rosasco, 2017).
///
/// With `φ(x) = κ(x,Z)N`, `NNᵀ = κ(Z,Z)⁻¹`, it solves `(ΦᵀΦ + αI)W = Φᵀy` by conjugate gradients. A product takes `n M` kernel values, and
/// the sum of φφᵀ over M rows drawn at random, times n/M, is the preconditioner. The result is that of [`FeatureRidge`] up to the
/// tolerance, in time `O(n M t + M³)` for t iterations instead of `O(n M²)`. α is that of [`FeatureRidge`] on a thousand landmarks, unless it is given.
///
/// ```
/// use mercer::apply::{Alpha, Falkon, Fit, Predict};
/// use mercer::{FitContext, data::Target, kernel::Kernel};
/// let x = ndarray::Array2::from_shape_fn((3000, 1), |(i, _)| i as f64 / 500.0);
/// let y = Target::Values(x.iter().map(|x| 7.0 + x.sin()).collect());
/// let falkon = Falkon { alpha: Alpha::Fixed(1e-3), ..Falkon::new(Kernel::parse("matern32(1)")?, 200) };
/// let fitted = falkon.fit(x.view(), &y, &FitContext::default())?;
/// assert!((fitted.scores(ndarray::array![[2.22]].view())?[[0, 0]] - 7.0 - 2.22f64.sin()).abs() < 1e-3);
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Falkon {
    /// κ
    pub kernel: Kernel,
    /// M, no more than there are points; drawn uniformly.
    pub landmarks: usize,
    /// α, as [`Ridge`](super::Ridge) has it.
    pub alpha: Alpha,
    /// `‖(ΦᵀΦ + αI)w − Φᵀy‖/‖Φᵀy‖` at which a column is solved.
    pub tolerance: f64,
    /// Most products.
    pub iterations: usize,
    /// How much the rows of each class count.
    pub class_weights: ClassWeights,
}

impl Falkon {
    /// On this many landmarks, to a residual of 1e-6, with α by leave-one-out.
    pub fn new(kernel: Kernel, landmarks: usize) -> Self {
        let (alpha, class_weights) = (Alpha::LeaveOneOut, ClassWeights::Equal);
        Falkon { kernel, landmarks, alpha, tolerance: 1e-6, iterations: 200, class_weights }
    }

    fn features(&self, landmarks: usize) -> FeatureMap {
        FeatureMap::Nystrom { kernel: self.kernel.clone(), landmarks, choice: Landmarks::Uniform }
    }
}

impl Fit for Falkon {
    type Target = Target;
    type Fitted = FittedFeatureRidge;

    fn learn(&self, x: ArrayView2<f64>, y: &Target, context: &FitContext) -> Result<FittedFeatureRidge> {
        let start = Instant::now();
        check_points(x)?;
        let (n, m) = (x.nrows(), self.landmarks);
        self.alpha.check(n)?;
        fail_if!(m == 0 || m > n, "there must be between 1 and {n} landmarks, one per point; got {m}");
        fail_if!(self.alpha == Alpha::Fixed(0.0), "Falkon needs a ridge α above 0");
        let (encoding, encoded) = Encoding::encode(y, n, -1.0, 1.0)?;
        let weights = self.class_weights.of_rows(y)?.map_or_else(|| Array1::ones(n), Array1::from);
        // M×M: κ(Z,Z), N, the preconditioner and its factor; rows of φ.
        let needed = 8 * m as u64 * (5 * m as u64 + 2 * ROWS as u64);
        context.budget.require(format!("Falkon with {m} landmarks"), needed, "use fewer features")?;
        let (alpha, class_weights) = (self.alpha, self.class_weights.clone());
        let few = FeatureRidge { map: self.features(m.min(FEW)), alpha, class_weights }.learn(x, y, context)?;
        let rows = Rng::new(context.seed).fork(0x6661_6c6b).sample(n, m);
        let map = NystromFeatures::new(&self.kernel, x.select(Axis(0), &rows).view(), context)?;
        let offset: Array1<f64> = encoded.t().dot(&weights) / weights.sum();
        let design = Design::new(&map, x, weights, context, needed)?;
        let residual = &encoded - &offset;
        let right = design.transposed(residual.view())?;
        let precondition = design.preconditioner(m, few.alpha, context)?;
        let product = |v: &Panel| v.through_host(|v| Ok(design.normal(v)? + &(&v * few.alpha)));
        let precondition = |v: &Panel| v.through_host(|v| precondition.solve(v));
        let b = Panel::from(right);
        let zero = Panel::from(Array2::zeros((b.nrows(), b.ncols())));
        let (tolerance, limit) = (self.tolerance, self.iterations);
        let found = conjugate_gradients(&product, &precondition, &b, zero, tolerance, limit, context)?;
        let mut notes = vec![];
        if found.residual > tolerance {
            let why = if context.interrupted() { "interrupted" } else { "stopped" };
            notes.push(format!(
                "Falkon: {why} after {} products at a relative residual of {:.1e}, above the {tolerance:.0e} asked for; this best \
                 iterate is used: use a larger α for a better one",
                found.iterations, found.residual
            ));
        }
        let functions = map.functions(found.x.into_host()?.view(), context);
        let origin = Origin::new("falkon", &self.kernel, x.dim(), context, start);
        let functions = FeatureFunctions { origin, encoding, functions, offset };
        Ok(FittedFeatureRidge { functions, notes, ..few })
    }
}

/// `√w φ(x)` of all points, computed block by block, or stored where there is room for it.
struct Design<'a> {
    map: &'a NystromFeatures,
    /// `[n, d]`
    x: ArrayView2<'a, f64>,
    /// w `[n]`
    weights: Array1<f64>,
    stored: Option<Vec<Array2<f64>>>,
}

impl<'a> Design<'a> {
    fn new(
        map: &'a NystromFeatures,
        x: ArrayView2<'a, f64>,
        weights: Array1<f64>,
        context: &FitContext,
        other: u64,
    ) -> Result<Design<'a>> {
        let needed = 8 * x.nrows() as u64 * map.dim() as u64;
        let mut design = Design { map, x, weights, stored: None };
        if context.budget.allows(3 * needed + other) {
            let blocks = ranges(x.nrows(), ROWS);
            design.stored = Some(blocks.into_iter().map(|rows| design.computed(rows)).collect::<Result<_>>()?);
        }
        Ok(design)
    }

    fn computed(&self, rows: Range<usize>) -> Result<Array2<f64>> {
        let roots = self.weights.slice(s![rows.clone()]).mapv(f64::sqrt);
        Ok(self.map.transform::<f64>(self.x.slice(s![rows, ..]))? * roots.insert_axis(Axis(1)))
    }

    /// `Σ_b f(Φ_b, rows of b)` over blocks of rows.
    fn sum(&self, columns: usize, f: impl Fn(ArrayView2<f64>, Range<usize>) -> Array2<f64>) -> Result<Array2<f64>> {
        let mut sum = Array2::zeros((self.map.dim(), columns));
        for (i, rows) in ranges(self.x.nrows(), ROWS).into_iter().enumerate() {
            match &self.stored {
                Some(blocks) => sum += &f(blocks[i].view(), rows),
                None => sum += &f(self.computed(rows.clone())?.view(), rows),
            }
        }
        Ok(sum)
    }

    /// `ΦᵀWΦ V` `[r, m]` for `V` `[r, m]`.
    fn normal(&self, v: ArrayView2<f64>) -> Result<Array2<f64>> {
        self.sum(v.ncols(), |phi, _| matmul(phi.t(), matmul(phi, v).view()))
    }

    /// `ΦᵀWY` `[r, m]` for `Y` `[n, m]`.
    fn transposed(&self, y: ArrayView2<f64>) -> Result<Array2<f64>> {
        let roots = self.weights.mapv(f64::sqrt).insert_axis(Axis(1));
        self.sum(y.ncols(), |phi, rows| {
            let own = s![rows, ..];
            matmul(phi.t(), (&y.slice(own) * &roots.slice(own)).view())
        })
    }

    /// The factor of `(n/M) Σ w φφᵀ + αI` over M random rows.
    fn preconditioner(&self, m: usize, alpha: f64, context: &FitContext) -> Result<Cholesky<f64>> {
        let n = self.x.nrows();
        let rows = Rng::new(context.seed).fork(0x7072_6563).sample(n, m);
        let (r, share) = (self.map.dim(), n as f64 / m as f64);
        let mut sum = Array2::<f64>::zeros((r, r));
        for few in rows.chunks(ROWS) {
            let roots = self.weights.select(Axis(0), few).mapv(f64::sqrt);
            let phi = self.map.transform::<f64>(self.x.select(Axis(0), few).view())? * roots.insert_axis(Axis(1));
            sum += &(matmul(phi.t(), phi.view()) * share);
        }
        sum.diag_mut().mapv_inplace(|d| d + alpha);
        Cholesky::new(context.device, sum.view())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::Predict;

    fn data(n: usize) -> (Array2<f64>, Target) {
        let mut rng = Rng::new(3);
        let x = Array2::from_shape_simple_fn((n, 3), || rng.normal());
        let y = x.rows().into_iter().map(|x| 5.0 + (2.0 * x[0]).sin() * x[1] + 0.1 * rng.normal()).collect();
        (x, Target::Values(y))
    }

    /// With every point a landmark, the features are those of the kernel: the same as ridge regression with the targets' mean subtracted.
    #[test]
    fn all_landmarks_are_ridge_regression() {
        use crate::apply::Ridge;
        let (x, y) = data(250);
        let context = FitContext::default();
        let kernel = Kernel::parse("matern32(2)").unwrap();
        let alpha = Alpha::Fixed(0.1);
        let ridge = Ridge { alpha, centred: true, ..Ridge::new(kernel.clone()) }.fit(x.view(), &y, &context).unwrap();
        let falkon = Falkon { alpha, tolerance: 1e-10, ..Falkon::new(kernel, 250) };
        let fitted = falkon.fit(x.view(), &y, &context).unwrap();
        let off = (fitted.scores(x.view()).unwrap() - ridge.scores(x.view()).unwrap()).mapv(f64::abs);
        assert!(off.iter().all(|off| *off < 1e-6), "{:?}", off.iter().copied().fold(0.0, f64::max));
        assert!(fitted.notes().is_empty() && fitted.origin().method == "falkon");
    }

    #[test]
    fn few_landmarks_solve_the_normal_equations_stored_or_not() {
        let (x, y) = data(5000);
        let context = FitContext::default();
        let falkon =
            Falkon { alpha: Alpha::Fixed(0.5), tolerance: 1e-9, ..Falkon::new(Kernel::parse("rbf(2)").unwrap(), 60) };
        let fitted = falkon.fit(x.view(), &y, &context).unwrap();
        // The normal equations in κ(X,Z): (K_ZX K_XZ + αK_ZZ)a = K_ZX(y − b).
        let functions = &fitted.functions.functions;
        let (kernel, z) = functions.features.centres().unwrap();
        let k = crate::operator::gram_cross::<f64>(kernel, x.view(), z, context.device).unwrap();
        let zz = crate::operator::gram::<f64>(kernel, z, context.device).unwrap();
        let left = matmul(k.t(), k.view()) + &zz * 0.5;
        let target = Array2::from_shape_vec((5000, 1), y.values().to_vec()).unwrap() - &fitted.functions.offset;
        let off = matmul(left.view(), functions.coefficients.view()) - matmul(k.t(), target.view());
        let size = matmul(k.t(), target.view()).mapv(f64::abs).sum();
        assert!(off.mapv(f64::abs).sum() < 1e-5 * size, "{}", off.mapv(f64::abs).sum() / size);
        // The same without memory for the features of all points.
        let needed = 8 * 60 * (5 * 60 + 2 * ROWS as u64);
        let small = FitContext { budget: crate::operator::Budget::of(20 * needed), ..context };
        if let Ok(again) = falkon.fit(x.view(), &y, &small) {
            let off = (again.scores(x.view()).unwrap() - fitted.scores(x.view()).unwrap()).mapv(f64::abs);
            assert!(off.iter().all(|off| *off < 1e-6));
        }
        let cut = Falkon { iterations: 1, ..falkon }.fit(x.view(), &y, &context).unwrap();
        assert!(cut.notes()[0].contains("stopped after"), "{:?}", cut.notes());
    }
}
