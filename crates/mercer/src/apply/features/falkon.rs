//! Ridge regression on many landmarks by iterative solvers.

use crate::apply::class_weights::ClassWeights;
use crate::apply::features::combined::Combined;
use crate::apply::features::feature_map::{self, FeatureFunctions};
use crate::apply::features::krill::krill;
use crate::apply::features::landmark_design::{Design, Map, ROWS};
use crate::apply::features::ridge_head::{FeatureRows, Head, Solved};
use crate::apply::probabilities::left_out_sharpness;
use crate::apply::solvers::conjugate_gradients::{Converged, monitored};
use crate::apply::solvers::monitor::{HeldOut, Kept, Monitor, SolverName, Watch};
use crate::apply::solvers::{DelayedEigenPro, Landmarked, run};
use crate::apply::targets::Encoding;
use crate::apply::{Alpha, Convergence, Fit, FittedFeatureRidge, Monitoring, Tried, check_points};
use crate::compute::Device;
use crate::context::ONE_STEP;
use crate::data::Target;
use crate::kernel::Kernel;
use crate::linalg::Panel;
use crate::operator::{Extension, KernelFeatures, Pair, Precision, compiles};
use crate::rng::Rng;
use crate::spectrum::{NystromFeatures, Origin};
use crate::training::{Checkpoint, Fingerprint, Identity, Saving};
use crate::{FitContext, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView2, Axis, s};
use std::time::Instant;

/// Landmarks up to which α is found in closed form.
const FEW: usize = 1000;

/// Landmarks up to which κ(Z,Z) is decomposed where it has no factor.
const DECOMPOSED: usize = 2000;

/// Ridge regression on the features of M landmarks Z, [`FeatureMap::Nystrom`](crate::apply::FeatureMap::Nystrom), for M so large that the matrix of the features would take too
/// long: Falkon (Rudi, Carratino and Rosasco, 2017).
///
/// With `φ(x) = κ(x,Z)N`, `NNᵀ = κ(Z,Z)⁻¹`, it solves `(ΦᵀΦ + αI)W = Φᵀy` by one of the [`LandmarkSolver`]s. A product, or an epoch, takes `n M`
/// kernel values. y counts from its mean, as in [`Ridge`](crate::apply::Ridge), whose result all points as landmarks have: the features keep their means, where
/// [`FeatureRidge`](crate::apply::FeatureRidge) fits an intercept that is not penalised. It takes time `O(n M t + M³)` for t iterations instead of `O(n M²)`.
/// α is that with the least left-out error on the first thousand of the landmarks, unless it is given.
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
    /// α, as [`Ridge`](crate::apply::Ridge) has it.
    pub alpha: Alpha,
    /// How it is solved.
    pub solver: LandmarkSolver,
    /// `‖(ΦᵀΦ + αI)w − Φᵀy‖/‖Φᵀy‖` at which a column is solved.
    pub tolerance: f64,
    /// Most products, or epochs.
    pub iterations: usize,
    /// How much the rows of each class count.
    pub class_weights: ClassWeights,
    /// What is kept and measured while the solver runs.
    pub monitoring: Monitoring,
}

/// How `(ΦᵀΦ + αI)W = Φᵀy` is solved. Example: [`Falkon`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LandmarkSolver {
    /// Conjugate gradients; the sum of φφᵀ over 4M rows drawn at random, times n/4M, is the preconditioner.
    #[default]
    Falkon,
    /// Conjugate gradients, preconditioned by a sketch of all rows: KRILL (Díaz, Epperly, Frangella, Tropp and Webber, 2023).
    Krill,
    /// Gradient steps on batches of rows, projected on the landmarks after some of them: EigenPro 3 and 4 (Abedsoltan and others, 2023 and 2024).
    /// The preconditioned residual falls as one over the number of epochs.
    EigenPro,
}

impl LandmarkSolver {
    /// Its name in messages, and what it counts, one of them.
    pub(crate) fn named(self) -> SolverName {
        let [_, name, units] = self.names();
        SolverName { name, unit: units.strip_suffix('s').unwrap_or(units) }
    }

    /// Its name in models and messages, and what it counts.
    fn names(self) -> [&'static str; 3] {
        match self {
            LandmarkSolver::Falkon => ["falkon", "Falkon", "products"],
            LandmarkSolver::Krill => ["krill", "KRILL", "products"],
            LandmarkSolver::EigenPro => ["eigenpro", "EigenPro", "epochs"],
        }
    }
}

impl Falkon {
    /// On this many landmarks, to a residual of 1e-6, with α by leave-one-out.
    pub fn new(kernel: Kernel, landmarks: usize) -> Self {
        let (alpha, class_weights, solver) = (Alpha::LeaveOneOut, ClassWeights::Equal, LandmarkSolver::Falkon);
        let (tolerance, iterations, monitoring) = (1e-6, 200, Monitoring::default());
        Falkon { kernel, landmarks, alpha, solver, tolerance, iterations, class_weights, monitoring }
    }

    /// By EigenPro on this many landmarks, to a residual of 1e-2 in 20 epochs at most, with α by leave-one-out.
    pub fn eigenpro(kernel: Kernel, landmarks: usize) -> Self {
        let solver = LandmarkSolver::EigenPro;
        Falkon { solver, tolerance: 1e-2, iterations: 20, ..Falkon::new(kernel, landmarks) }
    }

    /// α by the error on left-out rows of the model that is fitted, on a few landmarks `z` `[m, d]`: without an intercept, for the `centred` targets
    /// `y − b` `[n, ·]`.
    fn chosen(
        &self,
        x: ArrayView2<f64>,
        (y, centred, offset): (&Target, &Array2<f64>, &Array1<f64>),
        z: ArrayView2<f64>,
        context: &FitContext,
    ) -> Result<Chosen> {
        // Features are f64 in any precision, as `FeatureRidge` has them.
        let exact = &FitContext { precision: Precision::F64, ..*context };
        let map = feature_map::Map::Nystrom(NystromFeatures::new(&self.kernel, z, exact)?);
        let features = |rows: &[usize]| map.at(x.select(Axis(0), rows));
        let values = |rows: &[usize]| map.values(x.select(Axis(0), rows));
        let combined = map.normalisation().map(|normalisation| Combined { values: &values, normalisation });
        let weights = self.class_weights.of_rows(y)?;
        let (weights, on_device) = (weights.as_deref(), map.on_device(x, context)?);
        let (features, on_device): (FeatureRows, _) = (&features, on_device.as_ref());
        let head = Head { features, combined, on_device, y: centred.view(), weights, intercept: false, context };
        let Solved { alpha, tried, left_out: (rows, scores), .. } = head.solve(self.alpha)?;
        let sharpness = left_out_sharpness(y, Some(&rows), (scores + offset).view());
        Ok(Chosen { alpha, tried, sharpness })
    }
}

/// What the search on few landmarks found.
struct Chosen {
    alpha: f64,
    tried: Vec<Tried>,
    /// t of `softmax(t f(x))`, for classes.
    sharpness: Option<f64>,
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
        let context = &context.beside_classes(y)?;
        let (encoding, encoded) = Encoding::encode(y, n, -1.0, 1.0)?;
        let weights = self.class_weights.of_rows(y)?.map_or_else(|| Array1::ones(n), Array1::from);
        let saving = self.monitoring.checkpoint.as_ref().map_or(Saving::NONE, Checkpoint::saving);
        saving.check()?;
        let (by_factor, needed) = (self.by_factor(context), self.host_matrices(context));
        context.budget.require(
            format!("{} with {m} landmarks", self.solver.names()[1]),
            needed,
            "use fewer features",
        )?;
        self.memory([n, x.ncols()], y, context).tell(context);
        let offset: Array1<f64> = encoded.t().dot(&weights) / weights.sum();
        let held_out = self.monitoring.held_out.as_ref();
        let held_out = held_out.map(|rows| HeldOut::new(rows, x.ncols(), &encoding, &offset)).transpose()?;
        // Of all data: only for a checkpoint.
        let identity = saving.path.map(|_| self.identity(x, encoded.view(), &weights, held_out.as_ref(), context));
        let identity = identity.unwrap_or_default();
        // A checkpoint of another run is refused before any work.
        let (missing, _) = (saving.missing(), saving.stored(&identity)?);
        let rows = Rng::new(context.seed).fork(0x6661_6c6b).sample(n, m);
        let landmarks = x.select(Axis(0), &rows);
        let centred = &encoded - &offset;
        // The search for α, and of the sharpness of probabilities, on few landmarks.
        let Chosen { alpha, tried, sharpness } = match (self.alpha, y) {
            (Alpha::Fixed(alpha), Target::Values(_)) => Chosen { alpha, tried: vec![], sharpness: None },
            _ => self.chosen(x, (y, &centred, &offset), landmarks.slice(s![..m.min(FEW), ..]), context)?,
        };
        let held_out = held_out.as_ref();
        let kept = Kept { saving, identity, plan: serde_json::Value::Null };
        let kept = saving.path.is_some().then_some(&kept);
        let centred = Panel::from_host(context.device, centred)?;
        let (found, coefficients) = {
            let features;
            context.progress.step("matrix of the landmarks", 0, 1, ONE_STEP);
            let map = if by_factor {
                Map::factor(&self.kernel, landmarks.view(), context)?
            } else {
                features = match m > DECOMPOSED {
                    true => NystromFeatures::shifted(&self.kernel, landmarks.view(), context)?,
                    false => NystromFeatures::new(&self.kernel, landmarks.view(), context)?,
                };
                Map::Matrix(&features)
            };
            context.progress.step("points and landmarks", 0, 1, ONE_STEP);
            let design = Design::new(map, x, weights, context, needed)?;
            let found = self.solve_watched(&design, &centred, alpha, (held_out, kept), context)?;
            let coefficients = design.spread(&found.x)?.into_host()?;
            (found, coefficients)
        };
        let convergence = Convergence::of(&found);
        let ([_, name, unit], ended) = (self.solver.names(), (context.interrupted(), saving.path.is_some()));
        let advice = concat!("use ", crate::advice!(MoreIterations), " or ", crate::advice!(LargerAlpha));
        let note = convergence.early_end([name, "was", unit], self.tolerance, ended, advice);
        let notes: Vec<String> = missing.into_iter().chain(note).collect();
        let features = KernelFeatures::new(&self.kernel, landmarks, context.precision, context.device);
        let functions = Extension { features: Box::new(features), coefficients };
        let origin = Origin::new(self.solver.names()[0], &self.kernel, x.dim(), context, start);
        let functions = FeatureFunctions { origin, encoding, functions, offset };
        Ok(FittedFeatureRidge { alpha, tried, sharpness, functions, notes, convergence })
    }
}

/// Landmarks of EigenPro on a GPU above which N is kept as a factor on the device.
const MANY: usize = 20_000;

impl Falkon {
    /// Bytes of the host's matrices `[M, M]` at once, and of rows of κ: κ(Z,Z), its factor and N; or N, the preconditioner, what is added to it, and
    /// its factor; or the sketch of KRILL with them.
    pub(crate) fn host_matrices(&self, context: &FitContext) -> u64 {
        let matrices = match self.solver {
            _ if self.by_factor(context) => 0,
            LandmarkSolver::Krill => 8,
            LandmarkSolver::Falkon => 4,
            LandmarkSolver::EigenPro => 3,
        };
        let m = self.landmarks as u64;
        8 * m * (matrices * m + ROWS as u64)
    }

    /// Whether κ(Z,Z) is factored on the GPU and never seen by the host.
    pub(crate) fn by_factor(&self, context: &FitContext) -> bool {
        let on_gpu = context.device != Device::Cpu && compiles(&self.kernel) && !self.kernel.sees_images();
        on_gpu && self.solver == LandmarkSolver::EigenPro && self.landmarks > MANY
    }

    /// What must agree between a checkpoint and the run that continues it.
    fn identity(
        &self,
        x: ArrayView2<f64>,
        y: ArrayView2<f64>,
        weights: &Array1<f64>,
        held_out: Option<&HeldOut>,
        context: &FitContext,
    ) -> Identity {
        let data = Fingerprint::of(x.iter().map(|v| v.to_bits()));
        let targets = Fingerprint::of(y.iter().chain(weights).map(|v| v.to_bits()));
        [
            ("method", self.solver.names()[0].to_owned()),
            ("kernel", self.kernel.to_string()),
            ("rows", x.nrows().to_string()),
            ("columns", x.ncols().to_string()),
            ("data", data.to_string()),
            ("targets", targets.to_string()),
            ("held-out rows", held_out.map_or("none".into(), |rows| rows.fingerprint().to_string())),
            ("landmarks", self.landmarks.to_string()),
            ("alpha", self.alpha.to_string()),
            ("tolerance", self.tolerance.to_string()),
            ("precision", format!("{:?}", context.precision)),
            ("seed", context.seed.to_string()),
            ("device", context.device.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    /// W `[r, m]` of targets `y` `[n, m]`, with the error on held-out rows along the way.
    fn solve_watched(
        &self,
        design: &Design,
        y: &Panel,
        alpha: f64,
        (held_out, kept): (Option<&HeldOut>, Option<&Kept>),
        context: &FitContext,
    ) -> Result<Converged> {
        let FitContext { precision, device, .. } = *context;
        let system = Landmarked::new(design, alpha, y);
        // A run that may be continued has the right-hand side before its first epoch: summed up on the way, it would have other bits.
        if kept.is_some() || device == Device::Cpu {
            system.right()?;
        }
        let z = design.map.landmarks();
        let pair = held_out.map(|rows| Pair::new(&self.kernel, rows.x.view(), z, precision, device)).transpose()?;
        let watched = held_out.zip(pair.as_ref());
        let error = |w: &Panel| {
            let (rows, pair) = watched.expect("watched where there are rows");
            rows.error(pair.apply(&design.spread(w)?)?.into_host()?)
        };
        let watch = held_out.map(|rows| Watch { every: rows.every(y.nrows()), error: &error });
        self.solve(&system, Monitor { kept, watch, record: None }, context)
    }

    /// W `[r, m]`
    fn solve(&self, system: &Landmarked, monitor: Monitor, context: &FitContext) -> Result<Converged> {
        let (accuracy, zero) = ((self.tolerance, self.iterations), system.zeros()?);
        let precondition = match self.solver {
            LandmarkSolver::EigenPro => {
                let mut solver = DelayedEigenPro::new(system, context)?;
                return run(&mut solver, system, zero, accuracy, monitor, context);
            }
            LandmarkSolver::Falkon => system.design.sampled(system.alpha)?,
            LandmarkSolver::Krill => krill(system.design, system.alpha, context)?,
        };
        let product = |v: &Panel| {
            let mut y = system.design.normal(v)?;
            y.axpy(&vec![system.alpha; v.ncols()], v)?;
            Ok(y)
        };
        let precondition = |v: &Panel| precondition.solve_panel(v);
        monitored([&product, &precondition], system.right()?, zero, accuracy, monitor, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::Predict;
    use crate::linalg::matmul;

    fn data(n: usize) -> (Array2<f64>, Target) {
        let mut rng = Rng::new(3);
        let x = rng.normals((n, 3));
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
        let (x, y) = data(12_000);
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
        let target = Array2::from_shape_vec((12_000, 1), y.values().to_vec()).unwrap() - &fitted.functions.offset;
        let off = matmul(left.view(), functions.coefficients.view()) - matmul(k.t(), target.view());
        let size = matmul(k.t(), target.view()).mapv(f64::abs).sum();
        assert!(off.mapv(f64::abs).sum() < 1e-5 * size, "{}", off.mapv(f64::abs).sum() / size);
        // The same without memory for κ of all points and landmarks, for which 3·8·60·12 000 bytes are asked.
        let small = FitContext { budget: crate::operator::Budget::of(12 << 20), ..context };
        let again = falkon.fit(x.view(), &y, &small).unwrap();
        let off = (again.scores(x.view()).unwrap() - fitted.scores(x.view()).unwrap()).mapv(f64::abs);
        assert!(off.iter().all(|off| *off < 1e-6));
        let krill = Falkon { solver: LandmarkSolver::Krill, ..falkon.clone() }.fit(x.view(), &y, &context).unwrap();
        let off = (krill.scores(x.view()).unwrap() - fitted.scores(x.view()).unwrap()).mapv(f64::abs);
        assert!(off.iter().all(|off| *off < 1e-5) && krill.origin().method == "krill");
        let cut = Falkon { iterations: 1, ..falkon }.fit(x.view(), &y, &context).unwrap();
        assert!(cut.notes()[0].contains("stopped after"), "{:?}", cut.notes());
    }

    /// Against the solution of the normal equations, with class weights and without.
    #[test]
    fn eigenpro_comes_to_the_solution_of_the_normal_equations() {
        let (x, y) = data(3000);
        let labels = y.values().iter().map(|y| usize::from(*y > 5.3)).collect();
        let classes = Target::Classes { labels, names: vec!["low".into(), "high".into()] };
        let context = FitContext::default();
        let kernel = Kernel::parse("matern32(2)").unwrap();
        let alpha = Alpha::Fixed(0.3);
        for (y, class_weights) in [(&y, ClassWeights::Equal), (&classes, ClassWeights::Balanced)] {
            let exact = Falkon { alpha, class_weights, tolerance: 1e-9, ..Falkon::new(kernel.clone(), 300) };
            let want = exact.fit(x.view(), y, &context).unwrap().scores(x.view()).unwrap();
            let eigenpro = Falkon { iterations: 40, solver: LandmarkSolver::EigenPro, tolerance: 1e-4, ..exact };
            let fitted = eigenpro.fit(x.view(), y, &context).unwrap();
            let off = fitted.scores(x.view()).unwrap() - &want;
            let size = (&want - want.mean().unwrap()).mapv(|v| v * v).sum();
            let relative = (off.mapv(|v| v * v).sum() / size).sqrt();
            assert!(relative < 0.03, "{relative} {:?}", fitted.convergence);
            let (curve, residual) = (&fitted.convergence.curve, fitted.convergence.residual.unwrap());
            assert!(curve[curve.len() - 1] < 0.05 * curve[0] && residual < 0.05, "{residual} {curve:?}");
        }
    }
}
