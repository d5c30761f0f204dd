//! Elementary functions that the compiler can vectorise, and a way to compile a loop once for each instruction set
//! and pick the best one at run time, so that one portable binary is fast everywhere.
//!
//! A formula is written once, over [`Num`]. With `f64` it is the oracle (the standard library's functions); with
//! [`Lane`] it is branch-free arithmetic on one element, and the loop over a slice around it becomes vector code when
//! it runs inside [`dispatch`]; [`vectorized`] writes that for you.
//!
//! The other number types of a formula are `Source`, which writes it as CUDA code, and `Dual`, which differentiates it.
//!
//! [`dispatch`] compiles a loop for AVX-512, for AVX2 with FMA and for the baseline, and selects one at run time. Code that
//! contains formulas stands behind functions that are not generic; a generic one would be compiled again in every crate that
//! calls it. The loop of an activation knows its row of the table as a constant, so that no other formula is compiled into it.
//!
//! ```
//! use mercer_engine::simd::{Lane, Num, vectorized};
//!
//! /// The logistic function: the formula, once.
//! #[inline(always)]
//! fn logistic<T: Num>(x: T) -> T {
//!     T::of(1.0) / (T::of(1.0) + (-x).exp())
//! }
//!
//! vectorized! {
//!     fn all_logistic<FMA, 'a>(all: &'a mut [f32]) {
//!         for x in all {
//!             *x = logistic(Lane::<f32, FMA>(*x)).0;
//!         }
//!     }
//! }
//!
//! let mut x = vec![-1.0f32, 0.0, 3.0];
//! all_logistic(&mut x);
//! assert!((f64::from(x[2]) - logistic(3.0f64)).abs() < 1e-6);
//! ```

mod dual;
mod lane;
mod pack;
mod simplify;
pub mod source;

pub use dual::Dual;
pub use lane::Lane;
pub use pack::Pack;

use std::ops::{Add, Div, Mul, Neg, Sub};

/// A number a formula can be written over once: `f64` (the oracle), a [`Lane`], or a [`Dual`] of either.
///
/// A NaN operand gives NaN, except as the *second* operand of `max` and `min` and in a comparison.
/// `examples/own_kernel.rs` uses it.
pub trait Num:
    Copy + 'static + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self> + Neg<Output = Self>
{
    /// A constant.
    fn of(x: f64) -> Self;
    /// `e^self`: exactly 1 at 0, 0 below the normal range, infinity above it.
    fn exp(self) -> Self;
    /// Natural logarithm of a positive normal number.
    fn ln(self) -> Self;
    /// Square root.
    fn sqrt(self) -> Self;
    /// Absolute value.
    fn abs(self) -> Self;
    /// The larger of two; a NaN in `self` stays.
    fn max(self, other: Self) -> Self;
    /// The smaller of two; a NaN in `self` stays.
    fn min(self, other: Self) -> Self;
    /// Sine and cosine together, at the price of one.
    fn sin_cos(self) -> (Self, Self);
    /// Sine.
    #[inline(always)]
    fn sin(self) -> Self {
        self.sin_cos().0
    }
    /// Cosine.
    #[inline(always)]
    fn cos(self) -> Self {
        self.sin_cos().1
    }
    /// Arc sine on [−1, 1].
    fn asin(self) -> Self;
    /// Arc cosine on [−1, 1].
    fn acos(self) -> Self;
    /// The angle `θ` of the cosine `self`, and `sin θ − θ cos θ`; what rounding left outside [−1, 1] counts as ±1.
    #[inline(always)]
    fn angle(self) -> (Self, Self) {
        let one = Self::of(1.0);
        let cos = self.min(one).max(-one);
        let theta = cos.acos();
        let sin = ((one - cos) * (one + cos)).sqrt();
        (theta, sin - theta * cos)
    }
    /// The error function.
    fn erf(self) -> Self;
    /// Hyperbolic tangent.
    fn tanh(self) -> Self;
    /// `self * a + b`, fused where the instruction set can.
    fn mul_add(self, a: Self, b: Self) -> Self;
    /// `if a > b { then } else { otherwise }`.
    fn select_gt(a: Self, b: Self, then: Self, otherwise: Self) -> Self;

    /// The value of a function of the device's sources, where the number writes down what is done to it ([`source::Source`]); else none, and the
    /// caller computes. For sums that are too long to be written down term by term.
    #[inline(always)]
    fn called(_function: &'static str, _arguments: [Self; 3]) -> Option<Self> {
        None
    }

    /// `self^n` for `n < 64`. The loop has a fixed length and no branch, so that the loop around it still vectorises.
    #[inline(always)]
    fn powi(self, n: u32) -> Self {
        debug_assert!(n < 64, "powi takes exponents below 64");
        let (mut power, mut square) = (Self::of(1.0), self);
        for bit in 0..6 {
            power = if n >> bit & 1 == 1 { power * square } else { power };
            square = square * square;
        }
        power
    }
}

macro_rules! standard {
    ($($function:ident)*) => {$(
        fn $function(self) -> Self {
            f64::$function(self)
        }
    )*};
}

/// The oracle: the standard library's functions (and libm's `erf`, which the standard library lacks).
impl Num for f64 {
    fn of(x: f64) -> Self {
        x
    }
    standard!(exp ln sqrt abs asin acos tanh);
    fn max(self, other: Self) -> Self {
        if other > self { other } else { self }
    }
    fn min(self, other: Self) -> Self {
        if other < self { other } else { self }
    }
    fn sin_cos(self) -> (Self, Self) {
        f64::sin_cos(self)
    }
    fn erf(self) -> Self {
        libm::erf(self)
    }
    fn mul_add(self, a: Self, b: Self) -> Self {
        self * a + b
    }
    fn select_gt(a: Self, b: Self, then: Self, otherwise: Self) -> Self {
        if a > b { then } else { otherwise }
    }
    fn powi(self, n: u32) -> Self {
        f64::powi(self, n as i32)
    }
}

/// A loop to be compiled for every instruction set: give `run` the attribute `#[inline(always)]`, and likewise every
/// function of your own that it calls, so that the code lands inside the specialised copy.
pub trait SimdJob {
    /// What the job returns.
    type Output;
    /// The work, with [`Lane`]`::<_, FMA>` for its arithmetic.
    fn run<const FMA: bool>(self) -> Self::Output;
}

/// An instruction set that [`dispatch`] compiles for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What every CPU of the target has.
    Baseline,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, DQ, VL, BW.
    Avx512,
}

impl Level {
    /// The best one of this CPU.
    #[inline]
    pub fn best() -> Level {
        #[cfg(target_arch = "x86_64")]
        {
            macro_rules! has {
                ($($feature:tt)*) => { $(is_x86_feature_detected!($feature))&&* };
            }
            if has!("avx512f" "avx512dq" "avx512vl" "avx512bw" "fma") {
                return Level::Avx512;
            }
            if has!("avx2" "fma") {
                return Level::Avx2;
            }
        }
        Level::Baseline
    }
}

/// Runs `job` in the copy compiled for the best instruction set present.
#[inline]
pub fn dispatch<J: SimdJob>(job: J) -> J::Output {
    dispatch_at(Level::best(), job)
}

/// A loop of plain arithmetic, without [`Lane`]; see [`vectorized`].
#[doc(hidden)]
pub struct Plain<W>(pub W);

impl<R, W: FnOnce() -> R> SimdJob for Plain<W> {
    type Output = R;
    #[inline(always)]
    fn run<const FMA: bool>(self) -> R {
        (self.0)()
    }
}

/// `vectorized!(loop)`: the value of `loop`, run in the copy compiled for the best instruction set present.
///
/// `vectorized! { fn name<FMA, 'a, T: Bound>(arguments) { loops } }`: a function whose loops are compiled so, where `FMA` is
/// the argument of [`Lane`]: whether products and sums may fuse.
#[macro_export]
macro_rules! vectorized {
    (
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident<$FMA:ident, $a:lifetime $(, $T:ident: $bound:path)* $(; const $C:ident: usize)?>(
            $($argument:ident: $type:ty),* $(,)?
        ) $body:block
    ) => {
        $(#[$attribute])*
        #[allow(clippy::needless_lifetimes, reason = "the job needs a name for it")]
        $visibility fn $name<$a, $($T: $bound,)* $(const $C: usize)?>($($argument: $type),*) {
            struct Job<$a, $($T,)* $(const $C: usize)?> {
                $($argument: $type),*
            }
            impl<$a, $($T: $bound,)* $(const $C: usize)?> $crate::simd::SimdJob for Job<$a, $($T,)* $($C)?> {
                type Output = ();
                #[inline(always)]
                fn run<const $FMA: bool>(self) {
                    let Job { $($argument),* } = self;
                    $body
                }
            }
            $crate::simd::dispatch(Job::<$a, $($T,)* $($C)?> { $($argument),* });
        }
    };
    ($loop:expr) => {
        $crate::simd::dispatch($crate::simd::Plain(
            #[inline(always)]
            || $loop,
        ))
    };
}
pub use vectorized;

/// Runs `job` in the copy for `level`, or for the best level below it that the CPU has.
#[inline]
pub fn dispatch_at<J: SimdJob>(level: Level, job: J) -> J::Output {
    match level.min(Level::best()) {
        // SAFETY: `Level::best` has found every feature that the callee is compiled for.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { run_avx512(job) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { run_avx2(job) },
        // Every 64-bit ARM has fused multiply-add; baseline x86-64 has not.
        _ => job.run::<{ cfg!(target_arch = "aarch64") }>(),
    }
}

/// # Safety
/// The CPU has these instructions.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma")]
fn run_avx512<J: SimdJob>(job: J) -> J::Output {
    job.run::<true>()
}

/// # Safety
/// The CPU has these instructions.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn run_avx2<J: SimdJob>(job: J) -> J::Output {
    job.run::<true>()
}

#[cfg(test)]
mod tests;
