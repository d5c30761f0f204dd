//! Estimators by the names that the program has for them.

use crate::model::Handle;
use crate::options::Options;
use mercer::apply::{EmbeddingTask, Examples, ProcessTask, RegressionTask, ViewEigenmap, ViewRows};
use mercer::data::Target;
use mercer::kernel::Expression;
use mercer::laplace::{NetworkFunctions, NetworkKind};
use mercer::learn::{self, FunctionRows, Source, Splits, posteriors};
use mercer::spectrum::neural::{PairObjective, Settings};
use mercer::{Error, FitContext, Result, fail_if};
use ndarray::{Array3, ArrayView2, s};

/// What [`fit`] knows.
const KINDS: [&str; 5] = ["embed", "eigenmap", "gp", "laplace", "regress"];

/// Fits the estimator of that kind to points `x` `[n, d]` and targets.
pub fn fit(kind: &str, mut o: Options, x: ArrayView2<f64>, y: Option<&Target>, context: &FitContext) -> Result<Handle> {
    let target = || y.ok_or_else(|| Error::input(format!("{kind} needs targets")));
    let what = o.method(kind);
    let fitted = match kind {
        "embed" => return embedding(o, x, context),
        "eigenmap" => Handle::transform(eigenmap(&mut o)?.fit(&view_rows(&mut o, x)?, None, context)?),
        "gp" => return gaussian_process(o, x, target()?, context),
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

/// Coordinates of points under a kernel, or of a kernel matrix.
fn embedding(mut o: Options, x: ArrayView2<f64>, context: &FitContext) -> Result<Handle> {
    let method: String = o.need("method")?;
    let kernel = o.take::<String>("kernel")?.map(|kernel| Expression::parse(&kernel)).transpose()?;
    let task = EmbeddingTask { k: o.need("k")?, kernel, matrix: o.take("matrix")?.unwrap_or(false) };
    Ok(Handle::transforms(learn::embeddings().build(&method, o.rest(), &task)?.fit(x, context)?))
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
    let rows = Splits { fit, validation, test: None, ood: None };
    let mut found = candidates.plan_functions(&rows, context)?.fit_functions(&rows, context)?;
    Ok(Handle::predicts(found.all.swap_remove(found.kept).model))
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
