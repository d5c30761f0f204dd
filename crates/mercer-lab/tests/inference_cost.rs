//! Equal cost must be equal, and the figures must be those of certified spectra.

use mercer::FitContext;
use mercer_lab::inference_cost::{Config, Point, run};

#[test]
fn methods_of_equal_cost_are_compared_on_points_they_have_not_seen() {
    let config = Config { budgets: vec![1500, 6000], ..Config::quick(0) };
    let report = run(&config, &FitContext::default()).unwrap();
    eprintln!("{}", report.verdict);
    for (budget, points) in config.budgets.iter().zip(&report.points) {
        assert_eq!(points.len(), 6);
        for p in points {
            eprintln!(
                "{budget}: {} of size {} at {}: residual {:.3}, captured {:.4}, {:.2} s",
                p.method, p.size, p.multiply_adds, p.mean_residual, p.captured, p.seconds
            );
            // As large as the cost allows, and no larger: one more unit, or two where they come in pairs, would be.
            assert!(p.multiply_adds <= *budget, "{} costs {}", p.method, p.multiply_adds);
            assert!(p.multiply_adds > budget * 3 / 5, "{} costs {} only", p.method, p.multiply_adds);
            assert!(p.residual.iter().flatten().all(|r| r.is_finite() && *r >= 0.0));
            // No functions capture more than the best, but for the noise of 400 points.
            assert!(p.captured < report.exact_captured + 0.01 && p.captured_fitted <= report.exact.iter().sum::<f64>());
        }
    }
    let by =
        |budget: usize, method: &str| -> &Point { report.points[budget].iter().find(|p| p.method == method).unwrap() };
    // The same landmarks and the same networks: Rayleigh–Ritz and training may only help, and larger is better.
    for budget in [0, 1] {
        assert!(by(budget, "Nyström, Ritz").mean_residual < by(budget, "Nyström").mean_residual);
        assert!(by(budget, "Ritz, trained").mean_residual < by(budget, "Ritz, untrained").mean_residual);
    }
    for method in ["Nyström, Ritz", "random Fourier features, Ritz", "Ritz, untrained"] {
        assert!(by(1, method).mean_residual < by(0, method).mean_residual, "{method}");
    }
}

#[test]
fn data_that_is_too_small_is_refused() {
    let config = Config { n: 1700, held_out: 200, ..Config::quick(0) };
    let error = run(&config, &FitContext::default()).unwrap_err().to_string();
    assert!(error.contains("1797") && error.contains("1900"), "{error}");
}
