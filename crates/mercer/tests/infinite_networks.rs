//! Kernels of infinite networks: golden values of neural-tangents, hand-checked limits, laws, and sampled wide networks.

mod common;

use common::{normal as points, *};
use mercer::apply::{Fit, NtkEnsemble, Predict};
use mercer::compute::Activation;
use mercer::data::Target;
use mercer::kernel::Expression;
use mercer::net::ntk::{EmpiricalNtk, Parameterisation};
use mercer::net::{Mode, Network};
use mercer::operator::{Budget, cross_apply};
use serde_json::Value;

fn stored(rows: &Value) -> Array2<f64> {
    let rows: Vec<Vec<f64>> = serde_json::from_value(rows.clone()).unwrap();
    Array2::from_shape_vec((rows.len(), rows[0].len()), rows.concat()).unwrap()
}

fn numbers(values: &Value) -> Vec<f64> {
    serde_json::from_value(values.clone()).unwrap()
}

/// κ(X,X), computed in f32.
fn single(kernel: &Kernel, x: &Array2<f64>) -> Array2<f64> {
    gram::<f32>(kernel, x.view(), Device::Cpu).unwrap().mapv(f64::from)
}

fn error(got: &Array2<f64>, want: &Array2<f64>) -> f64 {
    let scale = largest(want);
    got.iter().zip(want).fold(0.0, |m: f64, (g, w)| m.max((g - w).abs() / w.abs().max(1e-3 * scale)))
}

/// tests/golden/infinite_networks.py wrote the values; the versions it ran with are in the file.
#[test]
fn values_agree_with_neural_tangents() {
    let golden: Value = serde_json::from_str(include_str!("golden/infinite_networks.json")).unwrap();
    let cases = golden["cases"].as_array().unwrap();
    assert!(cases.len() > 40);
    for case in cases {
        let x = stored(&golden["inputs"][case["inputs"].as_str().unwrap()]);
        for name in ["nngp", "ntk"] {
            let text = format!("{name}({})", case["arguments"].as_str().unwrap());
            let kernel = kernel(&text);
            let want = stored(&case[name]);
            // Neural-tangents rounds the angle of x with itself to 1e-8 (its own diagonal shows it), hence not 1e-12.
            // Their tanh and its kin are integrated: at deviations of about 1, as their 120 nodes are off by 3e-6 at 1.7.
            let quadrature = ["tanh", "sigmoid", "softplus"].iter().any(|act| text.contains(act));
            let tolerance = if quadrature { 1e-6 } else { 2e-8 };
            let off = error(&by_formula(&kernel, x.view(), x.view()), &want);
            assert!(off < tolerance, "{text}: the formula is off by {off:e}");
            let off = error(&matrix(&kernel, x.view()), &want);
            assert!(off < tolerance, "{text}: the tile is off by {off:e}");
        }
    }
}

/// tests/golden/ntk_ensemble.py wrote the values; the versions it ran with are in the file.
#[test]
fn trained_ensembles_agree_with_neural_tangents() {
    let golden: Value = serde_json::from_str(include_str!("golden/ntk_ensemble.json")).unwrap();
    let (x, new) = (stored(&golden["x"]), stored(&golden["new"]));
    let y: Vec<f64> = serde_json::from_value(golden["y"].clone()).unwrap();
    // Other units of the target change those of the result.
    for (factor, offset) in [(1.0, 0.0), (40.0, 7.0)] {
        let y = Target::Values(y.iter().map(|y| factor * y + offset).collect());
        for case in golden["cases"].as_array().unwrap() {
            let kernel = kernel(&format!("ntk({})", case["arguments"].as_str().unwrap()));
            let time = case["time"].as_f64().unwrap_or(f64::INFINITY);
            let fitted = NtkEnsemble { kernel, time }.fit(x.view(), &y, &FitContext::default()).unwrap();
            let mean = stored(&case["mean"]) * factor + offset;
            let covariance = stored(&case["covariance"]) * (factor * factor);
            let off = worst(&fitted.scores(new.view()).unwrap(), &mean) / factor;
            assert!(off < 1e-6, "mean at {time}: {off:e}");
            let found = fitted.covariance(new.view()).unwrap();
            let off = worst(&found, &covariance) / (factor * factor);
            assert!(off < 1e-6, "covariance at {time}: {off:e}");
            let deviations = fitted.deviations(new.view()).unwrap().unwrap();
            let squares = deviations.mapv(|v| v * v);
            assert!(squares.iter().zip(found.diag()).all(|(a, b)| (a - b).abs() < 1e-9 * factor * factor));
        }
    }
    let refused = |kernel: Kernel, time: f64| {
        NtkEnsemble { kernel, time }.fit(x.view(), &Target::Values(y.clone()), &FitContext::default())
    };
    says(refused(kernel("rbf(1)"), 1.0), &["rbf", "ntk(depth=2"]);
    says(refused(kernel("ntk(depth=1)"), -1.0), &["-1"]);
}

/// tests/golden/smooth_ensemble.py wrote the values, in 60 and 300 digits: erf has an NTK whose eigenvalues fall below what f64 resolves.
#[test]
fn ensembles_with_smooth_activations_are_trained_to_the_end() {
    let golden: Value = serde_json::from_str(include_str!("golden/smooth_ensemble.json")).unwrap();
    let column =
        |values: &Value| Array2::from_shape_vec((values.as_array().unwrap().len(), 1), numbers(values)).unwrap();
    for case in golden["cases"].as_array().unwrap() {
        let (x, new, y) = (column(&case["x"]), column(&case["new"]), Target::Values(numbers(&case["y"])));
        let kernel = kernel("ntk(depth=1, act=erf, w_var=1.5, b_var=0.1)");
        for time in [f64::INFINITY, 1e300] {
            let ensemble = NtkEnsemble { kernel: kernel.clone(), time };
            let fitted = ensemble.fit(x.view(), &y, &FitContext::default()).unwrap();
            let deviations = fitted.deviations(new.view()).unwrap().unwrap();
            let covariance = fitted.covariance(new.view()).unwrap();
            for (i, want) in numbers(&case["deviation"]).into_iter().enumerate() {
                let got = deviations[i];
                // Beyond the points, directions that cannot be learnt leave too large a deviation, as the note says.
                let beyond = x.nrows() == 60 && new[[i, 0]].abs() > 1.0;
                let most = if beyond { 1e-2 } else { want + 1e-6 + 1e-3 * want };
                let least = want - 1e-6 - 1e-3 * want;
                assert!((least..most).contains(&got), "t = {time}, point {i}: {got:e}, exact {want:e}");
                assert!((covariance[[i, i]] - got * got).abs() < 1e-12, "{:e}", covariance[[i, i]]);
            }
            let means = fitted.scores(new.view()).unwrap();
            for (i, want) in numbers(&case["mean"]).into_iter().enumerate().filter(|(i, _)| new[[*i, 0]].abs() <= 1.0) {
                let off = (means[[i, 0]] - want).abs();
                assert!(off < 1e-5, "the mean at point {i} is off by {off:e}");
            }
            let notes = fitted.notes();
            assert_eq!(notes.len(), usize::from(x.nrows() == 60), "{notes:?}");
            assert!(notes.iter().all(|note| note.contains("of 60 directions")), "{notes:?}");
        }
    }
}

/// Targets that jump from point to point lie along directions that cannot be learnt in f64: the note says by how much the mean misses them.
#[test]
fn what_an_ensemble_cannot_learn_is_said() {
    let x = Array2::from_shape_fn((60, 1), |(i, _)| i as f64 / 30.0 - 1.0);
    let y = Array2::from_shape_fn((60, 1), |(i, _)| if i % 2 == 0 { 1.0 } else { -1.0 });
    let ensemble = NtkEnsemble { kernel: kernel("ntk(depth=1, act=erf, w_var=1.5, b_var=0.1)"), time: f64::INFINITY };
    let fitted = ensemble.fit(x.view(), &Target::Values(y.iter().copied().collect()), &FitContext::default()).unwrap();
    let off = (fitted.scores(x.view()).unwrap() - &y).mapv(|e| e * e).mean().unwrap().sqrt();
    assert!(off > 0.5, "{off}");
    assert!(fitted.notes()[0].contains(&format!("off by {off:.1e} standard")), "{:?}, off {off}", fitted.notes());
}

/// tests/golden/duals.py integrated every layer over the plane: inputs of deviations from 1 to 100.
#[test]
fn wide_inputs_agree_with_integrals() {
    let golden: Value = serde_json::from_str(include_str!("golden/duals.json")).unwrap();
    let cases = golden["networks"].as_array().unwrap();
    assert!(cases.len() >= 25);
    for case in cases {
        let x = stored(&case["inputs"]);
        for name in ["nngp", "ntk"] {
            let kernel = kernel(&format!("{name}({})", case["arguments"].as_str().unwrap()));
            let want = stored(&case[name]);
            for (got, what) in
                [(by_formula(&kernel, x.view(), x.view()), "the formula"), (matrix(&kernel, x.view()), "the tile")]
            {
                let off = error(&got, &want);
                assert!(off < 2e-9, "{kernel}: {what} is off by {off:e} at inputs up to {}", largest(&x));
            }
            let off = worst(&single(&kernel, &x), &want) / largest(&want);
            // Two of the points are at an angle of 4e-4, which the rounding of `k` to f32 hides.
            assert!(off < 1e-3, "{kernel} in f32 is off by {off:e} at inputs up to {}", largest(&x));
        }
    }
}

#[test]
fn limits_that_can_be_worked_out_by_hand() {
    let x = points(4, 3, 1);
    let linear = matrix(&kernel("linear"), x.view()) / 3.0;
    let of = |text: &str| matrix(&kernel(text), x.view());
    let close = |a: Array2<f64>, b: Array2<f64>| assert!(error(&a, &b) < 1e-13, "{a} for {b}");
    // No hidden layer: a linear model.
    close(of("nngp(depth=0, w_var=1.5, b_var=0.2)"), 1.5 * &linear + 0.2);
    close(of("ntk(depth=0, w_var=1.5, b_var=0.2)"), 1.5 * &linear + 0.2);
    // Linear units: K = w^{L+1} x·x'/d, and every one of the L + 1 layers adds as much to Θ.
    close(of("nngp(depth=3, act=identity, w_var=1.5)"), 1.5f64.powi(4) * &linear);
    close(of("ntk(depth=3, act=identity, w_var=1.5)"), 4.0 * 1.5f64.powi(4) * &linear);
    // One layer of ReLUs is the arc-cosine kernel of order one, halved.
    close(of("nngp(depth=1, act=relu, w_var=1)"), of("arccos(1)") / 6.0);
    // x = x': ReLU layers with w_var = 2 keep ‖x‖²·2/d, and each of the L + 1 adds one such term.
    let diagonal = of("ntk(depth=5, act=relu, w_var=2)").diag().to_owned();
    for (got, xx) in diagonal.iter().zip(linear.diag()) {
        assert!((got - 6.0 * 2.0 * xx).abs() < 1e-13 * got, "{got} for {}", 12.0 * xx);
    }
    // A residual block with an identity shortcut adds its body.
    close(of("nngp('dense res(dense) dense', w_var=1.5)"), (1.5 + 1.5 * 1.5) * 1.5 * &linear);
}

#[test]
fn tiles_of_series_agree_with_sums() {
    // Inputs of deviations up to about 1.5: series in the tile, sums of error functions in `Kernel::value`.
    let x = points(50, 8, 5);
    for act in ["tanh", "sigmoid", "softplus"] {
        for name in ["ntk", "nngp"] {
            let kernel = kernel(&format!("{name}(depth=3, act={act}, w_var=1, b_var=0.1)"));
            let want = by_formula(&kernel, x.view(), x.view());
            let off = error(&matrix(&kernel, x.view()), &want);
            // Three layers multiply what the slope of one is off, 2e-10.
            assert!(off < 3e-9, "{kernel} in f64 is off by {off:e}");
            // In f32 entries near zero cancel: against the largest.
            let (off, scale) = (worst(&single(&kernel, &x), &want), largest(&want));
            assert!(off < 1e-6 * scale, "{kernel} in f32 is off by {off:e} of {scale}");
        }
    }
}

#[test]
fn zero_and_equal_points_are_no_trouble() {
    let x = ndarray::array![[0.0, 0.0], [1.0, 2.0], [1.0, 2.0], [-1.0, -2.0], [1e-12, 0.0], [1e8, 1.0]];
    for act in ["relu", "leaky_relu", "abs", "erf", "sin", "sign", "step", "gaussian", "gelu", "tanh", "softplus"] {
        for name in ["ntk", "nngp"] {
            let kernel = kernel(&format!("{name}(depth=2, act={act})"));
            let k = matrix(&kernel, x.view());
            assert!(k.iter().all(|v| v.is_finite()), "{kernel}: {k}");
            assert!(single(&kernel, &x).iter().all(|v| v.is_finite()), "{kernel} in f32");
            assert!((k[[1, 2]] - k[[1, 1]]).abs() < 1e-7 * k[[1, 1]], "{kernel}: equal points differ");
        }
    }
}

/// `width` hidden units a layer, many networks: their outputs' covariance is the NNGP up to `1/√networks`.
#[test]
fn sampled_wide_networks_have_this_covariance() {
    let (x, width, networks) = (points(3, 4, 2), 256, 3000);
    let kernel = kernel("nngp('dense(256) relu dense(256) erf dense(1)', w_var=1.5, b_var=0.1)");
    let want = matrix(&kernel, x.view());
    let mut rng = Rng::new(3);
    let mut layer = |y: &Array2<f64>, outputs: usize| {
        let w = rng.normals((y.ncols(), outputs));
        let b = rng.normals((1, outputs));
        y.dot(&w) * (1.5 / y.ncols() as f64).sqrt() + b * 0.1f64.sqrt()
    };
    let mut sum = Array2::<f64>::zeros((3, 3));
    for _ in 0..networks {
        let hidden = layer(&x, width).mapv(|u| u.max(0.0));
        let hidden = layer(&hidden, width).mapv(mercer::simd::Num::erf);
        let f = layer(&hidden, 1);
        sum += &f.dot(&f.t());
    }
    // The product of two centred normals has variance K_ii K_jj + K_ij²; four standard errors, plus O(1/width).
    for ((i, j), got) in (sum / networks as f64).indexed_iter() {
        let deviation = ((want[[i, i]] * want[[j, j]] + want[[i, j]].powi(2)) / networks as f64).sqrt();
        assert!((got - want[[i, j]]).abs() < 4.0 * deviation + 2.0 / width as f64, "{got} for {}", want[[i, j]]);
    }
}

/// The empirical NTK of `networks` drawn networks, on average, and the largest distance of one entry's mean from `want` in
/// standard errors of that mean.
fn mean_tangent_kernel(net: &str, x: &Array2<f64>, networks: u64, want: &Array2<f64>) -> (Array2<f64>, f64) {
    let network = Network::parse(net, x.ncols(), 1).unwrap();
    let points = tensor(x.view());
    let kernels: Vec<Array2<f64>> = (0..networks)
        .map(|seed| {
            let parameters = network.init(Device::Cpu, &Rng::new(seed)).unwrap();
            let ntk = EmpiricalNtk::new(&network, &parameters).unwrap().parameterised(Parameterisation::Ntk);
            ntk.mean(&points, None, &[0]).unwrap().mapv(f64::from)
        })
        .collect();
    let sum = |terms: &dyn Fn(&Array2<f64>) -> Array2<f64>| {
        kernels.iter().fold(Array2::zeros(want.dim()), |sum, kernel| sum + terms(kernel)) / networks as f64
    };
    let mean: Array2<f64> = sum(&|kernel| kernel.clone());
    let deviation: Array2<f64> = sum(&|kernel| (kernel - &mean).mapv(|d| d * d)) / (networks - 1) as f64;
    // Linear networks have a tangent kernel without noise in some entries: rounding counts as well.
    let distance = |(d, v): (&f64, &f64)| d.abs() / (v.sqrt() + 1e-6 * largest(want));
    let far = (&mean - want).iter().zip(&deviation).map(distance).fold(0.0, f64::max);
    (mean, far)
}

/// The covariance of the outputs of `networks` drawn networks, and the largest distance of an entry from `want` in standard
/// errors.
fn mean_covariance(net: &str, x: &Array2<f64>, networks: usize, want: &Array2<f64>) -> (Array2<f64>, f64) {
    let network = Network::parse(net, x.ncols(), networks).unwrap();
    let parameters = network.init(Device::Cpu, &Rng::new(7)).unwrap();
    let mut workspace = network.workspace(Device::Cpu).unwrap();
    let y = network.forward(&parameters, &tensor(x.view()), Mode::Eval, &mut workspace).unwrap().to_host().unwrap();
    let (n, outputs) = (x.nrows(), network.outputs());
    let at = |j: usize, i: usize, o: usize| f64::from(y[(j * n + i) * outputs + o]);
    let each =
        |j: usize, a: usize, b: usize| (0..outputs).map(|o| at(j, a, o) * at(j, b, o)).sum::<f64>() / outputs as f64;
    let mut far: f64 = 0.0;
    let mean = Array2::from_shape_fn((n, n), |(a, b)| {
        let values: Vec<f64> = (0..networks).map(|j| each(j, a, b)).collect();
        let mean = values.iter().sum::<f64>() / networks as f64;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (networks - 1) as f64;
        far = far.max((mean - want[[a, b]]).abs() / (variance / networks as f64).sqrt());
        mean
    });
    (mean, far)
}

/// One string is one network, as a kernel and as a network to draw: every layer word with every option. Only one layer of each
/// has an activation, whose inputs are then exactly normal: the mean over networks is the kernel at every width.
#[test]
fn every_layer_word_has_the_kernel_of_its_network() {
    let options = "w=1.3, b=0.4";
    let vectors = Activation::ALL.into_iter().filter(|phi| *phi != Activation::Silu).map(|phi| {
        // What grows fast has few, large outliers: narrow inputs.
        let growing = ["exp", "polynomial", "monomial", "hermite"].contains(&phi.name());
        let first = if growing { "w=0.4, b=0.3" } else { options };
        format!("dense(16, {first}) {phi} dense(16, {options})")
    });
    let pads = ["same", "valid", "1", "2"];
    let windows = [1, 2, 3].iter().flat_map(|stride| pads.map(|pad| format!("3, stride={stride}, pad={pad}")));
    let convolutions = windows.chain(["2, stride=2", "2, stride=1", "4, stride=3, pad=3"].map(String::from));
    let convolved =
        convolutions.map(|window| format!("conv(8, {window}, {options}) relu flatten dense(16, {options})"));
    let conv = |window: &str| format!("conv(8, {window}, {options})");
    let others = [
        format!("{} erf gap dense(16, {options})", conv("3")),
        format!("{} relu avgpool(2) flatten dense(16, {options})", conv("3")),
        format!("{} leaky_relu(0.2) res({}) gap dense(16, {options})", conv("3"), conv("3")),
        format!("{0} relu res({0}; {1}) flatten dense(16, {options})", conv("3, stride=2"), conv("1, stride=2")),
        format!(
            "{} relu res({}; {}) gap dense(16, {options})",
            conv("3"),
            conv("3, stride=2, pad=1"),
            conv("2, stride=2")
        ),
        format!("flatten dense(16, {options}) relu dense(16, {options})"),
        format!("avgpool(2) {} identity gap dense(16, {options})", conv("2")),
    ];
    let images = convolved.chain(others).map(|layers| format!("image(2, 6, 7) {layers}"));
    let all =
        vectors.into_iter().map(|text| (text, points(3, 5, 8))).chain(images.map(|text| (text, points(3, 84, 9))));
    for (text, x) in all {
        let kernel = |name: &str| matrix(&kernel(&format!("{name}('{text}')")), x.view());
        let want = kernel("nngp");
        let (mean, far) = mean_covariance(&text, &x, 2000, &want);
        assert!(far < 5.0, "{text}: the covariance is {far} standard errors away\n{mean}\n{want}");
        let want = kernel("ntk");
        let (mean, far) = mean_tangent_kernel(&text, &x, 200, &want);
        assert!(far < 5.0, "{text}: the tangent kernel is {far} standard errors away\n{mean}\n{want}");
    }
    // The error of the mean is small enough to tell one padding from another.
    let of = |pad: &str| {
        format!("image(2, 6, 8) conv(8, 3, stride=2, pad={pad}, {options}) relu flatten dense(16, {options})")
    };
    let (x, other) = (points(3, 96, 9), of("1"));
    let (_, far) = mean_covariance(&of("same"), &x, 2000, &matrix(&kernel(&format!("nngp('{other}')")), x.view()));
    assert!(far > 10.0, "{far}");
}

/// Derivatives of finite networks, drawn at random, against the infinite ones: two ways that share no code.
#[test]
fn wide_networks_have_this_tangent_kernel() {
    let norm = |k: &Array2<f64>| k.iter().map(|v| v * v).sum::<f64>().sqrt();
    let options = "w=1.2, b=0.3";
    let dense =
        |width: usize| format!("dense({width}, {options}) relu dense({width}, {options}) erf dense(1, {options})");
    let convolved = |width: usize| {
        format!(
            "image(2, 5, 5) conv({width}, 3, {options}) relu conv({width}, 3, stride=2, {options}) relu gap flatten dense(1, {options})"
        )
    };
    let cases = [
        ("ntk('dense(9) relu dense(9) erf dense(1)', w_var=1.44, b_var=0.09)", dense(512), points(4, 5, 2)),
        (
            "ntk('conv(3) relu conv(3, stride=2) relu gap dense', w_var=1.44, b_var=0.09, shape=5x5x2)",
            convolved(128),
            points(3, 50, 4),
        ),
    ];
    for (text, net, x) in cases {
        let kernel = kernel(text);
        let want = matrix(&kernel, x.view());
        let (mean, far) = mean_tangent_kernel(&net, &x, 24, &want);
        let apart = norm(&(&mean - &want)) / norm(&want);
        assert!(apart < 0.05 && far < 5.0, "{kernel}: {apart}, {far} standard errors\n{mean}\n{want}");
    }
}

#[test]
fn kernels_read_back_as_they_are_shown() {
    for text in [
        "ntk",
        "nngp(0, w_var=1)",
        "ntk(2, erf, b_var=0.5)",
        "ntk('dense(512) relu dense(10)')",
        "0.5*ntk(\"dense erf res(dense relu dense(w_var=0.1, b_var=3); dense) relu dense\", w_var=1) + rbf(2)",
        "nngp('dense(8, w=3, b=0.5) | relu dense(1)')",
        "ntk(2, leaky_relu(0.2))",
        "nngp(depth=2, act=ab_relu(-0.5, 2), w_var=1)",
        "ntk('dense hermite(3) dense polynomial(0, 1, 0.5) dense rbf(0.3) dense sigmoid_like dense monomial(2) dense')",
        "ntk('conv(3, stride=2, pad=1) relu conv(3, stride=2, pad=same) relu gap dense', shape=8x8x1)",
        "ntk('conv(3, stride=2, pad=valid) relu avgpool(2) conv(16, 3) relu avgpool(3, stride=1) gap dense', shape=28x20x3)",
    ] {
        let kernel = kernel(text);
        let shown = kernel.to_string();
        assert_eq!(Kernel::parse(&shown).unwrap(), kernel, "{text} is shown as {shown}");
    }
    assert_eq!(Kernel::parse("ntk").unwrap().to_string(), "ntk(depth=3, act=relu, w_var=2, b_var=0)");
    // A width is no part of the kernel, and w is the root of w_var.
    let shown = Kernel::parse("ntk('dense(512, w=2) relu dense(10)', b_var=0.1)").unwrap().to_string();
    assert_eq!(shown, "ntk(\"dense(w_var=4) relu dense\", w_var=2, b_var=0.1)");
}

#[test]
fn slips_are_named() {
    for (text, part) in [
        ("ntk(act=rellu)", "did you mean 'relu'"),
        ("ntk(act=banana)", "(known: identity, relu"),
        ("ntk(depth=1.5)", "whole number"),
        ("ntk(depth=-1)", "whole number"),
        ("ntk(w_var=0)", "above 0"),
        ("ntk('')", "no layer with weights"),
        ("ntk('relu')", "no layer with weights"),
        ("ntk('dens relu')", "did you mean 'dense'"),
        ("ntk('dense relu relu dense')", "right before it"),
        ("ntk('relu dense')", "right before it"),
        ("ntk('dense(0)')", "whole number"),
        ("ntk('dense(3, c=1)')", "no parameter 'c'"),
        ("ntk('dense(w_var=-1)')", "above 0"),
        ("ntk('dense(w_var=1, w=1)')", "not both"),
        ("ntk('dense(3')", "closing bracket"),
        ("ntk('dense)')", "too many"),
        ("ntk('dense relu(2) dense')", "no arguments"),
        ("ntk('dense relu dense', depth=2)", "not both"),
        ("ntk('dense", "closing quote"),
        ("rbf('dense')", "takes no text"),
        ("ntk(layers=3)", "a text in quotes"),
        ("ntk('res dense')", "in brackets"),
        ("ntk('dense bn relu dense')", "bn has no kernel at infinite width"),
        ("ntk('dense ln relu dense')", "ln has no kernel at infinite width"),
        ("ntk('dense silu dense')", "silu has no kernel at infinite width; use for example gelu"),
        ("nngp(depth=2, act=silu)", "silu has no kernel at infinite width"),
        ("ntk('conv(3) relu maxpool(2) gap dense', shape=8x8x1)", "maxpool has no kernel at infinite width"),
        ("ntk('res(relu) dense')", "right before it"),
        ("ntk('dense res(relu) dense')", "must end with dense or conv"),
        ("ntk('dense res(res(res(res(res(dense)))))')", "deeper than 4"),
        ("ntk('conv(3) relu gap dense')", "shape=28x28x1"),
        ("ntk('conv(3) relu dense', shape=8x8x1)", "put gap or flatten"),
        ("ntk('conv(3) relu', shape=8x8x1)", "ends with an image"),
        ("ntk('conv(9, pad=valid) gap dense', shape=8x8x1)", "does not fit"),
        ("ntk('conv(3, pad=zero) gap dense', shape=8x8x1)", "must be same, valid, or a whole number from 0 to 2"),
        ("ntk(act=leaky_relu(a))", "'a' must be a number"),
        ("ntk(act=ab_relu)", "slopes below and above zero"),
        ("ntk('dense hermite(-1) dense')", "from 0 to 7"),
        ("ntk('conv relu gap dense', shape=8x8x1)", "needs its size"),
        ("ntk('conv(3) gap conv(3) dense', shape=8x8x1)", "become one vector"),
        ("ntk('conv(3) gap dense', shape=8x8)", "28x28x1"),
        ("ntk('conv(3) res(conv(3, stride=2)) gap dense', shape=8x8x1)", "cannot be added"),
        ("ntk('conv(3) res(avgpool(2) conv(3)) gap dense', shape=8x8x1)", "put them outside"),
    ] {
        says(Kernel::parse(text), &[part]);
    }
}

#[test]
fn images_take_their_shape_from_the_data() {
    let x = points(2, 48, 4);
    let resolve = |text: &str, x: ArrayView2<f64>| Expression::parse(text).unwrap().resolve(x, 0);
    let kernel = resolve("ntk('conv(3) relu gap dense')", x.view()).unwrap();
    assert!(kernel.to_string().contains("shape=4x4x3"), "{kernel}");
    says(resolve("ntk('conv(3) relu gap dense')", points(2, 40, 4).view()), &["points of 40 numbers"]);
    let misfit = resolve("ntk('conv(3) gap dense', shape=4x4x1)", x.view());
    says(misfit, &["holds 16 numbers, but the points have 48"]);
}

/// Images of 6×4 with two channels, through every kind of step; 19 of them, so that the last lanes are not full.
#[test]
fn images_run_in_every_operator() {
    let rest = "w_var=1.6, b_var=0.1, shape=6x4x2";
    for (name, layers) in [
        ("ntk", "conv(3) relu conv(3) relu gap dense"),
        ("nngp", "conv(3, stride=2) erf flatten dense relu dense"),
        ("ntk", "conv(2) relu avgpool(2) conv(3) gelu avgpool(2, stride=1) gap dense relu dense"),
        ("ntk", "conv(3) res(relu conv(3, stride=2); conv(1, stride=2)) tanh flatten res(dense) dense"),
        ("nngp", "avgpool(2, stride=1) conv(3, pad=valid, stride=2) res(leaky_relu conv(3)) sin gap dense"),
        ("ntk", "conv(3, pad=2) leaky_relu(0.2) conv(4, stride=2, pad=3) tanh conv(3, stride=3, pad=1) relu gap dense"),
        ("ntk", "conv(2, pad=1) softplus avgpool(2) conv(3, stride=2, pad=2) polynomial(0, 1, 0.3) flatten dense"),
    ] {
        let (x, z) = (points(19, 48, 5), points(3, 48, 6));
        let kernel = kernel(&format!("0.5*{name}('{layers}', {rest}) + rbf(9)"));
        let k = by_formula(&kernel, x.view(), x.view());
        let close = |got: &Array2<f64>, want: &Array2<f64>, tolerance: f64, what: &str| {
            assert!(error(got, want) < tolerance, "{kernel}: {what} is off by {:e}", error(got, want));
        };
        let double = matrix(&kernel, x.view());
        close(&double, &k, 1e-11, "gram in f64");
        assert!(double.indexed_iter().all(|((i, j), v)| *v == double[[j, i]]), "{kernel} is not symmetric");
        let least = mercer::linalg::eigh(Device::Cpu, double.view()).unwrap().0[18];
        assert!(least > -1e-12 * double.diag().sum(), "{kernel}: eigenvalue {least}");
        // The slope of a ReLU sees angles, of which f32 keeps half the digits.
        close(&single(&kernel, &x), &k, 1e-4, "gram in f32");
        let cross = by_formula(&kernel, x.view(), z.view());
        close(&gram_cross::<f64>(&kernel, x.view(), z.view(), Device::Cpu).unwrap(), &cross, 1e-11, "gram_cross");
        let operator = on(&kernel, x.view());
        let v = points(19, 2, 7);
        close(&operator.apply(v.view()).unwrap(), &k.dot(&v), 1e-9, "the product");
        let diagonal = operator.diagonal().unwrap().insert_axis(Axis(1));
        close(&diagonal, &k.diag().to_owned().insert_axis(Axis(1)), 1e-11, "the diagonal");
        let block = k.select(Axis(0), &[3, 17]).select(Axis(1), &[17, 0]);
        close(&operator.block(&[3, 17], &[17, 0]).unwrap(), &block, 1e-11, "a block");
        let applied = cross_apply(&kernel, z.view(), x.view(), v.view(), Precision::F64, Device::Cpu).unwrap();
        close(&applied, &cross.t().dot(&v), 1e-9, "the product with new points");
    }
}

#[test]
fn what_is_kept_of_images_is_charged_to_the_budget() {
    let kernel = kernel("ntk('conv(3) relu conv(3) relu gap dense', shape=8x8x1)");
    let x = Array2::from_shape_fn((50, 64), |(i, j)| ((i * 7 + j * 3) % 11) as f64 / 11.0);
    let operator = on(&kernel, x.view());
    let mut problem = Problem::new(&operator, 3);
    problem.context.budget = Budget::of(20_000);
    says(Spectrum::fit(&Krylov::default(), &problem, None), &["50 images", "memory budget"]);
    problem.context.budget = Budget::of(1 << 30);
    assert!(Spectrum::fit(&Krylov::default(), &problem, None).is_ok());
}
