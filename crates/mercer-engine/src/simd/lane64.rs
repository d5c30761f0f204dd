//! Elementary functions on one `f64`, branch-free. Coefficients are least-squares fits, weighted for relative error,
//! at Chebyshev-spaced points; the tests state and check the accuracy of what comes out.

// The fits are written as they came out; the compiler rounds them.
#![allow(clippy::excessive_precision)]

use super::{Lane, Num, lane_common};

/// 1.5·2⁵²: adding it leaves a number's nearest integer in the low bits of the mantissa.
const ROUND: f64 = 6_755_399_441_055_744.0;
/// ln 2 in two pieces; products of the first with an exponent are exact.
const LN2: [f64; 2] = [0.693_147_180_559_662_956_511_601_805_686_95, 2.823_529_056_303_157_710_3e-13];
/// π/2 in three pieces; products of the first two with |n| < 2²⁰ are exact.
const HALF_PI: [f64; 3] = [
    1.570_796_326_734_125_614_166_259_765_625,
    6.077_100_506_303_965_976_595_549_136_6e-11,
    2.022_266_248_795_950_631_541_1e-21,
];

impl<const FMA: bool> Lane<f64, FMA> {
    /// `(n, e^r − 1)` with `self = n ln 2 + r`, `|r| ≤ ln 2 / 2`; `n` is returned as the rounding sum, see [`ROUND`].
    #[inline(always)]
    fn exp_reduced(self, round: Self) -> (Self, Self) {
        let n = self.mul_add(Lane(std::f64::consts::LOG2_E), round);
        let k = n - round;
        let r = k.mul_add(Lane(-LN2[1]), k.mul_add(Lane(-LN2[0]), self));
        let p = r.polynomial([
            0.500_000_000_000_000_62,
            0.166_666_666_666_666_78,
            0.041_666_666_666_565_381,
            8.333_333_333_320_444_4e-3,
            1.388_888_893_517_516_9e-3,
            1.984_126_988_935_231e-4,
            2.480_150_097_308_754e-5,
            2.755_724_075_393_803_8e-6,
            2.762_774_761_932_328_1e-7,
            2.511_030_788_103_902_2e-8,
        ]);
        (n, (p * r).mul_add(r, r))
    }

    /// `e^self − 1` for `0 ≤ self < 700`, without cancellation near zero.
    #[inline(always)]
    pub(super) fn exp_m1(self) -> Self {
        let (n, q) = self.exp_reduced(Lane(ROUND + 1023.0));
        let scale: Self = Lane(f64::from_bits(n.0.to_bits() << 52));
        scale.mul_add(q, scale - Lane(1.0))
    }

    /// `asin s` for `z = s² ≤ ¼`.
    #[inline(always)]
    fn asin_series(s: Self, z: Self) -> Self {
        let p = z.polynomial([
            0.166_666_666_666_654_07,
            0.075_000_000_003_349_008,
            0.044_642_856_831_191_543,
            0.030_381_958_992_268_915,
            0.022_371_761_908_616_496,
            0.017_359_642_941_642_982,
            0.013_885_868_265_586_491,
            0.012_164_970_640_893_123,
            6.546_516_617_912_140_7e-3,
            0.019_477_305_521_095_439,
            -0.016_144_303_807_402_176,
            0.031_857_655_432_785_677,
        ]);
        (p * z).mul_add(s, s)
    }
}

impl<const FMA: bool> Num for Lane<f64, FMA> {
    lane_common!(f64);

    #[inline(always)]
    fn exp(self) -> Self {
        // e^x = 2^n e^r. The scale is 2·2^{n−1}, so that n = 1024 (just below overflow) has a finite factor.
        const LOW: f64 = -708.0;
        let x = self.max(Lane(LOW)).min(Lane(710.0));
        let (n, q) = x.exp_reduced(Lane(ROUND + 1022.0));
        let half = f64::from_bits(n.0.to_bits() << 52);
        let y = Lane((q.0 + 1.0) * half * 2.0);
        Self::select_gt(Lane(LOW), self, Lane(0.0), y)
    }

    #[inline(always)]
    fn ln(self) -> Self {
        // x = 2^e m with m in [√½, √2); ln m = 2 atanh s, s = (m − 1)/(m + 1).
        const SQRT_HALF: u64 = 0x3FE6_A09E_667F_3BCD;
        let shifted = self.0.to_bits().wrapping_sub(SQRT_HALF);
        let e = Lane((shifted as i64 >> 52) as i32 as f64);
        let m: Self = Lane(f64::from_bits((shifted & 0x000F_FFFF_FFFF_FFFF) + SQRT_HALF));
        let f = m - Lane(1.0);
        let s = f / (m + Lane(1.0));
        let z = s * s;
        // 2s = f − s f, which keeps the leading term exact; the rest is 2 s z P(z).
        let p = z.polynomial([
            0.333_333_333_333_337_07,
            0.199_999_999_996_838_9,
            0.142_857_143_765_713_09,
            0.111_110_987_136_474_4,
            0.090_918_131_233_534_824,
            0.076_562_022_528_232_039,
            0.074_065_180_115_696_933,
        ]) * (z + z);
        let tail = e.mul_add(Lane(LN2[1]), s * (p - f));
        let y = e.mul_add(Lane(LN2[0]), f + tail);
        let y = Self::select_gt(self, Lane(f64::MAX), self, y);
        // Zero (and below the normal range) is −∞; negative numbers and NaN are NaN.
        let y = Self::select_gt(Lane(f64::MIN_POSITIVE), self, Lane(f64::NEG_INFINITY), y);
        Lane(if self.0 >= 0.0 { y.0 } else { f64::NAN })
    }

    /// Accurate for |x| ≤ 10⁶; bounded by one beyond.
    #[inline(always)]
    fn sin_cos(self) -> (Self, Self) {
        // x = n π/2 + r, |r| ≤ π/4: (sin, cos) of r, swapped when n is odd, with the quadrant's signs.
        let n = self.mul_add(Lane(std::f64::consts::FRAC_2_PI), Lane(ROUND));
        let k = n - Lane(ROUND);
        let r = k.mul_add(Lane(-HALF_PI[0]), self);
        let r = k.mul_add(Lane(-HALF_PI[2]), k.mul_add(Lane(-HALF_PI[1]), r)).max(Lane(-1.0)).min(Lane(1.0));
        let z = r * r;
        let s = z.polynomial([
            -0.166_666_666_666_666_26,
            8.333_333_333_321_057_1e-3,
            -1.984_126_982_872_405e-4,
            2.755_731_331_360_344_6e-6,
            -2.505_069_831_550_542_3e-8,
            1.589_329_196_067_234_7e-10,
        ]);
        let s = (s * z).mul_add(r, r);
        let c = z.polynomial([
            0.041_666_666_666_666_587,
            -1.388_888_888_887_202_5e-3,
            2.480_158_728_818_273_5e-5,
            -2.755_731_397_781_653_9e-7,
            2.087_567_229_826_884e-9,
            -1.135_699_949_451_120_5e-11,
        ]);
        let c = (c * z).mul_add(z, z.mul_add(Lane(-0.5), Lane(1.0)));
        let q = n.0.to_bits();
        let (sin, cos) = if q & 1 == 1 { (c, s) } else { (s, c) };
        let flip = |y: Self, sign: u64| Lane(f64::from_bits(y.0.to_bits() ^ (sign << 62 & 1 << 63)));
        (flip(sin, q), flip(cos, q.wrapping_add(1)))
    }

    #[inline(always)]
    fn erf(self) -> Self {
        // erf|x| = 1 − e^{−|x| Q(|x|)}, Q(x) = −ln(erfc x)/x, fitted on [0, 6]; beyond, erf is 1 to the last bit.
        let x = self.abs().min(Lane(6.0));
        let q = x.polynomial([
            std::f64::consts::FRAC_2_SQRT_PI,
            0.636_619_772_367_714_26,
            0.102_772_603_294_459_49,
            -0.019_128_446_843_122_176,
            -2.091_965_757_072_311_4e-4,
            1.696_219_672_410_575_7e-3,
            -5.901_878_726_696_461e-4,
            2.608_424_330_502_754_1e-5,
            6.399_480_326_675_668_8e-5,
            -2.881_782_205_199_667e-5,
            2.133_861_821_009_813_2e-6,
            4.236_455_381_078_630_6e-6,
            -2.963_333_930_941_162_3e-6,
            1.187_195_382_895_63e-6,
            -3.383_885_176_754_582_8e-7,
            7.201_347_550_614_530_1e-8,
            -1.146_278_478_081_651_1e-8,
            1.330_768_875_556_872_8e-9,
            -1.066_133_405_281_883_2e-10,
            5.270_440_580_234_048_8e-12,
            -1.210_856_558_538_147_7e-13,
        ]);
        let e = (x * q).exp_m1();
        // 1 − e^{−t} = (e^t − 1)/e^t
        (e / (e + Lane(1.0))).with_sign_of(self)
    }
}
