//! Kernel ridge regression whose ridge is chosen on a fifth of the examples.

use mercer::apply::{Alpha, Fit, Predict, Ridge};
use mercer::data::Target;
use mercer::kernel::Expression;
use mercer::{FitContext, Result, Silent};
use ndarray::{ArrayView2, Axis};

/// Predictions `[m]` at `new` `[m, d]` from the examples `x` `[n, d]`, `y` `[n]`, with the ridge of the least error on the last fifth of
/// them.
pub fn chosen_ridge(
    kernel: &str,
    ridges: &[f64],
    x: ArrayView2<f64>,
    y: &[f64],
    new: ArrayView2<f64>,
    context: &FitContext,
) -> Result<Vec<f64>> {
    let kernel = Expression::parse(kernel)?.resolve(x, 0)?;
    let fit = |x: ArrayView2<f64>, y: &[f64], alpha: f64| {
        let ridge = Ridge { alpha: Alpha::Fixed(alpha), ..Ridge::new(kernel.clone()) };
        ridge.fit(x, &Target::Values(y.to_vec()), &FitContext { progress: &Silent, ..*context })
    };
    let kept = x.nrows() - x.nrows() / 5;
    let (train, left) = x.split_at(Axis(0), kept);
    let mut best = (f64::INFINITY, ridges[0]);
    for &alpha in ridges {
        let predicted = fit(train, &y[..kept], alpha)?.scores(left)?;
        let error: f64 = predicted.iter().zip(&y[kept..]).map(|(p, y)| (p - y).powi(2)).sum();
        if error < best.0 {
            best = (error, alpha);
        }
    }
    Ok(fit(x, y, best.1)?.scores(new)?.column(0).to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use mercer::rng::Rng;

    /// Of a small and a large ridge, the small one is chosen for values without noise, and the large one for noise alone.
    #[test]
    fn the_ridge_suits_the_noise() {
        let mut rng = Rng::new(1);
        let x = rng.normals((100, 1));
        let noise: Vec<f64> = (0..100).map(|_| rng.normal()).collect();
        let smooth: Vec<f64> = x.iter().map(|x| x.sin()).collect();
        let at = |y: &[f64], ridges: &[f64]| {
            chosen_ridge("rbf(0.3)", ridges, x.view(), y, x.view(), &FitContext::default()).unwrap()
        };
        assert_eq!(at(&smooth, &[1e-6, 100.0]), at(&smooth, &[1e-6]));
        assert_eq!(at(&noise, &[1e-6, 100.0]), at(&noise, &[100.0]));
    }
}
