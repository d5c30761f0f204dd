//! Kernels that are functions of `x·x'` and the two norms.

use super::{Formula, Kind, Lift, Median, Pair, Parameter, Result, Value, parameter::SCALE_OF_INPUTS};
use crate::simd::Num;
use std::f64::consts::{FRAC_1_PI, PI};

/// A [`formula!`] of points that are divided by a lengthscale first: by one for all columns, or by one for each.
macro_rules! dot_formula {
    (
        $(#[$doc:meta])*
        $type:ident($name:literal, $help:literal) { $($field:ident: $parameter:expr),* $(,)? }
        $($item:tt)*
    ) => {
        formula! {
            $(#[$doc])*
            $type($name, $help) columns { $($field: $parameter,)* lengthscale: SCALE_OF_INPUTS }

            const MEDIAN: Median = Median::Norm;

            fn divisor(&self) -> f64 {
                self.lengthscale
            }

            $($item)*
        }
    };
}

dot_formula! {
    /// `κ(x,x') = x·x'`
    Linear("linear", "x·x'") {}

    #[inline(always)]
    fn eval<R: Num>(&self, pair: Pair<R>) -> R {
        pair.s
    }
}

dot_formula! {
    /// `κ(x,x') = (s·x·x' + c)^p`
    Polynomial("poly", "(scale·x·x' + offset)^degree; rank at most C(d+p, p)") {
        degree: Parameter::new("degree", 3.0, Kind::Integer(1, 63), "the power p"),
        scale: Parameter::new("scale", 1.0, Kind::Positive, "factor on x·x'"),
        offset: Parameter::new("offset", 1.0, Kind::NonNegative, "constant added to x·x'"),
    }

    #[inline(always)]
    fn eval<R: Num>(&self, pair: Pair<R>) -> R {
        (pair.s * R::of(self.scale) + R::of(self.offset)).powi(self.degree as u32)
    }
}

dot_formula! {
    /// `κ(x,x') = exp(x·x' / s)`, the kernel of softmax attention (`s = √d`).
    ExpDot("expdot", "exp(x·x' / scale), the kernel of softmax attention; has positive random features") {
        scale: Parameter::new("scale", 1.0, Kind::Positive, "divisor of x·x'"),
    }

    #[inline(always)]
    fn eval<R: Num>(&self, pair: Pair<R>) -> R {
        (pair.s * R::of(1.0 / self.scale)).exp()
    }
}

dot_formula! {
    /// `κ(x,x') = x·x' / (‖x‖ ‖x'‖)`, zero where a point is the origin.
    Cosine("cosine", "x·x' / (‖x‖·‖x'‖)") {}

    #[inline(always)]
    fn eval<R: Num>(&self, pair: Pair<R>) -> R {
        cosine(pair)
    }

    fn lift(&self, _d: usize) -> Lift<'_> {
        Lift::OverNorm
    }
}

dot_formula! {
    /// `κ_p(x,x') = (1/π) ‖x‖^p ‖x'‖^p J_p(θ)`, the arc-cosine kernel of Cho and Saul:
    /// `J_0 = π−θ`, `J_1 = sin θ + (π−θ) cos θ`, `J_2 = 3 sin θ cos θ + (π−θ)(1 + 2cos²θ)`.
    ArcCosine(
        "arccos",
        "(1/π)·‖x‖^p·‖x'‖^p·J_p(θ), θ the angle: a layer of step (p=0), ReLU (1) or ReLU² (2) units"
    ) {
        order: Parameter::new("order", 1.0, Kind::Integer(0, 2), "the power p"),
    }

    #[inline(always)]
    fn eval<R: Num>(&self, pair: Pair<R>) -> R {
        let order = self.order as u32;
        let cos = cosine(pair);
        let sin = ((R::of(1.0) - cos) * (R::of(1.0) + cos)).sqrt();
        let rest = R::of(PI) - cos.acos();
        let j = match order {
            0 => rest,
            1 => sin + rest * cos,
            _ => R::of(3.0) * sin * cos + rest * (R::of(1.0) + R::of(2.0) * cos * cos),
        };
        // The square of a lifted point's norm is ‖x‖, see below.
        R::of(FRAC_1_PI) * (pair.xx * pair.yy).powi(order) * j
    }

    /// `x/√‖x‖`, whose squared norm is `‖x‖`; for p = 0, which needs the angle alone, `x/‖x‖`.
    fn lift(&self, _d: usize) -> Lift<'_> {
        if self.order == 0.0 { Lift::OverNorm } else { Lift::OverRootOfNorm }
    }
}

/// The cosine of the angle, in [−1, 1]; zero where a point is the origin.
#[inline(always)]
fn cosine<R: Num>(pair: Pair<R>) -> R {
    // √(a·a) is a, so that the angle of a point with itself is zero.
    let norms = (pair.xx * pair.yy).sqrt();
    R::select_gt(norms, R::of(0.0), pair.s / norms, norms).min(R::of(1.0)).max(R::of(-1.0))
}
