//! Spectra against closed forms and against each other.

mod common;

use common::{fit_kernel as fit, *};
use mercer::Result;
use mercer::data::Matrix;
use mercer::kernel::Expression;
use mercer::operator::{Budget, DenseOperator};
use mercer::spectrum::{Certificate, Fourier, Landmarks, Nystrom, NystromRitz, Sampling};

/// Eigenvalues of `exp(−d²/2)` under U[−2,2], by Gauss–Legendre quadrature (30 and 40 nodes agree).
const RBF: [f64; 10] =
    [0.5212157, 0.3025390, 0.1257423, 0.0389239, 0.0093883, 0.0018393, 3.0259e-4, 4.2857e-5, 5.326e-6, 5.894e-7];
/// Eigenvalues of `(xx'+1.5)⁴` under U[−1,1]; the sixth and all after it are zero.
const POLYNOMIAL: [f64; 5] = [6.9441344, 5.2393530, 0.9239805, 0.1177899, 0.0054963];

/// The midpoints of n equal intervals: their average is a quadrature rule of error O(1/n²).
fn midpoints(half_width: f64, n: usize) -> Array2<f64> {
    Array2::from_shape_fn((n, 1), |(i, _)| half_width * (2.0 * (i as f64 + 0.5) / n as f64 - 1.0))
}

fn uniform(n: usize, d: usize, seed: u64) -> Array2<f64> {
    common::uniform(n, d, 2.0, seed)
}

fn operator<'a>(kernel: &str, x: &'a Array2<f64>) -> KernelOperator<'a> {
    on(&common::kernel(kernel), x.view())
}

/// With room for so many bytes.
fn budget(bytes: u64) -> FitContext<'static> {
    FitContext { budget: Budget::of(bytes), ..FitContext::default() }
}

/// Eigenvalues in the limit of ever finer midpoints: the error of the rule is c/n² + O(1/n⁴), and two sizes cancel c.
fn refined(method: &dyn Method, kernel: &str, half_width: f64) -> Vec<f64> {
    let at = |n: usize| fit(method, kernel, midpoints(half_width, n).view(), 10).eigenvalues;
    at(1000).iter().zip(at(2000)).map(|(coarse, fine)| (4.0 * fine - coarse) / 3.0).collect()
}

/// Agreement to six digits, or to half a unit of the last digit that the table has.
fn assert_six_digits(got: f64, want: f64, unit: f64, what: &str) {
    assert!((got - want).abs() <= (1e-6 * want).max(0.51 * unit), "{what}: {got} for {want}");
}

#[test]
fn exact_spectrum_of_the_rbf_kernel() {
    for (j, (got, want)) in refined(&Exact, "rbf(1)", 2.0).into_iter().zip(RBF).enumerate() {
        let unit = [1e-7, 1e-7, 1e-7, 1e-7, 1e-7, 1e-7, 1e-8, 1e-9, 1e-9, 1e-10][j];
        assert_six_digits(got, want, unit, &format!("μ_{}", j + 1));
    }
    let spectrum = fit(&Exact, "rbf(1)", midpoints(2.0, 500).view(), 10);
    assert!(spectrum.certificate.worst_residual() < 1e-7);
    assert!(spectrum.certificate.standing.iter().all(|s| *s == Standing::Simple));
}

#[test]
fn exact_spectrum_of_the_polynomial_kernel_has_rank_five() {
    let kernel = "poly(degree=4, offset=1.5)";
    for method in [&Exact as &dyn Method, &Krylov::default()] {
        for (got, want) in refined(method, kernel, 1.0).into_iter().zip(POLYNOMIAL) {
            assert_six_digits(got, want, 1e-7, &method.name());
        }
        let spectrum = fit(method, kernel, midpoints(1.0, 500).view(), 10);
        has_rank_five(&spectrum, midpoints(0.9, 7).view(), &method.name());
        assert!((spectrum.certificate.trace_captured - 1.0).abs() < 1e-9);
    }
}

#[test]
fn krylov_agrees_with_the_dense_decomposition() {
    let x = uniform(900, 3, 1);
    for kernel in ["rbf(1)", "matern12(0.5)", "poly(degree=2)", "laplacian(1) + 0.1*linear"] {
        let (dense, krylov) = (fit(&Exact, kernel, x.view(), 12), fit(&Krylov::default(), kernel, x.view(), 12));
        for (j, (a, b)) in dense.eigenvalues.iter().zip(&krylov.eigenvalues).enumerate() {
            assert!((a - b).abs() <= 1e-10 * dense.eigenvalues[0], "{kernel}, μ_{}: {a} and {b}", j + 1);
        }
        assert!(krylov.certificate.worst_residual() < 2e-6, "{kernel}");
    }
}

#[test]
fn matrix_free_krylov_equals_the_stored_one() {
    let x = uniform(2000, 4, 2);
    let operator = operator("rbf(1.5)", &x);
    // 20 MB hold the Krylov basis, but not the 32 MB of the matrix.
    let [free, stored] = [20_000_000, 1 << 30].map(|bytes| {
        let problem = Problem { operator: &operator, k: 6, context: budget(bytes) };
        Krylov::default().solve(&problem).unwrap().eigenvalues
    });
    assert!(free.iter().zip(&stored).all(|(a, b)| (a - b).abs() < 1e-12 * stored[0]));
}

#[test]
fn repeated_eigenvalues_are_named() {
    // On equally spaced points of a circle, all but the first eigenvalue of a rotation-invariant kernel come in pairs.
    for method in [&Exact as &dyn Method, &Krylov::default()] {
        let spectrum = fit(method, "rbf(1)", ring(240).view(), 5);
        assert_eq!(spectrum.certificate.standing[0], Standing::Simple);
        assert!(spectrum.certificate.standing[1..].iter().all(|s| *s == Standing::Repeated), "{}", method.name());
    }
}

#[test]
fn single_precision_is_good_to_its_digits() {
    let x = uniform(800, 5, 3);
    let [single, double] = [Precision::F32, Precision::F64]
        .map(|precision| fit_in(precision, &Krylov::default(), &kernel("rbf(2)"), x.view(), 8).eigenvalues);
    assert!(single.iter().zip(&double).all(|(a, b)| (a - b).abs() < 2e-6 * double[0]));
}

#[test]
fn the_exact_method_refuses_what_does_not_fit() {
    let x = uniform(2000, 1, 4);
    let operator = operator("rbf(1)", &x);
    let problem = Problem { operator: &operator, k: 3, context: budget(10_000_000) };
    says(Spectrum::fit(&Exact, &problem, None), &["122.1 MiB", "Krylov"]);
}

#[test]
fn bad_problems_are_named() {
    let refused = |x: Array2<f64>, k: usize, part: &str| {
        says(Spectrum::fit(&Exact, &Problem::new(&operator("rbf(1)", &x), k), None), &[part]);
    };
    refused(uniform(5, 1, 0), 6, "between 1 and the number of points, 5; got 6");
    refused(uniform(5, 1, 0), 0, "got 0");
    refused(Array2::zeros((0, 3)), 1, "empty");
    let mut x = uniform(5, 2, 0);
    x[[3, 1]] = f64::NAN;
    refused(x, 1, "row 4, column 2 is NaN");
    let spectrum = fit(&Exact, "rbf(1)", uniform(9, 2, 0).view(), 2);
    says(spectrum.transform(uniform(3, 4, 0).view()), &["2 columns", "have 4"]);
}

#[test]
fn transform_at_the_fitted_points_gives_the_eigenvectors() {
    let x = uniform(300, 2, 5);
    let operator = operator("matern32(1)", &x);
    let problem = Problem::new(&operator, 6);
    let solution = Exact.solve(&problem).unwrap();
    let spectrum = Spectrum::fit(&Exact, &problem, None).unwrap();
    let difference = spectrum.transform(x.view()).unwrap() - solution.at_points.unwrap();
    assert!(difference.iter().all(|d| d.abs() < 1e-9));
}

#[test]
fn the_certificate_sees_an_iteration_that_stopped_early() {
    let (x, h) = (uniform(600, 3, 11), uniform(200, 3, 12));
    let operator = operator("matern32(0.3)", &x);
    let [early, late] = [0.3, 1e-8]
        .map(|tolerance| fit_held_out(&Krylov::to(tolerance), &operator, 6, h.view()).certificate.worst_residual());
    assert!(early > 1e-3 && late < 1e-7, "{early} and {late}");
}

#[test]
fn the_certificate_tells_the_solver_s_error_from_that_of_the_sample() {
    let h = uniform(3000, 1, 7);
    let [few, many] = [60, 1500].map(|n| {
        let x = uniform(n, 1, 6);
        let c = fit_held_out(&Exact, &operator("rbf(1)", &x), 4, h.view()).certificate;
        assert_eq!(c.held_out, 3000);
        assert!(c.worst_residual() < 1e-8, "the solver is exact");
        c
    });
    // Sixty points miss the population's eigenfunctions by far more than fifteen hundred do.
    let mean = |c: &Certificate| c.population_residual.iter().flatten().sum::<f64>() / 4.0;
    assert!(mean(&few) > 0.02 && mean(&few) > 2.0 * mean(&many), "{} and {}", mean(&few), mean(&many));
    assert!(few.orthonormality > many.orthonormality);
}

#[test]
fn confidence_intervals_cover_the_true_eigenvalues() {
    let (mut covered, trials) = (0, 100);
    for trial in 0..trials {
        let (x, h) = (uniform(400, 1, 100 + trial), uniform(400, 1, 900 + trial));
        let spectrum = fit_held_out(&Exact, &operator("rbf(1)", &x), 2, h.view());
        let [low, high] = spectrum.certificate.interval[0].unwrap();
        covered += usize::from(low <= RBF[0] && RBF[0] <= high);
    }
    // Binomial(100, 0.95): 88 is three standard deviations below the mean.
    assert!(covered >= 88, "{covered} of {trials}");
}

#[test]
fn saved_spectra_come_back_the_same_and_damaged_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mercer");
    let (x, new) = (uniform(80, 3, 8), uniform(10, 3, 9));
    let spectrum = fit(&Exact, "rbf(1) + 0.5*linear", x.view(), 5);
    assert_eq!(reloaded(&spectrum).transform(new.view()).unwrap(), spectrum.transform(new.view()).unwrap());
    spectrum.save(&path).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let refuse = |bytes: &[u8]| {
        let damaged = folder.path().join("b.mercer");
        std::fs::write(&damaged, bytes).unwrap();
        Spectrum::load(&damaged, Device::Cpu).err().map(|e| e.to_string())
    };
    for length in [0, 3, 8, 100, bytes.len() / 2, bytes.len() - 1] {
        assert!(refuse(&bytes[..length]).unwrap().contains("truncated or foreign"), "{length} bytes");
    }
    assert_eq!(bytes[8], b'{');
    let replaced = |from: &str, to: &str| {
        assert_eq!(from.len(), to.len());
        let at = bytes.windows(from.len()).position(|w| w == from.as_bytes()).unwrap();
        let mut copy = bytes.clone();
        copy[at..at + to.len()].copy_from_slice(to.as_bytes());
        copy
    };
    assert!(refuse(&replaced(r#""version":"3""#, r#""version":"9""#)).unwrap().contains("update mercer"));
    assert!(refuse(&replaced(r#""format":"mercer""#, r#""format":"nother""#)).unwrap().contains("another program"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "no temporary file is left");
    // Every single flipped byte is refused or read, never a panic.
    let mut rng = Rng::new(10);
    for _ in 0..300 {
        let mut copy = bytes.clone();
        let at = rng.below(copy.len());
        copy[at] ^= 1 << rng.below(8);
        refuse(&copy);
    }
}

/// A kernel with a formula and the same matrix without one: every method that needs no formula finds the same pairs.
#[test]
fn a_stored_matrix_is_decomposed_like_its_kernel() -> Result<()> {
    let x = uniform(300, 2, 13);
    let (old, new) = x.view().split_at(Axis(0), 250);
    let kernel = on(&kernel("matern32(1)"), old);
    let matrix = DenseOperator::new(kernel.to_dense(&mercer::Silent)?);
    // A new point of a matrix is its row of kernel values.
    let rows = gram_cross::<f64>(kernel.formula(), new, old, Device::Cpu)?;
    let nystrom = Nystrom { landmarks: 60, choice: Landmarks::PivotedCholesky };
    for method in [&Exact as &dyn Method, &Krylov::to(1e-9), &nystrom, &NystromRitz(nystrom)] {
        let by_kernel = Spectrum::fit(method, &Problem::new(&kernel, 5), None)?;
        let by_matrix = Spectrum::fit(method, &Problem::new(&matrix, 5), None)?;
        same_eigenvalues(&by_kernel.eigenvalues, &by_matrix.eigenvalues, 1e-9, &method.name());
        assert!((by_kernel.certificate.trace - by_matrix.certificate.trace).abs() < 1e-12);
        let (a, b) = (by_kernel.transform(new)?, reloaded(&by_matrix).transform(rows.view())?);
        assert!((0..5).all(|j| (cosine(&a, &b, j) - 1.0).abs() < 1e-8), "{}", method.name());
        says(by_matrix.transform(new), &["250 columns"]);
    }
    let problem = Problem::new(&matrix, 2);
    says(Spectrum::fit(&Exact, &problem, Some(rows.view().into())), &["its own points alone"]);
    let fourier = Fourier { features: 20, sampling: Sampling::Plain, ritz: false };
    says(Spectrum::fit(&fourier, &problem, None), &["a kernel with a formula"]);
    Ok(())
}

/// Bytes and single precision become double only where a tile is computed, and that changes no bit.
#[test]
fn the_stored_type_changes_no_bit() {
    let bytes = Array2::from_shape_fn((150, 3), |(i, j)| (i * 37 % 101 + j * 59 + i * j % 7) as u8);
    let stored = [bytes.mapv(f32::from).into(), Matrix::U8 { values: bytes, divisor: 255.0 }];
    let nystrom = Nystrom { landmarks: 40, choice: Landmarks::KMeansPlusPlus };
    let fourier = Fourier { features: 60, sampling: Sampling::Orthogonal, ritz: false };
    for x in stored {
        let double: Matrix = x.to_f64().into_owned().into();
        for text in ["rbf(lengthscale=median)", "periodic(0.3, 2)", "laplacian(1)", "matern12(0.5)"] {
            let [kernel, same] = [&x, &double].map(|x| Expression::parse(text).unwrap().resolve(x, 3).unwrap());
            assert_eq!(kernel, same, "{text}");
            let [a, b] = [&x, &double].map(|x| {
                let operator = FitContext::default().kernel_operator(&kernel, x).unwrap();
                let (k, diagonal) = (gram::<f64>(&kernel, x, Device::Cpu).unwrap(), operator.diagonal().unwrap());
                let image = operator.apply(k.slice(s![.., ..4])).unwrap();
                (k, diagonal, image, gram_cross::<f32>(&kernel, x, x.rows().slice(0..9), Device::Cpu).unwrap())
            });
            assert_eq!(a, b, "{text}");
        }
        for method in [&Exact as &dyn Method, &nystrom, &fourier] {
            let [a, b] = [&x, &double].map(|x| {
                let operator = FitContext::default().kernel_operator(&kernel("rbf(1)"), x).unwrap();
                let held_out = Some(x.rows().slice(100..150).into());
                let spectrum = Spectrum::fit(method, &Problem::new(&operator, 3), held_out).unwrap();
                let psi = spectrum.transform(x.rows()).unwrap();
                (spectrum.eigenvalues, spectrum.certificate, psi)
            });
            assert_eq!(a, b, "{}", method.name());
        }
    }
}
