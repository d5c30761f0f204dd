//! Tile shapes, grids and shared memory of the launches.

use super::Arithmetic;
use crate::compute::cuda::{Arg, Gpu, Source};

/// The properties of a GPU that determine the tiles.
#[derive(Clone, Copy, Debug)]
pub(super) struct Card {
    pub multiprocessors: usize,
    /// Compute capability as `10·major + minor`: 90 for an H200.
    pub capability: u32,
    /// Largest shared memory of a block, in bytes.
    pub shared: usize,
}

impl Card {
    /// An H100 or H200.
    pub const HOPPER: Card = Card { multiprocessors: 132, capability: 90, shared: 232_448 };

    pub fn of(gpu: &Gpu) -> Card {
        let [multiprocessors, shared] = [gpu.multiprocessors, gpu.shared_memory].map(|n| n as usize);
        Card { multiprocessors, capability: gpu.architecture, shared }
    }
}

/// The parameters of a kernel launch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Launch {
    /// Name of the function in the module.
    pub name: &'static str,
    /// Number of blocks in x and y.
    pub grid: [u32; 2],
    /// Threads per block.
    pub block: u32,
    /// Dynamic shared memory per block in bytes.
    pub shared: u32,
}

impl Launch {
    /// One thread per element, 256 per block.
    pub fn elementwise(name: &'static str, elements: usize) -> Launch {
        Launch { name, grid: [elements.div_ceil(256) as u32, 1], block: 256, shared: 0 }
    }

    /// Queues the kernel.
    ///
    /// # Safety
    /// As [`Gpu::launch`].
    pub unsafe fn run(self, gpu: &Gpu, source: &Source, arguments: &[Arg]) {
        // SAFETY: promised by the caller.
        unsafe { gpu.launch(source, self.name, [self.grid[0], self.grid[1], 1], self.block, self.shared, arguments) };
    }
}

/// A launch that covers `[n, m]` with tiles. The column tiles are divided into splits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiling {
    /// Its grid is (row blocks, column splits).
    pub launch: Launch,
    /// Number of column tiles.
    pub tiles: usize,
    /// Column tiles per split.
    pub tiles_per_split: usize,
}

impl Tiling {
    /// Number of splits, and so of partial results to add.
    pub fn splits(&self) -> usize {
        self.launch.grid[1] as usize
    }
}

/// The number of points and values is padded to a multiple of this, which is a multiple of every tile's size.
pub(super) const PAD: usize = 768;

/// `n` rounded up to a multiple of [`PAD`].
pub(super) fn padded(n: usize) -> usize {
    n.div_ceil(PAD).max(1) * PAD
}

/// The `diagonal` argument for two different sets of points.
pub(super) const NO_DIAGONAL: i32 = i32::MIN / 2;

/// The tile shape of a kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub name: &'static str,
    /// Rows of a block.
    pub rows: usize,
    /// Columns of a tile.
    pub columns: usize,
    pub threads: usize,
    /// Blocks that run on one multiprocessor at once.
    pub blocks: usize,
    /// Number of tile buffers in the pipeline (tensor cores only).
    pub stages: usize,
    pub shared: usize,
    /// Whether four warps compute inner products together.
    pub group: bool,
}

/// Columns of a tile on tensor cores.
const BN: usize = 64;

/// Coordinates up to which the points of a warp stay in registers.
const RESIDENT: usize = 64;

/// The tile on tensor cores for points of width `d` and `nc` columns of V; `nc = 0` is the Gram matrix.
pub(super) fn tensor_shape(d: usize, nc: usize, arithmetic: Arithmetic, card: Card) -> Shape {
    let (resident, split, half) = (d <= RESIDENT, arithmetic == Arithmetic::Split, arithmetic == Arithmetic::Half);
    // wgmma is an instruction of compute capability 9.0 alone.
    let group = half && resident && card.capability == 90;
    // (warps, blocks per multiprocessor), limited by the registers.
    let (warps, blocks) = match (resident, split) {
        (true, false) if group && nc <= 16 => (12, 1),
        (true, false) if group => (16, 1),
        (true, false) if half && nc <= 16 => (8, 2),
        (true, false) if nc <= 24 => (6, 2),
        (true, true) if nc <= 16 => (6, 2),
        (true, _) => (4, 2),
        (false, _) if card.shared > 160_000 => (8, 1),
        (false, _) => (4, 1),
    };
    let rows = if group && nc > 16 { 16 } else { 32 } * warps;
    let values = if split { 2 } else { 1 } * nc * (BN + 4);
    // Words of `width` coordinates of a point in shared memory.
    let words_of = |width: usize| if half { width / 2 } else { width + 4 };
    let shared = |stages: usize| {
        let words = if resident {
            stages * (BN * words_of(d) + BN + values)
        } else {
            let chunk = if split {
                16
            } else if half {
                64
            } else {
                32
            };
            stages * (rows + BN) * words_of(chunk) + 2 * (BN + values)
        };
        4 * words
    };
    // CUDA reserves 1 KiB per block, and a multiprocessor has 1 KiB more than a block may use.
    let most = if group { 4 } else { 3 };
    let stages = if blocks * (shared(most) + 1024) <= card.shared + 1024 { most } else { 2 };
    let blocks = if blocks * (shared(stages) + 1024) <= card.shared + 1024 { blocks } else { 1 };
    let shared = shared(stages);
    Shape { name: "tensor", rows, columns: BN, threads: 32 * warps, blocks, stages, shared, group }
}

/// The tile without tensor cores.
pub(super) fn simt_shape(side: usize, nc: usize, arithmetic: Arithmetic) -> Shape {
    let rows = 16 * side;
    // Two buffers with 8 coordinates of the points of both sides, reused for 64 rows of V; then 64 columns of K.
    let panels = (4 * 8 * (rows + 4)).max(64 * nc);
    let product = if nc == 0 { 0 } else { 64 * (rows + 4) };
    let shared = arithmetic.bytes() * (panels + product);
    Shape {
        name: "simt",
        rows,
        columns: rows,
        threads: 256,
        blocks: if side == 4 { 2 } else { 1 },
        stages: 1,
        shared,
        group: false,
    }
}

/// Largest size of all partial results, in bytes.
const PARTIAL_BYTES: usize = 1 << 29;
/// Largest number of tiles per split. Sums over a split are in f32, so this bounds their rounding error.
const MAX_TILES: usize = 512;

/// Chooses the splits so that the last wave of blocks is nearly full, of at most `most` tiles. `row_bytes` is the size of one
/// row of a partial result, 0 if there are none.
pub(super) fn tiling(shape: Shape, [n, m]: [usize; 2], row_bytes: usize, most: usize, card: Card) -> Tiling {
    let (blocks, tiles) = (n.div_ceil(shape.rows).max(1), m.div_ceil(shape.columns).max(1));
    let slots = card.multiprocessors * shape.blocks;
    let limit = if row_bytes == 0 { tiles } else { (PARTIAL_BYTES / (padded(n) * row_bytes)).max(1) };
    // Reading its points and writing its sums costs a block about as much as two tiles.
    let cost = |splits: usize| (blocks * splits).div_ceil(slots) * (tiles.div_ceil(splits) + 2);
    let max = tiles.min(limit).min(256);
    let min = tiles.div_ceil(MAX_TILES).min(max);
    let splits = (min..=max).min_by_key(|&splits| cost(splits)).unwrap_or(1);
    // Rounding up may leave the last splits without tiles; they are dropped.
    let tiles_per_split = tiles.div_ceil(splits).min(most);
    let grid = [blocks as u32, tiles.div_ceil(tiles_per_split) as u32];
    let launch = Launch { name: shape.name, grid, block: shape.threads as u32, shared: shape.shared as u32 };
    Tiling { launch, tiles, tiles_per_split }
}

/// Columns of V per pass, chosen for few passes and little padding.
pub(super) fn columns_per_pass(columns: usize) -> usize {
    let passes = columns.div_ceil(32).max(1);
    columns.div_ceil(passes).max(1).next_multiple_of(8)
}
