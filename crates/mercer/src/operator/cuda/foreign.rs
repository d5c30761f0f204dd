//! Kernels of points that another library holds in the memory of a GPU. They are read where they lie: what the host needs of them
//! (the mean, the largest norms, a key for each point) is computed there, and so are shifts and lifts.

use super::super::points::Plan;
use super::super::twins::Names;
use super::super::{Operator, Precision};
use super::device::{CudaKernel, DevicePoints};
use super::launch::{Card, Launch, padded};
use super::program::{Kind, Program, define};
use super::{ADVICE, compiles};
use crate::compute::Device;
use crate::compute::cuda::{Arg, Buffer, Gpu, Source, gpu};
use crate::data::{Matrix, Rows};
use crate::kernel::{Base, Expression, Kernel};
use crate::linalg::Panel;
use crate::{Error, Progress, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView2};
use std::sync::OnceLock;

const FOREIGN: &str = include_str!("foreign.cu");

/// The source for points of f64 if `double`, else of f32.
fn text(double: bool) -> String {
    let mut text = String::new();
    define(&mut text, "SOURCE", if double { "double" } else { "float" });
    text + FOREIGN
}

/// Both sources, as `(unique name, text)`.
pub(super) fn sources() -> Vec<(String, String)> {
    vec![("foreign-f32".into(), text(false)), ("foreign-f64".into(), text(true))]
}

fn source(double: bool) -> &'static Source {
    static SOURCES: [OnceLock<Source>; 2] = [OnceLock::new(), OnceLock::new()];
    SOURCES[usize::from(double)].get_or_init(|| Source::new(text(double)))
}

/// Numbers `[n, d]` that another library holds in the memory of a GPU.
#[derive(Clone, Copy, Debug)]
pub struct ForeignArray {
    gpu: &'static Gpu,
    address: u64,
    double: bool,
    shape: [usize; 2],
    strides: [isize; 2],
}

impl ForeignArray {
    /// Numbers on the device `ordinal`, f64 if `double`, else f32, the first of them at `address`; `strides` count numbers.
    ///
    /// # Safety
    /// The memory holds these numbers, and nothing writes to it, until the last function that gets the value has returned. Work
    /// that writes them was queued before and is done, or the stream of [`Gpu::stream_handle`] waits for it.
    pub unsafe fn new(
        ordinal: usize,
        address: u64,
        double: bool,
        shape: [usize; 2],
        strides: [isize; 2],
    ) -> Result<ForeignArray> {
        let gpu = gpu(ordinal)?;
        for extent in shape {
            fail_if!(
                i32::try_from(extent).is_err(),
                "an array on a GPU may have 2³¹ rows or columns at most, not {extent}"
            );
        }
        Ok(ForeignArray { gpu, address, double, shape, strides })
    }

    /// The device that holds it.
    pub fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    /// Where its first number is.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Rows and columns.
    pub fn shape(&self) -> [usize; 2] {
        self.shape
    }

    /// Whether its numbers are f64.
    pub fn is_double(&self) -> bool {
        self.double
    }

    fn bytes(&self) -> usize {
        if self.double { 8 } else { 4 }
    }

    /// Queues a function of `foreign.cu`, whose first arguments are the numbers and their strides.
    fn launch(&self, launch: Launch, rest: &[Arg]) {
        let strides = self.strides.map(|stride| Arg::U64(stride as u64));
        let arguments = [&[Arg::U64(self.address)][..], &strides, rest].concat();
        // SAFETY: the callers, all in this file, pass the arguments that the function names, with memory of the array's extents.
        unsafe { launch.run(self.gpu, source(self.double), &arguments) };
    }

    fn per_row(&self, name: &'static str) -> Launch {
        Launch::elementwise(name, 32 * self.shape[0])
    }

    /// The numbers of these rows, or of all, row by row.
    fn gathered(&self, rows: Option<&[usize]>) -> Result<Buffer> {
        let [all, d] = self.shape;
        let n = rows.map_or(all, <[usize]>::len);
        let what = || format!("a copy of {n} rows of {d} numbers");
        let indices = rows.map(|rows| upload_rows(self.gpu, rows)).transpose()?;
        let out = self.gpu.allocate(n * d * self.bytes(), &what, ADVICE)?;
        let indices = Arg::U64(indices.as_ref().map_or(0, Buffer::pointer));
        let [n_arg, d_arg] = [n, d].map(Arg::size);
        self.launch(Launch::elementwise("gather", n * d), &[indices, Arg::from(&out), n_arg, d_arg]);
        Ok(out)
    }

    /// A copy of these rows, or of all, on the host.
    pub fn to_host(&self, rows: Option<&[usize]>) -> Result<Matrix> {
        let shape = (rows.map_or(self.shape[0], <[usize]>::len), self.shape[1]);
        let copy = self.gathered(rows)?;
        if self.double {
            let mut x = Array2::<f64>::zeros(shape);
            copy.read(0, x.as_slice_mut().expect("row by row"))?;
            return Ok(Matrix::F64(x));
        }
        let mut x = Array2::<f32>::zeros(shape);
        copy.read(0, x.as_slice_mut().expect("row by row"))?;
        Ok(Matrix::F32(x))
    }

    /// The kernel of an expression for these points. Of their numbers it copies those of a sample of rows to the host, and only
    /// where a lengthscale is their median distance.
    pub fn resolve(&self, expression: &str, seed: u64) -> Result<Kernel> {
        self.require_points()?;
        let parsed = Expression::parse(expression)?;
        if expression.contains("median") {
            let rows = Expression::rows(self.shape[0], seed);
            return parsed.resolve(self.to_host(Some(&rows))?.rows(), seed);
        }
        parsed.resolve(Rows::from(&Array2::<f64>::zeros((1, self.shape[1]))), seed)
    }

    fn require_points(&self) -> Result<()> {
        let [n, d] = self.shape;
        fail_if!(n == 0 || d == 0, "the data is empty: {n} rows of {d} columns");
        Ok(())
    }

    /// The mean of each column, `[1, d]`.
    fn mean(&self) -> Result<Array2<f64>> {
        let [n, d] = self.shape;
        let mut mean = Array2::zeros((1, d));
        let out = self.gpu.allocate(8 * d, &|| format!("the means of {d} columns"), ADVICE)?;
        let launch = Launch { grid: [d as u32, 1], ..Launch::elementwise("column_means", 0) };
        self.launch(launch, &[Arg::size(n), Arg::from(&out)]);
        out.read(0, mean.as_slice_mut().expect("one row"))?;
        Ok(mean)
    }

    /// A key of each point: equal points have equal keys. Fails where a number is not finite.
    fn keys(&self) -> Result<Vec<u128>> {
        self.require_points()?;
        let [n, d] = self.shape;
        let keys = self.gpu.allocate(16 * n, &|| format!("the keys of {n} points"), ADVICE)?;
        let bad = self.gpu.upload(&[u64::MAX], &|| "a status".into(), ADVICE)?;
        let [n_arg, d_arg] = [n, d].map(Arg::size);
        self.launch(self.per_row("survey"), &[n_arg, d_arg, Arg::from(&keys), Arg::from(&bad)]);
        let (mut parts, mut at) = (vec![0u64; 2 * n], [0u64]);
        keys.read(0, &mut parts)?;
        bad.read(0, &mut at)?;
        if let Ok(at) = usize::try_from(at[0])
            && at < n * d
        {
            let value = self.to_host(Some(&[at / d]))?.rows().to_f64()[[0, at % d]];
            let (row, column) = (at / d + 1, at % d + 1);
            return Err(Error::input(format!(
                "the data must be finite: row {row}, column {column} (counted from 1) is {value}"
            )));
        }
        Ok(parts.chunks(2).map(|two| u128::from(two[0]) << 64 | u128::from(two[1])).collect())
    }
}

/// Row numbers in the memory of a GPU.
fn upload_rows(gpu: &'static Gpu, rows: &[usize]) -> Result<Buffer> {
    let rows: Vec<i32> = rows.iter().map(|&row| i32::try_from(row).expect("fewer than 2³¹ rows")).collect();
    gpu.upload(&rows, &|| format!("{} row numbers", rows.len()), ADVICE)
}

/// How the GPU makes a view of the points; see `pack_view` in `foreign.cu`.
#[derive(Debug, PartialEq)]
struct Lift {
    shift: Option<Vec<f64>>,
    scale: Option<Vec<f64>>,
    kind: i32,
    parameter: f64,
}

const AS_THEY_ARE: i32 = 0;
const OVER_NORM: i32 = 1;
const PERIODIC: i32 = 2;

impl Lift {
    /// Of a plan's view of points of width `d`; none where the host alone can make it.
    fn of(plan: &Plan, view: usize, d: usize) -> Option<Lift> {
        let (shift, base) = plan.steps_to(view);
        let scale = base.and_then(Base::columns).map(<[f64]>::to_vec);
        let roots = |base: &Base| base.network().map(|(network, _)| vec![(network.inputs(d) as f64).sqrt(); d]);
        let (kind, parameter, scale) = match base {
            None => (AS_THEY_ARE, 0.0, None),
            Some(Base::Custom(_)) => return None,
            Some(Base::Cosine(_)) => (OVER_NORM, 1.0, scale),
            Some(Base::ArcCosine(formula)) => (OVER_NORM, if formula.order == 0.0 { 1.0 } else { 0.5 }, scale),
            Some(Base::Periodic(formula)) => (PERIODIC, formula.period, scale),
            Some(base) => (AS_THEY_ARE, 0.0, Some(scale.or_else(|| roots(base))?)),
        };
        Some(Lift { shift: shift.map(|shift| shift.to_vec()), scale, kind, parameter })
    }

    /// Queues `pack_view` into the columns from `first` on of the raw points `out` `[n, width]`, or into nothing; returns where the
    /// largest squared norm will be.
    fn queue(&self, x: &ForeignArray, out: Option<(&Buffer, &Program, usize)>) -> Result<Buffer> {
        let what = || "what is subtracted from the points".to_string();
        let uploaded = |values: &Option<Vec<f64>>| values.as_ref().map(|v| x.gpu.upload(v, &what, ADVICE)).transpose();
        let (shift, scale) = (uploaded(&self.shift)?, uploaded(&self.scale)?);
        let largest = x.gpu.upload(&[0u64], &what, ADVICE)?;
        let pointer = |buffer: Option<&Buffer>| Arg::U64(buffer.map_or(0, Buffer::pointer));
        let [width, first, low] = out.map_or([0; 3], |(_, program, view)| {
            [program.source_width(), program.views[view].source_first, program.low_first()]
        });
        let [n, d] = x.shape.map(Arg::size);
        let of_lift =
            [n, d, pointer(shift.as_ref()), pointer(scale.as_ref()), Arg::I32(self.kind), Arg::F64(self.parameter)];
        let of_out = [pointer(out.map(|(out, ..)| out)), Arg::size(width), Arg::size(first), Arg::size(low)];
        x.launch(x.per_row("pack_view"), &[&of_lift[..], &of_out, &[Arg::from(&largest)]].concat());
        Ok(largest)
    }
}

/// The largest squared norm of the points in each view.
fn largest(lifts: &[Lift], x: &ForeignArray) -> Result<Vec<f64>> {
    let of_view = |lift: &Lift| {
        let mut bits = [0u64];
        lift.queue(x, None)?.read(0, &mut bits)?;
        Ok(f64::from_bits(bits[0]))
    };
    lifts.iter().map(of_view).collect()
}

/// A kernel compiled for points on a GPU, and those points in the layout of its tiles.
struct Ready {
    kernel: CudaKernel,
    points: Vec<DevicePoints>,
}

impl Ready {
    /// For the points `x` and `others` `[·, d]`, where there are two sets; they share the mean of `x`. None where the host alone
    /// can prepare points for the kernel.
    fn new(
        kernel: &Kernel,
        x: &ForeignArray,
        others: Option<&ForeignArray>,
        precision: Precision,
    ) -> Result<Option<Ready>> {
        let d = x.shape[1];
        kernel.check_columns(d)?;
        if kernel.sees_images() || !compiles(kernel) {
            return Ok(None);
        }
        let keys = x.keys()?;
        let of_others = others.map(ForeignArray::keys).transpose()?;
        // The mean of one row is the row.
        let plan = Plan::new(kernel, Rows::from(&x.mean()?));
        let Some(lifts) = (0..plan.views()).map(|view| Lift::of(&plan, view, d)).collect::<Option<Vec<Lift>>>() else {
            return Ok(None);
        };
        let norms = largest(&lifts, x)?;
        let norms_of_others = others.map(|others| largest(&lifts, others)).transpose()?;
        let names = match &of_others {
            None => Names::repeated(&keys),
            Some(of_others) => Names::shared(of_others, &keys),
        };
        let norms = [&norms, norms_of_others.as_ref().unwrap_or(&norms)];
        let program = Program::of_facts(plan, d, norms, names, precision.into(), Card::of(x.gpu));
        let kernel = CudaKernel::of_program(x.gpu, program);
        let mut points = vec![prepared(&kernel, &lifts, x, &keys)?];
        if let (Some(others), Some(keys)) = (others, &of_others) {
            points.push(prepared(&kernel, &lifts, others, keys)?);
        }
        Ok(Some(Ready { kernel, points }))
    }
}

/// Points in the layout of the tiles.
fn prepared(kernel: &CudaKernel, lifts: &[Lift], x: &ForeignArray, keys: &[u128]) -> Result<DevicePoints> {
    let n = x.shape[0];
    let raw = kernel.allocate_raw(n)?;
    for (view, lift) in lifts.iter().enumerate() {
        lift.queue(x, Some((&raw, &kernel.program, view)))?;
    }
    if kernel.program.has_twins() {
        let names: Vec<f64> = keys.iter().map(|key| kernel.program.name(*key)).collect();
        let names = x.gpu.upload(&names, &|| format!("the names of {n} points"), ADVICE)?;
        let arguments = [&names, &raw].map(Arg::from);
        let sizes = [n, kernel.program.source_width()].map(Arg::size);
        // SAFETY: `names` has n numbers and `raw` n rows.
        unsafe {
            let launch = Launch::elementwise("put_names", n);
            launch.run(x.gpu, source(true), &[&arguments[..], &sizes].concat());
        }
    }
    let points = kernel.allocate_points(n)?;
    kernel.prepare_points(true, raw.pointer(), 0, &points);
    Ok(points)
}

/// `κ(X, Z)` `[n, m]`, or `κ(X, X)` without a `z`, in the memory of the GPU that holds the points: f64 for [`Precision::F64`], else
/// f32. The work is done when it returns. None where the host alone can prepare points for the kernel.
pub fn device_gram(
    kernel: &Kernel,
    x: &ForeignArray,
    z: Option<&ForeignArray>,
    precision: Precision,
) -> Result<Option<Buffer>> {
    let columns = z.unwrap_or(x);
    if z.is_some_and(|z| z.gpu.ordinal != x.gpu.ordinal) {
        let (x, z) = (x.gpu.ordinal, columns.gpu.ordinal);
        return Err(Error::input(format!("X is on cuda:{x} and Y on cuda:{z}; both must be on one device")));
    }
    let [(n, d), (m, columns_of_z)] = [x, columns].map(|side| (side.shape[0], side.shape[1]));
    fail_if!(d != columns_of_z, "X has {d} columns and Y has {columns_of_z}; they must have the same");
    let Some(ready) = Ready::new(kernel, columns, z.map(|_| x), precision)? else {
        return Ok(None);
    };
    let out = x.gpu.allocate(
        n * m * precision.bytes() as usize,
        &|| format!("a {n} × {m} kernel matrix"),
        "use mercer.operator, which stores no matrix",
    )?;
    let sides = [ready.points.last().expect("points"), &ready.points[0]];
    ready.kernel.gram(Kind::Gram, sides, z.is_none().then_some(0), out.pointer(), m);
    x.gpu.synchronize()?;
    Ok(Some(out))
}

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
    pub fn new(kernel: &Kernel, x: &ForeignArray, precision: Precision) -> Result<Option<DeviceOperator>> {
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
    pub fn multiply(&self, v: &ForeignArray) -> Result<Buffer> {
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
        self.kernel.product_in(v.double, [&self.points; 2], Some(0), from, b, y.pointer())?;
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
        let (gpu, n) = (self.gpu(), rows.len());
        let indices = upload_rows(gpu, rows)?;
        let selected = self.kernel.allocate_points(n)?;
        let program = &self.kernel.program;
        let words = |numbers: usize| numbers * self.bytes() / 4;
        let parts = program.stored_width() / program.width().max(1);
        let copies = [
            (&self.points.x, &selected.x, parts, words(program.width())),
            (&self.points.xx, &selected.xx, program.norms(), words(1)),
        ];
        for (from, to, parts, words) in copies {
            let [from, to, indices] = [from, to, &indices].map(Arg::from);
            let sizes = [n, padded(self.points.n), padded(n), words].map(Arg::size);
            let elementwise = Launch::elementwise("select_rows", padded(n) * words);
            let launch = Launch { grid: [elementwise.grid[0], parts as u32], ..elementwise };
            // SAFETY: both sets of points have `parts` parts of as many rows of `words` words as their padded numbers.
            unsafe { launch.run(gpu, source(true), &[&[from, to, indices][..], &sizes].concat()) };
        }
        Ok(selected)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::catalogue;
    use crate::rng::Rng;

    /// What `pack_view` makes of a point, by its definition; `.ci/emulate_foreign.py` compares the kernel with the same.
    fn lifted(lift: &Lift, x: &[f64]) -> Vec<f64> {
        let at = |values: &Option<Vec<f64>>, j: usize, none: f64| values.as_ref().map_or(none, |values| values[j]);
        let t = |j: usize| (x[j] - at(&lift.shift, j, 0.0)) / at(&lift.scale, j, 1.0);
        let t: Vec<f64> = (0..x.len()).map(t).collect();
        let turns = |t: f64| std::f64::consts::TAU * t / lift.parameter;
        match lift.kind {
            OVER_NORM => {
                let norm = t.iter().map(|v| v * v).sum::<f64>().sqrt();
                t.iter().map(|v| v / norm.powf(lift.parameter)).collect()
            }
            PERIODIC => t.iter().map(|t| turns(*t).cos()).chain(t.iter().map(|t| turns(*t).sin())).collect(),
            _ => t,
        }
    }

    #[test]
    fn every_view_of_points_is_made_as_the_host_makes_it() {
        let mut rng = Rng::new(2);
        let x = Array2::from_shape_simple_fn((7, 3), || rng.normal() + 2.0);
        let names = catalogue().into_iter().map(|entry| entry.name.to_string());
        let more = [
            "rbf([1, 2, 3])",
            "arccos(0)",
            "periodic(0.7, 2)",
            "nngp(depth=2)",
            "rbf(2)*linear + laplacian([3, 1, 2])",
        ];
        for expression in names.chain(more.map(String::from)) {
            let plan = Plan::new(&Kernel::parse(&expression).unwrap(), Rows::from(&x));
            let points = plan.points::<f64>(Rows::from(&x));
            for (view, seen) in points.views.iter().enumerate() {
                let lift = Lift::of(&plan, view, 3).unwrap_or_else(|| panic!("{expression} has no lift on a GPU"));
                for (row, want) in x.rows().into_iter().zip(seen.x.rows()) {
                    let got = lifted(&lift, row.as_slice().unwrap());
                    assert_eq!(got.len(), want.len(), "{expression}");
                    assert!(got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-14), "{expression}: {got:?}, {want}");
                }
            }
        }
    }
}
