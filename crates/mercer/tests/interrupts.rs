//! An interrupt keeps the best result so far, says so, and does not reach beyond the part of the work that it ends.

mod common;

use common::*;
use mercer::apply::{
    Affinity, Alpha, Fit, KernelPca, KernelSearch, LaplacianEigenmaps, NadarayaWatson, Predict, Ridge, RidgeSolver,
    Transform,
};
use mercer::data::Target;
use mercer::kernel::Expression;
use mercer::spectrum::{Exact, Krylov, Method, Problem, Spectrum};
use mercer::{Interrupt, Progress};
use ndarray::Array2;
use std::sync::Mutex;

/// Interrupts at step `at` of the work `what`, and remembers whether that has a result to keep.
struct Stopper {
    what: &'static str,
    at: usize,
    interrupt: Interrupt,
    kept: Mutex<Option<bool>>,
}

impl Stopper {
    fn new(what: &'static str, at: usize) -> Stopper {
        Stopper { what, at, interrupt: Interrupt::new(), kept: Mutex::new(None) }
    }

    fn context(&self) -> FitContext<'_> {
        FitContext { progress: self, interrupt: Some(&self.interrupt), ..FitContext::default() }
    }

    /// Whether there was a result to keep.
    fn kept(&self) -> bool {
        self.kept.lock().unwrap().expect("the work was interrupted")
    }
}

impl Progress for Stopper {
    fn step(&self, what: &str, done: usize, _: usize, _: &str) {
        let mut kept = self.kept.lock().unwrap();
        if what.contains(self.what) && done >= self.at && kept.is_none() {
            *kept = Some(self.interrupt.request());
        }
    }
}

/// Points `[n, 2]` and the values of a function there.
fn examples(n: usize) -> (Array2<f64>, Target) {
    let x = uniform(n, 2, 2.0, 5);
    let y = x.rows().into_iter().map(|x| (3.0 * x[0]).sin() + x[1]).collect();
    (x, Target::Values(y))
}

#[test]
fn the_search_ends_with_the_best_kernel_so_far() {
    let (x, y) = examples(200);
    let candidates = ["rbf(lengthscale=auto)", "laplacian(lengthscale=auto)", "linear"];
    let search = KernelSearch::new(candidates.map(|text| Expression::parse(text).unwrap()).to_vec());
    let whole = search.best(x.view(), &y, &FitContext::default()).unwrap();
    assert!(!whole.cut_short);
    let stopper = Stopper::new("kernel 1 of 3, rbf", 4);
    let found = search.best(x.view(), &y, &stopper.context()).unwrap();
    assert!(found.cut_short && stopper.kept() && found.tried.len() == 4, "{}", found.tried.len());
    let least = found.tried.iter().map(|tried| tried.error).fold(f64::INFINITY, f64::min);
    assert_eq!((found.tried[0].error, &found.tried[0].kernel), (least, &found.kernel.to_string()));
    assert!(whole.tried.iter().any(|tried| *tried == found.tried[0]));
    // The request is answered: what follows runs to its end.
    assert!(!stopper.context().interrupted());
}

#[test]
fn cross_validation_uses_the_folds_so_far() {
    let (x, y) = examples(120);
    let (alpha, kernel) = (Alpha::CrossValidation { folds: 6 }, kernel("rbf(1)"));
    for solver in [RidgeSolver::Direct, RidgeSolver::conjugate_gradients(Precision::F64)] {
        let ridge = Ridge { alpha, solver, ..Ridge::new(kernel.clone()) };
        let whole = ridge.fit(x.view(), &y, &FitContext::default()).unwrap();
        assert!(whole.notes().is_empty());
        let direct = solver == RidgeSolver::Direct;
        // Conjugate gradients go through the α of one fold after the other.
        let stopper =
            if direct { Stopper::new("cross-validation", 2) } else { Stopper::new("fold 3 of 6, α 2 of", 1) };
        let fitted = ridge.fit(x.view(), &y, &stopper.context()).unwrap();
        let note = "cross-validation was interrupted after 2 of 6 folds";
        assert!(stopper.kept() && fitted.notes()[0].contains(note), "{:?}", fitted.notes());
        let best = fitted.tried.iter().min_by(|a, b| a.error.total_cmp(&b.error)).unwrap();
        assert_eq!(fitted.alpha, best.value);
        // Two folds of six tell about the same as all, and the system is solved to the end.
        assert!((fitted.alpha / whole.alpha).log10().abs() <= 1.0, "{} {}", fitted.alpha, whole.alpha);
        assert!(fitted.convergence.residual.is_none_or(|residual| residual < 1e-8));
    }
}

#[test]
fn the_bandwidth_is_the_best_so_far() {
    let (x, y) = examples(100);
    let stopper = Stopper::new("bandwidth", 5);
    let fitted = NadarayaWatson::new(kernel("rbf(1)")).fit(x.view(), &y, &stopper.context()).unwrap();
    assert!(stopper.kept() && fitted.tried.len() == 5 && fitted.notes()[0].contains("best of the 5"));
    let best = fitted.tried.iter().min_by(|a, b| a.error.total_cmp(&b.error)).unwrap();
    assert_eq!(fitted.bandwidth, best.value);
}

#[test]
fn embeddings_keep_the_coordinates_so_far() {
    let x = uniform(800, 3, 1.0, 7);
    let pca = KernelPca { k: 10, tolerance: 1e-12, ..KernelPca::new(kernel("laplacian(0.3)")) };
    let exact = pca.fit(x.view(), &(), &FitContext::default()).unwrap();
    let stopper = Stopper::new("krylov", 0);
    let fitted = pca.fit(x.view(), &(), &stopper.context()).unwrap();
    assert!(stopper.kept() && fitted.notes()[0].contains("was interrupted after 1 products"), "{:?}", fitted.notes());
    for (found, exact) in fitted.eigenvalues.iter().zip(&exact.eigenvalues) {
        // Rayleigh–Ritz is from below.
        assert!(*found > 0.0 && *found < exact * (1.0 + 1e-9), "{found} {exact}");
    }
    let maps = LaplacianEigenmaps { k: 3, affinity: Affinity::Neighbours(6), ..Default::default() };
    let stopper = Stopper::new("krylov", 0);
    let fitted = maps.fit(x.view(), &(), &stopper.context()).unwrap();
    assert!(stopper.kept());
    // After one product the third function is not there yet, and nothing says that it does not exist.
    assert_eq!(fitted.embedding().ncols(), 2, "{:?}", fitted.eigenvalues);
    for (note, words) in
        fitted.notes().iter().zip(["1 of the 3 coordinates were not found", "was interrupted at a residual of"])
    {
        assert!(note.contains(words), "{note}");
    }
    assert_eq!(fitted.notes().len(), 2);
}

#[test]
fn pairs_are_kept_from_the_first_product_on_and_during_the_certificate() {
    let (x, new) = (uniform(600, 2, 1.0, 3), uniform(100, 2, 1.0, 4));
    let fit = |stopper: &Stopper, exact: bool| {
        let context = stopper.context();
        let operator = context.kernel_operator(&kernel("rbf(0.5)"), x.view()).unwrap();
        let problem = Problem { context, ..Problem::new(&operator, 5) };
        let method: &dyn Method = if exact { &Exact } else { &Krylov::default() };
        Spectrum::fit(method, &problem, Some(new.view().into()))
    };
    for (what, exact, keeps) in [
        ("kernel matrix", true, false),
        ("eigendecomposition", true, false),
        ("certificate 3 of 4", true, true),
        ("what fresh points would show", true, true),
        ("krylov", false, true),
        ("certificate 1 of 4", false, true),
    ] {
        let stopper = Stopper::new(what, 0);
        let spectrum = fit(&stopper, exact).unwrap();
        assert_eq!(stopper.kept(), keeps, "{what}");
        assert_eq!(spectrum.notes.iter().any(|note| note.contains("was interrupted")), what == "krylov", "{what}");
    }
}
