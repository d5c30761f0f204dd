//! The training loop: resuming, recovering, interrupting, repeating.

mod common;
#[path = "common/neural.rs"]
mod neural;

use common::*;
use mercer::Interrupt;
use mercer::data::Rows;
use mercer::spectrum::neural::{
    FunctionOperator, Functions, Kind, NeuralEf, OnData, Ritz, Settings, Spin, Stop, Trained, rayleigh_ritz,
};
use neural::bits;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// A kernel on `n` points.
fn operator(n: usize) -> KernelOperator<'static> {
    on_own(&kernel("rbf(1)"), uniform(n, 1, 2.0, 4))
}

/// Called with the number of the batch, from one, once its block is formed; true spoils the block.
type Trouble<'a> = dyn FnMut(usize) -> bool + Send + 'a;

/// A kernel's matrix to which something happens at the n-th batch.
struct Troubled<'a> {
    kernel: &'a KernelOperator<'a>,
    trouble: Mutex<(usize, Box<Trouble<'a>>)>,
}

impl<'a> Troubled<'a> {
    fn new(kernel: &'a KernelOperator<'a>, trouble: impl FnMut(usize) -> bool + Send + 'a) -> Self {
        Troubled { kernel, trouble: Mutex::new((0, Box::new(trouble))) }
    }

    fn batches_seen(&self) -> usize {
        self.trouble.lock().unwrap().0
    }
}

impl Operator for Troubled<'_> {
    fn n(&self) -> usize {
        self.kernel.n()
    }
    fn apply(&self, v: ArrayView2<f64>) -> mercer::Result<Array2<f64>> {
        self.kernel.apply(v)
    }
    fn block(&self, rows: &[usize], columns: &[usize]) -> mercer::Result<Array2<f64>> {
        let mut block = self.kernel.block(rows, columns)?;
        // Other blocks are those of validations.
        if rows.len() == BATCH {
            let (seen, trouble) = &mut *self.trouble.lock().unwrap();
            *seen += 1;
            if trouble(*seen) {
                block.fill(f64::NAN);
            }
        }
        Ok(block)
    }
    fn diagonal(&self) -> mercer::Result<Array1<f64>> {
        self.kernel.diagonal()
    }
    fn points(&self) -> Option<Rows<'_>> {
        self.kernel.points()
    }
}

const BATCH: usize = 48;
const NETWORKS: &str = "dense(8) sincos dense(8) sincos dense(1) l2norm";

fn settings(checkpoint: Option<PathBuf>) -> Settings {
    // Every step writes a checkpoint, where there is one to write.
    let patience = usize::MAX;
    let usual = Settings::default();
    Settings { steps: 60, batch: BATCH, patience, keep_best: false, checkpoint, checkpoint_seconds: 0.0, ..usual }
}

fn run(
    kind: Kind,
    operator: &dyn Operator,
    settings: &Settings,
    interrupt: Option<&Interrupt>,
) -> mercer::Result<Trained> {
    let context = FitContext { interrupt, ..FitContext::default() };
    neural::trained(kind, NETWORKS, &OnData::new(operator)?, 3, settings, &context)
}

/// [`run`] with nothing in its way.
fn plain(kind: Kind, kernel: &KernelOperator, settings: &Settings) -> mercer::Result<Trained> {
    run(kind, &Troubled::new(kernel, |_| false), settings, None)
}

fn finite(trained: &Trained) -> bool {
    trained.functions.parameters().trained.to_host().unwrap().iter().all(|v| v.is_finite())
}

/// [`settings`] that continue from what is at `checkpoint`.
fn resuming(checkpoint: PathBuf) -> Settings {
    Settings { resume: true, ..settings(Some(checkpoint)) }
}

fn every_kind() -> impl Iterator<Item = Kind> {
    Kind::all().into_iter().chain([Spin::PUBLISHED.into()])
}

/// Also where a step was taken back before the kill.
#[test]
fn a_killed_run_resumes_with_the_same_bits() {
    let (kernel, folder) = (operator(200), tempfile::tempdir().unwrap());
    let (running, killed) = (folder.path().join("running"), folder.path().join("killed"));
    let never = 0;
    let cases = every_kind().map(|kind| (kind, 38, never)).chain([(Kind::Spin(Spin { decay: 0.9 }), 45, 25)]);
    for (kind, killed_at, spoiled_at) in cases {
        // What a kill at that batch would have left on disk.
        let action = Troubled::new(&kernel, |batch| {
            if batch == killed_at {
                std::fs::copy(&running, &killed).unwrap();
            }
            batch == spoiled_at
        });
        let settings = Settings { overwrite: true, ..settings(Some(running.clone())) };
        let whole = run(kind, &action, &settings, None).unwrap();
        assert_eq!((whole.record.steps, whole.record.stop), (60, Stop::Budget));
        let action = Troubled::new(&kernel, |_| false);
        let resumed = run(kind, &action, &resuming(killed.clone()), None).unwrap();
        assert!(action.batches_seen() < 30, "{kind:?} started again: {} batches", action.batches_seen());
        assert_eq!(resumed.record.recoveries == 1, spoiled_at > never, "{kind:?}");
        assert_eq!(bits(&whole), bits(&resumed), "{kind:?}");
    }
}

#[test]
fn an_interrupted_run_saves_and_resumes_with_the_same_bits() {
    let (kernel, folder) = (operator(200), tempfile::tempdir().unwrap());
    for (i, kind) in every_kind().enumerate() {
        let whole = plain(kind, &kernel, &settings(None)).unwrap();
        let settings = Settings { checkpoint_seconds: 1e9, ..resuming(folder.path().join(format!("checkpoint-{i}"))) };
        let interrupt = Interrupt::new();
        let action = Troubled::new(&kernel, |batch| {
            if batch == 31 {
                assert!(interrupt.request(), "training has a state to keep");
            }
            false
        });
        let part = run(kind, &action, &settings, Some(&interrupt)).unwrap();
        assert_eq!((part.record.steps, part.record.stop), (31, Stop::Interrupted));
        let action = Troubled::new(&kernel, |_| false);
        let resumed = run(kind, &action, &settings, None).unwrap();
        assert_eq!(action.batches_seen(), 29);
        assert_eq!(bits(&whole), bits(&resumed), "{kind:?}");
        // Once more: there is nothing left to do, and the result is still the same.
        let again = plain(kind, &kernel, &settings).unwrap();
        assert_eq!(bits(&whole), bits(&again), "{kind:?}");
    }
}

#[test]
fn a_checkpoint_of_another_run_is_refused_by_name() {
    let (kernel, (_folder, path)) = (operator(100), scratch("checkpoint"));
    let kind = Kind::NeuralEf(NeuralEf::Joint);
    plain(kind, &kernel, &settings(Some(path.clone()))).unwrap();
    says(plain(kind, &kernel, &settings(Some(path.clone()))), &["checkpoint", "exists already"]);
    let settings = resuming(path.clone());
    let refused = |result: mercer::Result<Trained>| says(result, &["another run", "checkpoint"]);
    refused(plain(kind, &operator(101), &settings));
    refused(plain(Kind::Ritz(Ritz), &kernel, &settings));
    refused(plain(Kind::NeuralEf(NeuralEf::Published), &kernel, &settings));
    refused(plain(kind, &kernel, &Settings { finish: false, ..settings.clone() }));
    let settings = Settings { learning_rate: 2e-3, ..settings };
    refused(plain(kind, &kernel, &settings));
    std::fs::write(&path, b"not a checkpoint").unwrap();
    says(plain(kind, &kernel, &settings), &[path.to_str().unwrap()]);
}

#[test]
fn a_step_that_is_not_finite_is_taken_back() {
    let kernel = operator(200);
    for kind in every_kind() {
        let action = Troubled::new(&kernel, |batch| batch == 25);
        let trained = run(kind, &action, &settings(None), None).unwrap();
        assert_eq!((trained.record.steps, trained.record.recoveries), (60, 1), "{kind:?}");
        assert!(trained.record.notes.iter().any(|note| note.contains("not finite")), "{:?}", trained.record.notes);
        assert!(finite(&trained) && trained.record.raw_eigenvalues.iter().all(|v| v.is_finite()));
    }
}

#[test]
fn endless_trouble_ends_with_a_named_error_and_the_last_good_state() {
    let (kernel, (_folder, path)) = (operator(200), scratch("last-good"));
    let kind = Kind::NeuralEf(NeuralEf::Joint);
    let action = Troubled::new(&kernel, |batch| batch > 20);
    let failed = run(kind, &action, &settings(Some(path.clone())), None);
    says(failed, &["neuralef", "not finite", "5 recoveries", path.to_str().unwrap()]);
    assert_eq!(plain(kind, &kernel, &resuming(path)).unwrap().record.steps, 60);
}

#[test]
fn a_learning_rate_that_explodes_is_survived_or_named() {
    let kernel = operator(200);
    for kind in every_kind() {
        match plain(kind, &kernel, &Settings { learning_rate: 1e30, ..settings(None) }) {
            Ok(trained) => assert!(finite(&trained)),
            Err(error) => assert!(error.to_string().contains("learning rate"), "{kind:?}: {error}"),
        }
    }
}

#[test]
fn a_seed_gives_the_same_bits_on_any_number_of_threads() {
    let kernel = operator(700);
    for kind in every_kind() {
        let on = |threads: usize| {
            on_threads(threads, || {
                let action = OnData::new(&kernel).unwrap();
                let settings = Settings { steps: 20, batch: 500, ..settings(None) };
                let mut trained = run(kind, &kernel, &settings, None).unwrap();
                let sample = action.sample(Device::Cpu, &mut Rng::new(1), 700).unwrap();
                let pairs = rayleigh_ritz(&action, &mut trained.functions, &sample, 3).unwrap();
                let eigenvalues: Vec<u64> = pairs.eigenvalues.iter().map(|v| v.to_bits()).collect();
                (bits(&trained), eigenvalues)
            })
        };
        let one = on(1);
        assert_eq!(one, on(2), "{kind:?}");
        assert_eq!(one, on(5), "{kind:?}");
    }
}

#[test]
fn training_ends_when_the_residual_stops_falling_and_keeps_the_best() {
    let kernel = operator(200);
    // Steps this small change nothing: after the first validation there is no progress.
    let settings = Settings { learning_rate: 1e-12, patience: 4, keep_best: true, ..settings(None) };
    let trained = plain(Kind::NeuralEf(NeuralEf::Joint), &kernel, &settings).unwrap();
    // Validations are three steps apart: one to set the mark, four in vain.
    assert_eq!((trained.record.stop, trained.record.steps), (Stop::Converged, 12));
    let least = trained.record.validation.iter().min_by(|a, b| a[1].total_cmp(&b[1])).unwrap();
    assert_eq!(trained.record.kept as f64, least[0]);
}

#[test]
fn an_unwritable_checkpoint_shows_before_training() {
    let kernel = operator(50);
    let action = Troubled::new(&kernel, |_| false);
    let nowhere = Path::new("/nonexistent-folder/checkpoint").to_owned();
    says(run(Kind::Ritz(Ritz), &action, &settings(Some(nowhere)), None), &["/nonexistent-folder"]);
    assert_eq!(action.batches_seen(), 0);
}

/// Functions are evaluated with the statistics of the points on which they were calibrated, batch norms included.
#[test]
fn calibrated_functions_are_those_that_were_trained() {
    let x = tensor((normal(50, 2, 3) + 2.0).view());
    for architecture in ["dense(8) bn relu dense(1)", "dense(8) l2norm relu dense(1)"] {
        let mut functions = Functions::networks(architecture, 2, 3, false, Device::Cpu, &Rng::new(1)).unwrap();
        let mut trained = Tensor::zeros(Device::Cpu, &[0]).unwrap();
        functions.forward(&x, &mut trained).unwrap();
        functions.calibrate(&x).unwrap();
        let evaluated = functions.evaluate(&x).unwrap().to_host().unwrap();
        for (a, b) in trained.to_host().unwrap().iter().zip(&evaluated) {
            assert!((a - b).abs() < 1e-5, "{architecture}: {a} and {b}");
        }
    }
}
