//! Batch norm: each channel is shifted and scaled by its mean and variance over the batch, or by stored ones.
//!
//! A row holds `[channels, plane]`; the plane has one element if the data are not images.

use super::cuda::{Arg, args, images as cuda};
use super::parallel::{Parts, for_each, for_each_chunk};
use super::reduce::{dot, sum, sum_of};
use super::tensor::{Stack, StackMut, Tensor, on_gpu};
use crate::simd::vectorized;

/// ε, added to variances.
pub const EPSILON: f32 = 1e-5;

/// Channel `c` of a batch `[batch, channels·plane]`.
#[derive(Clone, Copy)]
struct Channel {
    c: usize,
    channels: usize,
    plane: usize,
}

impl Channel {
    fn planes(self, x: &[f32]) -> impl Iterator<Item = &[f32]> {
        x.chunks_exact(self.plane).skip(self.c).step_by(self.channels)
    }
}

/// Mean and variance of one channel.
fn moments(x: &[f32], channel: Channel) -> (f64, f64) {
    let n = (x.len() / channel.channels) as f64;
    vectorized!({
        let mean = channel.planes(x).map(|p| f64::from(sum(p))).sum::<f64>() / n;
        let shift = mean as f32;
        let squares = |plane| f64::from(sum_of(plane, |x| (x - shift) * (x - shift)));
        let total: f64 = channel.planes(x).map(squares).sum();
        (mean, total / n)
    })
}

/// Mean and biased variance of each channel: `x` `[k, b, channels·plane]` or shared, `statistics` `[k, 2, channels]`.
pub fn batch_statistics(x: Stack<'_>, statistics: &mut Tensor) {
    let (count, two, channels) = statistics.as_matrices();
    assert!(two == 2 && x.cols.is_multiple_of(channels), "batch_statistics of {} columns, {channels} channels", x.cols);
    on_gpu!(statistics, |gpu| cuda::batch_statistics(gpu, x, statistics));
    let plane = x.cols / channels;
    let out = Parts::new(statistics.host_mut());
    for_each(count * channels, 4 * count * x.rows * x.cols, |task| {
        let (j, c) = (task / channels, task % channels);
        let (mean, variance) = moments(x.host(j), Channel { c, channels, plane });
        let at = 2 * j * channels + c;
        // SAFETY (both): tasks have different (j, c).
        unsafe { out.part(at..at + 1)[0] = mean as f32 };
        unsafe { out.part(at + channels..at + channels + 1)[0] = variance as f32 };
    });
}

/// The input of a batch norm, and what normalizes it.
#[derive(Clone, Copy, Debug)]
pub struct Normalized<'a> {
    /// `[k, b, channels·plane]` or shared.
    pub x: Stack<'a>,
    /// `[k, 2, channels]`: μ and σ².
    pub statistics: Stack<'a>,
    /// `[k, 2, channels]`: γ and β.
    pub affine: Stack<'a>,
    /// Whether the statistics are those of the batch, and move with x; else they are stored ones.
    pub of_batch: bool,
}

impl Normalized<'_> {
    /// For channel c of network j: mean μ, `s = 1/√(σ² + ε)`, scale γ, offset β.
    fn normalizer(&self, j: usize, c: usize) -> [f32; 4] {
        let (moments, affine) = (self.statistics.host(j), self.affine.host(j));
        let channels = affine.len() / 2;
        [moments[c], 1.0 / (moments[channels + c] + EPSILON).sqrt(), affine[c], affine[channels + c]]
    }
}

/// `y = γ (x − μ)/√(σ² + ε) + β`; `y` `[k, b, channels·plane]`.
pub fn batch_norm(norm: Normalized<'_>, y: &mut Tensor) {
    let (count, batch, n) = y.as_matrices();
    let (x, channels) = (norm.x, norm.affine.cols);
    assert!(x.rows == batch && x.cols == n && n % channels == 0, "batch_norm of {x}");
    on_gpu!(y, |gpu| cuda::batch_norm(gpu, norm, y));
    let plane = n / channels;
    for_each_chunk(y.host_mut(), n, 4 * count * batch * n, |row, y| {
        let j = row / batch;
        let x = &x.host(j)[row % batch * n..][..n];
        for (c, (y, x)) in y.chunks_exact_mut(plane).zip(x.chunks_exact(plane)).enumerate() {
            let [mean, s, gamma, beta] = norm.normalizer(j, c);
            y.iter_mut().zip(x).for_each(|(y, x)| *y = (gamma * s) * (x - mean) + beta);
        }
    });
}

/// `(Σ g, Σ g x̂)` over one channel, with `x̂ = (x − μ) s`.
fn channel_dots(x: &[f32], g: &[f32], [mean, s]: [f32; 2], channel: Channel) -> (f64, f64) {
    let (mut total, mut product) = (0.0, 0.0);
    if channel.plane == 1 {
        for (x, g) in channel.planes(x).zip(channel.planes(g)) {
            total += f64::from(g[0]);
            product += f64::from(g[0] * (x[0] - mean));
        }
        return (total, product * f64::from(s));
    }
    let mut centred = vec![0.0; channel.plane];
    for (x, g) in channel.planes(x).zip(channel.planes(g)) {
        centred.iter_mut().zip(x).for_each(|(d, x)| *d = x - mean);
        total += f64::from(sum(g));
        product += f64::from(dot(&centred, g));
    }
    (total, product * f64::from(s))
}

/// The VJP of [`batch_norm`]: `dγ = Σ g x̂` and `dβ = Σ g` in `grad` `[k, 2, channels]`, and optionally
/// `dx = γ s (g − mean g − x̂ mean(g x̂))`. The two means are zero unless the statistics are those of the batch.
///
/// `g` `[k, b, n]`, `dx` `[k, b, n]`; with stride 0, `dx` is the sum over the networks.
pub fn batch_norm_vjp(norm: Normalized<'_>, g: &Tensor, mut grad: StackMut<'_>, mut dx: Option<StackMut<'_>>) {
    let (count, rows, n) = g.as_matrices();
    let (x, channels, stride) = (norm.x, norm.affine.cols, grad.stride);
    assert!(x.rows == rows && x.cols == n && grad.count == count, "batch_norm_vjp of {g}");
    on_gpu!(g, |gpu| cuda::batch_norm_vjp(gpu, norm, g, &grad, dx));
    let (plane, size) = (n / channels, (rows * (n / channels)) as f64);
    let dx_stride = dx.as_ref().map_or(rows * n, |dx| dx.stride);
    let dx = dx.as_mut().map(|dx| Parts::new(dx.host_mut()));
    let (g, grad) = (g.host(), Parts::new(grad.host_mut()));
    // With a shared dx, one task adds the terms of all networks, one after the other.
    let (stacks, terms) = if dx_stride == 0 { (1, count) } else { (count, 1) };
    for_each(stacks * channels, 8 * count * rows * n, |task| {
        let c = task % channels;
        for (term, j) in (0..terms).map(|term| (term, task / channels + term)) {
            let [mean, s, gamma, _] = norm.normalizer(j, c);
            let (x, g, channel) = (x.host(j), &g[j * rows * n..(j + 1) * rows * n], Channel { c, channels, plane });
            let (total, product) = channel_dots(x, g, [mean, s], channel);
            let at = j * stride + c;
            // SAFETY (both): tasks have different (j, c).
            unsafe { grad.part(at..at + 1)[0] = product as f32 };
            unsafe { grad.part(at + channels..at + channels + 1)[0] = total as f32 };
            let Some(dx) = &dx else { continue };
            let (m0, m1) = if norm.of_batch { ((total / size) as f32, (product / size) as f32) } else { (0.0, 0.0) };
            for (i, (x, g)) in channel.planes(x).zip(channel.planes(g)).enumerate() {
                let at = j * dx_stride + (i * channels + c) * plane;
                // SAFETY: as above; only one task writes the planes of a channel.
                let dx = unsafe { dx.part(at..at + plane) };
                let back = |x: f32, g: f32| gamma * s * (g - m0 - (x - mean) * s * m1);
                let all = dx.iter_mut().zip(x.iter().zip(g));
                if term == 0 {
                    all.for_each(|(dx, (x, g))| *dx = back(*x, *g));
                } else {
                    all.for_each(|(dx, (x, g))| *dx += back(*x, *g));
                }
            }
        }
    });
}

/// The JVP of [`batch_norm`]: `t = γ s (ẋ − mean ẋ − x̂ mean(ẋ x̂)) + γ̇ x̂ + β̇`, with means as in [`batch_norm_vjp`]; a
/// missing tangent is zero. `dx` `[k, b, n]` or shared, `daffine` `[k, 2, channels]`, `t` `[k, b, n]`.
pub fn batch_norm_jvp(norm: Normalized<'_>, [dx, daffine]: [Option<Stack<'_>>; 2], t: &mut Tensor) {
    let (count, rows, n) = t.as_matrices();
    let (x, channels) = (norm.x, norm.affine.cols);
    assert!(x.rows == rows && x.cols == n, "batch_norm_jvp of {x} into {t}");
    on_gpu!(t, |gpu| cuda::batch_norm_jvp(gpu, norm, [dx, daffine], t));
    let (plane, size) = (n / channels, (rows * (n / channels)) as f64);
    let t = Parts::new(t.host_mut());
    for_each(count * channels, 8 * count * rows * n, |task| {
        let (j, c) = (task / channels, task % channels);
        let [mean, s, gamma, _] = norm.normalizer(j, c);
        let (dgamma, dbeta) = daffine.map_or((0.0, 0.0), |d| (d.host(j)[c], d.host(j)[channels + c]));
        let (x, channel) = (x.host(j), Channel { c, channels, plane });
        let dx = dx.map(|dx| dx.host(j));
        let dots = dx.filter(|_| norm.of_batch).map(|dx| channel_dots(x, dx, [mean, s], channel));
        let (m0, m1) = dots.map_or((0.0, 0.0), |(total, product)| ((total / size) as f32, (product / size) as f32));
        for (i, x) in channel.planes(x).enumerate() {
            let at = (i * channels + c) * plane;
            // SAFETY: tasks have different (j, c).
            let t = unsafe { t.part(j * rows * n + at..j * rows * n + at + plane) };
            for (p, (t, x)) in t.iter_mut().zip(x).enumerate() {
                let hat = (x - mean) * s;
                let moved = dx.map_or(0.0, |dx| gamma * s * (dx[at + p] - m0 - hat * m1));
                *t = moved + dgamma * hat + dbeta;
            }
        }
    });
}

/// `y_j ← (1 − share) y_j + share x_j`, an exponential moving average. `x` `[k, n]` or shared `[n]`, `y` `[k, n]`.
pub fn running_average(share: f32, x: &Tensor, mut y: StackMut<'_>) {
    let (count, n, stride) = (y.count, y.rows * y.cols, y.stride);
    assert!(x.len() == count * n || x.len() == n, "running_average of {x} into {y}");
    on_gpu!(x, |gpu| {
        let own = if x.len() == count * n { n } else { 0 };
        cuda::over_networks(gpu, "running_average", count, n, &args![Arg::size(n), share, x, own, cuda::out(&y)])
    });
    let y = y.host_mut();
    for (j, x) in x.host().chunks_exact(n.max(1)).cycle().take(count).enumerate() {
        y[j * stride..j * stride + n].iter_mut().zip(x).for_each(|(y, x)| *y = (1.0 - share) * *y + share * x);
    }
}
