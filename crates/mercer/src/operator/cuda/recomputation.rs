//! Which entries of a tile are computed anew from differences of coordinates, and the source that does it.

use super::program::define;
use super::{Arithmetic, kappa, wide};
use crate::data::Rows;
use crate::kernel::Statistic;
use crate::operator::tile::near::{Near, Roundoff};
use crate::operator::tile::points::{Norms, Plan};
use crate::operator::tile::workspace::ranges;
use rayon::prelude::*;

const NEAR: &str = include_str!("near.cu");
/// Points that a thread looks at together.
const ROWS: usize = 512;

#[derive(Clone, Debug)]
pub(super) struct Recomputation {
    /// For each statistic: the entries.
    near: Vec<Option<Near>>,
    /// Whether what rounding removes from the points is kept for them.
    pub low: bool,
}

impl Recomputation {
    /// For points of `widths` columns whose norms are `a` and `b`, each a number a view.
    pub fn new(plan: &Plan, widths: &[usize], [a, b]: [&[Norms]; 2], arithmetic: Arithmetic) -> Recomputation {
        // The sums of cuBLAS are as long as the points are wide.
        let wide = widths.iter().any(|width| wide::is_wide(arithmetic, width.next_multiple_of(16)));
        let roundoff =
            Roundoff { run: if wide { f64::INFINITY } else { roundoff(arithmetic).run }, ..roundoff(arithmetic) };
        let sums: Vec<f64> = a.iter().zip(b).map(|(a, b)| a.largest + b.largest).collect();
        let near = by_statistic(plan, plan.near(&sums, widths, roundoff));
        let shows = |view: usize| plan.shows_rounding(view, a[view].joined(b[view]).largest, widths[view], roundoff);
        let low = near.iter().any(Option::is_some) && (0..a.len()).any(shows);
        Recomputation { near, low }
    }

    /// Whether there are no such entries.
    pub fn is_empty(&self) -> bool {
        self.near.iter().all(Option::is_none)
    }

    /// The source of `is_near` and `recomputed`, and its definitions; `together` if all lanes of a warp call it for one entry.
    pub fn source(
        &self,
        plan: &Plan,
        views: usize,
        arithmetic: Arithmetic,
        together: bool,
        definitions: &mut String,
    ) -> String {
        define(definitions, "NEAR", u32::from(!self.is_empty()));
        if self.is_empty() {
            return String::new();
        }
        define(definitions, "LOW", u32::from(self.low));
        define(definitions, "TOGETHER", u32::from(together));
        let statistics = plan.statistics.len();
        let given = |i: usize| if i < statistics { format!("s[{i}]") } else { format!("d[{}]", i - statistics) };
        let norm = |of: &'static str, pad: &'static str| move |view: usize| format!("{of}[{view} * {pad}]");
        let arguments = kappa::arguments(2 * statistics, views, given, norm("axx", "a_pad"), norm("byy", "b_pad"));
        define(definitions, "KAPPA_NEAR", format!("kappa_near({arguments})"));
        let kappa = kappa::near_function(plan, views, arithmetic.style());
        format!("{kappa}{}{NEAR}", self.test(plan, views, arithmetic))
    }

    /// The source of `bool is_near(s0, …, xx0, …, yy0, …)`, with the arguments of `kappa`. Its bounds are quarters of octaves, so that
    /// similar data share a compiled source.
    ///
    /// It has no branches (`|`, not `||`): from branches inside the unrolled loops of a tile, NVRTC 13.0 made wrong code for a sum of
    /// three kernels in f64, at every level of optimisation but none (`distances_of_far_clusters_keep_their_digits`).
    fn test(&self, plan: &Plan, views: usize, arithmetic: Arithmetic) -> String {
        let most: f64 = if arithmetic == Arithmetic::F64 { 1e300 } else { 1e30 };
        let quarters = |x: f64| x.log2() * 4.0;
        let bound = |x: f64| format!("(real){:?}", (quarters(x).ceil() / 4.0).exp2().min(most));
        let least = |x: f64| format!("(real){:?}", (quarters(x).floor() / 4.0).exp2().min(most));
        let tests = self.near.iter().zip(&plan.statistics).enumerate().filter_map(|(i, (near, &(view, kind)))| {
            let Near { from, within, share } = (*near)?;
            let sum = format!("(xx{view} + yy{view})");
            Some(match kind {
                Statistic::L1 => format!("!(s{i} > {})", bound(within)),
                _ => {
                    let far = format!("({sum} - 2 * s{i} > m_min({}, {} * {sum}))", bound(within), bound(share));
                    if from > 0.0 { format!("!(({sum} < {}) | {far})", least(from)) } else { format!("!{far}") }
                }
            })
        });
        let parameters = kappa::parameters(plan.statistics.len(), views);
        format!("INLINE bool is_near({parameters}) {{ return {}; }}\n", tests.collect::<Vec<_>>().join(" | "))
    }
}

/// The errors of an arithmetic. Tensor cores add eight products (or sixteen of f16) at once and truncate, and Split drops the product of the low
/// halves.
pub(super) fn roundoff(arithmetic: Arithmetic) -> Roundoff {
    let powers = |sum: i32, point: i32, allowed: i32| {
        let [sum, point, allowed] = [sum, point, allowed].map(|e| 0.5f64.powi(e));
        Roundoff { sum, run: 8.0, point, allowed }
    };
    match arithmetic {
        Arithmetic::F64 => Roundoff::of::<f64>(),
        Arithmetic::F32 => Roundoff::of::<f32>(),
        Arithmetic::Split => powers(21, 24, 18),
        Arithmetic::Half | Arithmetic::Tf32 => powers(20, 12, 8),
    }
}

/// The norms of points `[n, d]` in each view.
pub(super) fn norms(plan: &Plan, x: Rows<'_>) -> Vec<Norms> {
    let of_few = |rows| plan.norms(x.slice(rows));
    let joined = |a: Vec<Norms>, b: Vec<Norms>| a.iter().zip(b).map(|(a, b)| a.joined(b)).collect();
    ranges(x.n(), ROWS).into_par_iter().map(of_few).reduce(|| vec![Norms::NONE; plan.views()], joined)
}

/// The entries of each statistic that some base kernel computes anew, given those of each base kernel.
fn by_statistic(plan: &Plan, near: Vec<Option<Near>>) -> Vec<Option<Near>> {
    let mut joined: Vec<Option<Near>> = vec![None; plan.statistics.len()];
    for (leaf, near) in plan.leaves.iter().zip(near) {
        joined[*leaf] = match (joined[*leaf], near) {
            (Some(known), Some(near)) => Some(Near {
                from: near.from.min(known.from),
                within: near.within.max(known.within),
                share: near.share.max(known.share),
            }),
            (known, near) => near.or(known),
        };
    }
    joined
}
