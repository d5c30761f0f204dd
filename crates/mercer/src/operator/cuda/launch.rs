//! How the kernels are launched: tile shapes, grids, shared memory. Pure arithmetic.

use super::Arithmetic;

/// What the choice of tiles needs to know of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Card {
    /// Multiprocessors.
    pub multiprocessors: usize,
    /// Compute capability, major times ten plus minor: 90 for an H200.
    pub capability: u32,
    /// The most shared memory that a block may ask for, in bytes.
    pub shared: usize,
}

impl Card {
    /// An H100 or H200.
    pub const HOPPER: Card = Card { multiprocessors: 132, capability: 90, shared: 232_448 };
    /// An A100.
    pub const AMPERE: Card = Card { multiprocessors: 108, capability: 80, shared: 166_912 };
    /// A T4.
    pub const TURING: Card = Card { multiprocessors: 40, capability: 75, shared: 65_536 };
}

/// A grid of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The function in the module.
    pub name: &'static str,
    /// Blocks in x and y.
    pub grid: (u32, u32),
    /// Threads of a block.
    pub block: u32,
    /// Dynamic shared memory of a block in bytes; above 48 KiB the function's limit must be raised first.
    pub shared: u32,
}

/// A launch that covers `[n, m]` in tiles, and how its columns are dealt out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiling {
    /// Grid, block and shared memory; the grid is (row blocks, column splits).
    pub launch: Launch,
    /// Column tiles in all.
    pub tiles: usize,
    /// Column tiles of one split.
    pub tiles_per_split: usize,
    /// Column splits: partial results to add.
    pub splits: usize,
}

/// Points and values are padded to a multiple of this, which every tile divides.
pub const PAD: usize = 768;

/// `n` padded.
pub fn padded(n: usize) -> usize {
    n.div_ceil(PAD).max(1) * PAD
}

/// `diagonal` argument of a product of two different sets of points.
pub const NO_DIAGONAL: i32 = i32::MIN / 2;

/// The tile of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub name: &'static str,
    /// Rows of a block.
    pub rows: usize,
    /// Columns of a tile.
    pub columns: usize,
    pub threads: usize,
    /// Blocks that fit a multiprocessor at once.
    pub blocks: usize,
    /// Tiles in flight (tensor cores only).
    pub stages: usize,
    pub shared: usize,
}

/// Columns of a tile on tensor cores.
const BN: usize = 64;

/// The tile on tensor cores for points of width `d` and `nc` columns of V (0: the Gram matrix itself).
pub(super) fn tensor_shape(d: usize, nc: usize, split: bool, card: Card) -> Shape {
    let resident = d <= 64;
    // (warps, blocks on a multiprocessor), by what the registers allow.
    let (warps, blocks) = match (resident, split) {
        (true, false) if nc <= 24 => (6, 2),
        (true, true) if nc <= 16 => (6, 2),
        (true, _) => (4, 2),
        (false, _) if card.shared > 160_000 => (8, 1),
        (false, _) => (4, 1),
    };
    let values = if split { 2 } else { 1 } * nc * (BN + 4);
    let shared = |stages: usize| {
        let words = if resident {
            stages * (BN * (d + 4) + BN + values)
        } else {
            stages * (32 * warps + BN) * (if split { 16 } else { 32 } + 4) + 2 * (BN + values)
        };
        4 * words
    };
    // A block's reserve is 1 KiB, and the multiprocessor has as much more than a block may take.
    let stages = if blocks * (shared(3) + 1024) <= card.shared + 1024 { 3 } else { 2 };
    let blocks = if blocks * (shared(stages) + 1024) <= card.shared + 1024 { blocks } else { 1 };
    let rows = 32 * warps;
    Shape { name: "tensor", rows, columns: BN, threads: rows, blocks, stages, shared: shared(stages) }
}

/// The tile without tensor cores.
pub(super) fn simt_shape(side: usize, nc: usize, arithmetic: Arithmetic) -> Shape {
    let rows = 16 * side;
    // Two buffers of 8 coordinates of both sides' points, which later hold 64 rows of V; 64 columns of K.
    let panels = (4 * 8 * (rows + 4)).max(64 * nc);
    let product = if nc == 0 { 0 } else { 64 * (rows + 4) };
    let shared = arithmetic.bytes() * (panels + product);
    Shape { name: "simt", rows, columns: rows, threads: 256, blocks: if side == 4 { 2 } else { 1 }, stages: 1, shared }
}

/// Partial results take at most this many bytes.
const PARTIAL_BYTES: usize = 1 << 29;
/// Sums over a split are in float: at most this many tiles keep their rounding near that of one.
const LONGEST: usize = 512;

/// Deals the columns so that the last wave of blocks is nearly full. `row_bytes` is what a row of one partial result
/// takes (0: nothing is kept).
pub(super) fn tiling(shape: Shape, n: usize, m: usize, row_bytes: usize, card: Card) -> Tiling {
    let (blocks, tiles) = (n.div_ceil(shape.rows).max(1), m.div_ceil(shape.columns).max(1));
    let slots = card.multiprocessors * shape.blocks;
    let room = if row_bytes == 0 { tiles } else { (PARTIAL_BYTES / (padded(n) * row_bytes)).max(1) };
    // A block costs about two tiles beside its own: its points come in, its sums go out.
    let cost = |splits: usize| (blocks * splits).div_ceil(slots) * (tiles.div_ceil(splits) + 2);
    let most = tiles.min(room).min(256);
    let least = tiles.div_ceil(LONGEST).min(most);
    let splits = (least..=most).min_by_key(|&splits| cost(splits)).unwrap_or(1);
    // Rounding up may leave the last splits without a tile: drop them.
    let tiles_per_split = tiles.div_ceil(splits);
    let splits = tiles.div_ceil(tiles_per_split);
    let launch = Launch {
        name: shape.name,
        grid: (blocks as u32, splits as u32),
        block: shape.threads as u32,
        shared: shape.shared as u32,
    };
    Tiling { launch, tiles, tiles_per_split, splits }
}

/// How many columns one pass takes for `columns` right-hand sides: few passes, little padding.
pub fn columns_per_pass(columns: usize) -> usize {
    let passes = columns.div_ceil(32).max(1);
    columns.div_ceil(passes).max(1).next_multiple_of(8)
}

/// One thread an element, 256 a block.
pub(super) fn elementwise(name: &'static str, elements: usize) -> Launch {
    Launch { name, grid: (elements.div_ceil(256) as u32, 1), block: 256, shared: 0 }
}
