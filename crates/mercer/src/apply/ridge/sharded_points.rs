//! The points of a regression on several ranks: each process has those of its rank.

use crate::kernel::Kernel;
use crate::linalg::{Sharding, Shares};
use crate::operator::{KernelOperator, Operator, ShardedOperator, cross_apply};
use crate::training::Fingerprint;
use crate::{FitContext, Group, Result};
use ndarray::{Array2, ArrayView2, Axis, s};
use std::sync::Arc;

/// Points X `[n, d]`, of which this process has all, or those of its rank. Methods that return a `Result` are collective.
#[derive(Clone, Copy)]
pub(crate) struct ShardedPoints<'a> {
    /// `[n_r, d]`
    own: ArrayView2<'a, f64>,
    sharding: &'a Sharding,
}

/// The same, which it keeps.
pub(crate) struct KeptPoints {
    own: Array2<f64>,
    sharding: Sharding,
}

impl KeptPoints {
    fn new(own: Array2<f64>, group: Group<'_>) -> Result<KeptPoints> {
        let sharding = sharded(group, own.nrows())?;
        Ok(KeptPoints { own, sharding })
    }

    pub fn view(&self) -> ShardedPoints<'_> {
        ShardedPoints::new(self.own.view(), &self.sharding)
    }
}

/// How rows are sharded of which this rank has so many. Collective.
pub(crate) fn sharded(group: Group<'_>, own: usize) -> Result<Sharding> {
    if group.is_single() { Ok(Sharding::WHOLE) } else { Ok(Sharding::from(Arc::new(Shares::new(group, own)?))) }
}

/// Bytes of points that are on every rank at a time.
const FEW: usize = 4 << 20;

impl<'a> ShardedPoints<'a> {
    /// The points of which this process has `own` `[n_r, d]`: those of rank 0 come first.
    pub fn new(own: ArrayView2<'a, f64>, sharding: &'a Sharding) -> ShardedPoints<'a> {
        ShardedPoints { own, sharding }
    }

    /// The points of this process `[n_r, d]`.
    pub fn own(&self) -> ArrayView2<'a, f64> {
        self.own
    }

    pub fn sharding(&self) -> &'a Sharding {
        self.sharding
    }

    /// n and d.
    pub fn dim(&self) -> (usize, usize) {
        (self.sharding.shares().map_or(self.own.nrows(), Shares::n), self.own.ncols())
    }

    /// `κ(X,X)`; in one process it is stored where it fits beside `other` bytes.
    pub fn operator(&self, kernel: &Kernel, context: &FitContext<'a>, other: u64) -> Result<Box<dyn Operator + 'a>> {
        match self.sharding.is_whole() {
            true => context.operator(kernel, self.own, other),
            false => Ok(Box::new(ShardedOperator::new(kernel, self.own, context)?)),
        }
    }

    /// The mean of `κ(x_i, x_i)`.
    pub fn mean_diagonal(&self, kernel: &Kernel, context: &FitContext<'_>) -> Result<f64> {
        let mut sum = [match self.own.is_empty() {
            true => 0.0,
            false => KernelOperator::new(kernel, self.own, context.precision, context.device)?.diagonal()?.sum(),
        }];
        self.sharding.sum(&mut sum)?;
        Ok(sum[0] / self.dim().0 as f64)
    }

    /// A fingerprint of all points, whatever rank they are on.
    pub fn fingerprint(&self) -> Result<Fingerprint> {
        let (group, mut so_far) = (self.sharding.group(), Fingerprint::of([]));
        for rank in 0..group.size() {
            let after = match rank == group.rank() {
                true => so_far.then(self.own.iter().map(|v| v.to_bits())),
                false => so_far,
            };
            so_far = Fingerprint::from_bytes(&group.all_gather(&after.to_bytes())?[rank]);
        }
        Ok(so_far)
    }

    /// Some rows `[rows, d]`, in the order in which they are named, on every rank.
    fn at(&self, rows: &[usize]) -> Result<Array2<f64>> {
        self.sharding.at(rows, self.own)
    }

    /// How many rows are on every rank at a time.
    fn few(&self) -> usize {
        (FEW / (8 * self.own.ncols().max(1))).max(1)
    }

    /// The same points in another order: row i is the row `order[i]` of these.
    pub fn in_order(&self, order: &[usize]) -> Result<KeptPoints> {
        if self.sharding.is_whole() {
            return KeptPoints::new(self.own.select(Axis(0), order), Group::SINGLE);
        }
        let (kept, mut own) = (self.sharding.rows(order.len()), Array2::zeros(self.own.raw_dim()));
        for (first, rows) in (0..).step_by(self.few()).zip(order.chunks(self.few())) {
            let some = self.at(rows)?;
            let here = kept.start.max(first)..kept.end.min(first + rows.len());
            if !here.is_empty() {
                let (from, to) = (here.start - first..here.end - first, here.start - kept.start..here.end - kept.start);
                own.slice_mut(s![to, ..]).assign(&some.slice(s![from, ..]));
            }
        }
        KeptPoints::new(own, self.sharding.group())
    }

    /// Some of the points; `rows` are ascending.
    pub fn some(&self, rows: &[usize]) -> Result<KeptPoints> {
        let own = self.sharding.rows(self.dim().0);
        let here: Vec<usize> = rows.iter().filter(|row| own.contains(row)).map(|row| row - own.start).collect();
        KeptPoints::new(self.own.select(Axis(0), &here), self.sharding.group())
    }

    /// `κ(x, X) C` `[m, c]` at points `x` `[m, d]` that every rank has, for `C` `[n, c]`.
    pub fn expand(
        &self,
        kernel: &Kernel,
        x: ArrayView2<f64>,
        c: ArrayView2<f64>,
        on: &FitContext,
    ) -> Result<Array2<f64>> {
        let mut sum = cross_apply(kernel, x, self.own, self.sharding.own(c), on.precision, on.device)?;
        self.sharding.sum(sum.as_slice_mut().expect("own array"))?;
        Ok(sum)
    }

    /// [`Self::expand`] at the rows `at` of `other`.
    pub fn expand_at(
        &self,
        kernel: &Kernel,
        (other, at): (ShardedPoints<'_>, &[usize]),
        c: ArrayView2<f64>,
        on: &FitContext,
    ) -> Result<Array2<f64>> {
        let chunk = if self.sharding.is_whole() { at.len() } else { self.few() };
        let mut all = Array2::zeros((at.len(), c.ncols()));
        for (mut target, rows) in all.axis_chunks_iter_mut(Axis(0), chunk.max(1)).zip(at.chunks(chunk.max(1))) {
            target.assign(&self.expand(kernel, other.at(rows)?.view(), c, on)?);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::on_threads;
    use crate::rng::Rng;

    /// Against the definition of each kernel: of a distance, of inner products, of series, of images.
    #[test]
    fn the_mean_of_the_diagonal_is_that_of_the_definition() {
        let x = Rng::new(3).normals((7, 16));
        let conv = "ntk('conv(3) relu conv(3) relu gap dense', shape=4x4x1)";
        for text in ["2*rbf(3)", "linear", "ntk(depth=2, act=tanh)", conv, "rbf(2) + 0.5*poly(2)"] {
            let (kernel, context) = (Kernel::parse(text).unwrap(), FitContext::default());
            let found = ShardedPoints::new(x.view(), &Sharding::WHOLE).mean_diagonal(&kernel, &context).unwrap();
            let want = x.rows().into_iter().map(|r| kernel.value(&r.to_vec(), &r.to_vec())).sum::<f64>() / 7.0;
            // The expectations of tanh are a series here, and a quadrature there.
            assert!((found / want - 1.0).abs() < 1e-9, "{text}: {found} {want}");
        }
    }

    /// What three ranks find of their points, against one process.
    #[test]
    fn sharded_points_are_those_of_one_process() {
        let mut rng = Rng::new(5);
        let mut random = |n, d| rng.normals((n, d));
        // Rows wide enough to be on every rank a few at a time.
        let (x, c, new) = (random(31, 100_000), random(31, 2), random(3, 100_000));
        let kernel = Kernel::parse("linear").unwrap();
        let order = Rng::new(2).sample(31, 31);
        let (some, other) = ([0, 4, 11, 12, 13, 29, 30], [30, 2, 17, 5, 9, 3, 8]);
        let all = |group: Group<'_>| {
            let context = FitContext { group, ..FitContext::default() };
            let share = x.slice(s![group.share(31), ..]);
            let sharding = sharded(group, share.nrows()).unwrap();
            let points = ShardedPoints::new(share, &sharding);
            let (shuffled, few) = (points.in_order(&order).unwrap(), points.some(&some).unwrap());
            let (shuffled, few) = (shuffled.view(), few.view());
            assert_eq!((points.dim(), shuffled.dim(), few.dim()), ((31, 100_000), (31, 100_000), (7, 100_000)));
            let sums = [
                points.expand(&kernel, new.view(), c.view(), &context).unwrap(),
                shuffled.expand(&kernel, new.view(), c.view(), &context).unwrap(),
                few.expand_at(&kernel, (points, &other), c.slice(s![..7, ..]), &context).unwrap(),
                Array2::from_elem((1, 1), points.mean_diagonal(&kernel, &context).unwrap()),
            ];
            let marks = [points.fingerprint().unwrap(), shuffled.fingerprint().unwrap()];
            (sums, marks)
        };
        let want = all(Group::SINGLE);
        assert_eq!(want.1[0], Fingerprint::of(x.iter().map(|v| v.to_bits())));
        let close = |found: &Array2<f64>, want: &Array2<f64>| {
            let scale = want.iter().fold(1.0f64, |m, v| m.max(v.abs()));
            assert!((found - want).iter().all(|v| v.abs() < 1e-12 * scale));
        };
        close(&want.0[1], &new.dot(&x.select(Axis(0), &order).t()).dot(&c));
        let (rows, columns) = (x.select(Axis(0), &other), x.select(Axis(0), &some));
        close(&want.0[2], &rows.dot(&columns.t()).dot(&c.slice(s![..7, ..])));
        for found in on_threads(3, all) {
            assert_eq!(found.1, want.1);
            found.0.iter().zip(&want.0).for_each(|(found, want)| close(found, want));
        }
    }
}
