//! Generated sets with a known distribution; the seed determines the rows.
//!
//! ```
//! use mercer::data::generate::{circles, moons, swiss_roll, uniform};
//! let sets = [circles(10, 0.1, 0.5, 0)?, moons(10, 0.1, 0)?, swiss_roll(10, 0.0, 0)?, uniform(10, -1.0, 1.0, 0)?];
//! assert_eq!(sets.map(|set| set.d()), [2, 2, 3, 1]);
//! # Ok::<(), mercer::Error>(())
//! ```

use std::f64::consts::{PI, TAU};

use ndarray::Array2;

use super::dataset::{Dataset, Target};
use crate::rng::Rng;
use crate::{Result, fail_if};

/// A larger number of rows is taken for a typing mistake.
const MOST_ROWS: usize = 100_000_000;

/// Two concentric circles in the plane: class 0 (`outer`) has radius 1, class 1 (`inner`) has radius `factor`.
///
/// Rows alternate between the classes; angles are uniform, and `noise` is the standard deviation of Gaussian noise.
/// Example: [the module](self).
pub fn circles(n: usize, noise: f64, factor: f64, seed: u64) -> Result<Dataset> {
    fail_if!(!(factor > 0.0 && factor < 1.0), "circles: factor must lie between 0 and 1, not {factor}");
    noisy("circles", Some(["outer", "inner"]), n, noise, seed, |i, rng| {
        let angle = TAU * rng.uniform();
        let radius = if i % 2 == 0 { 1.0 } else { factor };
        ([radius * angle.cos(), radius * angle.sin()], 0.0)
    })
}

/// Two interleaved half circles in the plane: `(cos t, sin t)` and `(1 − cos t, ½ − sin t)`, t uniform on [0, π].
///
/// Rows alternate between the classes `upper` and `lower`; Gaussian noise is added to each coordinate.
/// Example: [the module](self).
pub fn moons(n: usize, noise: f64, seed: u64) -> Result<Dataset> {
    noisy("moons", Some(["upper", "lower"]), n, noise, seed, |i, rng| {
        let (sin, cos) = (PI * rng.uniform()).sin_cos();
        (if i % 2 == 0 { [cos, sin] } else { [1.0 - cos, 0.5 - sin] }, 0.0)
    })
}

/// A rolled-up sheet in space: `(t cos t, h, t sin t)`, t uniform on [1.5π, 4.5π], h uniform on [0, 21].
///
/// The target is t, the position along the roll. Gaussian noise is added to each coordinate. Example: [the module](self).
pub fn swiss_roll(n: usize, noise: f64, seed: u64) -> Result<Dataset> {
    noisy("swiss-roll", None, n, noise, seed, |_, rng| {
        let t = 1.5 * PI * (1.0 + 2.0 * rng.uniform());
        let h = 21.0 * rng.uniform();
        ([t * t.cos(), h, t * t.sin()], t)
    })
}

/// Points of the line, uniform on [low, high). Example: [the module](self).
pub fn uniform(n: usize, low: f64, high: f64, seed: u64) -> Result<Dataset> {
    fail_if!(!(low < high && (high - low).is_finite()), "uniform: low = {low} must lie below high = {high}");
    check_rows("uniform", n)?;
    let mut rng = Rng::new(seed);
    let x = Array2::from_shape_simple_fn((n, 1), || low + (high - low) * rng.uniform());
    Dataset::new("uniform", x, None)
}

/// `n` noisy points of `D` coordinates drawn by `point(row, rng)`, which also gives the target where there are no
/// classes; with classes the rows alternate between the two.
fn noisy<const D: usize>(
    name: &str,
    classes: Option<[&str; 2]>,
    n: usize,
    noise: f64,
    seed: u64,
    point: impl Fn(usize, &mut Rng) -> ([f64; D], f64),
) -> Result<Dataset> {
    check_rows(name, n)?;
    fail_if!(
        !(noise >= 0.0 && noise.is_finite()),
        "{name}: noise must be a standard deviation of zero or more, not {noise}"
    );
    let mut rng = Rng::new(seed);
    let mut x = Array2::zeros((n, D));
    let mut targets = Vec::with_capacity(n);
    for (i, mut row) in x.rows_mut().into_iter().enumerate() {
        let (coordinates, target) = point(i, &mut rng);
        for (cell, coordinate) in row.iter_mut().zip(coordinates) {
            *cell = coordinate + noise * rng.normal();
        }
        targets.push(target);
    }
    let y = match classes {
        None => Target::Values(targets),
        Some(names) => {
            Target::Classes { labels: (0..n).map(|i| i % 2).collect(), names: names.map(String::from).to_vec() }
        }
    };
    Dataset::new(name, x, Some(y))
}

fn check_rows(name: &str, n: usize) -> Result<()> {
    fail_if!(n == 0 || n > MOST_ROWS, "{name}: n must lie between 1 and {MOST_ROWS}, not {n}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(set: &Dataset) -> &[usize] {
        let Some(Target::Classes { labels, .. }) = &set.y else { panic!("no classes") };
        labels
    }

    #[test]
    fn circles_have_their_radii() {
        let set = circles(501, 0.0, 0.3, 4).unwrap();
        for (row, &label) in set.x.to_f64().rows().into_iter().zip(labels(&set)) {
            assert!((row[0].hypot(row[1]) - [1.0, 0.3][label]).abs() < 1e-14);
        }
        assert_eq!(labels(&set).iter().filter(|&&l| l == 1).count(), 250);
        // Uniform angles: each coordinate of the outer circle has mean 0 and variance 1/2.
        let set = circles(40_000, 0.0, 0.5, 1).unwrap();
        let outer: Vec<f64> = set.x.column(0).into_iter().step_by(2).collect();
        let n = outer.len() as f64;
        assert!((outer.iter().sum::<f64>() / n).abs() < 4.0 * (0.5 / n).sqrt());
        assert!((outer.iter().map(|v| v * v).sum::<f64>() / n - 0.5).abs() < 4.0 * (0.125 / n).sqrt());
    }

    #[test]
    fn noise_has_the_variance_that_was_asked_for() {
        // E‖x‖² = radius² + 2 noise²; at noise 0.2 the variance of ‖x‖² is 4·0.04·1 + 4·0.04² < 0.17.
        let set = circles(40_000, 0.2, 0.5, 2).unwrap();
        let x = set.x.to_f64();
        let squares: f64 = (0..set.n()).step_by(2).map(|i| x[[i, 0]].powi(2) + x[[i, 1]].powi(2)).sum();
        assert!((squares / 20_000.0 - 1.08).abs() < 4.0 * (0.17f64 / 20_000.0).sqrt());
    }

    #[test]
    fn moons_lie_on_their_half_circles() {
        let set = moons(400, 0.0, 0).unwrap();
        for (row, &label) in set.x.to_f64().rows().into_iter().zip(labels(&set)) {
            let (u, v) = if label == 0 { (row[0], row[1]) } else { (1.0 - row[0], 0.5 - row[1]) };
            assert!((u.hypot(v) - 1.0).abs() < 1e-14 && v >= 0.0);
        }
    }

    #[test]
    fn the_swiss_roll_rolls_up_its_target() {
        let set = swiss_roll(300, 0.0, 9).unwrap();
        for (row, t) in set.x.to_f64().rows().into_iter().zip(set.y.as_ref().unwrap().values()) {
            assert!((1.5 * PI..=4.5 * PI).contains(&t) && (0.0..=21.0).contains(&row[1]));
            assert!((row[0].hypot(row[2]) - t).abs() < 1e-12);
            assert!((row[0] - t * t.cos()).abs() < 1e-12);
        }
    }

    #[test]
    fn uniform_has_its_moments() {
        let x = uniform(50_000, -2.0, 2.0, 3).unwrap().x.into_f64();
        assert!(x.iter().all(|v| (-2.0..2.0).contains(v)));
        let n = x.len() as f64;
        // Variance 4/3; variance of the square 16/5 − 16/9.
        assert!((x.sum() / n).abs() < 4.0 * (4.0 / 3.0 / n).sqrt());
        let second = x.iter().map(|v| v * v).sum::<f64>() / n;
        assert!((second - 4.0 / 3.0).abs() < 4.0 * ((16.0 / 5.0 - 16.0 / 9.0) / n).sqrt());
    }

    #[test]
    fn seeds_decide_and_nonsense_is_refused() {
        assert_eq!(moons(20, 0.1, 5).unwrap(), moons(20, 0.1, 5).unwrap());
        assert_ne!(moons(20, 0.1, 5).unwrap(), moons(20, 0.1, 6).unwrap());
        assert!(moons(0, 0.1, 0).is_err());
        assert!(moons(usize::MAX, 0.1, 0).is_err());
        assert!(uniform(1_000_000_000_000, 0.0, 1.0, 0).is_err());
        assert!(circles(10, -1.0, 0.5, 0).is_err());
        assert!(circles(10, f64::NAN, 0.5, 0).is_err());
        assert!(circles(10, 0.0, 1.0, 0).is_err());
        assert!(uniform(10, 1.0, 1.0, 0).is_err());
        assert!(uniform(10, -1.7e308, 1.7e308, 0).is_err());
    }
}
