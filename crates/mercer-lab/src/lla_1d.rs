//! Linearised Laplace of tiny networks: a number on the line and two classes in the plane, every approximation beside the exact posterior.
//!
//! The exact posterior takes the derivatives by all parameters, written out. NeuralEF, and the exact eigenfunctions, stand for them by k
//! functions. All have the prior precision and the noise with the largest marginal likelihood of the exact posterior, so that only the
//! approximations differ.

use crate::{Column, Options, Shown, neural, report, sentence, table};
use mercer::apply::Predict;
use mercer::classifier::{Classifier, Settings, train};
use mercer::compute::{Rule, Tensor};
use mercer::data::{Dataset, Target, generate::moons};
use mercer::laplace::{
    Eigenfunctions, Ella, GivenFunctions, Laplace, Map, Method, NetworkFunctions, NetworkKind, Prior,
};
use mercer::net::Mode;
use mercer::operator::{LowRankOperator, OnPoints};
use mercer::rng::Rng;
use mercer::spectrum::neural::{Kind, NeuralEf};
use mercer::spectrum::{Problem, Spectrum};
use mercer::{FitContext, Result};
use mercer_figure::{Grid, Plot, text};
use ndarray::{Array2, Array3, ArrayView2, Axis, s};
use serde::Serialize;
use serde_json::json;
use std::sync::Arc;
use std::time::Instant;

config! {
    /// Rows of each data set.
    n: usize = 120; quick 40,
    /// Units of both hidden layers.
    width: usize = 24; quick 8,
    epochs: u64 = 1500; quick 60,
    /// Points of the line, and of the plane along each axis.
    line: usize = 200; quick 40,
    plane: usize = 50; quick 12,
    /// Eigenfunctions.
    k: usize = 20; quick 5,
    /// Training steps of NeuralEF.
    steps: u64 = 3000; quick 20,
    /// Networks of NeuralEF, without their output.
    functions: String = "dense(32) sincos dense(32) sincos".into(); quick "dense(8) sincos".into(),
}

/// What a method says at the points: deviations of the number without noise, or probabilities of the first class.
#[derive(Serialize)]
struct Row {
    name: String,
    /// Where there are rows: `‖s − s*‖/‖s*‖` of deviations, or the mean of `|p − p*|`.
    inside: f64,
    /// The same where there are none.
    outside: f64,
    seconds: f64,
    #[serde(skip)]
    values: Vec<f64>,
}

/// One network: its rows, the points, and what every method says there.
struct Case {
    data: Dataset,
    points: Array2<f64>,
    /// Whether each point is near a row.
    near: Vec<bool>,
    /// The network's outputs at the points `[m, C]`.
    outputs: Array2<f64>,
    precision: f64,
    noise: f64,
    parameters: usize,
    rows: Vec<Row>,
}

/// `y = sin 4x + x/2` with noise 0.1, at rows on both sides of a gap.
fn wave(config: &Config) -> Result<Dataset> {
    let mut rng = Rng::new(config.seed).fork(1);
    let side = |i: usize, u: f64| if i.is_multiple_of(2) { -1.0 + 0.6 * u } else { 0.3 + 0.7 * u };
    let x = Array2::from_shape_fn((config.n, 1), |(i, _)| side(i, rng.uniform()));
    let numbers = x.iter().map(|x| (4.0 * x).sin() + 0.5 * x + 0.1 * rng.normal()).collect();
    Dataset::new("wave", x, Some(Target::Values(numbers)))?.with_numbers()
}

fn trained(data: &Dataset, config: &Config, context: &FitContext) -> Result<Arc<Classifier>> {
    let (h, outputs) = (config.width, data.target()?.names().len().max(1));
    let net = format!("dense({h}) tanh dense({h}) tanh dense({outputs})");
    let start = Classifier::new(&net, data, context.device, config.seed)?;
    let rule = Rule::Sgd { momentum: 0.9, weight_decay: 1e-4 };
    let settings = Settings {
        epochs: config.epochs,
        batch: 32,
        rule,
        learning_rate: 0.02,
        seed: config.seed,
        ..Settings::default()
    };
    Ok(Arc::new(train(start, data, None, &settings, context, &|_| ())?.classifier))
}

/// The outputs `[n, C]` and the derivatives by all parameters `[n, C, P]` at rows, by a pass along every parameter.
fn written_out(network: &Classifier, x: ArrayView2<f64>) -> Result<(Array2<f64>, Array3<f64>)> {
    let (net, theta) = (&network.network, &network.parameters);
    let device = theta.trained.device();
    let points = network.standardizer.apply(x, device)?;
    let mut workspace = net.workspace(device)?;
    let (n, c, count) = (x.nrows(), net.outputs(), net.parameters());
    let outputs = net.forward(theta, &points, Mode::Eval, &mut workspace)?.to_host()?;
    let mut jacobians = Array3::zeros((n, c, count));
    for p in 0..count {
        let mut unit = vec![0.0; count];
        unit[p] = 1.0;
        let unit = Tensor::from_host(device, &[count], &unit)?;
        let along = net.jvp(theta, &points, &mut workspace, Some(&unit), None)?.to_host()?;
        let to = jacobians.slice_mut(s![.., .., p]);
        to.into_iter().zip(along).for_each(|(to, v)| *to = f64::from(v));
    }
    let outputs = outputs.into_iter().map(f64::from).collect();
    Ok((Array2::from_shape_vec((n, c), outputs).expect("C outputs of each row"), jacobians))
}

/// `√μ_j ψ_j` `[n, C, k]` of NeuralEF at rows and at points, from the kernel of the written-out derivatives `[m, C, P]` at the points. They are
/// trained where predictions are wanted: functions that are trained at the rows alone are unbounded elsewhere.
fn neural_functions(
    case: &Case,
    jacobians: &Array3<f64>,
    config: &Config,
    context: &FitContext,
) -> Result<[Array3<f64>; 2]> {
    let (_, c, count) = jacobians.dim();
    // F = √P Jᵀ has FᵀF/P = JJᵀ.
    let samples = jacobians.view().permuted_axes([2, 0, 1]).mapv(|v| v * (count as f64).sqrt());
    let samples = LowRankOperator::of_samples(&samples.view().into(), false)?;
    let operator = OnPoints::new(&samples, case.points.view())?;
    let architecture = format!("{} dense({c}) l2norm", config.functions);
    let method = neural(Kind::NeuralEf(NeuralEf::Joint), Some(&architecture), config.steps, config.n);
    let problem = Problem { operator: &operator, k: config.k, context: FitContext { seed: config.seed, ..*context } };
    let spectrum = Spectrum::fit(&method, &problem, None)?;
    let scale: Vec<f64> = spectrum.eigenvalues.iter().map(|μ| μ.max(0.0).sqrt()).collect();
    let at = |x: &Array2<f64>| {
        let psi = spectrum.transform(x.view())?;
        Ok(Array3::from_shape_fn((x.nrows(), c, psi.ncols()), |(i, o, j)| psi[[i * c + o, j]] * scale[j]))
    };
    Ok([at(&case.data.x.clone().into_f64())?, at(&case.points)?])
}

/// All methods on one data set.
fn run(data: Dataset, points: Array2<f64>, config: &Config, context: &FitContext) -> Result<Case> {
    let network = trained(&data, config, context)?;
    let targets = match data.target()? {
        Target::Values(numbers) => Target::Values(numbers.iter().map(|y| scaled(&network, *y)).collect()),
        classes => classes.clone(),
    };
    let classes = matches!(targets, Target::Classes { .. });
    let (z, j) = written_out(&network, data.x.to_f64().view())?;
    let (outputs, at_points) = written_out(&network, points.view())?;
    let near = near(&points, &data.x.to_f64().to_owned());
    let theta = network.parameters.trained.to_host()?;
    let square = theta.iter().map(|v| f64::from(*v).powi(2)).sum();
    let mut case =
        Case { data, points, near, outputs, precision: 1.0, noise: 1.0, parameters: theta.len(), rows: vec![] };
    let start = Instant::now();
    let exact = Laplace { prior: Prior::Likelihood, ..Laplace::new(GivenFunctions) };
    let fitted = exact.fit_functions(
        &NetworkFunctions::jacobians(z.view(), j.view())?.with_square(square),
        &targets,
        None,
        context,
    )?;
    (case.precision, case.noise) = (fitted.found.value, fitted.noise);
    let values = |fitted: &mercer::laplace::FittedFunctionLaplace, functions: &Array3<f64>| {
        let at = NetworkFunctions::jacobians(case.outputs.view(), functions.view())?;
        let scores = at.scores_of(fitted)?;
        Ok::<_, mercer::Error>(match at.deviations_of(fitted)? {
            Some(s) => s.iter().map(|s| (s * s - fitted.noise).max(0.0).sqrt()).collect(),
            None => first_class(fitted, scores.view()),
        })
    };
    let mut found = vec![("full, exact".to_owned(), values(&fitted, &at_points)?, start.elapsed().as_secs_f64())];
    let prior = Prior::Given { precision: case.precision, noise: case.noise };
    let given = |method: Method| Laplace { prior, ..Laplace::new(method) };
    let start = Instant::now();
    let [at_rows, elsewhere] = neural_functions(&case, &at_points, config, context)?;
    let network_of = NetworkFunctions::jacobians(z.view(), at_rows.view())?;
    let fitted = given(GivenFunctions.into()).fit_functions(&network_of, &targets, None, context)?;
    found.push((format!("NeuralEF, k = {}", config.k), values(&fitted, &elsewhere)?, start.elapsed().as_secs_f64()));
    let start = Instant::now();
    let leading = given(Eigenfunctions { functions: config.k, ..Eigenfunctions::default() }.into());
    let fitted = leading.fit_functions(&NetworkFunctions::jacobians(z.view(), j.view())?, &targets, None, context)?;
    let name = format!("eigenfunctions, k = {}", config.k);
    found.push((name, values(&fitted, &at_points)?, start.elapsed().as_secs_f64()));
    // A process with a fixed mean has a prior of its own: it is no approximation of this posterior.
    let approximates = |method: &Method| method.has_posterior() && method.name() != "fixed-mean";
    for method in Method::all_for(NetworkKind::default()).into_iter().filter(approximates) {
        let start = Instant::now();
        let method = match method {
            Method::Ella(ella) => Ella { rank: config.k, ..ella }.into(),
            Method::Eigenfunctions(usual) => Eigenfunctions { functions: config.k, ..usual }.into(),
            other => other,
        };
        let fitted = Laplace { prior, ..Laplace::new(method) }.fit(&network, &case.data, None, context)?;
        let values = match classes {
            true => first_class(&fitted, fitted.scores(case.points.view())?.view()),
            false => fitted.outputs(case.points.view())?.1.iter().map(|v| v.sqrt()).collect(),
        };
        let name = if let Method::Eigenfunctions(_) = method { "hidden units" } else { method.name() };
        found.push((name.to_owned(), values, start.elapsed().as_secs_f64()));
    }
    if classes {
        let alone = Laplace::new(Map);
        let fitted = alone.fit_functions(&NetworkFunctions::jacobians(z.view(), j.view())?, &targets, None, context)?;
        found.push(("the network alone".into(), values(&fitted, &at_points)?, 0.0));
    }
    let truth = found[0].1.clone();
    let row = |(name, values, seconds): (String, Vec<f64>, f64)| {
        let error = |near: bool| distance(&values, &truth, &case.near, near, classes);
        Row { inside: error(true), outside: error(false), name, seconds, values }
    };
    case.rows = found.into_iter().map(row).collect();
    Ok(case)
}

/// A number in units of the network's output.
fn scaled(network: &Classifier, y: f64) -> f64 {
    network.number.map_or(y, |number| (y - number.mean) / number.spread)
}

fn first_class(fitted: &dyn Predict, scores: ArrayView2<f64>) -> Vec<f64> {
    fitted.probabilities(scores).map(|p| p.column(0).to_vec()).unwrap_or_default()
}

/// Which points `[m, d]` are nearer to a row than a tenth of the rows' range.
fn near(points: &Array2<f64>, rows: &Array2<f64>) -> Vec<bool> {
    let column = rows.index_axis(Axis(1), 0);
    let range = column.fold(f64::NEG_INFINITY, |a, b| a.max(*b)) - column.fold(f64::INFINITY, |a, b| a.min(*b));
    let close = |p: ndarray::ArrayView1<f64>, r: ndarray::ArrayView1<f64>| {
        (&p - &r).mapv(|v| v * v).sum() < (0.1 * range).powi(2)
    };
    points.rows().into_iter().map(|p| rows.rows().into_iter().any(|r| close(p, r))).collect()
}

/// The distance of values from the true ones at the points that are near, or not: the mean of `|p − p*|`, or `‖s − s*‖/‖s*‖`.
fn distance(values: &[f64], truth: &[f64], near: &[bool], wanted: bool, classes: bool) -> f64 {
    let chosen = || (0..values.len()).filter(|&i| near[i] == wanted);
    let sum = |f: &dyn Fn(usize) -> f64| chosen().map(f).sum::<f64>();
    match classes {
        true => sum(&|i| (values[i] - truth[i]).abs()) / (chosen().count() as f64).max(1.0),
        false => (sum(&|i| (values[i] - truth[i]).powi(2)) / sum(&|i| truth[i].powi(2)).max(f64::MIN_POSITIVE)).sqrt(),
    }
}

/// Bands of two deviations around the network, one panel for each method.
fn bands(case: &Case) -> String {
    let y = case.data.y.as_ref().map_or_else(Vec::new, Target::values);
    let number = mercer::classifier::Number::of(&y);
    let xs = case.points.column(0).to_vec();
    let mean: Vec<f64> = case.outputs.iter().map(|z| number.mean + number.spread * z).collect();
    let mut grid = Grid::new("A network on the line: mean and two deviations", 3).panel_size(250.0, 150.0).shared();
    for row in &case.rows {
        let end = |sign: f64| {
            let at = |(m, s): (&f64, &f64)| m + sign * 2.0 * number.spread * (s * s + case.noise).sqrt();
            mean.iter().zip(&row.values).map(at).collect::<Vec<f64>>()
        };
        let rows = case.data.x.column(0);
        let plot = Plot::new(&row.name).x("x").y("y").scatter("", &rows, &y).colour(7);
        let (low, high) = (end(-1.0), end(1.0));
        grid = grid.panel(plot.line("", &xs, &mean).band(&low, &high).colour(0).y_range(-4.0, 4.0));
    }
    grid.svg()
}

/// The entropy over the plane, one panel for each method.
fn maps(case: &Case, points: usize) -> String {
    let Some(Target::Classes { labels, names }) = &case.data.y else {
        unreachable!("the rows of the plane have classes")
    };
    let entropy = |p: &f64| [*p, 1.0 - p].iter().map(|p| if *p > 0.0 { -p * p.ln() } else { 0.0 }).sum::<f64>();
    let mut grid = Grid::new("Two classes in the plane: entropy of the probabilities", 3);
    grid = grid.panel_size(200.0, 160.0).shared().one_scale("entropy");
    let (xs, ys) = (case.data.x.column(0), case.data.x.column(1));
    for row in &case.rows {
        let values: Vec<f64> = row.values.iter().map(entropy).collect();
        let plot =
            Plot::new(&row.name).x("x_1").y("x_2").field("entropy", PLANE[0], PLANE[1], [points, points], &values);
        grid = grid.panel(plot.classes(&xs, &ys, labels, names));
    }
    grid.svg()
}

/// Ends of the line, and of the plane.
const LINE: [f64; 2] = [-2.0, 2.0];
const PLANE: [(f64, f64); 2] = [(-3.0, 4.0), (-2.5, 3.0)];

/// `count` numbers from `low` to `high`, ends included.
fn spaced((low, high): (f64, f64), count: usize) -> Vec<f64> {
    (0..count).map(|i| low + (high - low) * i as f64 / (count - 1) as f64).collect()
}

fn setting(config: &Config, line: &Case, plane: &Case) -> String {
    format!(
        "Networks with two hidden layers of {} tanh units: y = sin 4x + x/2 with noise 0.1 at {} rows on both sides of a gap ({} parameters), and \
         two half moons ({} parameters). The full posterior takes the derivatives by all parameters; its marginal likelihood gives the prior \
         precision {} (line) and {} (plane), which all methods have. NeuralEF trains {} networks for the eigenfunctions of the NTK over the points of the figures; \
         'eigenfunctions' are the exact ones, 'hidden units' those in the span of the hidden units.",
        config.width,
        config.n,
        line.parameters,
        plane.parameters,
        text::number(line.precision, 3),
        text::number(plane.precision, 3),
        config.k
    )
}

pub fn reproduce(options: &Options, context: &FitContext<'_>) -> Result<Shown> {
    let config = Config::new(options.quick, context.seed);
    let points = Array2::from_shape_vec((config.line, 1), spaced((LINE[0], LINE[1]), config.line)).expect("one column");
    let line = run(wave(&config)?, points, &config, context)?;
    let [a, b] = PLANE.map(|ends| spaced(ends, config.plane));
    let m = config.plane;
    let points = Array2::from_shape_fn((m * m, 2), |(i, j)| if j == 0 { a[i % m] } else { b[i / m] });
    let plane = run(moons(config.n, 0.2, config.seed)?.with_classes()?, points, &config, context)?;
    let columns: [Column<Row>; 4] = [
        ("method", |row| row.name.clone()),
        ("error near rows", |row| text::number(row.inside, 3)),
        ("error elsewhere", |row| text::number(row.outside, 3)),
        ("time", |row| text::seconds(row.seconds)),
    ];
    let [on_line, on_plane] = [&line, &plane].map(|case| table(&case.rows[1..], &columns));
    let share = |case: &Case, name: &str| {
        case.rows.iter().find(|row| row.name.starts_with(name)).map_or(f64::NAN, |row| row.outside)
    };
    let verdict = format!(
        "away from the rows, deviations of NeuralEF's posterior are off by {} of the exact ones, those of the exact eigenfunctions by {}, KFAC by \
         {}, the last layer by {}",
        text::percent(share(&line, "NeuralEF")),
        text::percent(share(&line, "eigenfunctions")),
        text::percent(share(&line, "kfac")),
        text::percent(share(&line, "last-layer"))
    );
    let (figure, map) = (bands(&line), maps(&plane, m));
    let setting = setting(&config, &line, &plane);
    let text = format!(
        "{setting}\n\nOn the line, relative error of the deviation:\n{}\nIn the plane, mean error of the probability:\n{}\n{}\n",
        on_line.text(),
        on_plane.text(),
        sentence(&verdict)
    );
    let report = report("Linearised Laplace on the line and in the plane", &verdict, &setting)
        .section("A number on the line")
        .table(on_line.caption("‖s − s*‖/‖s*‖ of the deviation without noise, s* the exact one."))
        .figure(&figure, "The network (line), two deviations with the noise (shade), and the rows.")
        .section("Two classes in the plane")
        .table(on_plane.caption("The mean of |p − p*|, p* the exact posterior's probability."))
        .figure(&map, "Entropy of the predicted probabilities, and the rows.");
    let case = |case: &Case| json!({ "parameters": case.parameters, "precision": case.precision, "noise": case.noise, "methods": case.rows });
    let numbers = json!({ "plan": config, "line": case(&line), "plane": case(&plane), "verdict": verdict });
    Ok(Shown { figure, report, numbers, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_out_derivatives_are_those_of_finite_differences() {
        let config = Config::new(true, 3);
        let network = trained(&wave(&config).unwrap(), &config, &FitContext::default()).unwrap();
        let x = ndarray::array![[0.3], [-1.2]];
        let (z, j) = written_out(&network, x.view()).unwrap();
        let theta = network.parameters.trained.to_host().unwrap();
        for p in [0, 7, 40, theta.len() - 1] {
            let at = |step: f32| {
                let mut theta = theta.clone();
                theta[p] += step;
                let parameters = network.network.parameters_from(mercer::Device::Cpu, &theta, &[]).unwrap();
                let moved = Classifier {
                    parameters,
                    ..trained(&wave(&config).unwrap(), &config, &FitContext::default())
                        .map(Arc::into_inner)
                        .unwrap()
                        .unwrap()
                };
                moved.logits(x.view()).unwrap().mapv(f64::from)
            };
            let slope = (at(1e-2) - at(-1e-2)) / 2e-2;
            for i in 0..2 {
                assert!((slope[[i, 0]] - j[[i, 0, p]]).abs() < 2e-3 * (1.0 + slope[[i, 0]].abs()), "{p} {slope}");
            }
        }
        assert_eq!(z.mapv(|v| v as f32), network.logits(x.view()).unwrap());
    }

    /// With as many functions as there are derivatives of rows, the eigenfunctions lose nothing at the rows, and elsewhere only what is not in
    /// the span of those derivatives.
    #[test]
    fn every_approximation_is_measured_and_all_eigenfunctions_are_exact() {
        let config = Config { k: 40, ..Config::new(true, 1) };
        let points = Array2::from_shape_vec((50, 1), spaced((LINE[0], LINE[1]), 50)).unwrap();
        let case = run(wave(&config).unwrap(), points, &config, &FitContext::default()).unwrap();
        assert!(case.rows.iter().flat_map(|row| &row.values).all(|v| v.is_finite()));
        assert_eq!(case.rows.len(), 9);
        let exact = case.rows.iter().find(|row| row.name.starts_with("eigenfunctions")).unwrap();
        assert!(exact.inside < 1e-4 && exact.outside < 1e-2, "{} {}", exact.inside, exact.outside);
    }

    #[test]
    fn distances_are_their_definitions() {
        let near = [true, true, false];
        assert_eq!(distance(&[1.0, 2.0, 5.0], &[1.0, 0.0, 4.0], &near, true, true), 1.0);
        assert_eq!(distance(&[1.0, 2.0, 5.0], &[1.0, 0.0, 4.0], &near, false, false), 0.25);
    }
}
