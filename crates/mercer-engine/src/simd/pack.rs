//! Several numbers as one, for formulas of many stages.

use super::Num;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// `N` numbers on which every operation is a loop of fixed length.
///
/// A formula that loops over layers and chooses by their kind cannot become vector code element by element; over packs
/// each of its stages does, and the choice is made once for `N` elements.
#[derive(Clone, Copy, Debug)]
pub struct Pack<R, const N: usize>(pub [R; N]);

/// The pack whose element is `$body`, with `$x` that of `$first` and each `$y` that of `$other`.
macro_rules! each {
    ($first:ident $(, $other:ident)*; |$x:ident $(, $y:ident)*| $body:expr) => {{
        let mut out = $first;
        for i in 0..N {
            let ($x, $($y,)*) = (out.0[i], $($other.0[i],)*);
            out.0[i] = $body;
        }
        out
    }};
}

/// Operations that apply to each element on its own.
macro_rules! elementwise {
    ($($method:ident($($other:ident),*))*) => {$(
        #[inline(always)]
        fn $method(self $(, $other: Self)*) -> Self {
            each!(self $(, $other)*; |x $(, $other)*| x.$method($($other),*))
        }
    )*};
}

/// Functions with two values.
macro_rules! pairs {
    ($($method:ident)*) => {$(
        #[inline(always)]
        fn $method(self) -> (Self, Self) {
            let (mut first, mut second) = (self, self);
            for i in 0..N {
                (first.0[i], second.0[i]) = self.0[i].$method();
            }
            (first, second)
        }
    )*};
}

macro_rules! operators {
    ($($trait:ident $method:ident($($other:ident)?);)*) => {$(
        impl<R: Num, const N: usize> $trait for Pack<R, N> {
            type Output = Self;
            elementwise!($method($($other)?));
        }
    )*};
}
operators! { Add add(other); Sub sub(other); Mul mul(other); Div div(other); Neg neg(); }

impl<R: Num, const N: usize> Num for Pack<R, N> {
    elementwise!(exp() ln() sqrt() abs() asin() acos() erf() tanh() max(other) min(other) mul_add(a, b));
    pairs!(sin_cos angle);
    #[inline(always)]
    fn of(x: f64) -> Self {
        Pack([R::of(x); N])
    }
    #[inline(always)]
    fn select_gt(a: Self, b: Self, then: Self, otherwise: Self) -> Self {
        each!(then, a, b, otherwise; |then, a, b, otherwise| R::select_gt(a, b, then, otherwise))
    }
}
