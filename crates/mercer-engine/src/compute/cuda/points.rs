//! CUDA implementations of primitives on functions at points. Shapes have been checked.

use super::gpu::Gpu;
use super::launch::{Arg, args};
use super::memory::Buffer;
use super::module::kernels;
use crate::Result;
use crate::compute::{Control, Indices, Tensor};

kernels!(include_str!("points.cu"));

/// Writes the first `count` rows of `part` `[·, m]` to the columns `first, first + 1, …` of `out` `[m, columns]`.
pub fn place_columns(gpu: &Gpu, part: &Tensor, count: usize, [columns, first]: [usize; 2], out: &mut Tensor) {
    let m = part.shape()[1];
    assert!(
        count <= part.shape()[0] && first + count <= columns && m * columns <= out.len(),
        "place_columns: {count} rows of {part} from column {first} of {columns} on, into {out}"
    );
    over(gpu, "place_columns", count * m, &args![count, m, columns, first, part, out]);
}

/// The CUDA implementation of [`crate::compute::SparseRows`].
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
        let (what, advice) = (|| "a sparse matrix".into(), "use fewer neighbours");
        Ok(DeviceRows {
            gpu,
            starts: gpu.upload(starts, &what, advice)?,
            columns: gpu.upload(columns, &what, advice)?,
            values: gpu.upload(values, &what, advice)?,
            places: places.map(|count| gpu.allocate(4 * count, &what, advice)).transpose()?,
        })
    }

    pub fn bring(&mut self, places: &[u32]) {
        if let Some(buffer) = &mut self.places {
            buffer.write(0, places);
        }
    }

    pub fn list(&self, control: &Control, rows: &Indices, list: &mut Indices) {
        let Some(places) = &self.places else { return };
        let arguments = args![control, places, rows, self.starts, self.columns, list];
        // SAFETY: `places` says where the columns of each row of the batch begin in the list, which has room for the most that
        // a batch can have.
        unsafe { self.gpu.launch(compiled(), "list_columns", [rows.len() as u32, 1, 1], 64, 0, &arguments) };
    }

    pub fn apply(&self, control: &Control, rows: &Indices, shift: f64, there: &Tensor, psi: &Tensor, out: &mut Tensor) {
        let (sizes, places) = ([psi.shape()[0], rows.len(), there.shape()[1]], self.places.as_ref());
        let matrix = args![control, places, rows, self.starts, self.columns, self.values];
        let arguments = [args![sizes, shift], matrix, args![there, psi, out]].concat();
        over(self.gpu, "sparse_rows", psi.len(), &arguments);
    }
}
