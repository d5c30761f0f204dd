//! Convolutions of images: patches are gathered into a matrix and multiplied by the filters (im2col), a tile of output rows
//! at a time.
//!
//! An image is stored as `[channels, height, width]`, contiguous and row-major.

use super::activation::apply_rows;
use super::cuda::{convolution as cuda, images};
use super::formula::Activation;
use super::gemm::Store;
use super::parallel::{Parts, block, for_each};
use super::tensor::{Stack, StackMut, Tensor};
use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use std::ops::Range;

/// The shape of a convolution: `y[o, r, s] = Σ_{c,u,v} w[o, c, u, v] x[c, r·stride + u − before, s·stride + v − before]`,
/// with zeros outside the image.
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
    pub before: usize,
    /// Zero padding below and to the right of the image.
    pub after: usize,
}

impl Convolution {
    /// Height and width of an output image.
    pub fn out(&self) -> [usize; 2] {
        let [_, height, width] = self.image;
        [height, width].map(|n| (n + self.before + self.after - self.size) / self.stride + 1)
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

    fn work(&self, images: usize) -> usize {
        2 * images * self.channels * self.patch() * self.plane_out()
    }

    /// Whether the patch matrix is the image itself.
    fn is_pointwise(&self) -> bool {
        self.size == 1 && self.stride == 1
    }

    /// Number of tiles, and output rows per tile, such that the patches of a tile stay in cache.
    fn tiles(&self) -> (usize, usize) {
        let [height, width] = self.out();
        let rows = (CACHED / (self.patch() * width)).clamp(1, height);
        (height.div_ceil(rows), rows)
    }

    /// A buffer for the patches of one tile.
    fn buffer(&self) -> Vec<f32> {
        vec![0.0; self.patch() * self.tiles().1 * self.out()[1]]
    }

    /// The output pixels of `rows`, and the number of elements in their patches.
    fn tile(&self, rows: &Range<usize>) -> (Range<usize>, usize) {
        let width = self.out()[1];
        (rows.start * width..rows.end * width, self.patch() * rows.len() * width)
    }

    /// Fills `patches[(c, u, v), (r, s)]` for the output rows `rows`.
    fn gather(&self, x: &[f32], rows: Range<usize>, patches: &mut [f32]) {
        let [_, height, width] = self.image;
        let [_, out] = self.out();
        for (line, from) in self.lines(rows) {
            let to = &mut patches[line * out..(line + 1) * out];
            let Some((c, row, v)) = from.filter(|&(_, row, _)| row < height) else {
                to.fill(0.0);
                continue;
            };
            let x = &x[(c * height + row) * width..(c * height + row + 1) * width];
            let (inside, first) = self.inside(v, width, out);
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
        let [_, height, width] = self.image;
        let [_, out] = self.out();
        for (line, from) in self.lines(rows) {
            let Some((c, row, v)) = from.filter(|&(_, row, _)| row < height) else { continue };
            let from = &patches[line * out..(line + 1) * out];
            let x = &mut x[(c * height + row) * width..(c * height + row + 1) * width];
            let (inside, first) = self.inside(v, width, out);
            if self.stride == 1 {
                x[first..first + inside.len()].iter_mut().zip(&from[inside]).for_each(|(x, from)| *x += from);
            } else {
                x[first..].iter_mut().step_by(self.stride).zip(&from[inside]).for_each(|(x, from)| *x += from);
            }
        }
    }

    /// The lines of a patch matrix, ordered by `(c, u, v, r)` with r fastest, each with its source `(c, input row, v)`;
    /// `None` if the input row is above the image.
    fn lines(&self, rows: Range<usize>) -> impl Iterator<Item = (usize, Option<(usize, usize, usize)>)> {
        let (size, stride, before) = (self.size, self.stride, self.before);
        let filters = (0..self.patch()).flat_map(move |f| rows.clone().map(move |r| (f, r)));
        filters.enumerate().map(move |(line, (f, r))| {
            let (c, u, v) = (f / (size * size), f / size % size, f % size);
            (line, (r * stride + u).checked_sub(before).map(|row| (c, row, v)))
        })
    }

    /// The range of outputs s whose pixel `s·stride + v − before` lies within the row, and the first such pixel.
    fn inside(&self, v: usize, width: usize, out: usize) -> (Range<usize>, usize) {
        let end = (width + self.before).saturating_sub(v).div_ceil(self.stride).min(out);
        let start = self.before.saturating_sub(v).div_ceil(self.stride).min(end);
        (start..end, (start * self.stride + v).saturating_sub(self.before).min(width))
    }
}

/// Largest number of elements in a tile's patch matrix.
const CACHED: usize = 1 << 16;

/// Number of blocks that a batch is split into. One task computes one block.
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
    assert!(
        x.rows == batch && x.cols == shape.pixels_in() && n == shape.channels * plane,
        "conv2d of [{}, {}] into [{batch}, {n}]",
        x.rows,
        x.cols
    );
    assert!(w.rows == shape.channels && w.cols == shape.patch() && !w.transposed, "conv2d: w [{}, {}]", w.rows, w.cols);
    assert!(
        bias.is_none_or(|b| b.rows * b.cols == shape.channels),
        "conv2d: the bias does not have one element per channel"
    );
    assert!(slope.as_ref().is_none_or(|s| s.len() == y.len()), "conv2d: slope and y differ in shape");
    if let Some(gpu) = y.gpu() {
        cuda::forward(gpu, shape, x, w, store, y);
        return images::channel_bias_activation(gpu, plane, bias, phi, y, slope);
    }
    let images = batch.div_ceil(BLOCKS);
    let blocks = batch.div_ceil(images);
    let y = Parts::new(y.host_mut());
    let slope = slope.map(|s| Parts::new(s.host_mut()));
    for_each(count * blocks, shape.work(count * batch), |task| {
        let j = task / blocks;
        let mut patches = shape.buffer();
        for i in block(task % blocks, images, batch) {
            let at = (j * batch + i) * n..(j * batch + i + 1) * n;
            // SAFETY (both): no other task writes this image of this network.
            let y = unsafe { y.part(at.clone()) };
            let slope = slope.as_ref().map(|s| unsafe { s.part(at) });
            let x = &x.host(j)[i * x.cols..(i + 1) * x.cols];
            for_each_tile(shape, x, &mut patches, |tile, patches| {
                let accum = if store == Store::Add { Accum::Add } else { Accum::Replace };
                let w = MatRef::from_row_major_slice(w.host(j), shape.channels, shape.patch());
                matmul(columns_mut(y, plane, tile), accum, w, patches, 1.0, Par::Seq);
            });
            if let Some(bias) = bias {
                y.chunks_exact_mut(plane).zip(bias.host(j)).for_each(|(y, b)| y.iter_mut().for_each(|y| *y += b));
            }
            apply_rows(phi, None, n, y, slope);
        }
    });
}

/// The gradient with respect to the images, `dx_j = w_jᵀ ⋆ g_j`. `g` `[k, batch, out·height·width]`,
/// `w` `[k, out, patch]`, `dx` `[k, batch, in]`; with stride 0, `dx` is the sum over the networks.
pub fn conv2d_vjp_input(shape: &Convolution, g: &Tensor, w: Stack<'_>, mut dx: StackMut<'_>) {
    let (count, batch, n) = g.as_matrices();
    let (plane, pixels, stride) = (shape.plane_out(), shape.pixels_in(), dx.stride);
    assert!(
        dx.count == count && dx.rows == batch && dx.cols == pixels && n == shape.channels * plane,
        "conv2d_vjp_input: {:?} into {:?}",
        g.shape(),
        [dx.count, dx.rows, dx.cols]
    );
    if let Some(gpu) = g.gpu() {
        return cuda::vjp_input(gpu, shape, g, w, &dx);
    }
    let (stacks, terms) = if stride == 0 { (1, count) } else { (count, 1) };
    let images = batch.div_ceil(BLOCKS);
    let blocks = batch.div_ceil(images);
    let (g, dx) = (g.host(), Parts::new(dx.host_mut()));
    for_each(stacks * blocks, shape.work(count * batch), |task| {
        let mut patches = shape.buffer();
        for i in block(task % blocks, images, batch) {
            let at = task / blocks * stride + i * pixels;
            // SAFETY: no other task writes this image of this network.
            let dx = unsafe { dx.part(at..at + pixels) };
            dx.fill(0.0);
            for j in (0..terms).map(|term| task / blocks + term) {
                let g = &g[(j * batch + i) * n..(j * batch + i + 1) * n];
                let w = MatRef::from_row_major_slice(w.host(j), shape.channels, shape.patch()).transpose();
                let (tiles, rows) = shape.tiles();
                for tile in 0..tiles {
                    let rows = block(tile, rows, shape.out()[0]);
                    let (tile, used) = shape.tile(&rows);
                    let patches = &mut patches[..used];
                    let to = MatMut::from_row_major_slice_mut(&mut *patches, shape.patch(), tile.len());
                    matmul(to, Accum::Replace, w, columns(g, plane, tile), 1.0, Par::Seq);
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
    let (plane, size, stride) = (shape.plane_out(), shape.channels * shape.patch(), dw.stride);
    assert!(
        dw.count == count && dw.rows * dw.cols == size && x.cols == shape.pixels_in() && n == shape.channels * plane,
        "conv2d_vjp_weights: [{}, {}] and {:?} into {:?}",
        x.rows,
        x.cols,
        g.shape(),
        [dw.count, dw.rows, dw.cols]
    );
    if let Some(gpu) = g.gpu() {
        return cuda::vjp_weights(gpu, shape, x, g, &mut dw);
    }
    let images = batch.div_ceil(BLOCKS);
    let blocks = batch.div_ceil(images);
    let mut sums = vec![0.0; count * blocks * size];
    let (g, partial) = (g.host(), Parts::new(&mut sums));
    for_each(count * blocks, shape.work(count * batch), |task| {
        let j = task / blocks;
        let mut patches = shape.buffer();
        // SAFETY: each task writes its own range.
        let sum = unsafe { partial.part(task * size..(task + 1) * size) };
        for i in block(task % blocks, images, batch) {
            let x = &x.host(j)[i * x.cols..(i + 1) * x.cols];
            let g = &g[(j * batch + i) * n..(j * batch + i + 1) * n];
            for_each_tile(shape, x, &mut patches, |tile, patches| {
                let sum = MatMut::from_row_major_slice_mut(&mut *sum, shape.channels, shape.patch());
                matmul(sum, Accum::Add, columns(g, plane, tile), patches.transpose(), 1.0, Par::Seq);
            });
        }
    });
    // The sums of the blocks are added in order: the result does not depend on the number of threads.
    let dw = dw.host_mut();
    for (j, sums) in sums.chunks_exact(blocks * size).enumerate() {
        let dw = &mut dw[j * stride..j * stride + size];
        dw.copy_from_slice(&sums[..size]);
        for sum in sums.chunks_exact(size).skip(1) {
            dw.iter_mut().zip(sum).for_each(|(dw, sum)| *dw += sum);
        }
    }
}

/// `t_j ← slope ∘ (t_j + b_j)`, the last step of a layer's JVP, with one `b` per channel. `t` and `slope`
/// `[k, batch, channels·plane]`, `bias` `[k, 1, channels]`; without a slope the activation is the identity.
pub fn channel_bias_slope(t: &mut Tensor, bias: Option<Stack<'_>>, slope: Option<&Tensor>) {
    assert!(slope.is_none_or(|s| s.len() == t.len()), "channel_bias_slope: slope and t differ in shape");
    if let Some(gpu) = t.gpu() {
        return images::channel_bias_slope(gpu, t, bias, slope);
    }
    if let Some(bias) = bias {
        let (_, batch, n) = t.as_matrices();
        let channels = bias.rows * bias.cols;
        for (i, t) in t.host_mut().chunks_exact_mut(n).enumerate() {
            let planes = t.chunks_exact_mut(n / channels).zip(bias.host(i / batch));
            planes.for_each(|(t, b)| t.iter_mut().for_each(|t| *t += b));
        }
    }
    if let Some(slope) = slope {
        super::multiply(t, slope);
    }
}

/// `out_jc = Σ_{b,p} g_jbcp`, the gradient with respect to a bias. `g` `[k, batch, channels·plane]`, `out`
/// `[k, 1, channels]`.
pub fn channel_sums(g: &Tensor, mut out: StackMut<'_>) {
    let (count, batch, n) = g.as_matrices();
    let (channels, stride) = (out.rows * out.cols, out.stride);
    assert!(out.count == count && n % channels == 0, "channel_sums of {:?} into {channels} channels", g.shape());
    if let Some(gpu) = g.gpu() {
        return images::channel_sums(gpu, g, &out);
    }
    let plane = n / channels;
    let (g, out) = (g.host(), Parts::new(out.host_mut()));
    for_each(count * channels, 2 * g.len(), |task| {
        let (j, c) = (task / channels, task % channels);
        let planes = (0..batch).map(|i| &g[((j * batch + i) * channels + c) * plane..][..plane]);
        let sum: f64 = planes.map(|p| f64::from(p.iter().sum::<f32>())).sum();
        // SAFETY: tasks have different (j, c).
        unsafe { out.part(j * stride + c..j * stride + c + 1)[0] = sum as f32 };
    });
}

/// Calls `f` with the output pixels of each tile and its patches `[patch, pixels]`.
fn for_each_tile(shape: &Convolution, x: &[f32], buffer: &mut [f32], mut f: impl FnMut(Range<usize>, MatRef<'_, f32>)) {
    if shape.is_pointwise() {
        let plane = shape.plane_out();
        return f(0..plane, MatRef::from_row_major_slice(x, shape.patch(), plane));
    }
    let (tiles, rows) = shape.tiles();
    for tile in 0..tiles {
        let rows = block(tile, rows, shape.out()[0]);
        let (tile, used) = shape.tile(&rows);
        let patches = &mut buffer[..used];
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
