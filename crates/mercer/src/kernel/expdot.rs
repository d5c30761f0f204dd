use super::{Formula, Kind, Pair, Parameter};
use crate::simd::Num;

/// `κ(x,x') = exp(x·x' / s)`, the kernel of softmax attention (`s = √d`).
#[derive(Clone, Debug, PartialEq)]
pub struct ExpDot {
    scale: f64,
}

impl ExpDot {
    /// The divisor `s`.
    pub fn scale(&self) -> f64 {
        self.scale
    }
}

impl Formula for ExpDot {
    const NAME: &'static str = "expdot";
    const HELP: &'static str = "exp(x·x' / scale), the kernel of softmax attention; has positive random features";
    const PARAMETERS: &'static [Parameter] =
        &[Parameter { name: "scale", default: 1.0, kind: Kind::Positive, help: "divisor of x·x'" }];

    numbers!(ExpDot { scale });

    #[inline(always)]
    fn eval<R: Num>(&self, pair: Pair<R>) -> R {
        (pair.s * R::of(1.0 / self.scale)).exp()
    }
}
