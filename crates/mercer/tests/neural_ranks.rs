//! Training on several ranks against training in one process. Ranks are threads here; `.ci/distributed` runs processes under MPI.

mod common;
#[path = "common/cuda.rs"]
mod cuda;
#[path = "common/neural.rs"]
mod neural;

use common::*;
use cuda::{After, Case, K, KINDS, NETWORKS, has_averages};
use mercer::compute::{Math, Rule};
use mercer::group::{TensorSums, on_threads as on_ranks};
use mercer::net::{Description, Optimizer, Schedule};
use mercer::spectrum::neural::{
    Augmentation, FunctionOperator, Functions, Gaussian, Kind, Neural, NeuralEf, OnData, PairObjective, Schroedinger,
    Settings, Spin, Stepper, Trained, ViewPairs,
};
use mercer::{Group, Interrupt};
use neural::{Stopper, bits};
use std::path::PathBuf;

/// Not a multiple of three.
const BATCH: usize = 50;

/// Steps on 2 and 3 ranks are those of one process, to the rounding of a gradient that is summed in another order; all ranks have the same
/// bits, and the same again a second time.
fn agree<'a>(what: &str, steps: usize, stepper: impl Fn() -> Stepper<'a> + Sync) {
    let alone = After::of(stepper(), steps);
    for size in [2, 3] {
        let run = || on_ranks(size, |group| After::of(stepper().among(group).unwrap(), steps));
        let all = run();
        alone.agrees(&all[0], 1e-5, 1e-3, &format!("{what} on {size} ranks"));
        assert!(all.iter().all(|other| other.bits() == all[0].bits()), "{what}: ranks differ");
        assert!(run()[0].bits() == all[0].bits(), "{what}: a second run has other bits");
    }
}

#[test]
fn a_step_of_every_objective_is_that_of_the_whole_batch() {
    let kernel = on_own(&kernel("poly(2) + laplacian(2)"), uniform(200, 5, 2.0, 4));
    let operator = OnData::new(&kernel).unwrap();
    for kind in KINDS.into_iter().chain([Kind::Spin(Spin { decay: 0.0 })]) {
        let trunk = "dense(16) tanh | dense(8) tanh dense(1)";
        for architecture in [NETWORKS, trunk] {
            if architecture == trunk && has_averages(&kind) {
                continue;
            }
            let networks =
                |kind: Kind, d: usize, device| kind.functions(architecture, d, K, device, &Rng::new(2)).unwrap();
            agree(&format!("{kind:?}, {architecture}"), 1, || {
                Case::descent(&operator, &networks, kind, BATCH).stepper(Device::Cpu, Math::F32)
            });
        }
    }
}

/// Operators that need functions elsewhere, or their derivatives, and functions with an envelope.
#[test]
fn other_operators_see_the_whole_batch() {
    let (potential, guide) = (|x: &[f64]| x[0] * x[0], Gaussian { dimension: 1, width: 1.0 });
    let operator = Schroedinger::new("oscillator", Box::new(potential), Box::new(guide), 8.0, 8.0).unwrap();
    let networks = |kind: Kind, d: usize, device| kind.functions(NETWORKS, d, K, device, &Rng::new(2)).unwrap();
    agree("Schrödinger", 1, || {
        Case::descent(&operator, &networks, NeuralEf::Joint.into(), BATCH).stepper(Device::Cpu, Math::F32)
    });
    let kernel = on_own(&kernel("rbf(1)"), uniform(200, 2, 1.0, 4));
    let operator = OnData::new(&kernel).unwrap();
    let envelope = |x: &[f32]| 1.0 + 0.5 * x[0];
    let enveloped = |kind: Kind, d: usize, device| {
        let functions = kind.functions(NETWORKS, d, K, device, &Rng::new(2)).unwrap();
        functions.with_envelope(std::sync::Arc::new(envelope))
    };
    agree("an envelope", 3, || {
        Case::descent(&operator, &enveloped, NeuralEf::Joint.into(), BATCH).stepper(Device::Cpu, Math::F32)
    });
}

/// Pairs of views, whose objectives compare all views of a batch.
#[test]
fn pairs_of_views_may_lie_on_two_ranks() {
    let x = normal(80, 6, 4);
    let augmentation: Augmentation = "noise(0.2)".parse().unwrap();
    let pairs = ViewPairs::augmented(x.view(), None, augmentation).unwrap();
    for objective in PairObjective::all() {
        agree(&format!("{objective:?}"), 1, || {
            let network = Description::parse("dense(12) relu dense(4)").unwrap();
            let norms = [objective.normalises(), objective.centres()];
            let functions = Functions::units(&network, pairs.inputs(), norms, Device::Cpu, &Rng::new(2)).unwrap();
            let run = objective.objective(&functions, 4).unwrap();
            let rule = Rule::Sgd { momentum: 0.0, weight_decay: 0.0 };
            let (schedule, parameters) = (Schedule::constant(1.0), functions.network().parameters());
            let optimizer = Optimizer::new(Device::Cpu, rule, schedule, None, parameters).unwrap();
            Stepper::new(&pairs, functions, run, optimizer, Rng::new(7), 25, Math::F32).unwrap()
        });
    }
}

fn settings(checkpoint: Option<PathBuf>) -> Settings {
    Settings { steps: 200, batch: BATCH, patience: usize::MAX, interval: 10, checkpoint, ..Settings::default() }
}

/// All of a fit: networks that are chosen, training, validation, finish.
#[test]
fn a_fit_is_that_of_one_process() {
    let kernel = on_own(&kernel("rbf(1)"), uniform(300, 2, 2.0, 4));
    let method = Neural { settings: settings(None), ..Neural::new(NeuralEf::default()) };
    let fit = |group: Group<'_>| {
        let context = FitContext { group, ..FitContext::default() };
        Spectrum::fit(&method, &Problem { operator: &kernel, k: 4, context }, None).unwrap()
    };
    let (one, two, again) = (fit(Group::SINGLE), on_ranks(2, fit), on_ranks(2, fit));
    for (a, b) in one.eigenvalues.iter().zip(&two[0].eigenvalues) {
        assert!((a - b).abs() < 1e-5 * a, "{a} {b}");
    }
    let validations = |spectrum: &Spectrum| spectrum.training().unwrap().validation.clone();
    for other in two.iter().chain(&again) {
        assert_eq!(other.eigenvalues, two[0].eigenvalues);
        assert_eq!(validations(other), validations(&two[0]));
    }
}

/// Three functions of a kernel, by NeuralEF on the ranks of `group`; where `stops` is set, it ends after some steps.
fn trained(group: Group<'_>, settings: &Settings, stops: bool) -> mercer::Result<Trained> {
    let kernel = on_own(&kernel("rbf(1)"), uniform(200, 1, 2.0, 4));
    let operator = OnData::new(&kernel)?;
    // Each rank has its own, and hears of the same step.
    let (flag, plain) = (Interrupt::new(), FitContext { group, ..FitContext::default() });
    let stopper = Stopper(&flag);
    let context = if stops { FitContext { progress: &stopper, interrupt: Some(&flag), ..plain } } else { plain };
    neural::trained(NeuralEf::default().into(), NETWORKS, &operator, 3, settings, &context)
}

#[test]
fn a_checkpoint_is_continued_by_any_number_of_ranks() {
    let (_folder, path) = scratch("checkpoint");
    let resuming = Settings { resume: true, ..settings(Some(path.clone())) };
    let two = |settings: &Settings, stops| on_ranks(2, |group| trained(group, settings, stops).unwrap());
    let whole = two(&settings(None), false);
    let part = two(&resuming, true);
    assert!(part.iter().all(|part| (1..200).contains(&part.record.steps)), "{}", part[0].record.steps);
    let kept = std::fs::read(&path).unwrap();
    for resumed in two(&resuming, false) {
        assert_eq!(bits(&resumed), bits(&whole[0]));
    }
    let residuals = |trained: &Trained| trained.record.validation.iter().map(|[_, r]| *r).collect::<Vec<f64>>();
    for size in [1, 3] {
        std::fs::write(&path, &kept).unwrap();
        for other in on_ranks(size, |group| trained(group, &resuming, false).unwrap()) {
            assert_eq!(other.record.steps, 200);
            for (a, b) in residuals(&whole[0]).iter().zip(residuals(&other)) {
                assert!((a - b).abs() < 1e-3 * a, "{a} {b} on {size} ranks");
            }
        }
    }
    // A file that would be lost is refused on every rank, though rank 0 alone looks for it.
    for refused in on_ranks(2, |group| trained(group, &settings(Some(path.clone())), false).err().unwrap()) {
        assert!(refused.to_string().contains("exists already"), "{refused}");
    }
    // A file that is no checkpoint is no reason to start again.
    std::fs::write(&path, b"").unwrap();
    for refused in on_ranks(2, |group| trained(group, &resuming, false).err().unwrap()) {
        assert!(refused.to_string().contains("not a readable Mercer model"), "{refused}");
    }
}

/// NCCL between the GPUs of one rank: recorded steps have the bits of those without it.
#[test]
#[ignore = "needs a GPU and NCCL"]
fn nccl_with_one_rank_changes_no_bit() {
    let (device, _held) = cuda::cuda();
    let mut sums = TensorSums::new(Group::SINGLE, device).unwrap();
    assert!(sums.is_queued(), "{:?}", sums.note());
    let numbers: Vec<f32> = (0..100_000).map(|i| (i as f32).sin()).collect();
    let mut t = Tensor::from_host(device, &[numbers.len()], &numbers).unwrap();
    sums.sum(&mut t).unwrap();
    assert_eq!(t.to_host().unwrap(), numbers);
    let kernel = on_own(&kernel("rbf(1)"), uniform(300, 2, 2.0, 4));
    let operator = OnData::new(&kernel).unwrap();
    let networks = |kind: Kind, d: usize, device| kind.functions(NETWORKS, d, K, device, &Rng::new(2)).unwrap();
    for kind in KINDS {
        let case = Case::descent(&operator, &networks, kind, BATCH).adam();
        let alone = After::of(case.stepper(device, Math::Tf32), 30);
        let stepper = case.stepper(device, Math::Tf32).among(Group::SINGLE).unwrap();
        assert!(stepper.is_recorded());
        assert!(After::of(stepper, 30).bits() == alone.bits(), "{kind:?}");
    }
}

#[test]
fn what_ranks_cannot_share_is_refused() {
    let kernel = on_own(&kernel("rbf(1)"), uniform(100, 1, 2.0, 4));
    let operator = OnData::new(&kernel).unwrap();
    let refused = |architecture: &str, batch: usize| {
        let settings = Settings { batch, ..settings(None) };
        let all = on_ranks(3, |group| {
            let context = FitContext { group, ..FitContext::default() };
            let trained = neural::trained(NeuralEf::default().into(), architecture, &operator, 2, &settings, &context);
            trained.err().map(|error| error.to_string()).unwrap_or_default()
        });
        assert!(all.iter().all(|other| *other == all[0]));
        all[0].clone()
    };
    assert!(refused("dense(8) l2norm tanh dense(1)", 30).contains("has a norm over the batch between its layers"));
    assert!(refused(NETWORKS, 2).contains("a batch of 2 points cannot be sharded to 3 ranks"));
    assert_eq!(refused("dense(8) tanh dense(1) l2norm", 30), "");
}
