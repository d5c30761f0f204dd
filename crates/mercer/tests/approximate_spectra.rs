//! Nyström, random Fourier and positive features against the exact method, the kernel itself, and their laws.

mod common;

use common::{Rng, bounded as points, normal as gaussian, *};
use mercer::kernel::catalogue;
use mercer::operator::Budget;
use mercer::spectrum::{Fourier, Landmarks, Nystrom, NystromFeatures, Positive, RandomFeatures, Sampling};
use ndarray::concatenate;
use proptest::prelude::*;

const CHOICES: [Landmarks; 4] =
    [Landmarks::Uniform, Landmarks::KMeansPlusPlus, Landmarks::LeverageScores, Landmarks::PivotedCholesky];
const SAMPLINGS: [Sampling; 3] = [Sampling::Plain, Sampling::Orthogonal, Sampling::QuasiMonteCarlo];

/// One cluster of most points and nine of a few each, far apart.
fn clusters(n: usize, seed: u64) -> Array2<f64> {
    let mut rng = Rng::new(seed);
    Array2::from_shape_fn((n, 2), |(i, j)| {
        let cluster = if i % 10 < 9 { 0 } else { 1 + i / 10 % 9 };
        let centre = if j == 0 { 6.0 * (cluster % 4) as f64 } else { 6.0 * (cluster / 4) as f64 };
        centre + 0.5 * rng.normal()
    })
}

/// `E[κ(x,x) − φ(x)·φ(x)]`: what the landmarks leave unexplained.
fn trace_error(kernel: &Kernel, x: ArrayView2<f64>, landmarks: &[usize]) -> f64 {
    let z = x.select(Axis(0), landmarks);
    let phi = NystromFeatures::new(kernel, z.view(), &FitContext::default()).unwrap().transform::<f64>(x).unwrap();
    let trace = kernel.diagonal(x).sum();
    (trace - phi.iter().map(|v| v * v).sum::<f64>()) / x.nrows() as f64
}

fn assert_same_spectrum(kernel: &Kernel, x: ArrayView2<f64>, choice: Landmarks) {
    let n = x.nrows();
    let operator = on(kernel, x);
    let [exact, nystrom] =
        [&Exact as &dyn Method, &Nystrom { landmarks: n, choice }].map(|method| fit(method, &operator, n.min(20)));
    let (ψ, φ) = (exact.transform(x).unwrap(), nystrom.transform(x).unwrap());
    for (j, (&μ, &got)) in exact.eigenvalues.iter().zip(&nystrom.eigenvalues).enumerate() {
        if μ > 1e-8 * exact.eigenvalues[0] {
            assert!((got / μ - 1.0).abs() < 1e-8, "{kernel}, {choice:?}, pair {j}: {got} for {μ}");
        }
        // A well separated function is the same up to its sign.
        let apart = |i: usize| (exact.eigenvalues[i] - μ).abs() > 1e-2 * μ;
        let simple = (j == 0 || apart(j - 1)) && j + 1 < exact.k() && apart(j + 1);
        if simple && μ > 1e-6 * exact.eigenvalues[0] {
            let overlap = ψ.column(j).dot(&φ.column(j)).abs() / n as f64;
            assert!((overlap - 1.0).abs() < 1e-7, "{kernel}, {choice:?}, function {j}: overlap {overlap}");
        }
    }
}

#[test]
fn nystrom_with_every_point_is_exact_for_every_kernel_and_choice() {
    let names = catalogue().into_iter().map(|e| e.name);
    let others = ["arccos(0)", "0.5*rbf(1) + poly(degree=3)", "rbf(2)*periodic(3) + 0.1*laplacian(2)"];
    for text in names.chain(others) {
        for d in [1, 3] {
            assert_same_spectrum(&kernel(text), points(60, d, 1).view(), Landmarks::Uniform);
        }
    }
    for choice in CHOICES {
        assert_same_spectrum(&kernel("matern12(1)"), points(50, 2, 2).view(), choice);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn nystrom_with_every_point_is_exact(n in 2usize..40, d in 1usize..5, seed in 0u64..1000, scale in 0.2f64..5.0) {
        assert_same_spectrum(&kernel(&format!("matern32({scale})")), points(n, d, seed).view(), Landmarks::Uniform);
    }

    #[test]
    fn nystrom_eigenvalues_never_exceed_the_exact_ones(m in 1usize..30, seed in 0u64..1000) {
        let x = points(60, 2, seed);
        let operator = on(&kernel("rbf(0.5)"), x.view());
        let exact = fit(&Exact, &operator, m);
        let problem = Problem { operator: &operator, k: m, context: FitContext { seed, ..FitContext::default() } };
        let nystrom = Spectrum::fit(&Nystrom { landmarks: m, choice: Landmarks::Uniform }, &problem, None).unwrap();
        for (μ, got) in exact.eigenvalues.iter().zip(&nystrom.eigenvalues) {
            prop_assert!(*got <= μ + 1e-12);
        }
    }

    #[test]
    fn landmarks_are_different_points(n in 1usize..80, share in 0.0f64..1.0, seed in 0u64..1000, copies in 1usize..4) {
        let m = 1 + (share * (n - 1) as f64) as usize;
        let x = points(n.div_ceil(copies), 2, seed);
        let x = concatenate(Axis(0), &vec![x.view(); copies]).unwrap();
        for choice in CHOICES {
            for precision in [Precision::F32, Precision::F64] {
                let operator = on(&kernel("matern52(1)"), x.view());
                let mut chosen = choice.choose(&operator, m, seed, precision).unwrap();
                let again = choice.choose(&operator, m, seed, precision).unwrap();
                prop_assert_eq!(&chosen, &again);
                let fewer = choice == Landmarks::PivotedCholesky;
                prop_assert!(chosen.len() == m || (fewer && !chosen.is_empty() && chosen.len() < m));
                chosen.sort_unstable();
                chosen.dedup();
                prop_assert!(chosen.len() == m || fewer);
                prop_assert!(chosen.iter().all(|&i| i < x.nrows()));
            }
        }
    }
}

#[test]
fn informed_landmarks_explain_clusters_better_than_uniform_ones() {
    let (k, m) = (kernel("rbf(1.5)"), 60);
    let x = clusters(1000, 3);
    let mean = |choice: Landmarks| {
        let error = |seed| {
            let chosen = choice.choose(&on(&k, x.view()), m, seed, Precision::F64).unwrap();
            trace_error(&k, x.view(), &chosen)
        };
        (0..10).map(error).sum::<f64>() / 10.0
    };
    let errors = CHOICES.map(mean);
    assert!(errors[1..].iter().all(|informed| *informed < 0.5 * errors[0]), "{errors:?} by {CHOICES:?}");
}

#[test]
fn pivoted_cholesky_stops_at_the_rank() {
    let x = points(200, 1, 4);
    // Every point thrice: the third and second copies explain nothing.
    let thrice = concatenate(Axis(0), &[points(7, 2, 5).view(); 3]).unwrap();
    for (text, x, m, rank) in [("poly(degree=4, scale=1, offset=1.5)", &x, 50, 5), ("matern12(1)", &thrice, 20, 7)] {
        let operator = on(&kernel(text), x.view());
        assert_eq!(Landmarks::PivotedCholesky.choose(&operator, m, 0, Precision::F64).unwrap().len(), rank, "{text}");
    }
}

/// A degree-4 polynomial kernel in one dimension has five directions and no more.
#[test]
fn a_kernel_of_rank_five_has_five_pairs() {
    let x = uniform(3000, 1, 1.0, 6);
    let poly = kernel("poly(degree=4, scale=1, offset=1.5)");
    let (held_out, operator) = (points(200, 1, 7), on(&poly, x.view()));
    for choice in CHOICES {
        let spectrum = fit_held_out(&Nystrom { landmarks: 40, choice }, &operator, 8, held_out.view());
        has_rank_five(&spectrum, x.view(), &format!("{choice:?}"));
        assert!(spectrum.certificate.standing[..5].iter().all(|s| *s == Standing::Simple));
        assert!(spectrum.certificate.worst_residual() < 1e-6, "{choice:?}: {:?}", spectrum.certificate.residual);
        assert!((spectrum.certificate.trace_captured - 1.0).abs() < 1e-10);
    }
}

#[test]
fn nystrom_features_are_the_kernel_between_landmarks_whatever_its_condition() {
    // Well conditioned (triangular normalisation), ill conditioned, and singular: landmarks given twice.
    let z = points(40, 2, 8);
    let twice = concatenate(Axis(0), &[z.view(), z.view()]).unwrap();
    let cases = [("laplacian(0.2)", &z, 40), ("rbf(3)", &z, 0), ("matern32(1)", &twice, 40)];
    for (text, z, rank) in cases {
        let k = kernel(text);
        let map = NystromFeatures::new(&k, z.view(), &FitContext::default()).unwrap();
        assert!(rank == 0 || map.dim() == rank, "{text}: {} features", map.dim());
        assert!(rank > 0 || map.dim() < z.nrows(), "{text}: {} features", map.dim());
        let want = matrix(&k, z.view());
        let double = map.transform::<f64>(z.view()).unwrap();
        assert!((double.dot(&double.t()) - &want).iter().all(|d| d.abs() < 1e-11), "{text}");
        let context = FitContext { precision: Precision::F32, ..FitContext::default() };
        let map = NystromFeatures::new(&k, z.view(), &context).unwrap();
        let single = map.transform::<f32>(z.view()).unwrap().mapv(f64::from);
        assert!((single.dot(&single.t()) - &want).iter().all(|d| d.abs() < 1e-3), "{text} in single precision");
    }
}

/// Root mean square of `φ(x)·φ(x') − κ(x,x')` over all pairs of points and several seeds.
fn kernel_error(k: &Kernel, x: ArrayView2<f64>, features: usize, sampling: Sampling, seeds: u64) -> f64 {
    let want = matrix(k, x);
    let squared = |seed| {
        let map = RandomFeatures::fourier(k, x.ncols(), features, sampling, seed).unwrap();
        let phi = map.transform::<f64>(x).unwrap();
        (phi.dot(&phi.t()) - &want).mapv(|e| e * e).mean().unwrap()
    };
    ((0..seeds).map(squared).sum::<f64>() / seeds as f64).sqrt()
}

/// Least-squares slope of `ln error` against `ln features`.
fn slope(counts: &[usize], error: impl Fn(usize) -> f64) -> f64 {
    let (x, y): (Vec<f64>, Vec<f64>) = counts.iter().map(|&c| ((c as f64).ln(), error(c).ln())).unzip();
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let (mx, my) = (mean(&x), mean(&y));
    let covariance: f64 = x.iter().zip(&y).map(|(x, y)| (x - mx) * (y - my)).sum();
    covariance / x.iter().map(|x| (x - mx).powi(2)).sum::<f64>()
}

#[test]
fn fourier_error_falls_with_the_root_of_the_features() {
    let bases = catalogue().into_iter().filter(|e| e.shift_invariant).map(|e| e.name);
    let others = [
        "periodic(period=1.7, lengthscale=0.8)",
        "2*rbf(0.7) + laplacian(2)",
        "rbf(1)*periodic(2)",
        "matern32(1)*(rbf(1) + 0.3*laplacian(2))*3 + 0.2*matern12(0.4)",
    ];
    let x = gaussian(60, 3, 9);
    for text in bases.chain(others) {
        let k = kernel(text);
        let slope = slope(&[32, 128, 512, 2048], |m| kernel_error(&k, x.view(), m, Sampling::Plain, 6));
        assert!((-0.65..=-0.35).contains(&slope), "{text}: error falls like m^{slope}");
        // A wrong spectral measure would leave an error that no number of features removes.
        let error = kernel_error(&k, x.view(), 4096, Sampling::Plain, 4);
        let at_zero = k.value(&[0.0; 3], &[0.0; 3]);
        assert!(error < 2.0 * at_zero / 4096f64.sqrt(), "{text}: error {error}");
    }
}

#[test]
fn structured_frequencies_are_no_worse_than_independent_ones() {
    for d in [2, 8, 20] {
        let x = gaussian(60, d, 10);
        let k = kernel(&format!("rbf({})", (d as f64).sqrt()));
        let [plain, orthogonal, quasi] = SAMPLINGS.map(|s| kernel_error(&k, x.view(), 128, s, 30));
        assert!(orthogonal <= plain, "d = {d}: orthogonal {orthogonal}, plain {plain}");
        assert!(quasi <= plain, "d = {d}: quasi-Monte-Carlo {quasi}, plain {plain}");
        assert!(d > 2 || quasi < 0.5 * plain, "quasi-Monte-Carlo {quasi}, plain {plain}");
    }
}

/// Every sampling of every shift-invariant kernel has the right mean.
#[test]
fn fourier_features_are_unbiased() {
    let x = gaussian(12, 2, 11);
    let names = catalogue().into_iter().filter(|e| e.shift_invariant).map(|e| e.name);
    for text in names.chain(["2*rbf(0.7)*laplacian(2) + matern32(1)"]) {
        let k = kernel(text);
        for sampling in SAMPLINGS {
            let mut mean = Array2::<f64>::zeros((12, 12));
            for seed in 0..400 {
                let map = RandomFeatures::fourier(&k, 2, 10, sampling, seed).unwrap();
                let phi = map.transform::<f64>(x.view()).unwrap();
                mean += &(phi.dot(&phi.t()) / 400.0);
            }
            // 400 seeds of five frequencies: five standard deviations of κ(0)/√4000 (plain sampling's at most).
            let bound = 5.0 * k.value(&[0.0; 2], &[0.0; 2]) / 4000f64.sqrt();
            let worst = worst(&mean, &matrix(&k, x.view()));
            assert!(worst < bound, "{text}, {sampling:?}: {worst} over {bound}");
        }
    }
}

#[test]
fn fourier_spectra_approach_the_exact_one_and_ritz_is_closer() {
    let x = points(800, 2, 12);
    let operator = on(&kernel("rbf(0.6)"), x.view());
    let exact = fit(&Exact, &operator, 6);
    let error = |ritz: bool| {
        let spectrum = fit(&Fourier { features: 400, sampling: Sampling::Orthogonal, ritz }, &operator, 6);
        assert!(spectrum.certificate.orthonormality < 1e-8);
        let pairs = exact.eigenvalues.iter().zip(&spectrum.eigenvalues);
        (pairs.map(|(a, b)| (a - b).abs() / a).fold(0.0, f64::max), spectrum.certificate.worst_residual())
    };
    let (plain, ritz) = (error(false), error(true));
    assert!(plain.0 < 0.3, "{plain:?}");
    assert!(ritz.0 < 1e-6 && ritz.1 < 1e-3, "{ritz:?}");
}

#[test]
fn positive_features_are_unbiased_and_their_error_falls() {
    let x = points(20, 3, 13);
    let k = kernel("1.5*expdot(6)");
    let want = matrix(&k, x.view());
    let variance = Array2::from_shape_fn(want.dim(), |(i, j)| {
        let sum = &x.row(i) + &x.row(j);
        want[[i, j]].powi(2) * ((sum.dot(&sum) / 6.0).exp() - 1.0)
    });
    for sampling in SAMPLINGS {
        let kernel_of = |m: usize, seed: u64| {
            let map = RandomFeatures::positive(&k, 3, m, sampling, seed).unwrap();
            let phi = map.transform::<f64>(x.view()).unwrap();
            assert!(phi.iter().all(|&v| v > 0.0));
            phi.dot(&phi.t())
        };
        let mean = (0..3000).map(|seed| kernel_of(4, seed)).reduce(|a, b| a + b).unwrap() / 3000.0;
        let squares = (0..3000).map(|seed| (kernel_of(4, seed) - &want).mapv(|e| e * e));
        let deviation = (squares.reduce(|a, b| a + b).unwrap() / 3000f64.powi(2)).mapv(f64::sqrt);
        for ((error, deviation), want) in (&mean - &want).iter().zip(&deviation).zip(&want) {
            assert!(error.abs() < 5.0 * deviation, "{sampling:?}: off by {error} from {want}, σ {deviation}");
        }
        // Independent features have variance κ(x,x')² (exp(‖x+x'‖²/s) − 1) each; the others do no worse.
        for m in [8, 512] {
            let errors = (0..200).map(|seed| (kernel_of(m, seed) - &want).mapv(|e| e * e).mean().unwrap());
            let (got, law) = (errors.sum::<f64>() / 200.0, variance.mean().unwrap() / m as f64);
            assert!(got < 1.3 * law, "{sampling:?}: mean square error {got} with {m} features, law {law}");
            assert!(sampling != Sampling::Plain || got > 0.7 * law, "mean square error {got}, law {law}");
        }
    }
}

/// Every method here, with every option, and a kernel that it can decompose.
fn methods() -> Vec<(Box<dyn Method + Sync>, Kernel)> {
    let mut methods: Vec<(Box<dyn Method + Sync>, Kernel)> = vec![];
    for choice in CHOICES {
        methods.push((Box::new(Nystrom { landmarks: 60, choice }), kernel("rbf(0.8) + 0.2*linear")));
    }
    for sampling in SAMPLINGS {
        methods.push((Box::new(Fourier { features: 200, sampling, ritz: false }), kernel("rbf(0.8)*matern52(2)")));
        methods.push((Box::new(Positive { features: 300, sampling, exact_norm: true }), kernel("expdot(1.5)")));
    }
    methods.push((Box::new(Fourier { features: 100, sampling: Sampling::Plain, ritz: true }), kernel("matern32(1)")));
    methods
}

/// Over seeds, the mean of the largest eigenvalue is that of the kernel, to its noise and the bias of a largest eigenvalue, which goes like 1/M.
/// Of features with the exact norm it is too large by far more than that.
#[test]
fn positive_features_are_unbiased_unless_they_are_scaled() {
    let (x, seeds) = (gaussian(150, 2, 5), 40);
    let kernel = kernel("expdot(2)");
    let operator = on(&kernel, x.view());
    let exact = fit(&Exact, &operator, 1).eigenvalues[0];
    let moments = |exact_norm: bool| {
        let method = Positive { features: 500, sampling: Sampling::Orthogonal, exact_norm };
        let first: Vec<f64> = (0..seeds)
            .map(|seed| {
                let context = FitContext { seed, ..FitContext::default() };
                let spectrum = Spectrum::fit(&method, &Problem { operator: &operator, k: 1, context }, None).unwrap();
                assert!(spectrum.notes[0].contains("exact norm"), "{:?}", spectrum.notes);
                spectrum.eigenvalues[0]
            })
            .collect();
        let mean = first.iter().sum::<f64>() / seeds as f64;
        let variance = first.iter().map(|μ| (μ - mean).powi(2)).sum::<f64>() / (seeds - 1) as f64;
        ((mean - exact) / exact, (variance / seeds as f64).sqrt() / exact)
    };
    let [(drawn, noise), (scaled, less)] = [false, true].map(moments);
    assert!(drawn.abs() < 3.0 * noise + 0.005, "{drawn} ± {noise}");
    assert!(scaled > 0.01 && scaled > 5.0 * less, "{scaled} ± {less}");
}

#[test]
fn saved_spectra_read_back_and_seeds_reproduce() {
    let (x, new) = (points(300, 2, 14), points(17, 2, 15));
    for (method, k) in methods() {
        let operator = on(&k, x.view());
        let problem = Problem { operator: &operator, k: 4, context: FitContext { seed: 5, ..FitContext::default() } };
        let spectrum = Spectrum::fit(method.as_ref(), &problem, None).unwrap();
        let again = Spectrum::fit(method.as_ref(), &problem, None).unwrap();
        assert_eq!(spectrum.eigenvalues, again.eigenvalues, "{}", method.name());
        // Other thread counts may add in another order, no more.
        let elsewhere = on_threads(3, || Spectrum::fit(method.as_ref(), &problem, None).unwrap());
        same_eigenvalues(&spectrum.eigenvalues, &elsewhere.eigenvalues, 1e-8, &method.name());
        assert_eq!(
            reloaded(&spectrum).transform(new.view()).unwrap(),
            spectrum.transform(new.view()).unwrap(),
            "{}",
            method.name()
        );
    }
}

#[test]
fn single_precision_agrees_with_double() {
    let x = points(500, 2, 16) + 100.0;
    for (method, k) in methods() {
        // The expdot kernel of far-off points overflows by itself; the others are shift-invariant, but for 0.2*linear.
        let near = &x - 100.0;
        let x = if k.is_shift_invariant() { &x } else { &near };
        let [single, double] =
            [Precision::F32, Precision::F64].map(|precision| fit_in(precision, method.as_ref(), &k, x.view(), 4));
        // Landmarks may be other points where a rounding decides, which moves the small eigenvalues a little.
        let tolerance = if method.name() == "nystrom" { 2e-3 } else { 1e-4 };
        same_eigenvalues(&single.eigenvalues, &double.eigenvalues, tolerance, &format!("{} {k}", method.name()));
    }
}

#[test]
fn what_cannot_be_done_is_said() {
    let x = points(30, 2, 17);
    let refuses = |method: &dyn Method, text: &str, k: usize, parts: &[&str]| {
        says(Spectrum::fit(method, &Problem::new(&on(&kernel(text), x.view()), k), None), parts);
    };
    let fourier = |features| Fourier { features, sampling: Sampling::Plain, ritz: false };
    let nystrom = |landmarks| Nystrom { landmarks, choice: Landmarks::Uniform };
    let cases: [(&dyn Method, usize, &str); 6] = [
        (&fourier(21), 2, "even number"),
        (&fourier(0), 2, "even number"),
        (&fourier(4), 5, "5 pairs"),
        (&Positive { features: 10, sampling: Sampling::Plain, exact_norm: false }, 2, "expdot"),
        (&nystrom(31), 2, "between 1 and 30"),
        (&nystrom(3), 5, "5 pairs"),
    ];
    for (method, k, part) in cases {
        refuses(method, "rbf(1)", k, &[part]);
    }
    refuses(&fourier(20), "rbf(1) + poly(degree=2)", 2, &["poly(degree=2", "Nyström"]);
    let k = kernel("rbf(1)");
    let operator = on(&k, x.view());
    let context = FitContext { budget: Budget::of(1000), ..FitContext::default() };
    let small = Problem { operator: &operator, k: 2, context };
    for method in [&nystrom(20) as &dyn Method, &fourier(20)] {
        says(Spectrum::fit(method, &small, None), &["memory budget"]);
    }
    let overflow = NystromFeatures::new(&kernel("expdot(0.0001)"), (&x + 5.0).view(), &FitContext::default());
    says(overflow, &["inf"]);
    let map = NystromFeatures::new(&k, x.view(), &FitContext::default()).unwrap();
    says(map.transform::<f32>(points(3, 3, 1).view()), &["2 columns"]);
}
