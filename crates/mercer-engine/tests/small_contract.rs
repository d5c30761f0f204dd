//! The contract of small matrices, step control and row numbers on the CPU and on a GPU: each operation against plain
//! `ndarray` code, with the same bits on the CPU where the plain code takes the same operations.

#[macro_use]
#[path = "common/devices.rs"]
mod devices;

use mercer_engine::compute::small::{self, Average};
use mercer_engine::compute::{Control, Device, Indices, NonFinite, Rule, Small, Store, Tensor};
use mercer_engine::compute::{gather, gather_block, gemm};
use mercer_engine::linalg::eigh;
use mercer_engine::rng::Rng;
use ndarray::{Array2, Axis, array, s};

on_every_device! {
    matrices_keep_their_numbers,
    forms_are_means_of_products_over_a_part,
    mixes_are_combinations_of_functions,
    weights_and_sums_of_rows,
    entries_and_sums,
    estimates_without_bias,
    unit_lower_factors,
    cholesky_and_what_is_solved_with_it,
    eigenvalues_and_eigenvectors,
    top_pairs_solve_the_generalised_problem,
    averages_start_at_their_first_value,
    control_keeps_the_record_and_the_first_failure,
    steps_of_control_are_those_of_the_optimizer,
    rows_are_gathered_by_number_and_by_step,
}

fn random(shape: (usize, usize), rng: &mut Rng) -> Array2<f64> {
    Array2::from_shape_simple_fn(shape, || rng.normal())
}

/// A symmetric matrix with `rank` directions.
fn gram(p: usize, rank: usize, rng: &mut Rng) -> Array2<f64> {
    let f = random((p, rank), rng);
    f.dot(&f.t()) / rank as f64
}

fn on(device: Device, a: &Array2<f64>) -> Small {
    Small::from_host(device, a).unwrap()
}

fn zeros(device: Device, shape: [usize; 2]) -> Small {
    Small::zeros(device, shape).unwrap()
}

fn largest(a: &Array2<f64>) -> f64 {
    a.iter().fold(0.0, |a: f64, b| if b.is_nan() { f64::NAN } else { a.max(b.abs()) })
}

/// `got` is `want`, up to `tolerance` times the largest entry.
fn close(what: &str, got: &Array2<f64>, want: &Array2<f64>, tolerance: f64) {
    assert_eq!(got.dim(), want.dim(), "{what}");
    let error = largest(&(got - want));
    assert!(error <= tolerance * largest(want).max(1e-300), "{what}: off by {error:e}");
}

/// [`close`] on a GPU, the same bits on the CPU.
fn same(what: &str, got: &Small, want: &Array2<f64>, tolerance: f64) {
    let tolerance = if got.device() == Device::Cpu { 0.0 } else { tolerance };
    close(what, &got.to_host().unwrap(), want, tolerance);
}

fn failure(control: &Control) -> Option<(usize, NonFinite)> {
    control.report(0).unwrap().failure
}

fn plain(t: &Tensor) -> Array2<f64> {
    let k = t.shape()[0];
    Array2::from_shape_vec((k, t.len() / k), t.to_host().unwrap().into_iter().map(f64::from).collect()).unwrap()
}

fn random_tensor(device: Device, shape: &[usize], rng: &mut Rng) -> Tensor {
    let data: Vec<f32> = (0..shape.iter().product()).map(|_| rng.normal() as f32).collect();
    Tensor::from_host(device, shape, &data).unwrap()
}

fn matrices_keep_their_numbers(device: Device) {
    let a = random((3, 5), &mut Rng::new(1));
    let mut small = on(device, &a);
    assert_eq!((small.shape(), small.device(), small.to_host().unwrap()), ([3, 5], device, a.clone()));
    small.copy_from_host(&(&a * 2.0));
    assert_eq!(small.to_host().unwrap(), &a * 2.0);
    assert_eq!(Small::identity(device, 3).unwrap().to_host().unwrap(), Array2::<f64>::eye(3));
    // A matrix stored by columns arrives with its entries in place.
    assert_eq!(on(device, &a.t().to_owned()).to_host().unwrap(), a.t());
}

fn forms_are_means_of_products_over_a_part(device: Device) {
    let mut rng = Rng::new(2);
    for (k, b, c) in [(1, 1, 1), (3, 40, 1), (7, 33, 2), (70, 300, 1)] {
        let [a, t] = [0, 1].map(|_| random_tensor(device, &[k, b, c], &mut rng));
        let (m, mut out) = (b * c, zeros(device, [k, k]));
        for part in [0..m, 0..m.div_ceil(2), m / 3..m] {
            small::form(&a, &t, part.clone(), &mut out).unwrap();
            let columns = |t: &Tensor| plain(t).slice(s![.., part.clone()]).to_owned();
            let want = columns(&a).dot(&columns(&t).t()) / part.len() as f64;
            close("form", &out.to_host().unwrap(), &want, 3e-6);
        }
        let mut product = Tensor::zeros(device, &[k, k]).unwrap();
        let (left, right) = (a.matrices(0, 0, k, m), t.matrices(0, 0, k, m));
        gemm(1.0 / m as f32, left, right.t(), Store::Replace, product.stack_mut());
        small::form(&a, &t, 0..m, &mut out).unwrap();
        same("form of all values", &out, &plain(&product), 1e-6);
    }
}

/// Half of a batch gives what the whole batch gives with zeros in the other half.
#[test]
fn a_part_is_the_whole_with_zeros_elsewhere() {
    let mut rng = Rng::new(3);
    for (k, m) in [(4, 64), (10, 257), (16, 1000), (70, 500)] {
        let a = random_tensor(Device::Cpu, &[k, m, 1], &mut rng);
        let half = m / 2;
        for part in [0..half, half..m] {
            let values = a.to_host().unwrap();
            let kept = |(i, v): (usize, &f32)| if part.contains(&(i % m)) { *v } else { 0.0 };
            let masked: Vec<f32> = values.iter().enumerate().map(kept).collect();
            let masked = Tensor::from_host(Device::Cpu, &[k, m, 1], &masked).unwrap();
            let (mut whole, mut only) = (zeros(Device::Cpu, [k, k]), zeros(Device::Cpu, [k, k]));
            small::form(&masked, &masked, 0..m, &mut whole).unwrap();
            small::form(&a, &a, part.clone(), &mut only).unwrap();
            let want = whole.to_host().unwrap() * (m as f64 / part.len() as f64);
            same("form", &only, &want, 0.0);
            let (mut all, mut some) = (a.clone(), a.clone());
            small::mix(&only, &masked, 0..m, Store::Add, &mut all).unwrap();
            small::mix(&only, &a, part, Store::Add, &mut some).unwrap();
            assert_eq!(all.to_host().unwrap(), some.to_host().unwrap());
        }
    }
}

fn mixes_are_combinations_of_functions(device: Device) {
    let mut rng = Rng::new(4);
    for (k, b, c) in [(1, 1, 1), (3, 40, 1), (7, 33, 2)] {
        let [t, mut out] = [0, 1].map(|_| random_tensor(device, &[k, b, c], &mut rng));
        let (m, matrix) = (b * c, random((k, k), &mut rng));
        let small = on(device, &matrix);
        small::mix(small.t().times(-0.5), &t, 0..m, Store::Replace, &mut out).unwrap();
        let mut want = (&matrix.t() * -0.5).dot(&plain(&t));
        close("mix", &plain(&out), &want, 3e-6);
        let part = m / 3..m;
        small::mix(&small, &t, part.clone(), Store::Add, &mut out).unwrap();
        let mut later = want.slice_mut(s![.., part.clone()]);
        later += &matrix.dot(&plain(&t).slice(s![.., part]));
        close("mix of a part, added", &plain(&out), &want, 3e-6);
    }
}

fn weights_and_sums_of_rows(device: Device) {
    let mut rng = Rng::new(5);
    let (k, b) = (3, 6);
    for c in [1, 2] {
        let t = random_tensor(device, &[k, b, c], &mut rng);
        let blocks = random_tensor(device, &[b, c, c], &mut rng);
        let mut out = Tensor::zeros(device, &[0]).unwrap();
        small::weigh(&blocks, &t, &mut out).unwrap();
        let (g, values) = (blocks.to_host().unwrap(), plain(&t));
        let want = Array2::from_shape_fn((k, b * c), |(i, q)| {
            (0..c).map(|o| f64::from(g[(q / c * c + q % c) * c + o]) * values[[i, q / c * c + o]]).sum()
        });
        close("weigh", &plain(&out), &want, 1e-6);
    }
    let (t, gram) = (random_tensor(device, &[k, b, 1], &mut rng), random_tensor(device, &[b, b], &mut rng));
    let mut out = Tensor::zeros(device, &[0]).unwrap();
    small::weigh(&gram, &t, &mut out).unwrap();
    close("weigh by a diagonal", &plain(&out), &(plain(&t) * plain(&gram).diag()), 1e-6);
    let own = 5;
    let rows = random_tensor(device, &[k, k * own], &mut rng);
    let mut sums = random_tensor(device, &[1, k * own], &mut rng);
    let (matrix, from, start) = (random((k, k), &mut rng), plain(&rows), plain(&sums));
    let want = Array2::from_shape_fn((1, k * own), |(_, q)| {
        start[[0, q]] + (0..k).map(|j| 2.0 * matrix[[j, q / own]] * from[[j, q]]).sum::<f64>()
    });
    small::add_rows(on(device, &matrix).times(2.0), &rows, &mut sums).unwrap();
    close("add_rows", &plain(&sums), &want, 1e-6);
}

fn entries_and_sums(device: Device) {
    let mut rng = Rng::new(6);
    for k in [1, 4, 70] {
        let [a, b] = [0, 1].map(|_| random((k, k), &mut rng));
        let (sa, sb) = (on(device, &a), on(device, &b));
        let (mut square, mut row, mut one) = (zeros(device, [k, k]), zeros(device, [1, k]), zeros(device, [1, 1]));
        small::multiply(&sa, &sb, &mut square);
        same("multiply", &square, &(&a * &b), 0.0);
        let quotient = |i: usize| if b[[i, i]] > 0.0 { a[[0, i]] / b[[i, i]] } else { 0.0 };
        small::divide(sa.row(0), sb.diagonal(), &mut row);
        same("divide", &row, &Array2::from_shape_fn((1, k), |(_, i)| quotient(i)), 1e-15);
        let (variance, mut slope) = (a.mapv(|v| v * v), zeros(device, [k, k]));
        small::hinge(on(device, &variance).diagonal(), 1e-4, &mut row, &mut slope);
        let deviation = |i: usize| (variance[[i, i]] + 1e-4).sqrt();
        same("hinge", &row, &Array2::from_shape_fn((1, k), |(_, i)| (1.0 - deviation(i)).max(0.0)), 1e-15);
        let own = |i: usize| if deviation(i) < 1.0 { -0.5 / deviation(i) } else { 0.0 };
        same("its slope", &slope, &Array2::from_shape_fn((k, k), |(i, j)| if i == j { own(i) } else { 0.0 }), 1e-14);
        small::inner(sa.times(-1.0), sb.t(), Store::Replace, &mut one);
        let first = -(&a * &b.t()).sum();
        same("inner", &one, &array![[first]], 1e-12);
        small::inner(sa.times(-2.0), &sb, Store::Add, &mut one);
        let second = first - 2.0 * (&a * &b).sum();
        same("inner, added", &one, &array![[second]], 1e-12);
        small::sum(-1.0, sa.diagonal(), Store::Replace, &mut one);
        same("sum", &one, &array![[-a.diag().iter().sum::<f64>()]], 1e-13);
    }
}

fn estimates_without_bias(device: Device) {
    let mut rng = Rng::new(7);
    let (r, own) = (random((5, 5), &mut rng), random((5, 5), &mut rng));
    let (sr, so) = (on(device, &r), on(device, &own));
    let first = Tensor::from_host(device, &[2], &[1.3, 9.0]).unwrap();
    let (b, n, size) = (20.0, 300.0, 34.0);
    let of = |d: Array2<f64>| (&r - &d) * ((1.0 - 1.0 / n) * b / (b - 1.0)) + d * (b / n);
    let mut out = zeros(device, [5, 5]);
    small::without_bias(&sr, &so, Some(&first), size, [20, 300], &mut out);
    same("one number", &out, &of(&own * f64::from(1.3f32) / size), 1e-14);
    small::without_bias(&sr, &so, None, size, [20, 300], &mut out);
    same("a matrix", &out, &of(&own / size), 1e-14);
    small::without_bias(&sr, &so, None, size, [1, 300], &mut out);
    same("one point", &out, &r, 0.0);
    // The estimate over all n points from all n points is exact.
    small::without_bias(&sr, &so, None, size, [20, 20], &mut out);
    close("all points", &out.to_host().unwrap(), &r, 1e-14);
}

fn unit_lower_factors(device: Device) {
    let mut rng = Rng::new(8);
    for k in [1, 2, 9, 70] {
        let mut f = random((k, k), &mut rng);
        if k > 3 {
            // A function that is zero, and one that adds nothing to those before it.
            f.row_mut(1).fill(0.0);
            let twice = &f.row(0) * 2.0;
            f.row_mut(3).assign(&twice);
        }
        let r = f.dot(&f.t());
        let tiny = 1e-6 * r.diag().iter().fold(0.0f64, |a, b| a.max(*b));
        let (sr, mut out) = (on(device, &r), zeros(device, [k, k]));
        small::quotients(&sr, 1e-6, &mut out);
        let want = Array2::from_shape_fn((k, k), |(j, i)| match i.cmp(&j) {
            std::cmp::Ordering::Equal => 1.0,
            std::cmp::Ordering::Less if r[[i, i]] > tiny => -r[[i, j]] / r[[i, i]],
            _ => 0.0,
        });
        same("quotients", &out, &want, 1e-15);
        small::inverse_unit_lower(&sr, 1e-6, &mut out).unwrap();
        let m = out.to_host().unwrap();
        assert!((0..k).all(|i| m[[i, i]] == 1.0 && m.slice(s![i, i + 1..]).iter().all(|v| *v == 0.0)));
        let d = m.dot(&r).dot(&m.t());
        // Pivots that are skipped leave their remainder, at most the square root of what is skipped.
        let off = &d - &Array2::from_diag(&d.diag());
        assert!(largest(&off) <= 1e-9 * largest(&r), "M R Mᵀ is not diagonal: {:e}", largest(&off));
    }
}

fn cholesky_and_what_is_solved_with_it(device: Device) {
    let mut rng = Rng::new(9);
    for (k, rank) in [(1, 1), (5, 5), (16, 16), (70, 70), (6, 3)] {
        let (a, pi, x) = (gram(k, rank, &mut rng), random((k, k), &mut rng), random((k, k), &mut rng));
        let mut control = Control::new(device, 1, 1).unwrap();
        let [mut l, mut out] = [0, 1].map(|_| zeros(device, [k, k]));
        small::cholesky(&on(device, &a), &mut control, &mut l).unwrap();
        assert_eq!(failure(&control), None);
        let mut lower = l.to_host().unwrap();
        (0..k).for_each(|i| lower.slice_mut(s![i, i + 1..]).fill(0.0));
        close("LLᵀ", &lower.dot(&lower.t()), &a, 2e-7);
        small::congruence(&l, &on(device, &pi), &mut out).unwrap();
        let back = lower.dot(&out.to_host().unwrap()).dot(&lower.t());
        close("congruence", &back, &((&pi + &pi.t()) * 0.5), 1e-7);
        small::solve_upper(&l, &on(device, &x), &mut out);
        let want = Array2::from_shape_fn((k, k), |(j, i)| if j <= i { x[[j, i]] / lower[[i, i]] } else { 0.0 });
        close("solve_upper", &lower.t().dot(&out.to_host().unwrap()), &want, 1e-9);
    }
    let mut control = Control::new(device, 1, 1).unwrap();
    let mut l = zeros(device, [2, 2]);
    small::cholesky(&on(device, &array![[1.0, 50.0], [50.0, 1.0]]), &mut control, &mut l).unwrap();
    assert_eq!(failure(&control), Some((0, NonFinite::Problem)));
}

/// Symmetric matrices of order p that are hard in different ways.
fn hard(p: usize, rng: &mut Rng) -> Vec<(&'static str, Array2<f64>)> {
    let f = random((p, p), rng);
    let dense = (&f + &f.t()) * 0.5;
    let q = eigh(Device::Cpu, dense.view()).unwrap().1;
    let with = |value: &dyn Fn(usize) -> f64| {
        let a = Array2::from_shape_fn((p, p), |(i, j)| q[[i, j]] * value(j)).dot(&q.t());
        (&a + &a.t()) * 0.5
    };
    let diagonal = |(i, j): (usize, usize)| if i == j { (i * 7 % p) as f64 - 2.5 } else { 0.0 };
    let mut all = vec![
        ("repeated", with(&|j| if j < p / 3 { 2.0 } else { 1.0 - 2.0 * f64::from(u8::from(j < p / 2)) })),
        ("a third of the rank", gram(p, p.div_ceil(3), rng)),
        ("graded", with(&|j| 10f64.powf(-0.25 * j as f64))),
        ("both signs", with(&|j| if j % 2 == 0 { 1.0 + j as f64 } else { -(j as f64) })),
        ("the identity", Array2::eye(p)),
        ("zero", Array2::zeros((p, p))),
        ("diagonal", Array2::from_shape_fn((p, p), diagonal)),
    ];
    if p <= 128 {
        // Above 128 rows faer divides and conquers, which fails at this scale.
        all.push(("large", &dense * 1e120));
    }
    all.push(("random", dense));
    all
}

fn eigenvalues_and_eigenvectors(device: Device) {
    let mut rng = Rng::new(10);
    for p in [1, 2, 3, 17, 64, 128, 200] {
        let bound = 2e-14 * p.max(50) as f64;
        for (name, a) in hard(p, &mut rng) {
            let what = format!("{name}, order {p}");
            let size = a.iter().map(|v| v * v).sum::<f64>().sqrt();
            // Entries above the diagonal are not read.
            let mut lower = a.clone();
            (0..p).for_each(|i| lower.slice_mut(s![i, i + 1..]).fill(1e3));
            let mut control = Control::new(device, 1, 1).unwrap();
            let (mut values, mut vectors) = (zeros(device, [1, p]), zeros(device, [p, p]));
            small::eigh(&on(device, &lower), &mut control, &mut values, &mut vectors).unwrap();
            assert_eq!(failure(&control), None, "{what}");
            let (λ, u) = (values.to_host().unwrap(), vectors.to_host().unwrap());
            let want = eigh(Device::Cpu, a.view()).unwrap().0;
            assert!(λ.iter().zip(λ.iter().skip(1)).all(|(a, b)| a >= b), "{what}: not descending");
            let error = λ.iter().zip(&want).fold(0.0f64, |e, (a, b)| e.max((a - b).abs()));
            assert!(error <= bound * size, "{what}: eigenvalues are off by {:e}", error / size);
            let residual = largest(&(a.dot(&u) - &u * &λ.row(0)));
            assert!(residual <= bound * size, "{what}: residual {:e}", residual / size);
            let tolerance = if p <= 128 { 1e-13 } else { 2e-13 };
            close(&format!("UᵀU, {what}"), &u.t().dot(&u), &Array2::eye(p), tolerance);
        }
    }
    let mut control = Control::new(device, 1, 1).unwrap();
    let (mut values, mut vectors) = (zeros(device, [1, 2]), zeros(device, [2, 2]));
    let broken = array![[1.0, 0.0], [f64::NAN, 1.0]];
    small::eigh(&on(device, &broken), &mut control, &mut values, &mut vectors).unwrap();
    assert_eq!(failure(&control), Some((0, NonFinite::Problem)));
}

fn top_pairs_solve_the_generalised_problem(device: Device) {
    let mut rng = Rng::new(11);
    for (p, k, rank, definite) in
        [(1, 1, 1, true), (8, 3, 8, true), (20, 20, 12, true), (20, 15, 12, false), (64, 10, 64, false)]
    {
        let sigma = gram(p, rank, &mut rng);
        let f = random((p, p), &mut rng);
        let pi = if definite { f.dot(&f.t()) } else { (&f + &f.t()) * 0.5 };
        let mut control = Control::new(device, 1, 1).unwrap();
        let (mut values, mut vectors) = (zeros(device, [1, k]), zeros(device, [p, k]));
        let (ss, sp) = (on(device, &sigma), on(device, &pi));
        small::top_pairs(&ss, &sp, 1e-6, &mut control, &mut values, &mut vectors).unwrap();
        assert_eq!(failure(&control), None);
        let (μ, a) = (values.to_host().unwrap(), vectors.to_host().unwrap());
        // Within the kept directions, Wᵀ(Πa − μΣa) = 0 for W = U Λ^(−1/2).
        let (λ, u) = eigh(Device::Cpu, sigma.view()).unwrap();
        let kept = λ.iter().filter(|l| **l > 1e-6 * λ[0]).count();
        let mut w = u.slice(s![.., ..kept]).to_owned();
        w.axis_iter_mut(Axis(1)).zip(&λ).for_each(|(mut column, l)| column /= l.sqrt());
        let t = w.t().dot(&pi).dot(&w);
        let want = eigh(Device::Cpu, ((&t + &t.t()) * 0.5).view()).unwrap().0;
        let (count, size) = (k.min(kept), want.iter().fold(0.0f64, |a, b| a.max(b.abs())));
        for j in 0..k {
            let expected = if j < count { want[j] } else { 0.0 };
            assert!((μ[[0, j]] - expected).abs() <= 1e-10 * size, "μ_{j} is {}, not {expected}", μ[[0, j]]);
        }
        let residual = w.t().dot(&(pi.dot(&a) - sigma.dot(&a) * μ.row(0)));
        assert!(largest(&residual) <= 1e-9 * largest(&t), "residual {:e}", largest(&residual));
        let unit = Array2::from_shape_fn((k, k), |(i, j)| f64::from(u8::from(i == j && i < count)));
        close("AᵀΣA", &a.t().dot(&sigma).dot(&a), &unit, 1e-9);
        let mut out = zeros(device, [p, p]);
        small::gram(&vectors, None, &mut out).unwrap();
        close("A Aᵀ", &out.to_host().unwrap(), &a.dot(&a.t()), 1e-13);
        small::gram(&vectors, Some(values.row(0)), &mut out).unwrap();
        close("A diag(μ) Aᵀ", &out.to_host().unwrap(), &(&a * &μ.row(0)).dot(&a.t()), 1e-12);
    }
}

fn averages_start_at_their_first_value(device: Device) {
    let mut rng = Rng::new(12);
    let [a, b] = [0, 1].map(|_| random((3, 3), &mut rng));
    let mut control = Control::new(device, 2, 1).unwrap();
    let mut average = Average::new(device, 0.9, [3, 3]).unwrap();
    let mut means = Tensor::zeros(device, &[2, 4]).unwrap();
    let [g, h] = [0, 1].map(|_| random_tensor(device, &[4], &mut rng));
    assert_eq!(average.get().unwrap(), None);
    average.update(&on(device, &a), &control);
    average.blend(&g, 1, &mut means).unwrap();
    assert_eq!(average.get().unwrap(), Some(a.clone()));
    let row = |t: &Tensor, i: usize| t.to_host().unwrap()[4 * i..4 * (i + 1)].to_vec();
    assert_eq!((row(&means, 0), row(&means, 1)), (vec![0.0; 4], g.to_host().unwrap()));
    average.update(&on(device, &b), &control);
    average.blend(&h, 1, &mut means).unwrap();
    same("average", average.value(), &(&a * 0.9 + &b * (1.0 - 0.9)), 1e-15);
    let blended = |(g, h): (f32, f32)| 0.9f32 * g + (1.0 - 0.9f64) as f32 * h;
    let expected = g.to_host().unwrap().into_iter().zip(h.to_host().unwrap()).map(blended);
    assert!(row(&means, 1).iter().zip(expected).all(|(got, want)| (got - want).abs() < 1e-6));
    // Nothing changes once a step was not finite.
    let before = (average.get().unwrap(), means.to_host().unwrap());
    control.check_finite([(&on(device, &array![[1.0, f64::NAN]]), NonFinite::Image)]);
    average.update(&on(device, &b), &control);
    average.blend(&h, 0, &mut means).unwrap();
    assert_eq!((average.get().unwrap(), means.to_host().unwrap()), before);
    average.set(Some(&b)).unwrap();
    assert_eq!(average.get().unwrap(), Some(b.clone()));
    assert!(average.set(Some(&array![[1.0, 2.0]])).unwrap_err().to_string().contains("1×2"));
    assert_eq!(average.get().unwrap(), Some(b.clone()), "a refused average changes nothing");
    average.set(None).unwrap();
    assert_eq!(average.get().unwrap(), None);
}

fn control_keeps_the_record_and_the_first_failure(device: Device) {
    let values = on(device, &array![[1.0, 9.0], [9.0, 2.0]]);
    let loss = |value: f64| on(device, &array![[value]]);
    let mut control = Control::new(device, 4, 2).unwrap();
    let schedule = [0.5, 0.25, 0.125, 0.125];
    let rule = Rule::Sgd { momentum: 0.0, weight_decay: 0.0 };
    control.start(rule, 0, schedule.into_iter());
    let mut theta = Tensor::from_host(device, &[2], &[1.0, 2.0]).unwrap();
    let mut moments = [2, 0].map(|n| Tensor::zeros(device, &[n]).unwrap());
    let gradient = Tensor::from_host(device, &[2], &[3.0, 4.0]).unwrap();
    control.record(&loss(7.0), values.diagonal());
    control.end_step(rule, None, &mut theta, &gradient, &mut moments);
    assert_eq!(theta.to_host().unwrap(), [-0.5, 0.0]);
    control.record(&loss(8.0), values.row(1));
    control.end_step(rule, Some(1.0), &mut theta, &gradient, &mut moments);
    let moved = theta.to_host().unwrap();
    assert!((moved[0] + 0.65).abs() < 1e-6 && (moved[1] + 0.2).abs() < 1e-6, "{moved:?}: a gradient of norm one");
    let report = control.report(2).unwrap();
    assert_eq!((report.failure, report.record), (None, vec![7.0, 1.0, 2.0, 8.0, 9.0, 2.0]));
    // The first failure stays, and no later step is made.
    let broken = on(device, &array![[f64::INFINITY]]);
    control.check_finite([(&values, NonFinite::Output), (&broken, NonFinite::Image)]);
    control.record(&loss(f64::NAN), values.row(0));
    control.end_step(rule, None, &mut theta, &gradient, &mut moments);
    control.end_step(rule, None, &mut theta, &gradient, &mut moments);
    assert_eq!(control.report(2).unwrap().failure, Some((2, NonFinite::Image)));
    assert_eq!(theta.to_host().unwrap(), moved);
    // A new sequence starts anew; a gradient and a value that are not finite are noted.
    control.start(rule, 4, schedule.into_iter());
    control.record(&loss(1.0), on(device, &array![[1.0, f64::NAN]]).row(0));
    assert_eq!(failure(&control), Some((0, NonFinite::Loss)));
    control.start(rule, 4, schedule.into_iter());
    let broken = Tensor::from_host(device, &[2], &[3.0, f32::INFINITY]).unwrap();
    control.end_step(rule, None, &mut theta, &broken, &mut moments);
    assert_eq!(failure(&control), Some((0, NonFinite::Gradient)));
    assert_eq!(theta.to_host().unwrap(), moved);
}

fn steps_of_control_are_those_of_the_optimizer(device: Device) {
    use mercer_engine::net::{Optimizer, Schedule, ScheduleKind};
    let schedule = Schedule::new(ScheduleKind::Cosine, 0.1, 20);
    let clip = Some(2.0);
    let mut rng = Rng::new(13);
    let start = random_tensor(device, &[1001], &mut rng);
    let [mut theta, mut other] = [start.clone(), start];
    let mut optimizer = Optimizer::new(device, Rule::ADAM, schedule, clip, 1001).unwrap();
    let mut moments = [0, 1].map(|_| Tensor::zeros(device, &[1001]).unwrap());
    let mut control = Control::new(device, 5, 1).unwrap();
    control.start(Rule::ADAM, 0, (0..).map(|s| schedule.at(s)));
    for _ in 0..5 {
        let mut gradient = random_tensor(device, &[1001], &mut rng);
        optimizer.step(&mut theta, &mut gradient);
        control.end_step(Rule::ADAM, clip, &mut other, &gradient, &mut moments);
    }
    assert_eq!(theta.to_host().unwrap(), other.to_host().unwrap());
}

fn rows_are_gathered_by_number_and_by_step(device: Device) {
    let x = Tensor::from_host(device, &[4, 2], &[0.0, 1.0, 10.0, 11.0, 20.0, 21.0, 30.0, 31.0]).unwrap();
    let mut table = Indices::zeros(device, &[6]).unwrap();
    table.write(0, &[3, 0]);
    table.write(2, &[1, 1, 2, 0]);
    assert_eq!(table.to_host().unwrap(), [3, 0, 1, 1, 2, 0]);
    let mut out = Tensor::zeros(device, &[0]).unwrap();
    gather(&x, &Indices::from_host(device, &[3], &[2, 0, 2]).unwrap(), &mut out).unwrap();
    assert_eq!((out.shape(), out.to_host().unwrap()), (&[3, 2][..], vec![20.0, 21.0, 0.0, 1.0, 20.0, 21.0]));
    let k = Tensor::from_host(device, &[3, 3], &[0.0, 1.0, 2.0, 10.0, 11.0, 12.0, 20.0, 21.0, 22.0]).unwrap();
    gather_block(&k, &Indices::from_host(device, &[2], &[2, 0]).unwrap(), &mut out).unwrap();
    assert_eq!((out.shape(), out.to_host().unwrap()), (&[2, 2][..], vec![22.0, 20.0, 2.0, 0.0]));
    // The second of two steps.
    let rule = Rule::Sgd { momentum: 0.0, weight_decay: 0.0 };
    let mut control = Control::new(device, 2, 1).unwrap();
    control.start(rule, 0, [0.1; 2].into_iter());
    let [mut theta, gradient] = [0, 1].map(|_| Tensor::zeros(device, &[1]).unwrap());
    let mut moments = [1, 0].map(|n| Tensor::zeros(device, &[n]).unwrap());
    control.end_step(rule, None, &mut theta, &gradient, &mut moments);
    let mut rows = Indices::zeros(device, &[3]).unwrap();
    control.begin_step(&table, &x, &mut rows, &mut out).unwrap();
    assert_eq!(rows.to_host().unwrap(), [1, 2, 0]);
    assert_eq!(out.to_host().unwrap(), [10.0, 11.0, 20.0, 21.0, 0.0, 1.0]);
}
