//! Advice on the batch that fits into a device's memory.

use super::Functions;
use crate::compute::Device;
use crate::training::with_advice;
use crate::{Error, Result};

/// Estimates how much of a device's memory training takes.
pub(super) struct MemoryAdvice {
    /// Bytes that were free before, none on the CPU.
    free: Option<u64>,
    /// Bytes whatever the batch.
    fixed: u64,
    /// Bytes for each point of a batch, beside the `4 B²` of its kernel matrix.
    per_point: u64,
}

impl MemoryAdvice {
    pub fn new(device: Device, functions: &Functions) -> Result<MemoryAdvice> {
        let network = functions.network();
        let values = 3 * functions.count() * functions.outputs() + network.inputs();
        Ok(MemoryAdvice {
            free: device.free_memory()?,
            // The gradient and two moments.
            fixed: 12 * network.parameters() as u64,
            per_point: (network.bytes_per_point() + 4 * values) as u64,
        })
    }

    /// The largest batch that should fit, zero for none: `4 B² + per_point B + fixed` in nine tenths of what was free.
    fn largest_batch(&self) -> u64 {
        let room = (0.9 * self.free.unwrap_or(0) as f64 - self.fixed as f64).max(0.0);
        let half = self.per_point as f64 / 8.0;
        ((half * half + room / 4.0).sqrt() - half) as u64
    }

    /// The error with a batch that would fit.
    pub fn advise(&self, error: Error) -> Error {
        match (&error, self.largest_batch()) {
            (Error::DeviceMemory { .. }, 0) => with_advice(error, "these networks do not fit at all"),
            (Error::DeviceMemory { .. }, fits) => with_advice(error, &format!("by estimate a batch of {fits} fits")),
            _ => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_batch_fits_and_one_more_does_not() {
        for (free, fixed, per_point) in [(1 << 30, 1 << 20, 10_000), (80 << 30, 0, 4_000_000), (1 << 20, 12, 1)] {
            let advice = MemoryAdvice { free: Some(free), fixed, per_point };
            let bytes = |b: u64| 4 * b * b + per_point * b + fixed;
            let b = advice.largest_batch();
            assert!(bytes(b) <= free * 9 / 10 && bytes(b + 2) > free * 9 / 10, "{b}");
        }
        assert_eq!(MemoryAdvice { free: Some(100), fixed: 1000, per_point: 1 }.largest_batch(), 0);
    }

    #[test]
    fn the_advice_names_a_batch_that_fits() {
        let advice = MemoryAdvice { free: Some(1 << 30), fixed: 0, per_point: 1 << 10 };
        let (device, what, instead) = ("cuda:0".into(), "a tensor".into(), "use a smaller batch".into());
        let error = advice.advise(Error::DeviceMemory { device, what, needed: 1 << 31, free: 1 << 30, instead });
        let words = error.to_string();
        assert!(words.contains("2.0 GiB") && words.contains("1.0 GiB") && words.contains("a batch of 15"), "{words}");
        assert!(matches!(advice.advise(Error::Device("lost".into())), Error::Device(_)));
    }
}
