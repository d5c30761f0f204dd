//! The median heuristic: a lengthscale from the data.

use super::Statistic;
use crate::data::Rows;
use crate::rng::Rng;
use crate::{Result, fail_if};
use rayon::prelude::*;

/// Points whose distances are taken; the median of their 500 000 pairs is stable to a fraction of a percent.
const SAMPLE: usize = 1000;

/// The rows of n whose distances are taken.
pub(super) fn median_rows(n: usize, seed: u64) -> Vec<usize> {
    Rng::new(seed).fork(0x6d65_6469).sample(n, SAMPLE)
}

/// The median distance between different points of (a sample of) `x` `[n, d]`.
pub(super) fn median_distance(x: Rows<'_>, statistic: Statistic, seed: u64) -> Result<f64> {
    let x = x.select(&median_rows(x.n(), seed)).into_f64();
    let rows = x.nrows();
    let distance = |i: usize, j: usize| -> f64 {
        let differences = x.row(i).into_iter().zip(x.row(j)).map(|(a, b)| a - b);
        match statistic {
            Statistic::Dot | Statistic::SquaredDistance | Statistic::Images => {
                differences.map(|t| t * t).sum::<f64>().sqrt()
            }
            Statistic::L1 => differences.map(f64::abs).sum(),
        }
    };
    let of_row = |i: usize| (0..i).map(|j| distance(i, j)).collect::<Vec<f64>>();
    let mut distances: Vec<f64> = (0..rows).into_par_iter().flat_map_iter(of_row).collect();
    distances.retain(|&d| d > 0.0);
    fail_if!(
        distances.is_empty(),
        "lengthscale=median needs at least two different points, and the data has none; give a number"
    );
    let middle = distances.len() / 2;
    Ok(*distances.select_nth_unstable_by(middle, f64::total_cmp).1)
}
