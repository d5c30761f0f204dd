//! Estimators by the names that the program has for them.

use crate::model::Handle;
use crate::options::Options;
use mercer::apply::{
    Affinity, DiffusionMaps, EigenSolver, Examples, FeatureProcess, Fit, GaussianProcess, GaussianProcessClassifier,
    IterativeProcess, KernelPca, LaplacianEigenmaps, ProcessFeatures, RegressionTask, Tuning, ViewEigenmap, ViewRows,
};
use mercer::data::Target;
use mercer::kernel::{Expression, Kernel};
use mercer::laplace::{FunctionLaplace, FunctionMethod, NetworkFunctions};
use mercer::learn::{self, Source};
use mercer::spectrum::neural::{PairObjective, Settings};
use mercer::{Error, FitContext, Result, fail_if};
use ndarray::{Array3, ArrayView2, s};

/// Random features and eigenfunctions by default, as in the program.
const RANDOM_FEATURES: usize = 2000;
const PAIRS: usize = 200;

/// What [`fit`] knows.
const KINDS: [&str; 8] = ["kpca", "kpca-matrix", "laplacian", "diffusion", "eigenmap", "gp", "laplace", "regress"];

/// Fits the estimator of that kind to points `x` `[n, d]` and targets.
pub fn fit(kind: &str, mut o: Options, x: ArrayView2<f64>, y: Option<&Target>, context: &FitContext) -> Result<Handle> {
    let target = || y.ok_or_else(|| Error::input(format!("{kind} needs targets")));
    let what = o.method(kind);
    let fitted = match kind {
        "kpca" => Handle::transform(kpca(&mut o, x, context)?.fit(x, &(), context)?),
        "kpca-matrix" => {
            let usual = KernelPca::new(Kernel::parse("linear")?);
            Handle::transform(principal_components(&mut o, usual)?.fit_matrix(x, context)?)
        }
        "laplacian" => {
            let affinity = match o.take::<usize>("neighbours")? {
                Some(neighbours) => Affinity::Neighbours(neighbours),
                None => Affinity::Kernel(kernel(&mut o, x, context)?),
            };
            let (k, solver) = (o.need("k")?, solver(&mut o)?);
            Handle::transform(LaplacianEigenmaps { k, affinity, solver, ..Default::default() }.fit(x, &(), context)?)
        }
        "diffusion" => {
            let usual = DiffusionMaps::new(kernel(&mut o, x, context)?);
            let (k, solver) = (o.need("k")?, solver(&mut o)?);
            let alpha = o.take("alpha")?.unwrap_or(usual.alpha);
            let time = o.take("time")?.unwrap_or(usual.time);
            Handle::transform(DiffusionMaps { k, solver, alpha, time, ..usual }.fit(x, &(), context)?)
        }
        "eigenmap" => Handle::transform(eigenmap(&mut o)?.fit(&view_rows(&mut o, x)?, None, context)?),
        "gp" => gaussian_process(&mut o, x, target()?, context)?,
        "laplace" => laplace(&mut o, x, target()?, context)?,
        "regress" => return regression(o, x, target()?, context),
        other => return Err(Error::unknown("estimator", other, KINDS)),
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

/// The kernel of the options, every parameter a number.
fn kernel(o: &mut Options, x: ArrayView2<f64>, context: &FitContext) -> Result<Kernel> {
    Expression::parse(&o.need::<String>("kernel")?)?.resolve(x, context.seed)
}

fn solver(o: &mut Options) -> Result<EigenSolver> {
    let words = [("auto", EigenSolver::Auto), ("exact", EigenSolver::Exact), ("krylov", EigenSolver::Krylov)];
    Ok(o.word("solver", &words)?.unwrap_or(EigenSolver::Auto))
}

fn kpca(o: &mut Options, x: ArrayView2<f64>, context: &FitContext) -> Result<KernelPca> {
    let usual = KernelPca::new(kernel(o, x, context)?);
    principal_components(o, usual)
}

fn principal_components(o: &mut Options, usual: KernelPca) -> Result<KernelPca> {
    let (k, solver, tolerance) = (o.need("k")?, solver(o)?, o.take("tolerance")?.unwrap_or(usual.tolerance));
    Ok(KernelPca { k, solver, tolerance, ..usual })
}

/// A Gaussian process of numbers or classes.
fn gaussian_process(o: &mut Options, x: ArrayView2<f64>, y: &Target, context: &FitContext) -> Result<Handle> {
    let kernel = Expression::parse(&o.need::<String>("kernel")?)?;
    let (restarts, rows) = (o.take("restarts")?, o.take("search_rows")?);
    let tuned = |usual: Tuning| Tuning {
        restarts: restarts.unwrap_or(usual.restarts),
        rows: rows.unwrap_or(usual.rows),
        ..usual
    };
    if let Target::Classes { .. } = y {
        let usual = GaussianProcessClassifier::new(kernel);
        let tuning = tuned(usual.tuning);
        return Ok(Handle::predict(GaussianProcessClassifier { tuning, ..usual }.fit(x, y, context)?));
    }
    let what = o.method("exact");
    let way = o.take::<String>("method")?.unwrap_or_else(|| "exact".into());
    let n = x.nrows();
    let rank = if way == "exact" { None } else { o.take::<usize>("rank")? };
    o.finish(&what)?;
    let features = match way.as_str() {
        "exact" => {
            let usual = GaussianProcess::new(kernel);
            let tuning = tuned(usual.tuning);
            return Ok(Handle::predict(GaussianProcess { tuning, ..usual }.fit(x, y, context)?));
        }
        "cg" => {
            let usual = IterativeProcess::new(kernel);
            let tuning = tuned(usual.tuning);
            return Ok(Handle::predict(IterativeProcess { tuning, rank, ..usual }.fit(x, y, context)?));
        }
        "nystrom" => ProcessFeatures::Landmarks(rank.unwrap_or(1000).min(n)),
        "random-features" => ProcessFeatures::Random(rank.unwrap_or(RANDOM_FEATURES)),
        "spectrum" => ProcessFeatures::Eigenfunctions(rank.unwrap_or(PAIRS).min(n)),
        other => {
            return Err(Error::unknown("method", other, ["exact", "cg", "nystrom", "random-features", "spectrum"]));
        }
    };
    let usual = FeatureProcess::new(kernel, features);
    let tuning = tuned(usual.tuning);
    Ok(Handle::predict(FeatureProcess { tuning, ..usual }.fit(x, y, context)?))
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
    let pairs = o.take("count")?.unwrap_or(20);
    let name = o.take::<String>("method")?.unwrap_or_else(|| "functions".into());
    let methods = FunctionMethod::all(pairs);
    let known = methods.iter().map(|method| method.name());
    let method = methods.iter().find(|method| method.name() == name);
    let method = *method.ok_or_else(|| Error::unknown("method", &name, known))?;
    let laplace = FunctionLaplace { tempered: o.take("tempered")?.unwrap_or(false), ..FunctionLaplace::new(method) };
    Ok(Handle::predict(laplace.fit(&fitted, &y_fitted, Some((&validation, &y_validation)), context)?))
}

/// A regression of the registry.
fn regression(mut o: Options, x: ArrayView2<f64>, y: &Target, context: &FitContext) -> Result<Handle> {
    let (method, kernel): (String, _) = (o.need("method")?, o.take("kernel")?);
    let (matrix, intercept) = (o.take("matrix")?.unwrap_or(false), o.take("intercept")?);
    let task = RegressionTask { kernel, matrix, intercept, precision: context.precision };
    let examples = Examples { x: x.into(), y, watched: None };
    let regression = learn::regressions().build(&method, o.rest(), &task)?;
    Ok(Handle::predicts(regression.learn(Source::Memory(examples), context)?.model))
}
