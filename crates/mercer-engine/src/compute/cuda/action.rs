//! How operators that are no kernels act on a batch: what of it is not a matrix product.

use super::gpu::Gpu;
use super::launch::Arg;
use super::memory::Buffer;
use super::module::Source;
use super::primitives::at;
use super::resident::Chunk;
use crate::Result;
use crate::compute::Tensor;
use std::sync::OnceLock;

pub(super) fn source() -> String {
    include_str!("action.cu").into()
}

fn compiled() -> &'static Source {
    static SOURCE: OnceLock<Source> = OnceLock::new();
    SOURCE.get_or_init(|| Source::new(source()))
}

/// The first `count` rows of `part` `[·, m]`, which are the functions `first, first + 1, …` of S at m values, into columns
/// of `f` `[m, S]`.
pub fn lay_samples(gpu: &Gpu, part: &Tensor, count: usize, [samples, first]: [usize; 2], f: &mut Tensor) {
    let m = part.shape()[1];
    let sizes = [count, m, samples, first].map(Arg::long);
    gpu.over(compiled(), "lay_samples", count * m, &[&sizes[..], &[at(part), at(f)]].concat());
}

/// `out ← K[rows, rows]` `[B, B]` of a stored matrix `k` `[n, n]`, with the row numbers (u32 `[B]`) at `rows`.
pub fn gather_block(gpu: &Gpu, k: &Tensor, rows: u64, out: &mut Tensor) {
    let b = out.shape()[0];
    let arguments = [Arg::long(b), Arg::long(k.shape()[0]), Arg::U64(rows), at(k), at(out)];
    gpu.over(compiled(), "gather_block", b * b, &arguments);
}

/// `psi[j, b, o] ← w[b] psi[j, b, o]`; `w` `[B, 1]`, `psi` `[k, B, c]`, both on one GPU.
pub fn times_weights(w: &Tensor, psi: &mut Tensor) {
    let gpu = psi.gpu().expect("values on a GPU");
    let [total, b, c] = [psi.len(), psi.shape()[1], psi.shape()[2]].map(Arg::long);
    gpu.over(compiled(), "times_weights", psi.len(), &[total, b, c, at(w), at(psi)]);
}

pub(in crate::compute) fn points_jet(gpu: &Gpu, x: &Tensor, out: &mut Tensor) {
    let [b, d] = [x.shape()[0], x.shape()[1]].map(Arg::long);
    gpu.over(compiled(), "points_jet", out.len(), &[b, d, at(x), at(out)]);
}

pub(in crate::compute) fn radial(gpu: &Gpu, scale: f64, d: usize, x: &Tensor, y: &mut Tensor) {
    let arguments = [Arg::long(x.len() / d), Arg::long(d), Arg::F64(scale), at(x), at(y)];
    gpu.over(compiled(), "radial", y.len(), &arguments);
}

pub(in crate::compute) fn radial_jet(gpu: &Gpu, scale: f64, [points, d]: [usize; 2], x: &Tensor, y: &mut Tensor) {
    let arguments = [Arg::long(points), Arg::long(d), Arg::F64(scale), at(x), at(y)];
    gpu.over(compiled(), "radial_jet", points * (d + 1), &arguments);
}

/// `out ← (shift f − Ĥf)/scale` `[k, B, 1]` from the jets `[k, (d+2)·B, 1]` of the functions, with `∇ln q` and U of the
/// batch's points in the rows of `local` `[·, d+1]` whose numbers (u32 `[B]`) lie at `rows`.
pub fn hamiltonian(gpu: &Gpu, [shift, scale]: [f64; 2], rows: u64, local: &Tensor, jet: &Tensor, out: &mut Tensor) {
    let [k, b, d] = [out.shape()[0], out.shape()[1], local.shape()[1] - 1].map(Arg::long);
    let arguments = [k, b, d, Arg::F64(shift), Arg::F64(scale), Arg::U64(rows), at(local), at(jet), at(out)];
    gpu.over(compiled(), "hamiltonian", out.len(), &arguments);
}

/// A graph on the device: the steps of its random walk.
pub struct Steps {
    /// Where the neighbours of each point begin, u32 `[n + 1]`; the neighbours, u32; and how likely each is, f64.
    starts: Buffer,
    neighbours: Buffer,
    shares: Buffer,
    /// Where the neighbours of a batch's points begin among those of the batch, u32 `[most, B]`, and which points all of
    /// them are, u32; none where functions are known at all points.
    listed: Option<[Buffer; 2]>,
}

impl Steps {
    /// From `starts` `[n + 1]`, `neighbours` and `shares`; for chunks of at most `most` steps of `batch` points, with
    /// `listed` neighbours at most of a batch, or all points where there is no such number.
    pub fn new(
        gpu: &'static Gpu,
        starts: &[u32],
        neighbours: &[u32],
        shares: &[f64],
        [most, batch]: [usize; 2],
        listed: Option<usize>,
    ) -> Result<Steps> {
        let bytes = |bytes: usize| gpu.allocate(bytes, &|| "a graph".into(), "use fewer neighbours");
        let mut steps = Steps {
            starts: bytes(4 * starts.len())?,
            neighbours: bytes(4 * neighbours.len())?,
            shares: bytes(8 * shares.len())?,
            listed: match listed {
                Some(m) => Some([bytes(4 * most * batch)?, bytes(4 * m)?]),
                None => None,
            },
        };
        steps.starts.write(0, starts);
        steps.neighbours.write(0, neighbours);
        steps.shares.write(0, shares);
        if let Some([_, list]) = &mut steps.listed {
            // What a batch leaves empty is the first point.
            list.zero(0, list.bytes());
        }
        Ok(steps)
    }

    /// Brings a chunk's places `[steps, B]`.
    pub fn bring(&mut self, places: &[u32]) {
        if let Some([here, _]) = &mut self.listed {
            here.write(0, places);
        }
    }

    /// Lists the neighbours of the batch; where their numbers lie.
    pub fn list(&self, chunk: &Chunk) -> Option<u64> {
        let [places, list] = self.listed.as_ref()?;
        let [control, places, starts, neighbours, out] =
            [&chunk.control, places, &self.starts, &self.neighbours, list].map(Arg::from);
        let arguments = [control, places, Arg::U64(chunk.step_rows()), starts, neighbours, out];
        chunk.gpu.launch(compiled(), "list_neighbours", [chunk.batch as u32, 1, 1], 64, 0, &arguments);
        Some(list.pointer())
    }

    /// `out ← f + (Pf − f)/shift` `[k, B, 1]` from `psi = f` and `there` `[k, m, 1]`, f at the listed points or at all.
    pub fn walk(&self, chunk: &Chunk, shift: f64, there: &Tensor, psi: &Tensor, out: &mut Tensor) {
        let [k, b, m] = [psi.shape()[0], chunk.batch, there.shape()[1]].map(Arg::long);
        let [control, starts, neighbours, shares] =
            [&chunk.control, &self.starts, &self.neighbours, &self.shares].map(Arg::from);
        let places = self.listed.as_ref().map_or(Arg::U64(0), |[places, _]| Arg::from(places));
        let rows = Arg::U64(chunk.step_rows());
        let graph = [control, places, rows, starts, neighbours, shares];
        let arguments = [&[k, b, m, Arg::F64(shift)][..], &graph, &[at(there), at(psi), at(out)]].concat();
        chunk.gpu.over(compiled(), "walk", psi.len(), &arguments);
    }
}
