//! New points, as operators and feature maps take them.

use super::FunctionSamples;
use crate::{Error, Result};
use ndarray::{ArrayBase, ArrayView2, Ix2, ViewRepr};

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
    Coordinates(ArrayBase<ViewRepr<&'a f64>, Ix2, f64>),
    /// The same functions that were fitted, sampled at the new points.
    Samples(&'a FunctionSamples<'a>),
}

impl<'a> Points<'a> {
    /// How many points.
    pub fn count(&self) -> usize {
        match self {
            Points::Coordinates(x) => x.nrows(),
            Points::Samples(f) => f.dim().1,
        }
    }

    /// The coordinates, for functions of coordinates.
    pub fn coordinates(self) -> Result<ArrayView2<'a, f64>> {
        match self {
            Points::Coordinates(x) => Ok(x),
            Points::Samples(_) => Err(Error::input(
                "these are functions of coordinates: give the coordinates of the new points, not samples of functions",
            )),
        }
    }

    /// The samples, for functions that are combinations of sampled functions.
    pub fn samples(self) -> Result<&'a FunctionSamples<'a>> {
        match self {
            Points::Samples(f) => Ok(f),
            Points::Coordinates(_) => Err(Error::input(
                "the model combines sampled functions and holds no networks: give the same functions sampled at the new points, \
                 or fit networks, which are functions of coordinates",
            )),
        }
    }
}

impl<'a> From<ArrayView2<'a, f64>> for Points<'a> {
    fn from(x: ArrayView2<'a, f64>) -> Self {
        Points::Coordinates(x)
    }
}

impl<'a> From<&'a FunctionSamples<'a>> for Points<'a> {
    fn from(f: &'a FunctionSamples<'a>) -> Self {
        Points::Samples(f)
    }
}
