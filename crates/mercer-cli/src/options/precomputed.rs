//! `--kernel precomputed`: the data is the kernel matrix itself, and new points are rows of their kernel values.

use mercer::data::Dataset;
use mercer::{Error, Result, fail_if};
use ndarray::Array2;

/// The word that stands for a kernel matrix in place of an expression.
pub const PRECOMPUTED: &str = "precomputed";

/// The kernel matrix `[n, n]`, which must be symmetric but for rounding.
pub fn matrix(data: &Dataset) -> Result<Array2<f64>> {
    const ROUNDING: f64 = 1e-6;
    let (n, d) = (data.n(), data.d());
    fail_if!(
        n != d,
        "`{}` has {n} rows and {d} columns, but a kernel matrix is square; if one column is the target, name it by --target",
        data.name
    );
    let mut k = data.x.to_f64().into_owned();
    let largest = k.iter().fold(0.0, |m: f64, v| m.max(v.abs()));
    let asymmetric = |&(i, j): &(usize, usize)| (k[[i, j]] - k[[j, i]]).abs() > ROUNDING * largest;
    if let Some((i, j)) = (0..n).flat_map(|i| (0..i).map(move |j| (i, j))).find(asymmetric) {
        let (value, mirrored) = (k[[i, j]], k[[j, i]]);
        return Err(Error::input(format!(
            "`{}` is no kernel matrix: row {}, column {} (counted from 1) is {value}, but row {}, column {} is {mirrored}",
            data.name,
            i + 1,
            j + 1,
            j + 1,
            i + 1
        )));
    }
    for i in 0..n {
        for j in 0..i {
            let mean = (k[[i, j]] + k[[j, i]]) / 2.0;
            (k[[i, j]], k[[j, i]]) = (mean, mean);
        }
    }
    Ok(k)
}
