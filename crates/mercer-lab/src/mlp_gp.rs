//! The Gaussian process of a fully connected network in the plane: its eigenfunctions by NeuralEF beside the exact ones.
//!
//! Two circles with an erf network and two moons with a ReLU network, three functions each. The kernel is known by
//! samples, `κ(x,x') = (1/S) Σ_s g(x,θ_s) g(x',θ_s)` over S drawn networks, and *exact* means the eigendecomposition of that
//! same kernel. Both are then carried to new points: NeuralEF by its networks, the exact functions by
//! `ψ_j(x) = (1/(n μ_j)) Σ_i κ(x,x_i) ψ_j(x_i)`.

use mercer::FitContext;
use mercer::Result;
use mercer::compute::{Device, Tensor};
use mercer::data::{Dataset, Target, generate};
use mercer::kernel::Kernel;
use mercer::linalg::{eigh, matmul, orthonormal_basis};
use mercer::net::ntk::sample_networks;
use mercer::operator::{LowRankOperator, OnPoints, gram};
use mercer::rng::Rng;
use mercer::spectrum::neural::{Kind, Neural};
use mercer::spectrum::{Exact, Problem, Spectrum};
use ndarray::{Array2, Array3, ArrayView2, Axis, concatenate, s};
use serde::Serialize;

/// How much is run.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// Points that are fitted, and as many new ones.
    pub n: usize,
    /// S
    pub samples: usize,
    /// Units of each of the two hidden layers of a drawn network.
    pub width: usize,
    /// Eigenfunctions.
    pub k: usize,
    /// Training steps.
    pub steps: u64,
    /// Points of a batch.
    pub batch: usize,
    /// Points along each side of the map of the plane.
    pub side: usize,
    /// Of everything.
    pub seed: u64,
}

impl Plan {
    /// The whole experiment.
    pub fn full(seed: u64) -> Plan {
        Plan { n: 1000, samples: 2000, width: 256, k: 3, steps: 2000, batch: 128, side: 40, seed }
    }

    /// A small one, in seconds.
    pub fn quick(seed: u64) -> Plan {
        Plan { n: 200, samples: 300, width: 64, steps: 300, side: 20, ..Plan::full(seed) }
    }
}

/// The networks' weights have variance 2/fan-in, their biases 0.1.
const WEIGHTS: &str = "w=1.4142135, b=0.31622777";

/// A set of points with its network.
#[derive(Clone, Debug, Serialize)]
pub struct Case {
    /// Of the data.
    pub name: &'static str,
    /// The networks that are drawn.
    pub net: String,
    /// Eigenvalues of the kernel over the points.
    pub exact: Vec<f64>,
    /// Those of the same kernel in closed form, of infinitely many and infinitely wide networks.
    pub closed_form: Vec<f64>,
    /// Those that NeuralEF ends with.
    pub neural: Vec<f64>,
    /// Those of its own moving averages, before Rayleigh–Ritz.
    pub raw: Vec<f64>,
    /// `|⟨ψ_j, ψ̂_j⟩|` of NeuralEF's function and the exact one over the points that were fitted, both of norm one.
    pub fitted: Vec<f64>,
    /// The same over new points.
    pub new: Vec<f64>,
    /// The least cosine between the two spans of all k functions over new points: blind to rotations among them.
    pub span: f64,
    /// Share of the kernel's trace in the k exact pairs.
    pub captured: f64,
    /// Seconds that training took.
    pub seconds: f64,
    /// The new points `[n, 2]`.
    #[serde(skip)]
    pub x: Array2<f64>,
    /// Their classes.
    #[serde(skip)]
    pub labels: Vec<usize>,
    /// The names of the classes.
    pub classes: Vec<String>,
    /// Exact functions at the new points `[n, k]`, with NeuralEF's signs.
    #[serde(skip)]
    pub exact_functions: Array2<f64>,
    /// NeuralEF's functions there.
    #[serde(skip)]
    pub neural_functions: Array2<f64>,
    /// Ranges of the map, x and y.
    pub ranges: [[f64; 2]; 2],
    /// Exact functions on the map `[side², k]`, rows of equal y from the least on.
    #[serde(skip)]
    pub exact_map: Array2<f64>,
    /// NeuralEF's functions there.
    #[serde(skip)]
    pub neural_map: Array2<f64>,
}

/// Both cases.
pub fn run(plan: &Plan, context: &FitContext<'_>) -> Result<Vec<Case>> {
    let circles = |seed| generate::circles(plan.n, 0.05, 0.5, seed);
    let moons = |seed| generate::moons(plan.n, 0.05, seed);
    Ok(vec![
        case(plan, "circles", "erf", [circles(plan.seed)?, circles(plan.seed + 1)?], context)?,
        case(plan, "moons", "relu", [moons(plan.seed)?, moons(plan.seed + 1)?], context)?,
    ])
}

fn case(
    plan: &Plan,
    name: &'static str,
    activation: &str,
    [fit, new]: [Dataset; 2],
    context: &FitContext<'_>,
) -> Result<Case> {
    let (n, k, h) = (plan.n, plan.k, plan.width);
    let net = format!("dense({h}, {WEIGHTS}) {activation} dense({h}, {WEIGHTS}) {activation} dense(1, {WEIGHTS})");
    let (ranges, map) = map_of_plane(fit.x.view(), plan.side);
    let all = concatenate(Axis(0), &[fit.x.view(), new.x.view(), map.view()]).expect("two columns each");
    let f = values_of_networks(&net, &all, plan, name, context)?;

    let samples = LowRankOperator::of_samples(&f.slice(s![.., ..n, ..]).into(), false)?;
    let operator = OnPoints::new(&samples, fit.x.view())?;
    let problem = Problem { operator: &operator, k, context: FitContext { seed: plan.seed, ..*context } };
    let exact = Spectrum::fit(&Exact, &problem, None)?;
    let mut method = Neural::new(Kind::NeuralEf { averaged: false });
    method.settings.steps = plan.steps;
    method.settings.batch = plan.batch;
    let neural = Spectrum::fit(&method, &problem, None)?;

    let everywhere = exact.transform(&f.view().into())?;
    let by_networks = neural.transform(all.view())?;
    let [fitted_rows, new_rows, map_rows] = [0..n, n..2 * n, 2 * n..all.nrows()];
    let part = |values: &Array2<f64>, rows: &std::ops::Range<usize>| values.slice(s![rows.clone(), ..]).to_owned();
    let cosines = |rows: &std::ops::Range<usize>| signed_cosines(&part(&everywhere, rows), &part(&by_networks, rows));
    let (fitted, seen_new) = (cosines(&fitted_rows), cosines(&new_rows));
    let mut turned = everywhere.clone();
    for (mut column, cosine) in turned.columns_mut().into_iter().zip(&fitted) {
        column *= cosine.signum();
    }
    let absolute = |cosines: Vec<f64>| cosines.into_iter().map(f64::abs).collect();
    let (labels, classes) = match &new.y {
        Some(Target::Classes { labels, names }) => (labels.clone(), names.clone()),
        _ => (vec![0; n], vec![name.to_owned()]),
    };
    Ok(Case {
        name,
        net,
        span: least_cosine(&part(&everywhere, &new_rows), &part(&by_networks, &new_rows))?,
        captured: exact.certificate.trace_captured,
        exact: exact.eigenvalues.clone(),
        closed_form: closed_form(activation, fit.x.view(), k)?,
        raw: neural.training().map(|t| t.raw_eigenvalues.clone()).unwrap_or_default(),
        seconds: neural.origin.seconds,
        neural: neural.eigenvalues,
        fitted: absolute(fitted),
        new: absolute(seen_new),
        x: new.x,
        labels,
        classes,
        exact_functions: part(&turned, &new_rows),
        neural_functions: part(&by_networks, &new_rows),
        ranges,
        exact_map: part(&turned, &map_rows),
        neural_map: part(&by_networks, &map_rows),
    })
}

/// The k largest eigenvalues of the infinitely wide network's kernel over the points `[n, 2]`.
fn closed_form(activation: &str, x: ArrayView2<f64>, k: usize) -> Result<Vec<f64>> {
    let kernel = Kernel::parse(&format!("nngp(depth=2, act={activation}, w_var=2, b_var=0.1)"))?;
    let (values, _) = eigh(Device::Cpu, (gram::<f64>(&kernel, x, Device::Cpu)? / x.nrows() as f64).view())?;
    Ok(values[..k].to_vec())
}

/// `F` `[S, points, 1]`.
fn values_of_networks(
    net: &str,
    x: &Array2<f64>,
    plan: &Plan,
    name: &str,
    context: &FitContext<'_>,
) -> Result<Array3<f64>> {
    let points: Vec<f32> = x.iter().map(|v| *v as f32).collect();
    let points = Tensor::from_host(Device::Cpu, &[x.nrows(), x.ncols()], &points)?;
    let mut f = Array3::zeros((plan.samples, x.nrows(), 1));
    let seed = Rng::new(plan.seed).fork(2).next_u64();
    sample_networks(net, &points, plan.samples, seed, |s, values| {
        context.progress.step(&format!("networks on {name}"), s + 1, plan.samples, "");
        f.slice_mut(s![s, .., 0]).iter_mut().zip(values).for_each(|(f, v)| *f = f64::from(*v));
        Ok(())
    })?;
    Ok(f)
}

/// The ranges of the points with a margin, and `side²` points that fill them, rows of equal y from the least on.
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

/// The least cosine between the spans of two sets of columns: the root of the least eigenvalue of `PPᵀ`, `P = QᵀQ'` for
/// orthonormal bases Q, Q'.
fn least_cosine(a: &Array2<f64>, b: &Array2<f64>) -> Result<f64> {
    let (q, r) = (orthonormal_basis(a.clone())?, orthonormal_basis(b.clone())?);
    let p = matmul(q.t(), r.view());
    let (squares, _) = eigh(Device::Cpu, matmul(p.view(), p.t()).view())?;
    Ok(squares.last().copied().unwrap_or(0.0).clamp(0.0, 1.0).sqrt())
}

/// What was found, in a sentence.
pub fn verdict(cases: &[Case]) -> String {
    let one = |case: &Case| {
        let worst = (0..case.new.len()).min_by(|a, b| case.new[*a].total_cmp(&case.new[*b])).unwrap_or(0);
        format!(
            "on {} the functions agree with the exact ones to |cos| ≥ {:.4} (the least is that of pair {}), their span to {:.4}",
            case.name,
            case.new[worst],
            worst + 1,
            case.span
        )
    };
    format!("at points that neither has seen, {}", cases.iter().map(one).collect::<Vec<_>>().join("; "))
}
