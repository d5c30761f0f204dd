use super::{Formula, Kind, Pair, Parameter, cosine::cosine};
use crate::simd::Num;
use std::f64::consts::{FRAC_1_PI, PI};

/// `κ_p(x,x') = (1/π) ‖x‖^p ‖x'‖^p J_p(θ)`, the arc-cosine kernel of Cho and Saul:
/// `J_0 = π−θ`, `J_1 = sin θ + (π−θ) cos θ`, `J_2 = 3 sin θ cos θ + (π−θ)(1 + 2cos²θ)`.
#[derive(Clone, Debug, PartialEq)]
pub struct ArcCosine {
    order: u32,
}

impl Formula for ArcCosine {
    const NAME: &'static str = "arccos";
    const HELP: &'static str =
        "(1/π)·‖x‖^p·‖x'‖^p·J_p(θ), θ the angle: a layer of step (p=0), ReLU (1) or ReLU² (2) units";
    const PARAMETERS: &'static [Parameter] =
        &[Parameter { name: "order", default: 1.0, kind: Kind::Integer(0, 2), help: "the power p" }];

    fn new(values: &[f64]) -> Self {
        ArcCosine { order: values[0] as u32 }
    }

    fn values(&self) -> Vec<f64> {
        vec![f64::from(self.order)]
    }

    #[inline(always)]
    fn eval<R: Num>(&self, pair: Pair<R>) -> R {
        let cos = cosine(pair);
        let sin = (R::of(1.0) - cos * cos).max(R::of(0.0)).sqrt();
        let rest = R::of(PI) - cos.acos();
        let j = match self.order {
            0 => rest,
            1 => sin + rest * cos,
            _ => R::of(3.0) * sin * cos + rest * (R::of(1.0) + R::of(2.0) * cos * cos),
        };
        R::of(FRAC_1_PI) * (pair.xx.sqrt() * pair.yy.sqrt()).powi(self.order) * j
    }
}
