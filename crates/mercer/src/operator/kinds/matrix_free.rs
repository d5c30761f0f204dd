//! The matrix-free kernel operator: tiles of `κ(X,X)` are computed, multiplied and dropped.

use crate::compute::Device;
use crate::compute::cuda::{self, Gpu};
use crate::compute::ledger::ran;
use crate::data::{CowRows, Rows};
use crate::kernel::Kernel;
use crate::linalg::{Panel, Part, matmul_into};
use crate::operator::cuda::{CudaOperator, compiles, image_diagonal};
use crate::operator::memory::zeros;
use crate::operator::tile::few_columns::{Products, Vectors};
use crate::operator::tile::point_pair::PointPair;
use crate::operator::tile::points::{Plan, Prepared};
use crate::operator::tile::symmetric_product::symmetric_apply;
use crate::operator::tile::workspace::{Workspace, ranges};
use crate::operator::{
    DenseOperator, Extension, KernelFeatures, Operator, Points, Precision, Real, gram_cross, gram_reported,
    in_precision,
};
use crate::{FitContext, Progress, Result};
use faer::{Accum, Par};
use ndarray::{Array1, Array2, ArrayView2, ArrayViewMut2, Axis, s};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::OnceLock;

/// What products are called in the ledger.
const PRODUCTS: &str = "products with the kernel matrix";

/// `K = κ(X,X)` that is never stored: each product computes its tiles anew, every symmetric half once.
///
/// ```
/// use mercer::{Device, kernel::Kernel, operator::{KernelOperator, Operator, Precision}};
/// let x = ndarray::array![[0.0], [1.0], [3.0]];
/// let k = KernelOperator::new(&Kernel::parse("linear")?, x.view(), Precision::F64, Device::Cpu)?;
/// assert_eq!(k.apply(ndarray::array![[1.0], [1.0], [1.0]].view())?, ndarray::array![[0.0], [4.0], [12.0]]);
/// # Ok::<(), mercer::Error>(())
/// ```
///
/// Nothing is computed before it is needed: random features ask for the formula and the points alone. On a GPU, products are
/// fused: see [`crate::operator::cuda`].
pub struct KernelOperator<'a> {
    x: CowRows<'a>,
    plan: Plan,
    precision: Precision,
    device: Device,
    /// The GPU that computes the kernel, where there is one.
    gpu: Option<&'static Gpu>,
    on_gpu: OnceLock<CudaOperator>,
    points: OnceLock<AnyPoints>,
    diagonal: OnceLock<Array1<f64>>,
}

pub(crate) enum AnyPoints {
    F32(Prepared<f32>),
    F64(Prepared<f64>),
}

impl<'a> KernelOperator<'a> {
    /// The kernel matrix of the points `x` `[n, d]`, its entries computed in `precision` on `device`.
    pub fn new(kernel: &Kernel, x: impl Into<Rows<'a>>, precision: Precision, device: Device) -> Result<Self> {
        KernelOperator::on(kernel, CowRows::Borrowed(x.into()), precision, device)
    }

    fn on(kernel: &Kernel, x: CowRows<'a>, precision: Precision, device: Device) -> Result<Self> {
        kernel.check_columns(x.rows().d())?;
        let plan = Plan::new(kernel, x.rows());
        KernelOperator::planned(plan, x, precision, device)
    }

    /// In the context's precision on its device, with points that count from `mean` `[d]` where the kernel allows it.
    pub(crate) fn around(kernel: &Kernel, x: CowRows<'a>, mean: Array1<f64>, context: &FitContext<'_>) -> Result<Self> {
        kernel.check_columns(x.rows().d())?;
        let plan = Plan::around(kernel, x.rows().d(), || Some(mean));
        KernelOperator::planned(plan, x, context.precision, context.device)
    }

    fn planned(plan: Plan, x: CowRows<'a>, precision: Precision, device: Device) -> Result<Self> {
        Ok(KernelOperator {
            gpu: gpu_for(&plan.kernel, device)?,
            plan,
            x,
            precision,
            device,
            on_gpu: OnceLock::new(),
            points: OnceLock::new(),
            diagonal: OnceLock::new(),
        })
    }

    /// The formula.
    pub fn formula(&self) -> &Kernel {
        &self.plan.kernel
    }

    /// The points `[n, d]`.
    pub fn x(&self) -> Rows<'_> {
        self.x.rows()
    }

    /// Whether the matrix of `n` points is stored where `other` bytes are needed beside it.
    pub(crate) fn stores(n: usize, precision: Precision, device: Device, context: &FitContext<'_>, other: u64) -> bool {
        device == Device::Cpu && context.budget.allows(other + 3 * (n as u64).pow(2) * precision.bytes())
    }

    /// Precision of its values.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// The same kernel on the points `rows`.
    pub fn select(&self, rows: &[usize]) -> Result<KernelOperator<'static>> {
        KernelOperator::on(self.formula(), CowRows::Owned(self.x().select(rows)), self.precision, self.device)
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(crate) fn prepared(&self) -> &AnyPoints {
        self.points.get_or_init(|| match self.precision {
            Precision::F32 | Precision::Tf32 => AnyPoints::F32(self.plan.points(self.x())),
            Precision::F64 => AnyPoints::F64(self.plan.points(self.x())),
        })
    }

    /// `κ(X[rows], Z)` `[rows, m]` for other points `Z` `[m, d]`.
    pub(crate) fn block_with(&self, rows: &[usize], z: Rows<'_>) -> Array2<f64> {
        match self.prepared() {
            AnyPoints::F32(x) => self.block_of(x, rows, &self.plan.points(z)),
            AnyPoints::F64(x) => self.block_of(x, rows, &self.plan.points(z)),
        }
    }

    fn block_of<T: Real>(&self, x: &Prepared<T>, rows: &[usize], b: &Prepared<T>) -> Array2<f64> {
        let a = x.select(rows);
        let diagonal = |few: &[usize]| few.iter().map(|&i| self.known_diagonal()[rows[i]]).collect();
        let point_pair = PointPair::new(&self.plan, &a, b, diagonal);
        let mut block = cross_block(&point_pair).mapv(|k| k.wide());
        // The diagonal is f64 in either precision.
        point_pair.duplicates.write(&mut block.view_mut(), 0..a.n, 0..b.n);
        block
    }

    pub(crate) fn known_diagonal(&self) -> &Array1<f64> {
        self.diagonal.get_or_init(|| self.plan.diagonal(self.x()))
    }

    /// The GPU, if the kernel sees images: the host would take as long for a pair of them as for a thousand others.
    fn gpu_for_images(&self) -> Option<&'static Gpu> {
        self.gpu.filter(|_| self.formula().sees_images())
    }

    /// Whether [`Operator::block`] is computed by a GPU.
    pub(crate) fn blocks_on_gpu(&self) -> bool {
        self.gpu_for_images().is_some()
    }

    /// The device that computes its products: the CPU where a GPU was asked for and the kernel cannot be compiled for it.
    pub(crate) fn runs_on(&self) -> Device {
        self.gpu.map_or(Device::Cpu, |gpu| Device::Cuda(gpu.ordinal))
    }

    /// The operator on the GPU; the points are uploaded once.
    fn on_gpu(&self) -> Result<Option<&CudaOperator>> {
        let Some(gpu) = self.gpu else { return Ok(None) };
        if self.on_gpu.get().is_none() {
            // Where two threads come at once, one upload is dropped.
            let _ = self.on_gpu.set(CudaOperator::new(gpu, self.formula(), self.x(), self.precision)?);
        }
        Ok(self.on_gpu.get())
    }
}

impl FitContext<'_> {
    /// `kernel` on the points `x` `[n, d]`, in this context's precision on its device.
    pub fn kernel_operator<'x>(&self, kernel: &Kernel, x: impl Into<Rows<'x>>) -> Result<KernelOperator<'x>> {
        KernelOperator::new(kernel, x, self.precision, self.device)
    }
}

impl Operator for KernelOperator<'_> {
    fn n(&self) -> usize {
        self.x().n()
    }

    fn apply(&self, v: ArrayView2<f64>) -> Result<Array2<f64>> {
        ran(PRODUCTS, self.runs_on(), 1);
        if let Some(gpu) = self.on_gpu()? {
            return gpu.apply(v);
        }
        Ok(match self.prepared() {
            AnyPoints::F32(points) => symmetric_apply(&self.plan, points, self.known_diagonal(), v),
            AnyPoints::F64(points) => symmetric_apply(&self.plan, points, self.known_diagonal(), v),
        })
    }

    fn block(&self, rows: &[usize], columns: &[usize]) -> Result<Array2<f64>> {
        if self.blocks_on_gpu() {
            let [x, z] = [rows, columns].map(|few| self.x().select(few));
            let precision = if self.precision == Precision::F64 { Precision::F64 } else { Precision::F32 };
            return in_precision!(precision, T => {
                let block = gram_cross::<T>(self.formula(), x.rows(), z.rows(), self.device)?;
                Ok(block.mapv(|k| k.wide()))
            });
        }
        ran("blocks of the kernel matrix", Device::Cpu, 1);
        Ok(match self.prepared() {
            AnyPoints::F32(x) => self.block_of(x, rows, &x.select(columns)),
            AnyPoints::F64(x) => self.block_of(x, rows, &x.select(columns)),
        })
    }

    fn diagonal(&self) -> Result<Array1<f64>> {
        if let Some(gpu) = self.gpu_for_images()
            && self.diagonal.get().is_none()
        {
            let _ = self.diagonal.set(image_diagonal(gpu, self.formula(), self.x())?.into());
        }
        Ok(self.known_diagonal().clone())
    }

    fn roundoff(&self) -> f64 {
        self.precision.roundoff(self.device)
    }

    fn apply_panel(&self, v: &Panel) -> Result<Panel> {
        match self.on_gpu()? {
            Some(gpu) if v.device() == gpu.device() => {
                ran(PRODUCTS, gpu.device(), 1);
                gpu.apply_panel(v)
            }
            _ => v.through_host(|v| self.apply(v)),
        }
    }

    fn product(&self, rows: Range<usize>, columns: Range<usize>, v: ArrayView2<f64>) -> Result<Array2<f64>> {
        cross_apply(self.formula(), self.x().slice(rows), self.x().slice(columns), v, self.precision, self.device)
    }

    fn product_panel(&self, rows: &Part<'_>, columns: &Part<'_>, v: &Panel) -> Result<Panel> {
        let n = self.n();
        if rows.is_all(n) && columns.is_all(n) {
            return self.apply_panel(v);
        }
        match self.on_gpu()? {
            Some(gpu) if v.device() == gpu.device() => {
                ran("products with rows of the kernel matrix", gpu.device(), 1);
                gpu.product_panel(rows, columns, v)
            }
            _ => v.through_host(|v| {
                let [a, b] = [rows, columns].map(|part| match part.range(n) {
                    Some(range) => CowRows::Borrowed(self.x().slice(range)),
                    None => CowRows::Owned(self.x().select(&part.list(n))),
                });
                cross_apply(self.formula(), a.rows(), b.rows(), v, self.precision, self.device)
            }),
        }
    }

    fn block_panel(&self, rows: &Part<'_>, columns: &Part<'_>, device: Device) -> Result<Panel> {
        if let Some(gpu) = self.on_gpu()?.filter(|gpu| gpu.device() == device)
            && let Some(block) = gpu.block_panel(rows, columns)?
        {
            ran("blocks of the kernel matrix", device, 1);
            return Ok(block);
        }
        Panel::from_host(device, self.block(&rows.list(self.n()), &columns.list(self.n()))?)
    }

    fn to_dense(&self, progress: &dyn Progress) -> Result<Array2<f64>> {
        gram_reported(self.formula(), self.x(), self.device, progress)
    }

    fn points(&self) -> Option<Rows<'_>> {
        Some(self.x())
    }

    fn kernel(&self) -> Option<&KernelOperator<'_>> {
        Some(self)
    }

    /// On the CPU, where it takes a third of the budget at most: a stored matrix is read faster than it is computed.
    /// A GPU computes K faster than the host's memory would give it.
    fn stored(&self, context: &FitContext<'_>, other: u64) -> Result<Option<Box<dyn Operator>>> {
        if !KernelOperator::stores(self.n(), self.precision, self.device, context, other) {
            return Ok(None);
        }
        Ok(Some(in_precision!(self.precision, T => {
            Box::new(DenseOperator::new(gram_reported::<T>(self.formula(), self.x(), self.device, context.progress)?))
        })))
    }

    fn extend(&self, rows: Option<&[usize]>, a: Array2<f64>) -> Result<Extension> {
        let centres = rows.map_or_else(|| self.x().to_f64().into_owned(), |rows| self.x().select(rows).into_f64());
        let features = KernelFeatures::new(self.formula(), centres, self.precision, self.device);
        Ok(Extension { features: Box::new(features), coefficients: a })
    }

    fn cross(&self, points: Points<'_>, a: ArrayView2<f64>) -> Result<Array2<f64>> {
        cross_apply(self.formula(), points.coordinates()?, self.x(), a, self.precision, self.device)
    }

    fn at<'p>(&'p self, points: Points<'p>) -> Result<Box<dyn Operator + 'p>> {
        Ok(Box::new(KernelOperator::new(self.formula(), points.coordinates()?, self.precision, self.device)?))
    }

    fn describe(&self) -> String {
        self.formula().to_string()
    }
}

/// The GPU that computes `kernel`, where `device` is one and the kernel can be compiled for it.
pub(crate) fn gpu_for(kernel: &Kernel, device: Device) -> Result<Option<&'static Gpu>> {
    match device {
        Device::Cuda(ordinal) if compiles(kernel) => cuda::gpu(ordinal).map(Some),
        _ => Ok(None),
    }
}

/// Strips into which the tiles are sharded. It does not follow the thread count below eight threads, so that the sums,
/// and with them every bit of the result, are the same on one thread and on eight.
pub(crate) fn strips() -> usize {
    rayon::current_num_threads().next_power_of_two().max(8)
}

/// `y += K v` with the product in `T` and the sum in f64.
pub(crate) fn add_product<T: Real>(mut y: ArrayViewMut2<f64>, k: ArrayView2<T>, v: ArrayView2<T>) {
    let mut product = Array2::from_elem(y.dim(), T::default());
    matmul_into(product.view_mut(), Accum::Replace, k, v, T::one_impl(), Par::Seq);
    y.zip_mut_with(&product, |y, p| *y += p.wide());
}

/// `κ(a, b)` `[a.n, b.n]`.
pub(crate) fn cross_block<T: Real>(point_pair: &PointPair<'_, T>) -> Array2<T> {
    cross_rows(point_pair, 0..point_pair.a.n)
}

/// The rows `rows` of `κ(a, b)`, `[h, b.n]`; they begin where tiles do.
pub(crate) fn cross_rows<T: Real>(point_pair: &PointPair<'_, T>, rows: Range<usize>) -> Array2<T> {
    let (n, m) = (rows.len(), point_pair.b.n);
    let mut out = Array2::from_shape_vec((n, m), zeros(n * m)).expect("n·m values");
    for_each_tile(point_pair, rows, out.view_mut(), |workspace, mut out, rows, columns| {
        workspace.strips(point_pair, rows.clone(), columns.clone(), |strip, k| {
            out.slice_mut(s![strip.start - rows.start..strip.end - rows.start, columns.clone()]).assign(&k);
        });
    });
    out
}

/// Calls `work(workspace, out, rows, columns)` for the tiles of the rows `rows` of `κ(a, b)`, with the rows of `out` `[h, ·]` that
/// belong to them; strips of rows are on threads.
fn for_each_tile<T: Real, O: Send>(
    point_pair: &PointPair<'_, T>,
    rows: Range<usize>,
    mut out: ArrayViewMut2<O>,
    work: impl Fn(&mut Workspace<T>, ArrayViewMut2<O>, Range<usize>, Range<usize>) + Sync,
) {
    let side = point_pair.plan.side();
    let columns = ranges(point_pair.b.n, side);
    let strip = |part: Range<usize>| rows.start + part.start..rows.start + part.end;
    let strips: Vec<_> =
        out.axis_chunks_iter_mut(Axis(0), side).zip(ranges(rows.len(), side).into_iter().map(strip)).collect();
    strips.into_par_iter().for_each_init(Workspace::default, |workspace, (mut out, rows)| {
        for columns in &columns {
            work(workspace, out.view_mut(), rows.clone(), columns.clone());
        }
    });
}

/// `κ(X, Z) A` `[n, k]` for new points `X` `[n, d]`, centres `Z` `[m, d]` and coefficients `A` `[m, k]`, without forming `κ(X, Z)`.
/// Example: [`crate::operator::gram`] shows the matrix that it does not form.
pub fn cross_apply<'x, 'z>(
    kernel: &Kernel,
    x: impl Into<Rows<'x>>,
    z: impl Into<Rows<'z>>,
    a: ArrayView2<f64>,
    precision: Precision,
    device: Device,
) -> Result<Array2<f64>> {
    cross_apply_on(kernel, [x.into(), z.into()], a, precision, device)
}

/// Not generic, for the reason that [`crate::operator::typed`] gives.
fn cross_apply_on(
    kernel: &Kernel,
    [x, z]: [Rows<'_>; 2],
    a: ArrayView2<f64>,
    precision: Precision,
    device: Device,
) -> Result<Array2<f64>> {
    let gpu = gpu_for(kernel, device)?;
    ran("products with new points", gpu.map_or(Device::Cpu, |gpu| Device::Cuda(gpu.ordinal)), 1);
    if let Some(gpu) = gpu {
        return crate::operator::cuda::cross_apply(gpu, kernel, x, z, a, precision);
    }
    Ok(in_precision!(precision, T => cross_apply_in::<T>(kernel, x, z, a)))
}

fn cross_apply_in<T: Real>(kernel: &Kernel, x: Rows<'_>, z: Rows<'_>, a: ArrayView2<f64>) -> Array2<f64> {
    let plan = Plan::new(kernel, z);
    let (px, pz) = (plan.points::<T>(x), plan.points::<T>(z));
    let point_pair = PointPair::new(&plan, &px, &pz, |rows| plan.diagonal(x.select(rows).rows()));
    let vectors = Vectors::new(a);
    let mut y = Array2::zeros((x.n(), a.ncols()));
    for_each_tile(&point_pair, 0..point_pair.a.n, y.view_mut(), |workspace, y, rows, columns| {
        Products::new(None, &vectors, columns).tile(workspace, &point_pair, rows, y);
    });
    y
}
