//! Estimators by the names that the program has for them.

use crate::model::Handle;
use crate::options::Options;
use mercer::apply::{
    Alpha, Bandwidth, ClassWeights, EmbeddingTask, EpochSolver, Falkon, FeatureLogistic, FeatureMap, FeatureRidge, Fit,
    KernelSearch, LandmarkSolver, Learner, MetricForm, NadarayaWatson, NtkEnsemble, ProcessTask,
    RecursiveFeatureMachine, Ridge, RidgeSolver, SpectralRidge, ViewEigenmap, ViewRows,
};
use mercer::data::Target;
use mercer::kernel::{Expression, Kernel};
use mercer::laplace::{NetworkFunctions, NetworkKind};
use mercer::learn::{FunctionRows, Samples, posteriors};
use mercer::operator::{DenseOperator, OnPoints};
use mercer::spectrum::neural::{PairObjective, Settings};
use mercer::spectrum::{Exact, Krylov, Problem, Sampling, Spectrum};
use mercer::{Error, FitContext, Result, fail_if, learn};
use ndarray::{Array3, ArrayView2, s};
use std::sync::Arc;

/// Random features, landmarks of Falkon and eigenfunctions by default, as in the program.
const RANDOM_FEATURES: usize = 2000;
const CENTRES: usize = 5000;
const PAIRS: usize = 200;

/// Fits the estimator of that kind to points `x` `[n, d]` and targets.
pub fn fit(kind: &str, mut o: Options, x: ArrayView2<f64>, y: Option<&Target>, context: &FitContext) -> Result<Handle> {
    let target = || y.ok_or_else(|| Error::input(format!("{kind} needs targets")));
    let what = o.method(kind);
    let fitted = match kind {
        "kpca" | "laplacian" | "diffusion" => return embedding(kind, o, x, context),
        "eigenmap" => Handle::transform(eigenmap(&mut o)?.fit(&view_rows(&mut o, x)?, None, context)?),
        "gp" => return gaussian_process(o, x, target()?, context),
        "laplace" => laplace(&mut o, x, target()?, context)?,
        "matrix" => of_matrix(&mut o, x, target()?, context)?,
        way => learn(way, &mut o, x, target()?, context)?,
    };
    o.finish(&what)?;
    Ok(fitted)
}

/// A network that is trained on pairs of views.
fn eigenmap(o: &mut Options) -> Result<ViewEigenmap> {
    let usual = ViewEigenmap::new(o.need::<String>("net")?, o.need("k")?);
    let augmentation = o.take::<String>("augment")?.map(|parts| parts.parse()).transpose()?;
    let settings = Settings {
        batch: o.take("batch")?.unwrap_or(usual.settings.batch),
        learning_rate: o.take("rate")?.unwrap_or(usual.settings.learning_rate),
        ..usual.settings
    };
    Ok(ViewEigenmap {
        projector: o.take("projector")?,
        augmentation,
        objective: o.word("objective", &PairObjective::named())?.unwrap_or(usual.objective),
        ritz: o.take("ritz")?.unwrap_or(usual.ritz),
        epochs: o.take("epochs")?.unwrap_or(usual.epochs),
        settings,
        ..usual
    })
}

/// The rows to make views of, images where their channels, height and width are given.
fn view_rows(o: &mut Options, x: ArrayView2<f64>) -> Result<ViewRows> {
    Ok(ViewRows { image: o.take("image")?, ..ViewRows::new(x.to_owned()) })
}

/// Coordinates of points under a kernel, or of a kernel matrix.
fn embedding(method: &str, mut o: Options, x: ArrayView2<f64>, context: &FitContext) -> Result<Handle> {
    let kernel = o.take::<String>("kernel")?.map(|kernel| Expression::parse(&kernel)).transpose()?;
    let task = EmbeddingTask { k: o.need("k")?, kernel, matrix: o.take("matrix")?.unwrap_or(false) };
    Ok(Handle::transforms(learn::embeddings().build(method, o.rest(), &task)?.fit(x, context)?))
}

/// A number, or none for the value with the least left-out error; `cv` is a number of folds.
fn alpha(o: &mut Options) -> Result<Alpha> {
    Ok(match (o.take("alpha")?, o.take::<usize>("cv")?) {
        (Some(_), Some(_)) => {
            return Err(Error::input("cv chooses alpha; leave one of them out, or take alpha='auto'"));
        }
        (Some(value), None) => Alpha::Fixed(value),
        (None, Some(folds)) => Alpha::CrossValidation { folds },
        (None, None) => Alpha::LeaveOneOut,
    })
}

/// `"balanced"`, or pairs of a class's name and its weight.
fn class_weights(o: &mut Options) -> Result<ClassWeights> {
    Ok(match o.take::<serde_json::Value>("class_weight")? {
        None => ClassWeights::Equal,
        Some(serde_json::Value::String(word)) if word == "balanced" => ClassWeights::Balanced,
        Some(other) => {
            let pairs = serde_json::from_value(other);
            ClassWeights::Given(
                pairs
                    .map_err(|_| Error::input("class weights must be balanced, or a number above 0 for each class"))?,
            )
        }
    })
}

/// Ridge regression on all eigenfunctions of a kernel matrix `[n, n]`.
fn of_matrix(o: &mut Options, k: ArrayView2<f64>, y: &Target, context: &FitContext) -> Result<Handle> {
    let (n, m) = k.dim();
    fail_if!(n != m, "a kernel matrix must be square, but this one has {n} rows and {m} columns");
    let dense = DenseOperator::new(k.to_owned());
    let operator = OnPoints::new(&dense, k)?;
    let spectrum = Spectrum::fit(&Exact, &Problem { operator: &operator, k: n, context: *context }, None)?;
    let intercept = o.take("intercept")?.unwrap_or(true);
    let ridge =
        SpectralRidge { spectrum: spectrum.into(), alpha: alpha(o)?, intercept, class_weights: class_weights(o)? };
    Ok(Handle::predict(ridge.fit(k, y, context)?))
}

/// A Gaussian process of numbers or classes.
fn gaussian_process(mut o: Options, x: ArrayView2<f64>, y: &Target, context: &FitContext) -> Result<Handle> {
    let kernel = Expression::parse(&o.need::<String>("kernel")?)?;
    let task = ProcessTask::new(kernel, x.dim(), y, context);
    let process = learn::processes().build(&o.need::<String>("method")?, o.rest(), &task)?;
    Ok(Handle::predicts(process.fit(x, y, context)?))
}

/// Linearised Laplace of a network from its outputs and functions, rows `[n, C(1 + K)]` as `NetworkFunctions::rows` has them; the last
/// `validation` rows find the prior.
fn laplace(o: &mut Options, x: ArrayView2<f64>, y: &Target, context: &FitContext) -> Result<Handle> {
    let (c, count): (usize, usize) = (o.need("outputs")?, o.need("validation")?);
    let (n, width) = x.dim();
    fail_if!(c == 0 || width <= c || width % c != 0 || count >= n, "rows of {width} numbers do not fit {c} outputs");
    let outputs = x.slice(s![.., ..c]);
    let functions = Array3::from_shape_fn((n, c, width / c - 1), |(i, a, j)| x[[i, c + a * (width / c - 1) + j]]);
    let part = |rows: std::ops::Range<usize>| {
        let rows: Vec<usize> = rows.collect();
        let functions = if c == 1 { functions.view().permuted_axes([0, 2, 1]) } else { functions.view() };
        Ok((NetworkFunctions::jacobians(outputs, functions)?.at(&rows), y.select(&rows)))
    };
    let ((fitted, y_fitted), (validation, y_validation)) = (part(0..n - count)?, part(n - count..n)?);
    let method = o.take::<String>("method")?.unwrap_or_else(|| "functions".into());
    let candidates = posteriors().build(&method, o.rest(), &NetworkKind { number: c == 1, functions: true })?;
    if let Some(laplace) = candidates.asked() {
        let validation = Some((&validation, &y_validation));
        return Ok(Handle::predict(laplace.fit_functions(&fitted, &y_fitted, validation, context)?));
    }
    let rows = |network, y| FunctionRows { network, y: Some(y) };
    let (fit, validation) = (rows(fitted, y_fitted), rows(validation, y_validation));
    let rows = Samples { fit, validation, test: None, ood: None };
    let mut found = candidates.plan_functions(&rows, context)?.fit_functions(&rows, context)?;
    Ok(Handle::predicts(found.all.swap_remove(found.kept).model))
}

/// The ways of `mercer regress`.
fn learn(way: &str, o: &mut Options, x: ArrayView2<f64>, y: &Target, context: &FitContext) -> Result<Handle> {
    let expression = Expression::parse(&o.need::<String>("kernel")?)?;
    if way == "rfm" {
        let metric = o.word("metric", &[("diagonal", MetricForm::Diagonal), ("full", MetricForm::Full)])?;
        let (rounds, rank) = (o.take("rounds")?, o.take("rank")?);
        let (alpha, class_weights) = (alpha(o)?, class_weights(o)?);
        let machine = RecursiveFeatureMachine { kernel: expression, alpha, metric, rounds, rank, class_weights };
        return Ok(Handle::predict(machine.fit(x, y, context)?));
    }
    if way == "nadaraya-watson" {
        let bandwidth = o.take("bandwidth")?.map_or_else(|| Bandwidth::of(&expression), |h| Ok(Bandwidth::Fixed(h)))?;
        let kernel = expression.resolve_scaled(x, context.seed, 1.0)?;
        return Ok(Handle::predict(NadarayaWatson { kernel, bandwidth }.fit(x, y, context)?));
    }
    if way == "ntk-ensemble" {
        let (kernel, time) = (expression.resolve(x, context.seed)?, o.take("time")?.unwrap_or(f64::INFINITY));
        return Ok(Handle::predict(NtkEnsemble { kernel, time }.fit(x, y, context)?));
    }
    fail_if!(!METHODS.contains(&way); Error::unknown("method", way, METHODS));
    let ridge = Learning {
        alpha: alpha(o)?,
        class_weights: class_weights(o)?,
        rank: if way == "linear" { None } else { o.take("rank")? },
        logistic: o.word("loss", &[("squared", false), ("logistic", true)])?.unwrap_or(false),
        centred: o.take("intercept")?.unwrap_or(true),
        solver: if matches!(way, "auto" | "ridge") { o.take("solver")? } else { None },
    };
    o.finish(&o.method(way))?;
    ridge.check(way)?;
    let kernel = match expression.is_automatic() {
        false => expression.resolve(x, context.seed)?,
        true => {
            let search = KernelSearch::new(vec![expression]);
            let (alpha, class_weights) = (ridge.alpha, ridge.class_weights.clone());
            KernelSearch { alpha, class_weights, ..search }.best(x, y, context)?.kernel
        }
    };
    ridge.learn(way, kernel, x, y, context)
}

/// The ways that add a ridge.
const METHODS: [&str; 8] = ["auto", "ridge", "nystrom", "random-features", "spectrum", "linear", "falkon", "krill"];

/// What they share.
struct Learning {
    alpha: Alpha,
    class_weights: ClassWeights,
    rank: Option<usize>,
    logistic: bool,
    centred: bool,
    solver: Option<String>,
}

impl Learning {
    /// Refuses options of which the method would take no notice.
    fn check(&self, way: &str) -> Result<()> {
        let on_features = ["nystrom", "random-features", "spectrum", "linear"];
        fail_if!(
            self.logistic && (self.solver.is_some() || way != "auto" && !on_features.contains(&way)),
            "logistic regression is for methods on features: {}",
            on_features.join(", ")
        );
        fail_if!(
            !self.centred && !matches!(way, "auto" | "ridge" | "spectrum"),
            "the method {way} always has an intercept; take fit_intercept='auto' or True, or the method ridge"
        );
        match self.solver.as_deref() {
            Some(solver @ ("direct" | "askotch" | "eigenpro" | "richardson")) if self.rank.is_some() => Err(
                Error::input(format!("the solver {solver} has no option 'rank'; leave it out, or take the solver cg")),
            ),
            _ => Ok(()),
        }
    }

    fn learn(self, way: &str, kernel: Kernel, x: ArrayView2<f64>, y: &Target, context: &FitContext) -> Result<Handle> {
        let rank = self.rank;
        let map = || FeatureMap::of_kernel(&kernel, x.dim(), rank, context);
        match way {
            "auto" if self.solver.is_none() && self.centred => {
                match Learner::choose(&kernel, x.dim(), self.rank, context).0 {
                    Learner::Features(map) => self.on_features(map, x, y, context),
                    Learner::Ridge(_) if self.logistic => self.on_features(map(), x, y, context),
                    Learner::Ridge(_) => self.ridge(kernel, x, y, context),
                }
            }
            "ridge" | "auto" => self.ridge(kernel, x, y, context),
            "nystrom" => match map() {
                map @ FeatureMap::Nystrom { .. } => self.on_features(map, x, y, context),
                _ => Err(Error::input("a linear kernel needs no landmarks; use the method linear")),
            },
            "linear" => match map() {
                map @ FeatureMap::Linear { .. } => self.on_features(map, x, y, context),
                _ => Err(Error::input(format!("the method linear is for the kernel linear, not for {kernel}"))),
            },
            "random-features" => {
                let features = self.rank.unwrap_or(RANDOM_FEATURES).next_multiple_of(2);
                self.on_features(FeatureMap::Random { kernel, features, sampling: Sampling::default() }, x, y, context)
            }
            "spectrum" => self.spectral(kernel, x, y, context),
            "falkon" | "krill" => {
                let solver = if way == "krill" { LandmarkSolver::Krill } else { LandmarkSolver::Falkon };
                let landmarks = self.rank.unwrap_or(CENTRES).min(x.nrows());
                let (alpha, class_weights) = (self.alpha, self.class_weights);
                let falkon = Falkon { alpha, class_weights, solver, ..Falkon::new(kernel, landmarks) };
                Ok(Handle::predict(falkon.fit(x, y, context)?))
            }
            other => Err(Error::unknown("method", other, METHODS)),
        }
    }

    fn on_features(self, map: FeatureMap, x: ArrayView2<f64>, y: &Target, context: &FitContext) -> Result<Handle> {
        let unused = self.rank.is_some() && matches!(map, FeatureMap::Linear { .. });
        fail_if!(unused, "the kernel linear takes the columns themselves and has no option 'rank'; leave it out");
        let class_weights = self.class_weights;
        if self.logistic {
            let alpha = match self.alpha {
                Alpha::LeaveOneOut => FeatureLogistic::new(map.clone()).alpha,
                alpha => alpha,
            };
            return Ok(Handle::predict(FeatureLogistic { map, alpha, class_weights }.fit(x, y, context)?));
        }
        Ok(Handle::predict(FeatureRidge { map, alpha: self.alpha, class_weights }.fit(x, y, context)?))
    }

    fn spectral(self, kernel: Kernel, x: ArrayView2<f64>, y: &Target, context: &FitContext) -> Result<Handle> {
        let k = self.rank.unwrap_or(PAIRS).min(x.nrows());
        if self.logistic {
            return self.on_features(FeatureMap::Eigenfunctions { kernel, pairs: k }, x, y, context);
        }
        let operator = context.kernel_operator(&kernel, x)?;
        let problem = Problem { operator: &operator, k, context: *context };
        let spectrum = Spectrum::fit(&Krylov::default(), &problem, None)?.into();
        let Learning { alpha, centred: intercept, class_weights, .. } = self;
        Ok(Handle::predict(SpectralRidge { spectrum, alpha, intercept, class_weights }.fit(x, y, context)?))
    }

    fn ridge(self, kernel: Kernel, x: ArrayView2<f64>, y: &Target, context: &FitContext) -> Result<Handle> {
        let solver = match (self.solver.as_deref(), RidgeSolver::conjugate_gradients(context.precision)) {
            (None | Some("auto"), _) if self.rank.is_none() => RidgeSolver::Auto,
            (Some("direct"), _) => RidgeSolver::Direct,
            (None | Some("auto" | "cg"), RidgeSolver::ConjugateGradients { tolerance, iterations, .. }) => {
                RidgeSolver::ConjugateGradients { tolerance, iterations, rank: self.rank }
            }
            (Some("askotch"), _) => RidgeSolver::epochs(EpochSolver::Askotch),
            (Some("eigenpro"), _) => RidgeSolver::epochs(EpochSolver::EigenPro),
            (Some("richardson"), _) => RidgeSolver::epochs(EpochSolver::Richardson),
            (other, _) => {
                let known = ["auto", "direct", "cg", "askotch", "eigenpro", "richardson"];
                return Err(Error::unknown("solver", other.unwrap_or(""), known));
            }
        };
        let Learning { alpha, centred, class_weights, .. } = self;
        Ok(Handle::predict(Ridge { alpha, solver, centred, class_weights, ..Ridge::new(kernel) }.fit(x, y, context)?))
    }
}
