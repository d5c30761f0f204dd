//! Functions sampled at points, in memory or in a file, and new points as operators and feature maps take them.

use crate::data::{MappedArray, Rows};
use crate::{Error, Result, fail_if};
use ndarray::{Array2, Array3, ArrayBase, ArrayView2, ArrayView3, Axis, Ix3, ViewRepr};
use std::sync::Arc;

/// `F` `[S, n, C]`: S functions with C outputs at n points. `examples/sampled_kernel.rs` uses it.
#[derive(Clone)]
pub enum FunctionSamples<'a> {
    /// In memory.
    Held(ArrayBase<ViewRepr<&'a f64>, Ix3, f64>),
    /// In a file, which stays there.
    Mapped(Arc<MappedArray>),
}

impl<'a> From<ArrayView3<'a, f64>> for FunctionSamples<'a> {
    fn from(f: ArrayView3<'a, f64>) -> Self {
        FunctionSamples::Held(f)
    }
}

impl<'a> FunctionSamples<'a> {
    /// The samples in an array `[S, n]` or `[S, n, C]`, its rows flattened as a reader gives them, at `n` points.
    pub fn from_rows(rows: ArrayView2<'a, f64>, n: usize) -> Result<Self> {
        let (count, columns) = rows.dim();
        fail_if!(
            n == 0 || columns % n != 0 || columns == 0,
            "samples with {columns} values each do not fit {n} points: they must be [S, {n}] or [S, {n}, C]"
        );
        rows.insert_axis(Axis(2))
            .into_shape_with_order((count, n, columns / n))
            .map(FunctionSamples::Held)
            .map_err(|_| Error::input("the samples must lie row by row"))
    }

    /// The samples in a file of shape `[S, n]` or `[S, n, C]`.
    pub fn in_file(file: impl Into<Arc<MappedArray>>) -> Result<Self> {
        let file = file.into();
        match file.dims() {
            [_, _] | [_, _, _] => Ok(FunctionSamples::Mapped(file)),
            other => Err(Error::file(
                file.path(),
                format!("has the shape {other:?}; samples of functions are [S, n] or [S, n, C]"),
            )),
        }
    }

    /// The samples `[S, m, C]` at some of the points, in memory.
    pub fn select(&self, points: &[usize]) -> Array3<f64> {
        match self {
            FunctionSamples::Held(f) => f.select(Axis(1), points),
            FunctionSamples::Mapped(file) => {
                let (samples, n, outputs) = self.dim();
                let mut out = Array3::zeros((samples, points.len(), outputs));
                for (s, mut of_sample) in out.outer_iter_mut().enumerate() {
                    for (&point, mut row) in points.iter().zip(of_sample.rows_mut()) {
                        file.read((s * n + point) * outputs, row.as_slice_mut().expect("row by row"));
                    }
                }
                out
            }
        }
    }

    /// `(S, n, C)`
    pub fn dim(&self) -> (usize, usize, usize) {
        match self {
            FunctionSamples::Held(f) => f.dim(),
            FunctionSamples::Mapped(file) => match *file.dims() {
                [s, n] => (s, n, 1),
                [s, n, c] => (s, n, c),
                _ => unreachable!("checked when it was opened"),
            },
        }
    }
}

/// How `F` is laid out as rows: `[S, n·C]`, or `[S·C, n]` with each output a function of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub samples: usize,
    pub points: usize,
    pub outputs: usize,
    /// Whether each output is a function of its own.
    pub by_output: bool,
}

impl Layout {
    /// Rows and columns.
    pub fn dim(&self) -> (usize, usize) {
        let Layout { samples, points, outputs, by_output } = *self;
        if by_output { (samples * outputs, points) } else { (samples, points * outputs) }
    }

    /// Samples `[S, n, C]` as rows.
    pub fn arranged(&self, f: ArrayView3<f64>) -> Array2<f64> {
        let (samples, points, outputs) = f.dim();
        let shape = Layout { samples, points, outputs, ..*self }.dim();
        let f = if self.by_output { f.permuted_axes([0, 2, 1]) } else { f };
        f.to_shape(shape).expect("the same elements").to_owned()
    }

    /// The rows of some samples at `points` points; `read(sample, into)` gives the numbers of one, `[C]` at each point.
    pub fn rows(&self, samples: usize, points: usize, read: impl Fn(usize, &mut [f64])) -> Array2<f64> {
        let flat = points * self.outputs;
        let mut rows = vec![0.0; samples * flat];
        rows.chunks_exact_mut(flat.max(1)).enumerate().for_each(|(s, row)| read(s, row));
        if !self.by_output {
            return Array2::from_shape_vec((samples, flat), rows).expect("as many");
        }
        self.arranged(ArrayView3::from_shape((samples, points, self.outputs), &rows).expect("as many"))
    }
}

/// New points: their coordinates, or the operator's functions sampled there.
///
/// ```
/// use mercer::operator::Points;
/// let x = ndarray::array![[0.0, 1.0]];
/// assert_eq!(Points::from(x.view()).coordinates()?.dim(), (1, 2));
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Copy)]
pub enum Points<'a> {
    /// `[n, d]`; for an operator without a formula, kernel values `[n, m]` with the m values of the sample.
    Coordinates(Rows<'a>),
    /// The same functions that were fitted, sampled at the new points.
    Samples(&'a FunctionSamples<'a>),
    /// Both: coordinates `[n, d]`, and the functions sampled there.
    Both(Rows<'a>, &'a FunctionSamples<'a>),
}

impl<'a> Points<'a> {
    /// How many points.
    pub fn count(&self) -> usize {
        match self {
            Points::Coordinates(x) | Points::Both(x, _) => x.n(),
            Points::Samples(f) => f.dim().1,
        }
    }

    /// The coordinates, for functions of coordinates.
    pub fn coordinates(self) -> Result<Rows<'a>> {
        match self {
            Points::Coordinates(x) | Points::Both(x, _) => Ok(x),
            Points::Samples(_) => Err(Error::input(
                "these are functions of coordinates: give the coordinates of the new points, not samples of functions",
            )),
        }
    }

    /// The samples, for functions that are combinations of sampled functions.
    pub fn samples(self) -> Result<&'a FunctionSamples<'a>> {
        match self {
            Points::Samples(f) | Points::Both(_, f) => Ok(f),
            Points::Coordinates(_) => Err(Error::input(
                "the model combines sampled functions and holds no networks: give the same functions sampled at the new points, \
                 or fit networks, which are functions of coordinates",
            )),
        }
    }
}

impl<'a> From<Rows<'a>> for Points<'a> {
    fn from(x: Rows<'a>) -> Self {
        Points::Coordinates(x)
    }
}

impl<'a> From<ArrayView2<'a, f64>> for Points<'a> {
    fn from(x: ArrayView2<'a, f64>) -> Self {
        Points::Coordinates(x.into())
    }
}

impl<'a> From<&'a FunctionSamples<'a>> for Points<'a> {
    fn from(f: &'a FunctionSamples<'a>) -> Self {
        Points::Samples(f)
    }
}
