//! The device memory that work with K will take.

use super::launch::{Card, columns_per_pass, padded};
use super::program::{Program, compiles};
use super::{Arithmetic, STAGING, wide};
use crate::compute::cuda::PoolPlan;
use crate::kernel::Kernel;
use crate::operator::Precision;

/// An estimate of the device memory that work with a kernel takes: the requests of that work, in its order, to a plan of the GPU's pool.
pub(crate) struct Planned {
    program: Program,
    pool: PoolPlan,
    /// Bytes of a point as it is uploaded.
    row: usize,
    /// Columns of the vectors.
    columns: usize,
}

/// Memory that is held until it is released.
pub(crate) struct Held(Vec<usize>);

impl Planned {
    /// For points of `d` columns and vectors of `columns` columns. None where points are not multiplied by tiles.
    pub fn new(kernel: &Kernel, [d, columns]: [usize; 2], precision: Precision) -> Option<Planned> {
        if kernel.sees_images() || !compiles(kernel) {
            return None;
        }
        let program = Program::for_kernel(kernel, d, precision.into(), Card::HOPPER);
        let row = d * if program.single() { 4 } else { 8 };
        Some(Planned { program, pool: PoolPlan::default(), row, columns })
    }

    fn hold(&mut self, requests: &[usize]) -> Held {
        Held(requests.iter().map(|bytes| self.pool.hold(*bytes)).collect())
    }

    /// Gives memory back to the pool.
    pub fn release(&mut self, held: Held) {
        held.0.into_iter().for_each(|size| self.pool.release(size));
    }

    /// `n` points, which are uploaded a strip at a time.
    pub fn points(&mut self, n: usize) -> Held {
        let held = self.hold(&self.program.points_requests(n));
        let strip = (STAGING / 4 / self.row.max(1)).clamp(1, n.max(1));
        self.pool.together(&vec![strip * self.row; if n > strip { 2 } else { 1 }]);
        held
    }

    /// An f64 matrix `[n, m]`.
    pub fn matrix(&mut self, [n, m]: [usize; 2]) -> Held {
        self.hold(&[8 * n * m])
    }

    /// So many vectors `[n, columns]`.
    pub fn vectors(&mut self, count: usize, n: usize) -> Held {
        self.hold(&vec![8 * n * self.columns; count])
    }

    /// Some points in any order.
    pub fn gathered(&mut self, rows: usize) -> Held {
        self.hold(&self.program.gathered_requests(rows))
    }

    /// `κ(A, B) V` of `n` points A and `m` points B that are on the device.
    pub fn product(&mut self, [n, m]: [usize; 2]) {
        self.pool.together(&self.program.product_requests([n, m], self.columns));
    }

    /// The same from inner products that are kept, where they are; with their transpose, too.
    pub fn product_of_kept(&mut self, [n, m]: [usize; 2]) {
        let mut requests = self.program.product_requests([n, m], self.columns);
        requests.truncate(3);
        self.pool.together(&requests);
    }

    /// The same of `n` points A in any order.
    pub fn product_of_some(&mut self, [n, m]: [usize; 2]) {
        let points = self.gathered(n);
        self.product([n, m]);
        self.release(points);
    }

    /// `κ(A, B)` `[n, m]` in f64, of points that are on the device.
    pub fn block(&mut self, [n, m]: [usize; 2]) -> Held {
        let single = self.hold(&self.program.single_requests([n, m]));
        let held = self.matrix([n, m]);
        self.release(single);
        held
    }

    /// κ of `n` points with each other in f64, strip by strip for the host.
    pub fn gram(&mut self, n: usize) {
        self.pool.together(&[(8 * n * n).min(STAGING)]);
    }

    /// `κ(B, B)` of `n` points in any order, and its factor.
    pub fn factor(&mut self, n: usize) {
        let points = [self.gathered(n), self.gathered(n)];
        let block = self.block([n, n]);
        self.release(block);
        points.into_iter().for_each(|points| self.release(points));
    }

    /// The inner products of `n` and `m` points, where they are kept for two products; nothing elsewhere.
    pub fn inner_products(&mut self, [n, m]: [usize; 2]) -> Held {
        let strips = if self.keeps() { wide::strip_bytes(n, m) } else { vec![] };
        self.hold(&strips)
    }

    /// Whether inner products are kept for two products.
    pub fn keeps(&self) -> bool {
        self.program.is_wide()
    }

    /// All that is allocated.
    pub fn bytes(&self) -> u64 {
        self.pool.bytes()
    }
}

impl Program {
    /// The blocks of device memory of `n` points.
    pub fn points_requests(&self, n: usize) -> [usize; 2] {
        let (points, norms) = (self.arithmetic.point_bytes(), self.arithmetic.bytes());
        [self.stored_width() * points, self.norms() * norms].map(|row| padded(n) * row)
    }

    /// The blocks of some points in any order, with the list of them.
    fn gathered_requests(&self, rows: usize) -> [usize; 3] {
        let [points, norms] = self.points_requests(rows);
        [4 * padded(rows), points, norms]
    }

    /// The blocks of a product of `n` points with `m`, besides those points and the vectors.
    fn product_requests(&self, [n, m]: [usize; 2], columns: usize) -> Vec<usize> {
        let nc = columns_per_pass(columns);
        let mut requests = vec![8 * n * columns, self.values_bytes(m, nc), self.partial_bytes(n, m, nc)];
        requests.extend(self.is_wide().then(|| wide::block_bytes(n, m)));
        requests
    }

    /// The block in which kernel values `[n, m]` are made, where they are not made in f64.
    fn single_requests(&self, [n, m]: [usize; 2]) -> Vec<usize> {
        if self.arithmetic == Arithmetic::F64 { vec![] } else { vec![4 * n * m] }
    }
}
