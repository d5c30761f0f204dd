//! The precision of kernel values.

use crate::compute::Device;
use serde::{Deserialize, Serialize};

/// The precision in which kernel values are computed. Sums over points are always taken in f64.
/// Example: [`crate::FitContext`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Single: two to three times faster; eigenvalues below about 1e-6 of the largest are noise.
    F32,
    /// Double.
    #[default]
    F64,
    /// Single, of points and vectors rounded to 10 bits, on the tensor cores of a GPU: eigenvalues below about a thousandth
    /// of the largest are noise. On the CPU it is [`Precision::F32`].
    Tf32,
}

impl Precision {
    /// Every precision by its word, the lowest first.
    pub const NAMED: [(&'static str, Precision); 3] =
        [("tf32", Precision::Tf32), ("f32", Precision::F32), ("f64", Precision::F64)];

    /// Its word.
    pub fn name(self) -> &'static str {
        Precision::NAMED.iter().find(|(_, precision)| *precision == self).map_or("f64", |(word, _)| word)
    }

    /// Bytes of one number.
    pub fn bytes(self) -> u64 {
        if self == Precision::F64 { 8 } else { 4 }
    }

    /// Relative error of a kernel value that `device` computes, a few units in the last place.
    pub fn roundoff(self, device: Device) -> f64 {
        match self {
            Precision::F64 => 4e-15,
            Precision::Tf32 if device != Device::Cpu => 5e-4,
            Precision::F32 | Precision::Tf32 => 1e-6,
        }
    }
}
