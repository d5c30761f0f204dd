//! Images in bf16, channel last, and the primitives by which a network of convolutions and batch norms trains on them.
//!
//! An image is stored as `[height·width, channels]`, so that a pixel's channels lie side by side, as tensor cores read them. The number
//! of channels is a multiple of eight; images with fewer are filled up with zeros. Numbers are rounded to bf16 when they are
//! stored. Sums, statistics, parameters and their gradients are f32.

use super::batch_norm::EPSILON;
use super::conv::{Convolution, conv2d, conv2d_vjp_input, conv2d_vjp_weights};
use super::cuda::halves as cuda;
use super::formula::Activation;
use super::gemm::Store;
use super::stack::{Stack, StackMut};
use super::tensor::{Device, DeviceArray, Tensor, on_gpu};

/// Numbers in bf16, by their bits.
pub type Halves = DeviceArray<u16>;

/// Channels that are read at a time; the channels of an image are a multiple of them.
pub const CHANNELS: usize = 8;

/// Most channels that the kernels of batch norm take.
pub const MOST_CHANNELS: usize = 2048;

/// The nearest bf16, ties to even; NaN stays NaN.
pub fn narrow(x: f32) -> u16 {
    let bits = x.to_bits();
    if x.is_nan() {
        return 0x7fff;
    }
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// The number of these bits.
pub fn widen(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Whether a device convolves images in bf16.
pub fn available(device: Device) -> bool {
    match device.gpu() {
        Ok(Some(gpu)) => cuda::available(gpu),
        Ok(None) => true,
        Err(_) => false,
    }
}

/// `out` `[b, plane, c']` ← images `x` `[b, c·plane]` of f32 channel by channel; channels from c on are zero.
pub fn images(x: &Tensor, channels: usize, out: &mut Halves) {
    let (_, b, n) = x.as_matrices();
    let (plane, padded) = (n / channels, out.len() * channels / x.len().max(1));
    assert!(n == plane * channels && padded >= channels && out.len() == b * plane * padded, "images of {x} into {out}");
    on_gpu!(x, |gpu| cuda::images(gpu, x, [b, channels, plane, padded], out));
    let x = x.host();
    for (at, out) in out.host_mut().chunks_exact_mut(padded).enumerate() {
        let (image, pixel) = (at / plane, at % plane);
        out.fill(0);
        let from = out.iter_mut().take(channels).enumerate();
        from.for_each(|(c, out)| *out = narrow(x[(image * channels + c) * plane + pixel]));
    }
}

/// `out` `[o, size², c']` ← filters `w` `[o, c·size²]`; `shape` has c' input channels, of which those from c on have no weights.
pub fn filters(shape: &Convolution, w: Stack<'_>, out: &mut Halves) {
    let (taps, padded) = (shape.size * shape.size, shape.image[0]);
    let channels = w.cols / taps;
    assert!(
        w.rows == shape.channels && w.cols == channels * taps && out.len() == w.rows * taps * padded,
        "filters {w} of {shape:?} into {out}"
    );
    on_gpu!(out, |gpu| cuda::filters(gpu, w, [w.rows, channels, taps, padded], out));
    let w = w.host(0);
    for (at, out) in out.host_mut().chunks_exact_mut(padded).enumerate() {
        let (o, tap) = (at / taps, at % taps);
        out.fill(0);
        let from = out.iter_mut().take(channels).enumerate();
        from.for_each(|(c, out)| *out = narrow(w[(o * channels + c) * taps + tap]));
    }
}

/// The adjoint of [`filters`]: `grad` `[o, c·size²]` ← `dw` `[o, size², c']`.
pub fn filter_gradient(shape: &Convolution, dw: &Halves, mut grad: StackMut<'_>) {
    let (taps, padded) = (shape.size * shape.size, shape.image[0]);
    let (rows, channels) = (grad.rows, grad.cols / taps);
    assert!(
        rows == shape.channels && grad.cols == channels * taps && dw.len() == rows * taps * padded,
        "filter gradient {dw} of {shape:?} into {grad}"
    );
    on_gpu!(dw, |gpu| cuda::filter_gradient(gpu, dw, [rows, channels, taps, padded], &grad));
    let dw = dw.host();
    for (at, grad) in grad.host_matrices().flatten().enumerate() {
        let (o, c, tap) = (at / (channels * taps), at / taps % channels, at % taps);
        *grad = widen(dw[(o * taps + tap) * padded + c]);
    }
}

/// `y = w ⋆ x`: `x` `[b, plane, c]`, `w` `[o, size², c]`, `y` `[b, plane', o]`.
pub fn convolve(shape: &Convolution, x: &Halves, w: &Halves, y: &mut Halves) {
    let batch = batch_of(shape, x, w, y);
    on_gpu!(x, |gpu| cuda::convolve(gpu, shape, batch, cuda::Direction::Forward, [x, w, y]));
    let (x, w, mut out) = (planes(x, shape.image), of_filters(shape, w), zeros(&[1, batch, y.len() / batch]));
    conv2d(shape, x.stack(), w.stack(), None, Activation::Identity, Store::Replace, &mut out, None);
    channels_last(&out, shape.plane_out(), y);
}

/// The gradient with respect to the images: `dx = wᵀ ⋆ g`.
pub fn convolve_vjp_input(shape: &Convolution, g: &Halves, w: &Halves, dx: &mut Halves) {
    let batch = batch_of(shape, dx, w, g);
    on_gpu!(g, |gpu| cuda::convolve(gpu, shape, batch, cuda::Direction::Input, [dx, w, g]));
    let ([rows, cols], plane) = (shape.out(), shape.image[1] * shape.image[2]);
    let mut g = planes(g, [shape.channels, rows, cols]);
    g.reshape(&[1, batch, shape.channels * rows * cols]).expect("the same size");
    let mut out = zeros(&[batch, dx.len() / batch]);
    conv2d_vjp_input(shape, &g, of_filters(shape, w).stack(), out.stack_mut());
    channels_last(&out, plane, dx);
}

/// The gradient with respect to the filters: `dw = Σ_images g ⋆ x`.
pub fn convolve_vjp_weights(shape: &Convolution, x: &Halves, g: &Halves, dw: &mut Halves) {
    let batch = batch_of(shape, x, dw, g);
    on_gpu!(g, |gpu| cuda::convolve(gpu, shape, batch, cuda::Direction::Weights, [x, dw, g]));
    let [rows, cols] = shape.out();
    let (x, mut g) = (planes(x, shape.image), planes(g, [shape.channels, rows, cols]));
    g.reshape(&[1, batch, shape.channels * rows * cols]).expect("the same size");
    let mut out = zeros(&[shape.channels, shape.patch()]);
    conv2d_vjp_weights(shape, x.stack(), &g, out.stack_mut());
    filters(shape, out.stack(), dw);
}

/// The number of images, after a look at all shapes.
fn batch_of(shape: &Convolution, x: &Halves, w: &Halves, y: &Halves) -> usize {
    let batch = x.len() / shape.pixels_in();
    assert!(
        x.len() == batch * shape.pixels_in()
            && w.len() == shape.channels * shape.patch()
            && y.len() == batch * shape.channels * shape.plane_out(),
        "a convolution {shape:?} of {x} by {w} into {y}"
    );
    batch
}

fn zeros(shape: &[usize]) -> Tensor {
    Tensor::zeros(Device::Cpu, shape).unwrap_or_else(|e| panic!("{e}"))
}

/// Images `[b, plane, c]` as f32 channel by channel, `[b, c·plane]`.
fn planes(x: &Halves, [channels, height, width]: [usize; 3]) -> Tensor {
    let plane = height * width;
    let mut out = zeros(&[x.len() / (channels * plane), channels * plane]);
    let x = x.host();
    for (at, out) in out.host_mut().iter_mut().enumerate() {
        let (image, c, pixel) = (at / (channels * plane), at / plane % channels, at % plane);
        *out = widen(x[(image * plane + pixel) * channels + c]);
    }
    out
}

/// Filters `[o, size², c]` as f32, `[o, c·size²]`.
fn of_filters(shape: &Convolution, w: &Halves) -> Tensor {
    let mut out = zeros(&[shape.channels, shape.patch()]);
    filter_gradient(shape, w, out.stack_mut());
    out
}

/// The inverse of [`planes`], rounded.
fn channels_last(x: &Tensor, plane: usize, out: &mut Halves) {
    let (_, _, n) = x.as_matrices();
    let (x, channels) = (x.host(), n / plane);
    for (at, out) in out.host_mut().iter_mut().enumerate() {
        let (image, pixel, c) = (at / n, at / channels % plane, at % channels);
        *out = narrow(x[(image * channels + c) * plane + pixel]);
    }
}

/// Mean and biased variance of each channel: `z` `[·, channels]`, `statistics` `[1, 2, channels]`.
pub fn statistics(z: &Halves, statistics: &mut Tensor) {
    let channels = statistics.len() / 2;
    check_channels(z, channels);
    on_gpu!(z, |gpu| cuda::statistics(gpu, z, statistics));
    let (n, out) = ((z.len() / channels) as f64, statistics.host_mut());
    for c in 0..channels {
        let values = || z.host().iter().skip(c).step_by(channels).map(|v| f64::from(widen(*v)));
        let mean = values().sum::<f64>() / n;
        let variance = values().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
        (out[c], out[channels + c]) = (mean as f32, variance as f32);
    }
}

fn check_channels(z: &Halves, channels: usize) {
    assert!(
        channels.is_multiple_of(CHANNELS) && channels <= MOST_CHANNELS && z.len().is_multiple_of(channels),
        "batch norm of {channels} channels of {z}"
    );
}

/// A batch norm by the statistics of its batch, with ReLU where `relu` says so: `y = φ(γ s (z − μ) + β + plus)`.
#[derive(Clone, Copy, Debug)]
pub struct HalfNorm<'a> {
    /// `[·, channels]`
    pub z: &'a Halves,
    /// `[1, 2, channels]`: μ and σ²; `s = 1/√(σ² + ε)`.
    pub statistics: &'a Tensor,
    /// `[2, channels]`: γ and β.
    pub affine: Stack<'a>,
    /// Whether φ is ReLU; otherwise the identity.
    pub relu: bool,
}

impl HalfNorm<'_> {
    pub(super) fn channels(&self) -> usize {
        self.statistics.len() / 2
    }

    fn check(&self) {
        check_channels(self.z, self.channels());
        assert!(self.affine.rows * self.affine.cols == 2 * self.channels(), "batch norm by {}", self.affine);
    }

    /// Of each channel: the factor γ s, and what is added, β − γ s μ.
    fn line(&self) -> Vec<[f32; 2]> {
        let (channels, moments, affine) = (self.channels(), self.statistics.host(), self.affine.host(0));
        let of = |c: usize| {
            let factor = affine[c] / (moments[channels + c] + EPSILON).sqrt();
            [factor, affine[channels + c] - factor * moments[c]]
        };
        (0..channels).map(of).collect()
    }
}

/// `y` `[·, channels]`, see [`HalfNorm`]; `plus` is of the same shape.
pub fn batch_norm(norm: HalfNorm<'_>, plus: Option<&Halves>, y: &mut Halves) {
    norm.check();
    assert!(y.len() == norm.z.len() && plus.is_none_or(|plus| plus.len() == y.len()), "batch norm into {y}");
    on_gpu!(y, |gpu| cuda::batch_norm(gpu, norm, plus, y));
    let (line, channels, z) = (norm.line(), norm.channels(), norm.z.host());
    for (i, y) in y.host_mut().iter_mut().enumerate() {
        let [factor, offset] = line[i % channels];
        let value = factor.mul_add(widen(z[i]), offset) + plus.map_or(0.0, |plus| widen(plus.host()[i]));
        *y = narrow(if norm.relu { value.max(0.0) } else { value });
    }
}

/// The VJP of [`batch_norm`] from the gradient of y, which is `g`, or `g + more`: `dγ` and `dβ` into `grad` `[2, channels]`.
///
/// Where something was added, `y` and `dz` are given: `dz` is the gradient of z, and `g` becomes that of what was added. Otherwise `g`
/// becomes the gradient of z.
pub fn batch_norm_vjp(
    norm: HalfNorm<'_>,
    g: &mut Halves,
    more: Option<&Halves>,
    mut grad: StackMut<'_>,
    added: Option<(&Halves, &mut Halves)>,
) {
    norm.check();
    let (channels, len) = (norm.channels(), norm.z.len());
    assert!(
        g.len() == len
            && more.is_none_or(|more| more.len() == len)
            && grad.rows * grad.cols == 2 * channels
            && added.as_ref().is_none_or(|(y, dz)| y.len() == len && dz.len() == len),
        "batch_norm_vjp of {g} into {grad}"
    );
    on_gpu!(g, |gpu| cuda::batch_norm_vjp(gpu, norm, g, more, &grad, added));
    let (line, moments, z) = (norm.line(), norm.statistics.host(), norm.z.host());
    for (i, g) in g.host_mut().iter_mut().enumerate() {
        let [factor, offset] = line[i % channels];
        let value = added.as_ref().map_or_else(|| factor.mul_add(widen(z[i]), offset), |(y, _)| widen(y.host()[i]));
        let sum = widen(*g) + more.map_or(0.0, |more| widen(more.host()[i]));
        *g = narrow(if norm.relu && value <= 0.0 { 0.0 } else { sum });
    }
    let (mut sums, n) = (vec![[0.0f64; 2]; channels], (len / channels) as f32);
    for (i, g) in g.host().iter().enumerate() {
        let (g, off) = (f64::from(widen(*g)), f64::from(widen(z[i]) - moments[i % channels]));
        sums[i % channels][0] += g * off;
        sums[i % channels][1] += g;
    }
    let inverse = |c: usize| 1.0 / (moments[channels + c] + EPSILON).sqrt();
    for grad in grad.host_matrices() {
        for (c, [product, sum]) in sums.iter().enumerate() {
            (grad[c], grad[channels + c]) = ((product * f64::from(inverse(c))) as f32, *sum as f32);
        }
    }
    // dz = γ s (g − mean g − x̂ mean(g x̂))
    let back = |i: usize, g: f32| {
        let (c, off) = (i % channels, widen(z[i]) - moments[i % channels]);
        let [product, sum] = sums[c].map(|v| v as f32 / n);
        line[c][0] * (g - sum - off * inverse(c) * inverse(c) * product)
    };
    match added {
        Some((_, dz)) => {
            dz.host_mut().iter_mut().zip(g.host()).enumerate().for_each(|(i, (dz, g))| *dz = narrow(back(i, widen(*g))))
        }
        None => g.host_mut().iter_mut().enumerate().for_each(|(i, g)| *g = narrow(back(i, widen(*g)))),
    }
}

/// The mean of every channel: `x` `[b, plane, c]`, `y` `[1, b, c]` in f32.
pub fn means(x: &Halves, plane: usize, y: &mut Tensor) {
    let (_, b, c) = y.as_matrices();
    assert!(x.len() == b * plane * c && c.is_multiple_of(CHANNELS), "means of {x} into {y}");
    on_gpu!(x, |gpu| cuda::means(gpu, x, plane, y));
    let x = x.host();
    for (at, y) in y.host_mut().iter_mut().enumerate() {
        let (image, c, channels) = (at / c, at % c, c);
        let pixels = (0..plane).map(|pixel| widen(x[(image * plane + pixel) * channels + c]));
        *y = pixels.sum::<f32>() / plane as f32;
    }
}

/// The VJP of [`means`]: `g` `[1, b, c]` in f32, `dx` `[b, plane, c]`.
pub fn means_vjp(g: &Tensor, plane: usize, dx: &mut Halves) {
    let (_, b, c) = g.as_matrices();
    assert!(dx.len() == b * plane * c && c.is_multiple_of(CHANNELS), "the gradient {g} of means into {dx}");
    on_gpu!(g, |gpu| cuda::means_vjp(gpu, g, plane, dx));
    let g = g.host();
    for (at, dx) in dx.host_mut().iter_mut().enumerate() {
        *dx = narrow(g[at / (plane * c) * c + at % c] / plane as f32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_to_nearest_even() {
        for (x, want) in
            [(1.0, 1.0), (1.001, 1.0), (1.0 + 1.0 / 256.0, 1.0), (1.0 + 3.0 / 256.0, 1.015_625), (-3.3, -3.296_875)]
        {
            assert_eq!(widen(narrow(x)), want, "{x}");
        }
        assert!(widen(narrow(f32::NAN)).is_nan() && widen(narrow(f32::INFINITY)) == f32::INFINITY);
        assert_eq!(widen(narrow(f32::MAX)), f32::INFINITY);
    }
}
