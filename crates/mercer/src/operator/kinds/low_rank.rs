//! Operators of low rank `K = FᵀF/S`, from samples of functions.

use crate::data::MappedArray;
use crate::linalg::matmul;
use crate::operator::function_samples::{FunctionSamples, Layout};
use crate::operator::{Budget, Extension, Operator, Points, SampleFeatures};
use crate::{Error, FitContext, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView2, Axis, CowArray, s};
use std::ops::Range;
use std::sync::Arc;

/// `K = FᵀF/S` from samples of functions, never formed: `F` `[S, n]` holds S functions at n points, in memory or in a file
/// larger than memory, which products with K read strip by strip. Sums are taken in f64.
///
/// ```
/// use mercer::operator::{LowRankOperator, Operator};
/// let f = ndarray::array![[2.0, 2.0, 0.0], [0.0, 2.0, 4.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]];
/// let k = LowRankOperator::new(f)?;
/// assert_eq!(k.block(&[0, 1], &[1, 2])?, ndarray::array![[1.0, 0.0], [2.0, 2.0]]);
/// # Ok::<(), mercer::Error>(())
/// ```
pub struct LowRankOperator {
    factor: Factor,
    layout: Layout,
    /// The columns of F that are used, where not all of them are.
    kept: Option<Vec<usize>>,
    diagonal: Array1<f64>,
    /// What it may hold in memory at once.
    budget: Budget,
}

/// `F/√S` `[rows, n]`, by its parts.
enum Factor {
    Held(Array2<f64>),
    Mapped { file: Arc<MappedArray>, scale: f64 },
}

/// Most numbers of a strip of a file that are in memory at once: 64 MiB.
const STRIP: usize = 1 << 23;

/// Bytes for each number of a strip: as it is read, and by output.
const PER_NUMBER: u64 = 2 * 8;

impl FitContext<'_> {
    /// The operator of function samples, as [`LowRankOperator::of_samples`], within the context's memory budget.
    pub fn sample_operator(&self, f: &FunctionSamples, by_output: bool) -> Result<LowRankOperator> {
        LowRankOperator::within(f, by_output, self.budget)
    }
}

impl LowRankOperator {
    /// From function samples `[S, n]`.
    pub fn new(f: Array2<f64>) -> Result<Self> {
        let layout = Layout { samples: f.nrows(), points: f.ncols(), outputs: 1, by_output: false };
        LowRankOperator::held(f, layout, Budget::of_free_memory())
    }

    /// From function samples laid out as rows.
    fn held(f: Array2<f64>, layout: Layout, budget: Budget) -> Result<Self> {
        fail_if!(f.is_empty(), "function samples must not be empty, got {} × {}", f.nrows(), f.ncols());
        if let Some(((row, column), value)) = f.indexed_iter().find(|(_, v)| !v.is_finite()) {
            return Err(Error::input(not_finite(layout, row, column, *value)));
        }
        let scale = 1.0 / (f.nrows() as f64).sqrt();
        let f = f * scale;
        let diagonal = f.map_axis(Axis(0), |column| column.dot(&column));
        Ok(LowRankOperator { factor: Factor::Held(f), layout, kept: None, diagonal, budget })
    }

    /// From samples `F` `[S, n, C]`, the operator on `n·C` values (the outputs of a point side by side), or, `by_output`, the
    /// operator `(1/CS) Σ_c F_cᵀF_c` on n.
    pub fn of_samples(f: &FunctionSamples, by_output: bool) -> Result<Self> {
        LowRankOperator::within(f, by_output, Budget::of_free_memory())
    }

    /// The same within `budget`: samples in memory are copied once, those of a file are read in strips, of one function at least.
    fn within(f: &FunctionSamples, by_output: bool, budget: Budget) -> Result<Self> {
        let (samples, points, outputs) = f.dim();
        let layout = Layout { samples, points, outputs, by_output };
        let one = (points as u64).saturating_mul(outputs as u64);
        let advice = "use fewer functions or points";
        match f {
            FunctionSamples::Held(f) => {
                let bytes = (2 * 8 * one).saturating_mul(samples as u64);
                budget.require(format!("{samples} functions at {points} points"), bytes, advice)?;
                LowRankOperator::held(layout.arranged(*f), layout, budget)
            }
            FunctionSamples::Mapped(file) => {
                // Beside a strip there are the diagonal and a column of a product.
                let bytes = (PER_NUMBER + 2 * 8).saturating_mul(one);
                budget.require(format!("one of {samples} functions at {points} points"), bytes, advice)?;
                LowRankOperator::mapped(file.clone(), layout, budget)
            }
        }
    }

    /// Numbers of a strip: half of what the budget has room for, within bounds.
    fn strip(&self) -> usize {
        usize::try_from(self.budget.bytes() / (2 * PER_NUMBER)).unwrap_or(STRIP).min(STRIP)
    }

    fn mapped(file: Arc<MappedArray>, layout: Layout, budget: Budget) -> Result<Self> {
        let scale = 1.0 / (layout.dim().0 as f64).sqrt();
        let factor = Factor::Mapped { file: file.clone(), scale };
        let mut diagonal = Array1::<f64>::zeros(layout.dim().1);
        let operator = LowRankOperator { factor, layout, kept: None, diagonal: Array1::zeros(0), budget };
        let mut bad = None;
        operator.for_each_strip(|start, f| {
            for (s, row) in f.rows().into_iter().enumerate() {
                diagonal.zip_mut_with(&row, |d, v| *d += v * v);
                if bad.is_none() && !row.iter().sum::<f64>().is_finite() {
                    bad = row.iter().position(|v| !v.is_finite()).map(|n| (start + s, n, row[n]));
                }
            }
        });
        if let Some((row, column, value)) = bad {
            return Err(Error::file(file.path(), not_finite(layout, row, column, value)));
        }
        Ok(LowRankOperator { diagonal, ..operator })
    }

    /// The operator on some of the points only; a file stays where it is.
    pub fn at_points(self, points: &[usize]) -> Self {
        let c = self.outputs();
        let columns: Vec<usize> = points.iter().flat_map(|point| point * c..(point + 1) * c).collect();
        let diagonal = self.diagonal.select(Axis(0), &columns);
        let (factor, kept) = match self.factor {
            Factor::Held(f) => (Factor::Held(f.select(Axis(1), &columns)), None),
            mapped => (mapped, Some(columns)),
        };
        LowRankOperator { factor, kept, diagonal, ..self }
    }

    /// Functions and points: the shape of `F`.
    pub fn dim(&self) -> (usize, usize) {
        (self.layout.dim().0, self.diagonal.len())
    }

    /// Columns of `F/√S` `[S, columns]`.
    pub fn columns(&self, columns: &[usize]) -> Array2<f64> {
        match &self.factor {
            Factor::Held(f) => f.select(Axis(1), columns),
            Factor::Mapped { file, scale } => {
                let layout = &self.layout;
                let (s, c, by_output) = (layout.samples, layout.outputs, layout.by_output);
                let place = |s: usize, column: usize| s * layout.points * c + column * if by_output { c } else { 1 };
                let one = Layout { outputs: if by_output { c } else { 1 }, ..*layout };
                one.rows(s, columns.len(), |s, row| {
                    for (&column, out) in columns.iter().zip(row.chunks_exact_mut(one.outputs)) {
                        let column = self.kept.as_ref().map_or(column, |kept| kept[column]);
                        file.read(place(s, column), out);
                    }
                }) * *scale
            }
        }
    }

    /// Calls `f(first, F/√S [functions, n])` for one strip of functions after the other.
    pub(crate) fn for_each_strip(&self, mut f: impl FnMut(usize, ArrayView2<f64>)) {
        let (file, scale) = match &self.factor {
            Factor::Held(all) => return f(0, all.view()),
            Factor::Mapped { file, scale } => (file, *scale),
        };
        let Layout { samples, points, outputs, .. } = self.layout;
        let (flat, per_sample) = (points * outputs, self.dim().0 / samples);
        let each = (self.strip() / flat).max(1);
        for first in (0..samples).step_by(each) {
            let strip = self.layout.rows(each.min(samples - first), points, |s, row| {
                file.read_in_parallel((first + s) * flat, row);
            });
            let strip =
                self.kept.as_ref().map_or(strip.view().into(), |kept| CowArray::from(strip.select(Axis(1), kept)));
            f(first * per_sample, (&strip * scale).view());
        }
    }

    /// `(F/√S) V` `[S, b]` for `V` `[n, b]`.
    pub fn pushed(&self, v: ArrayView2<f64>) -> Array2<f64> {
        let mut out = Array2::zeros((self.dim().0, v.ncols()));
        self.for_each_strip(|start, f| {
            out.slice_mut(s![start..start + f.nrows(), ..]).assign(&matmul(f, v));
        });
        out
    }

    /// `(F/√S)ᵀ W` `[n, b]` for `W` `[S, b]`.
    pub fn pulled(&self, w: ArrayView2<f64>) -> Array2<f64> {
        let mut out = Array2::zeros((self.n(), w.ncols()));
        self.for_each_strip(|start, f| {
            out += &matmul(f.t(), w.slice(s![start..start + f.nrows(), ..]));
        });
        out
    }

    /// The smaller of `FᵀF/S` and `FFᵀ/S`, which have the same eigenvalues: of as many rows as there are points, or functions.
    pub fn smaller_gram(&self) -> Array2<f64> {
        let (rows, n) = self.dim();
        let mut gram = Array2::zeros((rows.min(n), rows.min(n)));
        if n <= rows {
            self.for_each_strip(|_, f| gram += &matmul(f.t(), f));
            return gram;
        }
        // FFᵀ = Σ over blocks of columns.
        let width = (self.strip() / rows).max(1);
        for start in (0..n).step_by(width) {
            let columns: Vec<usize> = (start..n.min(start + width)).collect();
            let f = self.columns(&columns);
            gram += &matmul(f.view(), f.t());
        }
        gram
    }
}

/// The message on the value at `row` and `column` of F.
fn not_finite(layout: Layout, row: usize, column: usize, value: f64) -> String {
    let c = layout.outputs;
    let (s, n, c) = if layout.by_output { (row / c, column, row % c) } else { (row, column / c, column % c) };
    format!("function samples must be finite: sample {}, point {}, output {} is {value}", s + 1, n + 1, c + 1)
}

impl Operator for LowRankOperator {
    fn n(&self) -> usize {
        self.dim().1
    }

    fn apply(&self, v: ArrayView2<f64>) -> Result<Array2<f64>> {
        self.product(0..self.n(), 0..self.n(), v)
    }

    fn block(&self, rows: &[usize], columns: &[usize]) -> Result<Array2<f64>> {
        let left = self.columns(rows);
        let right = if rows == columns { None } else { Some(self.columns(columns)) };
        Ok(matmul(left.t(), right.as_ref().unwrap_or(&left).view()))
    }

    fn diagonal(&self) -> Result<Array1<f64>> {
        Ok(self.diagonal.clone())
    }

    /// One pass over F: the strips' shares of `Fᵀ(FV)` add up.
    fn product(&self, rows: Range<usize>, columns: Range<usize>, v: ArrayView2<f64>) -> Result<Array2<f64>> {
        let mut out = Array2::zeros((rows.len(), v.ncols()));
        self.for_each_strip(|_, f| {
            let (left, right) = (f.slice(s![.., rows.clone()]), f.slice(s![.., columns.clone()]));
            out += &matmul(left.t(), matmul(right, v).view());
        });
        Ok(out)
    }

    fn outputs(&self) -> usize {
        if self.layout.by_output { 1 } else { self.layout.outputs }
    }

    fn low_rank(&self) -> Option<&LowRankOperator> {
        Some(self)
    }

    /// `κ(x,Z) a = φ(x) (F_Z a/√S)`: as many coefficients as there are functions.
    fn extend(&self, rows: Option<&[usize]>, a: Array2<f64>) -> Result<Extension> {
        let coefficients = match rows {
            None => self.pushed(a.view()),
            Some(rows) => matmul(self.columns(rows).view(), a.view()),
        };
        let Layout { samples: functions, outputs, by_output: factorised, .. } = self.layout;
        Ok(Extension { features: Box::new(SampleFeatures { functions, outputs, factorised }), coefficients })
    }

    fn at<'p>(&'p self, points: Points<'p>) -> Result<Box<dyn Operator + 'p>> {
        Ok(Box::new(LowRankOperator::within(points.samples()?, self.layout.by_output, self.budget)?))
    }

    fn describe(&self) -> String {
        let Layout { samples, outputs, by_output, .. } = self.layout;
        let outputs = match (outputs, by_output) {
            (1, _) => String::new(),
            (c, false) => format!(" with {c} outputs"),
            (c, true) => format!(" with {c} outputs, factorised"),
        };
        format!("{samples} sampled functions{outputs}")
    }
}
