//! Convolutions of images: the patches of some output rows form a matrix, which is multiplied by the filters (im2col).
//!
//! An image is stored as `[channels, height, width]`, contiguous and row-major.

use super::activation::{add_bias, apply_rows, for_each_block};
use super::cuda::{convolution as cuda, images};
use super::formula::Activation;
use super::gemm::Store;
use super::parallel::{block, for_each, for_each_chunk, map, row_blocks};
use super::stack::{Stack, StackMut};
use super::tensor::{Tensor, on_gpu};
use faer::linalg::matmul::matmul;
use faer::{MatMut, MatRef, Par};
use std::ops::Range;

/// The shape of a convolution: `y[o, r, s] = Σ_{c,u,v} w[o, c, u, v] x[c, r·stride + u − above, s·stride + v − left]` with
/// `before = [above, left]`, and zeros outside the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Convolution {
    /// Channels, height and width of an input image.
    pub image: [usize; 3],
    /// Number of output channels.
    pub channels: usize,
    /// Side of the square filter.
    pub size: usize,
    /// Input pixels between neighbouring outputs.
    pub stride: usize,
    /// Zero padding above and to the left of the image.
    pub before: [usize; 2],
    /// Zero padding below and to the right of the image.
    pub after: [usize; 2],
}

impl Convolution {
    /// Height and width of an output image.
    pub fn out(&self) -> [usize; 2] {
        let [_, height, width] = self.image;
        let windows = |n: usize, axis: usize| (n + self.before[axis] + self.after[axis] - self.size) / self.stride + 1;
        [windows(height, 0), windows(width, 1)]
    }

    /// Number of weights of one filter, which is the size of a patch.
    pub fn patch(&self) -> usize {
        self.image[0] * self.size * self.size
    }

    pub(super) fn pixels_in(&self) -> usize {
        self.image.iter().product()
    }

    pub(super) fn plane_out(&self) -> usize {
        self.out().iter().product()
    }

    /// Output rows per tile, such that the patches of a tile stay in cache.
    fn tile_rows(&self) -> usize {
        let [height, width] = self.out();
        (CACHED / (self.patch() * width)).clamp(1, height)
    }

    /// Room for the patches of a tile.
    fn buffer(&self) -> Vec<f32> {
        vec![0.0; self.patch() * self.tile_rows() * self.out()[1]]
    }

    /// Floating-point operations of `images` images.
    fn work(&self, images: usize) -> usize {
        2 * images * self.channels * self.patch() * self.plane_out()
    }

    /// The output rows of each tile, and its output pixels.
    fn tiles(&self) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
        let ([height, width], rows) = (self.out(), self.tile_rows());
        (0..height.div_ceil(rows)).map(move |tile| {
            let rows = block(tile, rows, height);
            (rows.clone(), rows.start * width..rows.end * width)
        })
    }

    /// Fills `patches[(c, u, v), (r, s)]` for the output rows `rows`.
    fn gather(&self, x: &[f32], rows: Range<usize>, patches: &mut [f32]) {
        let lines = patches.chunks_exact_mut(self.out()[1]);
        for (to, (inside, first)) in lines.zip(self.lines(rows)) {
            to[..inside.start].fill(0.0);
            to[inside.end..].fill(0.0);
            if self.stride == 1 {
                to[inside.clone()].copy_from_slice(&x[first..first + inside.len()]);
            } else {
                to[inside].iter_mut().zip(x[first..].iter().step_by(self.stride)).for_each(|(to, x)| *to = *x);
            }
        }
    }

    /// The adjoint of [`Self::gather`]; adds to `x`.
    fn scatter(&self, patches: &[f32], rows: Range<usize>, x: &mut [f32]) {
        let lines = patches.chunks_exact(self.out()[1]);
        for (from, (inside, first)) in lines.zip(self.lines(rows)) {
            let from = &from[inside];
            if self.stride == 1 {
                x[first..first + from.len()].iter_mut().zip(from).for_each(|(x, from)| *x += from);
            } else {
                x[first..].iter_mut().step_by(self.stride).zip(from).for_each(|(x, from)| *x += from);
            }
        }
    }

    /// For each line `(c, u, v, r)` of a patch matrix, r fastest: the range of outputs s whose pixel lies within the image,
    /// and the index of the first such pixel. Pixel s is `(r·stride + u − above, s·stride + v − left)` of channel c.
    fn lines(&self, rows: Range<usize>) -> impl Iterator<Item = (Range<usize>, usize)> {
        let Convolution { image: [_, height, width], size, stride, before: [above, left], .. } = *self;
        let out = self.out()[1];
        let filters = (0..self.patch()).flat_map(move |f| rows.clone().map(move |r| (f, r)));
        filters.map(move |(f, r)| {
            let (c, u, v) = (f / (size * size), f / size % size, f % size);
            let Some(row) = (r * stride + u).checked_sub(above).filter(|&row| row < height) else { return (0..0, 0) };
            let end = (width + left).saturating_sub(v).div_ceil(stride).min(out);
            let start = left.saturating_sub(v).div_ceil(stride).min(end);
            let column = (start * stride + v).saturating_sub(left).min(width);
            (start..end, (c * height + row) * width + column)
        })
    }
}

/// Largest number of elements in a tile's patch matrix.
const CACHED: usize = 1 << 16;

/// Number of blocks that a batch is split into at most. One task computes one block.
const BLOCKS: usize = 16;

/// `y_j = φ(w_j ⋆ x_j + b_j)` and optionally the slopes `φ'`. With [`Store::Add`] the old `y_j` is added before φ.
///
/// `x` `[k, batch, in]` or shared, `w` `[k, out, patch]`, `bias` `[k, 1, out]`, `y` and `slope`
/// `[k, batch, out·height·width]`.
#[allow(clippy::too_many_arguments)]
pub fn conv2d(
    shape: &Convolution,
    x: Stack<'_>,
    w: Stack<'_>,
    bias: Option<Stack<'_>>,
    phi: Activation,
    store: Store,
    y: &mut Tensor,
    slope: Option<&mut Tensor>,
) {
    let (count, batch, n) = y.as_matrices();
    let plane = shape.plane_out();
    assert!(x.rows == batch && x.cols == shape.pixels_in() && n == shape.channels * plane, "conv2d of {x} into {y}");
    assert!(w.rows == shape.channels && w.cols == shape.patch() && !w.transposed, "conv2d: w {w}");
    assert!(bias.is_none_or(|b| b.rows * b.cols == shape.channels), "conv2d: the bias has not one element per channel");
    assert!(slope.as_ref().is_none_or(|s| s.len() == y.len()), "conv2d: slope and y differ in shape");
    [Some(x), Some(w), bias].iter().flatten().for_each(|stack| stack.check(count));
    on_gpu!(y, |gpu| {
        cuda::forward(gpu, shape, x, w, store, y);
        images::channel_bias_activation(gpu, plane, bias, phi, y, slope)
    });
    for_each_block(y, slope, images(batch), shape.work(count * batch), |j, range, y, slope| {
        let (mut buffer, mut slopes) = (shape.buffer(), slope.map(|s| s.chunks_exact_mut(n)));
        for (i, y) in range.zip(y.chunks_exact_mut(n)) {
            for_each_tile(shape, image(x, j, i), &mut buffer, |tile, patches| {
                let w = MatRef::from_row_major_slice(w.host(j), shape.channels, shape.patch());
                matmul(columns_mut(y, plane, tile), store, w, patches, 1.0, Par::Seq);
            });
            if let Some(bias) = bias {
                add_bias(y, bias.host(j));
            }
            apply_rows(phi, None, n, y, slopes.as_mut().and_then(Iterator::next));
        }
    });
}

/// The gradient with respect to the images, `dx_j = w_jᵀ ⋆ g_j`. `g` `[k, batch, out·height·width]`,
/// `w` `[k, out, patch]`, `dx` `[k, batch, in]`, or `[batch, in]` for the sum over the networks.
pub fn conv2d_vjp_input(shape: &Convolution, g: &Tensor, w: Stack<'_>, mut dx: StackMut<'_>) {
    let (count, batch, n) = g.as_matrices();
    let (plane, pixels) = (shape.plane_out(), shape.pixels_in());
    assert!(w.rows == shape.channels && w.cols == shape.patch() && !w.transposed, "conv2d_vjp_input: w {w}");
    w.check(count);
    assert!(
        dx.networks() == count && dx.rows == batch && dx.cols == pixels && n == shape.channels * plane,
        "conv2d_vjp_input: {g} into {dx}"
    );
    on_gpu!(g, |gpu| cuda::vjp_input(gpu, shape, g, w, &dx));
    let (g, terms) = (g.host(), dx.terms);
    let stacks = dx.host_matrices().enumerate();
    let tasks = stacks.flat_map(|(first, dx)| {
        row_blocks(dx, [1, batch, pixels], images(batch)).map(move |(_, range, dx)| (first, range, dx))
    });
    for_each(tasks, shape.work(count * batch), |(first, range, dx)| {
        let mut buffer = shape.buffer();
        dx.fill(0.0);
        for (i, dx) in range.zip(dx.chunks_exact_mut(pixels)) {
            for j in first..first + terms {
                let g = &g[(j * batch + i) * n..(j * batch + i + 1) * n];
                let w = MatRef::from_row_major_slice(w.host(j), shape.channels, shape.patch()).transpose();
                for (rows, tile) in shape.tiles() {
                    let patches = &mut buffer[..shape.patch() * tile.len()];
                    let to = MatMut::from_row_major_slice_mut(&mut *patches, shape.patch(), tile.len());
                    matmul(to, Store::Replace, w, columns(g, plane, tile), 1.0, Par::Seq);
                    shape.scatter(patches, rows, dx);
                }
            }
        }
    });
}

/// The gradient with respect to the filters, `dw_j = Σ_images g_j ⋆ x_j`. `x` `[k, batch, in]` or shared,
/// `g` `[k, batch, out·height·width]`, `dw` `[k, out, patch]`.
pub fn conv2d_vjp_weights(shape: &Convolution, x: Stack<'_>, g: &Tensor, mut dw: StackMut<'_>) {
    let (count, batch, n) = g.as_matrices();
    let (plane, size) = (shape.plane_out(), shape.channels * shape.patch());
    x.check(count);
    assert!(
        dw.count == count
            && dw.rows * dw.cols == size
            && [x.rows, x.cols] == [batch, shape.pixels_in()]
            && n == shape.channels * plane,
        "conv2d_vjp_weights: {x} and {g} into {dw}"
    );
    on_gpu!(g, |gpu| cuda::vjp_weights(gpu, shape, x, g, &mut dw));
    let (g, blocks) = (g.host(), batch.div_ceil(images(batch)).max(1));
    let mut sums = vec![0.0; count * blocks * size];
    for_each_chunk(&mut sums, size, shape.work(count * batch), |task, sum| {
        let (j, mut buffer) = (task / blocks, shape.buffer());
        for i in block(task % blocks, images(batch), batch) {
            let g = &g[(j * batch + i) * n..(j * batch + i + 1) * n];
            for_each_tile(shape, image(x, j, i), &mut buffer, |tile, patches| {
                let sum = MatMut::from_row_major_slice_mut(&mut *sum, shape.channels, shape.patch());
                matmul(sum, Store::Add, columns(g, plane, tile), patches.transpose(), 1.0, Par::Seq);
            });
        }
    });
    // The sums of the blocks are added in order: the result does not depend on the number of threads.
    for (sums, dw) in sums.chunks_exact(blocks * size).zip(dw.host_matrices()) {
        dw.copy_from_slice(&sums[..size]);
        for sum in sums.chunks_exact(size).skip(1) {
            dw.iter_mut().zip(sum).for_each(|(dw, sum)| *dw += sum);
        }
    }
}

/// The patches of images `x` `[batch, in]`: entry `[i, (c, u, v), (r, s)]` of `out` `[batch, patch, height·width]` is the pixel of image i that
/// the weight `(c, u, v)` is multiplied with at the output `(r, s)`.
pub fn patches(shape: &Convolution, x: Stack<'_>, out: &mut Tensor) {
    let (batch, patch, plane) = out.as_matrices();
    x.check(1);
    assert!(
        [x.rows, x.cols] == [batch, shape.pixels_in()] && [patch, plane] == [shape.patch(), shape.plane_out()],
        "patches of {x} into {out}"
    );
    on_gpu!(out, |gpu| cuda::patches(gpu, shape, x, out));
    let len = out.len();
    for_each_chunk(out.host_mut(), patch * plane, len, |i, out| shape.gather(image(x, 0, i), 0..shape.out()[0], out));
}

/// `out_jc = Σ_{b,p} g_jbcp`, the gradient of a bias. `g` `[k, batch, channels·plane]`, `out` `[k, 1, channels]`.
pub fn channel_sums(g: &Tensor, mut out: StackMut<'_>) {
    let (count, batch, n) = g.as_matrices();
    let channels = out.rows * out.cols;
    assert!(out.count == count && n % channels == 0, "channel_sums of {g} into {out}");
    on_gpu!(g, |gpu| images::channel_sums(gpu, g, &out));
    let plane = n / channels;
    let g = g.host();
    let sums = map(count * channels, 2 * g.len(), |task| {
        let (j, c) = (task / channels, task % channels);
        let planes = (0..batch).map(|i| &g[((j * batch + i) * channels + c) * plane..][..plane]);
        planes.map(|p| f64::from(p.iter().sum::<f32>())).sum::<f64>() as f32
    });
    sums.chunks_exact(channels).zip(out.host_matrices()).for_each(|(sums, out)| out.copy_from_slice(sums));
}

/// Number of images that one task convolves.
fn images(batch: usize) -> usize {
    batch.div_ceil(BLOCKS).max(1)
}

/// Image `i` of network `j`.
fn image(x: Stack<'_>, j: usize, i: usize) -> &[f32] {
    &x.host(j)[i * x.cols..(i + 1) * x.cols]
}

/// Calls `f` with the output pixels of each tile and its patches `[patch, pixels]`.
fn for_each_tile(shape: &Convolution, x: &[f32], buffer: &mut [f32], mut f: impl FnMut(Range<usize>, MatRef<'_, f32>)) {
    if shape.size == 1 && shape.stride == 1 {
        // The patch matrix is the image itself.
        let plane = shape.plane_out();
        return f(0..plane, MatRef::from_row_major_slice(x, shape.patch(), plane));
    }
    for (rows, tile) in shape.tiles() {
        let patches = &mut buffer[..shape.patch() * tile.len()];
        shape.gather(x, rows, patches);
        f(tile.clone(), MatRef::from_row_major_slice(patches, shape.patch(), tile.len()));
    }
}

/// The columns `tile` of an image, seen as a matrix `[channels, plane]`.
fn columns(image: &[f32], plane: usize, tile: Range<usize>) -> MatRef<'_, f32> {
    MatRef::from_row_major_slice(image, image.len() / plane, plane).subcols(tile.start, tile.len())
}

/// The writable form of [`columns`].
fn columns_mut(image: &mut [f32], plane: usize, tile: Range<usize>) -> MatMut<'_, f32> {
    let channels = image.len() / plane;
    MatMut::from_row_major_slice_mut(image, channels, plane).subcols_mut(tile.start, tile.len())
}
