//! Codes as an index keeps them: in single precision, and for distances less their mean where that saves digits.

use super::Metric;
use crate::Silent;
use crate::operator::Items;
use crate::rng::Rng;
use ndarray::{Array2, ArrayView1, ArrayView2, Axis};

/// Rows whose neighbours are looked for in double precision.
const SAMPLE: usize = 64;
/// Neighbours of each.
const NEIGHBOURS: usize = 10;
/// Rounding is small where it moves a code by less than this share of the distance to the nearest other code.
const SMALL: f64 = 1e-3;

/// Codes in single precision.
///
/// ```
/// use mercer::retrieval::{Kept, Metric};
/// let far = ndarray::array![[1e9, 0.0], [1e9 + 0.25, 0.0], [1e9 + 1.0, 0.5]];
/// let kept = Kept::of(far.view(), Metric::Euclidean);
/// assert!((kept.codes[[1, 0]] - kept.codes[[0, 0]] - 0.25).abs() < 1e-6); // in f32 the difference alone would be 0
/// assert_eq!(kept.blurred(far.view(), Metric::Euclidean, 0).rows, 0);
/// assert_eq!(Kept::of(ndarray::array![[1.0, 0.5]].view(), Metric::Euclidean).centre, None); // exact as they are
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// `x − c` `[n, k]`
    pub codes: Array2<f32>,
    /// c `[k]`; none where codes are kept as they are.
    pub centre: Option<Vec<f64>>,
}

/// Codes that rounding to single precision moves too far. Example: [`Kept`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blurred {
    /// Rows that were moved by more than a thousandth of the distance to the nearest other code.
    pub rows: usize,
    /// Rows that were looked at.
    pub of: usize,
}

impl Kept {
    /// Of codes `[n, k]`. Cosines depend on the origin, so that no mean can be subtracted from their codes.
    pub fn of(codes: ArrayView2<f64>, metric: Metric) -> Kept {
        let centred = metric == Metric::Euclidean && !exact(codes);
        let centre = codes.mean_axis(Axis(0)).filter(|_| centred).map(|mean| mean.to_vec());
        Kept { codes: rounded(codes, centre.as_deref()), centre }
    }

    /// How many of a few codes, drawn at random from the `codes` `[n, k]` themselves, rounding moves too far.
    pub fn blurred(&self, codes: ArrayView2<f64>, metric: Metric, seed: u64) -> Blurred {
        if self.centre.is_none() && exact(codes) {
            return Blurred { rows: 0, of: 0 };
        }
        let rows = Rng::new(seed).fork(0x626c_7572).sample(codes.nrows(), SAMPLE.min(codes.nrows()));
        let lists = Items::new(codes, metric).nearest(codes.select(Axis(0), &rows).view(), NEIGHBOURS, false, &Silent);
        let is_moved = |(&row, list): (&usize, &Vec<(usize, f64)>)| {
            let near = list.iter().map(|&(item, _)| distance(codes.row(row), codes.row(item), metric));
            let nearest = near.filter(|distance| *distance > 0.0).fold(f64::INFINITY, f64::min);
            moved(codes.row(row), self.codes.row(row), self.centre.as_deref(), metric) > SMALL * nearest
        };
        Blurred { rows: rows.iter().zip(&lists).filter(|pair| is_moved(*pair)).count(), of: rows.len() }
    }
}

/// `x − c` `[n, k]` in single precision.
pub(super) fn rounded(codes: ArrayView2<f64>, centre: Option<&[f64]>) -> Array2<f32> {
    match centre {
        None => codes.mapv(|v| v as f32),
        Some(centre) => Array2::from_shape_fn(codes.dim(), |(i, j)| (codes[[i, j]] - centre[j]) as f32),
    }
}

/// How many of `queries` `[m, k]`, rounded about `centre`, lie nearer to an item than is told by these distances or cosines `[m, top]`.
pub(super) fn blurred_queries(
    queries: ArrayView2<f64>,
    centre: Option<&[f64]>,
    scores: ArrayView2<f64>,
    metric: Metric,
) -> Blurred {
    let kept = rounded(queries, centre);
    let is_moved = |q: &usize| {
        let distances = scores.row(*q).into_iter().map(|&score| match metric {
            Metric::Euclidean => score,
            Metric::Cosine => (2.0 - 2.0 * score).max(0.0).sqrt(),
        });
        // Cosines tell no smaller distances from 0.
        let nearest = distances.filter(|distance| *distance > 1e-7).fold(f64::INFINITY, f64::min);
        moved(queries.row(*q), kept.row(*q), centre, metric) > SMALL * nearest
    };
    Blurred { rows: (0..queries.nrows()).filter(is_moved).count(), of: queries.nrows() }
}

/// Whether single precision holds all numbers.
fn exact(codes: ArrayView2<f64>) -> bool {
    codes.iter().all(|&v| f64::from(v as f32) == v)
}

/// How far rounding moves a code x `[k]`, kept as `x − c`: `‖x − c − kept‖`, for cosines as a share of `‖x‖`.
fn moved(x: ArrayView1<f64>, kept: ArrayView1<f32>, centre: Option<&[f64]>, metric: Metric) -> f64 {
    let difference = |j: usize| x[j] - centre.map_or(0.0, |centre| centre[j]) - f64::from(kept[j]);
    let length = (0..x.len()).map(|j| difference(j).powi(2)).sum::<f64>().sqrt();
    let norm = norm(x);
    if metric == Metric::Cosine && norm > 0.0 { length / norm } else { length }
}

/// `‖x − z‖`, for cosines of `x/‖x‖` and `z/‖z‖`.
fn distance(x: ArrayView1<f64>, z: ArrayView1<f64>, metric: Metric) -> f64 {
    let scales = match metric {
        Metric::Euclidean => [1.0, 1.0],
        Metric::Cosine => [norm(x), norm(z)].map(|norm| if norm > 0.0 { 1.0 / norm } else { 0.0 }),
    };
    x.iter().zip(z).map(|(x, z)| (x * scales[0] - z * scales[1]).powi(2)).sum::<f64>().sqrt()
}

fn norm(x: ArrayView1<f64>) -> f64 {
    x.dot(&x).sqrt()
}
