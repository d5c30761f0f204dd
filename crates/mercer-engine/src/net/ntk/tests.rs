//! Every form of the empirical NTK against an explicit Jacobian; its estimates against their laws.

use super::jacobian::Scratch;
use super::*;
use crate::compute::{self, Device, Tensor};
use crate::net::tests::{empty, host, random, start};
use crate::net::{Mode, Network, Parameters};
use crate::rng::Rng;
use ndarray::{Array1, Array2, Array4, ArrayView1};

/// A network on `d` inputs whose norms are calibrated, and two sets of other points than those of the calibration.
fn drawn(text: &str, d: usize, n: usize) -> (Network, Parameters, Tensor, Tensor) {
    let (net, mut theta, mut workspace, mut rng) = start(text, d, 1, 7);
    net.calibrate(&mut theta, &random(&[20, d], &mut rng), &mut workspace).unwrap();
    let (x, other) = (random(&[n, d], &mut rng), random(&[n + 2, d], &mut rng));
    (net, theta, x, other)
}

/// `∂g_c(x_n)/∂θ` `[n·c, P]`, by one vjp for every unit vector.
fn jacobian(net: &Network, theta: &Parameters, x: &Tensor, parameterisation: Parameterisation) -> Array2<f64> {
    let (n, c, p) = (x.shape()[0], net.outputs(), net.parameters());
    let mut workspace = net.workspace(Device::Cpu).unwrap();
    net.forward(theta, x, Mode::Eval, &mut workspace).unwrap();
    let mut grad = empty();
    let mut rows = Array2::zeros((n * c, p));
    let spread = match parameterisation {
        Parameterisation::Standard => vec![1.0; p],
        Parameterisation::Ntk => net.spread(),
    };
    for (i, mut row) in rows.rows_mut().into_iter().enumerate() {
        let mut unit = vec![0.0; n * c];
        unit[i] = 1.0;
        let mut unit = Tensor::from_host(Device::Cpu, &[1, n, c], &unit).unwrap();
        net.vjp(theta, x, &mut workspace, &mut unit, &mut grad, None).unwrap();
        row.iter_mut().zip(host(&grad).iter().zip(&spread)).for_each(|(r, (g, s))| *r = f64::from(*g) * f64::from(*s));
    }
    rows
}

const ARCHITECTURES: [&str; 11] = [
    "dense(6) relu dense(5) tanh dense(4)",
    "dense(2)",
    "dense(6) erf dense(3) sin",
    "dense(6, b=no) tanh dense(3, b=no)",
    "tanh dense(5) gelu dense(3)",
    "rff(8) dense(3)",
    "dense(6) tanh l2norm dense(3) l2norm",
    "dense(5) sincos | dense(4) relu dense(3)",
    "radial(scale=2) dense(4) tanh dense(3)",
    "dense(6) ln silu dense(5) ln dense(3)",
    "dense(6) softplus dense(3) sigmoid dense(2)",
];

const BOTH: [Parameterisation; 2] = [Parameterisation::Standard, Parameterisation::Ntk];

/// `Θ[n, m, c, c']` is `J J'ᵀ` at the chosen outputs.
fn agrees(ntk: &Array4<f32>, full: &Array2<f64>, c: usize, outputs: &[usize], name: &str) {
    let scale = full.iter().fold(1e-3f64, |s, v| s.max(v.abs()));
    for ((n, m, i, j), value) in ntk.indexed_iter() {
        let want = full[[n * c + outputs[i], m * c + outputs[j]]];
        assert!((f64::from(*value) - want).abs() < 2e-6 * scale, "{name} {n} {m} {i} {j}: {value} {want}");
    }
}

/// Every form of the kernel at `x`, and between `x` and `other`, against explicit Jacobians.
fn check(net: &Network, theta: &Parameters, x: &Tensor, other: &Tensor) {
    for parameterisation in BOTH {
        let ntk = EmpiricalNtk::new(net, theta).unwrap().parameterised(parameterisation);
        let (c, name) = (net.outputs(), format!("{}, {parameterisation:?}", net.expression()));
        let [j, k] = [x, other].map(|x| jacobian(net, theta, x, parameterisation));
        let all: Vec<usize> = (0..c).collect();
        for outputs in [&all[..], &[c - 1, 0]] {
            for (other, product) in [(None, j.dot(&j.t())), (Some(other), j.dot(&k.t()))] {
                let (full, mean) = (ntk.exact(x, other, outputs).unwrap(), ntk.mean(x, other, outputs).unwrap());
                agrees(&full, &product, c, outputs, &name);
                for ((n, m), value) in mean.indexed_iter() {
                    let trace: f32 = (0..outputs.len()).map(|i| full[[n, m, i, i]]).sum();
                    let want = trace / outputs.len() as f32;
                    assert!((value - want).abs() < 1e-5 * (1.0 + want.abs()), "{name}: {value} {want}");
                }
            }
        }
        let v = random(&[x.shape()[0], c], &mut Rng::new(3));
        close(&host(&ntk.apply(x, &v).unwrap()), &j.dot(&j.t().dot(&wide(&v))), &name);
        let g = Array2::from_shape_fn((x.shape()[0], c), |(n, c)| ((3 * n + 2 * c) % 5) as f32 - 1.5);
        let product = j.dot(&j.t());
        for ((n, m), value) in ntk.contracted(x, g.view()).unwrap().indexed_iter() {
            let pairs = (0..c).flat_map(|a| (0..c).map(move |b| (a, b)));
            let want: f64 =
                pairs.map(|(a, b)| f64::from(g[[n, a]] * g[[m, b]]) * product[[n * c + a, m * c + b]]).sum();
            assert!((f64::from(*value) - want).abs() < 1e-3 * (1.0 + want.abs()), "{name}: {value} {want}");
        }
        if parameterisation == Parameterisation::Standard {
            check_derivatives(&ntk, x, &j, &name);
            let directions = Directions { count: 3, law: Law::Rademacher, derivative: Derivative::Exact, seed: 9 };
            ntk.directions(x, &directions, |s, values| {
                let mut v = Tensor::zeros(Device::Cpu, &[net.parameters()])?;
                compute::fill_rademacher(&mut v, &mut Rng::new(9).fork(s as u64));
                close(values, &j.dot(&wide(&v)), &name);
                Ok(())
            })
            .unwrap();
        }
    }
}

fn wide(v: &Tensor) -> Array1<f64> {
    host(v).into_iter().map(f64::from).collect()
}

fn close(got: &[f32], want: &Array1<f64>, name: &str) {
    let scale = want.iter().fold(1e-3f64, |s, v| s.max(v.abs()));
    for (got, want) in got.iter().zip(want) {
        assert!((f64::from(*got) - want).abs() < 1e-5 * scale, "{name}: {got} {want}");
    }
}

#[test]
fn every_form_is_the_product_of_explicit_jacobians() {
    for text in ARCHITECTURES {
        let (net, theta, x, other) = drawn(text, 3, 9);
        check(&net, &theta, &x, &other);
    }
    for text in IMAGES {
        let (net, theta, x, other) = drawn(text, 40, 5);
        check(&net, &theta, &x, &other);
        let (folded, theta) = net.fold(&theta).unwrap();
        check(&folded, &theta, &x, &other);
    }
}

#[test]
fn many_points_go_in_blocks() {
    let (net, theta, x, other) = drawn("dense(4) tanh dense(2)", 3, 700);
    let ntk = EmpiricalNtk::new(&net, &theta).unwrap();
    let [j, k] = [&x, &other].map(|x| jacobian(&net, &theta, x, Parameterisation::Standard));
    agrees(&ntk.exact(&x, None, &[0, 1]).unwrap(), &j.dot(&j.t()), 2, &[0, 1], "one set");
    agrees(&ntk.exact(&x, Some(&other), &[1]).unwrap(), &j.dot(&k.t()), 2, &[1], "two sets");
    let mean = ntk.mean(&x, None, &[0]).unwrap();
    assert!((f64::from(mean[[650, 3]]) - j.row(1300).dot(&j.row(6))).abs() < 1e-4);
    assert_eq!(mean[[650, 3]], mean[[3, 650]]);
}

const IMAGES: [&str; 4] = [
    "image(2, 5, 4) conv(3, 3) relu conv(4, 3, stride=2) tanh flatten dense(3)",
    "image(1, 8, 5) conv(3, 3) bn relu maxpool(2) conv(2, 3) avgpool(2) flatten dense(2)",
    "image(2, 4, 5) conv(4, 3) bn relu res(conv(4, 3) bn relu conv(4, 3) bn) relu \
     res(conv(6, 3, stride=2) bn relu conv(6, 3) bn; conv(6, 1, stride=2) bn) relu gap dense(3)",
    "image(2, 4, 5) res(conv(2, 3) tanh) gap dense(2)",
];

/// The factored derivatives of all layers, multiplied out, are the rows of the Jacobian `j` `[n·c, P]`.
fn check_derivatives(ntk: &EmpiricalNtk, x: &Tensor, j: &Array2<f64>, name: &str) {
    let (n, c) = (x.shape()[0], ntk.outputs());
    let (mut found, all) = (Array2::<f64>::zeros(j.dim()), (0..c).collect::<Vec<_>>());
    let pass = ntk.forward(x, 0..n).unwrap();
    let units = |_: &Tensor| ntk.units(&pass, &all);
    let outputs = ntk.derivatives(x, units, |start, jacobian| {
        let rows = match jacobian {
            Jacobian::Outer { a, delta, bias, .. } => {
                let (a, delta) = (host(a), host(delta));
                let (inputs, out) = (a.len() / n, delta.len() / (n * c));
                let row = |cn: usize| {
                    let (a, delta) = (&a[cn % n * inputs..][..inputs], &delta[cn * out..][..out]);
                    let weights = a.iter().flat_map(|a| delta.iter().map(move |d| a * d));
                    weights.chain(delta.iter().copied().filter(|_| *bias > 0.0)).collect::<Vec<f32>>()
                };
                (0..c * n).flat_map(row).collect()
            }
            Jacobian::Convolved(convolved) => host(&convolved.rows()?),
            Jacobian::Rows(rows) => host(rows),
            other => panic!("{other:?} is no layer of weights"),
        };
        let p = rows.len() / (c * n);
        for (i, value) in rows.iter().enumerate() {
            let (cn, place) = (i / p, i % p);
            found[[cn % n * c + cn / n, start + place]] += f64::from(*value);
        }
        Ok(())
    });
    assert_eq!(host(&outputs.unwrap()), host(pass.workspace.output()));
    assert!((found - j).iter().zip(j).all(|(d, j)| d.abs() < 1e-4 * (1.0 + j.abs())), "{name}");
}

/// `Σ_t δ_n^c(t) ⊗ a_n(t)` of the patches and signals is the derivative by the filters.
fn check_patches(convolved: &Convolved) {
    if convolved.spread.is_some() {
        return;
    }
    let (patches, rows, signals) = (convolved.patches().unwrap(), convolved.rows().unwrap(), host(&convolved.delta));
    let (&[b, patch, positions], &[c, _, p]) = (patches.shape(), rows.shape()) else { panic!("shapes") };
    let (patches, rows, out) = (host(&patches), host(&rows), convolved.shape.channels);
    for (cn, o, i) in (0..c * b).flat_map(|cn| (0..out).flat_map(move |o| (0..patch).map(move |i| (cn, o, i)))) {
        let signal = |t: usize| signals[(cn * out + o) * positions + t];
        let sum: f32 = (0..positions).map(|t| signal(t) * patches[(cn % b * patch + i) * positions + t]).sum();
        let want = rows[cn * p + o * patch + i];
        assert!((sum - want).abs() < 1e-4 * (1.0 + want.abs()), "{sum} {want}");
    }
}

#[test]
fn the_rules_of_dense_layers_and_convolutions_are_that_of_any_layer() {
    let dense = drawn("dense(5) tanh dense(2)", 3, 6);
    let conv = drawn("image(2, 5, 4) conv(3, 3, stride=2, b=0.3) tanh flatten dense(2)", 40, 6);
    for ((net, theta, x, _), parameterisation) in [&dense, &conv].into_iter().flat_map(|net| BOTH.map(|p| (net, p))) {
        let mut workspace = net.workspace(Device::Cpu).unwrap();
        net.forward(theta, x, Mode::Eval, &mut workspace).unwrap();
        let (layer, weights, trace) = (&net.layers[0], net.shared_weights(0, theta), &workspace.traces[0]);
        let g = random(&[3, 6, layer.facts().outputs], &mut Rng::new(2));
        let (mut dx, mut slow_dx) = (empty(), empty());
        let at = Evaluated { theta: weights, x, trace, parameterisation };
        let own = layer.jacobian(&at, g.clone(), Some(&mut dx)).unwrap();
        let slow = written_out(layer.as_ref(), &at, g, Some(&mut slow_dx)).unwrap();
        let equal = |own: &Tensor, slow: &Tensor| {
            assert_eq!(own.shape(), slow.shape());
            assert!(host(own).iter().zip(&host(slow)).all(|(a, b)| (a - b).abs() < 1e-5 * (1.0 + b.abs())));
        };
        equal(&dx, &slow_dx);
        let products = |j: &Jacobian| {
            let mut tiles: Vec<Tensor> = (0..3).map(|_| Tensor::zeros(Device::Cpu, &[3, 6, 6]).unwrap()).collect();
            j.add_products(j, &mut tiles, &mut Scratch::new(Device::Cpu).unwrap()).unwrap();
            tiles
        };
        match (&own, &slow) {
            (Jacobian::Convolved(own), Jacobian::Rows(slow)) => {
                equal(&own.rows().unwrap(), slow);
                check_patches(own);
            }
            (Jacobian::Outer { .. }, Jacobian::Rows(_)) => {
                products(&own).iter().zip(&products(&slow)).for_each(|(own, slow)| equal(own, slow));
            }
            _ => panic!("{own:?}, {slow:?}"),
        }
    }
}

/// The mean of products and its standard error.
fn mean_product(a: ArrayView1<f64>, b: ArrayView1<f64>) -> (f64, f64) {
    let products = &a * &b;
    let mean = products.mean().unwrap();
    (mean, (products.mapv(|v| (v - mean).powi(2)).mean().unwrap() / a.len() as f64).sqrt())
}

/// `F` `[S, n·c]`.
fn sampled(ntk: &EmpiricalNtk, x: &Tensor, directions: Directions) -> Array2<f64> {
    let mut f = vec![];
    ntk.directions(x, &directions, |_, values| {
        f.extend(values.iter().map(|v| f64::from(*v)));
        Ok(())
    })
    .unwrap();
    Array2::from_shape_vec((directions.count, f.len() / directions.count), f).unwrap()
}

#[test]
fn differences_tend_to_the_directional_derivative() {
    let (net, theta, x, _) = drawn("dense(8) tanh dense(6) erf dense(2)", 3, 10);
    for parameterisation in BOTH {
        let ntk = EmpiricalNtk::new(&net, &theta).unwrap().parameterised(parameterisation);
        for law in [Law::Rademacher, Law::Gaussian] {
            let along = |derivative| sampled(&ntk, &x, Directions { count: 6, law, derivative, seed: 4 });
            let exact = along(Derivative::Exact);
            let error = |step: f32| {
                let gap = along(Derivative::Difference { step }) - &exact;
                (gap.mapv(|v| v * v).sum() / exact.mapv(|v| v * v).sum()).sqrt()
            };
            // Of first order in ε until rounding takes over.
            let (coarse, fine) = (error(4e-2), error(1e-2));
            assert!(fine < 0.05 && (2.0..8.0).contains(&(coarse / fine)), "{coarse} {fine}");
        }
    }
}

/// `E‖Θ̂ − Θ‖²_F` of S directions: `(‖Θ‖²_F + (tr Θ)²)/S` for Gaussian ones; signs save `2 Σ_p ‖∂g/∂θ_p‖⁴/S`.
fn expected_square_error(j: &Array2<f64>, law: Law, count: usize) -> f64 {
    let theta = j.dot(&j.t());
    let fourth: f64 = j.columns().into_iter().map(|column| column.dot(&column).powi(2)).sum();
    let saved = if law == Law::Rademacher { 2.0 * fourth } else { 0.0 };
    (theta.mapv(|v| v * v).sum() + theta.diag().sum().powi(2) - saved) / count as f64
}

#[test]
fn random_directions_are_unbiased_and_their_error_falls_as_the_root_of_their_number() {
    let (net, theta, x, _) = drawn("dense(6) tanh dense(2)", 3, 5);
    for (parameterisation, law) in [(BOTH[0], Law::Rademacher), (BOTH[1], Law::Gaussian)] {
        let ntk = EmpiricalNtk::new(&net, &theta).unwrap().parameterised(parameterisation);
        let j = jacobian(&net, &theta, &x, parameterisation);
        let exact = j.dot(&j.t());
        let count = 24_000;
        let f = sampled(&ntk, &x, Directions { count, law, derivative: Derivative::Exact, seed: 1 });
        // Unbiased: every entry of the mean lies within its own standard errors of the exact kernel.
        let (mut worst, mut squares) = (0.0f64, 0.0);
        for ((a, b), want) in exact.indexed_iter() {
            let (mean, error) = mean_product(f.column(a), f.column(b));
            worst = worst.max(((mean - want) / error).abs());
            squares += ((mean - want) / error).powi(2) / exact.len() as f64;
        }
        assert!(worst < 4.5 && squares < 4.0, "{law:?}: worst {worst}, mean square {squares}");
        // The law of the error, averaged over many groups of S directions.
        let square_error = |group: usize| {
            let groups = f.axis_chunks_iter(ndarray::Axis(0), group);
            let errors: Vec<f64> =
                groups.map(|f| (f.t().dot(&f) / group as f64 - &exact).mapv(|v| v * v).sum()).collect();
            errors.iter().sum::<f64>() / errors.len() as f64
        };
        for group in [10, 40, 160] {
            let ratio = square_error(group) / expected_square_error(&j, law, group);
            assert!((0.8..1.25).contains(&ratio), "{law:?}, S = {group}: {ratio}");
        }
        assert!((3.0..5.0).contains(&(square_error(10) / square_error(160)).sqrt()));
    }
}

#[test]
fn networks_that_are_drawn_have_the_covariance_of_the_prior() {
    // One hidden layer: κ = b₂² + w₂² E[erf(u) erf(v)] at any width, (u,v) ~ N(0, K), K = b₁² + w₁² x·x'/d.
    let x = [[0.5f32, -1.0], [1.5, 0.3], [-0.4, 0.8]];
    let points = Tensor::from_host(Device::Cpu, &[3, 2], &x.concat()).unwrap();
    let count = 6000;
    let mut f: Vec<f64> = vec![];
    sample_networks("dense(40, w=1.5, b=0.3) erf dense(2, w=2, b=0.5)", &points, count, 5, |_, values| {
        f.extend(values.iter().map(|v| f64::from(*v)));
        Ok(())
    })
    .unwrap();
    let f = Array2::from_shape_vec((count, 6), f).unwrap();
    let first = |a: usize, b: usize| -> f64 {
        let dot: f64 = x[a].iter().zip(&x[b]).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
        0.09 + 2.25 * dot / 2.0
    };
    for a in 0..6 {
        for b in 0..6 {
            let (p, q) = (a / 2, b / 2);
            let correlation = 2.0 * first(p, q) / ((1.0 + 2.0 * first(p, p)) * (1.0 + 2.0 * first(q, q))).sqrt();
            let own = 0.25 + 4.0 * 2.0 / std::f64::consts::PI * correlation.asin();
            let want = if a % 2 == b % 2 { own } else { 0.0 };
            let (mean, error) = mean_product(f.column(a), f.column(b));
            assert!((mean - want).abs() < 4.0 * error, "{a} {b}: {mean} ± {error}, not {want}");
        }
    }
}

#[test]
fn what_does_not_fit_is_an_error() {
    let (net, theta, x, _) = drawn("dense(4) relu dense(3)", 3, 5);
    let ntk = EmpiricalNtk::new(&net, &theta).unwrap();
    let error = |e: crate::Error| e.to_string();
    assert!(error(ntk.exact(&x, None, &[0, 3]).unwrap_err()).contains("no output 3"));
    assert!(error(ntk.mean(&x, None, &[]).unwrap_err()).contains("no outputs"));
    let wide = Tensor::zeros(Device::Cpu, &[5, 4]).unwrap();
    assert!(error(ntk.exact(&x, Some(&wide), &[0]).unwrap_err()).contains("[5, 4]"));
    assert!(ntk.apply(&x, &Tensor::zeros(Device::Cpu, &[5, 2]).unwrap()).is_err());
    let none = Directions { count: 0, law: Law::Gaussian, derivative: Derivative::Exact, seed: 0 };
    assert!(ntk.directions(&x, &none, |_, _| Ok(())).is_err());
    assert!(sample_networks("dense(1)", &x, 0, 0, |_, _| Ok(())).is_err());
    let many = Network::parse("dense(3)", 3, 2).unwrap();
    let theta = many.init(Device::Cpu, &Rng::new(0)).unwrap();
    assert!(error(EmpiricalNtk::new(&many, &theta).err().unwrap()).contains("2 were given"));
}
