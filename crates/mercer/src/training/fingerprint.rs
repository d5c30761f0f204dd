//! A checksum of what must agree: between a checkpoint and the run that continues it, or between ranks.

/// A number that changes when any of the bits do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// The fingerprint of these bits.
    pub fn of(bits: impl IntoIterator<Item = u64>) -> Fingerprint {
        Fingerprint(0xcbf2_9ce4_8422_2325).then(bits)
    }

    /// What was [`Self::to_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Fingerprint {
        Fingerprint(u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    }

    /// As bytes, for another rank.
    pub fn to_bytes(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }

    /// The fingerprint of what was seen so far and of these bits.
    pub fn then(self, bits: impl IntoIterator<Item = u64>) -> Fingerprint {
        // The product carries every bit upwards, the shift brings the upper half down again.
        Fingerprint(bits.into_iter().fold(self.0, |hash, bits| {
            let hash = (hash ^ bits).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            hash ^ (hash >> 32)
        }))
    }
}

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "checksum {:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Fingerprint;

    #[test]
    fn a_fingerprint_sees_signs_order_and_length() {
        let of = |numbers: &[f64]| Fingerprint::of(numbers.iter().map(|v| v.to_bits()));
        let own = of(&[1.0, 2.0, 3.0]);
        assert_eq!(own, of(&[1.0, 2.0]).then([3f64.to_bits()]));
        for other in [&[-1.0, -2.0, 3.0][..], &[-1.0, 2.0, -3.0], &[2.0, 1.0, 3.0], &[1.0, 2.0], &[1.0, 2.0, 3.0, 0.0]]
        {
            assert_ne!(own, of(other), "{other:?}");
        }
    }
}
