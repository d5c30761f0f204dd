//! Training on a CUDA device against training on the processor. Without a device every test says so and passes.

#[macro_use]
#[path = "contract/cuda.rs"]
mod cuda;

use cuda::After;
use mercer::compute::cuda::gpu;
use mercer::compute::{Activation, Device, Math, Rule};
use mercer::kernel::Kernel;
use mercer::net::{Optimizer, Schedule};
use mercer::operator::KernelOperator;
use mercer::rng::Rng;
use mercer::spectrum::neural::{
    FunctionOperator, Kind, Nesting, OnData, Settings, State, Stepper, Stop, Trained, rayleigh_ritz, train,
};
use mercer::{FitContext, Progress, Silent};
use ndarray::{Array2, ArrayView2};
use std::sync::atomic::{AtomicBool, Ordering};

const K: usize = 3;
const BATCH: usize = 48;
const NETWORKS: &str = "dense(16) sincos dense(16) sincos dense(1)";
const PLAIN: [Kind; 5] = [
    Kind::NeuralEf { averaged: false },
    Kind::NeuralEfJoint,
    Kind::NeuralEf { averaged: true },
    Kind::Nested { nesting: Some(Nesting::Sequential) },
    Kind::Nested { nesting: Some(Nesting::Joint) },
];
/// Those whose steps solve a small dense problem.
const SOLVED: [Kind; 3] = [Kind::Spin { decay: 0.9 }, Kind::Spin { decay: 0.0 }, Kind::Ritz];

fn points(n: usize, d: usize) -> Array2<f64> {
    let mut rng = Rng::new(4);
    Array2::from_shape_simple_fn((n, d), || 4.0 * rng.uniform() - 2.0)
}

struct Case<'a> {
    kind: Kind,
    kernel: &'a Kernel,
    x: ArrayView2<'a, f64>,
    networks: &'a str,
    rule: Rule,
    rate: f64,
}

impl Case<'_> {
    fn operator(&self) -> KernelOperator<'_> {
        FitContext::default().kernel_operator(self.kernel, self.x).unwrap()
    }

    /// Ready for the first step on `device`.
    fn stepper<'a>(&self, operator: &'a OnData<'a>, device: Device, math: Math) -> Stepper<'a> {
        let functions = self.kind.functions(self.networks, self.x.ncols(), K, device, &Rng::new(2)).unwrap();
        let objective = self.kind.objective(&functions, K).unwrap();
        let (parameters, schedule) = (functions.network().parameters(), Schedule::Constant { rate: self.rate });
        let optimizer = Optimizer::new(device, self.rule, schedule, None, parameters).unwrap();
        Stepper::new(operator, functions, objective, optimizer, Rng::new(7), BATCH, math).unwrap()
    }

    /// `steps` steps on the processor.
    fn host(&self, steps: usize) -> After {
        self.steps(Device::Cpu, steps, Math::F32, true)
    }

    /// The same on a device.
    fn steps(&self, device: Device, steps: usize, math: Math, graph: bool) -> After {
        let kernel = self.operator();
        let operator = OnData::new(&kernel).unwrap();
        let stepper = self.stepper(&operator, device, math);
        After::of(if graph { stepper } else { stepper.without_graph().unwrap() }, steps)
    }
}

/// The gradient of one step in f32, every activation, both objectives, a kernel with a constant diagonal and one without:
/// within 2e-4 of the processor's, relative to its largest entry.
#[test]
fn one_step_has_the_processors_gradient() {
    let (device, _held) = device!();
    let x = points(200, 2);
    for expression in ["rbf(1)", "poly(2) + laplacian(2)"] {
        let kernel = Kernel::parse(expression).unwrap();
        for (i, phi) in Activation::ALL.into_iter().enumerate() {
            let name = phi.name();
            // Every other one with a norm in the middle, an activation that stands alone, or a shared trunk.
            let networks = match i % 3 {
                0 => format!("dense(12) {name} dense(10) {name} dense(1)"),
                1 => format!("dense(12) l2norm {name} dense(10) {name} dense(1)"),
                _ => format!("dense(12) {name} | dense(10) {name} dense(1)"),
            };
            for kind in PLAIN {
                let rule = Rule::Sgd { momentum: 0.0, weight_decay: 0.0 };
                let case = Case { kind, kernel: &kernel, x: x.view(), networks: &networks, rule, rate: 1.0 };
                let (here, there) = (case.host(1), case.steps(device, 1, Math::F32, true));
                let (want, got) = (here.moved(), there.moved());
                let largest = want.iter().fold(0.0f32, |a, b| a.max(b.abs()));
                for (i, (want, got)) in want.iter().zip(&got).enumerate() {
                    assert!(
                        (want - got).abs() < 2e-4 * largest + 1e-6,
                        "{expression} {networks} {kind:?}: {i}: {got} for {want} of at most {largest}"
                    );
                }
                let (want, got) = (&here.outcomes[0], &there.outcomes[0]);
                assert!((want.loss - got.loss).abs() < 1e-4 * want.loss.abs().max(1e-3), "{want:?} {got:?}");
                for (want, got) in want.eigenvalues.iter().zip(&got.eigenvalues) {
                    assert!((want - got).abs() < 1e-4 * want.abs().max(1e-2), "{expression} {kind:?}: {want} {got}");
                }
            }
        }
    }
}

/// The same for SpIN and Ritz over four steps, whose moving averages and eigenproblems are then under way, on points and
/// networks whose Σ is well conditioned: what divides by its small eigenvalues multiplies rounding by their inverse.
#[test]
fn steps_with_a_dense_problem_have_the_processors_gradients() {
    let (device, _held) = device!();
    let x = points(200, 5);
    for expression in ["rbf(3)", "poly(2) + laplacian(2)"] {
        let kernel = Kernel::parse(expression).unwrap();
        for networks in ["dense(16) tanh dense(8) tanh dense(1)", "dense(20) l2norm relu dense(6) sincos dense(1)"] {
            for kind in SOLVED {
                let rule = Rule::Sgd { momentum: 0.0, weight_decay: 0.0 };
                for (steps, rate) in [(1, 1.0), (4, 0.05)] {
                    let case = Case { kind, kernel: &kernel, x: x.view(), networks, rule, rate };
                    let (here, there) = (case.host(steps), case.steps(device, steps, Math::F32, true));
                    let (want, got) = (here.moved(), there.moved());
                    let largest = want.iter().fold(0.0f32, |a, b| a.max(b.abs()));
                    for (i, (want, got)) in want.iter().zip(&got).enumerate() {
                        assert!(
                            (want - got).abs() < 5e-4 * largest + 1e-6,
                            "{expression} {networks} {kind:?}: {i}: {got} for {want} of at most {largest}"
                        );
                    }
                    for (want, got) in here.outcomes.iter().zip(&there.outcomes) {
                        assert!((want.loss - got.loss).abs() < 1e-4 * want.loss.abs(), "{kind:?}: {want:?} {got:?}");
                        for (want, got) in want.eigenvalues.iter().zip(&got.eigenvalues) {
                            assert!((want - got).abs() < 1e-4 * want.abs().max(1e-2), "{kind:?}: {want} {got}");
                        }
                    }
                }
            }
        }
    }
}

/// Ten steps of every optimizer in f32: parameters within a fiftieth of the farthest that one moved.
#[test]
fn the_first_steps_follow_the_processors() {
    let (device, _held) = device!();
    let (x, kernel) = (points(200, 1), Kernel::parse("rbf(1)").unwrap());
    for kind in PLAIN {
        for rule in [Rule::ADAM, Rule::RMS_PROP, Rule::Sgd { momentum: 0.9, weight_decay: 0.0 }] {
            let case = Case { kind, kernel: &kernel, x: x.view(), networks: NETWORKS, rule, rate: 1e-3 };
            let (here, there) = (case.host(10), case.steps(device, 10, Math::F32, true));
            let moved = here.moved().iter().fold(0.0f32, |a, b| a.max(b.abs()));
            for (want, got) in here.parameters.iter().zip(&there.parameters) {
                assert!((want - got).abs() < 2e-2 * moved, "{kind:?} {rule:?}: {got} for {want}, moved {moved}");
            }
        }
    }
}

#[test]
fn a_recorded_step_has_the_bits_of_one_that_is_not() {
    let (device, _held) = device!();
    let (x, kernel) = (points(300, 2), Kernel::parse("rbf(1) + 0.1*linear").unwrap());
    for networks in [NETWORKS, "dense(16) l2norm tanh | dense(8) relu dense(1)"] {
        for kind in PLAIN.into_iter().chain(SOLVED) {
            if matches!(kind, Kind::Spin { .. }) && networks.contains('|') {
                continue;
            }
            for math in [Math::F32, Math::Tf32, Math::Bf16] {
                let case = Case { kind, kernel: &kernel, x: x.view(), networks, rule: Rule::ADAM, rate: 1e-3 };
                let recorded = case.steps(device, 40, math, true);
                assert_eq!(recorded.bits(), case.steps(device, 40, math, false).bits(), "{kind:?} {math:?}");
                assert_eq!(recorded.bits(), case.steps(device, 40, math, true).bits(), "{kind:?} {math:?}, repeated");
            }
        }
    }
}

fn settings(steps: u64) -> Settings {
    Settings { steps, batch: BATCH, patience: usize::MAX, keep_best: false, ..Settings::default() }
}

fn trained(
    device: Device,
    kind: Kind,
    settings: &Settings,
    progress: &dyn Progress,
    interrupt: Option<&AtomicBool>,
) -> mercer::Result<(Trained, Vec<f64>)> {
    let (x, kernel) = (points(400, 1), Kernel::parse("rbf(1)").unwrap());
    let context = FitContext { device, progress, interrupt, ..FitContext::default() };
    let kernel = context.kernel_operator(&kernel, x.view())?;
    let operator = OnData::new(&kernel)?;
    let functions = kind.functions(NETWORKS, 1, K, device, &Rng::new(2))?;
    let objective = kind.objective(&functions, K)?;
    let mut trained = train(&operator, functions, objective, K, settings, &context)?;
    let sample = operator.sample(device, &mut Rng::new(9), 400)?;
    let pairs = rayleigh_ritz(&operator, &mut trained.functions, &sample, K)?;
    Ok((trained, pairs.eigenvalues))
}

fn bits(trained: &Trained) -> (Vec<u32>, Vec<u64>) {
    let parameters = trained.functions.parameters().trained.to_host().unwrap();
    let record = &trained.record;
    let numbers = record.raw_eigenvalues.iter().chain(record.loss.iter().flatten());
    let numbers = numbers.chain(record.validation.iter().flatten());
    (parameters.iter().map(|v| v.to_bits()).collect(), numbers.map(|v| v.to_bits()).collect())
}

/// 200 steps in TF32, all objectives: eigenvalues within a hundredth of the processor's largest.
#[test]
fn training_reaches_the_processors_eigenvalues() {
    let (device, _held) = device!();
    let kinds = Kind::ALL.into_iter().map(|(_, kind)| kind).chain([Kind::NeuralEf { averaged: true }]);
    for kind in kinds {
        let settings = settings(200);
        let (_, want) = trained(Device::Cpu, kind, &settings, &Silent, None).unwrap();
        let (_, got) = trained(device, kind, &settings, &Silent, None).unwrap();
        for (want_j, got_j) in want.iter().zip(&got) {
            assert!((want_j - got_j).abs() < 1e-2 * want[0], "{kind:?}: {got:?} for {want:?}");
        }
    }
}

#[test]
fn a_seed_gives_the_same_bits_twice() {
    let (device, _held) = device!();
    for (_, kind) in Kind::ALL {
        let run = || bits(&trained(device, kind, &settings(60), &Silent, None).unwrap().0);
        assert_eq!(run(), run(), "{kind:?}");
    }
}

/// Interrupts once some steps are done.
struct Stopper<'a>(&'a AtomicBool);

impl Progress for Stopper<'_> {
    fn step(&self, _: &str, done: usize, _: usize, _: &str) {
        self.0.store(done >= 1, Ordering::Relaxed);
    }
}

#[test]
fn an_interrupted_run_resumes_with_the_same_bits() {
    let (device, _held) = device!();
    let folder = tempfile::tempdir().unwrap();
    for (i, kind) in PLAIN.into_iter().chain(SOLVED).enumerate() {
        let (whole, _) = trained(device, kind, &settings(60), &Silent, None).unwrap();
        let checkpoint = Some(folder.path().join(format!("checkpoint-{i}")));
        let settings = Settings { checkpoint, resume: true, ..settings(60) };
        let flag = AtomicBool::new(false);
        let (part, _) = trained(device, kind, &settings, &Stopper(&flag), Some(&flag)).unwrap();
        assert_eq!(part.record.stop, Stop::Interrupted);
        assert!((1..60).contains(&part.record.steps), "{}", part.record.steps);
        let (resumed, _) = trained(device, kind, &settings, &Silent, None).unwrap();
        assert_eq!(resumed.record.steps, 60);
        assert_eq!(bits(&whole), bits(&resumed), "{kind:?}");
    }
}

#[test]
fn steps_that_are_not_finite_are_taken_back() {
    let (device, _held) = device!();
    // Infinite in single precision, however often it is halved.
    let settings = Settings { learning_rate: 1e300, ..settings(60) };
    for (_, kind) in Kind::ALL {
        let error = trained(device, kind, &settings, &Silent, None).err().expect("nothing is finite").to_string();
        assert!(error.contains("recoveries") && error.contains("not finite"), "{kind:?}: {error}");
    }
}

/// A rate at which the first step is finite and the second is not: the first counts, and what the objective remembers is
/// what it was after it.
#[test]
fn a_non_finite_step_leaves_the_one_before_it() {
    let (device, _held) = device!();
    let (x, kernel) = (points(200, 2), Kernel::parse("rbf(1)").unwrap());
    for kind in PLAIN.into_iter().chain(SOLVED) {
        let networks = "dense(8) relu dense(8) relu dense(8) relu dense(1)";
        let rule = Rule::Sgd { momentum: 0.0, weight_decay: 0.0 };
        let case = Case { kind, kernel: &kernel, x: x.view(), networks, rule, rate: 1e18 };
        let kernel = case.operator();
        let operator = OnData::new(&kernel).unwrap();
        let after = |most: usize| {
            let mut stepper = case.stepper(&operator, device, Math::F32);
            let steps = stepper.steps(most).unwrap();
            assert_eq!(steps.outcomes.len(), 1, "{kind:?}");
            assert_eq!(steps.failure.is_some(), most > 1, "{kind:?}: {:?}", steps.failure);
            let memory: Vec<Vec<u64>> =
                stepper.objective().state().into_iter().map(|(_, state)| numbers(state)).collect();
            let parameters = stepper.functions().parameters().trained.to_host().unwrap();
            (parameters.iter().map(|v| v.to_bits()).collect::<Vec<u32>>(), steps.outcomes, memory)
        };
        let (want, got) = (after(1), after(5));
        assert_eq!(want.2.len(), if matches!(kind, Kind::Spin { .. }) { 2 } else { want.2.len().min(1) });
        assert_eq!(want, got, "{kind:?}");
    }
}

/// The bits of what an objective remembers.
fn numbers(state: State<'_>) -> Vec<u64> {
    match state {
        State::Average(average) => average.get().unwrap().iter().flatten().map(|v| v.to_bits()).collect(),
        State::Tensor(tensor) => tensor.to_host().unwrap().iter().map(|v| u64::from(v.to_bits())).collect(),
    }
}

#[test]
fn too_large_a_batch_is_told_what_would_fit() {
    let (device, _held) = device!();
    let Device::Cuda(ordinal) = device else { return };
    let (x, kernel) = (points(1 << 15, 1), Kernel::parse("rbf(1)").unwrap());
    let kind = Kind::NeuralEf { averaged: false };
    let gpu = gpu(ordinal).unwrap();
    gpu.limit_memory(Some(1 << 30));
    let context = FitContext { device, ..FitContext::default() };
    let kernel = context.kernel_operator(&kernel, x.view()).unwrap();
    let operator = OnData::new(&kernel).unwrap();
    let functions = kind.functions(NETWORKS, 1, K, device, &Rng::new(2)).unwrap();
    let objective = kind.objective(&functions, K).unwrap();
    let large = Settings { batch: 1 << 15, ..settings(10) };
    let error = train(&operator, functions, objective, K, &large, &context).err().expect("4 GiB").to_string();
    gpu.limit_memory(None);
    assert!(error.contains("[32768, 32768]") && error.contains("by estimate a batch of"), "{error}");
    // The run that fits afterwards is none the worse.
    trained(device, kind, &settings(10), &Silent, None).unwrap();
}
