//! Operators beyond scalar kernels in the training loop, each against its exact spectrum.

#[path = "../../mercer/tests/common/neural.rs"]
mod neural;

use crate::bound_states::{BoundStates, Budget, Contender, System, multiplets, run};
use crate::graph_laplacian::dense_spectrum;
use crate::{hydrogen, oscillator};
use mercer::FitContext;
use mercer::compute::Device;
use mercer::data::generate;
use mercer::linalg::eigh;
use mercer::operator::{LowRankOperator, NeighbourGraph, OnPoints, Operator};
use mercer::rng::Rng;
use mercer::spectrum::neural::{
    Exponentials, FunctionOperator, Functions, Gaussian, GraphLaplacian, Guide, Kind, Nested, NeuralEf, OnData, Ritz,
    Settings, rayleigh_ritz, train,
};
use ndarray::{Array2, Array3, Axis, array, s};
use neural::Batch;

/// The first `k` states of `system` by one method.
fn bound_states(system: &System, k: usize, name: &str, budget: &Budget) -> BoundStates {
    let contender = Contender::all().into_iter().find(|c| c.name == name).unwrap();
    run(system, k, &[contender], budget, &FitContext::default()).unwrap()
}

fn worst(found: &[f64], exact: &[f64]) -> f64 {
    assert_eq!(found.len(), exact.len());
    found.iter().zip(exact).fold(0.0, |worst, (a, b)| f64::max(worst, (a - b).abs() / b.abs()))
}

/// The first eigenvalues after training by `kind`, finished over `points`.
fn solve(
    operator: &dyn FunctionOperator,
    kind: Kind,
    architecture: &str,
    k: usize,
    steps: u64,
    points: usize,
) -> Vec<f64> {
    let functions = kind.functions(architecture, operator.inputs(), k, Device::Cpu, &Rng::new(1)).unwrap();
    let objective = kind.objective(&functions, k).unwrap();
    let settings = Settings { steps, learning_rate: 3e-3, ..Settings::default() };
    let mut trained = train(operator, functions, objective, k, &settings, &FitContext::default()).unwrap();
    let sample = operator.sample(Device::Cpu, &mut Rng::new(2), points).unwrap();
    let pairs = rayleigh_ritz(operator, &mut trained.functions, &sample, k).unwrap();
    pairs.eigenvalues.iter().map(|μ| operator.eigenvalue(*μ)).collect()
}

#[test]
fn guides_are_densities_with_the_derivatives_they_say() {
    let guides: [Box<dyn Guide>; 2] =
        [Box::new(Gaussian { dimension: 2, width: 1.3 }), Box::new(Exponentials::with_cusp(1.0, 0.45, 3.0).unwrap())];
    for guide in &guides {
        // ∫ q = 1 and E r, over rings; and the same mean radius from the points that it draws.
        let (h, rings) = (1e-3, 120_000);
        let ring = |i: usize| (i as f64 + 0.5) * h;
        let weight = |r: f64| std::f64::consts::TAU * r * h * guide.density(&[r * 0.6, r * 0.8]);
        let mass: f64 = (0..rings).map(|i| weight(ring(i))).sum();
        let radius: f64 = (0..rings).map(|i| weight(ring(i)) * ring(i)).sum();
        assert!((mass - 1.0).abs() < 1e-6, "{mass}");
        let n = 4000;
        let drawn: f64 = (0..n)
            .map(|i| {
                let mut x = [0.0; 2];
                guide.draw(&[(i as f64 + 0.5) / n as f64, 0.3], &mut x);
                x[0].hypot(x[1]) / n as f64
            })
            .sum();
        assert!((drawn - radius).abs() < 2e-3 * radius, "{drawn} {radius}");
        for x in [[0.3, -0.2], [1.5, 0.7], [-4.0, 2.0]] {
            let (mut gradient, h) = ([0.0; 2], 1e-3);
            let laplacian = guide.logarithmic(&x, &mut gradient);
            let ln = |a: f64, b: f64| guide.density(&[x[0] + a, x[1] + b]).ln();
            let differences = [(ln(h, 0.0) - ln(-h, 0.0)) / (2.0 * h), (ln(0.0, h) - ln(0.0, -h)) / (2.0 * h)];
            assert!(
                gradient.iter().zip(&differences).all(|(a, b)| (a - b).abs() < 1e-4),
                "{gradient:?} {differences:?}"
            );
            let around = ln(h, 0.0) + ln(-h, 0.0) + ln(0.0, h) + ln(0.0, -h) - 4.0 * ln(0.0, 0.0);
            assert!((laplacian - around / (h * h)).abs() < 1e-3 * (1.0 + laplacian.abs()), "{laplacian}");
        }
    }
    // The cusp: (√q)'/√q = −c at the origin.
    let [q0, q1] = [0.0, 1e-6].map(|r| guides[1].density(&[r, 0.0]));
    assert!((0.5 * (q1 - q0) / (1e-6 * q0) + 1.0).abs() < 1e-4);
    assert!(Exponentials::with_cusp(1.0, 0.6, 3.0).is_err());
}

/// `⟨f_i,Kf_j⟩` of random networks: symmetric, and that of the weak form `E_q[∇f·∇g + U f g]` with a `U` taken apart
/// from the library's: `V − Δ√q/√q` by differences of `√q`.
fn self_adjoint(operator: impl FunctionOperator, guide: &dyn Guide, potential: fn(f64) -> f64, architecture: &str) {
    let mut functions = Functions::networks(architecture, 2, 4, true, Device::Cpu, &Rng::new(3)).unwrap();
    let Batch { x, covariance, r, .. } = Batch::draw(&operator, &mut functions, &mut Rng::new(4), 20_000);
    let size = r.iter().fold(0.0f64, |a, b| a.max(b.abs()));
    assert!((&r - &r.t()).iter().all(|d| d.abs() < 0.01 * size), "{r:.4}");

    let (jet, x) = (functions.jet(&x).unwrap().to_host().unwrap(), x.to_host().unwrap());
    let points = x.len() / 2;
    let u: Vec<f64> = x
        .chunks_exact(2)
        .map(|x| {
            let (x, y) = (f64::from(x[0]), f64::from(x[1]));
            let r = x.hypot(y);
            let h = 1e-3 * r.max(1e-3);
            let root = |a: f64, b: f64| guide.density(&[x + a, y + b]).sqrt();
            let around = root(h, 0.0) + root(-h, 0.0) + root(0.0, h) + root(0.0, -h) - 4.0 * root(0.0, 0.0);
            potential(r) - around / (h * h * root(0.0, 0.0))
        })
        .collect();
    let of = |j: usize, order: usize, b: usize| f64::from(jet[(j * 4 + order) * points + b]);
    let (zero, one) = (operator.eigenvalue(0.0), operator.eigenvalue(1.0));
    for (i, j) in (0..4).flat_map(|i| (0..4).map(move |j| (i, j))) {
        let at = |b: usize| of(i, 1, b) * of(j, 1, b) + of(i, 2, b) * of(j, 2, b) + u[b] * of(i, 0, b) * of(j, 0, b);
        let energy = (0..points).map(at).sum::<f64>() / points as f64;
        // H = shift − scale·K
        let strong = zero * covariance[[i, j]] - (zero - one) * r[[i, j]];
        assert!((energy - strong).abs() < 0.01 * size * (zero - one), "({i}, {j}): {energy} against {strong}");
    }
}

#[test]
fn schroedinger_operators_are_self_adjoint() {
    let guide = Gaussian { dimension: 2, width: 1.0 };
    self_adjoint(oscillator::operator(10).unwrap(), &guide, |r| r * r, "dense(8) tanh dense(1)");
    let guide = Exponentials::with_cusp(1.0, 0.485, 5.0).unwrap();
    self_adjoint(hydrogen::operator(9).unwrap(), &guide, |r| -1.0 / r, "radial(scale=2) dense(8) tanh dense(1)");
}

#[test]
fn exact_energies_and_multiplets() {
    assert_eq!(oscillator::energies(7), [2.0, 4.0, 4.0, 6.0, 6.0, 6.0, 8.0]);
    let [first, second, third] = [-1.0, -1.0 / 9.0, -1.0 / 25.0];
    assert_eq!(hydrogen::energies(5), [first, second, second, second, third]);
    assert_eq!(multiplets(&[2.01, 3.99, 4.02, 6.1], 0.05).iter().map(|m| m.1).collect::<Vec<_>>(), [1, 2, 1]);
}

#[test]
fn the_oscillator_has_its_energies() {
    let budget = oscillator::budget();
    let found = bound_states(&oscillator::SYSTEM, 6, "random features", &budget);
    let ritz = &found.methods[0];
    assert!(ritz.worst() < 0.01, "{:?}", ritz.energies);
    assert_eq!(ritz.multiplets.iter().map(|m| m.1).collect::<Vec<_>>(), [1, 2, 3]);
    // The ground state is e^{−r²/2}/√π, on the grid of the figure, up to its sign.
    let (side, extent) = (found.side, found.extent);
    let at = |i: usize| extent * (2.0 * i as f64 / (side - 1) as f64 - 1.0);
    for (p, psi) in ritz.states.column(0).iter().enumerate() {
        let square = at(p % side).powi(2) + at(p / side).powi(2);
        let exact = (-0.5 * square).exp() / std::f64::consts::PI.sqrt();
        assert!((psi.abs() - exact).abs() < 0.01, "{psi} {exact}");
    }
    let budget = budget.quick();
    let found = bound_states(&oscillator::SYSTEM, 6, "neuralef", &budget);
    assert!(found.methods[0].worst() < 0.02, "{:?}", found.methods[0].energies);
    assert!(found.verdict().starts_with("neuralef finds the first 6 energies within"));
}

#[test]
fn hydrogen_has_its_energies() {
    let budget = hydrogen::budget().quick();
    let found = bound_states(&hydrogen::SYSTEM, 4, "random features", &budget);
    let ritz = &found.methods[0];
    assert!(ritz.worst() < 0.01, "{:?}", ritz.energies);
    assert_eq!(ritz.multiplets.iter().map(|m| m.1).collect::<Vec<_>>(), [1, 3]);
}

/// Smooth functions with two outputs that depend on each other: `[S, n, 2]` at the points `x` `[n, 1]`.
fn samples(x: &Array2<f64>, count: usize) -> Array3<f64> {
    let (mut rng, waves) = (Rng::new(5), 5);
    let a = Array3::from_shape_simple_fn((count, waves, 2), || rng.normal());
    let mixing = array![[1.0, 0.6], [-0.3, 0.8]];
    Array3::from_shape_fn((count, x.nrows(), 2), |(s, n, c)| {
        (0..waves)
            .map(|m| {
                let wave = (1.1 * m as f64 * x[[n, 0]] + 0.4 * m as f64).cos() * 0.6f64.powi(m as i32);
                wave * (a[[s, m, 0]] * mixing[[0, c]] + a[[s, m, 1]] * mixing[[1, c]])
            })
            .sum()
    })
}

#[test]
fn kernels_of_matrices_have_the_spectrum_of_their_dense_matrix() {
    let (n, count, k) = (300, 60, 5);
    let x = generate::uniform(n, -2.0, 2.0, 1).unwrap().x.into_f64();
    let f = samples(&x, count);
    let flat = f.to_shape((count, 2 * n)).unwrap().to_owned();
    let dense = flat.t().dot(&flat) / (count * 2 * n) as f64;
    let (exact, vectors) = eigh(Device::Cpu, dense.view()).unwrap();

    let samples = LowRankOperator::of_samples(&f.view().into(), false).unwrap();
    let operator = OnPoints::new(&samples, x.view()).unwrap();
    let action = OnData::new(&operator).unwrap();
    let architecture = "dense(32, w=2) sincos dense(32) sincos dense(2)";
    for (kind, steps) in [(Kind::NeuralEf(NeuralEf::Joint), 400), (Kind::Nested(Nested::default()), 400)] {
        let found = solve(&action, kind, architecture, k, steps, n);
        assert!(worst(&found[..3], &exact[..3]) < 0.01, "{}: {found:?} {:?}", kind.name(), &exact[..k]);
    }
    // Every hidden unit in every output spans them all; the functions too are those of the dense matrix.
    let mut units =
        Functions::hidden_units("dense(48, w=2, b=1) sincos dense(1)", 1, Device::Cpu, &Rng::new(6)).unwrap();
    let sample = action.sample(Device::Cpu, &mut Rng::new(7), n).unwrap();
    let pairs = action.ritz_of_units(&mut units, &sample, k).unwrap();
    let found: Vec<f64> = pairs.eigenvalues.iter().map(|μ| action.eigenvalue(*μ)).collect();
    assert!(worst(&found, &exact[..k]) < 1e-4, "{found:?} {:?}", &exact[..k]);
    let rows: Vec<usize> = sample.rows.iter().flat_map(|i| [2 * i, 2 * i + 1]).collect();
    for j in 0..k {
        let exact = vectors.column(j).select(Axis(0), &rows);
        let cosine = exact.dot(&pairs.values.column(j)) / (2.0 * n as f64).sqrt();
        assert!(cosine.abs() > 0.999, "{j}: {cosine}");
    }
}

#[test]
fn the_factorised_kernel_is_the_mean_over_outputs() {
    let (n, count, k) = (200, 40, 4);
    let x = generate::uniform(n, -2.0, 2.0, 3).unwrap().x.into_f64();
    let f = samples(&x, count);
    let of_output = |c: usize| {
        let f = f.slice(s![.., .., c]);
        f.t().dot(&f) / count as f64
    };
    let dense = (of_output(0) + of_output(1)) / (2.0 * n as f64);
    let (exact, _) = eigh(Device::Cpu, dense.view()).unwrap();
    let operator = LowRankOperator::of_samples(&f.view().into(), true).unwrap();
    let all: Vec<usize> = (0..n).collect();
    assert!((operator.block(&all, &all).unwrap() / n as f64 - &dense).iter().all(|d| d.abs() < 1e-12));
    let operator = OnPoints::new(&operator, x.view()).unwrap();
    let action = OnData::new(&operator).unwrap();
    let found = solve(&action, Kind::Ritz(Ritz), "dense(16, w=2) sincos dense(64) sincos dense(1)", k, 20, n);
    assert!(worst(&found, &exact[..k]) < 1e-4, "{found:?} {:?}", &exact[..k]);
}

#[test]
fn the_graph_laplacian_has_the_spectrum_of_its_dense_matrix() {
    let (n, k) = (240, 6);
    let x = generate::moons(n, 0.05, 1).unwrap().x.into_f64();
    let graph = NeighbourGraph::new(x.view(), 12);
    let exact = dense_spectrum(&graph, k).unwrap();
    let action = GraphLaplacian::new(&graph, x.view(), 0.1).unwrap();
    let ends = action.ends();
    for (kind, steps, architecture, most) in [
        (Kind::NeuralEf(NeuralEf::Joint), 1000, "dense(32, w=4) sincos dense(32) sincos dense(1)", 0.05),
        (Kind::Ritz(Ritz), 50, "dense(64, w=3) sincos dense(128) sincos dense(1)", 0.02),
    ] {
        let found = solve(&action, kind, architecture, k, steps, ends);
        // Rayleigh–Ritz over the whole graph comes from above. The first two are zero: the moons are not joined.
        assert!(found.iter().zip(&exact).all(|(a, b)| a > &(b - 1e-6)), "{}: {found:?} {exact:?}", kind.name());
        let gaps = found.iter().zip(&exact).map(|(a, b)| (a - b).abs());
        assert!(gaps.fold(0.0, f64::max) < most * exact[k - 1], "{}: {found:?} {exact:?}", kind.name());
    }
    assert!(GraphLaplacian::new(&graph, x.view(), 0.0).is_err());
}
