//! The training loop: resuming, recovering, interrupting, repeating.

mod common;
#[path = "common/neural.rs"]
mod neural;

use common::*;
use mercer::compute::{Control, Math, Small, Tensor};
use mercer::spectrum::neural::{
    Batches, FunctionOperator, Functions, Kind, OnData, Points, Sample, Settings, Standardizer, Stop, Trained,
    rayleigh_ritz,
};
use neural::bits;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// A kernel on `n` points.
fn operator(n: usize) -> KernelOperator<'static> {
    on_own(&kernel("rbf(1)"), uniform(n, 1, 2.0, 4))
}

/// Called with the number of the batch, from one, after the operator was applied; true spoils the result.
type Trouble<'a> = dyn FnMut(usize) -> bool + Send + 'a;

/// A kernel's operator to which something happens at the n-th batch.
struct Troubled<'a> {
    inner: OnData<'a>,
    trouble: Mutex<(usize, Box<Trouble<'a>>)>,
}

impl<'a> Troubled<'a> {
    fn new(kernel: &'a KernelOperator<'a>, trouble: impl FnMut(usize) -> bool + Send + 'a) -> Self {
        let inner = OnData::new(kernel).unwrap();
        Troubled { inner, trouble: Mutex::new((0, Box::new(trouble))) }
    }

    fn batches_seen(&self) -> usize {
        self.trouble.lock().unwrap().0
    }
}

impl FunctionOperator for Troubled<'_> {
    fn inputs(&self) -> usize {
        self.inner.inputs()
    }
    fn standardizer(&self) -> Standardizer {
        self.inner.standardizer()
    }
    fn identity(&self) -> String {
        self.inner.identity()
    }
    fn batches<'b>(&'b self, functions: &Functions, batch: usize, math: Math) -> mercer::Result<Box<dyn Batches + 'b>> {
        let batches = self.inner.batches(functions, batch, math)?;
        Ok(Box::new(TroubledBatches {
            batches,
            spoil: Box::new(|| {
                let (seen, trouble) = &mut *self.trouble.lock().unwrap();
                *seen += 1;
                trouble(*seen)
            }),
        }))
    }
    fn sample(&self, device: Device, rng: &mut Rng, points: usize) -> mercer::Result<Sample> {
        self.inner.sample(device, rng, points)
    }
    fn image(
        &self,
        sample: &Sample,
        q: ArrayView2<f64>,
        w: ArrayView2<f64>,
        functions: &mut Functions,
    ) -> mercer::Result<Array2<f64>> {
        self.inner.image(sample, q, w, functions)
    }
    fn eigenvalue(&self, mu: f64) -> f64 {
        self.inner.eigenvalue(mu)
    }
    fn roundoff(&self) -> f64 {
        self.inner.roundoff()
    }
}

struct TroubledBatches<'a> {
    batches: Box<dyn Batches + 'a>,
    spoil: Box<dyn FnMut() -> bool + 'a>,
}

impl Batches for TroubledBatches<'_> {
    fn size(&self) -> usize {
        self.batches.size()
    }
    fn most(&self) -> usize {
        self.batches.most()
    }
    fn draw(&mut self, rng: &mut Rng) {
        self.batches.draw(rng);
    }
    fn bring(&mut self) -> mercer::Result<()> {
        self.batches.bring()
    }
    fn begin(&mut self, control: &Control, points: &mut Points) -> mercer::Result<()> {
        self.batches.begin(control, points)
    }
    fn apply(
        &mut self,
        control: &Control,
        points: &Points,
        functions: &Functions,
        psi: &Tensor,
        out: &mut Tensor,
    ) -> mercer::Result<()> {
        self.batches.apply(control, points, functions, psi, out)?;
        if (self.spoil)() {
            mercer::compute::scale(f32::NAN, out);
        }
        Ok(())
    }
    fn unbiased<'m>(
        &mut self,
        psi: &Tensor,
        covariance: &Small,
        r: &'m Small,
        out: &'m mut Small,
    ) -> mercer::Result<&'m Small> {
        self.batches.unbiased(psi, covariance, r, out)
    }
}

const NETWORKS: &str = "dense(8) sincos dense(8) sincos dense(1) l2norm";

fn settings(checkpoint: Option<PathBuf>) -> Settings {
    // Every step writes a checkpoint, where there is one to write.
    let patience = usize::MAX;
    let usual = Settings::default();
    Settings { steps: 60, batch: 48, patience, keep_best: false, checkpoint, checkpoint_seconds: 0.0, ..usual }
}

fn run(
    kind: Kind,
    operator: &dyn FunctionOperator,
    settings: &Settings,
    interrupt: Option<&AtomicBool>,
) -> mercer::Result<Trained> {
    neural::trained(kind, NETWORKS, operator, 3, settings, &FitContext { interrupt, ..FitContext::default() })
}

/// [`run`] with nothing in its way.
fn plain(kind: Kind, kernel: &KernelOperator, settings: &Settings) -> mercer::Result<Trained> {
    run(kind, &OnData::new(kernel)?, settings, None)
}

fn finite(trained: &Trained) -> bool {
    trained.functions.parameters().trained.to_host().unwrap().iter().all(|v| v.is_finite())
}

/// [`settings`] that continue from what is at `checkpoint`.
fn resuming(checkpoint: PathBuf) -> Settings {
    Settings { resume: true, ..settings(Some(checkpoint)) }
}

fn every_kind() -> Vec<Kind> {
    let mut kinds: Vec<Kind> = Kind::ALL.iter().map(|(_, kind)| *kind).collect();
    kinds.push(Kind::NeuralEf { averaged: true });
    kinds
}

#[test]
fn a_killed_run_resumes_with_the_same_bits() {
    let (kernel, folder) = (operator(200), tempfile::tempdir().unwrap());
    for kind in every_kind() {
        let (path, copy) = (folder.path().join("running"), folder.path().join("killed"));
        // What a kill at batch 38 would have left on disk.
        let action = Troubled::new(&kernel, |batch| {
            if batch == 38 {
                std::fs::copy(folder.path().join("running"), folder.path().join("killed")).unwrap();
            }
            false
        });
        let whole = run(kind, &action, &settings(Some(path)), None).unwrap();
        assert_eq!((whole.record.steps, whole.record.stop), (60, Stop::Budget));
        let action = Troubled::new(&kernel, |_| false);
        let resumed = run(kind, &action, &resuming(copy), None).unwrap();
        assert!(action.batches_seen() < 30, "{kind:?} started again: {} batches", action.batches_seen());
        assert_eq!(bits(&whole), bits(&resumed), "{kind:?}");
    }
}

#[test]
fn an_interrupted_run_saves_and_resumes_with_the_same_bits() {
    let (kernel, folder) = (operator(200), tempfile::tempdir().unwrap());
    for (i, kind) in every_kind().into_iter().enumerate() {
        let whole = plain(kind, &kernel, &settings(None)).unwrap();
        let settings = Settings { checkpoint_seconds: 1e9, ..resuming(folder.path().join(format!("checkpoint-{i}"))) };
        let interrupt = AtomicBool::new(false);
        let action = Troubled::new(&kernel, |batch| {
            interrupt.store(batch == 31, Ordering::Relaxed);
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
    let (kernel, folder) = (operator(100), tempfile::tempdir().unwrap());
    let path = folder.path().join("checkpoint");
    let kind = Kind::NeuralEf { averaged: false };
    plain(kind, &kernel, &settings(Some(path.clone()))).unwrap();
    let settings = resuming(path.clone());
    let refused = |result: mercer::Result<Trained>| {
        let error = message(result);
        assert!(error.contains("another run") && error.contains("checkpoint"), "{error}");
    };
    refused(plain(kind, &operator(101), &settings));
    refused(plain(Kind::Ritz, &kernel, &settings));
    refused(plain(Kind::NeuralEf { averaged: true }, &kernel, &settings));
    let settings = Settings { learning_rate: 2e-3, ..settings };
    refused(plain(kind, &kernel, &settings));
    std::fs::write(&path, b"not a checkpoint").unwrap();
    let error = message(plain(kind, &kernel, &settings));
    assert!(error.contains(path.to_str().unwrap()), "{error}");
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
fn a_recovered_run_is_resumed_with_the_same_bits_too() {
    let (kernel, folder) = (operator(200), tempfile::tempdir().unwrap());
    let kind = Kind::Spin { decay: 0.9 };
    let action = Troubled::new(&kernel, |batch| {
        if batch == 45 {
            std::fs::copy(folder.path().join("running"), folder.path().join("killed")).unwrap();
        }
        batch == 25
    });
    let whole = run(kind, &action, &settings(Some(folder.path().join("running"))), None).unwrap();
    let resumed = plain(kind, &kernel, &resuming(folder.path().join("killed"))).unwrap();
    assert_eq!(resumed.record.recoveries, 1);
    assert_eq!(bits(&whole), bits(&resumed));
}

#[test]
fn endless_trouble_ends_with_a_named_error_and_the_last_good_state() {
    let (kernel, folder) = (operator(200), tempfile::tempdir().unwrap());
    let path = folder.path().join("last-good");
    let kind = Kind::NeuralEf { averaged: false };
    let action = Troubled::new(&kernel, |batch| batch > 20);
    let error = message(run(kind, &action, &settings(Some(path.clone())), None));
    assert!(error.contains("neuralef") && error.contains("not finite") && error.contains("5 recoveries"), "{error}");
    assert!(error.contains(path.to_str().unwrap()), "{error}");
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
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let action = OnData::new(&kernel).unwrap();
                let settings = Settings { steps: 20, batch: 500, ..settings(None) };
                let mut trained = run(kind, &action, &settings, None).unwrap();
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
    let trained = plain(Kind::NeuralEf { averaged: false }, &kernel, &settings).unwrap();
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
    let error = message(run(Kind::Ritz, &action, &settings(Some(nowhere)), None));
    assert!(error.contains("/nonexistent-folder"), "{error}");
    assert_eq!(action.batches_seen(), 0);
}

/// Functions are evaluated with the statistics of the points on which they were calibrated, batch norms included.
#[test]
fn calibrated_functions_are_those_that_were_trained() {
    let mut rng = Rng::new(3);
    let points: Vec<f32> = (0..100).map(|_| (2.0 + rng.normal()) as f32).collect();
    let x = Tensor::from_host(Device::Cpu, &[50, 2], &points).unwrap();
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
