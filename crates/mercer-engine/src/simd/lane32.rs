//! Elementary functions on one `f32`, branch-free. Coefficients are least-squares fits, weighted for relative error,
//! at Chebyshev-spaced points; the tests state and check the accuracy of what comes out.

// The fits are written as they came out; the compiler rounds them.
#![allow(clippy::excessive_precision)]

use super::{Lane, Num, lane_common};

/// 1.5·2²³: adding it leaves a number's nearest integer in the low bits of the mantissa.
const ROUND: f32 = 12_582_912.0;
/// ln 2 in two pieces; products of the first with an exponent are exact.
const LN2: [f32; 2] = [0.693_145_75, 1.428_606_8e-6];
/// π/2 in three pieces; products of the first two with |n| < 2¹³ are exact.
const HALF_PI: [f32; 3] = [1.570_312_5, 4.837_513e-4, 7.549_789_4e-8];

impl<const FMA: bool> Lane<f32, FMA> {
    /// `(n, e^r − 1)` with `self = n ln 2 + r`, `|r| ≤ ln 2 / 2`; `n` is returned as the rounding sum, see [`ROUND`].
    #[inline(always)]
    fn exp_reduced(self, round: Self) -> (Self, Self) {
        let n = self.mul_add(Lane(std::f32::consts::LOG2_E), round);
        let k = n - round;
        let r = k.mul_add(Lane(-LN2[1]), k.mul_add(Lane(-LN2[0]), self));
        let p = r.polynomial([0.500_000_005, 0.166_665_36, 0.041_666_34, 8.367_434e-3, 1.394_216_2e-3]);
        (n, (p * r).mul_add(r, r))
    }

    /// `e^self − 1` for `0 ≤ self < 80`, without cancellation near zero.
    #[inline(always)]
    pub(super) fn exp_m1(self) -> Self {
        let (n, q) = self.exp_reduced(Lane(ROUND + 127.0));
        let scale: Self = Lane(f32::from_bits(n.0.to_bits() << 23));
        scale.mul_add(q, scale - Lane(1.0))
    }

    /// `asin s` for `z = s² ≤ ¼`.
    #[inline(always)]
    fn asin_series(s: Self, z: Self) -> Self {
        let p = z.polynomial([0.166_667_53, 0.074_952_98, 0.045_469_188, 0.024_188_65, 0.042_147_365]);
        (p * z).mul_add(s, s)
    }
}

impl<const FMA: bool> Num for Lane<f32, FMA> {
    lane_common!(f32);

    #[inline(always)]
    fn exp(self) -> Self {
        // e^x = 2^n e^r. The scale is 2·2^{n−1}, so that n = 128 (just below overflow) has a finite factor.
        const LOW: f32 = -86.9;
        let x = self.max(Lane(LOW)).min(Lane(89.0));
        let (n, q) = x.exp_reduced(Lane(ROUND + 126.0));
        let half = f32::from_bits(n.0.to_bits() << 23);
        let y = Lane((q.0 + 1.0) * half * 2.0);
        Self::select_gt(Lane(LOW), self, Lane(0.0), y)
    }

    #[inline(always)]
    fn ln(self) -> Self {
        // x = 2^e m with m in [√½, √2); ln m = 2 atanh s, s = (m − 1)/(m + 1).
        const SQRT_HALF: u32 = 0x3F35_04F3;
        let shifted = self.0.to_bits().wrapping_sub(SQRT_HALF);
        let e = Lane((shifted as i32 >> 23) as f32);
        let m: Self = Lane(f32::from_bits((shifted & 0x007F_FFFF) + SQRT_HALF));
        let f = m - Lane(1.0);
        let s = f / (m + Lane(1.0));
        let z = s * s;
        // 2s = f − s f, which keeps the leading term exact; the rest is 2 s z P(z).
        let p = z.polynomial([0.333_333_9, 0.199_884_4, 0.149_447_95]) * (z + z);
        let tail = e.mul_add(Lane(LN2[1]), s * (p - f));
        let y = e.mul_add(Lane(LN2[0]), f + tail);
        let y = Self::select_gt(self, Lane(f32::MAX), self, y);
        // Zero (and below the normal range) is −∞; negative numbers and NaN are NaN.
        let y = Self::select_gt(Lane(f32::MIN_POSITIVE), self, Lane(f32::NEG_INFINITY), y);
        Lane(if self.0 >= 0.0 { y.0 } else { f32::NAN })
    }

    /// Accurate for |x| ≤ 10⁴; bounded by one beyond.
    #[inline(always)]
    fn sin_cos(self) -> (Self, Self) {
        // x = n π/2 + r, |r| ≤ π/4: (sin, cos) of r, swapped when n is odd, with the quadrant's signs.
        let n = self.mul_add(Lane(std::f32::consts::FRAC_2_PI), Lane(ROUND));
        let k = n - Lane(ROUND);
        let r = k.mul_add(Lane(-HALF_PI[0]), self);
        let r = k.mul_add(Lane(-HALF_PI[2]), k.mul_add(Lane(-HALF_PI[1]), r)).max(Lane(-1.0)).min(Lane(1.0));
        let z = r * r;
        let s = (z.polynomial([-0.166_666_54, 8.332_118_6e-3, -1.950_946_5e-4]) * z).mul_add(r, r);
        let c = z.polynomial([0.041_666_645, -1.388_727_9e-3, 2.442_855_3e-5]);
        let c = (c * z).mul_add(z, z.mul_add(Lane(-0.5), Lane(1.0)));
        let q = n.0.to_bits();
        let (sin, cos) = if q & 1 == 1 { (c, s) } else { (s, c) };
        let flip = |y: Self, sign: u32| Lane(f32::from_bits(y.0.to_bits() ^ (sign << 30 & 0x8000_0000)));
        (flip(sin, q), flip(cos, q.wrapping_add(1)))
    }

    /// For one square root: with `t = 1 − |cos θ|`, `θ = √t A(t)` and `sin θ − θ cos θ = t√t B(t)`, fitted on [0, 1]; the
    /// second has no cancellation at small angles. Beyond the right angle, both of `π − θ`.
    #[inline(always)]
    fn angle(self) -> (Self, Self) {
        const A: [f32; 8] = [
            1.414_213_54,
            0.117_853_631,
            0.026_466_915_2,
            8.262_816_08e-3,
            1.345_567_09e-3,
            3.535_921_02e-3,
            -2.135_531_15e-3,
            1.253_442_89e-3,
        ];
        const B: [f32; 7] = [
            0.942_809_055,
            0.047_139_183_7,
            7.595_220_54e-3,
            1.647_463_27e-3,
            7.633_510_95e-4,
            -1.951_066_7e-4,
            2.408_182_31e-4,
        ];
        let (zero, pi) = (Lane(0.0), Self::of(std::f64::consts::PI));
        let cos = self.abs();
        let t = (Lane(1.0) - cos).max(zero);
        let root = t.sqrt();
        let (theta, rest) = (root * t.polynomial(A), root * t * t.polynomial(B));
        (Self::select_gt(zero, self, pi - theta, theta), Self::select_gt(zero, self, pi.mul_add(cos, rest), rest))
    }

    #[inline(always)]
    fn erf(self) -> Self {
        // erf|x| = 1 − e^{−|x| Q(|x|)}, Q(x) = −ln(erfc x)/x, fitted on [0, 4]; beyond, erf is 1 to the last bit.
        let x = self.abs().min(Lane(4.0));
        let q = x.polynomial([
            std::f32::consts::FRAC_2_SQRT_PI,
            0.636_619_85,
            0.102_771_06,
            -0.019_116_42,
            -2.566_333_5e-4,
            1.804_774_2e-3,
            -7.453_584_5e-4,
            1.697_566_1e-4,
            -2.193_510_6e-5,
            1.253_332_5e-6,
        ]);
        let e = (x * q).exp_m1();
        // 1 − e^{−t} = (e^t − 1)/e^t
        (e / (e + Lane(1.0))).with_sign_of(self)
    }
}
