//! Small dense matrices in `f64` that stay on their device: the algebra on `[k, k]` matrices inside a training step.
//!
//! Every operation writes to a matrix that already exists, and none waits for the device, so a whole step can be recorded
//! into a CUDA graph. An operation that can fail (a factorisation, say) notes the failure in a [`Control`](super::Control).
//!
//! | file | content |
//! |---|---|
//! | `form` | between tensors `[k, B, c]` and matrices: [`form`], [`forms`], [`mix`], [`weigh`], [`add_rows`] |
//! | `elements` | entry by entry: [`multiply`], [`divide`], [`hinge`], [`inner`], [`sum`], [`without_bias`] |
//! | `average` | [`Average`], the moving average |
//! | `triangular` | [`quotients`], [`inverse_unit_lower`], [`cholesky`], [`congruence`], [`solve_upper`] |
//! | `eigen` | [`eigh`], [`top_pairs`], [`gram`] |
//!
//! ```
//! use mercer_engine::compute::{Control, Device, Small, small};
//! use ndarray::{Array2, array};
//!
//! let a = Small::from_host(Device::Cpu, &array![[4.0, 2.0], [2.0, 5.0]])?;
//! let mut control = Control::new(Device::Cpu, 1, 2)?;
//! let mut l = Small::zeros(Device::Cpu, [2, 2])?;
//! small::cholesky(&a, &mut control, &mut l)?;
//! assert!((l.to_host()?[[1, 1]] - 2.0).abs() < 1e-6);
//! # Ok::<(), mercer_engine::Error>(())
//! ```

mod average;
mod eigen;
mod elements;
mod form;
mod triangular;

pub use average::Average;
pub use eigen::{eigh, gram, top_pairs};
pub use elements::{divide, hinge, inner, multiply, sum, without_bias};
pub use form::{add_rows, form, forms, mix, weigh};
pub use triangular::{cholesky, congruence, inverse_unit_lower, quotients, solve_upper};

use super::cuda::{Buffer, Gpu, gpu};
use super::tensor::{Device, Storage};
use crate::Result;
use ndarray::{Array2, ArrayView1, ArrayView2};

/// A matrix `[m, n]` of `f64` on a device.
#[derive(Debug)]
pub struct Small {
    shape: [usize; 2],
    storage: Storage<Array2<f64>>,
}

impl Small {
    /// All zeros `[m, n]`.
    pub fn zeros(device: Device, shape: [usize; 2]) -> Result<Small> {
        Small::from_host(device, &Array2::zeros(shape))
    }

    /// The identity `[n, n]`.
    pub fn identity(device: Device, n: usize) -> Result<Small> {
        Small::from_host(device, &Array2::eye(n))
    }

    /// A copy of `data` `[m, n]`.
    pub fn from_host(device: Device, data: &Array2<f64>) -> Result<Small> {
        let shape = [data.nrows(), data.ncols()];
        let storage = match device {
            Device::Cpu => Storage::Host(data.clone()),
            Device::Cuda(ordinal) => {
                let mut buffer = allocate(gpu(ordinal)?, shape[0] * shape[1])?;
                buffer.write(0, &data.iter().copied().collect::<Vec<f64>>());
                Storage::Cuda(buffer)
            }
        };
        Ok(Small { shape, storage })
    }

    /// A copy `[m, n]` on the host; waits for the device.
    pub fn to_host(&self) -> Result<Array2<f64>> {
        match &self.storage {
            Storage::Host(array) => Ok(array.clone()),
            Storage::Cuda(buffer) => {
                let mut data = vec![0.0; self.len()];
                buffer.read(0, &mut data)?;
                Ok(Array2::from_shape_vec(self.shape, data).expect("m·n values"))
            }
        }
    }

    /// Overwrites the matrix with `data` of the same shape.
    pub fn copy_from_host(&mut self, data: &Array2<f64>) {
        assert_eq!([data.nrows(), data.ncols()], self.shape, "a matrix is overwritten with one of another shape");
        self.write_rows(0, data);
    }

    /// Overwrites the rows from `first` on with `rows` `[·, n]`.
    pub fn write_rows(&mut self, first: usize, rows: &Array2<f64>) {
        let [m, n] = self.shape;
        assert!(rows.ncols() == n && first + rows.nrows() <= m, "rows {:?} at {first} of {:?}", rows.dim(), self.shape);
        match &mut self.storage {
            Storage::Host(array) => array.slice_mut(ndarray::s![first..first + rows.nrows(), ..]).assign(rows),
            Storage::Cuda(buffer) => buffer.write(8 * first * n, &rows.iter().copied().collect::<Vec<f64>>()),
        }
    }

    /// Rows and columns.
    pub fn shape(&self) -> [usize; 2] {
        self.shape
    }

    /// Number of entries.
    fn len(&self) -> usize {
        self.shape[0] * self.shape[1]
    }

    /// The device it lives on.
    pub fn device(&self) -> Device {
        self.storage.device()
    }

    /// The matrix as an operand.
    pub fn view(&self) -> View<'_> {
        View { matrix: self, transposed: false, scale: 1.0 }
    }

    /// Its transpose as an operand.
    pub fn t(&self) -> View<'_> {
        self.view().t()
    }

    /// The matrix times a number, as an operand.
    pub fn times(&self, scale: f64) -> View<'_> {
        self.view().times(scale)
    }

    /// The diagonal of a square matrix.
    pub fn diagonal(&self) -> Vector<'_> {
        assert_eq!(self.shape[0], self.shape[1], "a matrix that is not square has no diagonal");
        Vector { matrix: self, start: 0, stride: self.shape[1] + 1, len: self.shape[0] }
    }

    /// Row `i`.
    pub fn row(&self, i: usize) -> Vector<'_> {
        assert!(i < self.shape[0], "row {i} of {}", self.shape[0]);
        Vector { matrix: self, start: i * self.shape[1], stride: 1, len: self.shape[1] }
    }

    /// The order of a square matrix.
    fn order(&self) -> usize {
        assert_eq!(self.shape[0], self.shape[1], "the matrix is not square");
        self.shape[0]
    }

    fn expect(&self, shape: [usize; 2]) {
        assert_eq!(self.shape, shape, "a matrix has the wrong shape");
    }

    /// The open GPU it lies on; `None` on the CPU.
    fn gpu(&self) -> Option<&'static Gpu> {
        self.storage.buffer().map(Buffer::gpu)
    }

    /// Its entries in host memory.
    pub(super) fn host(&self) -> &Array2<f64> {
        self.storage.host("a matrix")
    }

    /// Replaces its entries in host memory. The array may be in either memory order.
    fn set(&mut self, array: Array2<f64>) {
        assert_eq!([array.nrows(), array.ncols()], self.shape, "a result has the wrong shape");
        self.storage = Storage::Host(array);
    }

    /// Where its first entry lies on the GPU.
    pub(super) fn address(&self) -> u64 {
        self.storage.buffer().expect("a matrix on the CPU was used with one on a GPU").pointer()
    }
}

/// Device memory for `numbers` doubles.
pub(super) fn allocate(gpu: &'static Gpu, numbers: usize) -> Result<Buffer> {
    gpu.allocate(8 * numbers.max(1), &|| format!("a matrix of {numbers} entries"), "use fewer functions")
}

/// A matrix as an operand: perhaps transposed, times a number.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub(super) matrix: &'a Small,
    pub(super) transposed: bool,
    pub(super) scale: f64,
}

impl<'a> View<'a> {
    /// The transpose.
    pub fn t(self) -> View<'a> {
        View { transposed: !self.transposed, ..self }
    }

    /// The same times a number.
    pub fn times(self, scale: f64) -> View<'a> {
        View { scale: self.scale * scale, ..self }
    }

    /// Rows and columns, after transposition.
    pub fn shape(self) -> [usize; 2] {
        let [m, n] = self.matrix.shape;
        if self.transposed { [n, m] } else { [m, n] }
    }

    /// The entries in host memory, without the factor.
    fn host(self) -> ArrayView2<'a, f64> {
        let view = self.matrix.host().view();
        if self.transposed { view.reversed_axes() } else { view }
    }
}

impl<'a> From<&'a Small> for View<'a> {
    fn from(matrix: &'a Small) -> View<'a> {
        matrix.view()
    }
}

/// A row or the diagonal of a matrix.
#[derive(Clone, Copy, Debug)]
pub struct Vector<'a> {
    pub(super) matrix: &'a Small,
    pub(super) start: usize,
    pub(super) stride: usize,
    pub(super) len: usize,
}

impl<'a> Vector<'a> {
    /// Where the first entry lies on the GPU.
    pub(super) fn address(self) -> u64 {
        self.matrix.address() + 8 * self.start as u64
    }

    /// The entries in host memory.
    pub(super) fn host(self) -> ArrayView1<'a, f64> {
        let array = self.matrix.host();
        if self.stride == 1 { array.row(self.start / array.ncols().max(1)) } else { array.diag() }
    }
}
