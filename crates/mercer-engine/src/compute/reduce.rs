//! Sums over rows, columns and whole tensors, in a fixed order.

use super::cuda::primitives as cuda;
use super::parallel::{CHUNK, Parts, for_each};
use super::tensor::{Stack, StackMut, Tensor};
use crate::simd::{SimdJob, dispatch};
use rayon::prelude::*;

/// Number of independent partial sums, which the compiler keeps in vector registers.
const LANES: usize = 16;

/// `Σ_i x_i y_i` in [`LANES`] partial sums.
struct Dot<'a> {
    x: &'a [f32],
    y: &'a [f32],
}

impl SimdJob for Dot<'_> {
    type Output = f32;
    #[inline(always)]
    fn run<const FMA: bool>(self) -> f32 {
        let mut partial = [0.0f32; LANES];
        let (x, y) = (self.x.chunks_exact(LANES), self.y.chunks_exact(LANES));
        let rest: f32 = x.remainder().iter().zip(y.remainder()).map(|(x, y)| x * y).sum();
        for (x, y) in x.zip(y) {
            for l in 0..LANES {
                partial[l] += x[l] * y[l];
            }
        }
        partial.iter().sum::<f32>() + rest
    }
}

/// `Σ_i x_i y_i`.
pub(super) fn dot(x: &[f32], y: &[f32]) -> f32 {
    dispatch(Dot { x, y })
}

/// `Σ_i f(x_i)` in [`LANES`] partial sums; for use inside a [`SimdJob`].
#[inline(always)]
pub(super) fn sum_of(x: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut partial = [0.0f32; LANES];
    let chunks = x.chunks_exact(LANES);
    let rest: f32 = chunks.remainder().iter().map(|x| f(*x)).sum();
    for x in chunks {
        for l in 0..LANES {
            partial[l] += f(x[l]);
        }
    }
    partial.iter().sum::<f32>() + rest
}

/// `Σ_i x_i`, as [`sum_of`].
#[inline(always)]
pub(super) fn sum(x: &[f32]) -> f32 {
    sum_of(x, |x| x)
}

/// `out_jc = Σ_b x_jbc y_jbc`: `x`, `y` `[k, b, n]`, `out` `[k, n]` (or `[k, 1, n]`).
pub fn column_dots(x: &Tensor, y: &Tensor, out: &mut Tensor) {
    let (count, m, n) = x.as_matrices();
    assert!(
        y.len() == x.len() && out.len() == count * n,
        "column_dots of {:?} and {:?} into {:?}",
        x.shape(),
        y.shape(),
        out.shape()
    );
    if let Some(gpu) = x.gpu() {
        return cuda::column_dots(gpu, x, y, out);
    }
    let (x, y) = (x.host(), y.host());
    let out = Parts::new(out.host_mut());
    for_each(count, 4 * count * m * n, |j| {
        // SAFETY: tasks have different j.
        let out = unsafe { out.part(j * n..(j + 1) * n) };
        columns_of(&x[j * m * n..(j + 1) * m * n], &y[j * m * n..(j + 1) * m * n], out);
    });
}

/// `out_c = Σ_b x_bc y_bc` for row-major `x`, `y` `[b, n]` and `out` `[n]`.
pub(super) fn columns_of(x: &[f32], y: &[f32], out: &mut [f32]) {
    let n = out.len();
    if n == 1 {
        out[0] = dot(x, y);
        return;
    }
    out.fill(0.0);
    for (x, y) in x.chunks_exact(n.max(1)).zip(y.chunks_exact(n.max(1))) {
        for (out, (x, y)) in out.iter_mut().zip(x.iter().zip(y)) {
            *out += x * y;
        }
    }
}

/// `out_jc = Σ_b x_jbc`: `x` `[k, b, n]`, `out` `[k, 1, n]`.
pub fn sum_rows(x: Stack<'_>, mut out: StackMut<'_>) {
    let (m, n, count, stride) = (x.rows, x.cols, out.count, out.stride);
    assert!(!x.transposed && out.rows * out.cols == n, "sum_rows of [{m}, {n}] into [{}, {}]", out.rows, out.cols);
    if let Some(gpu) = x.tensor.gpu() {
        return cuda::sum_rows(gpu, x, &out);
    }
    let out = Parts::new(out.host_mut());
    for_each(count, 2 * count * m * n, |j| {
        // SAFETY: tasks have different j.
        let out = unsafe { out.part(j * stride..j * stride + n) };
        out.fill(0.0);
        for row in x.host(j).chunks_exact(n.max(1)) {
            out.iter_mut().zip(row).for_each(|(out, &x)| *out += x);
        }
    });
}

/// `out ← Σ x²` over the whole tensor; `out` `[1]` is on the same device.
pub fn sum_squares(x: &Tensor, out: &mut Tensor) {
    if let Some(gpu) = x.gpu() {
        return cuda::sum_squares(gpu, x, out);
    }
    // The sums of the chunks are added in order and in f64: the result does not depend on the number of threads.
    let partial: Vec<f64> = chunks(x.host()).map(|x| f64::from(dot(x, x))).collect();
    out.host_mut()[0] = partial.iter().sum::<f64>() as f32;
}

/// Whether all elements are finite.
pub fn all_finite(x: &Tensor) -> bool {
    if let Some(gpu) = x.gpu() {
        return cuda::all_finite(gpu, x);
    }
    // x·0 is 0 for finite x and NaN otherwise, so the sum is 0 exactly if all are finite.
    chunks(x.host()).all(|x| dispatch(ZeroSum(x)) == 0.0)
}

fn chunks(x: &[f32]) -> impl IndexedParallelIterator<Item = &[f32]> {
    x.par_chunks(CHUNK).with_min_len(4)
}

struct ZeroSum<'a>(&'a [f32]);

impl SimdJob for ZeroSum<'_> {
    type Output = f32;
    #[inline(always)]
    fn run<const FMA: bool>(self) -> f32 {
        sum_of(self.0, |x| x * 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Device;
    use super::*;

    #[test]
    fn one_non_finite_number_anywhere_is_found() {
        let n = 5 * CHUNK + 3;
        let mut data = vec![1.0f32; n];
        let finite = |data: &[f32]| all_finite(&Tensor::from_host(Device::Cpu, &[n], data).unwrap());
        assert!(finite(&data));
        for at in [0, 17, CHUNK - 1, 3 * CHUNK + 5, n - 1] {
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                data[at] = bad;
                assert!(!finite(&data), "{bad} at {at}");
                data[at] = 1.0;
            }
        }
        data[9] = f32::MAX;
        assert!(finite(&data));
    }
}
