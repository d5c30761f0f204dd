//! The CUDA arms of primitives on functions at points. Shapes have been checked.

use super::gpu::Gpu;
use super::launch::Arg;
use super::memory::Buffer;
use super::module::Source;
use super::primitives::at;
use crate::Result;
use crate::compute::small::Small;
use crate::compute::{Control, Indices, Tensor};
use std::sync::OnceLock;

pub(super) fn source() -> String {
    include_str!("points.cu").into()
}

fn compiled() -> &'static Source {
    static SOURCE: OnceLock<Source> = OnceLock::new();
    SOURCE.get_or_init(|| Source::new(source()))
}

/// Writes the first `count` rows of `part` `[·, m]` to the columns `first, first + 1, …` of `out` `[m, columns]`.
pub fn place_columns(gpu: &Gpu, part: &Tensor, count: usize, [columns, first]: [usize; 2], out: &mut Tensor) {
    let m = part.shape()[1];
    let sizes = [count, m, columns, first].map(Arg::long);
    gpu.over(compiled(), "place_columns", count * m, &[&sizes[..], &[at(part), at(out)]].concat());
}

pub(in crate::compute) fn gather_block(gpu: &Gpu, k: &Tensor, rows: u64, out: &mut Tensor) {
    let b = out.shape()[0];
    let arguments = [Arg::long(b), Arg::long(k.shape()[0]), Arg::U64(rows), at(k), at(out)];
    gpu.over(compiled(), "gather_block", b * b, &arguments);
}

pub(in crate::compute) fn scale_points(gpu: &Gpu, w: &Tensor, psi: &mut Tensor) {
    let [total, b, c] = [psi.len(), psi.shape()[1], psi.shape()[2]].map(Arg::long);
    gpu.over(compiled(), "scale_points", psi.len(), &[total, b, c, at(w), at(psi)]);
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

pub(in crate::compute) fn elliptic(
    gpu: &Gpu,
    [shift, scale]: [f64; 2],
    rows: &Indices,
    field: &Small,
    jet: &Tensor,
    out: &mut Tensor,
) {
    let [k, b, c, d] = [out.shape()[0], out.shape()[1], out.shape()[2], field.shape()[1] - 1].map(Arg::long);
    let [rows, field] = [rows.address(), field.address()].map(Arg::U64);
    let arguments = [k, b, c, d, Arg::F64(shift), Arg::F64(scale), rows, field, at(jet), at(out)];
    gpu.over(compiled(), "elliptic", out.len(), &arguments);
}

/// The CUDA arm of [`crate::compute::SparseRows`].
#[derive(Debug)]
pub(in crate::compute) struct DeviceRows {
    gpu: &'static Gpu,
    /// Where the columns of each row begin, u32 `[n + 1]`; the columns, u32; the entries, f64.
    starts: Buffer,
    columns: Buffer,
    values: Buffer,
    /// Where the columns of a batch's rows begin in its list: u32 `[steps, B]`; none where all columns are listed.
    places: Option<Buffer>,
}

impl DeviceRows {
    pub fn new(
        gpu: &'static Gpu,
        (starts, columns, values): (&[u32], &[u32], &[f64]),
        places: Option<usize>,
    ) -> Result<DeviceRows> {
        let bytes = |bytes: usize| gpu.allocate(bytes, &|| "a sparse matrix".into(), "use fewer neighbours");
        let mut rows = DeviceRows {
            gpu,
            starts: bytes(4 * starts.len())?,
            columns: bytes(4 * columns.len())?,
            values: bytes(8 * values.len())?,
            places: places.map(|count| bytes(4 * count)).transpose()?,
        };
        rows.starts.write(0, starts);
        rows.columns.write(0, columns);
        rows.values.write(0, values);
        Ok(rows)
    }

    pub fn bring(&mut self, places: &[u32]) {
        if let Some(buffer) = &mut self.places {
            buffer.write(0, places);
        }
    }

    pub fn list(&self, control: &Control, rows: &Indices, list: &mut Indices) {
        let Some(places) = &self.places else { return };
        let [places, starts, columns] = [places, &self.starts, &self.columns].map(Arg::from);
        let [control, numbers, list] = [control.address(), rows.address(), list.address()].map(Arg::U64);
        let arguments = [control, places, numbers, starts, columns, list];
        self.gpu.launch(compiled(), "list_columns", [rows.len() as u32, 1, 1], 64, 0, &arguments);
    }

    pub fn apply(&self, control: &Control, rows: &Indices, shift: f64, there: &Tensor, psi: &Tensor, out: &mut Tensor) {
        let [k, b, m] = [psi.shape()[0], rows.len(), there.shape()[1]].map(Arg::long);
        let [starts, columns, values] = [&self.starts, &self.columns, &self.values].map(Arg::from);
        let places = self.places.as_ref().map_or(Arg::U64(0), Arg::from);
        let [control, rows] = [control.address(), rows.address()].map(Arg::U64);
        let matrix = [control, places, rows, starts, columns, values];
        let arguments = [&[k, b, m, Arg::F64(shift)][..], &matrix, &[at(there), at(psi), at(out)]].concat();
        self.gpu.over(compiled(), "sparse_rows", psi.len(), &arguments);
    }
}
