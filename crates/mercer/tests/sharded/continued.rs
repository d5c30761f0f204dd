//! Runs on ranks that are interrupted, and continued from their checkpoint on any number of ranks.

use super::*;

/// Asks to end early after some iterations, on one rank alone.
struct Stopper {
    at: Option<usize>,
    interrupt: Interrupt,
}

impl Progress for Stopper {
    fn step(&self, what: &str, done: usize, _: usize, _: &str) {
        if Some(done) == self.at
            && ["conjugate gradients", "ASkotch", "Richardson's iteration", "krylov"].contains(&what)
        {
            assert!(self.interrupt.request(), "{what}: there is an iterate to keep");
        }
    }
}

/// One checkpoint of all ranks, which the same number of them continues to the same bits, and another number to the same result.
#[test]
fn ranks_are_interrupted_together_and_continued_on_any_number() {
    let (x, folder) = (points(300, 2), tempfile::tempdir().unwrap());
    let y = Target::Values(x.axis_iter(Axis(0)).map(|x| (x[0] + 0.5 * x[1]).sin()).collect());
    let by_epochs = |solver| RidgeSolver::Epochs { solver, tolerance: 1e-7, epochs: 60 };
    let cg = RidgeSolver::ConjugateGradients { tolerance: 1e-11, iterations: 400, rank: Some(20) };
    for solver in [cg, by_epochs(EpochSolver::Askotch), by_epochs(EpochSolver::Richardson)] {
        let kernel = Kernel::parse("matern32(1)").unwrap();
        let ridge = Ridge { alpha: Alpha::Fixed(1e-2), solver, ..Ridge::new(kernel) };
        let fit = |group: Group<'_>, file: Option<&Path>, resume: bool, stop: Option<usize>| {
            let at = stop.filter(|_| group.rank() + 1 == group.size());
            let stopper = Stopper { at, interrupt: Interrupt::new() };
            let context =
                FitContext { group, progress: &stopper, interrupt: Some(&stopper.interrupt), ..FitContext::default() };
            let checkpoint = file.map(|file| Checkpoint { resume, ..Checkpoint::new(file) });
            let monitoring = Monitoring { checkpoint, held_out: None };
            let own = x.slice(s![group.share(300), ..]);
            let fitted = Ridge { monitoring, ..ridge.clone() }.fit_sharded(own, &y, &context).unwrap();
            (fitted.coefficients.clone(), fitted.notes().join(" "), fitted.convergence.iterations.unwrap())
        };
        let whole = on_threads(2, |group| fit(group, None, false, None));
        assert!((11..400).contains(&whole[0].2), "{solver:?} took {}", whole[0].2);
        let stopped = folder.path().join("stopped");
        let part = on_threads(2, |group| fit(group, Some(&stopped), false, Some(5)));
        for rank in &part {
            assert!(rank.1.contains("interrupted after") && rank.0 == part[0].0, "{solver:?}: {}", rank.1);
            assert_ne!(rank.0, whole[0].0, "{solver:?}");
        }
        for size in [2, 3, 1] {
            let file = folder.path().join(format!("on-{size}"));
            std::fs::copy(&stopped, &file).unwrap();
            for again in on_threads(size, |group| fit(group, Some(&file), true, None)) {
                match size {
                    2 => assert_eq!(again, whole[0], "{solver:?}"),
                    _ => close(&again.0, &whole[0].0, 1e-8, &format!("{solver:?} continued on {size} ranks")),
                }
            }
            std::fs::remove_file(&file).unwrap();
        }
        std::fs::remove_file(&stopped).unwrap();
    }
}

/// The basis of a Krylov iteration is continued to the same bits, after a restart too, and on another number of ranks to the same pairs; other
/// data are refused.
#[test]
fn krylov_iterations_are_continued_on_any_number_of_ranks() {
    let (x, new, folder) = (points(700, 2), points(30, 2), tempfile::tempdir().unwrap());
    let kernel = Kernel::parse("matern12(0.2)").unwrap();
    let fit = |x: &Array2<f64>, group: Group<'_>, file: Option<&Path>, resume: bool, stop: Option<usize>| {
        let at = stop.filter(|_| group.rank() + 1 == group.size());
        let stopper = Stopper { at, interrupt: Interrupt::new() };
        let context =
            FitContext { group, progress: &stopper, interrupt: Some(&stopper.interrupt), ..FitContext::default() };
        let operator = ShardedOperator::new(&kernel, x.slice(s![group.share(700), ..]), &context).unwrap();
        let checkpoint = file.map(|file| Checkpoint { resume, ..Checkpoint::new(file) });
        let krylov = Krylov { checkpoint, ..Krylov::to(1e-10) };
        let problem = Problem { operator: &operator, k: 6, context };
        let spectrum = Spectrum::fit(&krylov, &problem, Some(new.view().into()))?;
        Ok::<_, mercer::Error>((
            spectrum.eigenvalues.clone(),
            spectrum.transform(new.view())?,
            spectrum.notes.join(" "),
        ))
    };
    let whole = on_threads(2, |group| fit(&x, group, None, false, None).unwrap());
    for stop in [2, 8] {
        let stopped = folder.path().join(format!("stopped-{stop}"));
        for rank in on_threads(2, |group| fit(&x, group, Some(&stopped), false, Some(stop)).unwrap()) {
            assert!(rank.2.contains(&format!("was interrupted after {stop} products")), "{}", rank.2);
        }
        for size in [2, 3, 1] {
            let file = folder.path().join(format!("on-{size}-{stop}"));
            std::fs::copy(&stopped, &file).unwrap();
            // The second time, what is there is the end.
            for _ in 0..2 {
                for again in on_threads(size, |group| fit(&x, group, Some(&file), true, None).unwrap()) {
                    if size == 2 {
                        assert_eq!(again, whole[0]);
                    }
                    for (a, b) in again.0.iter().zip(&whole[0].0) {
                        assert!((a - b).abs() < 1e-12 * whole[0].0[0], "{a} {b} on {size} ranks");
                    }
                }
            }
        }
        let refused =
            |x: &Array2<f64>, resume| fit(x, Group::SINGLE, Some(&stopped), resume, None).unwrap_err().to_string();
        let other = refused(&(&x * 1.1), true);
        assert!(other.contains("it is the checkpoint of a run on other data"), "{other}");
        let there = refused(&x, false);
        assert!(there.contains("exists already"), "{there}");
    }
}
