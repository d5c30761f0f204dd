//! A kernel expression as a device function.

use super::super::points::Plan;
use crate::kernel::{Base, Formula, Kernel, Pair, Visitor};
use crate::simd::Num;
use crate::simd::source::{Listing, Source, Style, Variable, record};

/// What the plan's kernel does with the statistics and norms of a pair of points.
pub(super) fn listing(plan: &Plan, style: Style) -> Listing {
    record(style, || value(plan, &plan.kernel, &mut 0))
}

/// `real kappa(s0, …, xx0, …, yy0, …)`: a statistic for each of the plan's, then the norms of each view.
pub(super) fn function(plan: &Plan, views: usize, style: Style) -> String {
    let names = |name: &str, count: usize| (0..count).map(|i| format!("const real {name}{i}")).collect::<Vec<_>>();
    let arguments = [names("s", plan.statistics.len()), names("xx", views), names("yy", views)].concat();
    let body = listing(plan, style).body();
    format!("// {}\nINLINE real kappa({}) {{\n{body}}}\n", plan.kernel, arguments.join(", "))
}

fn value(plan: &Plan, kernel: &Kernel, leaf: &mut usize) -> Source {
    match kernel {
        Kernel::Base(base) => {
            let statistic = plan.leaves[*leaf];
            *leaf += 1;
            formula(base, statistic, plan.statistics[statistic].0)
        }
        Kernel::Scale(c, inner) => value(plan, inner, leaf) * Source::of(*c),
        Kernel::Sum(parts) => fold(plan, parts, leaf, |a, b| a + b),
        Kernel::Product(parts) => fold(plan, parts, leaf, |a, b| a * b),
    }
}

fn fold(plan: &Plan, parts: &[Kernel], leaf: &mut usize, join: fn(Source, Source) -> Source) -> Source {
    let mut values = parts.iter().map(|part| value(plan, part, leaf)).collect::<Vec<_>>().into_iter();
    let first = values.next().expect("sums and products hold two kernels or more");
    values.fold(first, join)
}

fn formula(base: &Base, statistic: usize, view: usize) -> Source {
    struct Eval(Pair<Source>);
    impl Visitor for Eval {
        type Output = Source;
        fn visit<F: Formula>(self, formula: &F) -> Source {
            formula.eval(self.0)
        }
    }
    base.visit(Eval(Pair {
        s: Source::variable(Variable::Statistic(statistic)),
        xx: Source::variable(Variable::RowNorm(view)),
        yy: Source::variable(Variable::ColumnNorm(view)),
    }))
}
