//! The two precisions a tile can be computed in.

use crate::compute::cuda::Plain;
use crate::operator::tile::packed::Block;
use crate::precision::Precision;
use crate::simd::{Lane, Num};
use faer::traits::RealField;
use ndarray::Array2;
use std::any::Any;

/// An expression with the type `T` of the numbers that a precision has on the CPU.
macro_rules! in_precision {
    ($precision:expr, $T:ident => $value:expr) => {
        match $precision {
            $crate::precision::Precision::F32 | $crate::precision::Precision::Tf32 => {
                type $T = f32;
                $value
            }
            $crate::precision::Precision::F64 => {
                type $T = f64;
                $value
            }
        }
    };
}
pub(crate) use in_precision;

/// A matrix in the precision of `T`, as `T`. Functions that users call with a type `T` compute through a function that is
/// not generic and end with this: every kernel is then compiled once, here, and not again in each crate that calls them.
pub(crate) fn typed<T: Real>(matrix: Box<dyn Any>) -> Array2<T> {
    *matrix.downcast().expect("a matrix in the precision of T")
}

/// `f32` or `f64`: a number that faer multiplies and that has vector lanes for formulas. Example: [`crate::operator::gram`].
pub trait Real: RealField + Plain + ndarray::ScalarOperand + Block {
    /// The lane of this type; `FMA` says whether products and sums may fuse.
    type Lane<const FMA: bool>: Num;
    /// Which of the two it is.
    const PRECISION: Precision;

    /// Into a lane.
    fn lane<const FMA: bool>(self) -> Self::Lane<FMA>;
    /// Out of a lane.
    fn of_lane<const FMA: bool>(lane: Self::Lane<FMA>) -> Self;
    /// Rounded from f64.
    fn of(x: f64) -> Self;
    /// Widened to f64.
    fn wide(self) -> f64;
}

macro_rules! real {
    ($type:ident, $precision:ident) => {
        impl Real for $type {
            type Lane<const FMA: bool> = Lane<$type, FMA>;
            const PRECISION: Precision = Precision::$precision;

            #[inline(always)]
            fn lane<const FMA: bool>(self) -> Lane<$type, FMA> {
                Lane(self)
            }
            #[inline(always)]
            fn of_lane<const FMA: bool>(lane: Lane<$type, FMA>) -> $type {
                lane.0
            }
            #[inline(always)]
            fn of(x: f64) -> $type {
                x as $type
            }
            #[inline(always)]
            fn wide(self) -> f64 {
                f64::from(self)
            }
        }
    };
}

real!(f32, F32);
real!(f64, F64);
