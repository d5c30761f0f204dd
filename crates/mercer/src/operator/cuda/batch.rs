//! Kernel matrices of batches of points on a GPU.

use super::{Arithmetic, Card, Program, Scalar, Tiling, padded};
use crate::Result;
use crate::compute::cuda::{Arg, Buffer, Gpu, Source};
use crate::compute::{Math, Tensor};
use crate::data::Rows;
use crate::kernel::Kernel;

/// All points on a GPU, and the kernel matrices of batches of them.
pub(crate) struct BatchGram {
    gpu: &'static Gpu,
    program: Program,
    prepare: Source,
    source: Source,
    tiling: Tiling,
    batch: usize,
    /// All points, transformed for the kernel: f32 `[n, source width]`.
    points: Buffer,
    /// The points of the batch in the layout of the tiles: f32 `[padded batch, width]`.
    tile: Buffer,
    /// Norms of the points of the batch: f32 `[views, padded batch]`.
    norms: Buffer,
}

impl BatchGram {
    /// For batches of `batch` of the points `x` `[n, d]`, on tensor cores if the GPU has them. Values are as accurate as f32;
    /// if `math` is not f32, they are the values at points rounded to TF32.
    pub fn new(gpu: &'static Gpu, kernel: &Kernel, x: Rows<'_>, batch: usize, math: Math) -> Result<BatchGram> {
        let arithmetic = if math == Math::F32 { Arithmetic::Split } else { Arithmetic::Tf32 };
        let program = Program::new(kernel, x, arithmetic, Card::of(gpu));
        let allocate = |len: usize, what: &'static str| {
            gpu.allocate(4 * len, &|| what.into(), "use fewer points or a smaller batch")
        };
        let mut points = allocate(x.n() * program.source_width(), "the points of the kernel")?;
        let packed: Vec<f32> = program.pack(x).iter().map(|v| *v as f32).collect();
        points.write(0, &packed);
        Ok(BatchGram {
            gpu,
            prepare: Source::new(program.prepare_source(Scalar::F32, 1)),
            source: Source::new(program.mirrored_gram_source()),
            tiling: program.mirrored_gram(batch),
            batch,
            points,
            tile: allocate(padded(batch) * program.width(), "the points of a batch")?,
            norms: allocate(padded(batch) * program.views(), "the norms of a batch")?,
            program,
        })
    }

    /// `out ← κ(x_b,x_b')` `[batch, batch]` for the points with the indices (i32 `[batch]`) at the device address `rows`.
    pub fn gram(&self, rows: u64, out: &mut Tensor) {
        let (b, pad) = (Arg::size(self.batch), Arg::size(padded(self.batch)));
        let [points, tile, norms] = [&self.points, &self.tile, &self.norms].map(Arg::from);
        let arguments = [points, Arg::U64(rows), tile, norms, b, pad];
        self.program.prepare_points(self.batch).run(self.gpu, &self.prepare, &arguments);
        let Tiling { launch, tiles, tiles_per_split, .. } = self.tiling;
        let (tiles, each) = (Arg::size(tiles), Arg::size(tiles_per_split));
        let out = [Arg::U64(out.address()), b, b, Arg::long(self.batch)];
        let arguments = [&[tile, norms, tile, norms, pad, pad, tiles, each, Arg::I32(0)][..], &out].concat();
        launch.run(self.gpu, &self.source, &arguments);
    }
}
