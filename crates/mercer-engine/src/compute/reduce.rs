//! Sums over vectors and whole tensors, in a fixed order.

use super::cuda::primitives as cuda;
use super::parallel::CHUNK;
use super::tensor::{Tensor, on_gpu};
use crate::simd::vectorized;
use rayon::prelude::*;

/// Number of independent partial sums, which the compiler keeps in vector registers.
const LANES: usize = 16;

/// `Σ_i x_i y_i` in [`LANES`] partial sums.
pub(super) fn dot(x: &[f32], y: &[f32]) -> f32 {
    vectorized!({
        let mut partial = [0.0f32; LANES];
        let (x, y) = (x.chunks_exact(LANES), y.chunks_exact(LANES));
        let rest: f32 = x.remainder().iter().zip(y.remainder()).map(|(x, y)| x * y).sum();
        for (x, y) in x.zip(y) {
            for l in 0..LANES {
                partial[l] += x[l] * y[l];
            }
        }
        partial.iter().sum::<f32>() + rest
    })
}

/// `Σ_i f(x_i)` in [`LANES`] partial sums; for use inside [`vectorized`].
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

/// `out ← Σ x²` over the whole tensor; `out` `[1]` is on the same device.
pub fn sum_squares(x: &Tensor, out: &mut Tensor) {
    on_gpu!(x, |gpu| cuda::sum_squares(gpu, x, out));
    // The sums of the chunks are added in order and in f64: the result does not depend on the number of threads.
    let partial: Vec<f64> = chunks(x.host()).map(|x| f64::from(dot(x, x))).collect();
    out.host_mut()[0] = partial.iter().sum::<f64>() as f32;
}

/// Whether all elements are finite.
pub fn all_finite(x: &Tensor) -> bool {
    on_gpu!(x, |gpu| cuda::all_finite(gpu, x));
    // x·0 is 0 for finite x and NaN otherwise, so the sum is 0 exactly if all are finite.
    chunks(x.host()).all(|x| vectorized!(sum_of(x, |x| x * 0.0)) == 0.0)
}

fn chunks(x: &[f32]) -> impl IndexedParallelIterator<Item = &[f32]> {
    x.par_chunks(CHUNK).with_min_len(4)
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
