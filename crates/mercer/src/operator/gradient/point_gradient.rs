//! Derivatives with respect to a point: `∇_x Σ_i κ(x, z_i) a_i`.

use crate::kernel::{Base, Formula, Kernel, Lift, Pair, Statistic, with_formula};
use crate::linalg::matmul;
use crate::operator::Budget;
use crate::operator::gradient::{l1_distances, slopes, squared_distances};
use crate::operator::tile::workspace::ranges;
use crate::simd::{Dual, Num};
use crate::{Error, Result};
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis, Zip, s};
use rayon::prelude::*;

/// Points whose gradients are computed together.
const ROWS: usize = 128;

/// Blocks of points between two sums: enough for every thread, however many there are.
const BLOCKS: usize = 16;

/// Two points are one, or on one ray from the origin, where their distance or the sine of their angle, squared, is below this: it is lost
/// in the rounding of `x·x'`.
const TOGETHER: f64 = 1e-12;

/// The functions `f_c(x) = Σ_i κ(x, z_i) a_ic`.
pub(crate) struct Combination<'a> {
    /// κ
    pub kernel: &'a Kernel,
    /// z `[m, d]`
    pub centres: ArrayView2<'a, f64>,
    /// a `[m, C]`
    pub coefficients: ArrayView2<'a, f64>,
}

impl Base {
    /// The derivative of the kernel along the slopes of `pair`. Compiled once, as [`Base::eval`]: the formulas of networks are long.
    #[inline(never)]
    fn slope(&self, pair: Pair<Dual<f64>>) -> f64 {
        with_formula!(self, formula => formula.eval(pair)).slope
    }
}

/// The part of a lift that is no factor on each column: what becomes of the statistic and the norms of two points.
#[derive(Clone, Copy)]
enum Division {
    /// By nothing.
    None,
    /// By the norms.
    Norms,
    /// By the roots of the norms.
    Roots,
}

impl Division {
    /// What a formula of products sees of two points of which `pair` is known.
    fn of<R: Num>(self, pair: Pair<R>) -> Pair<R> {
        let (Pair { s, xx, yy }, one) = (pair, R::of(1.0));
        let over = |s: R, by: R| R::select_gt(by, R::of(0.0), s / by, by);
        let norms = |pair: Pair<R>| (pair.xx * pair.yy).sqrt();
        match self {
            Division::None => pair,
            Division::Roots => Pair { s: over(s, norms(pair).sqrt()), xx: xx.sqrt(), yy: yy.sqrt() },
            Division::Norms => {
                let unit = |square: R| R::select_gt(square, R::of(0.0), one, square);
                Pair { s: over(s, norms(pair)), xx: unit(xx), yy: unit(yy) }
            }
        }
    }
}

/// The lift of points of d columns in two parts that can be differentiated: the factor on each column `[d]`, and a division by norms.
fn parts_of_lift(base: &Base, d: usize) -> Result<(Array1<f64>, Division)> {
    let refused = || {
        Error::input(format!(
            "the kernel {base} is not differentiated by its points; use rbf, laplacian, matern12, matern32, matern52, linear, poly, \
             expdot, cosine, arccos, ntk or nngp of vectors"
        ))
    };
    let ones = Array2::ones((1, d));
    let divided = || match base.divisors(d) {
        Some(each) => 1.0 / &ArrayView1::from(&*each),
        None => Array1::ones(d),
    };
    let of_product = base.statistic() == Statistic::Dot;
    match base.lift_of(d) {
        // A formula from outside has no derivative, and images are no vectors.
        _ if matches!(base, Base::Custom(_)) || base.statistic() == Statistic::Images => Err(refused()),
        Lift::Itself | Lift::Over(_) => {
            Ok((base.lift(ones.view()).unwrap_or(ones).remove_axis(Axis(0)), Division::None))
        }
        Lift::OverNorm if of_product => Ok((divided(), Division::Norms)),
        Lift::OverRootOfNorm if of_product => Ok((divided(), Division::Roots)),
        Lift::OverNorm | Lift::OverRootOfNorm | Lift::Circles(_) => Err(refused()),
    }
}

/// What a base kernel sees of the centres.
pub(crate) struct Leaf<'a> {
    base: &'a Base,
    /// By which the columns are multiplied `[d]`.
    factors: Array1<f64>,
    division: Division,
    /// Subtracted from the points, for kernels of a distance `[d]`.
    shift: Array1<f64>,
    /// `[m, d]`
    z: Array2<f64>,
    /// `‖z‖²` `[m]`
    zz: Vec<f64>,
}

impl<'a> Leaf<'a> {
    pub fn new(base: &'a Base, centres: ArrayView2<f64>) -> Result<Leaf<'a>> {
        let d = centres.ncols();
        let (factors, division) = parts_of_lift(base, d)?;
        let shift = match base.statistic() {
            Statistic::Dot | Statistic::Images => Array1::zeros(d),
            Statistic::SquaredDistance | Statistic::L1 => {
                centres.mean_axis(Axis(0)).unwrap_or_else(|| Array1::zeros(d))
            }
        };
        let z = (&centres - &shift) * &factors;
        let zz = squares(z.view());
        Ok(Leaf { base, factors, division, shift, z, zz })
    }

    /// Points `[b, d]` as the formula sees them, and their statistic with the centres `[b, m]`.
    pub fn see(&self, x: ArrayView2<f64>) -> Seen {
        let z = (&x - &self.shift) * &self.factors;
        let zz = squares(z.view());
        let mut s = match self.base.statistic() {
            Statistic::L1 => l1_distances(z.view(), self.z.view()),
            Statistic::SquaredDistance => squared_distances(z.view(), self.z.view(), &zz, &self.zz),
            Statistic::Dot | Statistic::Images => matmul(z.view(), self.z.t()),
        };
        if self.base.statistic() == Statistic::SquaredDistance {
            s.indexed_iter_mut()
                .for_each(|((j, i), s)| *s = if *s < TOGETHER * (zz[j] + self.zz[i]) { 0.0 } else { *s });
        }
        Seen { z, zz, s }
    }

    /// `Σ_i a_ic w_ji ∇_x κ(x_j, z_i)` `[b, d]` for each c, for weights `w` `[b, m]`.
    pub fn gradients(&self, seen: &mut Seen, mut w: Array2<f64>, a: ArrayView2<f64>) -> Vec<Array2<f64>> {
        match self.base.statistic() {
            // ∇κ = κ'(s) sign(x − z)
            Statistic::L1 => {
                slopes(self.base, &mut seen.s, &mut w);
                let one = |a: ArrayView1<f64>| signs(seen.z.view(), self.z.view(), (&w * &a).view()) * &self.factors;
                a.columns().into_iter().map(one).collect()
            }
            // ∇κ = 2κ'(s)(x − z)
            Statistic::SquaredDistance => {
                slopes(self.base, &mut seen.s, &mut w);
                w *= 2.0;
                self.combined(seen, w.view(), (-&w).view(), a)
            }
            Statistic::Dot | Statistic::Images => {
                let (own, other) = self.slopes_of_product(seen, w);
                self.combined(seen, own.view(), other.view(), a)
            }
        }
    }

    /// `Σ_i a_ic (own_ji x_j + other_ji z_i)`, back through the factors of the columns.
    fn combined(
        &self,
        seen: &Seen,
        own: ArrayView2<f64>,
        other: ArrayView2<f64>,
        a: ArrayView2<f64>,
    ) -> Vec<Array2<f64>> {
        let sums = matmul(own, a);
        let one = |(a, sums): (ArrayView1<f64>, ArrayView1<f64>)| {
            let of_centres = matmul((&other * &a).view(), self.z.view());
            (of_centres + &seen.z * &sums.insert_axis(Axis(1))) * &self.factors
        };
        a.columns().into_iter().zip(sums.columns()).map(one).collect()
    }

    /// The factors of x and z in `∇_x κ(x·z, ‖x‖², ‖z‖²) = 2 ∂κ/∂‖x‖² x + ∂κ/∂(x·z) z`, times the weights `w` `[b, m]`.
    ///
    /// Where z lies on the line through x, a kernel of the angle may have a kink. The mean of its slopes over all directions is that along
    /// the line, `∂κ(tx, z)/∂t / ‖x‖² x`, which is also the gradient where there is no kink. It is taken at two small angles, one twice the other, and
    /// extrapolated to none: with a kink, the difference is in proportion to the angle.
    fn slopes_of_product(&self, seen: &Seen, w: Array2<f64>) -> (Array2<f64>, Array2<f64>) {
        let (mut own, mut other) = (w.clone(), w);
        let places = Zip::indexed(&mut own).and(&mut other).and(&seen.s);
        places.for_each(|(j, i), own, other, &s| {
            let (xx, zz) = (seen.zz[j], self.zz[i]);
            let slope = |s: f64, ds: f64, dxx: f64| {
                let dual = |value: f64, slope: f64| Dual { value, slope };
                self.base.slope(self.division.of(Pair { s: dual(s, ds), xx: dual(xx, dxx), yy: dual(zz, 0.0) }))
            };
            let (of_own, of_other) = if xx * zz - s * s <= TOGETHER * xx * zz {
                // A little beside the line, where every formula has a slope.
                let beside = |sine: f64| {
                    let s = (xx * zz).sqrt().copysign(s) * (1.0 - 0.5 * sine);
                    slope(s, s, 2.0 * xx) / xx
                };
                (2.0 * beside(TOGETHER) - beside(4.0 * TOGETHER), 0.0)
            } else {
                (2.0 * slope(s, 0.0, 1.0), slope(s, 1.0, 0.0))
            };
            // At the origin a kernel of the angle has no slope.
            let finite = of_own.is_finite() && of_other.is_finite();
            *own *= if finite { of_own } else { 0.0 };
            *other *= if finite { of_other } else { 0.0 };
        });
        (own, other)
    }
}

/// What a base kernel sees of some points.
pub(crate) struct Seen {
    /// `[b, d]`
    z: Array2<f64>,
    /// `‖z‖²` `[b]`
    zz: Vec<f64>,
    /// The statistic `[b, m]`.
    s: Array2<f64>,
}

impl Combination<'_> {
    /// Refuses memory that is not there for the gradients of C functions of `m` centres in `d` columns.
    pub fn require(budget: &Budget, m: usize, d: usize) -> Result<()> {
        let (m, d, rows) = (m as u64, d as u64, (ROWS * BLOCKS) as u64);
        let needed = 8 * (rows * (5 * m + 3 * d) + 2 * m * d + 3 * d * d);
        budget.require(format!("the gradients of functions with {m} centres"), needed, "use fewer landmarks")
    }

    /// `(1/n) Σ_j Σ_c ∇f_c(x_j) ∇f_c(x_j)ᵀ` `[d, d]` over points `x` `[n, d]`.
    pub fn gradient_outer_product(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        let d = x.ncols();
        let leaves = self.leaves()?;
        let mut sum = Array2::zeros((d, d));
        for blocks in ranges(x.nrows(), ROWS).chunks(BLOCKS) {
            let block = |rows: &std::ops::Range<usize>| self.block(&leaves, x.slice(s![rows.clone(), ..]));
            let parts: Vec<Vec<Array2<f64>>> = blocks.par_iter().map(block).collect();
            // In their order, whatever the number of threads.
            parts.iter().flatten().for_each(|g| sum += &matmul(g.t(), g.view()));
        }
        Ok(sum / x.nrows().max(1) as f64)
    }

    fn leaves(&self) -> Result<Vec<Leaf<'_>>> {
        self.kernel.bases().into_iter().map(|base| Leaf::new(base, self.centres)).collect()
    }

    /// `∇f_c` `[b, d]` at points `[b, d]`, for each c.
    fn block(&self, leaves: &[Leaf], x: ArrayView2<f64>) -> Vec<Array2<f64>> {
        let mut seen: Vec<Seen> = leaves.iter().map(|leaf| leaf.see(x)).collect();
        let weights: Vec<Array2<f64>> = (0..leaves.len()).map(|l| self.share(leaves, &seen, l)).collect();
        let mut sum = vec![Array2::zeros(x.dim()); self.coefficients.ncols()];
        for ((leaf, seen), w) in leaves.iter().zip(&mut seen).zip(weights) {
            let of_leaf = leaf.gradients(seen, w, self.coefficients);
            sum.iter_mut().zip(of_leaf).for_each(|(sum, part)| *sum += &part);
        }
        sum
    }

    /// The derivative of the expression with respect to its base kernel number `l`, `[b, m]`.
    fn share(&self, leaves: &[Leaf], seen: &[Seen], l: usize) -> Array2<f64> {
        let slope = |value: &dyn Fn(usize) -> f64| {
            let mut next = 0;
            let combined = self.kernel.combine(&mut |_| {
                next += 1;
                Dual { value: value(next - 1), slope: if next - 1 == l { 1.0 } else { 0.0 } }
            });
            combined.slope
        };
        if let [one] = seen {
            return Array2::from_elem(one.s.dim(), slope(&|_| 1.0));
        }
        Array2::from_shape_fn(seen[l].s.dim(), |(j, i)| {
            slope(&|k| {
                let (leaf, seen) = (&leaves[k], &seen[k]);
                leaf.base.eval(leaf.division.of(Pair { s: seen.s[[j, i]], xx: seen.zz[j], yy: leaf.zz[i] }))
            })
        })
    }
}

/// `Σ_i w_ji sign(x_jk − z_ik)` `[b, d]` for points `[b, d]` and `[m, d]`.
fn signs(x: ArrayView2<f64>, z: ArrayView2<f64>, w: ArrayView2<f64>) -> Array2<f64> {
    let mut out = Array2::zeros(x.dim());
    for ((mut out, x), w) in out.rows_mut().into_iter().zip(x.rows()).zip(w.rows()) {
        for (z, &w) in z.rows().into_iter().zip(w) {
            Zip::from(&mut out).and(x).and(z).for_each(|out, x, z| {
                *out += if x > z { w } else { 0.0 } - if x < z { w } else { 0.0 };
            });
        }
    }
    out
}

/// `‖z_i‖²` `[n]` of points `[n, d]`.
fn squares(z: ArrayView2<f64>) -> Vec<f64> {
    z.rows().into_iter().map(|row| row.dot(&row)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::catalogue;
    use crate::rng::Rng;

    fn normal(n: usize, d: usize, seed: u64) -> Array2<f64> {
        Rng::new(seed).normals((n, d))
    }

    /// `∇f_c` at x by central differences of the oracle.
    fn differences(f: &Combination, x: ArrayView1<f64>, c: usize) -> Array1<f64> {
        let value = |x: &[f64]| -> f64 {
            let terms = f.centres.rows().into_iter().zip(f.coefficients.column(c));
            terms.map(|(z, a)| a * f.kernel.value(x, &z.to_vec())).sum()
        };
        let h = 1e-6;
        (0..x.len())
            .map(|k| {
                let at = |step: f64| {
                    let mut x = x.to_vec();
                    x[k] += step;
                    value(&x)
                };
                (at(h) - at(-h)) / (2.0 * h)
            })
            .collect()
    }

    /// A new kernel has the right gradient, or says that it has none.
    #[test]
    fn gradients_of_the_catalogue_are_differences_or_refused() {
        let (x, z, a) = (normal(5, 3, 1), normal(7, 3, 2), normal(7, 2, 3));
        let mut refused = vec![];
        for name in catalogue().into_iter().map(|entry| entry.name) {
            let kernel = Kernel::parse(name).unwrap();
            let f = Combination { kernel: &kernel, centres: z.view(), coefficients: a.view() };
            match f.leaves() {
                Ok(leaves) => {
                    check_gradients(name, &f, &f.block(&leaves, x.view()), x.view());
                }
                Err(error) => {
                    assert!(
                        error.to_string().contains(&format!("the kernel {kernel} is not differentiated")),
                        "{error}"
                    );
                    refused.push(name);
                }
            }
        }
        assert_eq!(refused, ["periodic"]);
    }

    /// Compares the gradients `got` `[b, d]` of each function at points x with differences; returns the sum of their outer products.
    fn check_gradients(text: &str, f: &Combination, got: &[Array2<f64>], x: ArrayView2<f64>) -> Array2<f64> {
        let mut outer = Array2::<f64>::zeros((x.ncols(), x.ncols()));
        for (c, got) in got.iter().enumerate() {
            for (x, got) in x.rows().into_iter().zip(got.rows()) {
                let want = differences(f, x, c);
                let (scale, off) = (want.dot(&want).sqrt(), (&want - &got).mapv(f64::abs).sum());
                assert!(off < 2e-6 * scale.max(1.0), "{text}, function {c}: {got} for {want}");
                let column = want.view().insert_axis(Axis(1));
                outer += &column.dot(&column.t());
            }
        }
        outer
    }

    #[test]
    fn gradients_are_the_differences_of_every_kernel() {
        let (x, z, a) = (normal(5, 3, 1), normal(7, 3, 2), normal(7, 2, 3));
        for text in [
            "rbf(1.3)",
            "rbf([0.5, 1, 2])",
            "laplacian(2)",
            "laplacian([0.5, 1, 2])",
            "matern12(1.1)",
            "matern32(0.8)",
            "matern52([1, 2, 0.7])",
            "2*linear",
            "poly(degree=3)",
            "expdot(3)",
            "linear([0.5, 1, 2])",
            "poly(2, 0.5, 1, [0.5, 1, 2])",
            "expdot(3, [0.5, 1, 2])",
            "cosine",
            "cosine([0.5, 1, 2])",
            "arccos(0)",
            "arccos(1, [0.5, 1, 2])",
            "arccos(2, 3)",
            "cosine*rbf(2) + arccos(1)*linear",
            "ntk(depth=2, act=relu, b_var=0.1, lengthscale=[0.5, 1, 2])",
            "ntk(depth=1, act=relu)",
            "ntk(depth=3, act=relu, b_var=0.1)",
            "ntk(depth=2, act=erf, b_var=0.2)",
            "ntk(depth=2, act=tanh)",
            "nngp(depth=2, act=gelu)",
            "ntk(\"dense relu res(dense relu dense) dense\")",
            "0.5*rbf(1)*poly(degree=2) + 3*matern32([1, 2, 3]) + ntk(depth=1)",
        ] {
            let kernel = Kernel::parse(text).unwrap();
            let f = Combination { kernel: &kernel, centres: z.view(), coefficients: a.view() };
            let got = f.block(&f.leaves().unwrap(), x.view());
            let outer = check_gradients(text, &f, &got, x.view());
            let got = f.gradient_outer_product(x.view()).unwrap() * 5.0;
            assert!((&got - &outer).mapv(f64::abs).sum() < 1e-5 * outer.diag().sum(), "{text}: {got} for {outer}");
        }
    }

    /// At a centre, smooth kernels have their gradient, and kernels with a kink the mean over directions.
    #[test]
    fn gradients_at_a_centre_are_finite_and_means_over_directions() {
        let z = normal(1, 4, 5);
        let ones = Array2::ones((1, 1));
        for (text, smooth) in [
            ("rbf(1)", true),
            ("matern12(1)", false),
            ("laplacian(1)", false),
            ("matern52(1)", true),
            ("ntk(depth=2, act=erf)", true),
            ("ntk(depth=3, act=relu)", false),
            ("nngp(depth=3, act=relu)", true),
        ] {
            let kernel = Kernel::parse(text).unwrap();
            let f = Combination { kernel: &kernel, centres: z.view(), coefficients: ones.view() };
            let at = |x: ArrayView2<f64>| f.block(&f.leaves().unwrap(), x)[0].row(0).to_owned();
            let got = at(z.view());
            let directions = normal(200, 4, 6);
            let mut mean = Array1::<f64>::zeros(4);
            for direction in directions.rows() {
                for sign in [1e-4, -1e-4] {
                    mean += &at((&z + &(&direction * sign)).view());
                }
            }
            mean /= 400.0;
            let scale = got.dot(&got).sqrt().max(0.1);
            let off = (&mean - &got).mapv(f64::abs).sum();
            assert!(got.iter().all(|v| v.is_finite()), "{text}: {got}");
            assert!(off < 1e-3 * scale, "{text}: {got}, and {mean} about it");
            if smooth {
                assert!((differences(&f, z.row(0), 0) - &got).mapv(f64::abs).sum() < 1e-5 * scale, "{text}");
            }
        }
    }

    #[test]
    fn kernels_without_a_gradient_are_named() {
        let z = normal(2, 4, 7);
        let one = Array2::ones((2, 1));
        for text in ["rbf(1)*periodic(1)", "ntk(\"conv(3) relu gap dense\", shape=2x2x1)"] {
            let kernel = Kernel::parse(text).unwrap();
            let f = Combination { kernel: &kernel, centres: z.view(), coefficients: one.view() };
            assert!(f.leaves().is_err_and(|e| e.to_string().contains("is not differentiated")), "{text}");
        }
    }
}
