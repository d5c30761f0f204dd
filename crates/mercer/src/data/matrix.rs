//! Rows of numbers in the type in which they are stored.
//!
//! A byte or an f32 becomes an f64 only where it is used, so that a set of images takes an eighth of its size in f64.

use std::ops::Range;

use crate::{Error, Result};
use ndarray::{ArcArray2, Array1, Array2, ArrayBase, ArrayView2, Axis, CowArray, Ix2, ViewRepr, s};
use rayon::prelude::*;

/// The largest number to compute with: its square, times many columns, is finite.
pub(crate) const MOST_MAGNITUDE: f64 = 1e150;

/// Numbers `[n, d]` in row-major order, in the type in which they are stored.
///
/// ```
/// use mercer::data::Matrix;
/// let pixels = Matrix::U8 { values: ndarray::array![[0, 51, 255]], divisor: 255.0 };
/// assert_eq!((pixels.n(), pixels.d()), (1, 3));
/// assert_eq!(pixels.to_f64(), ndarray::array![[0.0, 0.2, 1.0]]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Matrix {
    /// Double precision.
    F64(Array2<f64>),
    /// Single precision.
    F32(Array2<f32>),
    /// Bytes; the number is `value / divisor`.
    U8 {
        /// The stored bytes, `[n, d]`.
        values: Array2<u8>,
        /// 255 for pixels in [0, 1], else 1.
        divisor: f64,
    },
}

/// A borrowed [`Matrix`], or some of its rows: numbers `[n, d]` in the type in which they are stored.
///
/// ```
/// use mercer::data::Rows;
/// let x = ndarray::array![[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0]];
/// let rows = Rows::from(&x);
/// assert_eq!(rows.slice(1..3).to_f64(), ndarray::array![[3.0, 4.0], [5.0, 6.0]]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rows<'a> {
    /// Double precision.
    F64(View<'a, f64>),
    /// Single precision.
    F32(View<'a, f32>),
    /// Bytes; the number is `value / divisor`.
    U8 {
        /// The stored bytes, `[n, d]`.
        values: View<'a, u8>,
        /// 255 for pixels in [0, 1], else 1.
        divisor: f64,
    },
}

/// [`ArrayView2`], spelt out so that its lifetime can shrink.
type View<'a, A> = ArrayBase<ViewRepr<&'a A>, Ix2, A>;

/// Rows that are borrowed, owned, or owned together with others.
pub(crate) enum CowRows<'a> {
    Borrowed(Rows<'a>),
    Owned(Matrix),
    Shared(ArcArray2<f64>),
}

impl CowRows<'_> {
    pub fn rows(&self) -> Rows<'_> {
        match self {
            CowRows::Borrowed(rows) => *rows,
            CowRows::Owned(matrix) => matrix.rows(),
            CowRows::Shared(x) => Rows::F64(x.view()),
        }
    }
}

impl Matrix {
    /// A borrowed view of all rows.
    pub fn rows(&self) -> Rows<'_> {
        match self {
            Matrix::F64(x) => Rows::F64(x.view()),
            Matrix::F32(x) => Rows::F32(x.view()),
            Matrix::U8 { values, divisor } => Rows::U8 { values: values.view(), divisor: *divisor },
        }
    }

    /// Number of rows.
    pub fn n(&self) -> usize {
        self.rows().n()
    }

    /// Number of columns.
    pub fn d(&self) -> usize {
        self.rows().d()
    }

    /// The numbers in double precision, `[n, d]`; borrowed where they are stored so.
    pub fn to_f64(&self) -> CowArray<'_, f64, Ix2> {
        self.rows().to_f64()
    }

    /// The numbers in double precision, `[n, d]`; not copied where they are stored so.
    pub fn into_f64(self) -> Array2<f64> {
        match self {
            Matrix::F64(x) => x,
            other => other.to_f64().into_owned(),
        }
    }

    /// The given rows in the given order, in the stored type. Panics on a row that does not exist.
    pub fn select(&self, rows: &[usize]) -> Matrix {
        self.rows().select(rows)
    }

    /// The given columns in the given order, in the stored type. Panics on a column that does not exist.
    pub fn select_columns(&self, columns: &[usize]) -> Matrix {
        self.rows().take(Axis(1), columns).into_standard_layout()
    }

    /// Column `j` in double precision, `[n]`.
    pub fn column(&self, j: usize) -> Vec<f64> {
        let rows = self.rows();
        (0..rows.n()).map(|i| rows.get(i, j)).collect()
    }

    /// The same with room for `rows` rows in all.
    pub(super) fn with_room(mut self, rows: usize) -> Matrix {
        let more = rows.saturating_sub(self.n());
        let reserved = match &mut self {
            Matrix::F64(x) => x.reserve(Axis(0), more),
            Matrix::F32(x) => x.reserve(Axis(0), more),
            Matrix::U8 { values, .. } => values.reserve(Axis(0), more),
        };
        reserved.expect("no more rows than a file has");
        self
    }

    /// Adds rows of the same type and width at the end.
    pub(super) fn append(&mut self, rows: Matrix) {
        let appended = match (self, rows.rows()) {
            (Matrix::F64(x), Rows::F64(rows)) => x.append(Axis(0), rows),
            (Matrix::F32(x), Rows::F32(rows)) => x.append(Axis(0), rows),
            (Matrix::U8 { values, .. }, Rows::U8 { values: rows, .. }) => values.append(Axis(0), rows),
            _ => panic!("rows of one file have one type"),
        };
        appended.expect("rows of one width");
    }

    /// The same numbers in row-major order.
    pub(super) fn into_standard_layout(self) -> Matrix {
        fn ordered<A: Copy>(x: Array2<A>) -> Array2<A> {
            if x.is_standard_layout() { x } else { x.as_standard_layout().into_owned() }
        }
        match self {
            Matrix::F64(x) => Matrix::F64(ordered(x)),
            Matrix::F32(x) => Matrix::F32(ordered(x)),
            Matrix::U8 { values, divisor } => Matrix::U8 { values: ordered(values), divisor },
        }
    }
}

impl<'a> Rows<'a> {
    /// Number of rows.
    pub fn n(&self) -> usize {
        self.dim().0
    }

    /// Number of columns.
    pub fn d(&self) -> usize {
        self.dim().1
    }

    /// Numbers of rows and columns.
    pub fn dim(&self) -> (usize, usize) {
        match self {
            Rows::F64(x) => x.dim(),
            Rows::F32(x) => x.dim(),
            Rows::U8 { values, .. } => values.dim(),
        }
    }

    /// The number in row `i` and column `j`.
    pub fn get(&self, i: usize, j: usize) -> f64 {
        match self {
            Rows::F64(x) => x[[i, j]],
            Rows::F32(x) => f64::from(x[[i, j]]),
            Rows::U8 { values, divisor } => f64::from(values[[i, j]]) / divisor,
        }
    }

    /// The numbers in double precision, `[n, d]`; borrowed where they are stored so.
    pub fn to_f64(&self) -> CowArray<'a, f64, Ix2> {
        match *self {
            Rows::F64(x) => x.into(),
            Rows::F32(x) => x.mapv(f64::from).into(),
            Rows::U8 { values, divisor } => values.mapv(|v| f64::from(v) / divisor).into(),
        }
    }

    /// The numbers in single precision, `[n, d]`; borrowed where they are stored so.
    pub fn to_f32(&self) -> CowArray<'a, f32, Ix2> {
        match *self {
            Rows::F64(x) => x.mapv(|v| v as f32).into(),
            Rows::F32(x) => x.into(),
            Rows::U8 { values, divisor } => values.mapv(|v| (f64::from(v) / divisor) as f32).into(),
        }
    }

    /// A few rows at a time in double precision, `[few, d]`.
    pub(crate) fn chunks(self, few: usize) -> impl Iterator<Item = CowArray<'a, f64, Ix2>> {
        (0..self.n()).step_by(few).map(move |start| self.slice(start..self.n().min(start + few)).to_f64())
    }

    /// The mean of each column, `[d]`; none where there are no rows.
    pub(crate) fn mean(&self) -> Option<Array1<f64>> {
        if let Rows::F64(x) = self {
            return match x.to_slice() {
                // The sums of `mean_axis`, which has a call for each row.
                Some(values) if x.ncols() > 1 && x.nrows() > 0 => {
                    let mut sum = vec![0.0; x.ncols()];
                    let add = |row: &[f64]| sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
                    values.chunks_exact(x.ncols()).for_each(add);
                    Some(Array1::from(sum) / x.nrows() as f64)
                }
                _ => x.mean_axis(Axis(0)),
            };
        }
        let mut sum = Array1::zeros(self.d());
        self.chunks(64).for_each(|few| few.rows().into_iter().for_each(|row| sum += &row));
        (self.n() > 0).then(|| sum / self.n() as f64)
    }

    /// A range of rows, borrowed.
    pub fn slice(&self, rows: Range<usize>) -> Rows<'a> {
        match *self {
            Rows::F64(x) => Rows::F64(x.slice_move(s![rows, ..])),
            Rows::F32(x) => Rows::F32(x.slice_move(s![rows, ..])),
            Rows::U8 { values, divisor } => Rows::U8 { values: values.slice_move(s![rows, ..]), divisor },
        }
    }

    /// The given rows in the given order, in the stored type. Panics on a row that does not exist.
    pub fn select(&self, rows: &[usize]) -> Matrix {
        self.take(Axis(0), rows)
    }

    /// The first NaN or infinity, with its row and column.
    pub fn non_finite(&self) -> Option<(usize, usize, f64)> {
        self.beyond(f64::MAX)
    }

    /// Refuses numbers whose squares would overflow: the first of them, with its row and column.
    pub(crate) fn check_magnitude(&self) -> Result<()> {
        match self.beyond(MOST_MAGNITUDE) {
            None => Ok(()),
            Some((i, j, value)) => Err(Error::Numerical(format!(
                "row {}, column {} (counted from 1) of the data is {value:e}, too large to compute with; scale the data",
                i + 1,
                j + 1
            ))),
        }
    }

    /// The first NaN or number larger than `most`, with its row and column.
    fn beyond(&self, most: f64) -> Option<(usize, usize, f64)> {
        /// Rows that a thread looks at together.
        const ROWS: usize = 256;
        let starts: Vec<usize> = (0..self.n()).step_by(ROWS).collect();
        let first =
            starts.into_par_iter().find_first(|&start| !self.slice(start..self.n().min(start + ROWS)).within(most))?;
        let beyond = |v: f64| v.is_nan() || v.abs() > most;
        let places = (first..self.n()).flat_map(|i| (0..self.d()).map(move |j| (i, j)));
        places.map(|(i, j)| (i, j, self.get(i, j))).find(|(_, _, v)| beyond(*v))
    }

    /// Whether no number is NaN or larger than `most`.
    fn within(&self, most: f64) -> bool {
        match self {
            Rows::F64(x) => x.iter().all(|v| v.abs() <= most),
            Rows::F32(x) => x.iter().all(|v| f64::from(v.abs()) <= most),
            Rows::U8 { .. } => true,
        }
    }

    fn take(&self, axis: Axis, indices: &[usize]) -> Matrix {
        match self {
            Rows::F64(x) => Matrix::F64(x.select(axis, indices)),
            Rows::F32(x) => Matrix::F32(x.select(axis, indices)),
            Rows::U8 { values, divisor } => Matrix::U8 { values: values.select(axis, indices), divisor: *divisor },
        }
    }
}

macro_rules! stored_as {
    ($($number:ty => $variant:ident),*) => {$(
        impl From<Array2<$number>> for Matrix {
            fn from(x: Array2<$number>) -> Self {
                Matrix::$variant(x)
            }
        }

        impl<'a> From<ArrayView2<'a, $number>> for Rows<'a> {
            fn from(x: ArrayView2<'a, $number>) -> Self {
                Rows::$variant(x)
            }
        }

        impl<'a> From<&'a Array2<$number>> for Rows<'a> {
            fn from(x: &'a Array2<$number>) -> Self {
                x.view().into()
            }
        }
    )*};
}
stored_as!(f64 => F64, f32 => F32);

impl<'a> From<&'a Matrix> for Rows<'a> {
    fn from(x: &'a Matrix) -> Self {
        x.rows()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    fn stored() -> [Matrix; 3] {
        let bytes = array![[0u8, 1, 2], [3, 128, 255]];
        let scaled = bytes.mapv(|v| f64::from(v) / 255.0);
        [scaled.into(), bytes.mapv(|v| f32::from(v) / 255.0).into(), Matrix::U8 { values: bytes, divisor: 255.0 }]
    }

    #[test]
    fn means_have_the_bits_of_sums_from_the_first_row_to_the_last() {
        let x = Array2::from_shape_fn((37, 5), |(i, j)| ((7 * i + j) as f64).sin());
        let want = x.mean_axis(Axis(0));
        for x in [x.view(), x.t().to_owned().reversed_axes().view()] {
            assert_eq!(Rows::F64(x).mean(), want);
        }
        assert_eq!(Rows::F64(x.slice(s![..0, ..])).mean(), None);
        assert_eq!(Rows::F64(x.slice(s![.., ..1])).mean(), x.slice(s![.., ..1]).mean_axis(Axis(0)));
    }

    #[test]
    fn parts_keep_the_type_and_the_bits() {
        for matrix in stored() {
            let all = matrix.to_f64().into_owned();
            let rows = matrix.select(&[1, 0, 1]);
            assert_eq!(std::mem::discriminant(&rows), std::mem::discriminant(&matrix));
            assert_eq!(rows.to_f64(), all.select(Axis(0), &[1, 0, 1]));
            let columns = matrix.select_columns(&[2, 0]);
            assert_eq!(std::mem::discriminant(&columns), std::mem::discriminant(&matrix));
            assert_eq!(columns.to_f64(), all.select(Axis(1), &[2, 0]));
            assert!(columns.to_f64().is_standard_layout());
            assert_eq!(matrix.rows().slice(1..2).to_f64(), all.slice(s![1..2, ..]));
            assert_eq!(matrix.column(1), all.column(1).to_vec());
            assert_eq!(matrix.rows().get(1, 2), all[[1, 2]]);
            assert_eq!(matrix.into_f64(), all);
        }
    }

    #[test]
    fn only_other_types_are_converted() {
        let [f64s, f32s, bytes] = stored();
        assert!(f64s.to_f64().is_view());
        assert!(f32s.to_f64().is_owned() && bytes.to_f64().is_owned());
        // The same division as the readers of images always made.
        assert_eq!(bytes.to_f64(), f64s.to_f64());
    }

    #[test]
    fn the_first_bad_value_is_found() {
        let bad = array![[1.0, 2.0], [f32::INFINITY, f32::NAN]];
        assert_eq!(Rows::from(&bad).non_finite(), Some((1, 0, f64::INFINITY)));
        assert_eq!(Rows::from(bad.mapv(f64::from).view()).non_finite(), Some((1, 0, f64::INFINITY)));
        assert!(stored().iter().all(|matrix| matrix.rows().non_finite().is_none()));
        let large = array![[1.0, -1e151]];
        assert_eq!(Rows::from(&large).non_finite(), None);
        let message = Rows::from(&large).check_magnitude().unwrap_err().to_string();
        assert!(message.contains("column 2") && message.contains("-1e151"), "{message}");
        assert!(stored().iter().all(|matrix| matrix.rows().check_magnitude().is_ok()));
    }
}
