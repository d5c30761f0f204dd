//! Kernel quantile regression: the conditions of its minimum, the share below it, and the linear program of scikit-learn.

use mercer::apply::{Alpha, Fit, FittedQuantileRegression, Predict, QuantileRegression, Saved};
use mercer::data::Target;
use mercer::kernel::Kernel;
use mercer::rng::Rng;
use mercer::{Device, FitContext};
use ndarray::{Array1, Array2, ArrayView2};
use serde_json::Value;

fn fit(kernel: &str, quantile: f64, alpha: Alpha, x: ArrayView2<f64>, y: &[f64]) -> FittedQuantileRegression {
    let usual = QuantileRegression::new(Kernel::parse(kernel).unwrap());
    let regression = QuantileRegression { quantile, alpha, ..usual };
    regression.fit(x, &Target::Values(y.to_vec()), &FitContext::default()).unwrap()
}

/// Noise whose size grows with x, and whose quantiles are those of the normal distribution.
fn sample(n: usize) -> (Array2<f64>, Vec<f64>) {
    let mut rng = Rng::new(7);
    let x = Array2::from_shape_simple_fn((n, 1), || 3.0 * rng.uniform());
    let y = x.iter().map(|x| (2.0 * x).sin() + (0.2 + 0.3 * x) * rng.normal()).collect();
    (x, y)
}

/// A convex problem has one minimum, and these conditions hold there alone: with the weights a of the dual, `f = b + sKa/α`, every point above f
/// has `a = q`, every point below it `a = q − 1`, and the weights sum to zero.
#[test]
fn the_conditions_of_the_minimum_hold() {
    let (x, y) = sample(150);
    for (quantile, alpha) in [(0.1, 0.5), (0.5, 0.02), (0.75, 5.0)] {
        let fitted = fit("rbf(0.6)", quantile, Alpha::Fixed(alpha), x.view(), &y);
        let n = x.nrows();
        let k = Array2::from_shape_fn((n, n), |(i, j)| (-(x[[i, 0]] - x[[j, 0]]).powi(2) / (2.0 * 0.36)).exp());
        let f = fitted.scores(x.view()).unwrap().column(0).to_owned();
        // f − b = Kc: the weights follow from the differences of f, which the constant does not change.
        let r: Array1<f64> = Array1::from(y.clone()) - &f;
        let loss = |r: f64| (quantile * r).max((quantile - 1.0) * r);
        let mut sorted = y.clone();
        sorted.sort_by(f64::total_cmp);
        let base = sorted[(quantile * n as f64) as usize];
        let spread = y.iter().map(|y| loss(y - base)).sum::<f64>() / n as f64;
        let a = fitted.coefficients().to_owned() * (alpha / spread);
        assert!(a.sum().abs() < 1e-6, "{}", a.sum());
        let (mut above, mut below) = (0, 0);
        for (r, a) in r.iter().zip(&a) {
            assert!(*a > quantile - 1.0 - 1e-9 && *a < quantile + 1e-9);
            if *r > 1e-5 {
                assert!((a - quantile).abs() < 1e-3, "{r} {a}");
                above += 1;
            } else if *r < -1e-5 {
                assert!((a - quantile + 1.0).abs() < 1e-3, "{r} {a}");
                below += 1;
            }
        }
        // A share q lies below, but for the points that f goes through.
        assert!(above as f64 <= (1.0 - quantile) * n as f64 && below as f64 <= quantile * n as f64);
        let offset = (&f - &k.dot(&fitted.coefficients())).to_vec();
        assert!(offset.iter().all(|b| (b - offset[0]).abs() < 1e-9), "f is b + Kc");
        let residual = fitted.convergence.residual.unwrap();
        assert!(residual < 1e-9 && fitted.convergence.iterations.unwrap() < 40, "{residual}");
    }
}

#[test]
fn linear_quantiles_are_those_of_the_linear_program() {
    let golden: Value = serde_json::from_str(include_str!("golden/quantile_regression.json")).unwrap();
    let numbers = |value: &Value| value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect::<Vec<f64>>();
    let rows: Vec<f64> = golden["x"].as_array().unwrap().iter().flat_map(numbers).collect();
    let (x, y) = (Array2::from_shape_vec((rows.len() / 2, 2), rows).unwrap(), numbers(&golden["y"]));
    for linear in golden["fits"].as_array().unwrap() {
        let fitted = fit("linear", linear["quantile"].as_f64().unwrap(), Alpha::Fixed(1e-5), x.view(), &y);
        let want = x.dot(&Array1::from(numbers(&linear["coefficients"]))) + linear["intercept"].as_f64().unwrap();
        let found = fitted.scores(x.view()).unwrap().column(0).to_owned();
        let error = (&found - &want).iter().fold(0.0f64, |most, e| most.max(e.abs()));
        assert!(error < 1e-3, "{linear}: {error}");
    }
}

/// On rows that were not fitted, the share below is the quantile, and the function is that of the noise.
#[test]
fn a_share_of_new_rows_lies_below() {
    let ((x, y), mut rng) = (sample(600), Rng::new(8));
    let new = Array2::from_shape_simple_fn((4000, 1), || 3.0 * rng.uniform());
    let truth: Vec<f64> = new.iter().map(|x| (2.0 * x).sin() + (0.2 + 0.3 * x) * rng.normal()).collect();
    let mut last = Array1::from_elem(4000, f64::MIN);
    for (quantile, deviations) in [(0.1, -1.2816), (0.5, 0.0), (0.9, 1.2816)] {
        let fitted = fit("rbf(0.6)", quantile, Alpha::LeaveOneOut, x.view(), &y);
        let f = fitted.scores(new.view()).unwrap().column(0).to_owned();
        let share = truth.iter().zip(&f).filter(|(y, f)| y < f).count() as f64 / 4000.0;
        assert!((share - quantile).abs() < 0.04, "{quantile}: {share}");
        let want = new.column(0).mapv(|x| (2.0 * x).sin() + deviations * (0.2 + 0.3 * x));
        let error = ((&f - &want).mapv(|e| e * e).mean().unwrap()).sqrt();
        assert!(error < 0.15, "{quantile}: {error}");
        assert!(fitted.tried.iter().any(|tried| tried.value == fitted.alpha) && fitted.tried.len() == 6);
        assert!(last.iter().zip(&f).filter(|(low, high)| low < high).count() > 3950);
        last = f;
    }
}

#[test]
fn units_and_constants_of_the_targets_do_not_matter() {
    let (x, y) = sample(80);
    let fitted = fit("rbf(0.6)", 0.3, Alpha::Fixed(0.1), x.view(), &y);
    let scaled: Vec<f64> = y.iter().map(|y| 1e6 * y + 4e7).collect();
    let other = fit("rbf(0.6)", 0.3, Alpha::Fixed(0.1), x.view(), &scaled);
    let (a, b) = (fitted.scores(x.view()).unwrap(), other.scores(x.view()).unwrap());
    assert!(a.iter().zip(&b).all(|(a, b)| (1e6 * a + 4e7 - b).abs() < 1.0));
    let constant = fit("rbf(0.6)", 0.3, Alpha::Fixed(0.1), x.view(), &[2.5; 80]);
    assert!(constant.scores(x.view()).unwrap().iter().all(|f| *f == 2.5));
    // Rows at the same place have the same row of the kernel matrix.
    let twice = ndarray::concatenate![ndarray::Axis(0), x, x];
    let y_twice: Vec<f64> = y.iter().chain(&y).copied().collect();
    assert!(fit("rbf(0.6)", 0.3, Alpha::Fixed(0.1), twice.view(), &y_twice).convergence.residual.unwrap() < 1e-9);
}

#[test]
fn what_it_cannot_fit_is_refused_and_files_keep_it() {
    let (x, y) = sample(40);
    let regression = QuantileRegression::new(Kernel::parse("rbf(1)").unwrap());
    let refused = |regression: &QuantileRegression, y: &Target| {
        regression.fit(x.view(), y, &FitContext::default()).err().unwrap().to_string()
    };
    let classes = Target::Classes { labels: vec![0; 40], names: vec!["a".into(), "b".into()] };
    assert!(refused(&regression, &classes).contains("quantiles are those of numbers"));
    let one = QuantileRegression { quantile: 1.0, ..regression.clone() };
    assert!(refused(&one, &Target::Values(y.clone())).contains("between 0 and 1, got 1"));
    let zero = QuantileRegression { alpha: Alpha::Fixed(0.0), ..regression };
    assert!(refused(&zero, &Target::Values(y.clone())).contains("an α above 0"));
    let fitted = fit("rbf(1)", 0.25, Alpha::Fixed(0.2), x.view(), &y);
    let file = std::env::temp_dir().join(format!("quantile-{}.mercer", std::process::id()));
    fitted.save(&file).unwrap();
    let again = FittedQuantileRegression::load(&file, Device::Cpu).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(again.quantile, 0.25);
    assert_eq!(again.scores(x.view()).unwrap(), fitted.scores(x.view()).unwrap());
}
