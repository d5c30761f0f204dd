//! Points prepared for a kernel: rounded to the tile's precision, shifted or lifted where the formula needs it.

use super::images::Images;
use super::memory::zeros;
use super::network::{LANES, NetworkBuffers, has_series, profile};
use super::tile::{SIDE, ranges};
use super::{Precision, Real};
use crate::data::Rows;
use crate::kernel::{Base, Formula, Kernel, Pair, Statistic, with_formula};
use ndarray::{Array1, Array2, ArrayView2, Axis, s};
use rayon::prelude::*;

/// Points that are prepared together.
const ROWS: usize = 2 * LANES;

/// How a kernel looks at points. Built once from the reference points; both sides of a product use the same one.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub kernel: Kernel,
    /// Subtracted from every point before rounding, so that points far from the origin lose no digits; shift-invariant kernels only.
    shift: Option<Array1<f64>>,
    /// For each base kernel, from left to right: which of [`Self::statistics`] it reads.
    pub leaves: Vec<usize>,
    /// The different (view, statistic) pairs that the base kernels need.
    pub statistics: Vec<(usize, Statistic)>,
    /// The different lifts of the points; `None` is the points themselves.
    lifts: Vec<Option<Base>>,
    /// For each lift that is one of images: how its network runs.
    pub images: Vec<Option<Images>>,
}

/// Points `[n, d]` as a plan needs them.
pub(super) struct Prepared<T> {
    pub(super) n: usize,
    pub(super) views: Vec<View<T>>,
}

/// One lift of the points.
pub(super) struct View<T> {
    /// `[n, p]`
    pub x: Array2<T>,
    /// `‖x_i‖²`, `[n]`
    pub xx: Vec<T>,
    /// What an infinite network's layers need of each point, `[n, length]`.
    pub profile: Vec<T>,
}

/// What a tile sees of some points besides the points themselves.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a, T> {
    /// `‖x_i‖²`, `[n]`
    pub xx: &'a [T],
    /// `[n, length]`
    pub profile: &'a [T],
}

impl Plan {
    /// Plans for `kernel`, centred on the mean of `reference` `[n, d]` where the kernel allows it.
    pub fn new(kernel: &Kernel, reference: Rows<'_>) -> Plan {
        let shift = kernel.is_shift_invariant().then(|| reference.mean()).flatten();
        let mut plan =
            Plan { kernel: kernel.clone(), shift, leaves: vec![], statistics: vec![], lifts: vec![], images: vec![] };
        for base in kernel.bases() {
            let origin = ArrayView2::from(&[[0.0]]);
            let (statistic, lifts) = with_formula!(base, f => (f.statistic(), f.lift(origin).is_some()));
            let view = position_or_push(&mut plan.lifts, lifts.then(|| base.clone()));
            let leaf = position_or_push(&mut plan.statistics, (view, statistic));
            plan.leaves.push(leaf);
        }
        let of_images = |base: &Base| {
            let (network, ntk) = base.network().filter(|(network, _)| network.shape().is_some())?;
            Some(Images::new(network, ntk))
        };
        plan.images = plan.lifts.iter().map(|lift| lift.as_ref().and_then(of_images)).collect();
        plan
    }

    /// Rows and columns of a square tile: small where an entry takes as long as a row of others.
    pub fn side(&self) -> usize {
        if self.images.iter().any(Option::is_some) { LANES } else { SIDE }
    }

    /// The points `x` `[n, d]` in precision `T`.
    pub fn points<T: Real>(&self, x: Rows<'_>) -> Prepared<T> {
        let views = self.lifts.iter().zip(&self.images);
        Prepared { n: x.n(), views: views.map(|(lift, images)| self.view(x, lift, images)).collect() }
    }

    /// One lift of the points, a few rows at a time: what they are in f64 stays in the cache.
    fn view<T: Real>(&self, x: Rows<'_>, lift: &Option<Base>, images: &Option<Images>) -> View<T> {
        let lifted = |rows: ArrayView2<f64>| with_formula!(lift.as_ref()?, formula => formula.lift(rows));
        let n = x.n();
        let columns = lifted(x.slice(0..0).to_f64().view()).map_or(x.d(), |none| none.ncols());
        let mut values = Array2::from_shape_vec((n, columns), zeros(n * columns)).expect("n·p values");
        let mut xx = vec![T::default(); n];
        let targets = values.axis_chunks_iter_mut(Axis(0), ROWS).zip(xx.chunks_mut(ROWS));
        let chunks: Vec<_> = ranges(n, ROWS).into_iter().zip(targets).collect();
        // No parallel jobs for a strip: its caller already runs in one.
        let profiles = chunks.into_par_iter().with_min_len(2 * SIDE / ROWS).map(|(rows, (mut values, xx))| {
            let rows = x.slice(rows).to_f64();
            let rows = rows.view();
            let shifted = self.shift.as_ref().map(|shift| &rows - shift);
            let rows = shifted.as_ref().map_or(rows, |s| s.view());
            let lifted = lifted(rows);
            let rows = lifted.as_ref().map_or(rows, |l| l.view());
            values.zip_mut_with(&rows, |rounded, &x| *rounded = T::of(x));
            squares(values.view(), xx);
            match (images, lift.as_ref().and_then(Base::network)) {
                (Some(images), _) => images.profiles(rows).into_iter().map(T::of).collect(),
                (_, Some((network, _))) => xx.iter().flat_map(|xx| profile(network.steps(), xx.wide())).collect(),
                _ => vec![],
            }
        });
        let profile = profiles.collect::<Vec<Vec<T>>>().concat();
        View { x: values, xx, profile }
    }

    /// `κ(x,x)` `[n]` for points `[n, d]`, in f64.
    pub fn diagonal(&self, x: Rows<'_>) -> Array1<f64> {
        let chunks = ranges(x.n(), ROWS).into_par_iter();
        chunks.map(|rows| self.diagonal_of_few(x.slice(rows))).collect::<Vec<_>>().concat().into()
    }

    fn diagonal_of_few(&self, x: Rows<'_>) -> Vec<f64> {
        let points = self.points::<f64>(x);
        let known: Vec<Option<Vec<f64>>> = (0..points.views.len()).map(|v| self.known_diagonal(&points, v)).collect();
        let value = |i: usize| {
            let mut leaves = self.leaves.iter();
            self.kernel.combine(&mut |base| {
                let (view, statistic) = self.statistics[*leaves.next().expect("a leaf for each base kernel")];
                let xx = points.views[view].xx[i];
                let s = if statistic == Statistic::L1 { 0.0 } else { xx };
                let value = || with_formula!(base, formula => formula.eval(Pair { s, xx, yy: xx }));
                known[view].as_ref().map_or_else(value, |known| known[i])
            })
        };
        (0..points.n).map(value).collect()
    }

    /// `κ(x,x)` `[n]` where it is no formula of the norm: of images, and of activations that are series.
    fn known_diagonal(&self, points: &Prepared<f64>, view: usize) -> Option<Vec<f64>> {
        let seen = &points.views[view];
        if let Some(images) = &self.images[view] {
            return Some(images.diagonal(seen.x.view(), &seen.profile));
        }
        let (network, ntk) = self.lifts[view].as_ref().and_then(Base::network)?;
        if !has_series(network.steps()) {
            return None;
        }
        let (mut buffers, mut values) = (NetworkBuffers::default(), seen.xx.clone());
        for (i, value) in values.iter_mut().enumerate() {
            let profile = seen.side(i..i + 1).profile;
            buffers.fully_connected(network.steps(), ntk, profile, profile, 1, std::slice::from_mut(value));
        }
        Some(values)
    }
}

impl Kernel {
    /// `κ(x,x)` `[n]` at points `[n, d]`, in f64.
    ///
    /// ```
    /// let kernel = mercer::kernel::Kernel::parse("linear")?;
    /// assert_eq!(kernel.diagonal(ndarray::array![[3.0, 4.0]].view())[0], 25.0);
    /// # Ok::<(), mercer::Error>(())
    /// ```
    pub fn diagonal<'x>(&self, x: impl Into<Rows<'x>>) -> Array1<f64> {
        let x = x.into();
        Plan::new(self, x).diagonal(x)
    }
}

/// Bytes that operators keep of `n` points of `d` columns beside the points themselves: the variances of every position and
/// layer where `kernel` sees images, with the copy in f64 while they are made, and the coefficients of series.
pub(crate) fn profile_bytes(kernel: &Kernel, n: usize, d: usize, precision: Precision) -> u64 {
    let of_series = |base: &Base| match base.network() {
        Some((network, _)) if network.shape().is_none() && has_series(network.steps()) => {
            profile::<f64>(network.steps(), 1.0).len() as u64
        }
        _ => 0,
    };
    let series = kernel.bases().into_iter().map(of_series).sum::<u64>() * n as u64 * precision.bytes();
    if !kernel.sees_images() {
        return series;
    }
    let plan = Plan::new(kernel, Rows::from(&Array2::<f64>::zeros((1, d))));
    let numbers: usize = plan.images.iter().flatten().map(Images::profile_length).sum();
    series + (numbers * n) as u64 * (precision.bytes() + 8)
}

/// `‖x_i‖²` `[n]` of rounded points, so that ‖x−x‖² is exactly zero. Each sum runs from left to right in f64, as
/// [`Kernel::value`] takes it; four rows at a time hide the latency of the additions.
fn squares<T: Real>(x: ArrayView2<T>, xx: &mut [T]) {
    for (rows, xx) in x.axis_chunks_iter(Axis(0), 4).zip(xx.chunks_mut(4)) {
        let row = |i: usize| rows.slice_move(s![i.min(xx.len() - 1), ..]).to_slice().expect("points lie row by row");
        let (a, b, c, d) = (row(0), row(1), row(2), row(3));
        let mut sums = [0.0; 4];
        for (((a, b), c), d) in a.iter().zip(b).zip(c).zip(d) {
            for (sum, v) in sums.iter_mut().zip([a, b, c, d]) {
                *sum += v.wide() * v.wide();
            }
        }
        xx.iter_mut().zip(sums).for_each(|(xx, sum)| *xx = T::of(sum));
    }
}

impl<T: Real> View<T> {
    /// What a tile sees of these points.
    pub fn side(&self, points: std::ops::Range<usize>) -> Seen<'_, T> {
        let length = self.profile.len() / self.xx.len().max(1);
        let profile = &self.profile[points.start * length..points.end * length];
        Seen { xx: &self.xx[points], profile }
    }

    /// The points of these rows, in this order.
    fn select(&self, rows: &[usize]) -> View<T> {
        let profile = rows.iter().flat_map(|&i| self.side(i..i + 1).profile).copied().collect();
        View { x: self.x.select(Axis(0), rows), xx: rows.iter().map(|&i| self.xx[i]).collect(), profile }
    }
}

fn position_or_push<V: PartialEq>(items: &mut Vec<V>, item: V) -> usize {
    items.iter().position(|other| *other == item).unwrap_or_else(|| {
        items.push(item);
        items.len() - 1
    })
}

impl<T: Real> Prepared<T> {
    /// The points of these rows, in this order.
    pub(super) fn select(&self, rows: &[usize]) -> Prepared<T> {
        Prepared { n: rows.len(), views: self.views.iter().map(|view| view.select(rows)).collect() }
    }
}
