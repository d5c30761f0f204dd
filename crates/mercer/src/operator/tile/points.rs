//! Points prepared for a kernel: rounded to the tile's precision, shifted or lifted where the formula needs it.

use crate::data::Rows;
use crate::kernel::{Base, Kernel, Pair, Statistic};
use crate::operator::images::Images;
use crate::operator::memory::zeros;
use crate::operator::tile::duplicates::keys;
use crate::operator::tile::near::{Distance, Near, Roundoff};
use crate::operator::tile::network::{LANES, NetworkBuffers, has_series, profile};
use crate::operator::tile::workspace::{SIDE, ranges};
use crate::operator::{Precision, Real};
use ndarray::{Array1, Array2, ArrayView2, Axis, Zip, s};
use rayon::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};

/// Points that are prepared together.
const ROWS: usize = 2 * LANES;

/// How a kernel looks at points. Built once from the reference points; both sides of a product use the same one.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub kernel: Kernel,
    /// Subtracted from the points before rounding, so that points far from the origin lose no digits: from those that are seen as
    /// they are, where all base kernels that see them so are functions of a distance, and from those that are only divided by
    /// lengthscales.
    shift: Option<Array1<f64>>,
    /// Whether that holds for points that are seen as they are.
    shifts: bool,
    /// For each base kernel, from left to right: which of [`Self::statistics`] it reads.
    pub leaves: Vec<usize>,
    /// The different (view, statistic) pairs that the base kernels need. Squared distances are made of [`Statistic::Dot`].
    pub statistics: Vec<(usize, Statistic)>,
    /// The different lifts of the points; `None` is the points themselves.
    lifts: Vec<Option<Base>>,
    /// For each lift that is one of images: how its network runs.
    pub images: Vec<Option<Images>>,
}

/// Points `[n, d]` as a plan needs them.
pub(crate) struct Prepared<T> {
    /// No other set has the same.
    pub(crate) id: u64,
    pub(crate) n: usize,
    pub(crate) views: Vec<View<T>>,
    /// Equal points have equal keys, `[n]`; see [`keys`].
    pub(crate) keys: Vec<u128>,
}

/// One lift of the points.
pub(crate) struct View<T> {
    /// `[n, p]`
    pub x: Array2<T>,
    /// What rounding removed from `x` `[n, p]`, where a kernel of a distance would show it; else empty.
    pub low: Array2<T>,
    /// `‖x_i‖²`, `[n]`
    pub xx: Vec<T>,
    /// The largest `‖x_i‖²`.
    pub largest: f64,
    /// What an infinite network's layers need of each point, `[n, length]`.
    pub profile: Vec<T>,
}

/// What a tile sees of some points besides the points themselves.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'a, T> {
    /// `‖x_i‖²`, `[n]`
    pub xx: &'a [T],
    /// `[n, length]`
    pub profile: &'a [T],
}

/// The least and the largest `‖x‖²` of some points; for the least, points at the origin do not count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Norms {
    pub least: f64,
    pub largest: f64,
}

impl Norms {
    /// Of no points.
    pub const NONE: Norms = Norms { least: f64::INFINITY, largest: 0.0 };

    /// Of a point.
    pub fn of(xx: f64) -> Norms {
        Norms { least: if xx > 0.0 { xx } else { f64::INFINITY }, largest: xx.max(0.0) }
    }

    /// Of both.
    pub fn joined(self, other: Norms) -> Norms {
        Norms { least: self.least.min(other.least), largest: self.largest.max(other.largest) }
    }
}

impl Plan {
    /// Plans for `kernel`, centred on the mean of `reference` `[n, d]` where the kernel allows it.
    pub fn new(kernel: &Kernel, reference: Rows<'_>) -> Plan {
        Plan::around(kernel, reference.d(), || reference.mean())
    }

    /// Plans for `kernel` on points of `d` columns, centred on `mean` `[d]` where the kernel allows it.
    pub fn around(kernel: &Kernel, d: usize, mean: impl FnOnce() -> Option<Array1<f64>>) -> Plan {
        let (leaves, statistics, lifts, images) = Default::default();
        let mut plan = Plan { kernel: kernel.clone(), shift: None, shifts: true, leaves, statistics, lifts, images };
        kernel.check_columns(d).expect("a lengthscale for each column");
        let origin = Array2::zeros((1, d.max(1)));
        for base in kernel.bases() {
            let (statistic, lifts) = (base.statistic(), base.lift(origin.view()).is_some());
            plan.shifts &= lifts || matches!(statistic, Statistic::SquaredDistance | Statistic::L1);
            let computed = if statistic == Statistic::SquaredDistance { Statistic::Dot } else { statistic };
            let view = position_or_push(&mut plan.lifts, lifts.then(|| base.clone()));
            let leaf = position_or_push(&mut plan.statistics, (view, computed));
            plan.leaves.push(leaf);
        }
        plan.shift = (0..plan.views()).any(|view| plan.shifts_view(view)).then(mean).flatten();
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
        Prepared { id: new_id(), n: x.n(), views: self.views_of(x), keys: keys(x) }
    }

    /// Every lift of the points `x` `[n, d]`.
    fn views_of<T: Real>(&self, x: Rows<'_>) -> Vec<View<T>> {
        (0..self.lifts.len()).map(|view| self.view(x, view)).collect()
    }

    /// The least and the largest `‖x‖²` of points `[n, d]` in each view, in f64, a few rows at a time.
    pub fn norms(&self, x: Rows<'_>) -> Vec<Norms> {
        let (mut found, mut xx) = (vec![Norms::NONE; self.views()], [0.0; ROWS]);
        for rows in ranges(x.n(), ROWS) {
            let (few, xx) = (x.slice(rows.clone()).to_f64(), &mut xx[..rows.len()]);
            for (view, norms) in found.iter_mut().enumerate() {
                squares(self.seen(few.view(), view).as_standard_layout().view(), xx);
                *norms = xx.iter().fold(*norms, |norms, &xx| norms.joined(Norms::of(xx)));
            }
        }
        found
    }

    /// Whether the points of a view may be shifted.
    fn shifts_view(&self, view: usize) -> bool {
        let Some(base) = &self.lifts[view] else {
            return self.shifts;
        };
        let is_distance = matches!(base.statistic(), Statistic::SquaredDistance | Statistic::L1);
        is_distance && base.columns().is_some_and(|each| base.only_divides(each.len()))
    }

    /// What is subtracted from the points for a view.
    fn shift_of(&self, view: usize) -> Option<&Array1<f64>> {
        self.shift.as_ref().filter(|_| self.shifts_view(view))
    }

    /// What is subtracted from the points for a view, and the base kernel that then lifts them, where there is one.
    pub(crate) fn steps_to(&self, view: usize) -> (Option<&Array1<f64>>, Option<&Base>) {
        (self.shift_of(view), self.lifts[view].as_ref())
    }

    /// Rows of points as a view sees them: shifted, then lifted.
    pub(crate) fn seen(&self, rows: ArrayView2<f64>, view: usize) -> Array2<f64> {
        let shifted = self.shift_of(view).map(|shift| {
            // Row by row, which is several times as fast as `&rows - shift`.
            let mut shifted = rows.to_owned();
            shifted.rows_mut().into_iter().for_each(|mut row| row -= shift);
            shifted
        });
        let lifted = |base: &Base| base.lift(shifted.as_ref().map_or(rows, |shifted| shifted.view()));
        let lifted = self.lifts[view].as_ref().and_then(lifted);
        lifted.or(shifted).unwrap_or_else(|| rows.to_owned())
    }

    /// One lift of the points, a few rows at a time: what they are in f64 stays in the cache.
    fn view<T: Real>(&self, x: Rows<'_>, view: usize) -> View<T> {
        let (lift, images) = (&self.lifts[view], &self.images[view]);
        let n = x.n();
        let columns = self.seen(x.slice(0..0).to_f64().view(), view).ncols();
        let mut values = Array2::from_shape_vec((n, columns), zeros(n * columns)).expect("n·p values");
        let mut xx = vec![T::default(); n];
        let targets = values.axis_chunks_iter_mut(Axis(0), ROWS).zip(xx.chunks_mut(ROWS));
        let chunks: Vec<_> = ranges(n, ROWS).into_iter().zip(targets).collect();
        // No parallel jobs for a strip: its caller already runs in one.
        let profiles = chunks.into_par_iter().with_min_len(2 * SIDE / ROWS).map(|(rows, (mut values, xx))| {
            let rows = self.seen(x.slice(rows).to_f64().view(), view);
            values.zip_mut_with(&rows, |rounded, &x| *rounded = T::of(x));
            squares(values.view(), xx);
            match (images, lift.as_ref().and_then(Base::network)) {
                (Some(images), _) => images.profiles(rows.view()).into_iter().map(T::of).collect(),
                (_, Some((network, _))) => xx.iter().flat_map(|xx| profile(network.steps(), xx.wide())).collect(),
                _ => vec![],
            }
        });
        let profile = profiles.collect::<Vec<Vec<T>>>().concat();
        let largest = xx.iter().fold(0.0f64, |m, xx| m.max(xx.wide()));
        let exact = T::PRECISION == Precision::F64 && (lift.is_some() || self.shift_of(view).is_none());
        let keeps = !exact && self.shows_rounding(view, largest, columns, Roundoff::of::<T>());
        let low = if keeps { self.low(x, view, values.view()) } else { Array2::default((0, 0)) };
        View { x: values, low, xx, largest, profile }
    }

    /// What rounding removed from the `values` `[n, p]` of a view, in the same precision.
    fn low<T: Real>(&self, x: Rows<'_>, view: usize, values: ArrayView2<T>) -> Array2<T> {
        let shift = self.shift_of(view).filter(|_| self.lifts[view].is_none());
        let mut low = Array2::from_elem(values.dim(), T::default());
        let chunks: Vec<_> = ranges(x.n(), ROWS).into_iter().zip(low.axis_chunks_iter_mut(Axis(0), ROWS)).collect();
        chunks.into_par_iter().with_min_len(2 * SIDE / ROWS).for_each(|(rows, mut low)| {
            let x = x.slice(rows.clone()).to_f64();
            let seen = self.seen(x.view(), view);
            let values = values.slice(s![rows, ..]);
            Zip::from(&mut low).and(&seen).and(values).for_each(|low, &t, v| *low = T::of(t - v.wide()));
            if let Some(shift) = shift {
                let shift = shift.broadcast(x.dim()).expect("a shift for each column");
                let terms = Zip::from(&mut low).and(&x).and(&shift).and(&seen);
                terms.for_each(|low, &x, &m, &t| *low = T::of(low.wide() + rounded_off(x, m, t)));
            }
        });
        low
    }

    /// The base kernels, from left to right, with the view that each sees.
    fn bases(&self) -> impl Iterator<Item = (&Base, usize)> {
        self.kernel.bases().into_iter().zip(&self.leaves).map(|(base, leaf)| (base, self.statistics[*leaf].0))
    }

    /// Whether the rounding of points with `‖x‖² ≤ largest` in the `p` columns of a view shows in a kernel of their distances.
    pub fn shows_rounding(&self, view: usize, largest: f64, p: usize, roundoff: Roundoff) -> bool {
        let mut distances = self.bases().filter(|(_, of)| *of == view).filter_map(|(base, _)| Distance::of(base, p));
        distances.any(|distance| distance.shows_rounding(largest, roundoff))
    }

    /// How many views there are.
    pub fn views(&self) -> usize {
        self.lifts.len()
    }

    /// For each base kernel, from left to right: which entries are computed anew, between points whose views have
    /// `‖x‖² + ‖x'‖²` up to `largest` in `widths` columns.
    pub fn near(&self, largest: &[f64], widths: &[usize], roundoff: Roundoff) -> Vec<Option<Near>> {
        let near = |(base, view): (&Base, usize)| Distance::of(base, widths[view])?.near(largest[view], roundoff);
        self.bases().map(near).collect()
    }

    /// `κ(x,x)` `[n]` for points `[n, d]`, in f64.
    pub fn diagonal(&self, x: Rows<'_>) -> Array1<f64> {
        let is_distance = |base: &Base| matches!(base.statistic(), Statistic::L1 | Statistic::SquaredDistance);
        if x.n() > 0 && self.bases().all(|(base, _)| is_distance(base) && base.network().is_none()) {
            // That of a distance of zero, at every point.
            return Array1::from_elem(x.n(), self.diagonal_of_few(x.slice(0..1))[0]);
        }
        let chunks = ranges(x.n(), ROWS).into_par_iter();
        chunks.map(|rows| self.diagonal_of_few(x.slice(rows))).collect::<Vec<_>>().concat().into()
    }

    fn diagonal_of_few(&self, x: Rows<'_>) -> Vec<f64> {
        let views = self.views_of::<f64>(x);
        let known: Vec<Option<Vec<f64>>> =
            views.iter().enumerate().map(|(view, seen)| self.known_diagonal(seen, view)).collect();
        let value = |i: usize| {
            let mut leaves = self.leaves.iter();
            self.kernel.combine(&mut |base| {
                let (view, _) = self.statistics[*leaves.next().expect("a leaf for each base kernel")];
                let xx = views[view].xx[i];
                let is_distance = || matches!(base.statistic(), Statistic::L1 | Statistic::SquaredDistance);
                let value = || base.eval(Pair { s: if is_distance() { 0.0 } else { xx }, xx, yy: xx });
                known[view].as_ref().map_or_else(value, |known| known[i])
            })
        };
        (0..x.n()).map(value).collect()
    }

    /// `κ(x,x)` `[n]` where it is no formula of the norm: of images, and of activations that are series.
    fn known_diagonal(&self, seen: &View<f64>, view: usize) -> Option<Vec<f64>> {
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
        // The value of a point with itself does not depend on where the origin is.
        Plan::new(self, x.slice(0..x.n().min(1))).diagonal(x)
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
        let xx: Vec<T> = rows.iter().map(|&i| self.xx[i]).collect();
        let low = if self.low.is_empty() { Array2::default((0, 0)) } else { self.low.select(Axis(0), rows) };
        View { x: self.x.select(Axis(0), rows), low, xx, largest: self.largest, profile }
    }
}

/// `(x − m) − t`, exactly, for `t` = x − m as it is rounded.
fn rounded_off(x: f64, m: f64, t: f64) -> f64 {
    let part = t - x;
    (x - (t - part)) - (m + part)
}

fn position_or_push<V: PartialEq>(items: &mut Vec<V>, item: V) -> usize {
    items.iter().position(|other| *other == item).unwrap_or_else(|| {
        items.push(item);
        items.len() - 1
    })
}

/// The next number.
fn new_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl<T: Real> Prepared<T> {
    /// The points of these rows, in this order.
    pub(crate) fn select(&self, rows: &[usize]) -> Prepared<T> {
        let keys = rows.iter().map(|&i| self.keys[i]).collect();
        let views = self.views.iter().map(|view| view.select(rows)).collect();
        Prepared { id: new_id(), n: rows.len(), views, keys }
    }
}
