//! Products with points of many coordinates in TF32: the inner products of a block of K by cuBLAS, whose tiles are larger than those of
//! `tensor.cu` may be, and the formula and the product with V by `wide.cu`, which reads them once.

use super::device::{CudaKernel, Sides};
use super::launch::{Launch, NO_DIAGONAL, columns_per_pass, padded};
use super::program::Kind;
use super::{ADVICE, Arithmetic};
use crate::Result;
use crate::compute::Math;
use crate::compute::cuda::{Arg, panel};

/// Coordinates from which on this is faster: moving 4 bytes of an inner product to device memory and back then costs less than the
/// tiles of `tensor.cu` lose.
const WIDE: usize = 512;
/// Rows and columns of a block of inner products, at most: 512 MiB.
const ROWS: usize = 8192;
const COLUMNS: usize = 16_384;

/// Whether points of this width in the layout of the tiles are multiplied so.
pub(super) fn is_wide(arithmetic: Arithmetic, width: usize) -> bool {
    arithmetic == Arithmetic::Tf32 && width >= WIDE
}

/// Rows of K that a thread block of `wide.cu` has, for `nc` columns of V.
fn rows_per_block(nc: usize) -> usize {
    match nc {
        0..=8 => 8,
        9..=16 => 4,
        _ => 2,
    }
}

/// Bytes of the partial results of a product `[n, m]` with `nc` columns.
pub(super) fn partial_bytes(n: usize, m: usize, nc: usize) -> usize {
    4 * m.div_ceil(COLUMNS).max(1) * n.clamp(1, ROWS) * nc
}

/// Bytes of a block of inner products of a product `[n, m]`.
pub(super) fn block_bytes(n: usize, m: usize) -> usize {
    4 * n.clamp(1, ROWS) * m.clamp(1, COLUMNS)
}

impl CudaKernel {
    /// [`CudaKernel::placed_product`] of points that are wide.
    pub(super) fn wide_product(
        &self,
        double: bool,
        [a, b]: Sides<'_>,
        (places, diagonal): (Option<[u64; 2]>, Option<i32>),
        v: u64,
        columns: usize,
        y: u64,
    ) -> Result<()> {
        let (n, m, d, nc) = (a.n, b.n, self.program.width(), columns_per_pass(columns));
        let what = || format!("a product of {n}×{m} kernel values with {columns} columns");
        let allocate = |bytes: usize| self.gpu.allocate(bytes, &what, ADVICE);
        let values = allocate(self.program.values_bytes(m, nc))?;
        let partial = allocate(partial_bytes(n, m, nc))?;
        let mut products = allocate(block_bytes(n, m))?;
        let (prepare, scalar) = (Kind::Prepare { nc, double }, if double { 8 } else { 4 });
        let [ax, axx, bx, bxx] = [&a.x, &a.xx, &b.x, &b.xx].map(Arg::from);
        let [a_pad, m_pad] = [n, m].map(|n| Arg::size(padded(n)));
        let [a_places, b_places] = places.unwrap_or([0; 2]).map(Arg::U64);
        let points = [ax, axx, bx, bxx, a_pad, m_pad, Arg::I32(diagonal.unwrap_or(NO_DIAGONAL)), a_places, b_places];
        for first in (0..columns).step_by(nc) {
            let width = nc.min(columns - first);
            let sizes = [m, padded(m), columns, first, width].map(Arg::size);
            let launch = Launch::elementwise("prepare_values", padded(m) * nc);
            self.launch(prepare, launch, &[&[Arg::U64(v), Arg::from(&values)][..], &sizes].concat());
            for r0 in (0..n).step_by(ROWS) {
                let rows = ROWS.min(n - r0);
                for (split, c0) in (0..m).step_by(COLUMNS).enumerate() {
                    let count = COLUMNS.min(m - c0);
                    panel::row_products(Math::Tf32, [rows, d, count], [(&a.x, r0), (&b.x, c0)], &mut products)?;
                    let to = partial.pointer() + (4 * split * rows * nc) as u64;
                    let [rows_, count_, r0_, c0_] = [rows, count, r0, c0].map(Arg::size);
                    let block = [Arg::from(&products), rows_, count_, r0_, c0_, Arg::from(&values), Arg::U64(to)];
                    let grid = [rows.div_ceil(rows_per_block(nc)) as u32, 1];
                    let launch = Launch { name: "wide", grid, block: 256, shared: 0 };
                    self.launch(Kind::Wide { nc }, launch, &[&points[..], &block].concat());
                }
                let sizes = [m.div_ceil(COLUMNS), rows, rows, columns, first, width].map(Arg::size);
                let to = Arg::U64(y + (scalar * r0 * columns) as u64);
                let launch = Launch::elementwise("reduce_partials", rows * width);
                self.launch(prepare, launch, &[&[Arg::from(&partial), to][..], &sizes].concat());
            }
        }
        Ok(())
    }
}
