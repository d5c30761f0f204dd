//! A kernel expression as a device function.

use super::super::points::Plan;
use super::zonal::Zonal;
use crate::kernel::{Base, Formula, Pair, with_formula};
use crate::simd::source::{Listing, Source, Style, Variable, record};

/// The operations that compute the plan's kernel from the statistics and norms of a pair of points. Fast tiles use the
/// [`Zonal`] form where it takes fewer operations.
pub(super) fn listing(plan: &Plan, style: Style) -> Listing {
    let plain = record(style, || value(plan, |_| None));
    if style == Style::Exact {
        return plain;
    }
    let zonal = record(style, || value(plan, Zonal::of));
    if zonal.operations() < plain.operations() { zonal } else { plain }
}

/// The source of `real kappa(s0, …, xx0, …, yy0, …)`: the statistics of the plan, then the norms of each view.
pub(super) fn function(plan: &Plan, views: usize, style: Style) -> String {
    let names = |name: &'static str| move |i: usize| format!("const real {name}{i}");
    let arguments = arguments(plan, views, names("s"), names("xx"), names("yy"));
    format!("// {}\nINLINE real kappa({arguments}) {{\n{}}}\n", plan.kernel, listing(plan, style).body())
}

/// The arguments of `kappa`, given those for each statistic and for the norm of each view of both points.
pub(super) fn arguments(
    plan: &Plan,
    views: usize,
    statistic: impl Fn(usize) -> String,
    xx: impl Fn(usize) -> String,
    yy: impl Fn(usize) -> String,
) -> String {
    let statistics = (0..plan.statistics.len()).map(statistic);
    statistics.chain((0..views).map(xx)).chain((0..views).map(yy)).collect::<Vec<_>>().join(", ")
}

/// The kernel of a pair of points. `zonal` returns the form that replaces the formula of a base kernel, if any.
fn value(plan: &Plan, zonal: impl Fn(&Base) -> Option<Zonal>) -> Source {
    let mut leaves = plan.leaves.iter();
    plan.kernel.combine(&mut |base| {
        let statistic = *leaves.next().expect("a leaf for each base kernel");
        let view = plan.statistics[statistic].0;
        let pair = Pair {
            s: Source::variable(Variable::Statistic(statistic)),
            xx: Source::variable(Variable::RowNorm(view)),
            yy: Source::variable(Variable::ColumnNorm(view)),
        };
        zonal(base).map_or_else(|| with_formula!(base, formula => formula.eval(pair)), |zonal| zonal.eval(pair))
    })
}
