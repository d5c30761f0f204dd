//! Every layer's derivatives against differences and against each other; k networks against k single ones.

use super::*;
use crate::compute::Rule;

pub fn random(shape: &[usize], rng: &mut Rng) -> Tensor {
    let data: Vec<f32> = (0..shape.iter().product()).map(|_| rng.normal() as f32).collect();
    Tensor::from_host(Device::Cpu, shape, &data).unwrap()
}

fn dot(a: &Tensor, b: &Tensor) -> f64 {
    let (a, b) = (host(a), host(b));
    a.iter().zip(&b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
}

/// Architectures that together hold every layer in every role, with each activation.
fn architectures() -> Vec<String> {
    let mut all: Vec<String> = Activation::ALL
        .iter()
        .map(Activation::to_string)
        .flat_map(|phi| {
            [
                format!("dense(6{0}) {phi} dense(4{0}) {phi} dense(2)", weights(&phi)),
                format!("{phi} dense(3)"),
                format!("dense(5) {phi} | dense(2)"),
            ]
        })
        .collect();
    all.extend(
        [
            "rff(8, lengthscale=2) dense(3)",
            "rff(7) | dense(4) tanh dense(1)",
            "dense(4) l2norm",
            "dense(4) l2norm tanh dense(2) l2norm",
            "dense(5) tanh | l2norm dense(3) sin dense(2) l2norm",
            "l2norm rff(6)",
            "radial(scale=2) dense(4) tanh dense(2)",
            "dense(6) ln tanh dense(5) ln dense(2)",
            "dense(6, b=no) tanh dense(4) sin dense(2, b=no)",
            "ln dense(3)",
            "dense(6) tanh | ln dense(2) ln",
        ]
        .map(String::from),
    );
    all
}

/// The same for images of 2×4×4: every layer that sees them, on a shared input and further in, nested and not.
fn image_architectures() -> Vec<String> {
    [
        "conv(3, 3) tanh flatten dense(2)",
        "conv(3, 3, b=no) tanh conv(2, 3) bn flatten dense(3, b=no) bn tanh dense(2, b=no)",
        "conv(3, 3, stride=2, b=0.5) conv(2, 2, pad=valid) erf",
        "conv(3, 3, stride=2, pad=1) leaky_relu(0.2) conv(2, 3, pad=2) tanh gap dense(2)",
        "conv(3, 2, stride=3, pad=same) tanh conv(2, 3, stride=2, pad=2) dense(2)",
        "conv(2, 3) bn conv(2, 1, stride=3) dense(2)",
        "bn tanh conv(2, 5) bn sin gap dense(2)",
        "conv(3, 3) sin | bn conv(2, 3) avgpool(2) dense(2)",
        "tanh avgpool(2) conv(2, 3) gap dense(1)",
        "maxpool(2) conv(3, 3) maxpool(2) dense(2)",
        "conv(3, 3) relu maxpool(2) dense(2)",
        "dense(4) bn tanh dense(2)",
        "res(conv(2, 3) bn tanh conv(2, 3) bn) tanh gap dense(2)",
        "res(tanh conv(2, 3); l2norm) dense(2)",
        "res(sin conv(3, 3, stride=2) bn; conv(3, 1, stride=2) bn) erf res(tanh res(conv(3, 3) sin; bn) bn) gap dense(1)",
        "conv(2, 3) bn | res(tanh; conv(2, 1)) sin res(conv(3, 1); conv(3, 3)) gap dense(2)",
        "conv(3, 3) ln tanh res(ln conv(3, 3)) gap dense(2)",
        "res(tanh; sin) res(flatten dense(32); l2norm) dense(2)",
    ]
    .map(|layers| format!("image(2, 4, 4) {layers}"))
    .into()
}

/// k networks on d inputs, their parameters, a workspace, and the generator to go on with.
pub fn start(text: &str, d: usize, k: usize, seed: u64) -> (Network, Parameters, Workspace, Rng) {
    let rng = Rng::new(seed);
    let net = Network::parse(text, d, k).unwrap();
    let theta = net.init(Device::Cpu, &rng).unwrap();
    let workspace = net.workspace(Device::Cpu).unwrap();
    (net, theta, workspace, rng)
}

pub fn empty() -> Tensor {
    Tensor::zeros(Device::Cpu, &[0]).unwrap()
}

pub fn host(tensor: &Tensor) -> Vec<f32> {
    tensor.to_host().unwrap()
}

/// Every architecture with a shared and, where there is no trunk, an own input; in both modes.
#[test]
fn derivatives_agree_with_differences_and_with_each_other() {
    let rows = architectures().into_iter().map(|text| (text, 3));
    for (text, d) in rows.chain(image_architectures().into_iter().map(|text| (text, 32))) {
        for (own_input, mode) in [(false, Mode::Train), (false, Mode::Eval), (true, Mode::Train), (true, Mode::Eval)] {
            let (net, mut theta, mut workspace, mut rng) = start(&text, d, 3, 11);
            if own_input && net.expression().contains('|') {
                continue;
            }
            let x = if own_input { random(&[3, 9, d], &mut rng) } else { random(&[9, d], &mut rng) };
            net.calibrate(&mut theta, &x, &mut workspace).unwrap();
            // A fresh batch, so that the two modes differ.
            let x = random(x.shape(), &mut rng);
            check_derivatives(&net, &theta, &x, mode, &mut rng, &format!("{text} (own input: {own_input}, {mode:?})"));
        }
    }
}

/// Lean passes have the outputs and the gradients of the others, to rounding, and refuse what needs more than they keep.
#[test]
fn lean_passes_have_the_same_gradients() {
    let heads = [
        "dense(6) tanh dense(4) sincos dense(1)",
        "dense(5, b=no) sin dense(1, b=no)",
        "dense(4) gelu | dense(3) erf dense(1) sin",
    ];
    let heads =
        heads.into_iter().chain(["dense(6) relu | dense(1)", "dense(4) sin dense(1) dense(3) tanh dense(1) l2norm"]);
    for text in architectures().into_iter().chain(heads.map(String::from)) {
        let (net, theta, mut plain, mut rng) = start(&text, 3, 3, 5);
        let mut lean = net.workspace(Device::Cpu).unwrap().lean();
        let x = random(&[9, 3], &mut rng);
        let u = random(net.forward(&theta, &x, Mode::Train, &mut plain).unwrap().shape(), &mut rng);
        let mut passes = [&mut plain, &mut lean].map(|workspace| {
            let y = host(net.forward(&theta, &x, Mode::Train, workspace).unwrap());
            let (mut grad, mut back) = (empty(), empty());
            net.vjp(&theta, &x, workspace, &mut u.clone(), &mut grad, Some(&mut back)).unwrap();
            [y, host(&grad), host(&back)]
        });
        let [plain, lean_numbers] = &mut passes;
        for (a, b) in plain.iter().zip(lean_numbers) {
            let scale = a.iter().fold(1.0f32, |s, a| s.max(a.abs()));
            assert!(a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - *b).abs() < 1e-5 * scale), "{text}");
        }
        let refused = net.jvp(&theta, &x, &mut lean, None, None).unwrap_err().to_string();
        assert!(refused.contains("lean"), "{refused}");
        net.forward(&theta, &x, Mode::Eval, &mut lean).unwrap();
        net.jvp(&theta, &x, &mut lean, None, None).unwrap();
    }
}

fn check_derivatives(net: &Network, theta: &Parameters, x: &Tensor, mode: Mode, rng: &mut Rng, name: &str) {
    let (dtheta, dx) = (random(&[net.parameters()], rng), random(x.shape(), rng));
    let zero = Tensor::zeros(Device::Cpu, x.shape()).unwrap();
    let workspace = &mut net.workspace(Device::Cpu).unwrap();
    let u = random(net.forward(theta, x, mode, workspace).unwrap().shape(), rng);
    let (mut grad, mut back) = (empty(), empty());
    net.vjp(theta, x, workspace, &mut u.clone(), &mut grad, Some(&mut back)).unwrap();
    let mut jvp = |dtheta, dx| net.jvp(theta, x, workspace, dtheta, dx).unwrap().clone();
    // The vjp is the adjoint of the jvp: ⟨u, J v⟩ = ⟨Jᵀ u, v⟩ for v in the parameters and for v in the input, separately.
    let along_theta = jvp(Some(&dtheta), Some(&zero));
    let sides = [("parameters", &along_theta, &grad, &dtheta), ("input", &jvp(None, Some(&dx)), &back, &dx)];
    for (side, forward, back, v) in sides {
        let scale = (dot(&u, &u) * dot(forward, forward)).sqrt() + 1e-3;
        let gap = dot(&u, forward) - dot(back, v);
        assert!(gap.abs() < 1e-5 * scale, "{name}, {side}: {gap:e} of {scale}");
    }
    // A missing tangent is zero.
    let (with, without) = (host(&along_theta), host(&jvp(Some(&dtheta), None)));
    assert!(with.iter().zip(&without).all(|(a, b)| (a - b).abs() < 1e-6), "{name}");
    let none = jvp(None, None);
    assert_eq!(dot(&none, &none), 0.0, "{name}");
    // The jvp is the derivative.
    let (t, step) = (host(&jvp(Some(&dtheta), Some(&dx))), 2e-3);
    let mut at = |step: f32| {
        let (mut theta, mut x) = (theta.clone(), x.clone());
        compute::axpy(step, &dtheta, &mut theta.trained);
        compute::axpy(step, &dx, &mut x);
        host(net.forward(&theta, &x, mode, workspace).unwrap())
    };
    let (plus, minus) = (at(step), at(-step));
    let scale = t.iter().fold(1.0f32, |s, t| s.max(t.abs()));
    // A kink of a ReLU within the step spoils single entries, so the median error is judged, and the worst loosely.
    let errors = t.iter().zip(plus.iter().zip(&minus)).map(|(t, (p, m))| (t - (p - m) / (2.0 * step)).abs() / scale);
    let mut errors: Vec<f32> = errors.collect();
    errors.sort_by(f32::total_cmp);
    let (median, worst) = (errors[errors.len() / 2], errors[errors.len() - 1]);
    assert!(median < 1e-3, "{name}: median {median}");
    assert!(!is_smooth(name) || worst < 5e-3, "{name}: worst {worst}");
}

/// An option of the layers before `phi`: weights are small before `exp`, which grows too fast for differences.
fn weights(phi: &str) -> &'static str {
    if ["exp", "polynomial", "monomial", "hermite"].iter().any(|word| phi.starts_with(word)) { ", w=0.3" } else { "" }
}

/// Whether no layer of it has a kink or a jump.
fn is_smooth(text: &str) -> bool {
    !["relu", "abs", "sign", "step", "maxpool"].iter().any(|word| text.contains(word))
}

#[test]
fn k_networks_are_k_single_networks() {
    let dense = "dense(6) sincos dense(5) gelu dense(2) l2norm";
    let images =
        "conv(3, 3) bn relu res(conv(3, 3, stride=2) bn; conv(3, 1, stride=2) bn) relu maxpool(2) flatten dense(2)";
    for (text, d) in [(dense, 3), (images, 48)] {
        let (net, theta, mut workspace, mut rng) = start(text, d, 4, 4);
        let single = Network::parse(text, d, 1).unwrap();
        let x = random(&[300, d], &mut rng);
        let y = net.forward(&theta, &x, Mode::Train, &mut workspace).unwrap().clone();
        let g = random(y.shape(), &mut rng);
        let mut grad = empty();
        net.vjp(&theta, &x, &mut workspace, &mut g.clone(), &mut grad, None).unwrap();
        for j in 0..4 {
            let part = |all: &Tensor| host(all)[j * all.len() / 4..(j + 1) * all.len() / 4].to_vec();
            let theta = single.parameters_from(Device::Cpu, &part(&theta.trained), &part(&theta.constants)).unwrap();
            let mut workspace = single.workspace(Device::Cpu).unwrap();
            let out = single.forward(&theta, &x, Mode::Train, &mut workspace).unwrap();
            assert_eq!(host(out), part(&y));
            let mut g = Tensor::from_host(Device::Cpu, &[1, 300, 2], &part(&g)).unwrap();
            let mut one = empty();
            single.vjp(&theta, &x, &mut workspace, &mut g, &mut one, None).unwrap();
            assert_eq!(host(&one), part(&grad));
        }
    }
}

#[test]
fn a_shared_trunk_equals_networks_with_equal_trunks() {
    let (shared, theta, mut w1, mut rng) = start("dense(6) tanh | dense(1)", 2, 3, 6);
    let (apart, _, mut w2, _) = start("dense(6) tanh dense(1)", 2, 3, 6);
    let (trunk, heads) = theta.trained.to_host().map(|t| (t[..18].to_vec(), t[18..].to_vec())).unwrap();
    let copied: Vec<f32> =
        heads.chunks(7).flat_map(|head| trunk.iter().chain(head).copied().collect::<Vec<_>>()).collect();
    let other = apart.parameters_from(Device::Cpu, &copied, &[]).unwrap();
    let x = random(&[50, 2], &mut rng);
    let y1 = shared.forward(&theta, &x, Mode::Train, &mut w1).unwrap().clone();
    let y2 = apart.forward(&other, &x, Mode::Train, &mut w2).unwrap();
    // The heads on a shared trunk are one product, which sums in another order: equal up to rounding of six terms.
    let (h1, h2) = (host(&y1), host(y2));
    assert!(h1.iter().zip(&h2).all(|(a, b)| (a - b).abs() < 1e-6));
    let g = random(y1.shape(), &mut rng);
    let (mut g1, mut g2) = (empty(), empty());
    shared.vjp(&theta, &x, &mut w1, &mut g.clone(), &mut g1, None).unwrap();
    apart.vjp(&other, &x, &mut w2, &mut g.clone(), &mut g2, None).unwrap();
    let (g1, g2) = (host(&g1), host(&g2));
    for i in 0..18 {
        let sum: f32 = (0..3).map(|j| g2[j * 25 + i]).sum();
        assert!((g1[i] - sum).abs() < 1e-4 * (1.0 + sum.abs()), "{} {sum}", g1[i]);
    }
}

/// Twenty training steps; the parameters at the end.
fn train(text: &str, d: usize, batch: usize) -> Vec<f32> {
    let (net, mut theta, mut workspace, mut rng) = start(text, d, 6, 9);
    let mut grad = empty();
    let schedule = Schedule::constant(1e-3);
    let mut optimizer = Optimizer::new(Device::Cpu, Rule::ADAM, schedule, Some(1.0), net.parameters()).unwrap();
    for _ in 0..20 {
        let x = random(&[batch, d], &mut rng);
        let g = random(net.forward(&theta, &x, Mode::Train, &mut workspace).unwrap().shape(), &mut rng);
        net.vjp(&theta, &x, &mut workspace, &mut g.clone(), &mut grad, None).unwrap();
        net.track(&mut theta, &workspace, 0.1);
        optimizer.step(&mut theta.trained, &mut grad);
    }
    theta.trained.to_host().unwrap()
}

#[test]
fn the_same_seed_gives_the_same_bits_on_any_number_of_threads() {
    for (text, d, batch) in [
        ("dense(64) sincos dense(64) relu | dense(80) erf dense(1) l2norm", 5, 700),
        ("conv(4, 3) bn relu res(conv(4, 3) bn) relu maxpool(2) flatten dense(2)", 64, 100),
    ] {
        let bits = |threads: usize| -> Vec<u32> {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| train(text, d, batch)).iter().map(|x| x.to_bits()).collect()
        };
        let one = bits(1);
        assert!(one == bits(2) && one == bits(5), "{text}");
    }
}

#[test]
fn a_smaller_batch_in_between_changes_nothing() {
    let (net, theta, mut workspace, mut rng) = start("dense(8) relu dense(1) l2norm", 2, 3, 1);
    let large = random(&[64, 2], &mut rng);
    let first = net.forward(&theta, &large, Mode::Train, &mut workspace).unwrap().clone();
    net.forward(&theta, &random(&[5, 2], &mut rng), Mode::Train, &mut workspace).unwrap();
    let again = net.forward(&theta, &large, Mode::Train, &mut workspace).unwrap();
    assert_eq!(host(&first), host(again));
}

#[test]
fn calibration_makes_evaluation_agree_with_training_on_that_batch() {
    let (net, mut theta, mut workspace, mut rng) = start("dense(6) tanh l2norm dense(2) l2norm", 2, 3, 3);
    let x = random(&[40, 2], &mut rng);
    net.calibrate(&mut theta, &x, &mut workspace).unwrap();
    let mut run = |mode| host(net.forward(&theta, &x, mode, &mut workspace).unwrap());
    let (train, eval) = (run(Mode::Train), run(Mode::Eval));
    assert!(train.iter().zip(&eval).all(|(a, b)| (a - b).abs() < 1e-5));
    let mean: f32 = train[..80].iter().step_by(2).map(|y| y * y).sum::<f32>() / 40.0;
    assert!((mean - 1.0).abs() < 1e-5);
}

#[test]
fn weights_have_the_spread_they_promise() {
    let (net, theta, ..) = start("dense(100) relu dense(50, w=3, b=0) dense(1)", 50, 8, 5);
    let theta = host(&theta.trained);
    let per = net.parameters() / 8;
    let mean_square = |from: usize, len: usize| {
        let all = (0..8).flat_map(|j| &theta[j * per + from..j * per + from + len]);
        all.map(|&w| f64::from(w).powi(2)).sum::<f64>() / (8 * len) as f64
    };
    assert!((mean_square(0, 5000) / (2.0 / 50.0) - 1.0).abs() < 0.05);
    assert!((mean_square(5000, 100) / (1.0 / 150.0) - 1.0).abs() < 0.25);
    assert!((mean_square(5100, 5000) / (9.0 / 100.0) - 1.0).abs() < 0.05);
    assert_eq!(mean_square(10_100, 50), 0.0);
}

#[test]
fn unfit_inputs_are_errors() {
    let (net, theta, mut workspace, _) = start("dense(3)", 2, 4, 0);
    for shape in [&[5, 3][..], &[0, 2], &[3, 5, 2], &[10]] {
        let x = Tensor::zeros(Device::Cpu, shape).unwrap();
        assert!(net.forward(&theta, &x, Mode::Train, &mut workspace).is_err(), "{shape:?}");
    }
    assert!(Network::parse("dense(3)", 0, 4).is_err() && Network::parse("dense(3)", 2, 0).is_err());
    assert!(net.parameters_from(Device::Cpu, &[0.0; 5], &[]).is_err());
    let again = Network::parse(&net.expression(), 2, 4).unwrap();
    assert_eq!(again.expression(), net.expression());
}

/// Sixth-order differences in double precision: `(∂f, ∂²f)` along one coordinate, from `f(h·i)` for i = −3..3.
fn differences(f: impl Fn(f64) -> f64, h: f64) -> (f64, f64) {
    let odd = |i: f64| f(i * h) - f(-i * h);
    let even = |i: f64| f(i * h) + f(-i * h);
    let first = (45.0 * odd(1.0) - 9.0 * odd(2.0) + odd(3.0)) / (60.0 * h);
    let second = (270.0 * even(1.0) - 27.0 * even(2.0) + 2.0 * even(3.0) - 490.0 * f(0.0)) / (180.0 * h * h);
    (first, second)
}

/// The network in double precision, from its numbers alone: dense layers with their activations, after an optional `radial`.
fn double_precision(description: &Description, theta: &[f32], x: &[f64]) -> Vec<f64> {
    let (mut y, mut at) = (x.to_vec(), 0);
    for layer in &description.layers {
        match *layer {
            LayerSpec::Radial { scale } => {
                let t: Vec<f64> = y.iter().map(|x| x / scale).collect();
                let rho = t.iter().map(|t| t * t).sum::<f64>().sqrt();
                y = t.iter().map(|t| t / (1.0 + rho)).chain([0.5 * (1.0 + rho * rho).ln()]).collect();
            }
            LayerSpec::Dense { width: Some(width), weights } => {
                let (w, b) = (&theta[at..], &theta[at + y.len() * width..]);
                let biases = usize::from(!weights.without_bias());
                let sum = |unit| y.iter().enumerate().map(|(i, y)| y * f64::from(w[i * width + unit])).sum::<f64>();
                let bias = |unit: usize| if biases == 1 { f64::from(b[unit]) } else { 0.0 };
                let next = (0..width).map(|unit| bias(unit) + sum(unit)).collect();
                at += (y.len() + biases) * width;
                y = next;
            }
            LayerSpec::Activation(phi) => {
                let half = y.len() / 2;
                y = y.iter().enumerate().map(|(unit, z)| phi.at(*z, unit >= half).0).collect();
            }
            _ => panic!("{layer} has no Laplacian"),
        }
    }
    y
}

#[test]
fn jets_agree_with_differences_in_double_precision() {
    let mut cases: Vec<String> = Activation::ALL
        .iter()
        .map(Activation::to_string)
        .filter(|phi| is_smooth(phi))
        .map(|phi| format!("dense(7{0}) {phi} dense(6{0}) {phi} dense(2)", weights(&phi)))
        .collect();
    cases.push("radial(scale=2) dense(8) sincos dense(1)".into());
    cases.push("dense(7, b=no) tanh dense(6) sin dense(2, b=no)".into());
    let (d, points) = (3, 5);
    for text in cases {
        let (net, theta, mut workspace, mut rng) = start(&text, d, 1, 5);
        let x = random(&[points, d], &mut rng);
        let jet = net.jet(&theta, &x, &mut workspace).unwrap();
        assert_eq!(jet.shape(), [1, (d + 2) * points, net.outputs()]);
        let (jet, x, c) = (jet.to_host().unwrap(), x.to_host().unwrap(), net.outputs());
        let theta = host(&theta.trained);
        for (b, unit) in (0..points).flat_map(|b| (0..c).map(move |unit| (b, unit))) {
            let at = |order: usize| f64::from(jet[(order * points + b) * c + unit]);
            let point: Vec<f64> = x[b * d..(b + 1) * d].iter().map(|v| f64::from(*v)).collect();
            let along = |i: usize, h: f64| {
                let mut point = point.clone();
                point[i] += h;
                double_precision(net.description(), &theta, &point)[unit]
            };
            let mut laplacian = 0.0;
            assert!((at(0) - along(0, 0.0)).abs() < 1e-5, "{text}");
            for i in 0..d {
                let (first, second) = differences(|h| along(i, h), 1e-2);
                assert!((at(1 + i) - first).abs() < 1e-5 * (1.0 + first.abs()), "{text}: {} vs {first}", at(1 + i));
                laplacian += second;
            }
            assert!((at(1 + d) - laplacian).abs() < 1e-4 * (1.0 + laplacian.abs()), "{text}: {laplacian}");
        }
    }
}

#[test]
fn jets_of_many_networks_are_those_of_each_and_a_norm_inside_is_refused() {
    let (text, d, points) = ("dense(9) tanh | dense(200) gelu dense(3)", 2, 150);
    let (net, theta, mut workspace, mut rng) = start(text, d, 4, 6);
    let x = random(&[points, d], &mut rng);
    let jet = net.jet(&theta, &x, &mut workspace).unwrap().to_host().unwrap();
    let mut other = net.workspace(Device::Cpu).unwrap();
    let y = net.forward(&theta, &x, Mode::Eval, &mut other).unwrap().to_host().unwrap();
    for i in 0..d {
        let unit: Vec<f32> = (0..points * d).map(|at| f32::from(u8::from(at % d == i))).collect();
        let dx = Tensor::from_host(Device::Cpu, &[points, d], &unit).unwrap();
        let t = net.jvp(&theta, &x, &mut other, None, Some(&dx)).unwrap().to_host().unwrap();
        for j in 0..4 {
            let at = |order: usize| &jet[(j * (d + 2) + order) * points * 3..][..points * 3];
            let own = |all: &[f32]| all[j * points * 3..(j + 1) * points * 3].to_vec();
            assert!(at(0).iter().zip(own(&y)).all(|(a, b)| (a - b).abs() < 1e-5));
            assert!(at(1 + i).iter().zip(own(&t)).all(|(a, b)| (a - b).abs() < 1e-5));
        }
    }
    let (net, theta, mut workspace, _) = start("dense(4) l2norm tanh dense(1)", 2, 1, 6);
    let error = net.jet(&theta, &x, &mut workspace).unwrap_err().to_string();
    assert!(error.contains("l2norm"), "{error}");
}
