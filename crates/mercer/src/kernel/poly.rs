use super::{Formula, Kind, Pair, Parameter};
use crate::simd::Num;

/// `κ(x,x') = (s·x·x' + c)^p`
#[derive(Clone, Debug, PartialEq)]
pub struct Polynomial {
    degree: u32,
    scale: f64,
    offset: f64,
}

impl Formula for Polynomial {
    const NAME: &'static str = "poly";
    const HELP: &'static str = "(scale·x·x' + offset)^degree; rank at most C(d+p, p)";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter { name: "degree", default: 3.0, kind: Kind::Integer(1, 63), help: "the power p" },
        Parameter { name: "scale", default: 1.0, kind: Kind::Positive, help: "factor on x·x'" },
        Parameter { name: "offset", default: 1.0, kind: Kind::NonNegative, help: "constant added to x·x'" },
    ];

    fn new(values: &[f64]) -> Self {
        Polynomial { degree: values[0] as u32, scale: values[1], offset: values[2] }
    }

    fn values(&self) -> Vec<f64> {
        vec![f64::from(self.degree), self.scale, self.offset]
    }

    #[inline(always)]
    fn eval<R: Num>(&self, pair: Pair<R>) -> R {
        (pair.s * R::of(self.scale) + R::of(self.offset)).powi(self.degree)
    }
}
