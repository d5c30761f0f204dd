//! The kernel matrix of points that are sharded over the ranks of a group.

use crate::compute::Device;
use crate::data::{CowRows, Matrix, Rows};
use crate::group::{self, Number};
use crate::kernel::Kernel;
use crate::linalg::{Panel, Part, Sharding, Shares};
use crate::operator::kinds::matrix_free::{AnyPoints, strips};
use crate::operator::kinds::sharded_features::ShardedFeatures;
use crate::operator::tile::few_columns::{Products, Vectors};
use crate::operator::tile::point_pair::PointPair;
use crate::operator::tile::points::{Plan, Prepared};
use crate::operator::tile::workspace::{SIDE, Workspace, ranges};
use crate::operator::{Extension, KernelFeatures, KernelOperator, Operator, Points, Precision, Real, cross_apply};
use crate::{Error, FitContext, Group, Progress, Result, fail_if};
use ndarray::{ArcArray2, Array1, Array2, ArrayView2, Axis, s};
use rayon::prelude::*;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// `K = κ(X,X)` where each rank of a group has some of the points: the rows of rank 0 come first, then those of rank 1, and so on. No rank
/// has all of them; in a product each computes its share of the tiles, every symmetric half once.
///
/// Panels of vectors are sharded as the points are ([`Operator::sharding`]); those that are whole must be the same on every rank, as for
/// [`Operator::apply`]. Its methods that return a `Result` are collective.
///
/// ```
/// use mercer::{FitContext, group::on_threads, kernel::Kernel, operator::{Operator, ShardedOperator}};
/// let (kernel, x) = (Kernel::parse("linear")?, ndarray::array![[0.0], [1.0], [3.0]]);
/// let products = on_threads(2, |group| {
///     let context = FitContext { group, ..FitContext::default() };
///     let own = x.slice(ndarray::s![group.share(3), ..]);
///     ShardedOperator::new(&kernel, own, &context)?.apply(ndarray::Array2::ones((3, 1)).view())
/// });
/// for product in products {
///     assert_eq!(product?, ndarray::array![[0.0], [4.0], [12.0]]);
/// }
/// # Ok::<(), mercer::Error>(())
/// ```
pub struct ShardedOperator<'a> {
    /// The kernel on the points of this rank, centred on the mean of all points.
    own: KernelOperator<'a>,
    /// The same points, for the functions that have them as centres; none where others keep them
    shared: Option<ArcArray2<f64>>,
    /// Which rows each rank has.
    shares: Arc<Shares>,
    diagonal: OnceLock<Array1<f64>>,
}

/// Points that are in memory at a time beside those of this rank, at most.
const VISITORS: usize = 10 * SIDE;

/// Points of `row` bytes of another rank that are in memory at a time: whole tiles, of a few megabytes.
fn visitors(row: usize) -> usize {
    const BYTES: usize = 4 << 20;
    (BYTES / row.max(1) / SIDE * SIDE).clamp(SIDE, VISITORS)
}

/// In how many pieces the points of every rank, each of `row` bytes, go to another one, where rank r has the rows from `starts[r]` to
/// `starts[r + 1]`: the same for all, so that every message has a receiver, and both of two ranks that share a block have work in every piece.
fn pieces(starts: &[usize], row: usize) -> usize {
    let longest = starts.windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0);
    longest.div_ceil(visitors(row))
}

/// The rows of one of `pieces` of `0..length`, in whole tiles but for the last.
fn piece(length: usize, number: usize, pieces: usize) -> Range<usize> {
    let at = |number: usize| if number == pieces { length } else { length * number / pieces / SIDE * SIDE };
    at(number)..at(number + 1)
}

/// Which rows two ranks multiply when they meet, each counted from the first row of its rank.
struct Meeting {
    /// The rank whose points come here, and the one to which those of this rank go.
    from: usize,
    to: usize,
    /// Rows of this rank that go there.
    sent: Range<usize>,
    /// Rows that come here.
    met: Range<usize>,
    /// Rows of this rank that meet them.
    used: Range<usize>,
}

impl Meeting {
    /// Whom `rank` meets in a round, from 1 on, where rank r has the rows from `starts[r]` to `starts[r + 1]`. In the last round of an even
    /// number of ranks, the same two meet each other: the lower takes the first half of the higher one's rows, and the higher one its second
    /// half.
    fn new(rank: usize, round: usize, starts: &[usize]) -> Meeting {
        let size = starts.len() - 1;
        let (from, to) = ((rank + round) % size, (rank + size - round) % size);
        let length = |rank: usize| starts[rank + 1] - starts[rank];
        let (last, half) = (2 * round == size, |rank: usize| length(rank) / 2);
        let part = |rank: usize, other: usize| if last && rank > other { half(rank) } else { length(rank) };
        let first = if last && rank > from { half(rank) } else { 0 };
        Meeting { from, to, sent: 0..part(rank, to), met: 0..part(from, rank), used: first..length(rank) }
    }
}

impl<'a> ShardedOperator<'a> {
    /// The kernel on the points of all ranks, of which this one has `own` `[n_r, d]`; in the context's precision on its device.
    pub fn new(kernel: &Kernel, own: impl Into<Rows<'a>>, context: &FitContext<'a>) -> Result<Self> {
        ShardedOperator::on(kernel, (CowRows::Borrowed(own.into()), None), context)
    }

    /// As [`Self::new`], with points that it keeps.
    pub fn of(kernel: &Kernel, own: Matrix, context: &FitContext<'a>) -> Result<Self> {
        let both = match own {
            Matrix::F64(x) => {
                let x = x.into_shared();
                (CowRows::Shared(x.clone()), Some(x))
            }
            other => (CowRows::Owned(other), None),
        };
        ShardedOperator::on(kernel, both, context)
    }

    fn on(
        kernel: &Kernel,
        (own, shared): (CowRows<'a>, Option<ArcArray2<f64>>),
        context: &FitContext<'a>,
    ) -> Result<Self> {
        let (group, x) = (context.group, own.rows());
        let shares = Shares::new(group, x.n())?;
        let (n, first) = (shares.n(), shares.own().start);
        let empty = shares.starts().windows(2).any(|rows| rows[0] == rows[1]);
        fail_if!(empty, "{n} points are too few for {} ranks; use fewer ranks", group.size());
        if let Some((i, j, value)) = x.non_finite() {
            return Err(Error::input(format!("row {}, column {} is {value}; it must be finite", first + i + 1, j + 1)));
        }
        x.check_magnitude()?;
        let mut mean = x.mean().expect("there are rows") * x.n() as f64;
        group.sum(mean.as_slice_mut().expect("own array"))?;
        let own = KernelOperator::around(kernel, own, mean / n as f64, context)?;
        Ok(ShardedOperator { own, shared, shares: Arc::new(shares), diagonal: OnceLock::new() })
    }

    fn group(&self) -> Group<'_> {
        self.shares.group()
    }

    /// `K V` in the rows of this rank `[n_r, b]`, from those of `V`.
    fn own_product(&self, v: ArrayView2<f64>) -> Result<Array2<f64>> {
        let mut y = self.own.apply(v)?;
        for round in 1..=self.group().size() / 2 {
            self.meet(&Meeting::new(self.group().rank(), round, self.shares.starts()), v, &mut y)?;
        }
        Ok(y)
    }

    /// Adds to `y` `[n_r, b]` what the rows of this rank get from those that it meets, in both directions; `v` `[n_r, b]` travels with the points.
    fn meet(&self, meeting: &Meeting, v: ArrayView2<f64>, y: &mut Array2<f64>) -> Result<()> {
        let Meeting { from, to, sent, met, used } = meeting;
        let (x, b) = (self.own.x(), v.ncols());
        let mut theirs = Array2::zeros((met.len(), b));
        let pieces = pieces(self.shares.starts(), packed(x.slice(0..1)).len());
        for number in 0..pieces {
            let some = |rows: &Range<usize>| piece(rows.len(), number, pieces);
            let (going, coming) = (some(sent), some(met));
            let of_going = v.slice(s![going.clone(), ..]).as_standard_layout().into_owned();
            let both = [&packed(x.slice(going))[..], bytes(&of_going)].concat();
            let received = self.group().exchange(*to, &both, *from)?;
            drop(both);
            if coming.is_empty() {
                continue;
            }
            let (points, vectors) = received.split_at(received.len() - 8 * coming.len() * b);
            let visitors = unpacked(x, points, coming.len());
            let of_visitors = numbers::<f64>(vectors, (coming.len(), b));
            drop(received);
            let [own, their] = self.products(visitors.rows(), used.clone(), [v, of_visitors.view()])?;
            let mut target = y.slice_mut(s![used.clone(), ..]);
            target += &own;
            theirs.slice_mut(s![coming, ..]).assign(&their);
        }
        let returned = self.group().exchange(*from, bytes(&theirs), *to)?;
        let mut target = y.slice_mut(s![sent.clone(), ..]);
        target += &numbers::<f64>(&returned, (sent.len(), b));
        Ok(())
    }

    /// `K_ab V_b` `[used, b]` and `K_abᵀ V_a` `[b.n, b]` for the rows `used` of this rank's points a, and the points `b`; `V_a` is that of
    /// all rows of this rank.
    fn products(&self, b: Rows<'_>, used: Range<usize>, [v_a, v_b]: [ArrayView2<f64>; 2]) -> Result<[Array2<f64>; 2]> {
        if let device @ Device::Cuda(_) = self.own.runs_on() {
            let (kernel, a, precision) = (self.own.formula(), self.own.x().slice(used.clone()), self.own.precision());
            return Ok([
                cross_apply(kernel, a, b, v_b, precision, device)?,
                cross_apply(kernel, b, a, v_a.slice(s![used, ..]), precision, device)?,
            ]);
        }
        let (plan, diagonal) = (self.own.plan(), self.own.known_diagonal());
        Ok(match self.own.prepared() {
            AnyPoints::F32(a) => both_products(plan, (a, used), diagonal, b, [v_a, v_b]),
            AnyPoints::F64(a) => both_products(plan, (a, used), diagonal, b, [v_a, v_b]),
        })
    }

    /// The points of some rows `[rows, d]`, in the given order, from the ranks that have them.
    fn points_at(&self, rows: &[usize]) -> Result<Matrix> {
        let own = self.own_points(rows);
        let width = packed(self.own.x().slice(0..1)).len();
        let all = self.shares.in_order(rows, width, &packed(own.rows()))?;
        Ok(unpacked(self.own.x(), &all, rows.len()))
    }

    /// Those of some rows that this rank has, counted from its first.
    fn own_of(&self, rows: &[usize]) -> Vec<usize> {
        self.shares.own_of(rows).map(|(_, row)| row).collect()
    }

    /// The points of these.
    fn own_points(&self, rows: &[usize]) -> Matrix {
        self.own.x().select(&self.own_of(rows))
    }

    /// What each rank has computed of its rows among `rows`, `[own rows, b]`, as one matrix in the order of `rows`.
    fn assembled(&self, rows: &[usize], own: &Array2<f64>) -> Result<Array2<f64>> {
        let own = own.as_standard_layout();
        let all = self.shares.in_order(rows, 8 * own.ncols(), group::bytes(own.as_slice().expect("row by row")))?;
        Ok(numbers(&all, (rows.len(), own.ncols())))
    }

    /// The rows of this rank, of all or of these `[n_r, b]`.
    fn own_rows<'v>(&self, v: ArrayView2<'v, f64>) -> ArrayView2<'v, f64> {
        if v.nrows() == self.n() { v.slice_move(s![self.shares.own(), ..]) } else { v }
    }

    /// `K[rows, columns] V` in the rows of this rank among `rows`, where the points of fewer columns are sent to all ranks.
    fn product_in_own(&self, rows: &[usize], columns: &[usize], v: ArrayView2<f64>) -> Result<Array2<f64>> {
        let (kernel, precision, device) = (self.own.formula(), self.own.precision(), self.own.runs_on());
        let z = self.points_at(columns)?;
        cross_apply(kernel, self.own_points(rows).rows(), z.rows(), v, precision, device)
    }

    /// `K[rows, columns] V` `[rows, b]`, where the points of fewer rows are sent to all ranks; `v` has the rows of this rank among `columns`.
    fn product_over_own(&self, rows: &[usize], columns: &[usize], v: ArrayView2<f64>) -> Result<Array2<f64>> {
        let (kernel, precision, device) = (self.own.formula(), self.own.precision(), self.own.runs_on());
        let z = self.points_at(rows)?;
        let mut sum = match v.is_empty() {
            true => Array2::zeros((rows.len(), v.ncols())),
            false => cross_apply(kernel, z.rows(), self.own_points(columns).rows(), v, precision, device)?,
        };
        self.group().sum(sum.as_slice_mut().expect("own array"))?;
        Ok(sum)
    }

    /// `K[rows, columns] V` `[rows, b]` for `V` `[columns, b]`: the points of the shorter list are sent to all ranks.
    fn product_of(&self, rows: &[usize], columns: &[usize], v: ArrayView2<f64>) -> Result<Array2<f64>> {
        if rows.len() > columns.len() {
            return self.assembled(rows, &self.product_in_own(rows, columns, v)?);
        }
        let places: Vec<usize> = self.shares.own_of(columns).map(|(place, _)| place).collect();
        self.product_over_own(rows, columns, v.select(Axis(0), &places).view())
    }
}

impl Operator for ShardedOperator<'_> {
    fn n(&self) -> usize {
        self.shares.n()
    }

    fn sharding(&self) -> Sharding {
        Sharding::from(self.shares.clone())
    }

    fn apply(&self, v: ArrayView2<f64>) -> Result<Array2<f64>> {
        let sharding = self.sharding();
        sharding.check_same(v)?;
        sharding.gathered(self.own_product(self.own_rows(v))?)
    }

    fn apply_panel(&self, v: &Panel) -> Result<Panel> {
        match v.sharding().is_whole() {
            true => v.through_host(|v| self.apply(v)),
            false => v.own_through_host(|v| self.own_product(v)),
        }
    }

    fn block(&self, rows: &[usize], columns: &[usize]) -> Result<Array2<f64>> {
        if rows.len() < columns.len() {
            return Ok(self.block(columns, rows)?.t().as_standard_layout().into_owned());
        }
        let z = self.points_at(columns)?;
        self.assembled(rows, &self.own.block_with(&self.own_of(rows), z.rows()))
    }

    fn diagonal(&self) -> Result<Array1<f64>> {
        if self.diagonal.get().is_none() {
            let own = self.own.diagonal()?;
            let all = self.group().concatenated(own.as_slice().expect("own array"))?;
            let _ = self.diagonal.set(all.into());
        }
        Ok(self.diagonal.get().expect("just set").clone())
    }

    fn roundoff(&self) -> f64 {
        self.own.roundoff()
    }

    fn product(&self, rows: Range<usize>, columns: Range<usize>, v: ArrayView2<f64>) -> Result<Array2<f64>> {
        if rows.len() == self.n() && columns.len() == self.n() {
            return self.apply(v);
        }
        self.product_of(&rows.collect::<Vec<_>>(), &columns.collect::<Vec<_>>(), v)
    }

    fn product_panel(&self, rows: &Part<'_>, columns: &Part<'_>, v: &Panel) -> Result<Panel> {
        let n = self.n();
        if rows.is_all(n) && columns.is_all(n) {
            return self.apply_panel(v);
        }
        let [rows, columns] = [rows.list(n), columns.list(n)];
        if v.sharding().is_whole() {
            return v.through_host(|v| self.product_of(&rows, &columns, v));
        }
        // All columns, of which each rank has some.
        Panel::from_host(v.device(), self.product_over_own(&rows, &columns, v.own_rows()?.view())?)
    }

    /// In the rows of this rank, where they are all.
    fn block_panel(&self, rows: &Part<'_>, columns: &Part<'_>, device: Device) -> Result<Panel> {
        let n = self.n();
        if rows.is_all(n) {
            let z = self.points_at(&columns.list(n))?;
            let all: Vec<usize> = (0..self.own.n()).collect();
            return Panel::sharded(device, &self.sharding(), self.own.block_with(&all, z.rows()));
        }
        Panel::from_host(device, self.block(&rows.list(n), &columns.list(n))?)
    }

    /// On every rank, some columns at a time.
    fn to_dense(&self, progress: &dyn Progress) -> Result<Array2<f64>> {
        let (n, sharding) = (self.n(), self.sharding());
        let own: Vec<usize> = (0..self.own.n()).collect();
        let mut all = Array2::zeros((n, n));
        for start in (0..n).step_by(VISITORS) {
            let columns: Vec<usize> = (start..n.min(start + VISITORS)).collect();
            let block = sharding.gathered(self.own.block_with(&own, self.points_at(&columns)?.rows()))?;
            all.slice_mut(s![.., start..start + columns.len()]).assign(&block);
            progress.step("kernel matrix", start + columns.len(), n, "");
        }
        Ok(all)
    }

    fn coordinates(&self) -> usize {
        self.own.coordinates()
    }

    /// All points are the centres of the functions, and stay on the ranks that have them; some are on every rank.
    fn extend(&self, rows: Option<&[usize]>, a: Array2<f64>) -> Result<Extension> {
        let (kernel, precision, device) = (self.own.formula(), self.own.precision(), self.own.runs_on());
        if let Some(rows) = rows {
            let features = KernelFeatures::new(kernel, self.points_at(rows)?.into_f64(), precision, device);
            return Ok(Extension { features: Box::new(features), coefficients: a });
        }
        let centres = self.shared.clone().unwrap_or_else(|| self.own.x().to_f64().into_owned().into());
        let own = KernelFeatures::new(kernel, centres, precision, device);
        let coefficients = if a.nrows() == self.n() { self.own_rows(a.view()).to_owned() } else { a };
        Ok(Extension { features: Box::new(ShardedFeatures::new(own, self.sharding())), coefficients })
    }

    fn cross(&self, points: Points<'_>, a: ArrayView2<f64>) -> Result<Array2<f64>> {
        let (kernel, precision, device) = (self.own.formula(), self.own.precision(), self.own.runs_on());
        let mut sum = cross_in_parts(kernel, points.coordinates()?, self.own.x(), self.own_rows(a), precision, device)?;
        self.group().sum(sum.as_slice_mut().expect("own array"))?;
        Ok(sum)
    }

    fn at<'p>(&'p self, points: Points<'p>) -> Result<Box<dyn Operator + 'p>> {
        self.own.at(points)
    }

    fn describe(&self) -> String {
        self.own.describe()
    }
}

/// `κ(X, Z) A` `[m, k]` for `A` `[z.n, k]`, a few thousand points Z at a time: what is prepared of all of them would be another copy.
pub(crate) fn cross_in_parts(
    kernel: &Kernel,
    x: Rows<'_>,
    z: Rows<'_>,
    a: ArrayView2<f64>,
    precision: Precision,
    device: Device,
) -> Result<Array2<f64>> {
    let mut sum = Array2::zeros((x.n(), a.ncols()));
    for start in (0..z.n()).step_by(VISITORS) {
        let few = start..z.n().min(start + VISITORS);
        sum += &cross_apply(kernel, x, z.slice(few.clone()), a.slice(s![few, ..]), precision, device)?;
    }
    Ok(sum)
}

/// `K_ab V_b` `[used, k]` and `K_abᵀ V_a` `[b.n, k]` from one computation of the tiles, for the rows `used` of the points a.
fn both_products<T: Real>(
    plan: &Plan,
    (a, used): (&Prepared<T>, Range<usize>),
    diagonal: &Array1<f64>,
    b: Rows<'_>,
    [v_a, v_b]: [ArrayView2<f64>; 2],
) -> [Array2<f64>; 2] {
    let b = plan.points::<T>(b);
    let point_pair = PointPair::new(plan, a, &b, |rows| diagonal.select(Axis(0), rows));
    let (of_a, of_b) = (Vectors::new(v_a), Vectors::new(v_b));
    let (rows, columns) = (ranges(used.len(), plan.side()), ranges(b.n, plan.side()));
    let tiles: Vec<_> = rows.iter().flat_map(|rows| columns.iter().map(move |columns| (rows, columns))).collect();
    let zeros = || [Array2::zeros((used.len(), v_a.ncols())), Array2::zeros(v_b.dim())];
    let strip = |tiles: &[(&Range<usize>, &Range<usize>)]| {
        let ([mut y_a, mut y_b], mut workspace) = (zeros(), Workspace::default());
        for &(rows, columns) in tiles {
            let at = used.start + rows.start..used.start + rows.end;
            let mut products = Products::new(Some(&of_a), &of_b, columns.clone());
            products.tile(&mut workspace, &point_pair, at, y_a.slice_mut(s![rows.clone(), ..]));
            products.finish(y_b.slice_mut(s![columns.clone(), ..]));
        }
        [y_a, y_b]
    };
    let each = tiles.len().div_ceil(strips()).max(1);
    let partial: Vec<[Array2<f64>; 2]> = tiles.par_chunks(each).map(strip).collect();
    partial.into_iter().reduce(|[a, b], [c, d]| [a + c, b + d]).unwrap_or_else(zeros)
}

/// Points as bytes, in the type in which they are stored.
fn packed(x: Rows<'_>) -> Cow<'_, [u8]> {
    fn of<T: Number>(x: ArrayView2<'_, T>) -> Cow<'_, [u8]> {
        match x.to_slice() {
            Some(rows) => group::bytes(rows).into(),
            None => group::bytes(x.as_standard_layout().as_slice().expect("row by row")).to_vec().into(),
        }
    }
    match x {
        Rows::F64(x) => of(x),
        Rows::F32(x) => of(x),
        Rows::U8 { values, .. } => of(values),
    }
}

/// `n` points from bytes, stored as `like` is.
fn unpacked(like: Rows<'_>, bytes: &[u8], n: usize) -> Matrix {
    let dim = (n, like.d());
    match like {
        Rows::F64(_) => Matrix::F64(numbers(bytes, dim)),
        Rows::F32(_) => Matrix::F32(numbers(bytes, dim)),
        Rows::U8 { divisor, .. } => Matrix::U8 { values: numbers(bytes, dim), divisor },
    }
}

/// A matrix in row-major order as bytes.
fn bytes(a: &Array2<f64>) -> &[u8] {
    group::bytes(a.as_slice().expect("row by row"))
}

/// A matrix `[n, m]` from bytes.
fn numbers<T: Number>(bytes: &[u8], dim: (usize, usize)) -> Array2<T> {
    Array2::from_shape_vec(dim, group::numbers(bytes)).expect("n·m numbers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_compute_every_entry_once_and_about_as_many_each() {
        for (n, ranks) in [(1000, 1), (1000, 2), (1001, 3), (997, 4), (640, 5), (643, 6), (5000, 64)] {
            let starts: Vec<usize> = (0..=ranks).map(|rank| rank * n / ranks).collect();
            let of_rank = |rank: usize| {
                let own = starts[rank + 1] - starts[rank];
                let met = (1..=ranks / 2).map(|round| Meeting::new(rank, round, &starts));
                own * (own + 1) / 2 + met.map(|Meeting { met, used, .. }| met.len() * used.len()).sum::<usize>()
            };
            let entries: Vec<usize> = (0..ranks).map(of_rank).collect();
            assert_eq!(entries.iter().sum::<usize>(), n * (n + 1) / 2, "{n} points on {ranks} ranks");
            let (most, mean) = (entries.iter().max().unwrap(), (n * n) as f64 / (2 * ranks) as f64);
            assert!((*most as f64) < 1.05 * mean + n as f64, "{n} points on {ranks} ranks: {most}");
        }
    }
}
