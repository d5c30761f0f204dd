//! Which points are rounded to f16 for their inner products, whose tiles are twice as fast as those of TF32.
//!
//! Both formats have 11 significant bits, but f16 spans fewer octaves. Points are multiplied by a power of two `2^e` with
//! `2^e ‖x‖ ≤ 2^15`, so that nothing overflows; products of two coordinates are exact in f32, where they are added. A coordinate of at
//! least `2^−14` then has the error `2^−11` of itself that it has in TF32. A smaller one is off by `2^−25` at most, which
//! moves a point of d coordinates by `√d 2^−25`. That must not exceed an eighth of the rounding that TF32 has too:
//!
//! `√d 2^−25 ≤ 2^−14 · 2^e ‖x‖`
//!
//! with ‖x‖ the largest norm for kernels of a distance, which see errors relative to it (`operator/tile/near.rs`), and the least norm,
//! that of the origin apart, for others. An inner product is then off by as much as that of TF32, and an eighth.

use crate::kernel::Statistic;
use crate::operator::tile::points::{Norms, Plan};

/// The largest `2^e ‖x‖`, and the largest |e|: `2^(−2e)` must be an f32.
const LARGEST: i32 = 15;
const MOST: i32 = 60;

/// e for points of `width` coordinates with these norms on both sides, each a number a view; none where f16 would lose digits. It is 0
/// where that will do.
pub(super) fn exponent(plan: &Plan, width: usize, norms: [&[Norms]; 2]) -> Option<i32> {
    let norms = norms.concat().into_iter().fold(Norms::NONE, Norms::joined);
    let (least, largest) = (norms.least.sqrt(), norms.largest.sqrt());
    if largest == 0.0 {
        return Some(0);
    }
    let is_distance = |statistic| matches!(statistic, Statistic::SquaredDistance | Statistic::L1);
    let of_distances = plan.kernel.bases().iter().all(|base| is_distance(base.statistic()));
    let reference = if of_distances { largest } else { least };
    let highest = LARGEST - largest.log2().ceil() as i32;
    let holds = |e: &i32| {
        let scale = f64::from(*e).exp2();
        e.abs() <= MOST && *e <= highest && (width as f64).sqrt() * 0.5f64.powi(11) <= scale * reference
    };
    largest.is_finite().then(|| [0, highest].into_iter().find(holds)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Rows;
    use crate::kernel::Kernel;
    use ndarray::Array2;

    fn of(expression: &str, least: f64, largest: f64) -> Option<i32> {
        let plan = Plan::new(&Kernel::parse(expression).unwrap(), Rows::from(&Array2::<f64>::zeros((1, 64))));
        let norms = [Norms { least: least * least, largest: largest * largest }];
        exponent(&plan, 64, [&norms, &norms])
    }

    #[test]
    fn points_of_the_usual_size_are_not_scaled() {
        for expression in ["rbf(8)", "ntk(depth=3)", "rbf*poly(2)"] {
            assert_eq!(of(expression, 5.0, 12.0), Some(0), "{expression}");
            assert_eq!(of(expression, f64::INFINITY, 0.0), Some(0), "{expression}");
        }
    }

    #[test]
    fn large_and_small_ones_are() {
        for expression in ["rbf(8)", "linear"] {
            assert_eq!(of(expression, 1e6, 1.1e6), Some(15 - 21), "{expression}");
            assert_eq!(of(expression, 1e-6, 1.1e-6), Some(15 + 19), "{expression}");
            assert_eq!(of(expression, 1e-30, 1e-30), None, "{expression}");
            assert_eq!(of(expression, 1e30, f64::INFINITY), None, "{expression}");
        }
    }

    #[test]
    fn small_points_beside_large_ones_keep_their_digits() {
        assert_eq!(of("linear", 1e-3, 10.0), Some(11));
        assert_eq!(of("linear", 1e-9, 10.0), None);
        assert_eq!(of("rbf(8)*linear", 1e-9, 10.0), None);
        // A distance sees rounding errors of the larger point.
        assert_eq!(of("rbf(8)", 1e-9, 10.0), Some(0));
    }
}
