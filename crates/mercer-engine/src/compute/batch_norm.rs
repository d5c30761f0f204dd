//! Batch norm: each channel is shifted and scaled by its mean and variance over the batch, or by stored ones.
//!
//! A row holds `[channels, plane]`; the plane has one element if the data are not images.

use super::cuda::{Arg, args, images as cuda};
use super::parallel::{for_each, for_each_chunk, map, pieces};
use super::reduce::{dot, sum, sum_of};
use super::stack::{Stack, StackMut};
use super::tensor::{Tensor, on_gpu};
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
    x.check(count);
    on_gpu!(statistics, |gpu| cuda::batch_statistics(gpu, x, statistics));
    let plane = x.cols / channels;
    let all = map(count * channels, 4 * count * x.rows * x.cols, |task| {
        moments(x.host(task / channels), Channel { c: task % channels, channels, plane })
    });
    write_pairs(&all, channels, pieces(statistics.host_mut(), 2 * channels, count));
}

/// Writes the pair of channel c of network j to places c and `channels + c` of `out_j` `[2, channels]`.
fn write_pairs<'a>(pairs: &[(f64, f64)], channels: usize, out: impl Iterator<Item = &'a mut [f32]>) {
    for (pairs, out) in pairs.chunks_exact(channels).zip(out) {
        for (c, &(first, second)) in pairs.iter().enumerate() {
            (out[c], out[channels + c]) = (first as f32, second as f32);
        }
    }
}

/// The input of a batch norm, and what normalizes it.
#[derive(Clone, Copy, Debug)]
pub struct Normalized<'a> {
    /// `[k, b, channels·plane]` or shared.
    pub x: Stack<'a>,
    /// `[k, 2, channels]`: μ and σ².
    pub statistics: Stack<'a>,
    /// `[k, 2, channels]`: γ and β; without them, one and zero.
    pub affine: Option<Stack<'a>>,
    /// Whether the statistics are those of the batch, and move with x; else they are stored ones.
    pub of_batch: bool,
}

impl Normalized<'_> {
    /// Channels of a row.
    pub(super) fn channels(&self) -> usize {
        self.statistics.cols
    }

    /// For channel c of network j: mean μ, `s = 1/√(σ² + ε)`, scale γ, offset β.
    fn normalizer(&self, j: usize, c: usize) -> [f32; 4] {
        let (moments, channels) = (self.statistics.host(j), self.channels());
        let [gamma, beta] =
            self.affine.map_or([1.0, 0.0], |affine| [c, channels + c].map(|place| affine.host(j)[place]));
        [moments[c], 1.0 / (moments[channels + c] + EPSILON).sqrt(), gamma, beta]
    }

    /// Panics unless there are inputs `[b, n]` and numbers of their channels for each of `count` networks.
    fn check(&self, [count, rows, n]: [usize; 3]) {
        let (x, channels) = (self.x, self.channels());
        assert!(x.rows == rows && x.cols == n && n % channels == 0, "batch norm of {x}, {channels} channels");
        let pairs = || [self.statistics].into_iter().chain(self.affine);
        assert!(pairs().all(|s| s.rows == 2 && s.cols == channels), "batch norm of {x}");
        pairs().chain([x]).for_each(|stack| stack.check(count));
    }

    /// `(Σ g x̂, Σ g)` of each channel c of each network j, at `j·channels + c`; `g(j)` `[b, n]`.
    fn dots<'a>(&self, count: usize, g: impl Fn(usize) -> &'a [f32] + Sync + Send) -> Vec<(f64, f64)> {
        let (x, channels) = (self.x, self.channels());
        map(count * channels, 4 * count * x.rows * x.cols, |task| {
            let (j, c) = (task / channels, task % channels);
            let [mean, s, ..] = self.normalizer(j, c);
            channel_dots(x.host(j), g(j), [mean, s], Channel { c, channels, plane: x.cols / channels })
        })
    }

    /// `g ↦ γ s (g − mean g − x̂ mean(g x̂))` of each channel of each network, from the sums [`Self::dots`]; the means are zero
    /// unless the statistics are those of the batch.
    fn projections(&self, dots: &[(f64, f64)]) -> Vec<Projection> {
        let channels = self.channels();
        let size = (self.x.rows * self.x.cols / channels) as f64;
        let of = |(at, &(product, total)): (usize, &(f64, f64))| {
            let [mean, s, gamma, _] = self.normalizer(at / channels, at % channels);
            let means = if self.of_batch { [total / size, product / size] } else { [0.0; 2] };
            Projection { mean, s, gain: gamma * s, means: means.map(|mean| mean as f32) }
        };
        dots.iter().enumerate().map(of).collect()
    }
}

/// The derivative of batch norm in one channel: `g ↦ gain (g − means₀ − x̂ means₁)` with `x̂ = (x − mean) s`.
#[derive(Clone, Copy)]
struct Projection {
    mean: f32,
    s: f32,
    gain: f32,
    means: [f32; 2],
}

impl Projection {
    fn hat(&self, x: f32) -> f32 {
        (x - self.mean) * self.s
    }

    fn of(&self, x: f32, g: f32) -> f32 {
        self.gain * (g - self.means[0] - self.hat(x) * self.means[1])
    }
}

/// `y = γ (x − μ)/√(σ² + ε) + β`; `y` `[k, b, channels·plane]`.
pub fn batch_norm(norm: Normalized<'_>, y: &mut Tensor) {
    let (count, batch, n) = y.as_matrices();
    let (x, channels) = (norm.x, norm.channels());
    norm.check([count, batch, n]);
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

/// `(Σ g x̂, Σ g)` over one channel, with `x̂ = (x − μ) s`.
fn channel_dots(x: &[f32], g: &[f32], [mean, s]: [f32; 2], channel: Channel) -> (f64, f64) {
    let (mut total, mut product) = (0.0, 0.0);
    if channel.plane == 1 {
        for (x, g) in channel.planes(x).zip(channel.planes(g)) {
            total += f64::from(g[0]);
            product += f64::from(g[0] * (x[0] - mean));
        }
        return (product * f64::from(s), total);
    }
    let mut centred = vec![0.0; channel.plane];
    for (x, g) in channel.planes(x).zip(channel.planes(g)) {
        centred.iter_mut().zip(x).for_each(|(d, x)| *d = x - mean);
        total += f64::from(sum(g));
        product += f64::from(dot(&centred, g));
    }
    (product * f64::from(s), total)
}

/// The VJP of [`batch_norm`]: `dγ = Σ g x̂` and `dβ = Σ g` in `grad` `[k, 2, channels]`, and optionally
/// `dx = γ s (g − mean g − x̂ mean(g x̂))`. The two means are zero unless the statistics are those of the batch.
///
/// `g` `[k, b, n]`, `dx` `[k, b, n]`, or `[b, n]` for the sum over the networks.
pub fn batch_norm_vjp(norm: Normalized<'_>, g: &Tensor, mut grad: StackMut<'_>, mut dx: Option<StackMut<'_>>) {
    let (count, rows, n) = g.as_matrices();
    let (x, channels) = (norm.x, norm.channels());
    norm.check([count, rows, n]);
    assert!(grad.count == count && grad.rows * grad.cols == 2 * channels, "batch_norm_vjp of {g} into {grad}");
    if let Some(dx) = &dx {
        assert!(dx.networks() == count && dx.rows == rows && dx.cols == n, "batch_norm_vjp of {g} into {dx}");
    }
    on_gpu!(g, |gpu| cuda::batch_norm_vjp(gpu, norm, g, &grad, dx));
    let (g, plane) = (g.host(), n / channels);
    let dots = norm.dots(count, |j| &g[j * rows * n..(j + 1) * rows * n]);
    write_pairs(&dots, channels, grad.host_matrices());
    let Some(dx) = &mut dx else { return };
    // A task has one row of dx. Where the networks share it, their terms are added one after the other.
    let (terms, back) = (dx.terms, norm.projections(&dots));
    let matrices = dx.host_matrices().enumerate();
    let tasks = matrices.flat_map(|(j, dx)| pieces(dx, n, rows).enumerate().map(move |(i, dx)| (j, i, dx)));
    for_each(tasks, 4 * count * rows * n, |(first, i, dx)| {
        for j in first..first + terms {
            let (x, g) = (&x.host(j)[i * n..(i + 1) * n], &g[(j * rows + i) * n..(j * rows + i + 1) * n]);
            let planes = x.chunks_exact(plane).zip(g.chunks_exact(plane)).zip(&back[j * channels..]);
            for (dx, ((x, g), back)) in dx.chunks_exact_mut(plane).zip(planes) {
                let all = dx.iter_mut().zip(x.iter().zip(g));
                if j == first {
                    all.for_each(|(dx, (x, g))| *dx = back.of(*x, *g));
                } else {
                    all.for_each(|(dx, (x, g))| *dx += back.of(*x, *g));
                }
            }
        }
    });
}

/// The JVP of [`batch_norm`]: `t = γ s (ẋ − mean ẋ − x̂ mean(ẋ x̂)) + γ̇ x̂ + β̇`, with means as in [`batch_norm_vjp`]; a
/// missing tangent is zero. `dx` `[k, b, n]` or shared, `daffine` `[k, 2, channels]`, `t` `[k, b, n]`.
pub fn batch_norm_jvp(norm: Normalized<'_>, [dx, daffine]: [Option<Stack<'_>>; 2], t: &mut Tensor) {
    let (count, rows, n) = t.as_matrices();
    let (x, channels) = (norm.x, norm.channels());
    norm.check([count, rows, n]);
    assert!(dx.is_none_or(|dx| dx.rows == rows && dx.cols == n), "batch_norm_jvp of a tangent that is not of {x}");
    assert!(daffine.is_none_or(|d| d.rows == 2 && d.cols == channels), "batch_norm_jvp of {x} into {t}");
    [dx, daffine].iter().flatten().for_each(|stack| stack.check(count));
    on_gpu!(t, |gpu| cuda::batch_norm_jvp(gpu, norm, [dx, daffine], t));
    let plane = n / channels;
    let dots = dx.filter(|_| norm.of_batch).map(|dx| norm.dots(count, move |j| dx.host(j)));
    let forward = norm.projections(&dots.unwrap_or_else(|| vec![(0.0, 0.0); count * channels]));
    for_each_chunk(t.host_mut(), n, 4 * count * rows * n, |row, t| {
        let (j, i) = (row / rows, row % rows);
        let x = &x.host(j)[i * n..(i + 1) * n];
        let dx = dx.map(|dx| &dx.host(j)[i * n..(i + 1) * n]);
        for (c, (t, at)) in t.chunks_exact_mut(plane).zip((0..n).step_by(plane)).enumerate() {
            let forward = forward[j * channels + c];
            let (dgamma, dbeta) = daffine.map_or((0.0, 0.0), |d| (d.host(j)[c], d.host(j)[channels + c]));
            for (p, (t, x)) in t.iter_mut().zip(&x[at..]).enumerate() {
                let moved = dx.map_or(0.0, |dx| forward.of(*x, dx[at + p]));
                *t = moved + dgamma * forward.hat(*x) + dbeta;
            }
        }
    });
}

/// `y_j ← (1 − share) y_j + share x_j`, an exponential moving average. `x` `[k, n]` or shared `[n]`, `y` `[k, n]`.
pub fn running_average(share: f32, x: &Tensor, mut y: StackMut<'_>) {
    let (count, n) = (y.count, y.rows * y.cols);
    assert!(x.len() == count * n || x.len() == n, "running_average of {x} into {y}");
    on_gpu!(x, |gpu| {
        let own = if x.len() == count * n { n } else { 0 };
        cuda::over_networks(gpu, "running_average", count, n, &args![Arg::size(n), share, x, own, cuda::out(&y)])
    });
    for (x, y) in x.host().chunks_exact(n.max(1)).cycle().zip(y.host_matrices()) {
        y.iter_mut().zip(x).for_each(|(y, x)| *y = (1.0 - share) * *y + share * x);
    }
}
