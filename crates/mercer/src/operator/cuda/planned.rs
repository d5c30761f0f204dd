//! The device memory that work with K will take.

use super::super::Precision;
use super::launch::{Card, columns_per_pass, padded};
use super::program::{Program, compiles};
use super::{Arithmetic, STAGING, wide};
use crate::compute::cuda::PoolPlan;
use crate::kernel::Kernel;

/// A part of the work with K on a GPU, for an estimate of its memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asks {
    /// Tall f64 vectors `[n, columns]` that stay, so many of them.
    Vectors(usize),
    /// So many points that stay besides the n.
    Points(usize),
    /// The product of so many rows of K, in any order, with vectors.
    Product(usize),
    /// The factor of `κ(B, B)` for so many points B.
    Factor(usize),
}

/// An estimate of the device memory that work with κ(X, X) takes, for `n` points of `d` columns that stay on the device and vectors of
/// `columns` columns. None where points are not multiplied by tiles.
pub(crate) fn planned_memory(
    kernel: &Kernel,
    [n, d, columns]: [usize; 3],
    precision: Precision,
    asks: &[Asks],
) -> Option<u64> {
    if kernel.sees_images() || !compiles(kernel) {
        return None;
    }
    let program = Program::for_kernel(kernel, d, precision.into(), Card::HOPPER);
    let (mut plan, row) = (PoolPlan::default(), d * if program.single() { 4 } else { 8 });
    let strip = (STAGING / 4 / row.max(1)).clamp(1, n.max(1));
    let hold_points =
        |plan: &mut PoolPlan, n| program.points_requests(n).into_iter().for_each(|bytes| _ = plan.hold(bytes));
    hold_points(&mut plan, n);
    plan.together(&vec![strip * row; if n > strip { 2 } else { 1 }]);
    for ask in asks {
        match *ask {
            Asks::Vectors(count) => (0..count).for_each(|_| _ = plan.hold(8 * n * columns)),
            Asks::Points(rows) => hold_points(&mut plan, rows),
            Asks::Product(rows) => plan.together(&program.product_requests(rows, n, columns)),
            Asks::Factor(rows) => plan.together(&program.block_requests(rows)),
        }
    }
    Some(plan.bytes())
}

impl Program {
    /// The blocks of device memory of `n` points.
    pub fn points_requests(&self, n: usize) -> [usize; 2] {
        [self.stored_width(), self.norms()].map(|width| padded(n) * width * self.arithmetic.bytes())
    }

    /// The blocks of a product of `rows` points in any order with all `n`, with `columns` columns, besides those `n` points and the vectors.
    pub fn product_requests(&self, rows: usize, n: usize, columns: usize) -> Vec<usize> {
        let nc = columns_per_pass(columns);
        let mut requests =
            vec![4 * padded(rows), 8 * rows * columns, self.values_bytes(n, nc), self.partial_bytes(rows, n, nc)];
        requests.extend(self.points_requests(rows));
        requests.extend(self.is_wide().then(|| wide::block_bytes(rows, n)));
        requests
    }

    /// The blocks of `κ(B, B)` of `rows` points B in any order, in f64.
    pub fn block_requests(&self, rows: usize) -> Vec<usize> {
        let points = self.points_requests(rows);
        let mut requests = vec![4 * padded(rows), 4 * padded(rows), 8 * rows * rows];
        requests.extend([points, points].concat());
        requests.extend((self.arithmetic != Arithmetic::F64).then_some(4 * rows * rows));
        requests
    }
}
