//! Certificates: what they say of a pair must be true of the function that `transform` evaluates.

mod common;

use common::*;
use mercer::operator::{DenseOperator, FunctionSamples, LowRankOperator, OnPoints, Points};
use mercer::spectrum::neural::{Neural, NeuralEf, Stop, TrainedPairs, Training};
use mercer::spectrum::{Certified, Landmarks, Nystrom, Solution};

fn line(n: usize, half_width: f64, seed: u64) -> Array2<f64> {
    uniform(n, 1, half_width, seed)
}

/// Certified on other points, in this precision.
fn certified(
    method: &dyn Method,
    text: &str,
    precision: Precision,
    x: &Array2<f64>,
    h: &Array2<f64>,
    k: usize,
) -> Spectrum {
    let context = FitContext { precision, ..FitContext::default() };
    let operator = context.kernel_operator(&kernel(text), x.view()).unwrap();
    Spectrum::fit(method, &Problem { operator: &operator, k, context }, Some(h.view().into())).unwrap()
}

/// `‖D_j⁻¹(K̂ψ_j − μ_jψ_j)‖/‖ψ_j‖` from what `transform` gives: the error's parts along larger functions, found by least
/// squares, are divided by their own eigenvalue.
fn residual_of_transform(spectrum: &Spectrum, text: &str, x: &Array2<f64>, h: &Array2<f64>, j: usize) -> f64 {
    let (at_x, at_h) = (spectrum.transform(x.view()).unwrap(), spectrum.transform(h.view()).unwrap());
    let μ = &spectrum.eigenvalues;
    let image = by_formula(&kernel(text), h.view(), x.view()).dot(&at_x.column(j)) / x.nrows() as f64;
    let mut error = image - μ[j] * &at_h.column(j);
    // Gram–Schmidt, twice.
    let mut basis: Vec<Array1<f64>> = vec![];
    for i in 0..j {
        let mut q = at_h.column(i).to_owned();
        for b in basis.iter().chain(&basis.clone()) {
            let along = q.dot(b);
            q.scaled_add(-along, b);
        }
        q /= q.dot(&q).sqrt();
        let along = error.dot(&q);
        error.scaled_add(-along * (1.0 - μ[j] / μ[i]), &q);
        basis.push(q);
    }
    (error.dot(&error) / at_h.column(j).dot(&at_h.column(j))).sqrt() / μ[j]
}

#[test]
fn residuals_are_those_of_the_functions_that_transform_evaluates() {
    let (x, h, k) = (line(700, 2.0, 1), line(300, 2.0, 2), 16);
    for (precision, pairs) in [(Precision::F64, 16), (Precision::F32, 8)] {
        for method in [&Exact as &dyn Method, &Krylov::default()] {
            let spectrum = certified(method, "rbf(1)", precision, &x, &h, k);
            for j in 0..pairs {
                let (reported, found) =
                    (spectrum.certificate.residual[j].unwrap(), residual_of_transform(&spectrum, "rbf(1)", &x, &h, j));
                let rounding = spectrum.certificate.rounding[j].unwrap();
                // Below rounding, two ways of adding the same numbers differ.
                assert!(
                    (reported / found).max(found / reported) < 3.0 || reported.max(found) < 3.0 * rounding,
                    "{} in {precision:?}, pair {}: {reported} for {found}, rounding {rounding}",
                    method.name(),
                    j + 1
                );
            }
        }
    }
}

#[test]
fn equal_functions_have_equal_certificates() {
    let (x, h) = (line(800, 2.0, 3), line(300, 2.0, 4));
    let [exact, krylov] = [&Exact as &dyn Method, &Krylov::to(1e-12)]
        .map(|method| certified(method, "rbf(1)", Precision::F64, &x, &h, 15));
    for j in 0..15 {
        let [a, b] = [&exact, &krylov].map(|s| s.certificate.residual[j].unwrap());
        let [ψ, φ] = [&exact, &krylov].map(|s| s.transform(h.view()).unwrap().column(j).to_owned());
        let sign = ψ.dot(&φ).signum();
        let difference = (&ψ - &(sign * &φ)).mapv(|v| v * v).sum().sqrt() / ψ.dot(&ψ).sqrt();
        assert!(difference < 1e-2, "pair {}: the functions differ by {difference}", j + 1);
        // A function that is right to three digits has a residual that says so.
        assert!(a < 1e-2 && b < 1e-2, "pair {}: {a} and {b}", j + 1);
        let rounding = exact.certificate.rounding[j].unwrap();
        assert!(difference < 30.0 * (a + b + rounding), "pair {}: {difference}, {a} and {b}", j + 1);
    }
}

#[test]
fn intervals_are_never_inverted_and_keep_their_level() {
    let (text, k) = ("poly(degree=4, offset=1.5)", 5);
    let truth =
        fit_kernel(&Exact, text, Array2::from_shape_fn((2000, 1), |(i, _)| (i as f64 + 0.5) / 1000.0 - 1.0).view(), k);
    let (mut covered, mut all) = (0, 0);
    for seed in 0..60 {
        let (x, h) = (line(450, 1.0, 1000 + seed), line(50, 1.0, 5000 + seed));
        let spectrum = certified(&Exact, text, Precision::F64, &x, &h, k);
        // The first three: the functions are those of the distribution to within the interval's width.
        for (j, interval) in spectrum.certificate.interval.iter().enumerate() {
            let [low, high] = interval.unwrap();
            assert!(0.0 <= low && low < high, "seed {seed}, pair {}: {low} … {high}", j + 1);
            if j < 3 {
                all += 1;
                covered += usize::from(low <= truth.eigenvalues[j] && truth.eigenvalues[j] <= high);
            }
        }
    }
    // Binomial(180, 0.95): 162 is three standard deviations below the mean.
    assert!(covered >= 162, "{covered} of {all}");
}

#[test]
fn bounds_beyond_the_sample_hold_and_are_not_far_off() {
    let (text, k, x) = ("rbf(1)", 4, line(60, 2.0, 7));
    let grid = Array2::from_shape_fn((4000, 1), |(i, _)| (i as f64 + 0.5) / 1000.0 - 2.0);
    let truth = certified(&Exact, text, Precision::F64, &x, &grid, k).certificate;
    let truth: Vec<f64> = truth.population_residual.into_iter().map(Option::unwrap).collect();
    let (mut held, mut ratio, trials) = (0, 0.0, 60);
    for seed in 0..trials {
        let c = certified(&Exact, text, Precision::F64, &x, &line(200, 2.0, 100 + seed), k).certificate;
        for (truth, bound) in truth.iter().zip(c.population_bound.iter().flatten()) {
            held += usize::from(truth <= bound);
            ratio += bound / truth / (trials * k as u64) as f64;
        }
    }
    assert!(held >= 216, "{held} of 240 bounds hold, {truth:?}");
    assert!(ratio < 2.5, "bounds are {ratio} times the truth, {truth:?}");
}

#[test]
fn eigenvalues_that_a_sample_cannot_tell_apart_are_named() {
    // Isotropic normal points: the second and third eigenvalues of the distribution are equal, and so on.
    let x = normal(600, 2, 3);
    let found = |k: usize| fit_kernel(&Exact, "rbf(2)", x.view(), k).certificate;
    use Standing::{Simple, Unresolved};
    let six = found(6);
    assert_eq!(six.standing, [Simple, Unresolved, Unresolved, Unresolved, Unresolved, Unresolved]);
    assert!(!six.cuts_group, "the six functions of degree two or less are a whole");
    assert!(found(2).cuts_group && !found(3).cuts_group && !found(1).cuts_group);
    let krylov = fit_kernel(&Krylov::default(), "rbf(2)", x.view(), 2).certificate;
    assert!(krylov.cuts_group);
    // Three times as spread out along one axis, all are simple.
    let stretched = &x * &ndarray::array![1.0, 0.3];
    let c = fit_kernel(&Exact, "rbf(2)", stretched.view(), 3).certificate;
    assert_eq!(c.standing, [Simple, Simple, Simple]);
    // On a ring of equal distances they are equal on the sample already.
    let c = fit_kernel(&Exact, "rbf(1)", ring(90).view(), 4).certificate;
    assert_eq!(c.standing, [Simple, Standing::Repeated, Standing::Repeated, Standing::Repeated]);
    assert!(c.cuts_group);
}

#[test]
fn approximate_methods_are_certified_for_what_they_are() {
    let (x, h) = (line(900, 2.0, 5), line(100, 2.0, 6));
    let nystrom = |landmarks| {
        let method = Nystrom { landmarks, choice: Landmarks::Uniform };
        certified(&method, "matern12(0.5)", Precision::F64, &x, &h, 6).certificate
    };
    let (few, many) = (nystrom(12), nystrom(200));
    assert!(few.worst_residual() > 5.0 * many.worst_residual());
    assert!(few.worst_residual() > 100.0 * few.rounding.iter().flatten().fold(0.0, |a: f64, b| a.max(*b)));
}

#[test]
fn function_samples_are_certified_on_held_out_points() {
    let x = line(300, 2.0, 8);
    // Smooth random functions: cosines of random frequencies and phases.
    let mut rng = Rng::new(4);
    let f = Array2::from_shape_fn((80, 2), |_| rng.normal());
    let f = Array3::from_shape_fn((80, 300, 1), |(s, i, _)| (f[[s, 0]] * x[[i, 0]] + 3.0 * f[[s, 1]]).cos());
    let [fitted, held_out]: [Vec<usize>; 2] = [(0..240).collect(), (240..300).collect()];
    let samples = FunctionSamples::from(f.view());
    let functions = LowRankOperator::of_samples(&samples, false).unwrap().at_points(&fitted);
    assert_eq!(functions.n(), 240);
    let fresh = samples.select(&held_out);
    let fresh = FunctionSamples::from(fresh.view());
    let [near, far] = [&fitted, &held_out].map(|rows| x.select(Axis(0), rows));
    let operator = OnPoints::new(&functions, &near).unwrap();
    let points = || Some(Points::Both((&far).into(), &fresh));
    let exact = Spectrum::fit(&Exact, &Problem::new(&operator, 3), points()).unwrap().certificate;
    assert_eq!(exact.held_out, 60);
    assert!(exact.worst_residual() < 1e-10 && exact.interval.iter().all(Option::is_some));
    let mut networks = Neural::new(NeuralEf::Joint);
    networks.settings.steps = 60;
    let trained = Spectrum::fit(&networks, &Problem::new(&operator, 3), points()).unwrap();
    assert_eq!(trained.certificate.held_out, 60);
    assert!(trained.certificate.worst_residual() > 1e-6);
    assert_eq!(trained.transform(far.view()).unwrap().dim(), (60, 3));
    // The same functions in a file that stays where it is.
    let (_folder, path) = scratch("f.npy");
    mercer::data::write_npy(&path, f.view()).unwrap();
    let file = FunctionSamples::in_file(mercer::data::MappedArray::open(&path).unwrap()).unwrap();
    assert_eq!(file.select(&held_out), samples.select(&held_out));
    let mapped = LowRankOperator::of_samples(&file, false).unwrap().at_points(&fitted);
    let v = normal(240, 2, 1);
    let difference = mapped.apply(v.view()).unwrap() - functions.apply(v.view()).unwrap();
    assert!(difference.iter().all(|d| d.abs() < 1e-12));
    let difference = mapped.block(&[0, 200], &[3]).unwrap() - functions.block(&[0, 200], &[3]).unwrap();
    assert!(difference.iter().all(|d| d.abs() < 1e-12));
}

/// No function has a larger Rayleigh quotient than `κ(x,x)`, where that is constant; few held-out points alone would not say so.
#[test]
fn intervals_end_where_the_trace_does() {
    let kernel = kernel("rbf(4)");
    let mut reached = 0;
    for seed in 0..10 {
        let (x, held_out) = (normal(60, 5, 900 + seed), normal(10, 5, 950 + seed));
        let spectrum =
            Spectrum::fit(&Exact, &Problem::new(&on(&kernel, x.view()), 20), Some(held_out.view().into())).unwrap();
        for [low, high] in spectrum.certificate.interval.iter().flatten() {
            assert!(low <= high && *high <= 1.0, "{low} {high}");
            reached += usize::from(*high == 1.0);
        }
    }
    assert!(reached > 0, "no interval is that wide: the points are too many for this test");
}

/// A kernel less half of the diagonal: with the eigenvalues λ of the one, those of the other are λ − ½ exactly.
#[test]
fn negative_eigenvalues_of_a_matrix_are_said_with_their_share() {
    let (x, n) = (normal(40, 3, 0), 40);
    let whole = matrix(&kernel("rbf(1.2)"), x.view());
    let λ: Vec<f64> =
        fit(&Exact, &DenseOperator::new(whole.clone()), n).eigenvalues.iter().map(|μ| μ * n as f64 - 0.5).collect();
    let all: f64 = λ.iter().map(|λ| λ.abs()).sum();
    let below: f64 = λ.iter().map(|λ| (-λ).max(0.0)).sum();
    let count = λ.iter().filter(|λ| **λ < 0.0).count();
    let indefinite = DenseOperator::new(&whole - &(0.5 * Array2::<f64>::eye(n)));
    for method in [&Exact as &dyn Method, &Krylov::default()] {
        let spectrum = fit(method, &indefinite, 10);
        let found: f64 = spectrum.eigenvalues.iter().sum::<f64>() * n as f64;
        let c = &spectrum.certificate;
        assert!((c.negative - below / all).abs() < 1e-9 && (c.trace_captured - found / all).abs() < 1e-6, "{c:?}");
        let note = &spectrum.notes[0];
        assert!(note.contains(&format!("{count} of the 40 eigenvalues are negative")), "{note}");
        assert_eq!(reloaded(&spectrum).certificate.negative, c.negative);
    }
    // Neither a kernel nor the rounding of its values to single precision is called indefinite.
    for fine in [whole.clone(), whole.mapv(|v| f64::from(v as f32))] {
        let spectrum = fit(&Exact, &DenseOperator::new(fine), 10);
        assert_eq!((spectrum.certificate.negative, spectrum.notes.len()), (0.0, 0));
    }
}

/// What training would return that found all pairs but one.
struct Without(usize);

impl Method for Without {
    fn name(&self) -> String {
        "without".into()
    }

    fn solve(&self, problem: &Problem) -> mercer::Result<Solution> {
        let mut found = Exact.solve(&Problem { k: problem.k + 1, ..*problem })?;
        let kept: Vec<usize> = (0..=problem.k).filter(|j| *j != self.0).collect();
        found.eigenvalues.remove(self.0);
        found.coefficients = found.coefficients.select(Axis(1), &kept);
        found.at_points = found.at_points.map(|ψ| ψ.select(Axis(1), &kept));
        let training = Training {
            objective: "none".into(),
            architecture: String::new(),
            parameters: 0,
            steps: 1,
            planned: 1,
            kept: 1,
            batch: 1,
            seconds: 0.0,
            stop: Stop::Budget,
            recoveries: 0,
            raw_eigenvalues: vec![],
            finished: true,
            loss: vec![],
            validation: vec![],
            accuracy: vec![],
            notes: vec![],
        };
        found.networks = Some(TrainedPairs { training, untrained: None });
        Ok(found)
    }

    fn certify(&self, problem: &Problem, found: Solution, held_out: Option<Points<'_>>) -> mercer::Result<Certified> {
        Neural::new(NeuralEf::default()).certify(problem, found, held_out)
    }
}

/// Every residual is small, also where a pair is missing: that is seen in what the functions do not span.
#[test]
fn a_pair_that_training_missed_is_named() {
    let (x, h) = (normal(900, 1, 1), normal(200, 1, 2));
    let operator = on_own(&kernel("rbf(1)"), x);
    let fitted = |missing: usize| fit_held_out(&Without(missing), &operator, 6, h.view());
    for missing in 0..5 {
        let spectrum = fitted(missing);
        let c = &spectrum.certificate;
        assert!(c.worst_residual() < 1e-6);
        let [note] = &spectrum.notes[..] else { panic!("{:?}", spectrum.notes) };
        assert!(note.contains(&format!("pairs from {} on", missing + 1)), "{note}");
        assert!(c.standing[missing..].iter().all(|s| *s == Standing::Unresolved), "{:?}", c.standing);
        assert!(c.standing[..missing].iter().all(|s| *s == Standing::Simple), "{:?}", c.standing);
    }
    // The pair after the last is none that was missed.
    let whole = fitted(6);
    assert!(
        whole.notes.is_empty() && whole.certificate.standing.iter().all(|s| *s == Standing::Simple),
        "{:?}",
        whole.notes
    );
}
