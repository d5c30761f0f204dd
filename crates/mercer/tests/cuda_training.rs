//! Training on a CUDA device against training on the CPU. Without a device every test says so and passes.

mod common;
#[path = "common/cuda.rs"]
mod cuda;
#[path = "common/neural.rs"]
mod neural;

use common::*;
use cuda::{Case, K, KINDS, NETWORKS, PLAIN, cuda, has_averages, with_memory};
use mercer::Interrupt;
use mercer::compute::{Activation, Math, Rule};
use mercer::spectrum::neural::{
    FunctionOperator, Functions, Kind, NeuralEf, OnData, Settings, Spin, State, Trained, rayleigh_ritz,
};
use mercer::{Progress, Silent};
use neural::{bits, parameters, resumes_with_the_same_bits};

const BATCH: usize = 48;

/// SpIN without averages beside the others.
fn every_kind() -> impl Iterator<Item = Kind> {
    KINDS.into_iter().chain([Kind::Spin(Spin { decay: 0.0 })])
}

fn networks(architecture: &str) -> impl Fn(Kind, usize, Device) -> Functions {
    move |kind, inputs, device| kind.functions(architecture, inputs, K, device, &Rng::new(2)).unwrap()
}

/// The gradient of one step in f32, every activation, both objectives, a kernel with a constant diagonal and one without.
#[test]
#[ignore = "needs a GPU"]
fn one_step_has_the_gradient_of_the_cpu() {
    let (device, _held) = cuda();
    let x = uniform(200, 2, 2.0, 4);
    for expression in ["rbf(1)", "poly(2) + laplacian(2)"] {
        let kernel = on(&kernel(expression), x.view());
        let operator = OnData::new(&kernel).unwrap();
        // An exponential of an exponential overflows single precision on these points, on either device.
        let finite = |phi: &Activation| phi.name() != "exp";
        for (i, phi) in Activation::ALL.into_iter().filter(finite).enumerate() {
            let name = phi.to_string();
            // Every other one with a norm in the middle, an activation that stands alone, or a shared trunk.
            let architecture = match i % 4 {
                0 => format!("dense(12) {name} dense(10) {name} dense(1)"),
                1 => format!("dense(12) l2norm {name} dense(10) {name} dense(1)"),
                2 => format!("dense(12) ln {name} dense(10) {name} dense(1)"),
                _ => format!("dense(12) {name} | dense(10) {name} dense(1)"),
            };
            let functions = networks(&architecture);
            for &kind in &KINDS[..PLAIN] {
                let [here, there] = Case::descent(&operator, &functions, kind, BATCH).both(device, 1);
                here.agrees(&there, 2e-4, 1e-3, &format!("{expression} {architecture} {kind:?}"));
            }
        }
    }
}

/// Layers and batches as wide as those that are stored transposed for tensor cores, in every precision: the gradient as a whole, and its bits.
#[test]
#[ignore = "needs a GPU"]
fn a_step_of_wide_networks_has_the_gradient_of_the_cpu() {
    let (device, _held) = cuda();
    let x = uniform(5000, 2, 2.0, 4);
    let kernel = on(&kernel("rbf(1)"), x.view());
    let operator = OnData::new(&kernel).unwrap();
    for (architecture, batch) in [
        ("dense(256) sincos dense(256) sincos dense(1)", 4096),
        ("dense(132) tanh dense(260) gelu dense(136, b=no) sincos dense(1)", 260),
        ("dense(256) sin | dense(128) relu dense(1)", 512),
    ] {
        let functions = networks(architecture);
        let case = Case::descent(&operator, &functions, Kind::NeuralEf(NeuralEf::Published), batch);
        let want = case.steps(Device::Cpu, 1, Math::F32, true).moved();
        let size = norm(&want);
        for (math, bound) in [(Math::F32, 1e-4), (Math::Tf32, 1e-2), (Math::Bf16, 1e-1)] {
            let after = case.steps(device, 1, math, true);
            let off: Vec<f32> = after.moved().iter().zip(&want).map(|(got, want)| got - want).collect();
            println!("{architecture} {math:?}: the gradient is off by {:.2e}", norm(&off) / size);
            assert!(norm(&off) < bound * size, "{architecture} {math:?}: off by {} of {size}", norm(&off));
            let case = case.adam();
            let recorded = case.steps(device, 5, math, true);
            assert_eq!(recorded.bits(), case.steps(device, 5, math, false).bits(), "{architecture} {math:?}");
        }
    }
}

fn norm(x: &[f32]) -> f64 {
    x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt()
}

/// The same for SpIN and Ritz over four steps, whose moving averages and eigenproblems are then under way, on points and
/// networks whose Σ is well conditioned: what divides by its small eigenvalues multiplies rounding by their inverse.
#[test]
#[ignore = "needs a GPU"]
fn steps_with_a_dense_problem_have_the_gradients_of_the_cpu() {
    let (device, _held) = cuda();
    let x = uniform(200, 5, 2.0, 4);
    for expression in ["rbf(3)", "poly(2) + laplacian(2)"] {
        let kernel = on(&kernel(expression), x.view());
        let operator = OnData::new(&kernel).unwrap();
        for architecture in ["dense(16) tanh dense(8) tanh dense(1)", "dense(20) l2norm relu dense(6) sincos dense(1)"]
        {
            let functions = networks(architecture);
            for kind in every_kind().skip(PLAIN) {
                for (steps, rate) in [(1, 1.0), (4, 0.05)] {
                    let case = Case { rate, ..Case::descent(&operator, &functions, kind, BATCH) };
                    let [here, there] = case.both(device, steps);
                    here.agrees(&there, 5e-4, 0.0, &format!("{expression} {architecture} {kind:?}"));
                }
            }
        }
    }
}

/// Ten steps of every optimizer in f32.
#[test]
#[ignore = "needs a GPU"]
fn the_first_steps_follow_those_of_the_cpu() {
    let (device, _held) = cuda();
    let x = uniform(200, 1, 2.0, 4);
    let kernel = on(&kernel("rbf(1)"), x.view());
    let (operator, functions) = (OnData::new(&kernel).unwrap(), networks(NETWORKS));
    for &kind in &KINDS[..PLAIN] {
        for rule in [Rule::ADAM, Rule::RMS_PROP, Rule::Sgd { momentum: 0.9, weight_decay: 0.0 }] {
            let case = Case { rule, rate: 1e-3, ..Case::descent(&operator, &functions, kind, BATCH) };
            case.first_steps_agree(device, &format!("{kind:?} {rule:?}"));
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn a_recorded_step_has_the_bits_of_one_that_is_not() {
    let (device, _held) = cuda();
    let x = uniform(300, 2, 2.0, 4);
    let kernel = on(&kernel("rbf(1) + 0.1*linear"), x.view());
    let operator = OnData::new(&kernel).unwrap();
    for architecture in
        [NETWORKS, "dense(16) l2norm tanh | dense(8) relu dense(1)", "dense(16) ln silu | dense(8) ln relu dense(1)"]
    {
        let functions = networks(architecture);
        for kind in every_kind().filter(|kind| !(has_averages(kind) && architecture.contains('|'))) {
            for math in [Math::F32, Math::Tf32, Math::Bf16] {
                let case = Case::descent(&operator, &functions, kind, BATCH).adam();
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
    interrupt: Option<&Interrupt>,
) -> mercer::Result<(Trained, Vec<f64>)> {
    let x = uniform(400, 1, 2.0, 4);
    let context = FitContext { device, progress, interrupt, ..FitContext::default() };
    let kernel = context.kernel_operator(&kernel("rbf(1)"), x.view())?;
    let operator = OnData::new(&kernel)?;
    let mut trained = neural::trained(kind, NETWORKS, &operator, K, settings, &context)?;
    let sample = operator.sample(device, &mut Rng::new(9), 400)?;
    let pairs = rayleigh_ritz(&operator, &mut trained.functions, &sample, K)?;
    Ok((trained, pairs.eigenvalues))
}

/// 200 steps in TF32, all objectives: eigenvalues within a hundredth of the largest on the CPU.
#[test]
#[ignore = "needs a GPU"]
fn training_reaches_the_eigenvalues_of_the_cpu() {
    let (device, _held) = cuda();
    let kinds = Kind::all().into_iter().chain([Spin::PUBLISHED.into()]);
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
#[ignore = "needs a GPU"]
fn a_seed_gives_the_same_bits_twice() {
    let (device, _held) = cuda();
    for kind in Kind::all() {
        let run = || bits(&trained(device, kind, &settings(60), &Silent, None).unwrap().0);
        assert_eq!(run(), run(), "{kind:?}");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn an_interrupted_run_resumes_with_the_same_bits() {
    let (device, _held) = cuda();
    for kind in every_kind() {
        resumes_with_the_same_bits(settings(60), &format!("{kind:?}"), |settings, progress, interrupt| {
            trained(device, kind, settings, progress, interrupt).unwrap().0
        });
    }
}

#[test]
#[ignore = "needs a GPU"]
fn steps_that_are_not_finite_are_taken_back() {
    let (device, _held) = cuda();
    // Infinite in single precision, however often it is halved.
    let settings = Settings { learning_rate: 1e300, ..settings(60) };
    for kind in Kind::all() {
        says(trained(device, kind, &settings, &Silent, None), &["recoveries", "not finite"]);
    }
}

/// A rate at which the first step is finite and the second is not: the first counts, and what the objective remembers is
/// what it was after it.
#[test]
#[ignore = "needs a GPU"]
fn a_non_finite_step_leaves_the_one_before_it() {
    let (device, _held) = cuda();
    let x = uniform(200, 2, 2.0, 4);
    let kernel = on(&kernel("rbf(1)"), x.view());
    let operator = OnData::new(&kernel).unwrap();
    let functions = networks("dense(8) relu dense(8) relu dense(8) relu dense(1)");
    for kind in every_kind() {
        let case = Case { rate: 1e18, ..Case::descent(&operator, &functions, kind, BATCH) };
        let after = |most: usize| {
            let mut stepper = case.stepper(device, Math::F32);
            let steps = stepper.steps(most).unwrap();
            assert_eq!(steps.outcomes.len(), 1, "{kind:?}");
            assert_eq!(steps.failure.is_some(), most > 1, "{kind:?}: {:?}", steps.failure);
            let memory: Vec<Vec<u64>> =
                stepper.objective().state().into_iter().map(|(_, state)| numbers(state)).collect();
            (parameters(stepper.functions()), steps.outcomes, memory)
        };
        let (want, got) = (after(1), after(5));
        assert_eq!(want.2.len(), if has_averages(&kind) { 2 } else { 0 });
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
#[ignore = "needs a GPU"]
fn too_large_a_batch_is_told_what_would_fit() {
    let (device, _held) = cuda();
    let x = uniform(1 << 15, 1, 2.0, 4);
    let (kind, context) = (Kind::NeuralEf(NeuralEf::Joint), FitContext { device, ..FitContext::default() });
    let kernel = context.kernel_operator(&kernel("rbf(1)"), x.view()).unwrap();
    let operator = OnData::new(&kernel).unwrap();
    let large = Settings { batch: 1 << 15, ..settings(10) };
    let refused = with_memory(1 << 30, || neural::trained(kind, NETWORKS, &operator, K, &large, &context));
    says(refused, &["[32768, 32768]", "by estimate a batch of"]);
    // The run that fits afterwards is none the worse.
    trained(device, kind, &settings(10), &Silent, None).unwrap();
}
