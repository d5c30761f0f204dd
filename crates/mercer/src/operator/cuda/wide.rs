//! Products with points of many coordinates in TF32: the inner products of a block of K by cuBLAS, whose tiles are larger than those of
//! `tensor.cu` may be, and the formula and the product with V by `wide.cu`, which reads them once. Inner products that are kept serve
//! products with the block and with its transpose.

use super::device::{CudaKernel, Product, Sides};
use super::launch::{Launch, NO_DIAGONAL, columns_per_pass, padded};
use super::program::Kind;
use super::{ADVICE, Arithmetic};
use crate::Result;
use crate::compute::Math;
use crate::compute::cuda::{Arg, Buffer, panel};

/// Coordinates from which on this is faster: moving 4 bytes of an inner product to device memory and back then costs less than the
/// tiles of `tensor.cu` lose.
const WIDE: usize = 512;
/// Rows and columns of a block of inner products, at most: 512 MiB.
pub(super) const ROWS: usize = 8192;
const COLUMNS: usize = 16_384;
/// Rows that a thread block of `wide_transposed` sums up.
const CHUNK: usize = 512;

/// Whether points of this width in the layout of the tiles are multiplied so.
pub(super) fn is_wide(arithmetic: Arithmetic, width: usize) -> bool {
    arithmetic.is_fast() && width >= WIDE
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

/// Bytes of each strip of the inner products of `n` and `m` points that are kept.
pub(super) fn strip_bytes(n: usize, m: usize) -> Vec<usize> {
    parts(n, ROWS).map(|(_, rows)| 4 * rows * m).collect()
}

/// The inner products of the points of A and B, `[n, m]`.
pub(super) struct InnerProducts {
    /// For each [`ROWS`] rows: blocks of [`COLUMNS`] columns, one after the other, each row by row.
    strips: Vec<Buffer>,
}

/// A block of inner products: its rows and columns from these on, and the address.
#[derive(Clone, Copy)]
struct Block {
    r0: usize,
    rows: usize,
    c0: usize,
    columns: usize,
    address: u64,
}

/// The starts and sizes of parts of `n`, each of at most `most`.
fn parts(n: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..n).step_by(most).map(move |start| (start, most.min(n - start)))
}

impl CudaKernel {
    /// [`CudaKernel::placed_product`] of points that are wide.
    pub(super) fn wide_product(&self, product: &Product<'_>) -> Result<()> {
        let (n, m) = product.shape();
        let what = || format!("inner products of {n}×{m} points");
        let mut products = self.gpu.allocate(block_bytes(n, m), &what, ADVICE)?;
        self.by_rows(product, &mut |r0, rows, c0, columns| {
            self.inner_block(product.sides, [r0, rows, c0, columns], (&mut products, 0))
        })
    }

    /// The inner products of all points of A and B, which must be wide.
    pub(super) fn inner_products(&self, [a, b]: Sides<'_>) -> Result<InnerProducts> {
        let (n, m) = (a.n, b.n);
        let what = || format!("inner products of {n}×{m} points");
        let strips = parts(n, ROWS).map(|(r0, rows)| {
            let mut strip = self.gpu.allocate(4 * rows * m, &what, ADVICE)?;
            for (c0, columns) in parts(m, COLUMNS) {
                self.inner_block([a, b], [r0, rows, c0, columns], (&mut strip, rows * c0))?;
            }
            Ok(strip)
        });
        Ok(InnerProducts { strips: strips.collect::<Result<_>>()? })
    }

    /// Queues `Y ← κ(A, B) V` from inner products that are known.
    pub(super) fn kept_product(&self, kept: &InnerProducts, product: &Product<'_>) -> Result<()> {
        self.by_rows(product, &mut |r0, rows, c0, columns| Ok(kept.block(r0, rows, c0, columns)))
    }

    /// Queues `Y ← κ(A, B)ᵀ V`, for `V` `[n, columns]` and `Y` `[m, columns]`, from inner products that are known.
    pub(super) fn kept_transposed_product(&self, kept: &InnerProducts, product: &Product<'_>) -> Result<()> {
        let (columns, (n, m)) = (product.columns, product.shape());
        let nc = columns_per_pass(columns);
        let chunks: usize = parts(n, ROWS).map(|(_, rows)| rows.div_ceil(CHUNK)).sum();
        let what = || format!("a product of {m}×{n} kernel values with {columns} columns");
        let values = self.gpu.allocate(self.program.values_bytes(n, nc), &what, ADVICE)?;
        let partial = self.gpu.allocate(4 * chunks.max(1) * m.clamp(1, COLUMNS) * nc, &what, ADVICE)?;
        for (first, width) in parts(columns, nc) {
            self.values(product, n, [first, width], nc, &values);
            for (c0, count) in parts(m, COLUMNS) {
                let mut chunk = 0;
                for (r0, rows) in parts(n, ROWS) {
                    let to = partial.pointer() + (4 * chunk * count * nc) as u64;
                    let grid = [count.div_ceil(256) as u32, rows.div_ceil(CHUNK) as u32];
                    let launch = Launch { name: "wide_transposed", grid, block: 256, shared: 0 };
                    self.of_block(launch, nc, product, kept.block(r0, rows, c0, count), &values, to);
                    chunk += rows.div_ceil(CHUNK);
                }
                self.reduced(product, nc, (&partial, chunks), (c0, count), [first, width]);
            }
        }
        Ok(())
    }

    /// Queues `Y ← κ(A, B) V`, one block of inner products after the other, which `block` finds or computes.
    fn by_rows(
        &self,
        product: &Product<'_>,
        block: &mut dyn FnMut(usize, usize, usize, usize) -> Result<Block>,
    ) -> Result<()> {
        let (columns, (n, m)) = (product.columns, product.shape());
        let nc = columns_per_pass(columns);
        let what = || format!("a product of {n}×{m} kernel values with {columns} columns");
        let values = self.gpu.allocate(self.program.values_bytes(m, nc), &what, ADVICE)?;
        let partial = self.gpu.allocate(partial_bytes(n, m, nc), &what, ADVICE)?;
        for (first, width) in parts(columns, nc) {
            self.values(product, m, [first, width], nc, &values);
            for (r0, rows) in parts(n, ROWS) {
                for (split, (c0, count)) in parts(m, COLUMNS).enumerate() {
                    let to = partial.pointer() + (4 * split * rows * nc) as u64;
                    let grid = [rows.div_ceil(rows_per_block(nc)) as u32, 1];
                    let launch = Launch { name: "wide", grid, block: 256, shared: 0 };
                    self.of_block(launch, nc, product, block(r0, rows, c0, count)?, &values, to);
                }
                self.reduced(product, nc, (&partial, m.div_ceil(COLUMNS)), (r0, rows), [first, width]);
            }
        }
        Ok(())
    }

    /// Queues the inner products of a block into `out`, from this element on.
    fn inner_block(
        &self,
        [a, b]: Sides<'_>,
        [r0, rows, c0, columns]: [usize; 4],
        (out, at): (&mut Buffer, usize),
    ) -> Result<Block> {
        let shape = [rows, self.program.width(), columns];
        panel::row_products(Math::Tf32, shape, [(&a.x, r0), (&b.x, c0)], (out, at))?;
        Ok(Block { r0, rows, c0, columns, address: out.pointer() + 4 * at as u64 })
    }

    /// Queues a kernel of `wide.cu` on a block.
    fn of_block(&self, launch: Launch, nc: usize, product: &Product<'_>, block: Block, values: &Buffer, partial: u64) {
        let Product { sides: [a, b], places, diagonal, .. } = product;
        let [ax, axx, bx, bxx] = [&a.x, &a.xx, &b.x, &b.xx].map(Arg::from);
        let [a_pad, b_pad] = [a.n, b.n].map(|n| Arg::size(padded(n)));
        let [a_places, b_places] = places.unwrap_or([0; 2]).map(Arg::U64);
        let points = [ax, axx, bx, bxx, a_pad, b_pad, Arg::I32(diagonal.unwrap_or(NO_DIAGONAL)), a_places, b_places];
        let [rows, columns, r0, c0] = [block.rows, block.columns, block.r0, block.c0].map(Arg::size);
        let rest = [Arg::U64(block.address), rows, columns, r0, c0, Arg::from(values), Arg::U64(partial)];
        self.launch(Kind::Wide { nc }, launch, &[&points[..], &rest].concat());
    }

    /// Queues the copy of columns `first..first + width` of `V` `[n, columns]` to `values`.
    fn values(&self, product: &Product<'_>, n: usize, [first, width]: [usize; 2], nc: usize, values: &Buffer) {
        let sizes = [n, padded(n), product.columns, first, width].map(Arg::size);
        let launch = Launch::elementwise("prepare_values", padded(n) * nc);
        let arguments = [&[Arg::U64(product.v), Arg::from(values)][..], &sizes].concat();
        self.launch(Kind::Prepare { nc, double: product.double }, launch, &arguments);
    }

    /// Queues the sum of `splits` partial results `[n, nc]` into columns `first..first + width` of n rows of `Y`, from row `r0` on.
    fn reduced(
        &self,
        product: &Product<'_>,
        nc: usize,
        (partial, splits): (&Buffer, usize),
        (r0, n): (usize, usize),
        [first, width]: [usize; 2],
    ) {
        let Product { columns, double, .. } = *product;
        let y = product.y + (if double { 8 } else { 4 } * r0 * columns) as u64;
        let sizes = [splits, n, n, columns, first, width].map(Arg::size);
        let launch = Launch::elementwise("reduce_partials", n * width);
        let arguments = [&[Arg::from(partial), Arg::U64(y)][..], &sizes].concat();
        self.launch(Kind::Prepare { nc, double }, launch, &arguments);
    }
}

impl InnerProducts {
    /// Bytes for `[n, m]` points.
    pub fn bytes(n: usize, m: usize) -> usize {
        4 * n * m
    }

    /// The block that begins with row `r0` and column `c0`.
    fn block(&self, r0: usize, rows: usize, c0: usize, columns: usize) -> Block {
        let address = self.strips[r0 / ROWS].pointer() + (4 * rows * c0) as u64;
        Block { r0, rows, c0, columns, address }
    }
}
