//! How matrix products round their factors.

use serde::{Deserialize, Serialize};

/// What a device with tensor cores does to the factors of an f32 product; sums are in f32 in every case. The processor
/// knows f32 only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Math {
    /// Nothing: 24 bits of mantissa.
    #[default]
    F32,
    /// Rounds them to 11 bits of mantissa.
    Tf32,
    /// Rounds them to 8 bits of mantissa, in a copy that is made of them: it pays for large products.
    Bf16,
}

impl Math {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Math::F32 => "f32",
            Math::Tf32 => "tf32",
            Math::Bf16 => "bf16",
        }
    }
}
