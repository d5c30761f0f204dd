//! A network of any program, known by its outputs and by functions that stand for its derivatives.

use super::passes::batches;
use crate::finite::non_finite_row;
use crate::operator::FunctionSamples;
use crate::{Error, Result, fail_if};
use ndarray::{Array2, ArrayView2, Axis, s};
use std::ops::Range;

/// Numbers of functions that are in memory at once: 32 MiB.
const NUMBERS: usize = 1 << 22;

/// The outputs `g(x)` `[n, C]` of a network at n rows, and K functions `Ψ(x)` `[C, K]` at each with `J(x)J(x')ᵀ ≈ Ψ(x)Ψ(x')ᵀ`: its
/// derivatives by P parameters, samples of functions, or eigenfunctions. They may be in a file, of which a few rows are read at a time.
/// Example: [`Laplace::fit_functions`](super::Laplace::fit_functions).
#[derive(Clone)]
pub struct NetworkFunctions<'a> {
    outputs: ArrayView2<'a, f64>,
    functions: FunctionSamples<'a>,
    by_row: bool,
    chosen: Option<Vec<usize>>,
    square: Option<f64>,
}

impl<'a> NetworkFunctions<'a> {
    /// From samples F `[S, n, C]` with the kernel `FᵀF/S`, such as derivatives along random directions: `Ψ = F/√S`.
    pub fn samples(outputs: ArrayView2<'a, f64>, samples: impl Into<FunctionSamples<'a>>) -> Result<Self> {
        NetworkFunctions::new(outputs, samples.into(), false)
    }

    /// From derivatives J `[n, C, P]` by P parameters, or from the values `√μ_j ψ_j` of eigenfunctions; `[n, P, 1]` where C is one.
    pub fn jacobians(outputs: ArrayView2<'a, f64>, jacobians: impl Into<FunctionSamples<'a>>) -> Result<Self> {
        NetworkFunctions::new(outputs, jacobians.into(), true)
    }

    fn new(outputs: ArrayView2<'a, f64>, functions: FunctionSamples<'a>, by_row: bool) -> Result<Self> {
        let ((n, c), dim) = (outputs.dim(), functions.dim());
        fail_if!(n == 0 || c == 0, "the network's outputs must not be empty, got {n} × {c}");
        let fits = match by_row {
            true => dim.0 == n && (dim.1 == c || c == 1 && dim.2 == 1),
            false => (dim.1, dim.2) == (n, c),
        };
        let wanted = if by_row { format!("[{n}, {c}, P]") } else { format!("[S, {n}, {c}]") };
        let (a, b, d) = dim;
        fail_if!(
            !fits,
            "functions of shape [{a}, {b}, {d}] do not fit outputs of shape [{n}, {c}]: they must be {wanted}"
        );
        let one = a.saturating_mul(b).saturating_mul(d) / n;
        fail_if!(one == 0, "the network's functions must not be empty");
        Ok(NetworkFunctions { outputs, functions, by_row, chosen: None, square: None })
    }

    /// The same, where `‖θ‖²` of the parameters whose derivatives the functions are is known: the marginal likelihood depends on it.
    pub fn with_square(self, square: f64) -> Self {
        NetworkFunctions { square: Some(square), ..self }
    }

    /// `‖θ‖²` of the parameters, where it is known.
    pub(super) fn square(&self) -> Option<f64> {
        self.square
    }

    /// Some of the rows, in the given order; the functions stay where they are.
    pub fn at(self, rows: &[usize]) -> Self {
        let chosen = rows.iter().map(|&row| self.place(row)).collect();
        NetworkFunctions { chosen: Some(chosen), ..self }
    }

    /// n
    pub fn n(&self) -> usize {
        self.chosen.as_ref().map_or(self.outputs.nrows(), Vec::len)
    }

    /// C
    pub fn outputs(&self) -> usize {
        self.outputs.ncols()
    }

    /// K
    pub fn functions(&self) -> usize {
        let (a, b, d) = self.functions.dim();
        if self.by_row { b * d / self.outputs() } else { a }
    }

    /// Numbers of a row: `C(1 + K)`.
    pub fn width(&self) -> usize {
        self.outputs() * (1 + self.functions())
    }

    fn place(&self, row: usize) -> usize {
        self.chosen.as_ref().map_or(row, |chosen| chosen[row])
    }

    /// What is known of some rows, `[b, C(1 + K)]`: the C outputs, then the K functions of each output.
    pub fn rows(&self, rows: Range<usize>) -> Result<Array2<f64>> {
        let places: Vec<usize> = rows.clone().map(|row| self.place(row)).collect();
        let (c, k) = (self.outputs(), self.functions());
        let mut out = Array2::zeros((places.len(), self.width()));
        out.slice_mut(s![.., ..c]).assign(&self.outputs.select(Axis(0), &places));
        if self.by_row {
            self.copy_jacobians(&places, out.slice_mut(s![.., c..]));
        } else {
            let scale = 1.0 / (k as f64).sqrt();
            for (s, of_sample) in self.functions.select(&places).outer_iter().enumerate() {
                for output in 0..c {
                    let to = out.slice_mut(s![.., c + output * k + s]);
                    to.into_iter().zip(of_sample.column(output)).for_each(|(to, f)| *to = scale * f);
                }
            }
        }
        match non_finite_row(out.view()) {
            None => Ok(out),
            Some((i, value)) => {
                let row = places[i] + 1;
                Err(Error::input(format!("an output or a function of row {row} (counted from 1) is {value}")))
            }
        }
    }

    fn copy_jacobians(&self, places: &[usize], mut to: ndarray::ArrayViewMut2<f64>) {
        let width = to.ncols();
        let mut row = vec![0.0; width];
        for (&place, mut to) in places.iter().zip(to.rows_mut()) {
            match &self.functions {
                FunctionSamples::Held(all) => {
                    row.iter_mut().zip(all.index_axis(Axis(0), place)).for_each(|(row, v)| *row = *v)
                }
                FunctionSamples::Mapped(file) => file.read(place * width, &mut row),
            }
            to.iter_mut().zip(&row).for_each(|(to, v)| *to = *v);
        }
    }

    /// Consecutive ranges of rows that fit into memory.
    pub fn batches(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        batches(self.n(), (NUMBERS / self.width()).clamp(1, 4096))
    }
}

/// The outputs `[b, C]` and the functions `[b·C, K]` of rows `[b, C(1 + K)]`.
pub(super) fn parts(rows: ArrayView2<f64>, c: usize) -> (Array2<f64>, Array2<f64>) {
    let (b, width) = rows.dim();
    let functions = rows.slice(s![.., c..]).as_standard_layout().into_owned();
    let functions = functions.into_shape_with_order((b * c, width / c - 1)).expect("C(1 + K) columns");
    (rows.slice(s![.., ..c]).to_owned(), functions)
}
