//! The contract of the primitives, on the CPU and on a GPU: each against plain loops in double precision.

#[macro_use]
#[path = "../../mercer-engine/tests/common/devices.rs"]
mod devices;
#[path = "contract/halves.rs"]
mod halves_of_images;
#[path = "contract/hidden.rs"]
mod hidden;
#[path = "contract/images.rs"]
mod images;
#[path = "contract/views.rs"]
mod views;

use mercer::compute::*;
use mercer::rng::Rng;

on_every_device! {
    tensors_keep_their_numbers,
    elementwise,
    random_fills_have_their_moments_and_follow_the_seed,
    products_round_their_factors_as_asked,
    products,
    dense_layers_and_their_derivatives,
    norms_and_sums,
    optimizer_steps,
    layer_wise_rates,
    second_order_passes,
    products_of_every_matrix_with_one,
    radial_features_and_their_derivatives,
}

/// The device of a test, and its random numbers. Numbers on the host are in double precision; each is exact in single.
struct On {
    device: Device,
    rng: Rng,
}

impl On {
    /// Standard normal numbers, on the host and on the device.
    fn random(&mut self, shape: &[usize]) -> (Vec<f64>, Tensor) {
        let x: Vec<f64> = (0..shape.iter().product()).map(|_| f64::from(self.rng.normal() as f32)).collect();
        let there = self.tensor(shape, &x);
        (x, there)
    }

    fn tensor(&self, shape: &[usize], data: &[f64]) -> Tensor {
        Tensor::from_host(self.device, shape, &narrow(data)).unwrap()
    }

    fn zeros(&self, shape: &[usize]) -> Tensor {
        Tensor::zeros(self.device, shape).unwrap()
    }
}

/// Runs `test` on a device, with random numbers of this seed.
fn on(device: Device, seed: u64, test: impl Fn(&mut On)) {
    test(&mut On { device, rng: Rng::new(seed) });
}

/// `run` gives on the device what it gives on the CPU; there, tests beside the code hold it to its formula.
fn as_on_the_cpu(what: &str, on: &On, seed: u64, tolerance: f64, run: impl Fn(On) -> Tensor) {
    let [want, got] = [Device::Cpu, on.device].map(|device| run(On { device, rng: Rng::new(seed) }));
    close(what, &got, at(&host(&want)), tolerance);
}

fn narrow(x: &[f64]) -> Vec<f32> {
    x.iter().map(|&v| v as f32).collect()
}

fn host(t: &Tensor) -> Vec<f64> {
    t.to_host().unwrap().into_iter().map(f64::from).collect()
}

fn at(numbers: &[f64]) -> impl Fn(usize) -> f64 {
    move |i| numbers[i]
}

/// Element i of the tensor is `want(i)`, within a tolerance relative to the largest, or to one.
fn close(what: &str, got: &Tensor, want: impl Fn(usize) -> f64, tolerance: f64) {
    near(what, &host(got), want, tolerance);
}

fn near(what: &str, got: &[f64], want: impl Fn(usize) -> f64, tolerance: f64) {
    let want: Vec<f64> = (0..got.len()).map(want).collect();
    let scale = want.iter().fold(1.0f64, |a, b| a.max(b.abs()));
    for (i, (got, want)) in got.iter().zip(&want).enumerate() {
        assert!((got - want).abs() <= tolerance * scale, "{what}: element {i} is {got}, not {want}");
    }
}

/// Values and slopes of an activation at `z`, for n units. Where z is `rounded`, a kink within rounding of zero may fall on
/// either side, and is not looked at.
fn activated(
    phi: Activation,
    [y, slope]: [&Tensor; 2],
    n: usize,
    z: impl Fn(usize) -> f64,
    rounded: bool,
    tolerance: f64,
) {
    let of = |i: usize| phi.at(z(i), i % n >= n / 2);
    close(&format!("{phi:?}"), y, |i| of(i).0, tolerance);
    if !(rounded && matches!(phi, Activation::Relu | Activation::LeakyRelu(_) | Activation::AbRelu(..))) {
        close(&format!("{phi:?}'"), slope, |i| of(i).1, tolerance);
    }
}

fn tensors_keep_their_numbers(device: Device) {
    on(device, 0, |on| {
        let data: Vec<f64> = (0..24).map(f64::from).collect();
        let mut t = on.tensor(&[4, 6], &data);
        assert_eq!((t.device(), t.shape(), host(&t)), (on.device, &[4, 6][..], data.clone()));
        t.reshape(&[5, 6]).unwrap();
        assert_eq!(host(&t), [&data[..], &[0.0; 6]].concat(), "growing keeps what was and adds zeros");
        t.reshape(&[2, 3]).unwrap();
        let copy = t.clone();
        fill(&mut t, 9.0);
        assert_eq!((host(&copy), host(&t)), (data[..6].to_vec(), vec![9.0; 6]));
        t.copy_from_host(&narrow(&data[..6])).unwrap();
        assert_eq!(host(&t), data[..6]);
        assert!(host(&on.zeros(&[3, 0])).is_empty());
        assert!(t.copy_from_host(&[1.0]).is_err());
    });
}

fn elementwise(device: Device) {
    on(device, 1, |on| {
        for n in [1, 7, 1000, 300_001] {
            let ((x, tx), (y, mut ty)) = (on.random(&[n]), on.random(&[n]));
            axpy(0.5, &tx, &mut ty);
            multiply(&mut ty, &tx);
            scale(-2.0, &mut ty);
            close("axpy, multiply, scale", &ty, |i| -2.0 * (y[i] + 0.5 * x[i]) * x[i], 1e-6);
            copy(&tx, &mut ty);
            assert_eq!(host(&ty), x);
        }
        let (all, mut x) = on.random(&[5, 3]);
        let mut out = on.zeros(&[0]);
        // A stack of one is its matrix.
        for shape in [&[5, 3][..], &[1, 5, 3]] {
            x.reshape(shape).unwrap();
            gather_rows(&x, &[4, 0, 4, 2], &mut out).unwrap();
            assert_eq!(out.shape(), [4, 3]);
            assert_eq!(host(&out), [&all[12..15], &all[0..3], &all[12..15], &all[6..9]].concat());
        }
        for (k, m, n) in [(1, 1, 1), (3, 40, 70), (2, 33, 5)] {
            let (x, tx) = on.random(&[k, m, n]);
            let mut out = on.zeros(&[k, n, m]);
            transpose(&tx, &mut out);
            let want = |i: usize| x[(i / (m * n) * m + i % m) * n + i % (m * n) / m];
            assert_eq!(host(&out), (0..x.len()).map(want).collect::<Vec<f64>>());
        }
    });
}

/// Tensors of one number, of several pieces and of a whole number of them; what lies between them stays.
fn layer_wise_rates(device: Device) {
    on(device, 8, |on| {
        let n = 60_000;
        let ranges = vec![40_000..59_000, 3..4, 10..18_394, 20_000..36_384];
        let ((theta, t), (g, mut tg)) = (on.random(&[n]), on.random(&[n]));
        let tensors = Adapted::new(device, ranges.clone()).unwrap();
        adapt(&tensors, 0.01, 0.3, &t, &mut tg);
        let mut want = g.clone();
        for range in ranges {
            let full: Vec<f64> = range.clone().map(|i| g[i] + f64::from(0.3f32) * theta[i]).collect();
            let norm = |x: &[f64]| x.iter().map(|v| v * v).sum::<f64>().sqrt();
            let rate = f64::from(0.01f32) * norm(&theta[range.clone()]) / norm(&full);
            range.zip(full).for_each(|(i, full)| want[i] = rate * full);
        }
        close("adapted gradients", &tg, at(&want), 1e-6);
    });
}

fn random_fills_have_their_moments_and_follow_the_seed(device: Device) {
    on(device, 3, |on| {
        let n = 200_003;
        let mut t = on.zeros(&[n]);
        let mean = |t: &Tensor, p: i32| host(t).iter().map(|x| x.powi(p)).sum::<f64>() / n as f64;
        fill_normal(&mut t, &mut on.rng);
        assert!(mean(&t, 1).abs() < 0.012 && (mean(&t, 2) - 1.0).abs() < 0.02 && (mean(&t, 4) - 3.0).abs() < 0.15);
        let first = host(&t);
        fill_normal(&mut t, &mut on.rng);
        assert_ne!(first, host(&t), "the generator moves on");
        fill_normal(&mut t, &mut Rng::new(3));
        assert_eq!(first, host(&t), "the seed decides");
        fill_rademacher(&mut t, &mut on.rng);
        assert!(mean(&t, 1).abs() < 0.012 && mean(&t, 2) == 1.0);
    });
}

/// Whether products on this device can round their factors.
fn has_tensor_cores(device: Device) -> bool {
    matches!(device, Device::Cuda(ordinal) if cuda::gpu(ordinal).unwrap().architecture >= 80)
}

/// Factors are rounded to 24, 11 or 8 bits: the relative error of a product of random matrices says which. The CPU, and
/// a device without tensor cores, round to 24.
fn products_round_their_factors_as_asked(device: Device) {
    on(device, 31, |on| {
        // Matrices of a stack that lie apart, at odd places, and one that all share.
        for (count, m, p, n, stride) in
            [(1, 64, 96, 40, 0), (3, 65, 130, 71, 130 * 71 + 5), (2, 128, 256, 64, 256 * 64), (1, 4096, 256, 260, 0)]
        {
            let ((a, ta), (b, tb)) = (on.random(&[m, p]), on.random(&[count * (p * n + 5)]));
            let (device, mut c) = (on.device, on.zeros(&[count, m, n]));
            let errors = [Math::F32, Math::Tf32, Math::Bf16].map(|math| {
                let right = tb.matrices(0, stride, p, n);
                device.with_math(math, || gemm(1.0, ta.stack(), right, Store::Replace, c.stack_mut()));
                let (mut off, mut size) = (0.0, 0.0);
                for (i, got) in host(&c).into_iter().enumerate() {
                    let (j, r, k) = (i / (m * n), i % (m * n) / n, i % n);
                    let want: f64 = (0..p).map(|l| a[r * p + l] * b[j * stride + l * n + k]).sum();
                    off += (got - want).powi(2);
                    size += want * want;
                }
                (off / size).sqrt()
            });
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

/// The j-th matrix of a stack, or the one that it has.
fn matrix(data: &[f64], j: usize, size: usize) -> &[f64] {
    &data[j * size % data.len()..][..size]
}

fn product(a: &[f64], b: &[f64], [m, p, n]: [usize; 3], ta: bool, tb: bool) -> Vec<f64> {
    let at = |i: usize, l: usize| if ta { a[l * m + i] } else { a[i * p + l] };
    let bt = |l: usize, c: usize| if tb { b[c * p + l] } else { b[l * n + c] };
    (0..m * n).map(|i| (0..p).map(|l| at(i / n, l) * bt(l, i % n)).sum()).collect()
}

fn products(device: Device) {
    on(device, 4, |on| {
        for (k, m, p, n) in [(1, 1, 1, 1), (3, 70, 5, 7), (2, 4, 9, 130), (4, 33, 65, 129), (2, 1, 300, 1)] {
            for case in 0..16 {
                let (ta, tb, share_a, sum) = (case & 1 > 0, case & 2 > 0, case & 4 > 0, case & 8 > 0);
                let (ra, ca) = if ta { (p, m) } else { (m, p) };
                let (rb, cb) = if tb { (n, p) } else { (p, n) };
                let (a, left) = on.random(&[if share_a { 1 } else { k }, ra, ca]);
                let (b, right) = on.random(&[k, rb, cb]);
                let stride = if share_a { 0 } else { ra * ca };
                let (sa, sb) = (left.matrices(0, stride, ra, ca), right.matrices(0, rb * cb, rb, cb));
                let (sa, sb) = (if ta { sa.t() } else { sa }, if tb { sb.t() } else { sb });
                let of = |j: usize| product(matrix(&a, j, ra * ca), matrix(&b, j, rb * cb), [m, p, n], ta, tb);
                let each: Vec<Vec<f64>> = (0..k).map(of).collect();
                let (first, mut c) = on.random(&[k, m, n]);
                let what = format!("gemm {k} {m} {p} {n}, case {case}");
                if sum {
                    gemm(0.5, sa, sb, Store::Add, c.matrices_mut(0, 0, 1, m, n).sum_of(k));
                    let total = |i: usize| each.iter().map(|e| 0.5 * e[i]).sum::<f64>();
                    close(&what, &c, |i| first[i] + if i < m * n { total(i) } else { 0.0 }, 3e-6);
                } else {
                    gemm(0.5, sa, sb, Store::Replace, c.stack_mut());
                    close(&what, &c, |i| 0.5 * each[i / (m * n)][i % (m * n)], 3e-6);
                }
            }
        }
    });
}

fn dense_layers_and_their_derivatives(device: Device) {
    on(device, 5, |on| {
        for phi in Activation::ALL {
            for (k, b, p, n) in [(1, 3, 2, 1), (3, 37, 5, 8), (2, 130, 17, 65)] {
                let ((x, tx), (w, tw), (bias, tb)) = (on.random(&[b, p]), on.random(&[k, p, n]), on.random(&[k * n]));
                let biases = tb.matrices(0, n, 1, n);
                let (mut y, mut slope) = (on.zeros(&[k, b, n]), on.zeros(&[k, b, n]));
                dense(tx.stack(), tw.stack(), Some(biases), phi, &mut y, Some(&mut slope));
                let column = |i: usize| i / (b * n) * n + i % n;
                let product = |j: usize| product(&x, matrix(&w, j, p * n), [b, p, n], false, false);
                let z: Vec<f64> = (0..k).flat_map(product).collect();
                activated(phi, [&y, &slope], n, |i| z[i] + bias[column(i)], true, 3e-5);
                let (s, (g, mut tg)) = (host(&slope), on.random(&[k, b, n]));
                let (mut t, mut grad) = (tg.clone(), on.zeros(&[k, n + 3]));
                activation_vjp(&mut tg, Some(&slope), Some(grad.matrices_mut(2, n + 3, k, 1, n)));
                close("vjp", &tg, |i| g[i] * s[i], 1e-6);
                let mut sums = vec![0.0; k * (n + 3)];
                (0..g.len()).for_each(|i| sums[i / (b * n) * (n + 3) + 2 + i % n] += g[i] * s[i]);
                close("bias gradient", &grad, at(&sums), 1e-5);
                bias_slope(&mut t, Some(biases), Some(&slope));
                close("jvp", &t, |i| (g[i] + bias[column(i)]) * s[i], 1e-6);
            }
        }
    });
}

fn norms_and_sums(device: Device) {
    on(device, 6, |on| {
        for (k, b, n) in [(1, 1, 1), (3, 50, 1), (2, 5000, 1), (2, 33, 7), (1, 3000, 70)] {
            let ((x, tx), (t, tt)) = (on.random(&[k, b, n]), on.random(&[k, b, n]));
            let column = |i: usize| i / (b * n) * n + i % n;
            let columns = |f: &dyn Fn(usize) -> f64| {
                let mut sums = vec![0.0; k * n];
                (0..k * b * n).for_each(|i| sums[column(i)] += f(i));
                sums
            };
            let (mut y, mut factor) = (tx.clone(), on.zeros(&[k, n]));
            l2_norm(&mut y, &mut factor);
            let scale: Vec<f64> = columns(&|i| x[i] * x[i] / b as f64).iter().map(|m| 1.0 / m.sqrt()).collect();
            close("factor", &factor, at(&scale), 1e-5);
            let normed = |i: usize| x[i] * scale[column(i)];
            close("l2_norm", &y, normed, 1e-5);
            let mean = columns(&|i| normed(i) * t[i] / b as f64);
            let (mut tangent, mut work) = (tt, factor.clone());
            l2_norm_tangent(&y, &factor, &mut tangent, &mut work);
            close("tangent", &tangent, |i| scale[column(i)] * (t[i] - normed(i) * mean[column(i)]), 2e-5);
            let mut fixed = tx.clone();
            scale_columns(&mut fixed, factor.matrices(0, n, 1, n));
            close("scale_columns", &fixed, normed, 1e-5);
            let (mut centred, mut means) = (tx.clone(), on.zeros(&[k, n]));
            centre(&mut centred, &mut means);
            let mean = columns(&|i| x[i] / b as f64);
            close("means", &means, at(&mean), 1e-6);
            close("centre", &centred, |i| x[i] - mean[column(i)], 1e-6);
            let (pairs, tp) = on.random(&[k, 2 * b, n]);
            let mut swapped = on.zeros(&[0]);
            swap_pairs(&tp, &mut swapped).unwrap();
            assert_eq!(swapped.shape(), [k, 2 * b, n]);
            assert_eq!(
                host(&swapped),
                (0..pairs.len()).map(|i| pairs[((i / n) ^ 1) * n + i % n]).collect::<Vec<f64>>()
            );
            let first = b / 3;
            let (mut few, mut whole) = (on.zeros(&[k, b - first, n]), on.zeros(&[k, b, n]));
            take_points(&tx, first, &mut few);
            let place = |i: usize| i / n % b;
            let kept: Vec<f64> = (0..x.len()).filter(|i| place(*i) >= first).map(|i| x[i]).collect();
            close("take_points", &few, at(&kept), 1e-7);
            place_points(&few, first, &mut whole);
            close("place_points", &whole, |i| if place(i) < first { 0.0 } else { x[i] }, 1e-7);
            let mut square = on.zeros(&[1]);
            sum_squares(&tx, &mut square);
            close("sum_squares", &square, |_| x.iter().map(|v| v * v).sum(), 1e-6);
            assert!(all_finite(&tx));
            for bad in [f64::NAN, f64::NEG_INFINITY] {
                let mut x = x.clone();
                x[k * b * n / 2] = bad;
                assert!(!all_finite(&on.tensor(&[k, b, n], &x)));
            }
        }
        let (mut zero, mut factor) = (on.zeros(&[1, 10, 2]), on.zeros(&[1, 2]));
        l2_norm(&mut zero, &mut factor);
        assert_eq!((host(&zero), host(&factor)), (vec![0.0; 20], vec![0.0; 2]));
    });
}

fn optimizer_steps(device: Device) {
    let sgd = |weight_decay| Rule::Sgd { momentum: 0.9, weight_decay };
    let (rules, n) = ([sgd(0.0), sgd(0.1), Rule::RMS_PROP, Rule::ADAM], 5000);
    on(device, 0, |on| {
        for (rule, max_norm) in rules.into_iter().flat_map(|rule| [(rule, None), (rule, Some(3.0f32))]) {
            as_on_the_cpu(&format!("{rule:?}"), on, 7, 1e-6, |mut on| {
                let (_, mut theta) = on.random(&[n]);
                let [mut m, mut v] = rule.moments().map(|used| on.zeros(&[if used { n } else { 0 }]));
                let mut norm = on.zeros(&[1]);
                for t in 1..=5 {
                    let (_, grad) = on.random(&[n]);
                    sum_squares(&grad, &mut norm);
                    let clip = max_norm.map(|max_norm| Clip { max_norm, norm_squared: &norm });
                    update(rule, 0.01, t, clip, &mut theta, &grad, &mut m, &mut v);
                }
                theta
            });
        }
    });
}

fn second_order_passes(device: Device) {
    let (k, points, d, n) = (2, 9, 3, 6);
    on(device, 0, |on| {
        for phi in Activation::ALL {
            as_on_the_cpu(&format!("{phi:?}"), on, 9, 2e-5, |mut on| {
                let ((_, mut y), (_, bias)) = (on.random(&[k, (d + 2) * points, n]), on.random(&[k * n]));
                jet(phi, Some(bias.matrices(0, n, 1, n)), points, &mut y);
                y
            });
        }
    });
}

fn products_of_every_matrix_with_one(device: Device) {
    on(device, 12, |on| {
        for (k, m, n) in [(1, 1, 1), (3, 4, 5), (4, 300, 101)] {
            let ((old, mut sum), (y, ty), (x, tx)) = (on.random(&[k, m, n]), on.random(&[k, m, n]), on.random(&[m, n]));
            add_product_each(&mut sum, &ty, &tx);
            let mut product = ty;
            multiply_each(&mut product, &tx);
            close("multiply_each", &product, |i| y[i] * x[i % (m * n)], 1e-6);
            close("add_product_each", &sum, |i| y[i] * x[i % (m * n)] + old[i], 1e-6);
        }
    });
}

/// `t/(1+ρ)` and `½ ln(1+ρ²)` of one point, `t = x/scale`.
fn radial_feature(x: &[f64], scale: f64, unit: usize) -> f64 {
    let square: f64 = x.iter().map(|x| (x / scale).powi(2)).sum();
    if unit == x.len() { 0.5 * square.ln_1p() } else { x[unit] / scale / (1.0 + square.sqrt()) }
}

fn radial_features_and_their_derivatives(device: Device) {
    on(device, 3, |on| {
        let (b, scale, h) = (70, 1.7, 1e-4);
        for d in [1, 2, 5] {
            let (points, x) = on.random(&[b, d]);
            let (mut identity, mut y) = (on.zeros(&[(d + 2) * b, d]), on.zeros(&[1, b, d + 1]));
            let mut jet = on.zeros(&[1, (d + 2) * b, d + 1]);
            points_jet(&x, &mut identity);
            radial(scale, &x, &mut y);
            radial_jet(scale, &identity, b, &mut jet);

            let unit = |i: usize| if i / (b * d) == 1 + i % d { 1.0 } else { 0.0 };
            let want = (0..(d + 2) * b * d).map(|i| points.get(i).copied().unwrap_or_else(|| unit(i)));
            assert_eq!(host(&identity), want.collect::<Vec<f64>>());
            // Values, central differences, their sum.
            let mut want = vec![0.0; (d + 2) * b * (d + 1)];
            for (place, (p, unit)) in (0..b).flat_map(|p| (0..=d).map(move |unit| (p, unit))).enumerate() {
                let point = &points[p * d..(p + 1) * d];
                let moved = |a: usize, by: f64| {
                    let mut point = point.to_vec();
                    point[a] += by;
                    radial_feature(&point, scale, unit)
                };
                let here = radial_feature(point, scale, unit);
                let order = |o: usize| o * b * (d + 1) + place;
                want[order(0)] = here;
                for a in 0..d {
                    want[order(1 + a)] = (moved(a, h) - moved(a, -h)) / (2.0 * h);
                    want[order(1 + d)] += (moved(a, h) - 2.0 * here + moved(a, -h)) / (h * h);
                }
            }
            close("radial", &y, at(&want), 1e-6);
            let (got, split) = (host(&jet), (d + 1) * b * (d + 1));
            near("radial_jet, slopes", &got[..split], at(&want), 2e-6);
            // At d = 1 the first feature bends sharply within h of the origin; no point lies there.
            near("radial_jet, Laplacians", &got[split..], at(&want[split..]), 1e-5);
        }
    });
}
