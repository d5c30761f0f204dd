//! Several numbers as one, for formulas of many stages.

use super::Num;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// `N` numbers on which every operation is a loop of fixed length.
///
/// A formula that loops over layers and chooses by their kind cannot become vector code element by element; over packs
/// each of its stages does, and the choice is made once for `N` elements.
#[derive(Clone, Copy, Debug)]
pub struct Pack<R, const N: usize>(pub [R; N]);

/// `self` with `$body` at every place.
macro_rules! each {
    ($self:ident, |$x:ident| $body:expr) => {{
        let mut out = $self;
        for $x in &mut out.0 {
            *$x = $body;
        }
        out
    }};
    ($self:ident, $other:ident, |$x:ident, $y:ident| $body:expr) => {{
        let mut out = $self;
        for i in 0..N {
            let ($x, $y) = (out.0[i], $other.0[i]);
            out.0[i] = $body;
        }
        out
    }};
}

macro_rules! unary {
    ($($method:ident)*) => {$(
        #[inline(always)]
        fn $method(self) -> Self {
            each!(self, |x| x.$method())
        }
    )*};
}

macro_rules! binary {
    ($($method:ident)*) => {$(
        #[inline(always)]
        fn $method(self, other: Self) -> Self {
            each!(self, other, |x, y| x.$method(y))
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
    ($($trait:ident $method:ident),*) => {$(
        impl<R: Num, const N: usize> $trait for Pack<R, N> {
            type Output = Self;
            binary!($method);
        }
    )*};
}
operators!(Add add, Sub sub, Mul mul, Div div);

impl<R: Num, const N: usize> Neg for Pack<R, N> {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        each!(self, |x| -*x)
    }
}

impl<R: Num, const N: usize> Num for Pack<R, N> {
    #[inline(always)]
    fn of(x: f64) -> Self {
        Pack([R::of(x); N])
    }
    unary!(exp ln sqrt abs asin acos erf tanh);
    binary!(max min);
    pairs!(sin_cos angle);
    #[inline(always)]
    fn mul_add(self, a: Self, b: Self) -> Self {
        let mut out = self;
        for i in 0..N {
            out.0[i] = out.0[i].mul_add(a.0[i], b.0[i]);
        }
        out
    }
    #[inline(always)]
    fn select_gt(a: Self, b: Self, then: Self, otherwise: Self) -> Self {
        let mut out = then;
        for i in 0..N {
            out.0[i] = R::select_gt(a.0[i], b.0[i], then.0[i], otherwise.0[i]);
        }
        out
    }
}
