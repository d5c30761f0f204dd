//! Which entries of a kernel of a distance are computed from differences of coordinates.
//!
//! A tile gets `D = ‖x−x'‖²` from a matrix product, as `S − 2 x·x'` with `S = ‖x‖² + ‖x'‖²`. Its error is a rounding error of
//! S, not of D, and the points themselves were rounded:
//!
//! `Δ = u (c S + 2√(2 D S))`, with u the unit roundoff and `c = √p/2`, at least 1: the roundings of a sum of p terms.
//! Where all terms are alike, roundings add up to c = p; that is taken into account where it would do real harm.
//!
//! An entry is computed anew where that could move κ by more than [`Roundoff::allowed`] of κ(0), times `√p/2` up to [`SEEN`]: sums of many terms are never
//! as right as those of few, and images, at the distances that kernels are used at, would otherwise be computed anew as a whole. A kernel that is convex in D
//! changes the most at D = 0, so these are the entries with `D ≤ D*(S)`; D* grows with S, is zero below some S, and
//! `min(D*(max S), S·max D*(S)/S)` bounds it. Well-scaled data have none, and pay nothing; a few points far from all others, such as
//! those of a rare category in standardised columns, have entries among themselves only.

use crate::kernel::{Base, Pair, Statistic};
use crate::operator::{Precision, Real};

/// The errors of an arithmetic, each relative.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Roundoff {
    /// Of a sum of products, for one addition.
    pub sum: f64,
    /// The most additions of a sum whose roundings add up.
    pub run: f64,
    /// Of a point's coordinate.
    pub point: f64,
    /// What a kernel value may be off, relative to that of a point with itself.
    pub allowed: f64,
}

/// What a value may be off, in units of roundoff.
const ALLOWED: f64 = 32.0;
/// How much more a value may be off where the terms of its sum are all alike.
const LIKE_TERMS: f64 = 128.0;
/// What a value may be off for its many terms, relative to that of a point with itself: 6e-5.
const SEEN: f64 = 1.0 / 16384.0;
/// Octaves of D that are looked at, below the largest, and the steps of each that are told apart.
const OCTAVES: i32 = 64;
const STEPS: i32 = 4;

/// `2^{−k/4}`
fn steps_down(k: i32) -> f64 {
    (-f64::from(k) / f64::from(STEPS)).exp2()
}

impl Roundoff {
    /// That of `T` on the CPU.
    pub fn of<T: Real>() -> Roundoff {
        let u = if T::PRECISION == Precision::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) } / 2.0;
        Roundoff { sum: u, run: f64::INFINITY, point: u, allowed: ALLOWED * u }
    }
}

/// Entries with `‖x‖² + ‖x'‖²` from `from` on, whose distance is at most `within`, and at most `share` of that sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Near {
    pub from: f64,
    pub within: f64,
    pub share: f64,
}

/// A kernel of a distance at points of `p` coordinates.
#[derive(Clone, Copy)]
pub(crate) struct Distance<'a> {
    base: &'a Base,
    statistic: Statistic,
    p: f64,
}

impl<'a> Distance<'a> {
    /// `base`, where it is a kernel of a distance.
    pub fn of(base: &'a Base, p: usize) -> Option<Distance<'a>> {
        let statistic = base.statistic();
        let is_distance = matches!(statistic, Statistic::SquaredDistance | Statistic::L1);
        is_distance.then_some(Distance { base, statistic, p: p as f64 })
    }

    /// Whether an error `change` of the distance `d` may move κ by more than `allowed` of κ(0).
    fn moves(&self, d: f64, change: f64, allowed: f64) -> bool {
        let at = |s: f64| self.base.eval(Pair { s, xx: 0.0, yy: 0.0 });
        let most = (at((d - change).max(0.0)) - at(d + change)).abs();
        most > allowed * at(0.0).abs()
    }

    /// The error of the distance `d` between points with `‖x‖² + ‖x'‖² = s`.
    fn error(&self, d: f64, s: f64, roundoff: Roundoff) -> f64 {
        let moved = roundoff.point * (2.0 * s).sqrt();
        match self.statistic {
            Statistic::L1 => moved * self.p.sqrt(),
            _ => roundoff.sum * s * self.c(roundoff) + moved * (2.0 * d.sqrt() + moved),
        }
    }

    /// c: the roundings of a sum of p terms.
    fn c(&self, roundoff: Roundoff) -> f64 {
        (self.p.min(roundoff.run).sqrt() / 2.0).max(1.0)
    }

    /// The largest distance of such points.
    fn largest(&self, s: f64) -> f64 {
        if self.statistic == Statistic::L1 { (2.0 * s * self.p).sqrt() } else { 2.0 * s }
    }

    /// `D*(S)` to the next quarter of an octave: from it on, κ is right. Zero where it always is.
    fn reach(&self, s: f64, roundoff: Roundoff) -> f64 {
        // Roundings of like terms do not cancel: then c is the number of terms.
        let terms = self.p.min(roundoff.run);
        let many = |factor: f64| (factor.max(1.0) * roundoff.allowed).min(SEEN.max(roundoff.allowed));
        let like = Roundoff {
            sum: 2.0 * terms.sqrt() * roundoff.sum,
            allowed: LIKE_TERMS * many((self.p.sqrt() / 2.0).sqrt()),
            ..roundoff
        };
        let roundoff = Roundoff { allowed: many(self.p.sqrt() / 2.0), ..roundoff };
        let moves = |d: f64| [roundoff, like].iter().any(|r| self.moves(d, self.error(d, s, *r), r.allowed));
        if !moves(0.0) {
            return 0.0;
        }
        let step = |k: i32| self.largest(s) * steps_down(k);
        if moves(step(0)) {
            return f64::INFINITY;
        }
        // κ is right from step `right` on, and not at step `wrong`.
        let (mut right, mut wrong) = (0, OCTAVES * STEPS);
        while wrong - right > 1 {
            let middle = (right + wrong) / 2;
            if moves(step(middle)) { wrong = middle } else { right = middle }
        }
        step(right)
    }

    /// The entries to compute anew between points with `‖x‖² + ‖x'‖²` up to `largest`, if any.
    pub fn near(&self, largest: f64, roundoff: Roundoff) -> Option<Near> {
        let within = self.reach(largest, roundoff);
        if within == 0.0 {
            return None;
        }
        if self.statistic == Statistic::L1 || within.is_infinite() {
            return Some(Near { from: 0.0, within, share: f64::INFINITY });
        }
        // D*(S)/S has one maximum; between two steps of S it is at most a step more than at the upper end.
        let mut share = 0.0f64;
        for k in 0..OCTAVES * STEPS {
            let s = largest * steps_down(k);
            let reach = self.reach(s, roundoff);
            if reach == 0.0 {
                // At a distance of its own size an error moves κ by up to that of twice the error at D = 0.
                return Some(Near { from: s / 2.0, within, share });
            }
            share = share.max(reach / (s * steps_down(1)));
        }
        Some(Near { from: 0.0, within, share })
    }

    /// Whether the rounding of points with `‖x‖² ≤ largest` alone can be seen in κ, so that what it removed must be kept.
    pub fn shows_rounding(&self, largest: f64, roundoff: Roundoff) -> bool {
        let roundoff = Roundoff { sum: 0.0, ..roundoff };
        let shows = |d: f64| self.moves(d, self.error(d, largest, roundoff), roundoff.allowed / 4.0);
        largest > 0.0 && (0..OCTAVES).step_by(4).any(|k| shows(self.largest(largest) * 0.5f64.powi(k)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernel;

    fn near(expression: &str, largest: f64) -> Option<Near> {
        let kernel = Kernel::parse(expression).unwrap();
        Distance::of(kernel.bases()[0], 3)?.near(largest, Roundoff::of::<f32>())
    }

    #[test]
    fn well_scaled_points_have_no_entry_to_compute_anew() {
        for expression in ["rbf(1)", "matern32(1)", "matern52(1)", "laplacian(1)", "periodic(1, 1)"] {
            assert_eq!(near(expression, 10.0), None, "{expression}");
        }
        assert_eq!(near("linear", 1e9), None);
    }

    /// Digits of 784 pixels in [0, 1], centred: ‖x‖² is 53 on average, and 180 at most. None is computed anew.
    #[test]
    fn images_at_the_usual_lengthscale_have_none_either() {
        for (expression, p) in [("rbf(5)", 784), ("rbf(10)", 784), ("matern32(10)", 784), ("rbf(20)", 3072)] {
            let kernel = Kernel::parse(expression).unwrap();
            let scale = p as f64 / 784.0;
            let distance = Distance::of(kernel.bases()[0], p).unwrap();
            let near = distance.near(2.0 * 180.0 * scale, Roundoff::of::<f32>());
            assert!(near.is_none_or(|near| near.within < 8.0), "{expression}: {near:?}");
        }
    }

    #[test]
    fn the_entries_to_compute_anew_are_those_that_may_be_wrong() {
        let u = f64::from(f32::EPSILON) / 2.0;
        for (expression, kappa) in
            [("rbf(1.3)", (|d: f64| (-d / 3.38).exp()) as fn(f64) -> f64), ("matern12(2)", |d| (-d.sqrt() / 2.0).exp())]
        {
            for largest in [1e2, 1e4, 1e6, 1e12] {
                let near = near(expression, largest).unwrap_or(Near { from: 0.0, within: 0.0, share: 0.0 });
                for (i, j) in (1..60).flat_map(|i| (1..60).map(move |j| (i, j))) {
                    let s = largest * 0.5f64.powi(i - 1);
                    let d = 2.0 * s * 0.7f64.powi(j);
                    let change = u * (s + (8.0 * d * s).sqrt());
                    let error = kappa((d - change).max(0.0)) - kappa(d + change);
                    let found = s >= near.from && d <= near.within.min(near.share * s);
                    assert!(
                        found || error <= 2.0 * ALLOWED * u,
                        "{expression}, S = {s}, D = {d}: off by {} u",
                        error / u
                    );
                }
                assert!(near.share < 0.2 || expression != "rbf(1.3)", "{largest}: {near:?} takes too many");
            }
        }
    }

    /// Standardised covertype: most points have ‖x‖² = 54, and a category of one point in 200 000 has 200 000. No entry between the
    /// many is computed anew in TF32, and those between the rare ones are.
    #[test]
    fn points_of_a_rare_category_have_entries_among_themselves_only() {
        let kernel = Kernel::parse("rbf(1.5)").unwrap();
        let tf32 = Roundoff { sum: 0.5f64.powi(20), run: 8.0, point: 0.5f64.powi(12), allowed: 0.5f64.powi(8) };
        let near = Distance::of(kernel.bases()[0], 54).unwrap().near(400_000.0, tf32).unwrap();
        assert!(near.from > 2000.0 && near.from < 400_000.0 && near.within > 1.0, "{near:?}");
    }

    #[test]
    fn what_rounding_removed_is_kept_for_far_points_only() {
        for (expression, far) in [("rbf(1)", 1e6), ("matern12(1)", 1e6), ("laplacian(1)", 1e6)] {
            let kernel = Kernel::parse(expression).unwrap();
            let distance = Distance::of(kernel.bases()[0], 3).unwrap();
            let shows = |largest: f64| distance.shows_rounding(largest, Roundoff::of::<f32>());
            assert!(!shows(0.0) && !shows(1.0) && shows(far) && shows(1e300), "{expression}");
        }
    }
}
