//! The precision of matrix products.

use serde::{Deserialize, Serialize};

/// How a GPU with tensor cores rounds the factors of an f32 matrix product. Sums are always in f32. The CPU always uses
/// f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Math {
    /// No rounding: 24 bits of mantissa.
    #[default]
    F32,
    /// 11 bits of mantissa.
    Tf32,
    /// 8 bits of mantissa. The factors are copied to bf16 first, which is faster for large products only.
    Bf16,
}

impl Math {
    /// The name, as in `f32`.
    pub fn name(self) -> &'static str {
        match self {
            Math::F32 => "f32",
            Math::Tf32 => "tf32",
            Math::Bf16 => "bf16",
        }
    }
}
