//! Numbers with a derivative, so that a formula over [`Num`] is differentiated as it is written.

use super::Num;
use std::f64::consts::FRAC_2_SQRT_PI;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// `value + slope·ε` with `ε² = 0`: a number and its derivative with respect to one variable.
///
/// ```
/// use mercer_engine::simd::{Dual, Num};
/// fn formula<R: Num>(x: R) -> R { (x * x).exp() }
/// let at = formula(Dual { value: 0.5, slope: 1.0 });
/// assert!((at.slope - 0.25f64.exp()).abs() < 1e-15); // 2x·exp(x²)
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dual<R> {
    /// The number.
    pub value: R,
    /// Its derivative.
    pub slope: R,
}

impl<R: Num> Dual<R> {
    /// `f(self)`, of which the value and the derivative are known.
    #[inline(always)]
    fn map(self, value: R, derivative: R) -> Self {
        Dual { value, slope: self.slope * derivative }
    }
}

impl<R: Num> Add for Dual<R> {
    type Output = Self;
    #[inline(always)]
    fn add(self, b: Self) -> Self {
        Dual { value: self.value + b.value, slope: self.slope + b.slope }
    }
}

impl<R: Num> Sub for Dual<R> {
    type Output = Self;
    #[inline(always)]
    fn sub(self, b: Self) -> Self {
        Dual { value: self.value - b.value, slope: self.slope - b.slope }
    }
}

impl<R: Num> Mul for Dual<R> {
    type Output = Self;
    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        Dual { value: self.value * b.value, slope: self.slope * b.value + self.value * b.slope }
    }
}

impl<R: Num> Div for Dual<R> {
    type Output = Self;
    #[inline(always)]
    fn div(self, b: Self) -> Self {
        let value = self.value / b.value;
        Dual { value, slope: (self.slope - value * b.slope) / b.value }
    }
}

impl<R: Num> Neg for Dual<R> {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        Dual { value: -self.value, slope: -self.slope }
    }
}

impl<R: Num> Num for Dual<R> {
    #[inline(always)]
    fn of(x: f64) -> Self {
        Dual { value: R::of(x), slope: R::of(0.0) }
    }

    #[inline(always)]
    fn exp(self) -> Self {
        let value = self.value.exp();
        self.map(value, value)
    }

    #[inline(always)]
    fn ln(self) -> Self {
        self.map(self.value.ln(), R::of(1.0) / self.value)
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        let value = self.value.sqrt();
        self.map(value, R::of(0.5) / value)
    }

    #[inline(always)]
    fn abs(self) -> Self {
        self.map(self.value.abs(), R::select_gt(R::of(0.0), self.value, R::of(-1.0), R::of(1.0)))
    }

    #[inline(always)]
    fn max(self, b: Self) -> Self {
        let slope = R::select_gt(b.value, self.value, b.slope, self.slope);
        Dual { value: self.value.max(b.value), slope }
    }

    #[inline(always)]
    fn min(self, b: Self) -> Self {
        let slope = R::select_gt(self.value, b.value, b.slope, self.slope);
        Dual { value: self.value.min(b.value), slope }
    }

    #[inline(always)]
    fn sin_cos(self) -> (Self, Self) {
        let (sin, cos) = self.value.sin_cos();
        (self.map(sin, cos), self.map(cos, -sin))
    }

    #[inline(always)]
    fn asin(self) -> Self {
        self.map(self.value.asin(), R::of(1.0) / (R::of(1.0) - self.value * self.value).sqrt())
    }

    #[inline(always)]
    fn acos(self) -> Self {
        self.map(self.value.acos(), R::of(-1.0) / (R::of(1.0) - self.value * self.value).sqrt())
    }

    #[inline(always)]
    fn erf(self) -> Self {
        self.map(self.value.erf(), R::of(FRAC_2_SQRT_PI) * (-(self.value * self.value)).exp())
    }

    #[inline(always)]
    fn tanh(self) -> Self {
        let value = self.value.tanh();
        self.map(value, R::of(1.0) - value * value)
    }

    #[inline(always)]
    fn mul_add(self, a: Self, b: Self) -> Self {
        let slope = self.slope.mul_add(a.value, self.value.mul_add(a.slope, b.slope));
        Dual { value: self.value.mul_add(a.value, b.value), slope }
    }

    #[inline(always)]
    fn select_gt(a: Self, b: Self, then: Self, otherwise: Self) -> Self {
        let select = |then, otherwise| R::select_gt(a.value, b.value, then, otherwise);
        Dual { value: select(then.value, otherwise.value), slope: select(then.slope, otherwise.slope) }
    }
}
