//! The contract of the primitives, on every device of the machine: each against plain loops in double precision.
//!
//! On a machine with a GPU this is the CUDA contract suite: `cargo test -p mercer --test compute_contract`.

use mercer::compute::*;
use mercer::rng::Rng;

#[path = "contract/images.rs"]
mod images;

/// Runs `test` on every device and says which.
fn on_every_device(test: impl Fn(Device)) {
    for device in Device::available() {
        eprintln!("on {device}");
        test(device);
        device.synchronize().unwrap();
    }
}

fn random(shape: &[usize], rng: &mut Rng) -> Vec<f32> {
    (0..shape.iter().product()).map(|_| rng.normal() as f32).collect()
}

fn tensor(device: Device, shape: &[usize], data: &[f32]) -> Tensor {
    Tensor::from_host(device, shape, data).unwrap()
}

fn zeros(device: Device, shape: &[usize]) -> Tensor {
    Tensor::zeros(device, shape).unwrap()
}

fn close(what: &str, got: &[f32], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{what}");
    let scale = want.iter().fold(1.0f64, |a, b| a.max(b.abs()));
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!((f64::from(*g) - w).abs() <= tolerance * scale, "{what}: element {i} is {g}, not {w}");
    }
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&v| f64::from(v)).collect()
}

#[test]
fn tensors_keep_their_numbers() {
    on_every_device(|device| {
        let data: Vec<f32> = (0..24).map(|i| i as f32).collect();
        let mut t = tensor(device, &[4, 6], &data);
        assert_eq!((t.device(), t.shape(), t.to_host().unwrap()), (device, &[4, 6][..], data.clone()));
        t.reshape(&[5, 6]).unwrap();
        assert_eq!(t.to_host().unwrap(), [&data[..], &[0.0; 6]].concat(), "growing keeps what was and adds zeros");
        t.reshape(&[2, 3]).unwrap();
        let copy = t.clone();
        fill(&mut t, 9.0);
        assert_eq!(copy.to_host().unwrap(), data[..6]);
        assert_eq!(t.to_host().unwrap(), [9.0; 6]);
        t.copy_from_host(&data[..6]).unwrap();
        assert_eq!(t.to_host().unwrap(), data[..6]);
        assert!(zeros(device, &[3, 0]).to_host().unwrap().is_empty());
        assert!(t.copy_from_host(&[1.0]).is_err());
    });
}

#[test]
fn elementwise() {
    on_every_device(|device| {
        let mut rng = Rng::new(1);
        for n in [1, 7, 1000, 300_001] {
            let (x, y) = (random(&[n], &mut rng), random(&[n], &mut rng));
            let of = |d: &[f32]| tensor(device, &[n], d);
            let (tx, mut ty) = (of(&x), of(&y));
            axpy(0.5, &tx, &mut ty);
            multiply(&mut ty, &tx);
            scale(-2.0, &mut ty);
            let want: Vec<f64> = wide(&x).iter().zip(wide(&y)).map(|(x, y)| -2.0 * (y + 0.5 * x) * x).collect();
            close("axpy, multiply, scale", &ty.to_host().unwrap(), &want, 1e-6);
            copy(&tx, &mut ty);
            assert_eq!(ty.to_host().unwrap(), x);
        }
        let x = tensor(device, &[5, 3], &random(&[5, 3], &mut rng));
        let mut out = zeros(device, &[0]);
        gather_rows(&x, &[4, 0, 4, 2], &mut out).unwrap();
        let (all, some) = (x.to_host().unwrap(), out.to_host().unwrap());
        assert_eq!(out.shape(), [4, 3]);
        assert_eq!(some, [&all[12..15], &all[0..3], &all[12..15], &all[6..9]].concat());
        // A stack of one is its matrix.
        let mut stack = x.clone();
        stack.reshape(&[1, 5, 3]).unwrap();
        gather_rows(&stack, &[4, 0, 4, 2], &mut out).unwrap();
        assert_eq!(out.to_host().unwrap(), some);
        for (k, m, n) in [(1, 1, 1), (3, 40, 70), (2, 33, 5)] {
            let x = random(&[k, m, n], &mut rng);
            let mut out = zeros(device, &[k, n, m]);
            transpose(&tensor(device, &[k, m, n], &x), &mut out);
            let got = out.to_host().unwrap();
            let at = |i: usize| (i / (m * n), i % (m * n) / m, i % m);
            assert!((0..k * m * n).all(|i| {
                let (j, c, r) = at(i);
                got[i] == x[(j * m + r) * n + c]
            }));
        }
    });
}

#[test]
fn random_fills_have_their_moments_and_follow_the_seed() {
    on_every_device(|device| {
        let n = 200_003;
        let mut t = zeros(device, &[n]);
        let mean =
            |t: &Tensor, p: i32| t.to_host().unwrap().iter().map(|&x| f64::from(x).powi(p)).sum::<f64>() / n as f64;
        let mut rng = Rng::new(3);
        fill_normal(&mut t, &mut rng);
        assert!(mean(&t, 1).abs() < 0.012 && (mean(&t, 2) - 1.0).abs() < 0.02 && (mean(&t, 4) - 3.0).abs() < 0.15);
        let first = t.to_host().unwrap();
        fill_normal(&mut t, &mut rng);
        assert_ne!(first, t.to_host().unwrap(), "the generator moves on");
        fill_normal(&mut t, &mut Rng::new(3));
        assert_eq!(first, t.to_host().unwrap(), "the seed decides");
        fill_rademacher(&mut t, &mut rng);
        assert!(mean(&t, 1).abs() < 0.012 && mean(&t, 2) == 1.0);
    });
}

/// Whether products on this device can round their factors.
fn has_tensor_cores(device: Device) -> bool {
    matches!(device, Device::Cuda(ordinal) if cuda::gpu(ordinal).unwrap().architecture >= 80)
}

/// Factors are rounded to 24, 11 or 8 bits: the relative error of a product of random matrices says which. The CPU, and
/// a device without tensor cores, round to 24.
#[test]
fn products_round_their_factors_as_asked() {
    on_every_device(|device| {
        let mut rng = Rng::new(31);
        // Matrices of a stack that lie apart, at odd places, and one that all share.
        for (count, m, p, n, stride) in
            [(1, 64, 96, 40, 0), (3, 65, 130, 71, 130 * 71 + 5), (2, 128, 256, 64, 256 * 64)]
        {
            let (a, b) = (random(&[m, p], &mut rng), random(&[count * (p * n + 5)], &mut rng));
            let ta = tensor(device, &[m, p], &a);
            let tb = tensor(device, &[b.len()], &b);
            let mut c = zeros(device, &[count, m, n]);
            let mut error = |math: Math| {
                let right = tb.matrices(0, stride, p, n);
                device.with_math(math, || gemm(1.0, ta.stack(), right, Store::Replace, c.stack_mut()));
                let got = c.to_host().unwrap();
                let (mut off, mut size) = (0.0, 0.0);
                for (i, got) in got.iter().enumerate() {
                    let (j, r, k) = (i / (m * n), i % (m * n) / n, i % n);
                    let term = |l: usize| f64::from(a[r * p + l]) * f64::from(b[j * stride + l * n + k]);
                    let want: f64 = (0..p).map(term).sum();
                    off += (f64::from(*got) - want).powi(2);
                    size += want * want;
                }
                (off / size).sqrt()
            };
            let errors = [Math::F32, Math::Tf32, Math::Bf16].map(&mut error);
            assert!(errors[0] < 2e-6, "{device}: {errors:?}");
            if has_tensor_cores(device) {
                // 2⁻¹²/√3 and 2⁻⁹/√3 a factor, on average, and √2 of that a product. Rows of odd length are read in f32
                // where TF32 was asked for.
                assert!((1e-4..6e-4).contains(&errors[1]) || n % 2 == 1 && errors[1] < 2e-6, "{device}: {errors:?}");
                assert!((1e-3..4e-3).contains(&errors[2]), "{device}: {errors:?}");
            }
            eprintln!("{device}: {errors:?}");
        }
    });
}

/// Matrix j of a stack in f64, `[rows, cols]`.
fn matrix(data: &[f32], j: usize, rows: usize, cols: usize, shared: bool) -> Vec<f64> {
    let at = if shared { 0 } else { j * rows * cols };
    wide(&data[at..at + rows * cols])
}

fn product(a: &[f64], b: &[f64], [m, p, n]: [usize; 3], ta: bool, tb: bool) -> Vec<f64> {
    let at = |i: usize, l: usize| if ta { a[l * m + i] } else { a[i * p + l] };
    let bt = |l: usize, c: usize| if tb { b[c * p + l] } else { b[l * n + c] };
    (0..m * n).map(|i| (0..p).map(|l| at(i / n, l) * bt(l, i % n)).sum()).collect()
}

#[test]
fn products() {
    on_every_device(|device| {
        let mut rng = Rng::new(4);
        for &(k, m, p, n) in &[(1, 1, 1, 1), (3, 70, 5, 7), (2, 4, 9, 130), (4, 33, 65, 129), (2, 1, 300, 1)] {
            for case in 0..16 {
                let (ta, tb, share_a, sum) = (case & 1 > 0, case & 2 > 0, case & 4 > 0, case & 8 > 0);
                let of = |shape: &[usize], d: &[f32]| tensor(device, shape, d);
                let (ra, ca) = if ta { (p, m) } else { (m, p) };
                let (rb, cb) = if tb { (n, p) } else { (p, n) };
                let a = random(&[if share_a { 1 } else { k }, ra, ca], &mut rng);
                let b = random(&[k, rb, cb], &mut rng);
                let (ta_, tb_) = (of(&[a.len()], &a), of(&[b.len()], &b));
                let stride = if share_a { 0 } else { ra * ca };
                let (sa, sb) = (ta_.matrices(0, stride, ra, ca), tb_.matrices(0, rb * cb, rb, cb));
                let (sa, sb) = (if ta { sa.t() } else { sa }, if tb { sb.t() } else { sb });
                let each: Vec<Vec<f64>> = (0..k)
                    .map(|j| {
                        let (x, y) = (matrix(&a, j, ra, ca, share_a), matrix(&b, j, rb, cb, false));
                        product(&x, &y, [m, p, n], ta, tb)
                    })
                    .collect();
                let first = random(&[k, m, n], &mut rng);
                let mut c = of(&[k, m, n], &first);
                let want: Vec<f64> = if sum {
                    gemm(0.5, sa, sb, Store::Add, c.matrices_mut(0, 0, k, m, n));
                    let total = |i: usize| each.iter().map(|e| 0.5 * e[i]).sum::<f64>();
                    let start = |i: usize| f64::from(first[i]) + if i < m * n { total(i) } else { 0.0 };
                    (0..k * m * n).map(start).collect()
                } else {
                    gemm(0.5, sa, sb, Store::Replace, c.stack_mut());
                    each.concat().iter().map(|v| 0.5 * v).collect()
                };
                close(&format!("gemm {k} {m} {p} {n}, case {case}"), &c.to_host().unwrap(), &want, 3e-6);
            }
        }
    });
}

#[test]
fn dense_layers_and_their_derivatives() {
    on_every_device(|device| {
        let mut rng = Rng::new(5);
        for phi in Activation::ALL {
            for (k, b, p, n) in [(1, 3, 2, 1), (3, 37, 5, 8), (2, 130, 17, 65)] {
                let of = |shape: &[usize], d: &[f32]| tensor(device, shape, d);
                let (x, w) = (random(&[b, p], &mut rng), random(&[k, p, n], &mut rng));
                let bias = random(&[k, n], &mut rng);
                let (tx, tw, tb) = (of(&[b, p], &x), of(&[k, p, n], &w), of(&[k * n], &bias));
                let mut y = zeros(device, &[k, b, n]);
                let mut slope = y.clone();
                dense(tx.stack(), tw.stack(), Some(tb.matrices(0, n, 1, n)), phi, &mut y, Some(&mut slope));
                let z: Vec<f64> = (0..k)
                    .flat_map(|j| product(&wide(&x), &matrix(&w, j, p, n, false), [b, p, n], false, false))
                    .enumerate()
                    .map(|(i, v)| v + f64::from(bias[i / (b * n) * n + i % n]))
                    .collect();
                let at = |i: usize| phi.at(z[i], i % n >= n / 2);
                let (value, derivative): (Vec<f64>, Vec<f64>) = (0..z.len()).map(at).unzip();
                close(&format!("{phi:?}"), &y.to_host().unwrap(), &value, 3e-5);
                // A kink within rounding of zero may fall on either side.
                if !matches!(phi, Activation::Relu | Activation::LeakyRelu) {
                    close(&format!("{phi:?}'"), &slope.to_host().unwrap(), &derivative, 3e-5);
                }
                let s = wide(&slope.to_host().unwrap());
                let g = random(&[k, b, n], &mut rng);
                let mut tg = of(&[k, b, n], &g);
                let mut grad = zeros(device, &[k, n + 3]);
                activation_vjp(&mut tg, Some(&slope), Some(grad.matrices_mut(2, n + 3, k, 1, n)));
                let want: Vec<f64> = g.iter().zip(&s).map(|(g, s)| f64::from(*g) * s).collect();
                close("vjp", &tg.to_host().unwrap(), &want, 1e-6);
                let mut sums = vec![0.0; k * (n + 3)];
                want.iter().enumerate().for_each(|(i, v)| sums[i / (b * n) * (n + 3) + 2 + i % n] += v);
                close("bias gradient", &grad.to_host().unwrap(), &sums, 1e-5);
                let mut t = of(&[k, b, n], &g);
                bias_slope(&mut t, Some(tb.matrices(0, n, 1, n)), Some(&slope));
                let want: Vec<f64> =
                    (0..g.len()).map(|i| (f64::from(g[i]) + f64::from(bias[i / (b * n) * n + i % n])) * s[i]).collect();
                close("jvp", &t.to_host().unwrap(), &want, 1e-6);
            }
        }
    });
}

#[test]
fn norms_and_sums() {
    on_every_device(|device| {
        let mut rng = Rng::new(6);
        for (k, b, n) in [(1, 1, 1), (3, 50, 1), (2, 5000, 1), (2, 33, 7), (1, 3000, 70)] {
            let of = |d: &[f32]| tensor(device, &[k, b, n], d);
            let (x, t) = (random(&[k, b, n], &mut rng), random(&[k, b, n], &mut rng));
            let columns = |f: &dyn Fn(usize) -> f64| {
                let mut sums = vec![0.0; k * n];
                (0..k * b * n).for_each(|i| sums[i / (b * n) * n + i % n] += f(i));
                sums
            };
            let (wx, wt) = (wide(&x), wide(&t));
            let (mut y, mut factor) = (of(&x), zeros(device, &[k, n]));
            l2_norm(&mut y, &mut factor);
            let scale: Vec<f64> = columns(&|i| wx[i] * wx[i] / b as f64).iter().map(|m| 1.0 / m.sqrt()).collect();
            close("factor", &factor.to_host().unwrap(), &scale, 1e-5);
            let normed: Vec<f64> = (0..wx.len()).map(|i| wx[i] * scale[i / (b * n) * n + i % n]).collect();
            close("l2_norm", &y.to_host().unwrap(), &normed, 1e-5);
            let mean = columns(&|i| normed[i] * wt[i] / b as f64);
            let want: Vec<f64> = (0..wx.len())
                .map(|i| (i, i / (b * n) * n + i % n))
                .map(|(i, c)| scale[c] * (wt[i] - normed[i] * mean[c]))
                .collect();
            let (mut tangent, mut work) = (of(&t), factor.clone());
            l2_norm_tangent(&y, &factor, &mut tangent, &mut work);
            close("tangent", &tangent.to_host().unwrap(), &want, 2e-5);
            let mut fixed = of(&x);
            scale_columns(&mut fixed, factor.matrices(0, n, 1, n));
            close("scale_columns", &fixed.to_host().unwrap(), &normed, 1e-5);
            let mut square = zeros(device, &[1]);
            sum_squares(&of(&x), &mut square);
            close("sum_squares", &square.to_host().unwrap(), &[wx.iter().map(|v| v * v).sum()], 1e-6);
            assert!(all_finite(&of(&x)));
            let mut bad = x.clone();
            bad[k * b * n / 2] = f32::NAN;
            assert!(!all_finite(&of(&bad)));
            bad[k * b * n / 2] = f32::NEG_INFINITY;
            assert!(!all_finite(&of(&bad)));
        }
        let mut zero = zeros(device, &[1, 10, 2]);
        let mut factor = zeros(device, &[1, 2]);
        l2_norm(&mut zero, &mut factor);
        assert_eq!((zero.to_host().unwrap(), factor.to_host().unwrap()), (vec![0.0; 20], vec![0.0; 2]));
    });
}

#[test]
fn optimizer_steps() {
    let sgd = |weight_decay| Rule::Sgd { momentum: 0.9, weight_decay };
    let rules = [sgd(0.0), sgd(0.1), Rule::RMS_PROP, Rule::ADAM];
    on_every_device(|device| {
        for rule in rules {
            for max_norm in [None, Some(3.0f32)] {
                let n = 5000;
                let mut rng = Rng::new(7);
                let start = random(&[n], &mut rng);
                let run = |device: Device| {
                    let mut rng = Rng::new(8);
                    let mut theta = tensor(device, &[n], &start);
                    let [mut m, mut v] = rule.moments().map(|used| zeros(device, &[if used { n } else { 0 }]));
                    let mut norm = zeros(device, &[1]);
                    for t in 1..=5 {
                        let grad = tensor(device, &[n], &random(&[n], &mut rng));
                        sum_squares(&grad, &mut norm);
                        let clip = max_norm.map(|max_norm| Clip { max_norm, norm_squared: &norm });
                        update(rule, 0.01, t, clip, &mut theta, &grad, &mut m, &mut v);
                    }
                    theta.to_host().unwrap()
                };
                // The CPU's steps are tested against the textbook recursions beside their code.
                close(&format!("{rule:?}"), &run(device), &wide(&run(Device::Cpu)), 1e-6);
            }
        }
    });
}

#[test]
fn second_order_passes() {
    on_every_device(|device| {
        let mut rng = Rng::new(9);
        let (k, points, d, n) = (2, 9, 3, 6);
        for phi in Activation::ALL {
            let data = random(&[k, (d + 2) * points, n], &mut rng);
            let bias = random(&[k, n], &mut rng);
            let run = |device: Device| {
                let mut y = tensor(device, &[k, (d + 2) * points, n], &data);
                let bias = tensor(device, &[k * n], &bias);
                jet(phi, Some(bias.matrices(0, n, 1, n)), points, &mut y);
                y.to_host().unwrap()
            };
            // The CPU's jets are tested against differences in the layers' suite.
            close(&format!("{phi:?}"), &run(device), &wide(&run(Device::Cpu)), 2e-5);
        }
    });
}

#[test]
fn products_of_every_matrix_with_one() {
    on_every_device(|device| {
        let mut rng = Rng::new(12);
        for (k, m, n) in [(1, 1, 1), (3, 4, 5), (4, 300, 101)] {
            let (old, y, x) = (random(&[k, m, n], &mut rng), random(&[k, m, n], &mut rng), random(&[m, n], &mut rng));
            let of = |shape: &[usize], d: &[f32]| tensor(device, shape, d);
            let (mut product, mut sum) = (of(&[k, m, n], &y), of(&[k, m, n], &old));
            multiply_each(&mut product, &of(&[m, n], &x));
            add_product_each(&mut sum, &of(&[k, m, n], &y), &of(&[m, n], &x));
            let want: Vec<f64> = (0..k * m * n).map(|i| f64::from(y[i]) * f64::from(x[i % (m * n)])).collect();
            close("multiply_each", &product.to_host().unwrap(), &want, 1e-6);
            let want: Vec<f64> = want.iter().zip(&old).map(|(w, o)| w + f64::from(*o)).collect();
            close("add_product_each", &sum.to_host().unwrap(), &want, 1e-6);
        }
    });
}

/// `t/(1+ρ)` and `½ ln(1+ρ²)` of one point, `t = x/scale`.
fn radial_feature(x: &[f64], scale: f64, unit: usize) -> f64 {
    let square: f64 = x.iter().map(|x| (x / scale).powi(2)).sum();
    if unit == x.len() { 0.5 * square.ln_1p() } else { x[unit] / scale / (1.0 + square.sqrt()) }
}

#[test]
fn radial_features_and_their_derivatives() {
    on_every_device(|device| {
        let (mut rng, b, scale, h) = (Rng::new(3), 70, 1.7, 1e-4);
        for d in [1, 2, 5] {
            let points = random(&[b, d], &mut rng);
            let x = tensor(device, &[b, d], &points);
            let (mut identity, mut y) = (zeros(device, &[(d + 2) * b, d]), zeros(device, &[1, b, d + 1]));
            let mut jet = zeros(device, &[1, (d + 2) * b, d + 1]);
            points_jet(&x, &mut identity);
            radial(scale, &x, &mut y);
            radial_jet(scale, &identity, b, &mut jet);

            let unit = |i: usize| if i / (b * d) == 1 + i % d { 1.0 } else { 0.0 };
            let want: Vec<f32> =
                (0..(d + 2) * b * d).map(|i| points.get(i).copied().unwrap_or_else(|| unit(i))).collect();
            assert_eq!(identity.to_host().unwrap(), want);
            // Values, central differences, their sum.
            let mut want = vec![0.0; (d + 2) * b * (d + 1)];
            for (at, (p, unit)) in (0..b).flat_map(|p| (0..=d).map(move |unit| (p, unit))).enumerate() {
                let point = wide(&points[p * d..(p + 1) * d]);
                let moved = |a: usize, by: f64| {
                    let mut point = point.clone();
                    point[a] += by;
                    radial_feature(&point, scale, unit)
                };
                let here = radial_feature(&point, scale, unit);
                let order = |o: usize| o * b * (d + 1) + at;
                want[order(0)] = here;
                for a in 0..d {
                    want[order(1 + a)] = (moved(a, h) - moved(a, -h)) / (2.0 * h);
                    want[order(1 + d)] += (moved(a, h) - 2.0 * here + moved(a, -h)) / (h * h);
                }
            }
            close("radial", &y.to_host().unwrap(), &want[..b * (d + 1)], 1e-6);
            let (got, split) = (jet.to_host().unwrap(), (d + 1) * b * (d + 1));
            close("radial_jet, slopes", &got[..split], &want[..split], 2e-6);
            // At d = 1 the first feature bends sharply within h of the origin; no point lies there.
            close("radial_jet, Laplacians", &got[split..], &want[split..], 1e-5);
        }
    });
}
