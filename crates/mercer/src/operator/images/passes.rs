//! The loops over a patch: products of pixels, sums over windows, activations.

use super::{Patch, Size};
use crate::compute::Activation;
use crate::kernel::infinite::Variances;
use crate::net::Window;
use crate::operator::Real;
use crate::operator::tile::aligned::Aligned;
use crate::operator::tile::network::{self, Covariances, LANES, Sides, lanes};
use crate::simd::{Num, vectorized};
use std::ops::Range;

vectorized! {
    /// `out[p] = Σ_c x[c, p] y[c, p+δ]` over a patch; `X` lanes of x, `LANES` of y.
    pub(super) fn products<FMA, 'a, T: Real; const X: usize>(
        x: &'a [T],
        y: &'a [T],
        size: Size,
        channels: usize,
        patch: &'a Patch,
        offset: [isize; 2],
        out: &'a mut [T],
    ) {
        let (h, w) = size;
        let shift = offset[0] * w as isize + offset[1];
        let mut groups = out.as_chunks_mut::<LANES>().0.iter_mut();
        for row in patch.y.clone() {
            for column in patch.x.clone() {
                let p = row * w + column;
                let q = p.wrapping_add_signed(shift);
                let mut sum = [T::of(0.0).lane::<FMA>(); LANES];
                for c in 0..channels {
                    let x = lanes::<T, X>(x, (c * h * w + p) * X);
                    let y = lanes::<T, LANES>(y, (c * h * w + q) * LANES);
                    for l in 0..LANES {
                        sum[l] = x[l].lane::<FMA>().mul_add(y[l].lane::<FMA>(), sum[l]);
                    }
                }
                let out = groups.next().expect("a group for each position");
                for l in 0..LANES {
                    out[l] = T::of_lane(sum[l]);
                }
            }
        }
    }
}

/// A convolution of patches: `K ← C_w mean_e K + C_b`, `Θ ← K + C_w mean_e Θ`.
pub(super) struct Convolution<T> {
    window: Window,
    pads: [usize; 2],
    /// `C_w/size²`
    weight: T,
    /// `C_b`
    bias: T,
    before: Patch,
    pub after: Patch,
}

impl<T: Real> Convolution<T> {
    /// Of an image of this size.
    pub fn new(window: Window, variances: Variances, size: Size, before: Patch, after: Patch) -> Self {
        let weight = T::of(variances.weight / (window.size * window.size) as f64);
        let pads = [window.along(size.0).before, window.along(size.1).before];
        Convolution { window, pads, weight, bias: T::of(variances.bias), before, after }
    }

    /// From `from` to `to`, with `each_row(i, K, Θ)` on every row while it is at hand. An empty Θ before is zero; without `ntk`
    /// it stays empty.
    pub fn run(
        &self,
        ntk: bool,
        from: &Covariances<T>,
        to: &mut Covariances<T>,
        buffer: &mut Aligned<T>,
        each_row: impl Fn(usize, &mut [T], &mut [T]),
    ) {
        let width = self.after.x.len() * LANES;
        let length = self.after.y.len() * width;
        to.k.room(length);
        to.theta.room(if ntk { length } else { 0 });
        // Sums with a window's width of zeros on either side, and a row of biases.
        let (inside, margin) = (self.before.x.len() * LANES, self.window.size * LANES);
        buffer.room(margin + inside + margin + width);
        let (sums, bias) = buffer.split_at_mut(margin + inside + margin);
        sums[..margin].fill(T::default());
        sums[margin + inside..].fill(T::default());
        bias.fill(self.bias);
        for i in 0..self.after.y.len() {
            let row = i * width..(i + 1) * width;
            let (k, theta) = (&mut to.k[row.clone()], if ntk { &mut to.theta[row] } else { &mut [][..] });
            window_row(self, i, from, sums, bias, k, theta);
            each_row(i, k, theta);
        }
    }
}

vectorized! {
    /// One row of [`Convolution::run`]: `sums` `[size + before.x + size, LANES]`; `bias`, `k`, `theta` `[after.x, LANES]`.
    fn window_row<FMA, 'a, T: Real>(
        convolution: &'a Convolution<T>,
        row: usize,
        from: &'a Covariances<T>,
        sums: &'a mut [T],
        bias: &'a [T],
        k: &'a mut [T],
        theta: &'a mut [T],
    ) {
        let Convolution { window, pads, before, after, .. } = convolution;
        let rows = covered(*window, pads[0], after.y.start + row, &before.y);
        let inside = window.size * LANES..(window.size + before.x.len()) * LANES;
        down::<T, FMA>(&from.k, rows.clone(), &mut sums[inside.clone()]);
        convolution.across::<FMA>(sums, bias, k);
        if theta.is_empty() {
            return;
        }
        if from.theta.is_empty() {
            theta.copy_from_slice(k);
            return;
        }
        down::<T, FMA>(&from.theta, rows, &mut sums[inside]);
        convolution.across::<FMA>(sums, k, theta);
    }
}

/// The places of `within`, counted from its start, that the window `q` covers.
#[inline(always)]
fn covered(window: Window, pad: usize, q: usize, within: &Range<usize>) -> Range<usize> {
    let start = q * window.stride;
    let lo = start.max(within.start + pad) - pad - within.start;
    let hi = (start + window.size).min(within.end + pad).max(pad + within.start) - pad - within.start;
    lo..hi.max(lo)
}

/// `sums` ← the sum of these rows, each as long as `sums`.
#[inline(always)]
fn down<T: Real, const FMA: bool>(from: &[T], rows: Range<usize>, sums: &mut [T]) {
    let width = sums.len();
    let row = |y: usize| &from[y * width..(y + 1) * width];
    match rows.len() {
        2 => {
            for ((sum, a), b) in sums.iter_mut().zip(row(rows.start)).zip(row(rows.start + 1)) {
                *sum = T::of_lane(a.lane::<FMA>() + b.lane::<FMA>());
            }
        }
        3 => {
            let (a, b, c) = (row(rows.start), row(rows.start + 1), row(rows.start + 2));
            for (((sum, a), b), c) in sums.iter_mut().zip(a).zip(b).zip(c) {
                *sum = T::of_lane(a.lane::<FMA>() + b.lane::<FMA>() + c.lane::<FMA>());
            }
        }
        _ => {
            sums.fill(T::default());
            for y in rows {
                for (sum, from) in sums.iter_mut().zip(row(y)) {
                    *sum = T::of_lane(sum.lane::<FMA>() + from.lane::<FMA>());
                }
            }
        }
    }
}

impl<T: Real> Convolution<T> {
    /// `to[q] = (C_w/size²) Σ_e sums[sq+e] + plus[q]` along a row.
    #[inline(always)]
    fn across<const FMA: bool>(&self, sums: &[T], plus: &[T], to: &mut [T]) {
        let Window { size, stride, .. } = self.window;
        let weight = self.weight.lane::<FMA>();
        // Where the first window begins. The margins are as wide as a window, and no window lies further out.
        let first = size + self.after.x.start * stride - (self.pads[1] + self.before.x.start);
        if (size, stride) == (3, 1) {
            // Slices moved against each other.
            let (at, n) = (first * LANES, to.len());
            let [a, b, c] = [0, LANES, 2 * LANES].map(
                #[inline(always)]
                |e| &sums[at + e..at + e + n],
            );
            for ((((to, plus), a), b), c) in to.iter_mut().zip(plus).zip(a).zip(b).zip(c) {
                let sum = a.lane::<FMA>() + b.lane::<FMA>() + c.lane::<FMA>();
                *to = T::of_lane(sum.mul_add(weight, plus.lane::<FMA>()));
            }
            return;
        }
        let (to, plus) = (to.as_chunks_mut::<LANES>().0, plus.as_chunks::<LANES>().0);
        for (j, (to, plus)) in to.iter_mut().zip(plus).enumerate() {
            let mut sum = [T::of(0.0).lane::<FMA>(); LANES];
            for x in first + j * stride..first + j * stride + size {
                let from = lanes::<T, LANES>(sums, x * LANES);
                for l in 0..LANES {
                    sum[l] = sum[l] + from[l].lane::<FMA>();
                }
            }
            for l in 0..LANES {
                to[l] = T::of_lane(sum[l].mul_add(weight, plus[l].lane::<FMA>()));
            }
        }
    }
}

/// An activation on a patch of an image `width` wide.
pub(super) struct PatchActivation<'a, T, const X: usize> {
    pub phi: Activation,
    pub width: usize,
    pub patch: Patch,
    pub offset: [isize; 2],
    pub x: Sides<'a, T, X>,
    pub y: Sides<'a, T, LANES>,
}

impl<T: Real, const X: usize> PatchActivation<'_, T, X> {
    /// On the i-th row of the patch.
    pub fn row(&self, i: usize, k: &mut [T], theta: &mut [T]) {
        let p = (self.patch.y.start + i) * self.width + self.patch.x.start;
        let q = p.wrapping_add_signed(self.offset[0] * self.width as isize + self.offset[1]);
        network::activate(self.phi, k, theta, self.x.starting_at(p), self.y.starting_at(q));
    }

    /// On all rows.
    pub fn all(&self, now: &mut Covariances<T>) {
        let row = self.patch.x.len() * LANES;
        for i in 0..self.patch.y.len() {
            let range = i * row..(i + 1) * row;
            let theta = if now.theta.is_empty() { &mut [][..] } else { &mut now.theta[range.clone()] };
            self.row(i, &mut now.k[range], theta);
        }
    }
}
