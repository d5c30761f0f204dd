//! The product `Y = κ(A, B) V` on CUDA: the source of its kernels, and their launches. Generating them needs no GPU.
//!
//! A `Program` is a kernel expression compiled for one device and one width of points. The formula of
//! [`crate::kernel`] is recorded once and written as a device function, which is inserted into `tensor.cu` (tensor cores)
//! or `simt.cu` (ordinary cores). `prepare.cu` prepares their inputs and adds their partial results.
//!
//! | source | function | arguments |
//! |---|---|---|
//! | `Kind::Product` | `tensor` or `simt` | `a, axx, b, byy, a_pad, b_pad, tiles, tiles_per_split, diagonal, v, partial` |
//! | `Kind::Gram` | the same | `a, axx, b, byy, a_pad, b_pad, tiles, tiles_per_split, diagonal, out, n, m, ld` |
//! | `Kind::MirroredGram` | the same | those of `Gram` with `b = a`, `diagonal = 0`, `m = n` |
//! | `Kind::GatheredProduct`, `Kind::GatheredGram` | the same | those of the others, with `a_places, b_places` after `diagonal` |
//! | `Kind::Wide` | `wide`, `wide_transposed` | `a, axx, b, byy, a_pad, b_pad, diagonal, a_places, b_places, s, n, m, r0, c0, v, partial` |
//! | `Kind::Prepare` | `prepare_points` | `x, rows, out, xx, n, n_pad, first, count` |
//! | | `gather_points` | `x, norms, x_pad, rows, first, out, xx, n, n_pad` |
//! | | `prepare_values` | `v, out, m, m_pad, ld, c0, columns` |
//! | | `reduce_partials` | `partial, y, splits, n, n_pad, ld, c0, columns` |
//!
//! | `image_source` | `image_pairs` | `a, b, first, m, which, out` |
//! | | `combine` | `values, n, m, diagonal, mirror, known, a_names, b_names` |
//! | | `multiply` | `k, v, y, n, m, columns` |
//!
//! Points of many coordinates in TF32 have no tiles: cuBLAS computes the inner products of a block of K, and `wide.cu` multiplies κ of
//! them by V (`wide.rs`).
//!
//! Points that another library holds in the memory of the GPU are surveyed and packed there (`external.cu`, `external*.rs`); those
//! from the host are packed by the host.
//!
//! Kernels of images (`images.cu`, `images.rs`) have tiles of their own: one pair of images for each block. Their matrix is
//! stored, since one entry takes as long as millions of others.
//!
//! All integers have 32 bits, except `ld` of the Gram matrix, which has 64. All arrays are row-major; `T` is the number
//! type of the tiles.
//!
//! - `a` `[a_pad, width]` in `T` (of `Half`: f16 `[a_pad/8, width/8, 8, 8]`) and `axx` `[views + 1, a_pad]` in `T` are written by
//!   `prepare_points`; likewise `b` and `byy`. `A` and
//!   `B` may be the same arrays. `a_pad` and `b_pad` are padded counts. The rows of `axx` are the norms and `κ(x,x)`, computed
//!   in f64; where some points are equal, a row of names follows, and equal names have the value `κ(x,x)`.
//! - Where distances between the points at hand would lose digits (`operator/tile/near.rs`), the source has a test for such entries
//!   and computes them from differences of coordinates (`near.cu`); what rounding removed from the points, `[a_pad, width]`,
//!   then follows them. Sources for other points have neither.
//! - `diagonal`: where `i = j + diagonal`, both points are the same and the value is that `κ(x,x)`. It is 0 for the operator,
//!   `NO_DIAGONAL` for two sets of points, and the index of the first column for a chunk of columns.
//! - `a_places` and `b_places` (i32) say where the points of A and B are in their set (null: in its order); two places that are the same
//!   but for `diagonal` are the same point. `sets.rs` makes products of parts of sets with them.
//! - `v` is written by `prepare_values`; `partial` is `[splits, a_pad, nc]`.
//! - `rows` (i32) selects rows of `x`; null takes all in order. `x`, `v` and `y` are f64 or f32.
//!
//! | arithmetic | error of a kernel value's statistic | on an H200 |
//! |---|---|---|
//! | `Half`, `Tf32` | points are rounded to 11 bits; then 1e-6 of ‖x‖‖x'‖ | tensor cores |
//! | `Split` | 1e-6 of ‖x‖‖x'‖, as f32 | tensor cores, three products per product |
//! | `F32`, `F64` | rounding error of the type | any statistic, any device |
//!
//! Points are packed into page-locked memory by all cores while the strip before is copied. On Hopper four warps compute inner products
//! together (wgmma). Kernels of the angle alone become one polynomial in fast tiles (`zonal.rs`). Series that are too long to be written
//! inline (tanh, sigmoid, softplus) are functions that generated sources call.

mod device;
mod external;
mod external_operator;
mod external_points;
mod half;
mod image_source;
mod images;
mod kappa;
mod launch;
pub(super) mod logistic;
mod operator;
mod planned;
mod program;
mod raw_points;
mod recomputation;
mod sets;
#[cfg(test)]
mod tests;
mod wide;
mod zonal;

pub(crate) use device::BatchGram;
pub use external::ExternalArray;
pub use external_operator::DeviceOperator;
pub use external_points::device_gram;
pub(crate) use operator::{CudaOperator, CudaPair, cross_apply, gram_strips, image_diagonal};
pub use operator::{Timing, time_product};
pub(crate) use planned::{Held, Planned};
pub(crate) use program::compiles;
pub use program::sources;
pub(crate) use sets::Kept;

use crate::operator::Precision;
use crate::simd::source::Style;

/// Advice when device memory is short.
const ADVICE: &str = concat!("use fewer points or columns at a time, or ", crate::advice!(UseCpu));
/// Bytes that are copied to or from the GPU at a time.
const STAGING: usize = 256 << 20;

/// The arithmetic of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arithmetic {
    /// Points rounded to f16, and kernel values and V to TF32, both of 11 bits; sums in f32. Where f16 would lose digits, [`Self::Tf32`].
    Half,
    /// Points, kernel values and V rounded to TF32, sums in f32.
    Tf32,
    /// Each number as the sum of two TF32 numbers: f32 accuracy on tensor cores.
    Split,
    /// f32 without tensor cores.
    F32,
    /// f64.
    F64,
}

impl From<Precision> for Arithmetic {
    fn from(precision: Precision) -> Arithmetic {
        match precision {
            Precision::Tf32 => Arithmetic::Half,
            Precision::F32 => Arithmetic::Split,
            Precision::F64 => Arithmetic::F64,
        }
    }
}

impl Arithmetic {
    /// Bytes of one number of a tile, coordinates of points apart.
    fn bytes(self) -> usize {
        if self == Arithmetic::F64 { 8 } else { 4 }
    }

    /// Bytes of one coordinate of a point.
    fn point_bytes(self) -> usize {
        if self == Arithmetic::Half { 2 } else { self.bytes() }
    }

    /// Whether points have 11 bits.
    fn is_fast(self) -> bool {
        matches!(self, Arithmetic::Half | Arithmetic::Tf32)
    }

    /// How formulas are written for it.
    fn style(self) -> Style {
        if self.is_fast() { Style::Fast } else { Style::Exact }
    }

    /// Whether it runs on tensor cores.
    fn is_tensor(self) -> bool {
        self.is_fast() || self == Arithmetic::Split
    }
}
