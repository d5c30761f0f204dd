//! The median heuristic: a lengthscale from the data.

use super::{Entry, Statistic};
use crate::data::Rows;
use crate::rng::Rng;
use crate::{Result, fail_if};
use rayon::prelude::*;

/// Points whose distances are taken; the median of their 500 000 pairs is stable to a fraction of a percent.
const SAMPLE: usize = 1000;

/// What a lengthscale of `median` is, about which `auto` and `ard` search. Example: [`super::Tunable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Median {
    /// The median distance between two points.
    Distance,
    /// The median norm of the points, for kernels of `x·x'`.
    Norm,
    /// The median norm over `√d`, for kernels of `x·x'/d`.
    Coordinate,
    /// 1, for lengthscales that do not have the unit of the data.
    One,
}

/// The rows of n whose distances are taken.
pub(super) fn median_rows(n: usize, seed: u64) -> Vec<usize> {
    Rng::new(seed).fork(0x6d65_6469).sample(n, SAMPLE)
}

/// The lengthscale `median` of the kernel `entry` on (a sample of) the points `x` `[n, d]`.
pub(super) fn median_lengthscale(x: Rows<'_>, entry: &Entry, seed: u64) -> Result<f64> {
    if entry.median == Median::One {
        return Ok(1.0);
    }
    let x = x.select(&median_rows(x.n(), seed)).into_f64();
    let (rows, d) = x.dim();
    let distance = |i: usize, j: usize| -> f64 {
        let differences = x.row(i).into_iter().zip(x.row(j)).map(|(a, b)| a - b);
        match entry.statistic {
            Statistic::Dot | Statistic::SquaredDistance | Statistic::Images => {
                differences.map(|t| t * t).sum::<f64>().sqrt()
            }
            Statistic::L1 => differences.map(f64::abs).sum(),
        }
    };
    let of_row = |i: usize| (0..i).map(|j| distance(i, j)).collect::<Vec<f64>>();
    let norm = |i: usize| x.row(i).dot(&x.row(i)).sqrt();
    let root = (d as f64).sqrt();
    let mut lengths: Vec<f64> = match entry.median {
        Median::Distance | Median::One => (0..rows).into_par_iter().flat_map_iter(of_row).collect(),
        Median::Norm => (0..rows).map(norm).collect(),
        Median::Coordinate => (0..rows).map(|i| norm(i) / root).collect(),
    };
    lengths.retain(|&length| length > 0.0);
    fail_if!(
        lengths.is_empty(),
        "lengthscale=median needs {}, and the data has none; give a number",
        if entry.median == Median::Distance { "at least two different points" } else { "a point beside the origin" }
    );
    let middle = lengths.len() / 2;
    Ok(*lengths.select_nth_unstable_by(middle, f64::total_cmp).1)
}
