//! The Gaussian process of a fully connected network in the plane: its eigenfunctions by NeuralEF and exactly.
//!
//! Two circles with an erf network and two moons with a ReLU network, three functions each. The kernel is given by samples,
//! `κ(x,x') = (1/S) Σ_s g(x,θ_s) g(x',θ_s)` over S random networks; *exact* is the eigendecomposition of this kernel. Both are
//! evaluated at new points: NeuralEF by its networks, the exact functions by
//! `ψ_j(x) = (1/(n μ_j)) Σ_i κ(x,x_i) ψ_j(x_i)`.

use crate::statistics::least_cosine;
use crate::wide::tensor;
use crate::{Options, Shown, coordinates, report, sentence, table};
use mercer::compute::Device;
use mercer::data::{Dataset, Target, generate};
use mercer::kernel::Kernel;
use mercer::linalg::{eigh, orthonormal_basis};
use mercer::net::ntk::sample_networks;
use mercer::operator::{LowRankOperator, OnPoints, gram};
use mercer::rng::Rng;
use mercer::spectrum::neural::{Neural, NeuralEf};
use mercer::spectrum::{Exact, Problem, Spectrum};
use mercer::{FitContext, Result};
use mercer_figure::report::Table;
use mercer_figure::{Grid, Plot, text};
use ndarray::{Array2, Array3, ArrayView2, Axis, concatenate, s};
use serde::Serialize;
use serde_json::json;
use std::ops::Range;

config! {
    /// Number of fitted points, and of new points.
    n: usize = 1000; quick 200,
    /// Number S of random networks.
    samples: usize = 2000; quick 300,
    /// Units of each of the two hidden layers of a random network.
    width: usize = 256; quick 64,
    /// Number of eigenfunctions.
    k: usize = 3,
    steps: u64 = 2000; quick 300,
    batch: usize = 128,
    /// Points along each side of the map of the plane.
    side: usize = 40; quick 20,
}

/// The weights of the random networks have variance 2/fan-in, their biases 0.1.
const WEIGHTS: &str = "w=1.4142135, b=0.31622777";

/// The result for one data set and its network.
#[derive(Serialize)]
struct Case {
    name: &'static str,
    net: String,
    /// Exact eigenvalues of the sampled kernel on the points.
    exact: Vec<f64>,
    /// Eigenvalues of the kernel in closed form (infinitely many, infinitely wide networks).
    closed_form: Vec<f64>,
    /// NeuralEF's eigenvalues, after Rayleigh–Ritz.
    neural: Vec<f64>,
    /// NeuralEF's own eigenvalues (moving averages), before Rayleigh–Ritz.
    raw: Vec<f64>,
    /// `|⟨ψ_j, ψ̂_j⟩|` of NeuralEF's function and the exact one on the fitted points, both of norm one.
    fitted: Vec<f64>,
    /// The same on new points.
    new: Vec<f64>,
    /// The smallest cosine between the two spans of all k functions on new points. Rotations within a span do not change it.
    span: f64,
    /// Share of the kernel's trace in the k exact pairs.
    captured: f64,
    seconds: f64,
    /// The new points `[n, 2]`.
    #[serde(skip)]
    x: Array2<f64>,
    #[serde(skip)]
    labels: Vec<usize>,
    classes: Vec<String>,
    /// Ranges of the map in x and y.
    ranges: [[f64; 2]; 2],
    #[serde(skip)]
    by_networks: Values,
    /// The exact functions, with NeuralEF's signs.
    #[serde(skip)]
    by_exact: Values,
}

struct Values {
    /// At the new points `[n, k]`.
    new: Array2<f64>,
    /// On the map `[side², k]`, in rows of equal y, ascending.
    map: Array2<f64>,
}

impl Case {
    fn rows(&self) -> [(&'static str, &Values); 2] {
        [("NeuralEF", &self.by_networks), ("exact", &self.by_exact)]
    }
}

pub fn reproduce(options: &Options, context: &FitContext<'_>) -> Result<Shown> {
    let config = Config::new(options.quick, context.seed);
    let cases = run(&config, context)?;
    let verdict = verdict(&cases);
    let figure = maps(&cases, config.side);
    let mut report = report("The Gaussian process of a network, in the plane", &verdict, &setting(&config, &cases))
        .section("The functions over the plane")
        .figure(&figure, "NeuralEF's functions above, the exact ones below; values beyond ±3 have the colours of the ends; dots are some of the new points. NeuralEF is trained on the circles or the moons only, so away from them its networks are arbitrary.")
        .section("At new points")
        .figure(&points(&cases), "The same functions at new points: NeuralEF above, exact below.")
        .figure(&projections(&cases), "The points in the coordinates of the functions, coloured by class.");
    let mut text = String::new();
    for case in &cases {
        let pairs = pairs(case);
        text += &format!("{}, {}\n{}\n", case.name, case.net, pairs.text());
        let table = pairs.caption(format!(
            "{}: eigenvalues of the kernel on the points, and agreement of NeuralEF's functions with the exact ones. Raw \
             eigenvalues are the moving averages of training; the closed form is the kernel of infinitely many, infinitely wide \
             networks.",
            case.name
        ));
        let (k, captured, time) = (case.exact.len(), text::percent(case.captured), text::seconds(case.seconds));
        report = report.section(case.name).table(table).text(&format!(
            "The {k} pairs hold {captured} of the kernel's trace. The smallest cosine between the spans of all {k} functions, which \
             does not depend on rotations among functions of nearly equal eigenvalue, is {:.4}. NeuralEF took {time}, with its final \
             Rayleigh–Ritz step.",
            case.span
        ));
    }
    let numbers = json!({ "plan": config, "cases": cases, "verdict": verdict });
    Ok(Shown { figure, report, text: text + &sentence(&verdict) + "\n", numbers })
}

fn setting(config: &Config, cases: &[Case]) -> String {
    let nets: Vec<String> = cases.iter().map(|c| format!("{} with {}", c.name, c.net)).collect();
    let [samples, n, steps] = [config.samples, config.n, config.steps as usize].map(text::grouped);
    let (nets, Config { k, batch, .. }) = (nets.join("; "), config);
    format!(
        "The kernel κ(x,x') = E[g(x,θ) g(x',θ)] of a network with random weights, sampled by {samples} networks: {nets}. {n} points are \
         fitted. NeuralEF trains {k} networks for {steps} steps on batches of {batch} and ends with Rayleigh–Ritz; exact is the \
         eigendecomposition of the same kernel on the same points. At {n} new points and over the plane, NeuralEF's functions are its \
         networks, and the exact ones are (1/nμ) Σ κ(x,xᵢ) ψ(xᵢ), with the same random networks."
    )
}

/// The ends of the colour scale of functions whose mean square is 1.
const ENDS: [f64; 2] = [-3.0, 3.0];

/// One panel for each function, which `panel` draws for a case, its values and their column j, all on one colour scale.
fn figure_of(title: &str, cases: &[Case], panel: impl Fn(Plot, &Case, &Values, usize) -> Plot) -> String {
    let k = cases.first().map_or(1, |c| c.exact.len());
    let mut grid = Grid::new(title, k).panel_size(210.0, 160.0).one_scale("ψ");
    for case in cases {
        for (name, values) in case.rows() {
            for j in 0..k {
                let plot = Plot::new(format!("{}, {name}: ψ_{{{}}}", case.name, j + 1));
                grid = grid.panel(panel(plot, case, values, j));
            }
        }
    }
    grid.svg()
}

fn maps(cases: &[Case], side: usize) -> String {
    const LAST: usize = 6;
    /// Number of points; the first ones show both classes, which alternate.
    const SHOWN: usize = 120;
    figure_of("Eigenfunctions of the networks' Gaussian process", cases, |plot, case, values, j| {
        let [xs, ys] = [0, 1].map(|axis| case.x.column(axis).iter().copied().take(SHOWN).collect::<Vec<f64>>());
        let [x, y] = case.ranges.map(|[low, high]| (low, high));
        let plot =
            plot.field("", x, y, [side, side], &values.map.column(j).to_vec()).diverging().scale(ENDS[0], ENDS[1]);
        plot.scatter("", &xs, &ys).colour(LAST)
    })
}

fn points(cases: &[Case]) -> String {
    figure_of("Eigenfunctions at new points", cases, |plot, case, values, j| {
        let [xs, ys] = [0, 1].map(|axis| case.x.column(axis).to_vec());
        plot.values("", &xs, &ys, &values.new.column(j).to_vec()).diverging().scale(ENDS[0], ENDS[1])
    })
}

fn projections(cases: &[Case]) -> String {
    let pairs = [(0, 1), (0, 2), (1, 2)];
    let mut grid =
        Grid::new("The points in the coordinates of their eigenfunctions", pairs.len()).panel_size(210.0, 160.0);
    for case in cases {
        for (name, values) in case.rows() {
            for (a, b) in pairs.into_iter().filter(|(_, b)| *b < values.new.ncols()) {
                let title = format!("{}, {name}", case.name);
                grid = grid.panel(coordinates(title, &values.new, [a, b], &case.labels, &case.classes));
            }
        }
    }
    grid.svg()
}

/// One row for each pair.
fn pairs(case: &Case) -> Table {
    let rows: Vec<(&Case, usize)> = (0..case.exact.len()).map(|j| (case, j)).collect();
    table(
        &rows,
        &[
            ("pair", |(_, j)| (j + 1).to_string()),
            ("exact eigenvalue", |(case, j)| text::number(case.exact[*j], 5)),
            ("closed form", |(case, j)| text::number(case.closed_form[*j], 5)),
            ("NeuralEF", |(case, j)| text::number(case.neural[*j], 5)),
            ("NeuralEF, raw", |(case, j)| case.raw.get(*j).map_or(text::GAP.into(), |μ| text::number(*μ, 5))),
            ("|cos|, fitted points", |(case, j)| format!("{:.5}", case.fitted[*j])),
            ("|cos|, new points", |(case, j)| format!("{:.5}", case.new[*j])),
        ],
    )
}

fn run(config: &Config, context: &FitContext<'_>) -> Result<Vec<Case>> {
    let circles = |seed| generate::circles(config.n, 0.05, 0.5, seed);
    let moons = |seed| generate::moons(config.n, 0.05, seed);
    Ok(vec![
        case(config, "circles", "erf", [circles(config.seed)?, circles(config.seed + 1)?], context)?,
        case(config, "moons", "relu", [moons(config.seed)?, moons(config.seed + 1)?], context)?,
    ])
}

fn case(
    config: &Config,
    name: &'static str,
    activation: &str,
    [fit, new]: [Dataset; 2],
    context: &FitContext<'_>,
) -> Result<Case> {
    let (n, k, h) = (config.n, config.k, config.width);
    let net = format!("dense({h}, {WEIGHTS}) {activation} dense({h}, {WEIGHTS}) {activation} dense(1, {WEIGHTS})");
    let (fit, new_points) = (fit.x.into_f64(), new.x.into_f64());
    let (ranges, map) = map_of_plane(fit.view(), config.side);
    let all = concatenate(Axis(0), &[fit.view(), new_points.view(), map.view()]).expect("two columns each");
    let f = values_of_networks(&net, &all, config, name, context)?;

    let samples = LowRankOperator::of_samples(&f.slice(s![.., ..n, ..]).into(), false)?;
    let operator = OnPoints::new(&samples, fit.view())?;
    let problem = Problem { operator: &operator, k, context: FitContext { seed: config.seed, ..*context } };
    let exact = Spectrum::fit(&Exact, &problem, None)?;
    let mut method = Neural::new(NeuralEf::Joint);
    (method.settings.steps, method.settings.batch) = (config.steps, config.batch);
    let neural = Spectrum::fit(&method, &problem, None)?;

    let by_exact = exact.transform(&f.view().into())?;
    let by_networks = neural.transform(all.view())?;
    let [fitted_rows, new_rows, map_rows] = [0..n, n..2 * n, 2 * n..all.nrows()];
    let part = |values: &Array2<f64>, rows: &Range<usize>| values.slice(s![rows.clone(), ..]).to_owned();
    let cosines = |rows: &Range<usize>| signed_cosines(&part(&by_exact, rows), &part(&by_networks, rows));
    let (fitted_cosines, new_cosines) = (cosines(&fitted_rows), cosines(&new_rows));
    // The exact functions with the signs of NeuralEF's.
    let mut signed = by_exact.clone();
    for (mut column, cosine) in signed.columns_mut().into_iter().zip(&fitted_cosines) {
        column *= cosine.signum();
    }
    let bases = [orthonormal_basis(part(&by_exact, &new_rows))?, orthonormal_basis(part(&by_networks, &new_rows))?];
    let absolute = |cosines: Vec<f64>| cosines.into_iter().map(f64::abs).collect();
    let Some(Target::Classes { labels, names: classes }) = new.y else { unreachable!("{name} have classes") };
    Ok(Case {
        name,
        net,
        span: least_cosine(bases[0].t(), bases[1].view())?,
        captured: exact.certificate.trace_captured,
        exact: exact.eigenvalues.clone(),
        closed_form: closed_form(activation, fit.view(), k)?,
        raw: neural.training().map(|t| t.raw_eigenvalues.clone()).unwrap_or_default(),
        seconds: neural.origin.seconds,
        neural: neural.eigenvalues,
        fitted: absolute(fitted_cosines),
        new: absolute(new_cosines),
        x: new_points,
        labels,
        classes,
        ranges,
        by_networks: Values { new: part(&by_networks, &new_rows), map: part(&by_networks, &map_rows) },
        by_exact: Values { new: part(&signed, &new_rows), map: part(&signed, &map_rows) },
    })
}

/// The k largest eigenvalues of the kernel of the infinitely wide network on the points `[n, 2]`.
fn closed_form(activation: &str, x: ArrayView2<f64>, k: usize) -> Result<Vec<f64>> {
    let kernel = Kernel::parse(&format!("nngp(depth=2, act={activation}, w_var=2, b_var=0.1)"))?;
    let (values, _) = eigh(Device::Cpu, (gram::<f64>(&kernel, x, Device::Cpu)? / x.nrows() as f64).view())?;
    Ok(values[..k].to_vec())
}

/// The samples `F` `[S, points, 1]`: the values of S random networks.
fn values_of_networks(
    net: &str,
    x: &Array2<f64>,
    config: &Config,
    name: &str,
    context: &FitContext<'_>,
) -> Result<Array3<f64>> {
    let points = tensor(x.view(), Device::Cpu)?;
    let mut f = Array3::zeros((config.samples, x.nrows(), 1));
    let seed = Rng::new(config.seed).fork(2).next_u64();
    sample_networks(net, &points, config.samples, seed, |s, values| {
        context.progress.step(&format!("networks on {name}"), s + 1, config.samples, "");
        f.slice_mut(s![s, .., 0]).iter_mut().zip(values).for_each(|(f, v)| *f = f64::from(*v));
        Ok(())
    })?;
    Ok(f)
}

/// The ranges of the points with a margin, and a grid of `side²` points over them, in rows of equal y, ascending.
fn map_of_plane(x: ArrayView2<f64>, side: usize) -> ([[f64; 2]; 2], Array2<f64>) {
    let range = |column: usize| {
        let values = x.column(column);
        let (low, high) = values.iter().fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(*v), h.max(*v)));
        let margin = 0.15 * (high - low);
        [low - margin, high + margin]
    };
    let ranges = [range(0), range(1)];
    let at = |[low, high]: [f64; 2], i: usize| low + (high - low) * i as f64 / (side - 1) as f64;
    let map = Array2::from_shape_fn((side * side, 2), |(p, axis)| {
        at(ranges[axis], if axis == 0 { p % side } else { p / side })
    });
    (ranges, map)
}

/// `⟨a_j, b_j⟩/(‖a_j‖‖b_j‖)` of each pair of columns.
fn signed_cosines(a: &Array2<f64>, b: &Array2<f64>) -> Vec<f64> {
    let norm = |v: &ndarray::ArrayView1<f64>| v.dot(v).sqrt().max(f64::MIN_POSITIVE);
    a.columns().into_iter().zip(b.columns()).map(|(a, b)| a.dot(&b) / (norm(&a) * norm(&b))).collect()
}

fn verdict(cases: &[Case]) -> String {
    let one = |case: &Case| {
        let Case { name, new, span, .. } = case;
        let worst = (0..new.len()).min_by(|a, b| new[*a].total_cmp(&new[*b])).unwrap_or(0);
        let (cosine, pair) = (new[worst], worst + 1);
        format!(
            "on {name} the functions agree with the exact ones to |cos| ≥ {cosine:.4} (smallest for pair {pair}), and their span to \
             {span:.4}"
        )
    };
    format!("at new points, {}", cases.iter().map(one).collect::<Vec<_>>().join("; "))
}
