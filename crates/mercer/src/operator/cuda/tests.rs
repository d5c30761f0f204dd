//! Tests of the generated CUDA programs that need no GPU.

use super::launch::{Card, PAD, Tiling, columns_per_pass, padded, tensor_shape};
use super::program::{Kind, Program};
use super::zonal::Zonal;
use super::*;
use crate::compute::Activation;
use crate::kernel::infinite::{Expectations, Side};
use crate::kernel::{Kernel, Statistic, catalogue};
use crate::operator::tile::points::Plan;
use crate::rng::Rng;
use crate::simd::Num;
use crate::simd::source::{Listing, Source, Style, Variable, record};
use ndarray::{Array2, s};
use std::collections::HashMap;

/// Interprets the statements of a listing in f64.
fn interpret(body: &str, variables: &HashMap<String, f64>) -> f64 {
    let mut known = variables.clone();
    for line in body.lines().map(|line| line.trim().trim_end_matches(';')) {
        let read = |word: &str| match word.strip_prefix("(real)") {
            Some(number) => number.parse().unwrap(),
            None => known[word],
        };
        if let Some(word) = line.strip_prefix("return ") {
            return read(word);
        }
        let (name, value) = line.strip_prefix("const real ").unwrap().split_once(" = ").unwrap();
        let result = if let Some((function, arguments)) = value.strip_suffix(')').and_then(|v| v.split_once('('))
            && (function.starts_with("m_") || function.ends_with("_value") || function.ends_with("_slope"))
        {
            let a: Vec<f64> = arguments.split(", ").map(read).collect();
            match function {
                "m_exp" => a[0].exp(),
                "m_exp2" => a[0].exp2(),
                "m_ln" => a[0].ln(),
                "m_sqrt" => a[0].sqrt(),
                "m_rsqrt" => 1.0 / a[0].sqrt(),
                "m_recip" => 1.0 / a[0],
                "m_abs" => a[0].abs(),
                "m_sin" => a[0].sin(),
                "m_cos" => a[0].cos(),
                "m_asin" => a[0].asin(),
                "m_acos" => a[0].acos(),
                "m_erf" => Num::erf(a[0]),
                "m_tanh" => a[0].tanh(),
                "m_max" | "m_max_k" => Num::max(a[0], a[1]),
                "m_min" | "m_min_k" => Num::min(a[0], a[1]),
                "m_fma" => a[0] * a[1] + a[2],
                "m_gt" => Num::select_gt(a[0], a[1], a[2], a[3]),
                other => logistic(other, &a),
            }
        } else {
            match value.split(' ').collect::<Vec<_>>()[..] {
                [negated] => -read(negated.strip_prefix('-').unwrap()),
                [a, "+", b] => read(a) + read(b),
                [a, "-", b] => read(a) - read(b),
                [a, "*", b] => read(a) * read(b),
                [a, "/", b] => read(a) / read(b),
                _ => panic!("cannot read: {line}"),
            }
        };
        known.insert(name.into(), result);
    }
    panic!("no return in:\n{body}");
}

/// The device functions of tanh, sigmoid and softplus, by what the host has for them.
fn logistic(function: &str, a: &[f64]) -> f64 {
    let (phi, which) = function.split_once('_').unwrap_or_else(|| panic!("{function} is not in the prelude"));
    let (value, slope) = Activation::parse(phi).unwrap().dual(a[0], Side::of(a[1]), Side::of(a[2]));
    if which == "value" { value } else { slope }
}

/// Compares the generated function with the formula at two points.
fn check(expression: &str, x: &[f64], y: &[f64]) {
    let kernel = Kernel::parse(expression).unwrap();
    let want = kernel.value(x, y);
    let row = |v: &[f64]| ndarray::Array2::from_shape_vec((1, v.len()), v.to_vec()).unwrap();
    let plan = Plan::new(&kernel, row(x).view().into());
    let (a, b) = (plan.points::<f64>(row(x).view().into()), plan.points::<f64>(row(y).view().into()));
    let mut variables = HashMap::new();
    for (i, &(view, kind)) in plan.statistics.iter().enumerate() {
        let terms = a.views[view].x.iter().zip(&b.views[view].x);
        let s = terms.map(|(a, b)| if kind == Statistic::Dot { a * b } else { (a - b).abs() }).sum();
        variables.insert(format!("s{i}"), s);
        variables.insert(format!("xx{view}"), a.views[view].xx[0]);
        variables.insert(format!("yy{view}"), b.views[view].xx[0]);
    }
    for style in [Style::Exact, Style::Fast] {
        let body = kappa::listing(&plan, style).body();
        let got = interpret(&body, &variables);
        // A fast tile may replace the formula by a polynomial of the angle.
        let replaced = style == Style::Fast && kernel.bases().into_iter().any(|base| Zonal::of(base).is_some());
        let bound = if replaced { 2e-6 } else { 1e-12 };
        assert!(
            (got - want).abs() <= bound * (1.0 + want.abs()),
            "{expression} {style:?}: {got} is not {want}\n{body}"
        );
    }
}

#[test]
fn emitted_source_computes_the_formula() {
    let mut rng = Rng::new(0);
    let more = [
        "arccos(0)",
        "arccos(2)",
        "poly(7, 0.3, 0.1)",
        "0.5*rbf(2) + 3*poly(2)*laplacian(0.7)",
        "rbf(3)*periodic(2, 0.8)*linear + 0.1*periodic(2, 0.8)",
        "matern52(0.3) + 2*matern12",
        "ntk(depth=3, act=tanh, b_var=0.1)",
        "nngp(depth=2, act=sigmoid) + ntk(depth=4, act=softplus, lengthscale=2)",
        "arccos(1, [0.5, 1, 2])*linear([2, 1, 1])",
    ];
    for name in catalogue().iter().map(|entry| entry.name).chain(more) {
        for _ in 0..20 {
            let point: Vec<f64> = (0..6).map(|_| rng.normal()).collect();
            check(name, &point[..3], &point[3..]);
        }
        check(name, &[0.0; 3], &[1.0, 2.0, 3.0]);
        check(name, &[0.0; 3], &[0.0; 3]);
    }
}

fn fast_listing(expression: &str) -> Listing {
    let plan = Plan::new(&Kernel::parse(expression).unwrap(), (&ndarray::Array2::<f64>::zeros((1, 1))).into());
    kappa::listing(&plan, Style::Fast)
}

#[test]
fn a_gaussian_takes_seven_operations() {
    // Two of them, the multiples of the norms, are shared by a row and by a column.
    let listing = fast_listing("rbf(2)");
    let body = listing.body();
    assert_eq!(listing.operations(), 7, "{body}");
    assert!(body.contains("m_min_k") && body.contains("m_exp2") && !body.contains("m_exp("), "{body}");
}

#[test]
fn norms_of_a_cosine_are_inverted_separately() {
    let body = fast_listing("arccos(1)").body();
    assert!(!body.contains(" / ") && !body.contains("m_recip"), "{body}");
    assert_eq!(body.matches("m_rsqrt").count(), 2, "{body}");
}

/// The tangent kernel of three ReLU layers with weights of variance 2, as a function of `(x·x', ‖x‖², ‖x'‖²)`.
fn relu_ntk<R: Num>(s: R, xx: R, yy: R) -> R {
    let of = R::of;
    let (mut k, mut a, mut b) = (s * of(2.0), xx * of(2.0), yy * of(2.0));
    let mut theta = k;
    for _ in 0..3 {
        let (da, db) = (a.sqrt(), b.sqrt());
        let inverse = |d: R| of(1.0) / d.max(of(1e-30));
        let cos = (k * inverse(da) * inverse(db)).min(of(1.0)).max(of(-1.0));
        let angle = cos.acos();
        let sin = ((of(1.0) - cos) * (of(1.0) + cos)).sqrt();
        let bend = of(std::f64::consts::FRAC_2_PI) * (da * db * sin - angle * k);
        let slope = of(1.0) - of(std::f64::consts::FRAC_2_PI) * angle;
        theta = theta * (of(0.25) + of(0.25) * slope);
        k = of(2.0) * (of(0.25) * k + of(0.25) * (k + bend));
        (a, b) = (of(2.0) * (of(0.25) * a + of(0.25) * a), of(2.0) * (of(0.25) * b + of(0.25) * b));
        theta = k + of(2.0) * theta;
    }
    theta
}

#[test]
fn like_terms_of_a_tangent_kernel_are_combined() {
    let listing = record(Style::Fast, || {
        let variables = [Variable::Statistic(0), Variable::RowNorm(0), Variable::ColumnNorm(0)];
        let [s, xx, yy] = variables.map(Source::variable);
        relu_ntk(s, xx, yy)
    });
    let body = listing.body();
    // Counted by hand: 16 operations per layer (six of them become three fused ones), and 11 shared by the layers.
    assert_eq!(listing.operations(), 3 * 16 + 11, "{body}");
    let mut rng = Rng::new(1);
    for _ in 0..50 {
        let (xx, yy) = (rng.uniform() + 0.1, rng.uniform() + 0.1);
        let s = (xx * yy).sqrt() * (2.0 * rng.uniform() - 1.0);
        let at = [("s0", s), ("xx0", xx), ("yy0", yy)].map(|(name, x)| (name.to_string(), x));
        let (got, want) = (interpret(&body, &HashMap::from(at)), relu_ntk(s, xx, yy));
        assert!((got - want).abs() < 1e-12, "{got} is not {want}\n{body}");
    }
}

/// An A100.
const AMPERE: Card = Card { multiprocessors: 108, capability: 80, shared: 166_912 };
/// A T4.
const TURING: Card = Card { multiprocessors: 40, capability: 75, shared: 65_536 };

fn program(expression: &str, d: usize, arithmetic: Arithmetic, card: Card) -> Program {
    Program::for_kernel(&Kernel::parse(expression).unwrap(), d, arithmetic, card)
}

fn product(program: &Program, n: usize, m: usize, columns: usize) -> Tiling {
    program.tiling(Kind::Product { nc: columns_per_pass(columns) }, n, m)
}

#[test]
fn every_column_tile_is_in_one_split() {
    for (n, m) in [(1, 1), (100, 7), (5_000, 5_000), (65_536, 65_536), (1_000_000, 1_000_000), (512, 3_000_000)] {
        for arithmetic in [Arithmetic::Half, Arithmetic::Tf32, Arithmetic::Split, Arithmetic::F32, Arithmetic::F64] {
            for card in [Card::HOPPER, AMPERE, TURING] {
                for columns in [1, 16, 32] {
                    let program = program("rbf", 64, arithmetic, card);
                    let t = product(&program, n, m, columns);
                    let splits = t.splits();
                    assert!(t.tiles_per_split * splits >= t.tiles && t.tiles_per_split * (splits - 1) < t.tiles);
                    assert!(t.launch.shared as usize <= card.shared, "{arithmetic:?} {card:?} {t:?}");
                    assert!(program.partial_bytes(n, m, columns_per_pass(columns)) <= 1 << 30);
                    let rows = program.shape(columns_per_pass(columns)).rows;
                    assert_eq!(PAD % rows, 0);
                    assert!(t.launch.grid[0] as usize * rows <= padded(n) || t.launch.name == "simt");
                }
            }
        }
    }
}

#[test]
fn the_last_wave_is_nearly_full() {
    let t = product(&program("rbf", 64, Arithmetic::Tf32, Card::HOPPER), 65_536, 65_536, 16);
    let slots = 2 * Card::HOPPER.multiprocessors;
    let waves = (t.launch.grid[0] as usize * t.splits()).div_ceil(slots);
    let ideal = t.launch.grid[0] as f64 * t.tiles as f64 / slots as f64;
    assert!((waves * t.tiles_per_split) as f64 <= 1.04 * ideal, "{t:?}");
    assert_eq!(t.launch.block, 192);
}

#[test]
fn shared_memory_has_the_size_that_the_kernel_uses() {
    // Three stages of 64 points of 64+4 words, 64 norms, 16 rows of 64+4 values.
    let shape = tensor_shape(64, 16, Arithmetic::Tf32, Card::HOPPER);
    assert_eq!((shape.shared, shape.stages, shape.blocks), (3 * 4 * (64 * 68 + 64 + 16 * 68), 3, 2));
    // Points in f16 are half as large, without padding.
    for card in [Card::HOPPER, AMPERE] {
        let shape = tensor_shape(64, 16, Arithmetic::Half, card);
        assert_eq!(shape.shared, shape.stages * 4 * (64 * 32 + 64 + 16 * 68));
        assert_eq!(shape.group, card.capability == 90);
    }
    // Chunks of 32 coordinates of 256 + 64 points; two buffers of norms and values.
    let shape = tensor_shape(784, 16, Arithmetic::Tf32, Card::HOPPER);
    assert_eq!(shape.shared, 4 * (3 * (256 + 64) * 36 + 2 * (64 + 16 * 68)));
    let f64 = program("rbf", 64, Arithmetic::F64, Card::HOPPER);
    assert_eq!(product(&f64, 1000, 1000, 16).launch.shared, 8 * (4 * 8 * 68 + 64 * 68));
}

#[test]
fn passes_are_few_and_nearly_full() {
    let passes: Vec<usize> = [1, 8, 9, 16, 20, 32, 33, 64, 65].map(columns_per_pass).into();
    assert_eq!(passes, [8, 8, 16, 16, 24, 32, 24, 32, 24]);
}

#[test]
fn tensor_cores_are_used_only_where_possible() {
    use Arithmetic::{F32, F64, Half, Split, Tf32};
    let used = |expression, wanted, card| program(expression, 3, wanted, card).arithmetic;
    assert_eq!(used("rbf", Tf32, Card::HOPPER), Tf32);
    assert_eq!(used("rbf", Half, Card::HOPPER), Half);
    assert_eq!(used("rbf", Half, TURING), F32);
    assert_eq!(used("laplacian", Half, Card::HOPPER), F32);
    assert_eq!(used("rbf*poly", Split, Card::HOPPER), Split);
    assert_eq!(used("rbf", Split, TURING), F32);
    assert_eq!(used("laplacian", Tf32, Card::HOPPER), F32);
    assert_eq!(used("rbf + periodic", F64, Card::HOPPER), F64);
}

#[test]
fn points_are_f16_unless_they_are_wide_or_far_from_each_other() {
    let used = |expression: &str, x: &Array2<f64>| {
        let kernel = Kernel::parse(expression).unwrap();
        Program::new(&kernel, x.into(), None, Precision::Tf32.into(), Card::HOPPER).arithmetic
    };
    let mut rng = Rng::new(4);
    let mut near = rng.normals((50, 20));
    assert_eq!([used("rbf(2)", &near), used("linear", &near)], [Arithmetic::Half; 2]);
    let wide = Array2::from_shape_simple_fn((5, 600), || 0.1 * rng.normal());
    assert_eq!(used("rbf(2)", &wide), Arithmetic::Tf32);
    near.row_mut(7).mapv_inplace(|v| 1e-10 * v);
    // The kernel sees a difference of its centre to the others, or the small point itself.
    assert_eq!([used("rbf(2)", &near), used("linear", &near)], [Arithmetic::Half, Arithmetic::Tf32]);
    near.row_mut(9).fill(300.0);
    assert_eq!(used("rbf(2)", &near), Arithmetic::Tf32);
}

#[test]
fn networks_of_images_run_on_a_gpu_unless_they_are_large() {
    let runs = |expression: &str| compiles(&Kernel::parse(expression).unwrap());
    assert!(runs("ntk('conv(3) relu conv(3) relu gap dense', shape=32x32x3)"));
    assert!(runs("2*nngp('conv(5, stride=2) gelu res(conv(3)) flatten dense erf dense', shape=28x28x1)"));
    assert!(runs("ntk('conv(3) relu gap dense', shape=8x8x1)*nngp('conv(3) relu flatten dense', shape=8x8x1)"));
    assert!(runs("ntk('conv(3) relu avgpool(2) conv(3) relu gap dense', shape=32x32x3)"));
    assert!(!runs("ntk('conv(3) relu gap dense', shape=33x32x3)"));
    assert!(!runs("ntk('conv(3) relu gap dense', shape=8x8x1) + rbf(1)"));
}

#[test]
fn kernels_with_a_lengthscale_for_each_column_run_on_a_gpu() {
    assert!(compiles(&Kernel::parse("rbf([1, 2, 3])*linear").unwrap()));
    for entry in catalogue() {
        assert!(compiles(&Kernel::parse(&format!("{}(lengthscale=[1, 2, 3])", entry.name)).unwrap()), "{}", entry.name);
    }
}

#[test]
fn deep_networks_of_every_activation_run_on_a_gpu() {
    // Some need parameters, and one has no kernel.
    let kernels: Vec<Kernel> =
        Activation::NAMES.iter().filter_map(|name| Kernel::parse(&format!("ntk(depth=8, act={name})")).ok()).collect();
    assert!(kernels.len() > 15, "{}", kernels.len());
    kernels.iter().for_each(|kernel| assert!(compiles(kernel), "{kernel}"));
    assert!(compiles(&Kernel::parse("ntk('conv(3) tanh conv(3) softplus gap dense', shape=8x8x1)").unwrap()));
}

#[test]
fn patches_of_images_fit_into_shared_memory() {
    use crate::operator::images::Images;
    use image_source::PairSource;
    let kernel = Kernel::parse("ntk('conv(3) res(relu conv(3)) relu gap dense', shape=32x32x3)").unwrap();
    let (network, ntk) = kernel.bases()[0].network().unwrap();
    for card in [Card::HOPPER, AMPERE, TURING] {
        for arithmetic in [Arithmetic::F32, Arithmetic::F64] {
            let source = PairSource::new(&Images::new(network, ntk), arithmetic, card).unwrap();
            let launch = source.launch(3, 100);
            // Two patches of 32×32 pairs (K, Θ) and two sums for each warp.
            let each = 2 * 32 * 32 * 2 * arithmetic.bytes() + 16;
            assert_eq!(launch.shared as usize, launch.block as usize / 32 * each);
            assert!(launch.shared as usize <= card.shared && launch.grid == [100, 3], "{launch:?}");
        }
    }
}

#[test]
fn cuda_sources_have_unique_names() {
    let all = sources();
    let names: std::collections::HashSet<&String> = all.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), all.len());
}

/// Raw points are what the plan makes of all points at once, whatever number of them is packed together; equal points have one name.
#[test]
fn raw_points_are_those_of_the_plan() {
    let mut near = Rng::new(4).normals((2500, 3));
    let duplicate = near.row(7).to_owned();
    near.row_mut(2101).assign(&duplicate);
    let far = Array2::from_shape_fn((2500, 3), |(i, j)| near[[i, j]] + 3e7 * (i % 3) as f64);
    let cases = [
        ("rbf(1.3)", &near, Arithmetic::Tf32),
        ("periodic(2, 0.7)*rbf + laplacian", &near, Arithmetic::F64),
        ("rbf(1.3)", &far, Arithmetic::F64),
        ("rbf(1.3)", &far, Arithmetic::Split),
    ];
    for (expression, x, arithmetic) in cases {
        let kernel = Kernel::parse(expression).unwrap();
        let program = Program::new(&kernel, x.into(), None, arithmetic, Card::HOPPER);
        let (raw, points) = (program.pack::<f64>(x.into()), program.plan.points::<f64>(x.into()));
        assert_eq!(raw.dim(), (2500, program.source_width()), "{expression}");
        for (view, place) in points.views.iter().zip(&program.views) {
            let columns = place.source_first..place.source_first + view.x.ncols();
            assert_eq!(raw.slice(s![.., columns.clone()]), view.x, "{expression}");
            if program.low_first() > 0 {
                let low = program.low_first() + columns.start..program.low_first() + columns.end;
                let (low, zero) = (raw.slice(s![.., low]), view.low.is_empty());
                assert!(if zero { low.iter().all(|v| *v == 0.0) } else { low == view.low }, "{expression}");
            }
        }
        let name = |i: usize| raw[[i, program.source_width() - 1]];
        assert!(program.has_duplicates() && name(7) > 0.0 && name(7) == name(2101) && name(8) == 0.0, "{expression}");
        if program.single() {
            assert_eq!(program.pack::<f32>(x.into()), raw.mapv(|v| v as f32), "{expression}");
        }
    }
}
