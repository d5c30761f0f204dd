//! The product `Y = κ(A, B) V` on CUDA: the source of its kernels, and how to launch them. Nothing here needs a GPU.
//!
//! A [`Program`] is a kernel expression made ready for one device and one width of points. Its formula is the one of
//! [`crate::kernel`], recorded once and written as a device function; `tensor.cu` and `simt.cu` are the two machines it
//! is put into, `prepare.cu` what they need around them.
//!
//! | source, function | grid, block | arguments |
//! |---|---|---|
//! | [`Program::product_source`] | [`Program::product`] | `a, axx, b, byy, a_pad, b_pad, tiles, tiles_per_split, diagonal, v, partial, accumulate` |
//! | [`Program::gram_source`] | [`Program::gram`] | `a, axx, b, byy, a_pad, b_pad, tiles, tiles_per_split, diagonal, out, n, m, ld` |
//! | [`Program::mirrored_gram_source`] | [`Program::mirrored_gram`] | the same, `b = a`, `diagonal = 0`, `m = n` |
//! | [`Program::prepare_source`], `prepare_points` | [`Program::prepare_points`] | `x, rows, out, xx, n, n_pad` |
//! | …, `prepare_values` or `prepare_values_tensor` | [`Program::prepare_values`] | `v, out, m, m_pad, ld, c0, columns` |
//! | …, `reduce_partials` | [`Program::reduce`] | `partial, y, splits, n, n_pad, ld, c0, columns` |
//!
//! All integers are 32 bits wide except `ld` of the Gram matrix, which is 64. With `T` the tile's number
//! ([`Arithmetic::bytes`]) and all arrays row by row:
//!
//! - `a` `[a_pad, width]`, `axx` `[views, a_pad]` in `T`, likewise `b`, `byy`: what `prepare_points` wrote. `A` and `B`
//!   may be the same arrays. `a_pad` and `b_pad` are [`padded`] counts. The last row of `axx` is `κ(x,x)`, computed in f64.
//! - `diagonal`: element (i, j) is a point with itself, and takes that value, where `i = j + diagonal`; 0 for the operator,
//!   [`NO_DIAGONAL`] for two sets of points, the first column's index for a chunk of columns.
//! - `v`: what `prepare_values` wrote; `partial`: [`Program::partial_bytes`]. With `accumulate` not 0 the product is
//!   added to what `partial` holds: products over chunks of columns follow each other with the same number of splits.
//! - `rows` (i32) gathers rows of `x`; null takes them in order. `x`, `v` and `y` are f64 or f32: [`Scalar`].
//!
//! | arithmetic | error of a kernel value's statistic | on an H200 |
//! |---|---|---|
//! | [`Arithmetic::Tf32`] | exact points are replaced by points rounded to 11 bits; then 1e-6 of ‖x‖‖x'‖ | tensor cores |
//! | [`Arithmetic::Split`] | 1e-6 of ‖x‖‖x'‖, as f32 | tensor cores, three products for one |
//! | [`Arithmetic::F32`], [`Arithmetic::F64`] | that of the type | any statistic, any device |

mod batch;
mod device;
mod kappa;
mod launch;
mod program;
#[cfg(test)]
mod tests;
mod zonal;

pub(crate) use batch::BatchGram;
pub(crate) use device::{CudaKernel, CudaOperator, cross_apply};
pub use device::{Timing, time_product};
pub use launch::{Card, Launch, NO_DIAGONAL, PAD, Tiling, columns_per_pass, padded};
pub(crate) use program::compiles;
pub use program::{Program, sources};

/// The arithmetic of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// Points, kernel values and V rounded to TF32 (11 bits), sums in f32.
    Tf32,
    /// Everything in two TF32 halves: f32 accuracy on tensor cores.
    Split,
    /// f32 without tensor cores.
    F32,
    /// f64.
    F64,
}

impl Arithmetic {
    /// Bytes of one number of a tile.
    pub fn bytes(self) -> usize {
        if self == Arithmetic::F64 { 8 } else { 4 }
    }

    /// Whether it runs on tensor cores.
    pub fn is_tensor(self) -> bool {
        matches!(self, Arithmetic::Tf32 | Arithmetic::Split)
    }
}

/// The type of numbers that come from, or go to, the rest of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// `float`
    F32,
    /// `double`
    F64,
}
