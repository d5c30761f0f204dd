//! Kernels of distances at points of any scale, against differences taken in f64; equal points; angles at any scale.

mod common;

use common::*;
use mercer::compute::Device::Cpu;
use mercer::kernel::{Formula, Pair, Parameter, Statistic, catalogue};
use mercer::linalg::eigh;
use mercer::operator::{Real, cross_apply};

/// What a kernel value may be off, relative to that of a point with itself: 64 units of roundoff.
fn allowed<T: Real>() -> f64 {
    if T::PRECISION == Precision::F64 { 64.0 * f64::EPSILON / 2.0 } else { 64.0 * f64::from(f32::EPSILON) / 2.0 }
}

/// A kernel and its value as a function of the differences of the coordinates, which are taken within a [`period`].
type Law = (&'static str, fn(&[f64]) -> f64);

/// The remainder of a coordinate by its period is exact; a difference of coordinates many periods apart is rounded.
fn period(law: &Law) -> f64 {
    if law.0.starts_with("periodic") { 2.0 } else { f64::INFINITY }
}

fn l2(t: &[f64]) -> f64 {
    t.iter().map(|t| t * t).sum::<f64>().sqrt()
}

const LAWS: [Law; 7] = [
    ("rbf(1.3)", |t| (-l2(t).powi(2) / (2.0 * 1.3 * 1.3)).exp()),
    ("laplacian(1.7)", |t| (-t.iter().map(|t| t.abs()).sum::<f64>() / 1.7).exp()),
    ("matern12(1.3)", |t| (-l2(t) / 1.3).exp()),
    ("matern32(1.3)", |t| {
        let a = 3f64.sqrt() * l2(t) / 1.3;
        (1.0 + a) * (-a).exp()
    }),
    ("matern52(1.3)", |t| {
        let a = 5f64.sqrt() * l2(t) / 1.3;
        (1.0 + a + a * a / 3.0) * (-a).exp()
    }),
    ("periodic(2, 0.8)", |t| {
        let sum: f64 = t.iter().map(|t| (std::f64::consts::PI * t / 2.0).sin().powi(2)).sum();
        (-2.0 * sum / 0.64).exp()
    }),
    ("0.5*rbf(2) + 0.25*matern12(3)", |t| 0.5 * (-l2(t).powi(2) / 8.0).exp() + 0.25 * (-l2(t) / 3.0).exp()),
];

/// Three clusters, `scale` apart in every coordinate, a fifth of the points equal to one before or close to it.
fn clusters(n: usize, d: usize, scale: f64, seed: u64) -> Array2<f64> {
    let mut rng = Rng::new(seed);
    let mut x =
        Array2::from_shape_fn((n, d), |(i, _)| scale * (i % 3) as f64 - scale * 0.3 + rng.normal() / (d as f64).sqrt());
    for i in (10..n).step_by(10) {
        let (equal, close) = (x.row(i - 7).to_owned(), x.row(i - 4).mapv(|v| v + 1e-3 * rng.normal()));
        x.row_mut(i).assign(&equal);
        x.row_mut(i - 1).assign(&close);
    }
    x
}

fn by_law(law: &Law, x: &Array2<f64>, z: &Array2<f64>) -> Array2<f64> {
    let (x, z) = (x.mapv(|v| v % period(law)), z.mapv(|v| v % period(law)));
    Array2::from_shape_fn((x.nrows(), z.nrows()), |(i, j)| (law.1)((&x.row(i) - &z.row(j)).as_slice().unwrap()))
}

/// The largest error of each way to a kernel matrix, against `want` for (X, X) and (X, Z).
fn errors<T: Real>(text: &str, x: &Array2<f64>, z: &Array2<f64>, want: [&Array2<f64>; 2]) -> Vec<(&'static str, f64)> {
    let kernel = kernel(text);
    let wide = |k: Array2<T>| k.mapv(|k| k.wide());
    let k = wide(gram::<T>(&kernel, x.view(), Cpu).unwrap());
    assert!(k.indexed_iter().all(|((i, j), v)| v.to_bits() == k[[j, i]].to_bits()), "{text} is not symmetric");
    let c = wide(gram_cross::<T>(&kernel, x.view(), z.view(), Cpu).unwrap());
    // Products with a few unit vectors are columns of the matrix.
    let units = |n: usize| Array2::from_shape_fn((n, 4), |(i, j)| if i == 3 + 40 * j { 1.0 } else { 0.0 });
    let columns = |k: &Array2<f64>| k.select(Axis(1), &[3, 43, 83, 123]);
    let operator = KernelOperator::new(&kernel, x.view(), T::PRECISION, Cpu).unwrap();
    let product = operator.apply(units(x.nrows()).view()).unwrap();
    let cross = cross_apply(&kernel, x.view(), z.view(), units(z.nrows()).view(), T::PRECISION, Cpu).unwrap();
    let (rows, some) = (Rng::new(1).sample(x.nrows(), 90), Rng::new(2).sample(x.nrows(), 80));
    let block = operator.block(&rows, &some).unwrap();
    vec![
        ("gram", worst(&k, want[0])),
        ("gram_cross", worst(&c, want[1])),
        ("apply", worst(&product, &columns(want[0]))),
        ("cross_apply", worst(&cross, &columns(want[1]))),
        ("block", worst(&block, &want[0].select(Axis(0), &rows).select(Axis(1), &some))),
    ]
}

#[test]
fn distances_keep_their_digits_at_every_scale() {
    for law in &LAWS {
        for (d, scale) in [(1, 1.0), (3, 0.0), (3, 1e3), (40, 1e3), (2, 1e4), (5, 1e6), (100, 1e6)] {
            let (x, z) = (clusters(420, d, scale, 1), clusters(400, d, scale, 1));
            let (k, c) = (by_law(law, &x, &x), by_law(law, &x, &z));
            let single = errors::<f32>(law.0, &x, &z, [&k, &c]).into_iter().map(|e| ("f32", e, allowed::<f32>()));
            let double = errors::<f64>(law.0, &x, &z, [&k, &c]).into_iter().map(|e| ("f64", e, allowed::<f64>()));
            for (precision, (way, error), allowed) in single.chain(double) {
                assert!(
                    error <= allowed,
                    "{} by {way} in {precision}, {d} columns at {scale}: off by {error:e}",
                    law.0
                );
            }
        }
    }
}

/// Squares of such coordinates overflow.
#[test]
fn distances_of_huge_points_are_finite() {
    let x = ndarray::array![[1.0, 0.0], [0.0, 2.0], [1.0, 0.0], [-3.0, 1.0]];
    for law in LAWS.iter().filter(|law| !law.0.contains("periodic")) {
        let want =
            Array2::from_shape_fn((4, 4), |(i, j)| if i == j || i + j == 2 && i != 1 { (law.1)(&[0.0]) } else { 0.0 });
        let single = gram::<f32>(&kernel(law.0), (&x * 1e25).view(), Cpu).unwrap().mapv(f64::from);
        let double = matrix(&kernel(law.0), (&x * 1e170).view());
        assert!(worst(&single, &want) < 1e-6 && worst(&double, &want) < 1e-15, "{}: {single} {double}", law.0);
    }
}

/// Beside a lengthscale whose square overflows, too, their distances are not known: no kernel takes them for infinite. What is no number is refused
/// wherever it is used.
#[test]
fn distances_of_huge_points_under_huge_lengthscales_are_no_numbers() {
    let x = ndarray::array![[1e155, 2e155], [3e155, -1e155], [0.0, 1e155]];
    for name in ["rbf", "matern12", "matern32", "matern52"] {
        let k = gram::<f64>(&kernel(&format!("{name}(2e155)")), x.view(), Cpu).unwrap();
        assert!(k.indexed_iter().all(|((i, j), k)| if i == j { *k == 1.0 } else { k.is_nan() }), "{name}: {k}");
    }
    let near = gram::<f64>(&kernel("matern12(2e155)"), ndarray::array![[1.0], [2.0]].view(), Cpu).unwrap();
    assert_eq!(near, Array2::<f64>::ones((2, 2)));
}

#[test]
fn a_matrix_of_far_clusters_stays_positive() {
    for law in &LAWS {
        for scale in [1e3, 1e4] {
            let x = clusters(300, 3, scale, 3);
            let k = gram::<f32>(&kernel(law.0), x.view(), Cpu).unwrap().mapv(f64::from);
            let (values, _) = eigh(Cpu, k.view()).unwrap();
            let least = values[values.len() - 1];
            assert!(least >= -300.0 * f64::from(f32::EPSILON), "{} at {scale}: eigenvalue {least:e}", law.0);
        }
    }
}

#[test]
fn a_spectrum_of_far_clusters_is_the_same_in_single_precision() {
    let (x, k) = (clusters(300, 2, 1e3, 4), kernel("rbf(1.3)"));
    let [single, double] = [Precision::F32, Precision::F64].map(|p| fit_in(p, &Exact, &k, x.view(), 6));
    same_eigenvalues(&single.eigenvalues, &double.eigenvalues, 1e-5, "f32 for f64");
}

/// 1/(1 + ‖x−x'‖²)
#[derive(Clone, Debug, PartialEq)]
struct Cauchy;

impl Formula for Cauchy {
    const NAME: &'static str = "cauchy";
    const HELP: &'static str = "1/(1 + ‖x−x'‖²)";
    const PARAMETERS: &'static [Parameter] = &[];
    const STATISTIC: Statistic = Statistic::SquaredDistance;
    fn eval<R: mercer::Num>(&self, pair: Pair<R>) -> R {
        R::of(1.0) / (R::of(1.0) + pair.s)
    }
}

#[test]
fn kernels_from_outside_keep_their_digits_too() {
    let x = clusters(400, 3, 1e4, 5);
    let want = by_law(&("", |t| 1.0 / (1.0 + l2(t).powi(2))), &x, &x);
    let own = Kernel::from_formula(Cauchy);
    let single = gram::<f32>(&own, x.view(), Cpu).unwrap().mapv(f64::from);
    assert!(worst(&single, &want) <= allowed::<f32>(), "off by {:e}", worst(&single, &want));
    let off = worst(&matrix(&own, x.view()), &want);
    assert!(off <= allowed::<f64>(), "off by {off:e}");
}

/// Points of which some are equal, in the two sets and within them.
fn with_duplicates(d: usize) -> (Array2<f64>, Array2<f64>) {
    let (mut x, mut z) = (bounded(450, d, 1), bounded(430, d, 2));
    for i in (5..430).step_by(9) {
        let duplicate = x.row(i - 5).to_owned();
        x.row_mut(i).assign(&duplicate);
        z.row_mut(430 - i).assign(&duplicate);
    }
    (x, z)
}

fn equal_points_have_the_diagonals_value<T: Real>(kernel: &Kernel) {
    let bits = |v: T| v.wide().to_bits();
    let (x, z) = with_duplicates(4);
    let equal = |a: &Array2<f64>, i: usize, b: &Array2<f64>, j: usize| a.row(i) == b.row(j);
    let k = gram::<T>(kernel, x.view(), Cpu).unwrap();
    for ((i, j), v) in k.indexed_iter().filter(|((i, j), _)| equal(&x, *i, &x, *j)) {
        assert_eq!(bits(*v), bits(k[[i, i]]), "{kernel} at {i}, {j}: {} for {}", v.wide(), k[[i, i]].wide());
    }
    let c = gram_cross::<T>(kernel, x.view(), z.view(), Cpu).unwrap();
    let mut duplicates = 0;
    for ((i, j), v) in c.indexed_iter().filter(|((i, j), _)| equal(&x, *i, &z, *j)) {
        assert_eq!(bits(*v), bits(k[[i, i]]), "{kernel} across at {i}, {j}: {} for {}", v.wide(), k[[i, i]].wide());
        duplicates += 1;
    }
    assert!(duplicates > 40, "the points have duplicates");
    let operator = KernelOperator::new(kernel, x.view(), T::PRECISION, Cpu).unwrap();
    let (block, diagonal) = (operator.block(&[0, 5, 14, 9], &[5, 0, 400]).unwrap(), operator.diagonal().unwrap());
    for (i, j, of) in [(0, 0, 0), (0, 1, 0), (1, 0, 5), (1, 1, 5)] {
        assert_eq!(block[[i, j]].to_bits(), diagonal[of].to_bits(), "{kernel}, block at {i}, {j}");
    }
    // The difference of the unit vectors of two equal points is in the kernel of K.
    let v =
        Array2::from_shape_fn((x.nrows(), 1), |(i, _)| [1.0, -1.0][usize::from(i == 5)] * f64::from(i == 0 || i == 5));
    let y = operator.apply(v.view()).unwrap();
    assert_eq!((y[[0, 0]], y[[5, 0]]), (0.0, 0.0), "{kernel}");
}

#[test]
fn equal_points_have_the_diagonals_value_to_the_bit() {
    let more =
        ["arccos(0)", "arccos(2)", "0.3*matern12 + 0.7*rbf*linear", "nngp(depth=2, act=erf)", "0.1*periodic + cosine"];
    for name in catalogue().iter().map(|entry| entry.name).chain(more) {
        equal_points_have_the_diagonals_value::<f32>(&kernel(name));
        equal_points_have_the_diagonals_value::<f64>(&kernel(name));
    }
}

#[test]
fn angles_do_not_depend_on_the_scale() {
    let x = normal(60, 4, 6);
    for (text, power) in [("cosine", 0), ("arccos(0)", 0), ("arccos(1)", 2), ("arccos(2)", 4)] {
        let kernel = kernel(text);
        let want = by_formula(&kernel, x.view(), x.view());
        for exponent in [-700, -540, -400, -60, -30, 30, 60, 250, 500] {
            // Powers of two: the scaled points are exact.
            let (scale, factor) = (2f64.powi(exponent), 2f64.powi(exponent * power));
            if factor == 0.0 || factor.is_infinite() || factor < 1e-290 {
                continue;
            }
            let far = &x * scale;
            let want = &want * factor;
            let what = format!("{text} at 2^{exponent}");
            let close = |got: &Array2<f64>, bound: f64| {
                assert!(
                    worst(got, &want) <= bound * largest(&want),
                    "{what}: off by {:e}",
                    worst(got, &want) / largest(&want)
                );
            };
            close(&by_formula(&kernel, far.view(), far.view()), 1e-14);
            close(&matrix(&kernel, far.view()), 1e-14);
            if (1e-30..1e30).contains(&factor) && (1e-30..1e30).contains(&scale) || power == 0 {
                let single = if text == "arccos(0)" { 2e-4 } else { 2e-6 };
                close(&gram::<f32>(&kernel, far.view(), Cpu).unwrap().mapv(f64::from), single);
            }
        }
    }
}

#[test]
fn the_origin_has_a_right_angle_with_every_point() {
    let x = ndarray::array![[0.0, 0.0], [3.0, 4.0], [0.0, -0.0]];
    let of = |text: &str| matrix(&kernel(text), x.view());
    assert_eq!(of("cosine"), ndarray::array![[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]);
    assert_eq!(of("arccos(0)"), ndarray::array![[0.5, 0.5, 0.5], [0.5, 1.0, 0.5], [0.5, 0.5, 0.5]]);
    let close = |got: Array2<f64>, own: f64| {
        let want = ndarray::array![[0.0, 0.0, 0.0], [0.0, own, 0.0], [0.0, 0.0, 0.0]];
        assert!(worst(&got, &want) <= 1e-14 * own, "{got}");
    };
    close(of("arccos(1)"), 25.0);
    close(of("arccos(2)"), 3.0 * 625.0);
}
