//! How often what a certificate says with 95 % confidence is true, against quadrature: the Gaussian kernel on normal points.

mod common;

use common::*;
use std::f64::consts::TAU;

/// The trapezoidal rule for `E f(x)`, `x ~ N(0, I)`: it converges faster than any power of the step for functions as smooth as these.
struct Quadrature {
    /// `[m, d]`
    nodes: Array2<f64>,
    /// `[m]`
    weights: Array1<f64>,
    /// κ between the nodes `[m, m]`.
    kernel: Array2<f64>,
}

/// What is true of the functions of a fit under the distribution of the points.
struct Truth {
    /// `⟨ψ_j,Kψ_j⟩/⟨ψ_j,ψ_j⟩`
    quotients: Vec<f64>,
    /// `‖D_j⁻¹(Kψ_j − μ_jψ_j)‖/‖ψ_j‖`
    residuals: Vec<f64>,
}

impl Quadrature {
    /// In d dimensions, on a grid of this step from `−half·step` to `half·step`.
    fn new(text: &str, d: u32, step: f64, half: usize) -> Quadrature {
        let side = 2 * half + 1;
        let nodes = Array2::from_shape_fn((side.pow(d), d as usize), |(i, axis)| {
            step * ((i / side.pow(axis as u32) % side) as f64 - half as f64)
        });
        let density = |v: &f64| step * (-0.5 * v * v).exp() / TAU.sqrt();
        let weights = nodes.map_axis(Axis(1), |node| node.iter().map(density).product());
        let kernel = matrix(&kernel(text), nodes.view());
        Quadrature { nodes, weights, kernel }
    }

    fn product(&self, f: &Array1<f64>, g: &Array1<f64>) -> f64 {
        (f * g * &self.weights).sum()
    }

    fn truth(&self, spectrum: &Spectrum) -> Truth {
        let (ψ, μ) = (spectrum.transform(self.nodes.view()).unwrap(), &spectrum.eigenvalues);
        let image = self.kernel.dot(&(&ψ * &self.weights.view().insert_axis(Axis(1))));
        let (mut truth, mut larger) = (Truth { quotients: vec![], residuals: vec![] }, Vec::<Array1<f64>>::new());
        for j in 0..μ.len() {
            let (ψ, image) = (ψ.column(j).to_owned(), image.column(j).to_owned());
            let square = self.product(&ψ, &ψ);
            truth.quotients.push(self.product(&ψ, &image) / square);
            let (mut error, mut new) = (&image - &(μ[j] * &ψ), ψ);
            for (q, μ_q) in larger.iter().zip(μ) {
                let along = self.product(&error, q);
                error.scaled_add(-along * (1.0 - μ[j] / μ_q), q);
            }
            for q in larger.iter().chain(&larger) {
                let along = self.product(&new, q);
                new.scaled_add(-along, q);
            }
            truth.residuals.push((self.product(&error, &error) / square).sqrt() / μ[j]);
            larger.push(&new / self.product(&new, &new).sqrt());
        }
        truth
    }
}

/// Shares of the certificates in which the interval holds the quotient, and in which no bound is below its residual, for each of k pairs.
struct Coverage {
    intervals: Vec<f64>,
    bounds: Vec<f64>,
}

/// Over `sets` fits to n points, each with `certificates` sets of h held-out points.
fn coverage(
    text: &str,
    quadrature: &Quadrature,
    (n, h, k): (usize, usize, usize),
    sets: u64,
    certificates: u64,
) -> Coverage {
    let (kernel, d) = (kernel(text), quadrature.nodes.ncols());
    let (mut intervals, mut bounds) = (vec![0.0; k], vec![0.0; k]);
    for set in 0..sets {
        let x = normal(n, d, 10_000 + set);
        let operator = on(&kernel, x.view());
        let truth = quadrature.truth(&fit(&Exact, &operator, k));
        for draw in 0..certificates {
            let held_out = normal(h, d, 1_000_000 + set * 1000 + draw);
            let c = fit_held_out(&Exact, &operator, k, held_out.view()).certificate;
            for j in 0..k {
                let [low, high] = c.interval[j].unwrap();
                let held = c.population_bound[j].is_none_or(|bound| truth.residuals[j] <= bound);
                intervals[j] += f64::from(u8::from(low <= truth.quotients[j] && truth.quotients[j] <= high));
                bounds[j] += f64::from(u8::from(held));
            }
        }
    }
    let all = (sets * certificates) as f64;
    let share = |counts: Vec<f64>| counts.into_iter().map(|count| count / all).collect();
    Coverage { intervals: share(intervals), bounds: share(bounds) }
}

/// The spectrum of the Gaussian kernel on N(0, 1) is known: `μ_j = √(2a/A) B^j` with `a = 1/4`, `b = 1/2ℓ²`, `c = √(a² + 2ab)`,
/// `A = a + b + c` and `B = b/A`. Quadrature finds it.
#[test]
fn quadrature_has_the_spectrum_in_closed_form() {
    let quadrature = Quadrature::new("rbf(1)", 1, 0.15, 60);
    let root = quadrature.weights.mapv(f64::sqrt);
    let scaled = &quadrature.kernel * &root * root.view().insert_axis(Axis(1));
    let found = mercer::linalg::eigenvalues(scaled.view()).unwrap();
    let (a, b) = (0.25, 0.5);
    let c = f64::sqrt(a * a + 2.0 * a * b);
    for (j, found) in found.iter().take(8).enumerate() {
        let want = (2.0 * a / (a + b + c)).sqrt() * (b / (a + b + c)).powi(j as i32);
        assert!((found - want).abs() < 1e-12, "{found} {want}");
    }
}

/// Two hundred data sets, five sets of held-out points each: eigenvalues from 0.6 down to 7e-4, where the interval is mostly noise.
#[test]
fn intervals_hold_what_they_say_in_95_of_100_cases() {
    let quadrature = Quadrature::new("rbf(1)", 1, 0.15, 60);
    let found = coverage("rbf(1)", &quadrature, (100, 100, 8), 200, 5);
    assert!(found.intervals.iter().all(|share| (0.93..=0.97).contains(share)), "{:?}", found.intervals);
    // Bounds promise 95 % at least, up to the last pairs, whose residual of 1 and more rare points decide.
    assert!(found.bounds[..6].iter().all(|share| *share >= 0.95), "{:?}", found.bounds);
}

/// Isotropic points: pairs 2 and 3, and 4 to 6, have equal eigenvalues. The functions of such a group are mixed at random, and the last has
/// the smallest eigenvalue on the sample.
#[test]
fn bounds_hold_for_the_last_pair_of_a_group() {
    let quadrature = Quadrature::new("rbf(1.5)", 2, 0.4, 15);
    let found = coverage("rbf(1.5)", &quadrature, (250, 250, 8), 100, 2);
    assert!(found.bounds.iter().all(|share| *share >= 0.95), "{:?}", found.bounds);
}

/// Points that the functions were fitted to say nothing of fresh ones.
#[test]
fn without_held_out_points_there_are_no_intervals_and_no_bounds() {
    let x = normal(200, 1, 7);
    let kernel = kernel("rbf(1)");
    let of_points = fit(&Exact, &on(&kernel, x.view()), 8).certificate;
    let dense = mercer::operator::DenseOperator::new(matrix(&kernel, x.view()));
    let of_matrix = fit(&Exact, &dense, 8).certificate;
    for c in [of_points, of_matrix] {
        assert_eq!(c.held_out, 0);
        assert_eq!(
            (c.interval, c.population_bound, c.population_residual),
            (vec![None; 8], vec![None; 8], vec![None; 8])
        );
        assert!(c.residual.iter().all(Option::is_some));
    }
}
