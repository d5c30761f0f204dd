//! Max and average pooling of images with windows that do not overlap.
//!
//! An image is stored as `[channels, height, width]`, contiguous and row-major.

use super::cuda::{Arg, args, images as cuda};
use super::parallel::for_each_chunk;
use super::tensor::{Tensor, on_gpu};

/// The shape of a pooling layer. Windows do not overlap; rows and columns that do not fill a window are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Channels, height and width of an input image.
    pub image: [usize; 3],
    /// Height and width of a window.
    pub window: [usize; 2],
}

impl Pool {
    /// Height and width of an output image.
    pub fn out(&self) -> [usize; 2] {
        [self.image[1] / self.window[0], self.image[2] / self.window[1]]
    }

    /// Number of elements of an input plane and of an output plane.
    fn planes(&self) -> (usize, usize) {
        (self.image[1] * self.image[2], self.out().iter().product())
    }

    /// Calls `f(output, input)` for each output of a plane and each input pixel of its window.
    #[inline(always)]
    fn windows(&self, mut f: impl FnMut(usize, usize)) {
        let ([_, _, width], [h, w], [_, out]) = (self.image, self.window, self.out());
        for (row, u) in (0..self.out()[0]).flat_map(|row| (0..h).map(move |u| (row, u))) {
            for (col, v) in (0..out).flat_map(|col| (0..w).map(move |v| (col, v))) {
                f(row * out + col, (row * h + u) * width + col * w + v);
            }
        }
    }

    /// Panics unless `outer` has as many input planes as `inner` has output planes.
    fn check(&self, outer: &Tensor, inner: &Tensor) {
        let (large, small) = self.planes();
        assert!(outer.len() * small == inner.len() * large, "pooling {self:?} between {outer} and {inner}");
    }

    /// Calls `f` with each input plane in `outer` and its output plane in `inner`, in parallel.
    fn for_each_plane(&self, outer: &Tensor, inner: &mut Tensor, f: impl Fn(&[f32], &mut [f32]) + Sync + Send) {
        let (large, small) = self.planes();
        let (outer, work) = (outer.host(), 4 * outer.len());
        for_each_chunk(inner.host_mut(), small, work, |p, inner| f(&outer[p * large..(p + 1) * large], inner));
    }
}

/// `y` = the maximum of each window, `at` = its index in the plane (the first one if several are equal). NaN counts as the
/// largest value. `x` `[k, b, in]`, `y` and `at` `[k, b, out]`.
pub fn max_pool(pool: &Pool, x: &Tensor, y: &mut Tensor, at: &mut Tensor) {
    pool.check(x, at);
    assert!(y.len() == at.len(), "max_pool into {y} and {at}");
    on_gpu!(x, |gpu| cuda::pool(gpu, "max_pool", pool, y, 1, &args![x, y, at]));
    pool.for_each_plane(x, at, |x, at| {
        at.fill(-1.0);
        pool.windows(|o, i| {
            let best = at[o];
            if best < 0.0 || x[i] > x[best as usize] || (x[i].is_nan() && !x[best as usize].is_nan()) {
                at[o] = i as f32;
            }
        });
    });
    max_pool_jvp(pool, at, x, y);
}

/// The gradient of [`max_pool`]: `dx` = `g` at the indices `at`, zero elsewhere. `at` and `g` `[k, b, out]`, `dx` `[k, b, in]`.
pub fn max_pool_vjp(pool: &Pool, at: &Tensor, g: &Tensor, dx: &mut Tensor) {
    let (large, small) = pool.planes();
    pool.check(dx, at);
    assert!(at.len() == g.len(), "max_pool_vjp of {g} at {at}");
    on_gpu!(g, |gpu| cuda::pool(gpu, "pool_back", pool, dx, 1, &args![1.0f32, at, g, dx]));
    let (at, g, work) = (at.host(), g.host(), 4 * dx.len());
    for_each_chunk(dx.host_mut(), large, work, |p, dx| {
        dx.fill(0.0);
        let range = p * small..(p + 1) * small;
        at[range.clone()].iter().zip(&g[range]).for_each(|(&at, g)| dx[at as usize] = *g);
    });
}

/// The JVP of [`max_pool`]: `t` = `dx` at the indices `at`. `at` and `t` `[k, b, out]`, `dx` `[k, b, in]`.
pub fn max_pool_jvp(pool: &Pool, at: &Tensor, dx: &Tensor, t: &mut Tensor) {
    let (large, small) = pool.planes();
    pool.check(dx, at);
    assert!(at.len() == t.len(), "max_pool_jvp into {t} at {at}");
    on_gpu!(t, |gpu| {
        let (count, rows, n) = t.as_matrices();
        let sizes = [rows * n, large, small].map(Arg::size);
        cuda::over_networks(gpu, "max_pool_tangent", count, rows * n, &args![sizes, at, dx, t])
    });
    let (at, dx) = (at.host(), dx.host());
    for (p, t) in t.host_mut().chunks_exact_mut(small.max(1)).enumerate() {
        t.iter_mut().zip(&at[p * small..]).for_each(|(t, &at)| *t = dx[p * large + at as usize]);
    }
}

/// `y` = the mean of each window. It is linear, so its JVP is the same function. `x` `[k, b, in]`, `y` `[k, b, out]`.
pub fn average_pool(pool: &Pool, x: &Tensor, y: &mut Tensor) {
    let share = 1.0 / (pool.window[0] * pool.window[1]) as f32;
    pool.check(x, y);
    on_gpu!(x, |gpu| cuda::pool(gpu, "average_pool", pool, y, 32, &args![share, x, y]));
    pool.for_each_plane(x, y, |x, y| {
        y.fill(0.0);
        pool.windows(|o, i| y[o] += x[i]);
        y.iter_mut().for_each(|y| *y *= share);
    });
}

/// The gradient of [`average_pool`]: each `g` divided equally over its window. `g` `[k, b, out]`, `dx` `[k, b, in]`.
pub fn average_pool_vjp(pool: &Pool, g: &Tensor, dx: &mut Tensor) {
    let (large, small) = pool.planes();
    pool.check(dx, g);
    let share = 1.0 / (pool.window[0] * pool.window[1]) as f32;
    on_gpu!(g, |gpu| cuda::pool(gpu, "pool_back", pool, dx, 1, &args![share, None::<&Tensor>, g, dx]));
    let g = g.host();
    for (p, dx) in dx.host_mut().chunks_exact_mut(large).enumerate() {
        dx.fill(0.0);
        pool.windows(|o, i| dx[i] = share * g[p * small + o]);
    }
}
