use super::{Formula, Pair, Parameter};
use crate::simd::Num;

/// `κ(x,x') = x·x'`
#[derive(Clone, Debug, PartialEq)]
pub struct Linear;

impl Formula for Linear {
    const NAME: &'static str = "linear";
    const HELP: &'static str = "x·x'";
    const PARAMETERS: &'static [Parameter] = &[];

    numbers!(Linear {});

    #[inline(always)]
    fn eval<R: Num>(&self, pair: Pair<R>) -> R {
        pair.s
    }
}
