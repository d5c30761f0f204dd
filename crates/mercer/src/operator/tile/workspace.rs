//! One tile of the kernel matrix: dot products by GEMM, then the formula with SIMD while the tile is in cache.

use crate::kernel::{Base, Formula, Kernel, Pair, Statistic, with_formula};
use crate::linalg::matmul_into;
use crate::operator::Real;
use crate::operator::images::ImageBuffers;
use crate::operator::tile::aligned::Aligned;
use crate::operator::tile::near::Near;
use crate::operator::tile::network::NetworkBuffers;
use crate::operator::tile::packed::{Packed, packs};
use crate::operator::tile::point_pair::PointPair;
use crate::operator::tile::points::{Seen, View};
use crate::operator::tile::recompute::Recomputed;
use crate::simd::{Num, vectorized};
use faer::{Accum, Par};
use ndarray::{ArrayView1, ArrayView2, ArrayViewMut2, s};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Rows and columns of a square tile: half an L2 cache in f32, and large enough for a fast GEMM.
pub(crate) const SIDE: usize = 384;

/// Rows of a tile that are computed together where that costs nothing: in single precision they stay in the first cache.
const STRIP: usize = 12;

/// Splits `0..n` into ranges of at most `side`.
pub(crate) fn ranges(n: usize, side: usize) -> Vec<Range<usize>> {
    (0..n).step_by(side).map(|start| start..n.min(start + side)).collect()
}

/// The rows and the columns of a tile.
pub(crate) type Place = (Range<usize>, Range<usize>);

/// The tiles on and above the diagonal of an `[n, n]` matrix; those of the same columns follow each other. A full tile on the diagonal
/// is divided into four, and the one below the diagonal is left out.
pub(crate) fn upper_tiles(n: usize, side: usize) -> Vec<Place> {
    let blocks = ranges(n, side);
    let mut tiles = vec![];
    for (j, columns) in blocks.iter().enumerate() {
        tiles.extend(blocks[..j].iter().map(|rows| (rows.clone(), columns.clone())));
        let middle = (columns.start + side / 2).min(columns.end);
        if side < SIDE || middle == columns.end {
            tiles.push((columns.clone(), columns.clone()));
        } else {
            let (first, second) = (columns.start..middle, middle..columns.end);
            tiles.extend([(first.clone(), first.clone()), (first, second.clone()), (second.clone(), second)]);
        }
    }
    tiles
}

/// The number of values of a tile.
pub(crate) fn area((rows, columns): &Place) -> usize {
    rows.len() * columns.len()
}

/// Runs `work` for all `tasks` in parallel. Each thread has its own workspace and takes the next task when it is free.
pub(crate) fn for_each_task<T: Real, K: Sync>(tasks: &[K], work: impl Fn(&mut Workspace<T>, &K) + Sync) {
    let next = AtomicUsize::new(0);
    let threads = rayon::current_num_threads().min(tasks.len());
    (0..threads).into_par_iter().with_max_len(1).for_each(|_| {
        let mut workspace = Workspace::default();
        while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(&mut workspace, task);
        }
    });
}

/// Copies the upper triangle of a tile on the diagonal to the lower one, because sums over positions of images round
/// differently for `κ(x,x')` and `κ(x',x)`, and sets its diagonal.
pub(crate) fn make_symmetric<T: Real>(tile: &mut ArrayViewMut2<T>, diagonal: ArrayView1<f64>) {
    tile.diag_mut().zip_mut_with(&diagonal, |k, &d| *k = T::of(d));
    for i in 0..tile.nrows() {
        for j in 0..i {
            tile[[i, j]] = tile[[j, i]];
        }
    }
}

/// Buffers that one thread reuses from tile to tile.
#[derive(Default)]
pub(crate) struct Workspace<T> {
    values: Aligned<T>,
    /// The columns of each statistic.
    packed: Vec<Packed<T>>,
    statistics: Vec<Vec<T>>,
    spare: Vec<Vec<T>>,
    transposed: Vec<T>,
    network: NetworkBuffers<T>,
    images: ImageBuffers<T>,
    recomputed: Recomputed<T>,
}

/// Some of the points of a view.
pub(crate) type Part<'a, T> = (&'a View<T>, Range<usize>);

impl<T: Real> Workspace<T> {
    /// `κ(a[rows], b[columns])`, `[rows, columns]`.
    pub(crate) fn tile(
        &mut self,
        point_pair: &PointPair<'_, T>,
        rows: Range<usize>,
        columns: Range<usize>,
    ) -> ArrayViewMut2<'_, T> {
        let (shape, height) = ((rows.len(), columns.len()), height(point_pair));
        let mut values = std::mem::take(&mut self.values);
        values.room(shape.0 * shape.1);
        for (strip, out) in split(rows, height).zip(values.chunks_mut((height * shape.1).max(1))) {
            self.fill(point_pair, strip, columns.clone(), out);
        }
        self.values = values;
        ArrayViewMut2::from_shape(shape, &mut self.values).expect("the buffer has the size of the tile")
    }

    /// Calls `work(rows, κ(a[rows], b[columns]))` for a few of the `rows` at a time, while they are in cache.
    pub(crate) fn strips(
        &mut self,
        point_pair: &PointPair<'_, T>,
        rows: Range<usize>,
        columns: Range<usize>,
        mut work: impl FnMut(Range<usize>, ArrayView2<T>),
    ) {
        for strip in split(rows, height(point_pair)) {
            work(strip.clone(), self.tile(point_pair, strip, columns.clone()).view());
        }
    }

    /// Computes the values of a strip, `out` `[rows, columns]`.
    fn fill(&mut self, point_pair: &PointPair<'_, T>, rows: Range<usize>, columns: Range<usize>, out: &mut [T]) {
        let plan = point_pair.plan;
        let sides = |statistic: usize| {
            let view = plan.statistics[statistic].0;
            [(&point_pair.a.views[view], rows.clone()), (&point_pair.b.views[view], columns.clone())]
        };
        self.packed.resize_with(plan.statistics.len().max(self.packed.len()), Packed::default);
        let mut statistics = std::mem::take(&mut self.statistics);
        if plan.leaves.len() == 1 {
            // One base kernel: its value replaces its statistic in place.
            statistics.clear();
            self.statistic(point_pair, 0, sides(0), out);
        } else {
            statistics.resize_with(plan.statistics.len(), Vec::new);
            for (index, values) in statistics.iter_mut().enumerate() {
                values.resize(out.len(), T::default());
                self.statistic(point_pair, index, sides(index), values);
            }
        }
        let (spare, network, recomputed) = (&mut self.spare, &mut self.network, &mut self.recomputed);
        let leaves = plan.leaves.iter().zip(&point_pair.near);
        let mut tree = Tree { leaves, statistics: &statistics, sides, spare, network, recomputed };
        tree.eval(&plan.kernel, out);
        self.statistics = statistics;
        let shape = (rows.len(), columns.len());
        let mut strip = ArrayViewMut2::from_shape(shape, out).expect("the buffer has the size of the strip");
        point_pair.duplicates.write(&mut strip, rows, columns);
    }

    fn statistic(
        &mut self,
        point_pair: &PointPair<'_, T>,
        index: usize,
        [(a, rows), (b, columns)]: [Part<'_, T>; 2],
        out: &mut [T],
    ) {
        let (view, kind) = point_pair.plan.statistics[index];
        if let Some(images) = &point_pair.plan.images[view] {
            let (a, b) = ((a.x.view(), &a.profile[..]), (b.x.view(), &b.profile[..]));
            return self.images.tile(images, (a, rows), (b, columns), out);
        }
        if packs(point_pair.plan, index, point_pair.b) {
            return self.packed[index].dots((a, rows), (point_pair.b, view, columns), out);
        }
        let (xa, xb) = (a.x.slice(s![rows, ..]), b.x.slice(s![columns, ..]));
        let out =
            ArrayViewMut2::from_shape((xa.nrows(), xb.nrows()), out).expect("the buffer has the size of the tile");
        match kind {
            Statistic::Dot => matmul_into(out, Accum::Replace, xa, xb.t(), T::one_impl(), Par::Seq),
            Statistic::L1 => self.l1_distances(xa, xb, out),
            Statistic::SquaredDistance => unreachable!("it is made of dot products"),
            Statistic::Images => unreachable!("images have a plan of their own"),
        }
    }

    /// `out_ij = Σ_f |a_if − b_jf|`, with `b` transposed so that the inner loop is contiguous in memory.
    fn l1_distances(&mut self, a: ArrayView2<T>, b: ArrayView2<T>, mut out: ArrayViewMut2<T>) {
        self.transposed.clear();
        self.transposed.extend(b.t().iter());
        for (a_i, mut out_i) in a.rows().into_iter().zip(out.rows_mut()) {
            let a_i = a_i.to_slice().expect("points are row-major");
            l1_row(a_i, &self.transposed, out_i.as_slice_mut().expect("a tile is row-major"));
        }
    }
}

/// How many rows of a tile are computed together: all where its columns are prepared anew for each call.
fn height<T: Real>(point_pair: &PointPair<'_, T>) -> usize {
    let plan = point_pair.plan;
    let is_ready = |statistic: usize| packs(plan, statistic, point_pair.b);
    let networks = plan.kernel.bases().iter().any(|base| base.network().is_some());
    if !networks && (0..plan.statistics.len()).all(is_ready) { STRIP } else { SIDE }
}

/// Splits `rows` into ranges of at most `height`.
fn split(rows: Range<usize>, height: usize) -> impl Iterator<Item = Range<usize>> {
    rows.clone().step_by(height).map(move |start| start..rows.end.min(start + height))
}

vectorized! {
    fn l1_row<FMA, 'a, T: Real>(a_i: &'a [T], bt: &'a [T], out: &'a mut [T]) {
        out.fill(T::default());
        for (&a, b) in a_i.iter().zip(bt.chunks_exact(out.len())) {
            for (sum, &b) in out.iter_mut().zip(b) {
                let difference = (a.lane::<FMA>() - b.lane::<FMA>()).abs();
                *sum = T::of_lane(sum.lane::<FMA>() + difference);
            }
        }
    }
}

/// Replaces the statistic in a tile by the value of a base kernel.
fn apply<T: Real>(base: &Base, values: &mut [T], [x, y]: [Seen<T>; 2], buffers: &mut NetworkBuffers<T>) {
    match base.network() {
        // Kernels of images are already computed.
        Some((network, _)) if network.shape().is_some() => {}
        Some((network, ntk)) => {
            buffers.fully_connected(network.steps(), ntk, x.profile, y.profile, y.xx.len(), values);
        }
        None => with_formula!(base, formula => apply_formula(formula, values, x.xx, y.xx)),
    }
}

/// Evaluates a kernel expression from the statistics of a tile.
struct Tree<'a, T, L, N> {
    /// The statistics of the base kernels still to come, and which of their entries are computed anew.
    leaves: L,
    /// None where the output holds the only statistic already.
    statistics: &'a [Vec<T>],
    sides: N,
    spare: &'a mut Vec<Vec<T>>,
    network: &'a mut NetworkBuffers<T>,
    recomputed: &'a mut Recomputed<T>,
}

impl<'p, T, L, N> Tree<'_, T, L, N>
where
    T: Real,
    L: Iterator<Item = (&'p usize, &'p Option<Near>)>,
    N: Fn(usize) -> [Part<'p, T>; 2],
{
    fn eval(&mut self, kernel: &Kernel, out: &mut [T]) {
        match kernel {
            Kernel::Base(base) => {
                let (&statistic, near) = self.leaves.next().expect("a leaf for each base kernel");
                if let Some(values) = self.statistics.get(statistic) {
                    out.copy_from_slice(values);
                }
                let sides = (self.sides)(statistic);
                let seen = sides.clone().map(|(view, points)| view.side(points));
                match near {
                    None => apply(base, out, seen, self.network),
                    Some(near) => {
                        self.recomputed.find(base, *near, out, sides);
                        apply(base, out, seen, self.network);
                        self.recomputed.write(out);
                    }
                }
            }
            Kernel::Scale(c, inner) => {
                self.eval(inner, out);
                let c = T::of(*c);
                out.iter_mut().for_each(|v| *v *= c);
            }
            Kernel::Sum(parts) | Kernel::Product(parts) => {
                let join: fn(&mut T, T) =
                    if matches!(kernel, Kernel::Sum(_)) { |v, p| *v += p } else { |v, p| *v *= p };
                self.eval(&parts[0], out);
                let mut part = self.spare.pop().unwrap_or_default();
                part.resize(out.len(), T::default());
                for kernel in &parts[1..] {
                    self.eval(kernel, &mut part);
                    out.iter_mut().zip(&part).for_each(|(v, &p)| join(v, p));
                }
                self.spare.push(part);
            }
        }
    }
}

vectorized! {
    /// Applies a formula to a tile `[xx.len(), yy.len()]` that holds its statistic, or dot products for squared distances.
    fn apply_formula<FMA, 'a, F: Formula, T: Real>(formula: &'a F, values: &'a mut [T], xx: &'a [T], yy: &'a [T]) {
        // Networks never come here: this keeps their code from being compiled.
        if const { F::IS_NETWORK } {
            return;
        }
        // A copy that no value is written to: else its numbers, in f64, would be read for each value, and halve the vectors.
        let formula = &formula.clone();
        let expands = formula.statistic() == Statistic::SquaredDistance;
        for (row, &xx) in values.chunks_exact_mut(yy.len()).zip(xx) {
            for (s, &yy) in row.iter_mut().zip(yy) {
                let pair = Pair { s: s.lane::<FMA>(), xx: xx.lane::<FMA>(), yy: yy.lane::<FMA>() };
                *s = T::of_lane(formula.eval(if expands { pair.expanded() } else { pair }));
            }
        }
    }
}
