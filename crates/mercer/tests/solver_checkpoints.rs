//! Iterative solvers keep their state: a run that was interrupted and continued ends with the bits of one that was not.

mod common;

use common::*;
use mercer::apply::{
    Alpha, Checkpoint, EpochSolver, Falkon, Fit, FittedRidge, HeldOutRows, LandmarkSolver, Monitoring, Predict, Ridge,
    RidgeSolver,
};
use mercer::data::Target;
use mercer::{Interrupt, Progress};
use ndarray::{Array2, s};
use std::path::{Path, PathBuf};

/// Interrupts after some iterations of the solver `name`.
struct Stopper {
    name: &'static str,
    at: usize,
    interrupt: Interrupt,
}

impl Progress for Stopper {
    fn step(&self, what: &str, done: usize, _: usize, _: &str) {
        if what == self.name && done == self.at {
            assert!(self.interrupt.request(), "{what}: there is an iterate to keep");
        }
    }
}

impl Stopper {
    fn new(name: &'static str, at: usize) -> Stopper {
        Stopper { name, at, interrupt: Interrupt::new() }
    }

    fn context(&self) -> FitContext<'_> {
        FitContext { progress: self, interrupt: Some(&self.interrupt), ..FitContext::default() }
    }
}

fn file(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("mercer-{}-{name}.checkpoint", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

fn keeping(path: &Path, resume: bool) -> Monitoring {
    Monitoring { checkpoint: Some(Checkpoint { resume, ..Checkpoint::new(path) }), held_out: None }
}

/// Points `[n, 2]` and the values of a function there.
fn examples(n: usize) -> (Array2<f64>, Target) {
    let x = uniform(n, 2, 3.0, 4);
    let y = x.rows().into_iter().map(|x| (2.0 * x[0]).sin() + x[1] * x[1]).collect();
    (x, Target::Values(y))
}

fn ridges() -> Vec<(&'static str, Ridge)> {
    let ridge = |alpha, solver| Ridge { alpha, solver, centred: true, ..Ridge::new(kernel("matern32(1)")) };
    let epochs = |solver| RidgeSolver::Epochs { solver, tolerance: 1e-6, epochs: 40 };
    let cg = RidgeSolver::ConjugateGradients { tolerance: 1e-10, iterations: 60, rank: Some(10) };
    let fixed = Alpha::Fixed(1e-3);
    vec![
        ("conjugate gradients", ridge(Alpha::LeaveOneOut, cg)),
        ("conjugate gradients", ridge(Alpha::CrossValidation { folds: 3 }, cg)),
        ("ASkotch", ridge(fixed, epochs(EpochSolver::Askotch))),
        ("EigenPro", ridge(fixed, epochs(EpochSolver::EigenPro))),
        ("Richardson's iteration", ridge(fixed, epochs(EpochSolver::Richardson))),
    ]
}

#[test]
fn a_run_that_is_continued_has_the_bits_of_one_that_was_not_interrupted() {
    let (x, y) = examples(250);
    for (i, (name, ridge)) in ridges().into_iter().enumerate() {
        let path = file(&format!("whole-{i}"));
        let fit = |monitoring: Monitoring, context: &FitContext| -> FittedRidge {
            Ridge { monitoring, ..ridge.clone() }.fit(x.view(), &y, context).unwrap()
        };
        let whole = fit(Monitoring::default(), &FitContext::default());
        assert!(whole.convergence.iterations.unwrap() > 12, "{name}: {:?}", whole.convergence.iterations);
        // Twice: the state that a continued run writes is continued too.
        for at in [5, 9] {
            let stopper = Stopper::new(name, at);
            let part = fit(keeping(&path, at > 5), &stopper.context());
            assert!(part.notes().iter().any(|note| note.contains("interrupted after")), "{name}: {:?}", part.notes());
            assert!(part.convergence.residual.unwrap() < 1.0 && part.coefficients != whole.coefficients, "{name}");
        }
        let again = fit(keeping(&path, true), &FitContext::default());
        assert_eq!(again.coefficients, whole.coefficients, "{name}");
        assert_eq!((again.convergence.clone(), again.alpha), (whole.convergence.clone(), whole.alpha), "{name}");
        assert_eq!(again.tried, whole.tried, "{name}");
        // The state of a finished run is its result.
        let done = fit(keeping(&path, true), &FitContext::default());
        assert_eq!(done.coefficients, whole.coefficients, "{name}");
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn solvers_on_landmarks_are_continued_too() {
    let (x, y) = examples(600);
    for solver in [LandmarkSolver::Falkon, LandmarkSolver::Krill, LandmarkSolver::EigenPro] {
        let path = file(&format!("landmarks-{solver:?}"));
        let (tolerance, iterations, alpha) = (1e-10, 14, Alpha::Fixed(1e-3));
        let falkon = Falkon { solver, tolerance, iterations, alpha, ..Falkon::new(kernel("matern32(1)"), 80) };
        let fit = |monitoring, context: &FitContext| {
            Falkon { monitoring, ..falkon.clone() }.fit(x.view(), &y, context).unwrap()
        };
        let whole = fit(Monitoring::default(), &FitContext::default());
        let name = if solver == LandmarkSolver::EigenPro { "EigenPro" } else { "conjugate gradients" };
        let stopper = Stopper::new(name, 6);
        let part = fit(keeping(&path, false), &stopper.context());
        assert!(part.notes()[0].contains("interrupted after"), "{solver:?}: {:?}", part.notes());
        let again = fit(keeping(&path, true), &FitContext::default());
        assert_eq!(again.scores(x.view()).unwrap(), whole.scores(x.view()).unwrap(), "{solver:?}");
        assert_eq!(again.convergence, whole.convergence);
        std::fs::remove_file(&path).unwrap();
    }
}

/// Single precision that is not enough is followed by double precision, each with its own state in the same file.
#[test]
fn both_precisions_are_continued() {
    let (x, y) = examples(250);
    let path = file("precisions");
    let solver = RidgeSolver::ConjugateGradients { tolerance: 1e-9, iterations: 300, rank: Some(40) };
    let ridge = Ridge { alpha: Alpha::Fixed(1e-2), solver, ..Ridge::new(kernel("matern32(1)")) };
    let single = |context: FitContext<'static>| FitContext { precision: Precision::F32, ..context };
    let whole = ridge.fit(x.view(), &y, &single(FitContext::default())).unwrap();
    assert_eq!(whole.origin().precision, Precision::F64);
    // Iterations are counted anew in double precision: the fourth one comes after the first interrupt there only.
    for at in [5, 4] {
        let stopper = Stopper::new("conjugate gradients", at);
        let context = FitContext { precision: Precision::F32, ..stopper.context() };
        let monitoring = keeping(&path, at == 4);
        let part = Ridge { monitoring, ..ridge.clone() }.fit(x.view(), &y, &context).unwrap();
        assert!(part.notes().iter().any(|note| note.contains("were interrupted after")), "{at}: {:?}", part.notes());
        assert_eq!(part.origin().precision, if at == 5 { Precision::F32 } else { Precision::F64 });
    }
    let again = Ridge { monitoring: keeping(&path, true), ..ridge };
    let again = again.fit(x.view(), &y, &single(FitContext::default())).unwrap();
    assert_eq!((again.coefficients, again.convergence), (whole.coefficients, whole.convergence));
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn checkpoints_of_other_runs_are_refused() {
    let (x, y) = examples(120);
    let path = file("other");
    let solver = RidgeSolver::ConjugateGradients { tolerance: 1e-6, iterations: 200, rank: Some(10) };
    let ridge = Ridge { alpha: Alpha::Fixed(0.1), solver, ..Ridge::new(kernel("rbf(1)")) };
    let error = |ridge: &Ridge, x: &Array2<f64>, resume: bool| {
        let ridge = Ridge { monitoring: keeping(&path, resume), ..ridge.clone() };
        ridge.fit(x.view(), &y, &FitContext::default()).map(|_| ()).unwrap_err().to_string()
    };
    let first = Ridge { monitoring: keeping(&path, true), ..ridge.clone() };
    let first = first.fit(x.view(), &y, &FitContext::default()).unwrap();
    assert!(first.notes()[0].contains("there is no checkpoint at"), "{:?}", first.notes());
    assert!(error(&ridge, &x, false).contains("exists already; continue that run"));
    let other = Ridge { alpha: Alpha::Fixed(0.2), ..ridge.clone() };
    assert!(error(&other, &x, true).contains("alpha 0.1 there, 0.2 here"));
    let mut moved = x.clone();
    moved[[3, 1]] += 1e-9;
    assert!(error(&ridge, &moved, true).contains("data checksum"));
    let overwrite = Checkpoint { overwrite: true, ..Checkpoint::new(&path) };
    let monitoring = Monitoring { checkpoint: Some(overwrite), held_out: None };
    Ridge { monitoring, ..other }.fit(x.view(), &y, &FitContext::default()).unwrap();
    let direct = Ridge { solver: RidgeSolver::Direct, monitoring: keeping(&path, true), ..ridge };
    let direct = direct.fit(x.view(), &y, &FitContext::default()).unwrap();
    assert!(direct.notes()[0].contains("no checkpoint was written"), "{:?}", direct.notes());
    std::fs::remove_file(&path).unwrap();
}

/// The last error that was measured is that of the predictions, and measuring changes nothing.
#[test]
fn held_out_errors_are_those_of_the_predictions() {
    let (x, y) = examples(400);
    let labels = y.values().iter().map(|y| usize::from(*y > 2.0) + usize::from(*y > 5.0)).collect();
    let classes = Target::Classes { labels, names: ["low", "middle", "high"].map(String::from).to_vec() };
    let rows: Vec<usize> = (300..400).collect();
    let (fitted_rows, new) = (x.slice(s![..300, ..]), x.slice(s![300.., ..]).to_owned());
    for target in [&y, &classes] {
        let (own, held) = (target.select(&(0..300).collect::<Vec<_>>()), target.select(&rows));
        let held_out = Some(HeldOutRows { x: new.clone(), y: held.clone() });
        let monitoring = Monitoring { checkpoint: None, held_out };
        for (name, ridge) in ridges().into_iter().skip(1) {
            let ridge = Ridge { alpha: Alpha::Fixed(0.3), ..ridge };
            let plain = ridge.fit(fitted_rows, &own, &FitContext::default()).unwrap();
            let watched = Ridge { monitoring: monitoring.clone(), ..ridge };
            let watched = watched.fit(fitted_rows, &own, &FitContext::default()).unwrap();
            assert_eq!(plain.coefficients, watched.coefficients, "{name}");
            let curve = &watched.convergence.held_out;
            // A third of the points: every fourth iteration, a tenth of the work, and where it has converged.
            let (ends, before) = curve.split_last().unwrap();
            assert!(before.iter().all(|at| at.iteration % 4 == 0) && !before.is_empty(), "{name}: {curve:?}");
            assert!(ends.iteration % 4 == 0 || ends.iteration == watched.convergence.curve.len(), "{name}: {curve:?}");
            let last = curve[curve.len() - 1].error;
            let want = match (watched.predict(new.view()).unwrap(), &held) {
                (Target::Values(found), Target::Values(truth)) => {
                    (truth.iter().zip(&found).map(|(a, b)| (a - b).powi(2)).sum::<f64>() / 100.0).sqrt()
                }
                _ => 1.0 - watched.accuracy(new.view(), &held).unwrap(),
            };
            assert!((last - want).abs() < 0.02 + 0.1 * want, "{name}: {last} {want}");
        }
    }
    let wrong = HeldOutRows { x: Array2::zeros((3, 5)), y: Target::Values(vec![0.0; 3]) };
    let monitoring = Monitoring { checkpoint: None, held_out: Some(wrong) };
    let ridge = Ridge { monitoring, ..ridges().remove(0).1 };
    assert!(ridge.fit(x.view(), &y, &FitContext::default()).is_err());
}
