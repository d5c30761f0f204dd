//! Solves with a large triangle L for a few columns. cuBLAS goes through L in small steps that wait for each other; here the blocks on the
//! diagonal are inverted once, and a solve is products with blocks, at the speed of memory:
//!
//! ```text
//! x_i = L_ii⁻¹ b_i,    b_j ← b_j − L_ji x_i  for j > i        (L x = b)
//! x_i = L_ii⁻ᵀ b_i,    b_j ← b_j − L_ijᵀ x_i  for j < i       (Lᵀ x = b)
//! ```

use super::gpu::Gpu;
use super::launch::{Arg, args};
use super::memory::Buffer;
use super::module::kernels;
use super::panel;
use crate::Result;

kernels!(include_str!("triangle.cu"));

/// Rows of a block.
pub const BLOCK_ROWS: usize = 512;
/// Orders from which on blocks are faster.
const LEAST: usize = 2048;
/// Columns up to which they are.
const MOST_COLUMNS: usize = 16;

/// The inverses of the blocks on the diagonal of a triangle.
pub(crate) struct Inverses {
    n: usize,
    /// Row-major `[rows, rows]` each, one after the other.
    blocks: Buffer,
}

/// A row-major block `[rows, columns]` in device memory, whose rows are `ld` apart.
#[derive(Clone, Copy)]
struct Block {
    address: u64,
    rows: usize,
    columns: usize,
    ld: usize,
}

impl Inverses {
    /// Whether a solve for `m` columns with a triangle of order `n` should use blocks.
    pub fn suit(n: usize, m: usize) -> bool {
        n >= LEAST && m <= MOST_COLUMNS
    }

    /// Of the row-major lower triangle `l` `[n, n]`.
    pub fn new(n: usize, l: &Buffer) -> Result<Inverses> {
        let gpu = l.gpu();
        let blocks = panel::allocate(gpu, [n, BLOCK_ROWS])?;
        for first in (0..n).step_by(BLOCK_ROWS) {
            let rows = BLOCK_ROWS.min(n - first);
            let to = blocks.pointer() + (8 * first * BLOCK_ROWS) as u64;
            over(gpu, "identity", rows * rows, &args![rows, to]);
            // Column-major, the solution of L_iiᵀ Y = I is row-major L_ii⁻¹.
            gpu.solve_triangular_at([rows, rows], (at(l, n, first, first), n), true, (to, rows));
        }
        Ok(Inverses { n, blocks })
    }

    /// `L⁻¹ B`, or `L⁻ᵀ B`, for `B` `[n, m]`, which is overwritten.
    pub fn solve(&self, l: &Buffer, transposed: bool, b: &mut Buffer, m: usize) -> Result<Buffer> {
        let (n, gpu) = (self.n, l.gpu());
        assert!(l.bytes() >= 8 * n * n && b.bytes() >= 8 * n * m, "a solve of [{n}, {m}]: the buffers are too small");
        let out = panel::allocate(gpu, [n, m])?;
        let row = |buffer: &Buffer, i: usize| buffer.pointer() + (8 * i * m) as u64;
        let blocks = n.div_ceil(BLOCK_ROWS);
        for step in 0..blocks {
            let first = BLOCK_ROWS * if transposed { blocks - 1 - step } else { step };
            let rows = BLOCK_ROWS.min(n - first);
            let address = self.blocks.pointer() + (8 * first * BLOCK_ROWS) as u64;
            let inverse = Block { address, rows, columns: rows, ld: rows };
            times(gpu, inverse, transposed, m, row(b, first), false, row(&out, first));
            let end = first + rows;
            let (rest, to) = if transposed {
                (Block { address: at(l, n, first, 0), rows, columns: first, ld: n }, row(b, 0))
            } else {
                (Block { address: at(l, n, end, first), rows: n - end, columns: rows, ld: n }, row(b, end))
            };
            times(gpu, rest, transposed, m, row(&out, first), true, to);
        }
        Ok(out)
    }
}

/// The address of an element of a row-major matrix `[n, n]`.
fn at(l: &Buffer, n: usize, i: usize, j: usize) -> u64 {
    l.pointer() + 8 * (i as u64 * n as u64 + j as u64)
}

/// `Y ← A X`, or `AᵀX`, with `m` columns, or `Y` minus that; nothing where A has no rows or columns that remain.
fn times(gpu: &Gpu, a: Block, transposed: bool, m: usize, x: u64, subtract: bool, y: u64) {
    let (name, [outer, inner], each) = match transposed {
        true => ("columns_times", [a.columns, a.rows], 32),
        false => ("rows_times", [a.rows, a.columns], 8),
    };
    let arguments: Vec<Arg> = args![outer, inner, m, a.address, a.ld, x, subtract, y];
    // SAFETY: the callers pass blocks of matrices whose sizes were checked, and vectors of as many rows.
    unsafe { gpu.launch(compiled(), name, [outer.div_ceil(each) as u32, 1, 1], 256, 0, &arguments) };
}
