//! Every function against the f64 oracle on a dense grid, at every instruction set of the machine.

use super::*;

const LEVELS: [Level; 3] = [Level::Baseline, Level::Avx2, Level::Avx512];

/// A function of [`Num`] under test.
trait Function: Copy {
    fn at<T: Num>(x: T) -> T;
}

struct Map<'a, T, F>(&'a mut [T], F);

macro_rules! map {
    ($($t:ty)*) => {$(
        impl<F: Function> SimdJob for Map<'_, $t, F> {
            type Output = ();
            #[inline(always)]
            fn run<const FMA: bool>(self) {
                for x in self.0 {
                    *x = F::at(Lane::<$t, FMA>(*x)).0;
                }
            }
        }
    )*};
}
map!(f32 f64);

macro_rules! functions {
    ($($name:ident = |$x:ident| $body:expr;)*) => {$(
        #[derive(Clone, Copy)]
        struct $name;
        impl Function for $name {
            #[inline(always)]
            fn at<T: Num>($x: T) -> T { $body }
        }
    )*};
}

functions! {
    Exp = |x| x.exp();
    Ln = |x| x.ln();
    Sqrt = |x| x.sqrt();
    Sin = |x| x.sin();
    Cos = |x| x.cos();
    Asin = |x| x.asin();
    Acos = |x| x.acos();
    Angle = |x| x.angle().0;
    Bracket = |x| x.angle().1;
    Erf = |x| x.erf();
    Tanh = |x| x.tanh();
    Cube = |x| x.powi(3);
    Power63 = |x| x.powi(63);
    Clamp = |x| x.max(T::of(-1.0)).min(T::of(1.0));
    Relu = |x| T::select_gt(x, T::of(0.0), x, T::of(0.0));
}

/// Equidistant points of [a, b] with both ends, and the same mirrored through logarithmic spacing near zero.
fn grid(a: f64, b: f64) -> Vec<f64> {
    let n = 100_003;
    let mut points: Vec<f64> = (0..n).map(|i| a + (b - a) * i as f64 / (n - 1) as f64).collect();
    let tiny = (0..2000).map(|i| 10f64.powf(-30.0 + 0.015 * i as f64));
    points.extend(tiny.flat_map(|t| [t, -t]).filter(|t| (a..=b).contains(t)));
    points
}

/// Checks `|f(x) − oracle| ≤ tolerance · max(|oracle|, floor)` in both widths at every level.
fn check<F: Function>(f: F, (a, b): (f64, f64), floor: f64, tol32: f64, tol64: f64) {
    let agree = |width: &str, level: Level, x: f64, y: f64, want: f64, tolerance: f64| {
        let (name, error) = (std::any::type_name::<F>(), (y - want).abs() / want.abs().max(floor));
        assert!(error <= tolerance || y == want, "{name} {width} {level:?}: {x} -> {y}, not {want}: {error:e}");
    };
    let x64 = grid(a, b);
    let x32: Vec<f32> = x64.iter().map(|&x| x as f32).collect();
    for level in LEVELS {
        let (mut y32, mut y64) = (x32.clone(), x64.clone());
        dispatch_at(level, Map(&mut y32, f));
        dispatch_at(level, Map(&mut y64, f));
        for (&x, &y) in x32.iter().zip(&y32) {
            let want = F::at(f64::from(x));
            if want.abs() < f64::from(f32::MAX) && (want == 0.0 || want.abs() > 1e-37) {
                agree("f32", level, f64::from(x), f64::from(y), want, tol32);
            }
        }
        x64.iter().zip(&y64).for_each(|(&x, &y)| agree("f64", level, x, y, F::at(x), tol64));
    }
}

#[test]
fn functions_are_accurate() {
    check(Exp, (-86.0, 88.7), 0.0, 2e-7, 1e-15);
    check(Exp, (-1.0, 1.0), 0.0, 1.5e-7, 5e-16);
    check(Ln, (1e-6, 30.0), 0.0, 2e-7, 1e-15);
    check(Ln, (0.5, 2.0), 0.0, 3e-7, 1e-15);
    check(Ln, (1e-3, 1e30), 0.0, 2e-7, 1e-15);
    // Sine and cosine are accurate in absolute terms.
    for width in [4.0, 100.0, 1e4] {
        check(Sin, (-width, width), 1.0, 1.5e-7, 1e-15);
        check(Cos, (-width, width), 1.0, 1.5e-7, 1e-15);
    }
    check(Sin, (-0.7, 0.7), 0.0, 2e-7, 1e-15);
    check(Asin, (-1.0, 1.0), 0.0, 3e-7, 1e-15);
    check(Acos, (-1.0, 0.9999), 0.0, 3e-7, 1e-15);
    check(Angle, (-1.0, 0.9999), 0.0, 3e-7, 1e-15);
    check(Bracket, (-1.0, 0.5), 0.0, 3e-7, 2e-14);
    // The bracket is θ³/3 at small angles: in f32 it keeps its digits, in f64 it cancels from terms of the size of θ.
    check(Bracket, (0.5, 0.9999), 0.0, 3e-7, 1e-11);
    check(Erf, (-7.0, 7.0), 0.0, 5e-7, 1e-12);
    check(Tanh, (-25.0, 25.0), 0.0, 4e-7, 1e-15);
    check(Tanh, (-0.5, 0.5), 0.0, 4e-7, 1e-15);
    check(Sqrt, (0.0, 9.0), 0.0, 1e-7, 1e-15);
    check(Cube, (-3.0, 3.0), 0.0, 3e-7, 1e-15);
    check(Power63, (0.8, 1.5), 0.0, 2e-5, 4e-14);
    check(Clamp, (-3.0, 3.0), 0.0, 0.0, 0.0);
    check(Relu, (-3.0, 3.0), 0.0, 0.0, 0.0);
}

/// `f` at one f32 and the same f64, at every level.
fn at<F: Function>(f: F, x: f64) -> Vec<f64> {
    let both = |level| {
        let (mut a, mut b) = ([x as f32], [x]);
        dispatch_at(level, Map(&mut a, f));
        dispatch_at(level, Map(&mut b, f));
        [f64::from(a[0]), b[0]]
    };
    LEVELS.into_iter().flat_map(both).collect()
}

#[test]
fn edges_are_exact() {
    fn exact<F: Function>(f: F, cases: &[(f64, f64)]) {
        for &(x, want) in cases {
            let values = at(f, x);
            assert!(values.iter().all(|&y| y == want), "{} of {x}: {values:?}", std::any::type_name::<F>());
        }
    }
    const INFINITY: f64 = f64::INFINITY;
    exact(Exp, &[(0.0, 1.0), (-0.0, 1.0), (-1e4, 0.0), (-1e30, 0.0), (-INFINITY, 0.0)]);
    exact(Exp, &[(1e4, INFINITY), (INFINITY, INFINITY)]);
    exact(Ln, &[(1.0, 0.0), (0.0, -INFINITY), (INFINITY, INFINITY)]);
    exact(Acos, &[(1.0, 0.0)]);
    exact(Sin, &[(0.0, 0.0)]);
    exact(Cos, &[(0.0, 1.0)]);
    exact(Erf, &[(0.0, 0.0), (40.0, 1.0), (-INFINITY, -1.0)]);
    exact(Tanh, &[(0.0, 0.0), (-1e9, -1.0)]);
    assert!(at(Ln, -1.0).iter().all(|y| y.is_nan()));
    // Beyond the ends by rounding.
    assert_eq!((Lane::<f32, true>(1.000_000_1).angle(), 1.000_000_1.angle()), ((Lane(0.0), Lane(0.0)), (0.0, 0.0)));
}

#[test]
fn no_result_is_subnormal() {
    for i in 0..20_000 {
        let x = -80.0 - 1e-3 * i as f64;
        let mut y = [x as f32];
        dispatch(Map(&mut y, Exp));
        assert!(y[0] == 0.0 || y[0].is_normal(), "exp({x}) = {:e}", y[0]);
    }
}

#[test]
fn nan_stays_nan() {
    macro_rules! stays {
        ($($f:ident)*) => {$(assert!(at($f, f64::NAN).iter().all(|y| y.is_nan()), stringify!($f));)*};
    }
    stays!(Exp Ln Sin Cos Asin Acos Erf Tanh Clamp Cube);
}

#[test]
fn large_angles_stay_bounded() {
    for x in [1e6, 1e9, -3e20, f64::from(f32::MAX)] {
        assert!(at(Sin, x).iter().chain(&at(Cos, x)).all(|y| y.abs() <= 1.0), "{x}");
    }
}

/// The derivative of every function by dual numbers, against its central difference.
#[test]
fn dual_numbers_differentiate() {
    fn check<F: Function>(_: F, name: &str, points: &[f64]) {
        for &x in points {
            let at = F::at(Dual { value: x, slope: 1.0 });
            let h = 1e-5;
            let difference = (F::at(x + h) - F::at(x - h)) / (2.0 * h);
            assert!((at.value - F::at(x)).abs() <= 1e-15 * F::at(x).abs(), "{name} at {x}");
            assert!((at.slope - difference).abs() < 1e-7 * (1.0 + difference.abs()), "{name} at {x}: {at:?}");
        }
    }
    functions! {
        Quotient = |x| (x * x + T::of(1.0)) / (x - T::of(3.0));
        Fused = |x| x.mul_add(x.abs(), -x);
    }
    let (inside, above) = ([-0.9, -0.3, 0.2, 0.7], [0.3, 1.5, 4.0]);
    check(Exp, "exp", &inside);
    check(Ln, "ln", &above);
    check(Sqrt, "sqrt", &above);
    check(Sin, "sin", &inside);
    check(Cos, "cos", &inside);
    check(Asin, "asin", &inside);
    check(Acos, "acos", &inside);
    check(Bracket, "sin θ − θ cos θ", &inside);
    check(Erf, "erf", &inside);
    check(Tanh, "tanh", &inside);
    check(Cube, "cube", &inside);
    check(Clamp, "clamp", &[-4.0, -0.5, 0.5, 2.0]);
    check(Relu, "relu", &[-0.5, 0.5]);
    check(Quotient, "quotient", &inside);
    check(Fused, "fused", &inside);
}
