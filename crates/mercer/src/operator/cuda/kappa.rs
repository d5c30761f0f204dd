//! A kernel expression as a device function.

use super::super::points::Plan;
use super::zonal::Zonal;
use crate::kernel::{Base, Formula, Kernel, Pair, with_formula};
use crate::simd::Num;
use crate::simd::source::{Listing, Source, Style, Variable, record};

/// The operations that compute the plan's kernel from the statistics and norms of a pair of points. Fast tiles use the
/// [`Zonal`] form where it takes fewer operations.
pub(super) fn listing(plan: &Plan, style: Style) -> Listing {
    let plain = record(style, || value(plan, &plan.kernel, &mut 0, &|_| None));
    if style == Style::Exact {
        return plain;
    }
    let zonal = record(style, || value(plan, &plan.kernel, &mut 0, &Zonal::of));
    if zonal.operations() < plain.operations() { zonal } else { plain }
}

/// A zonal form that replaces the formula of a base kernel, if any.
type Replacement<'a> = &'a dyn Fn(&Base) -> Option<Zonal>;

/// The source of `real kappa(s0, …, xx0, …, yy0, …)`: the statistics of the plan, then the norms of each view.
pub(super) fn function(plan: &Plan, views: usize, style: Style) -> String {
    let names = |name: &str, count: usize| (0..count).map(|i| format!("const real {name}{i}")).collect::<Vec<_>>();
    let arguments = [names("s", plan.statistics.len()), names("xx", views), names("yy", views)].concat();
    let body = listing(plan, style).body();
    format!("// {}\nINLINE real kappa({}) {{\n{body}}}\n", plan.kernel, arguments.join(", "))
}

fn value(plan: &Plan, kernel: &Kernel, leaf: &mut usize, replacement: Replacement<'_>) -> Source {
    match kernel {
        Kernel::Base(base) => {
            let statistic = plan.leaves[*leaf];
            *leaf += 1;
            formula(base, statistic, plan.statistics[statistic].0, replacement)
        }
        Kernel::Scale(c, inner) => value(plan, inner, leaf, replacement) * Source::of(*c),
        Kernel::Sum(parts) => fold(plan, parts, leaf, replacement, |a, b| a + b),
        Kernel::Product(parts) => fold(plan, parts, leaf, replacement, |a, b| a * b),
    }
}

fn fold(
    plan: &Plan,
    parts: &[Kernel],
    leaf: &mut usize,
    replacement: Replacement<'_>,
    join: fn(Source, Source) -> Source,
) -> Source {
    let values: Vec<Source> = parts.iter().map(|part| value(plan, part, leaf, replacement)).collect();
    values.into_iter().reduce(join).expect("a sum or product has at least two terms")
}

fn formula(base: &Base, statistic: usize, view: usize, replacement: Replacement<'_>) -> Source {
    let pair = Pair {
        s: Source::variable(Variable::Statistic(statistic)),
        xx: Source::variable(Variable::RowNorm(view)),
        yy: Source::variable(Variable::ColumnNorm(view)),
    };
    replacement(base).map_or_else(|| with_formula!(base, formula => formula.eval(pair)), |zonal| zonal.eval(pair))
}
