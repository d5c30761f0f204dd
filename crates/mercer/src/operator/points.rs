//! Points made ready for a kernel: rounded to the tile's precision, shifted or lifted where the formula wants it.

use super::Real;
use crate::kernel::{Base, Formula, Kernel, Pair, Statistic, Visitor};
use ndarray::{Array1, Array2, ArrayView2, Axis};
use rayon::prelude::*;

/// How a kernel looks at points. Built once from the reference points; both sides of a product use the same one.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub kernel: Kernel,
    /// What is taken off every point before rounding: shift-invariant kernels lose no digits to a far-off origin.
    shift: Option<Array1<f64>>,
    /// For each base kernel, from left to right: which of [`Self::statistics`] it reads.
    pub leaves: Vec<usize>,
    /// The different (view, statistic) pairs that the base kernels need.
    pub statistics: Vec<(usize, Statistic)>,
    /// The different lifts of the points; `None` is the points themselves.
    lifts: Vec<Option<Base>>,
}

/// Points `[n, d]` as a plan wants them.
pub struct Points<T> {
    pub(super) n: usize,
    pub(super) views: Vec<View<T>>,
}

/// One lift of the points.
pub(super) struct View<T> {
    /// `[n, p]`
    pub x: Array2<T>,
    /// `‖x_i‖²`, `[n]`
    pub xx: Vec<T>,
}

impl Plan {
    /// Plans for `kernel`, centred on the mean of `reference` `[n, d]` where the kernel allows it.
    pub fn new(kernel: &Kernel, reference: ArrayView2<f64>) -> Plan {
        let shift = kernel.is_shift_invariant().then(|| reference.mean_axis(Axis(0))).flatten();
        let mut plan = Plan { kernel: kernel.clone(), shift, leaves: vec![], statistics: vec![], lifts: vec![] };
        for base in kernel.bases() {
            let (statistic, lifts) = base.visit(Needs);
            let view = position_or_push(&mut plan.lifts, lifts.then(|| base.clone()));
            let leaf = position_or_push(&mut plan.statistics, (view, statistic));
            plan.leaves.push(leaf);
        }
        plan
    }

    /// The points `x` `[n, d]` in precision `T`.
    pub fn points<T: Real>(&self, x: ArrayView2<f64>) -> Points<T> {
        let shifted = self.shift.as_ref().map(|shift| &x - shift);
        let x = shifted.as_ref().map_or(x, |s| s.view());
        let views = self.lifts.iter().map(|lift| match lift {
            None => View::new(x),
            Some(base) => View::new(base.visit(Lift(x)).expect("this formula lifts its points").view()),
        });
        Points { n: x.nrows(), views: views.collect() }
    }

    /// `κ(x,x)` `[n]` for points `[n, d]`, in f64.
    pub fn diagonal(&self, x: ArrayView2<f64>) -> Array1<f64> {
        let points = self.points::<f64>(x);
        let value = |i: usize| {
            let mut leaf = 0;
            self.kernel_at(&self.kernel, &mut leaf, &|statistic| {
                let xx = points.views[statistic.0].xx[i];
                Pair { s: if statistic.1 == Statistic::Dot { xx } else { 0.0 }, xx, yy: xx }
            })
        };
        (0..points.n).into_par_iter().map(value).collect::<Vec<f64>>().into()
    }

    fn kernel_at(&self, kernel: &Kernel, leaf: &mut usize, pair: &dyn Fn((usize, Statistic)) -> Pair<f64>) -> f64 {
        match kernel {
            Kernel::Base(base) => {
                *leaf += 1;
                base.visit(Value(pair(self.statistics[self.leaves[*leaf - 1]])))
            }
            Kernel::Scale(c, k) => c * self.kernel_at(k, leaf, pair),
            Kernel::Sum(ks) => ks.iter().map(|k| self.kernel_at(k, leaf, pair)).sum(),
            Kernel::Product(ks) => ks.iter().map(|k| self.kernel_at(k, leaf, pair)).product(),
        }
    }
}

impl<T: Real> View<T> {
    fn new(x: ArrayView2<f64>) -> View<T> {
        let x = Array2::from_shape_vec(x.dim(), x.iter().map(|&v| T::of(v)).collect()).expect("as many as there were");
        // The norms are those of the rounded points, so that ‖x−x‖² cancels to nothing.
        let norm = |row: ndarray::ArrayView1<T>| T::of(row.iter().map(|v| v.wide() * v.wide()).sum());
        let xx = x.axis_iter(Axis(0)).map(norm).collect();
        View { x, xx }
    }
}

fn position_or_push<V: PartialEq>(items: &mut Vec<V>, item: V) -> usize {
    items.iter().position(|other| *other == item).unwrap_or_else(|| {
        items.push(item);
        items.len() - 1
    })
}

/// The statistic a formula reads, and whether it lifts its points.
struct Needs;

impl Visitor for Needs {
    type Output = (Statistic, bool);
    fn visit<F: Formula>(self, formula: &F) -> Self::Output {
        (F::STATISTIC, formula.lift(ArrayView2::from(&[[0.0]])).is_some())
    }
}

struct Lift<'a>(ArrayView2<'a, f64>);

impl Visitor for Lift<'_> {
    type Output = Option<Array2<f64>>;
    fn visit<F: Formula>(self, formula: &F) -> Self::Output {
        formula.lift(self.0)
    }
}

struct Value(Pair<f64>);

impl Visitor for Value {
    type Output = f64;
    fn visit<F: Formula>(self, formula: &F) -> f64 {
        formula.eval(self.0)
    }
}

impl<T: Real> Points<T> {
    /// The points of these rows, in this order.
    pub(super) fn select(&self, rows: &[usize]) -> Points<T> {
        let view = |v: &View<T>| View { x: v.x.select(Axis(0), rows), xx: rows.iter().map(|&i| v.xx[i]).collect() };
        Points { n: rows.len(), views: self.views.iter().map(view).collect() }
    }
}
