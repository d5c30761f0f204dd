use super::{Formula, Pair, Parameter};
use crate::simd::Num;

/// `κ(x,x') = x·x' / (‖x‖ ‖x'‖)`, zero where a point is the origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Cosine;

impl Formula for Cosine {
    const NAME: &'static str = "cosine";
    const HELP: &'static str = "x·x' / (‖x‖·‖x'‖)";
    const PARAMETERS: &'static [Parameter] = &[];

    numbers!(Cosine {});

    #[inline(always)]
    fn eval<R: Num>(&self, pair: Pair<R>) -> R {
        cosine(pair)
    }
}

/// The cosine of the angle, in [−1, 1]; zero where a point is the origin.
#[inline(always)]
pub(super) fn cosine<R: Num>(pair: Pair<R>) -> R {
    // The product of the roots, not the root of the product: the latter underflows first.
    let norms = (pair.xx.sqrt() * pair.yy.sqrt()).max(R::of(1e-30));
    (pair.s / norms).min(R::of(1.0)).max(R::of(-1.0))
}
