//! A kernel expression as a device function.

use super::logistic;
use super::zonal::Zonal;
use crate::kernel::{Base, Formula, Pair, Statistic, with_formula};
use crate::operator::tile::points::Plan;
use crate::simd::source::{Listing, Source, Style, Variable, record};

/// The operations that compute the plan's kernel from the statistics and norms of a pair of points. Fast tiles use the
/// [`Zonal`] form where it takes fewer operations.
pub(super) fn listing(plan: &Plan, style: Style) -> Listing {
    let plain = record(style, || value(plan, |_| None, false));
    if style == Style::Exact {
        return plain;
    }
    let zonal = record(style, || value(plan, Zonal::of, false));
    if zonal.operations() < plain.operations() { zonal } else { plain }
}

/// The source of `real kappa(s0, …, xx0, …, yy0, …)`: the statistics of the plan, then the norms of each view.
pub(super) fn function(plan: &Plan, views: usize, style: Style) -> String {
    let arguments = parameters(plan.statistics.len(), views);
    let listing = listing(plan, style);
    let functions = logistic::source(&listing.calls());
    format!("// {}\n{functions}INLINE real kappa({arguments}) {{\n{}}}\n", plan.kernel, listing.body())
}

/// The source of `real kappa_near(s0, …, xx0, …, yy0, …)`: as many distances follow the statistics, and kernels of a distance
/// read those.
pub(super) fn near_function(plan: &Plan, views: usize, style: Style) -> String {
    let arguments = parameters(2 * plan.statistics.len(), views);
    let body = record(style, || value(plan, |_| None, true)).body();
    format!("INLINE real kappa_near({arguments}) {{\n{body}}}\n")
}

/// The parameters of a function of statistics and norms.
pub(super) fn parameters(statistics: usize, views: usize) -> String {
    let names = |name: &'static str| move |i: usize| format!("const real {name}{i}");
    arguments(statistics, views, names("s"), names("xx"), names("yy"))
}

/// The arguments of `kappa`, given those for each statistic and for the norm of each view of both points.
pub(super) fn arguments(
    statistics: usize,
    views: usize,
    statistic: impl Fn(usize) -> String,
    xx: impl Fn(usize) -> String,
    yy: impl Fn(usize) -> String,
) -> String {
    let statistics = (0..statistics).map(statistic);
    statistics.chain((0..views).map(xx)).chain((0..views).map(yy)).collect::<Vec<_>>().join(", ")
}

/// The kernel of a pair of points. `zonal` returns the form that replaces the formula of a base kernel, if any. If `near`, the
/// distances are given, after the statistics.
fn value(plan: &Plan, zonal: impl Fn(&Base) -> Option<Zonal>, near: bool) -> Source {
    let mut leaves = plan.leaves.iter();
    plan.kernel.combine(&mut |base| {
        let statistic = *leaves.next().expect("a leaf for each base kernel");
        let view = plan.statistics[statistic].0;
        let asked = base.statistic();
        let given = near && matches!(asked, Statistic::SquaredDistance | Statistic::L1);
        let read = if given { plan.statistics.len() + statistic } else { statistic };
        let pair = Pair {
            s: Source::variable(Variable::Statistic(read)),
            xx: Source::variable(Variable::RowNorm(view)),
            yy: Source::variable(Variable::ColumnNorm(view)),
        };
        let pair = if asked == Statistic::SquaredDistance && !given { pair.expanded() } else { pair };
        zonal(base).map_or_else(|| with_formula!(base, formula => formula.eval(pair)), |zonal| zonal.eval(pair))
    })
}
