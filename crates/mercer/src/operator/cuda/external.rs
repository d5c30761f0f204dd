//! Numbers that another library holds in the memory of a GPU. They are read where they lie: what the host needs of points
//! (the mean, a key for each) is computed there.

use super::ADVICE;
use super::launch::Launch;
use super::program::define;
use crate::compute::cuda::{Arg, Buffer, Gpu, Source, gpu};
use crate::data::{Matrix, Rows};
use crate::kernel::{Expression, Kernel};
use crate::{Error, Result, fail_if};
use ndarray::Array2;
use std::sync::OnceLock;

const EXTERNAL: &str = include_str!("external.cu");

/// The source for points of f64 if `double`, else of f32.
fn text(double: bool) -> String {
    let mut text = String::new();
    define(&mut text, "SOURCE", if double { "double" } else { "float" });
    text + EXTERNAL
}

/// Both sources, as `(unique name, text)`.
pub(super) fn sources() -> Vec<(String, String)> {
    vec![("external-f32".into(), text(false)), ("external-f64".into(), text(true))]
}

pub(super) fn source(double: bool) -> &'static Source {
    static SOURCES: [OnceLock<Source>; 2] = [OnceLock::new(), OnceLock::new()];
    SOURCES[usize::from(double)].get_or_init(|| Source::new(text(double)))
}

/// Numbers `[n, d]` that another library holds in the memory of a GPU.
#[derive(Clone, Copy, Debug)]
pub struct ExternalArray {
    pub(super) gpu: &'static Gpu,
    pub(super) address: u64,
    pub(super) double: bool,
    pub(super) shape: [usize; 2],
    pub(super) strides: [isize; 2],
}

impl ExternalArray {
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
    ) -> Result<ExternalArray> {
        let gpu = gpu(ordinal)?;
        for extent in shape {
            fail_if!(
                i32::try_from(extent).is_err(),
                "an array on a GPU may have 2³¹ rows or columns at most, not {extent}"
            );
        }
        Ok(ExternalArray { gpu, address, double, shape, strides })
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

    pub(super) fn bytes(&self) -> usize {
        if self.double { 8 } else { 4 }
    }

    /// Queues a function of `external.cu`, whose first arguments are the numbers and their strides.
    pub(super) fn launch(&self, launch: Launch, rest: &[Arg]) {
        let strides = self.strides.map(|stride| Arg::U64(stride as u64));
        let arguments = [&[Arg::U64(self.address)][..], &strides, rest].concat();
        // SAFETY: the callers, in this file and in `external_points.rs`, pass the arguments that the function names, with memory of the array's extents.
        unsafe { launch.run(self.gpu, source(self.double), &arguments) };
    }

    pub(super) fn per_row(&self, name: &'static str) -> Launch {
        Launch::elementwise(name, 32 * self.shape[0])
    }

    /// The numbers of these rows, or of all, row by row.
    pub(super) fn gathered(&self, rows: Option<&[usize]>) -> Result<Buffer> {
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
    pub(super) fn mean(&self) -> Result<Array2<f64>> {
        let [n, d] = self.shape;
        let mut mean = Array2::zeros((1, d));
        let out = self.gpu.allocate(8 * d, &|| format!("the means of {d} columns"), ADVICE)?;
        let launch = Launch { grid: [d as u32, 1], ..Launch::elementwise("column_means", 0) };
        self.launch(launch, &[Arg::size(n), Arg::from(&out)]);
        out.read(0, mean.as_slice_mut().expect("one row"))?;
        Ok(mean)
    }

    /// A key of each point: equal points have equal keys. Fails where a number is not finite.
    pub(super) fn keys(&self) -> Result<Vec<u128>> {
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
pub(super) fn upload_rows(gpu: &'static Gpu, rows: &[usize]) -> Result<Buffer> {
    let rows: Vec<i32> = rows.iter().map(|&row| i32::try_from(row).expect("fewer than 2³¹ rows")).collect();
    gpu.upload(&rows, &|| format!("{} row numbers", rows.len()), ADVICE)
}
