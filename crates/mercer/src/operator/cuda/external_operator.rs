//! The kernel matrix of points that another library holds in the memory of a GPU, as an operator.

use super::ADVICE;
use super::device::{CudaKernel, DevicePoints, Product};
use super::external::{ExternalArray, upload_rows};
use super::external_points::Ready;
use super::launch::padded;
use super::program::Kind;
use crate::compute::Device;
use crate::compute::cuda::{Buffer, Gpu};
use crate::kernel::Kernel;
use crate::linalg::Panel;
use crate::operator::{Operator, Precision};
use crate::{Progress, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView2};

/// `K = κ(X,X)` of points that another library holds in the memory of a GPU. It keeps them in the layout of its tiles, so that the
/// library may free its own when [`DeviceOperator::new`] has returned.
pub struct DeviceOperator {
    kernel: CudaKernel,
    points: DevicePoints,
    precision: Precision,
    d: usize,
}

impl DeviceOperator {
    /// Of the points `x`; none where the host alone can prepare points for the kernel.
    pub fn new(kernel: &Kernel, x: &ExternalArray, precision: Precision) -> Result<Option<DeviceOperator>> {
        let Some(mut ready) = Ready::new(kernel, x, None, precision)? else {
            return Ok(None);
        };
        x.gpu.synchronize()?;
        let points = ready.points.pop().expect("one set of points");
        Ok(Some(DeviceOperator { kernel: ready.kernel, points, precision, d: x.shape[1] }))
    }

    /// The device that holds it.
    pub fn gpu(&self) -> &'static Gpu {
        self.kernel.gpu
    }

    fn bytes(&self) -> usize {
        self.kernel.program.arithmetic.bytes()
    }

    /// `K V` `[n, b]` in the type of `V` `[n, b]`. The work is done when it returns.
    pub fn multiply(&self, v: &ExternalArray) -> Result<Buffer> {
        let ([rows, b], n) = (v.shape, self.points.n);
        fail_if!(rows != n, "the operator is on {n} values, and the vectors have {rows}");
        let (held, on) = (v.gpu.ordinal, self.gpu().ordinal);
        fail_if!(
            held != on,
            "the vectors are on cuda:{held} and the operator on cuda:{on}; both must be on one device"
        );
        let in_order = b <= 1 && v.strides[0] == 1 || v.strides == [b as isize, 1];
        let copy = if in_order { None } else { Some(v.gathered(None)?) };
        let from = copy.as_ref().map_or(v.address, Buffer::pointer);
        let y = self.gpu().allocate(n * b * v.bytes(), &|| format!("{b} vectors of {n} values"), ADVICE)?;
        let sides = [&self.points; 2];
        let (places, diagonal, columns, double) = (None, Some(0), b, v.double);
        self.kernel.placed_product(&Product { sides, places, diagonal, v: from, y: y.pointer(), columns, double })?;
        self.gpu().synchronize()?;
        Ok(y)
    }

    /// The diagonal `[n]` in the memory of the GPU, f64 for [`Precision::F64`], else f32.
    pub fn diagonal_on_device(&self) -> Result<Buffer> {
        let bytes = self.points.n * self.bytes();
        let mut out = self.gpu().allocate(bytes, &|| "the diagonal of a kernel matrix".into(), ADVICE)?;
        out.copy_from(0, &self.points.xx, self.diagonal_at(), bytes);
        self.gpu().synchronize()?;
        Ok(out)
    }

    /// Where the diagonal begins among the norms, in bytes.
    fn diagonal_at(&self) -> usize {
        self.kernel.program.views.len() * padded(self.points.n) * self.bytes()
    }

    /// The points of these rows, in the layout of the tiles.
    fn select(&self, rows: &[usize]) -> Result<DevicePoints> {
        let places = upload_rows(self.gpu(), rows)?;
        self.kernel.gather(&self.points, Some(&places), 0, rows.len())
    }

    /// `κ(A, B)` `[n, m]` of prepared points on the host, in f64.
    fn gram(&self, a: &DevicePoints, b: &DevicePoints, diagonal: Option<i32>) -> Result<Array2<f64>> {
        let (n, m) = (a.n, b.n);
        let out = self.gpu().allocate(n * m * self.bytes(), &|| format!("a {n} × {m} kernel matrix"), ADVICE)?;
        self.kernel.gram(Kind::Gram, [a, b], diagonal, out.pointer(), m);
        Ok(read(&out, 0, n * m, self.bytes())?.into_shape_with_order((n, m)).expect("n·m values"))
    }
}

/// `count` numbers of a buffer as f64.
fn read(buffer: &Buffer, at: usize, count: usize, bytes: usize) -> Result<Array1<f64>> {
    if bytes == 8 {
        let mut values = vec![0.0f64; count];
        buffer.read(at, &mut values)?;
        return Ok(values.into());
    }
    let mut values = vec![0.0f32; count];
    buffer.read(at, &mut values)?;
    Ok(values.into_iter().map(f64::from).collect())
}

impl Operator for DeviceOperator {
    fn n(&self) -> usize {
        self.points.n
    }

    fn apply(&self, v: ArrayView2<f64>) -> Result<Array2<f64>> {
        self.apply_panel(&Panel::from_host(Device::Cuda(self.gpu().ordinal), v.to_owned())?)?.into_host()
    }

    fn apply_panel(&self, v: &Panel) -> Result<Panel> {
        let (n, b) = (self.n(), v.ncols());
        let Some(from) = v.buffer().filter(|from| from.gpu().ordinal == self.gpu().ordinal) else {
            return v.through_host(|v| self.apply(v));
        };
        let to = self.gpu().allocate(8 * n * b, &|| format!("a panel of {:?}", [n, b]), ADVICE)?;
        self.kernel.product([&self.points; 2], Some(0), from.pointer(), b, to.pointer())?;
        Ok(Panel::from_buffer([n, b], to))
    }

    fn block(&self, rows: &[usize], columns: &[usize]) -> Result<Array2<f64>> {
        let [a, b] = [self.select(rows)?, self.select(columns)?];
        let mut block = self.gram(&a, &b, None)?;
        let diagonal = self.diagonal()?;
        for (i, row) in rows.iter().enumerate() {
            columns.iter().enumerate().filter(|(_, column)| *column == row).for_each(|(j, _)| {
                block[[i, j]] = diagonal[*row];
            });
        }
        Ok(block)
    }

    fn diagonal(&self) -> Result<Array1<f64>> {
        read(&self.points.xx, self.diagonal_at(), self.points.n, self.bytes())
    }

    fn roundoff(&self) -> f64 {
        self.precision.roundoff(Device::Cuda(self.gpu().ordinal))
    }

    fn to_dense(&self, _progress: &dyn Progress) -> Result<Array2<f64>> {
        self.gram(&self.points, &self.points, Some(0))
    }

    fn describe(&self) -> String {
        format!("{} on {} points of {} columns on {:?}", self.kernel.program.plan.kernel, self.n(), self.d, self.gpu())
    }
}
