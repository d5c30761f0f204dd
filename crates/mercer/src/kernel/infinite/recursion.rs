//! The layer-by-layer recursion of NNGP and NTK for networks whose covariance is a function of `(x·x', ‖x‖², ‖x'‖²)`.

use super::{DEEPEST, Expectations, Side, Step};
use crate::kernel::Pair;
use crate::simd::Num;

/// The covariances of two points at one place of the network.
#[derive(Clone, Copy)]
struct Covariances<R> {
    /// `K(x,x')`
    k: R,
    /// `Θ(x,x')`
    theta: R,
    /// `K(x,x)`
    a: R,
    /// `K(x',x')`
    b: R,
}

/// Θ (or K, without `NTK`) after all steps, for `pair` holding `x·x'/d` and the norms over d.
#[inline(always)]
pub(super) fn kernel<R: Num, const NTK: bool>(steps: &[Step], pair: Pair<R>) -> R {
    let mut now = Covariances { k: pair.s, theta: R::of(0.0), a: pair.xx, b: pair.yy };
    let mut aside = [now; DEEPEST];
    let mut top = 0;
    for step in steps {
        match step {
            Step::Dense(v) => {
                let (w, b) = (R::of(v.weight), R::of(v.bias));
                now.k = w * now.k + b;
                now.a = w * now.a + b;
                now.b = w * now.b + b;
                if NTK {
                    now.theta = now.k + w * now.theta;
                }
            }
            Step::Activation(phi) => {
                let (value, slope) = phi.dual(now.k, Side::of(now.a), Side::of(now.b));
                now.k = value;
                now.a = phi.second_moment(now.a);
                now.b = phi.second_moment(now.b);
                if NTK {
                    now.theta = now.theta * slope;
                }
            }
            Step::Fork => {
                aside[top] = now;
                top += 1;
            }
            Step::Shortcut => std::mem::swap(&mut now, &mut aside[top - 1]),
            Step::Join => {
                top -= 1;
                let other = aside[top];
                now.k = now.k + other.k;
                now.theta = now.theta + other.theta;
                now.a = now.a + other.a;
                now.b = now.b + other.b;
            }
            // A vector is flat already; the other steps need images.
            Step::Flatten | Step::Conv(..) | Step::AvgPool(_) | Step::Gap => {}
        }
    }
    if NTK { now.theta } else { now.k }
}
