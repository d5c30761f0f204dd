//! A kernel from outside the crate, behind a pointer.

use super::{Formula, Lift, Pair, Parameter, Statistic};
use crate::simd::source::Source;
use crate::simd::{Lane, Num};
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// A base kernel from outside the crate: any [`Formula`], behind a pointer. See
/// [`Kernel::from_formula`](super::Kernel::from_formula).
///
/// Compared with a built-in kernel, each value costs a call. Expressions and saved models know its name through a
/// [`Registry`](crate::Registry). It has no random Fourier features.
#[derive(Clone, Debug)]
pub struct Custom(pub(super) Arc<dyn Erased>);

/// Two are equal when they are copies of one.
impl PartialEq for Custom {
    fn eq(&self, other: &Custom) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A formula behind a pointer, with one method for each type of number that it is evaluated with.
macro_rules! erased {
    ($($method:ident: $number:ty),*) => {
        pub(super) trait Erased: fmt::Debug + Send + Sync {
            fn text(&self) -> String;
            fn statistic(&self) -> Statistic;
            fn lift(&self, d: usize) -> Lift<'_>;
            fn columns(&self) -> Option<&[f64]>;
            fn divisor(&self) -> f64;
            $(fn $method(&self, pair: Pair<$number>) -> $number;)*
        }

        impl<F: Formula> Erased for F {
            fn text(&self) -> String {
                super::text::of_formula(self)
            }

            fn statistic(&self) -> Statistic {
                Formula::statistic(self)
            }

            fn lift(&self, d: usize) -> Lift<'_> {
                Formula::lift(self, d)
            }

            fn columns(&self) -> Option<&[f64]> {
                Formula::columns(self)
            }

            fn divisor(&self) -> f64 {
                Formula::divisor(self)
            }

            $(fn $method(&self, pair: Pair<$number>) -> $number {
                self.eval(pair)
            })*
        }
    };
}
erased!(oracle: f64, single: Lane<f32, false>, double: Lane<f64, false>, source: Source);

impl Formula for Custom {
    const NAME: &'static str = "custom";
    const HELP: &'static str = "a formula from outside the crate";
    const PARAMETERS: &'static [Parameter] = &[];

    fn statistic(&self) -> Statistic {
        self.0.statistic()
    }

    fn eval<R: Num>(&self, pair: Pair<R>) -> R {
        fn at<R: Copy + 'static, S: Copy + 'static>(pair: Pair<R>, eval: impl FnOnce(Pair<S>) -> S) -> Option<R> {
            let pair = *(&pair as &dyn Any).downcast_ref::<Pair<S>>()?;
            (&eval(pair) as &dyn Any).downcast_ref::<R>().copied()
        }
        let formula = &self.0;
        at(pair, |pair| formula.oracle(pair))
            .or_else(|| at(pair, |pair| formula.single(pair)))
            .or_else(|| at(pair, |pair| formula.double(pair)))
            // Lanes that fuse multiplications and additions cost a call a value all the same: they run as the others do.
            .or_else(|| at(pair, |pair: Pair<Lane<f32, true>>| Lane(formula.single(pair.map(|v| Lane(v.0))).0)))
            .or_else(|| at(pair, |pair: Pair<Lane<f64, true>>| Lane(formula.double(pair.map(|v| Lane(v.0))).0)))
            .or_else(|| at(pair, |pair| formula.source(pair)))
            .expect("kernels are evaluated with f64, lanes and sources")
    }

    fn columns(&self) -> Option<&[f64]> {
        self.0.columns()
    }

    fn divisor(&self) -> f64 {
        self.0.divisor()
    }

    fn lift(&self, d: usize) -> Lift<'_> {
        self.0.lift(d)
    }
}
