//! Training steps that stay on a CUDA device, for every operator that has such, against the processor's steps. Without a
//! device every test says so and passes.

use mercer::compute::{Device, Math, Rule};
use mercer::kernel::Kernel;
use mercer::net::{Optimizer, Schedule};

use mercer::operator::{DenseOperator, LowRankOperator, gram};
use mercer::rng::Rng;
use mercer::spectrum::neural::{
    Action, Functions, Kind, MatrixValued, Nesting, OperatorAction, Outcome, Resident, Stepper,
};
use ndarray::{Array2, Array3};
use std::sync::{Mutex, MutexGuard};

/// The device, for one test at a time: they share its stream, its precision and its memory.
fn cuda() -> Option<(Device, MutexGuard<'static, ()>)> {
    static ONE: Mutex<()> = Mutex::new(());
    let guard = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    Device::Cuda(0).open().ok().map(|device| (device, guard))
}

macro_rules! device {
    () => {
        match cuda() {
            Some(held) => held,
            None => {
                eprintln!("skipped: no CUDA device");
                return;
            }
        }
    };
}

const K: usize = 3;
const NETWORKS: &str = "dense(16) sincos dense(16) sincos dense(1)";
const KINDS: [Kind; 4] = [
    Kind::NeuralEf { averaged: false },
    Kind::NeuralEf { averaged: true },
    Kind::Nested { nesting: Some(Nesting::Sequential) },
    Kind::Nested { nesting: Some(Nesting::Joint) },
];

fn random(shape: (usize, usize)) -> Array2<f64> {
    let mut rng = Rng::new(4);
    Array2::from_shape_simple_fn(shape, || 4.0 * rng.uniform() - 2.0)
}

/// S smooth functions of c outputs at the points `x` `[n, d]`: `[S, n, c]`.
fn smooth(samples: usize, x: &Array2<f64>, c: usize) -> Array3<f64> {
    let mut rng = Rng::new(6);
    let waves = Array2::from_shape_simple_fn((samples * c, x.ncols() + 1), || rng.normal());
    Array3::from_shape_fn((samples, x.nrows(), c), |(s, i, o)| {
        let wave = waves.row(s * c + o);
        let phase: f64 = x.row(i).iter().zip(wave).map(|(x, w)| x * w).sum();
        (phase + 3.0 * wave[x.ncols()]).sin() + 0.3 * o as f64
    })
}

/// A problem: an operator, functions for it, and how they are trained.
struct Case<'a> {
    name: &'a str,
    action: &'a dyn Fn() -> Box<dyn Action + 'a>,
    functions: &'a dyn Fn(Kind, usize) -> Functions,
    batch: usize,
}

/// What steps leave behind.
struct After {
    before: Vec<f32>,
    parameters: Vec<f32>,
    outcomes: Vec<Outcome>,
}

impl After {
    fn moved(&self) -> Vec<f32> {
        self.before.iter().zip(&self.parameters).map(|(before, after)| before - after).collect()
    }

    fn bits(&self) -> (Vec<u32>, Vec<u64>) {
        let numbers = self.outcomes.iter().flat_map(|o| o.eigenvalues.iter().chain([&o.loss]));
        (self.parameters.iter().map(|v| v.to_bits()).collect(), numbers.map(|v| v.to_bits()).collect())
    }
}

fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |a, b| a.max(b.abs()))
}

impl Case<'_> {
    /// `steps` steps, on `device` by itself or on the processor.
    fn steps(&self, device: Device, kind: Kind, rule: Rule, rate: f64, steps: usize, graph: bool) -> After {
        device.scope(|| {
            let mut action = (self.action)();
            let mut functions = (self.functions)(kind, action.inputs());
            let mut objective = kind.objective(&functions, K).unwrap();
            let schedule = Schedule::Constant { rate };
            let parameters = functions.network().parameters();
            let mut optimizer = Optimizer::new(device, rule, schedule, None, parameters).unwrap();
            let before = functions.parameters().trained.to_host().unwrap();
            let (mut rng, mut outcomes) = (Rng::new(7), vec![]);
            let resident = Resident::new(action.as_ref(), &functions, objective.as_mut(), self.batch, Math::F32);
            let mut resident = resident.unwrap().map(|r| if graph { r } else { r.without_graph() });
            assert_eq!(resident.is_some(), device != Device::Cpu, "{}: a form on the device", self.name);
            let mut stepper = Stepper::new(device).unwrap();
            while outcomes.len() < steps {
                let (left, objective) = (steps - outcomes.len(), objective.as_mut());
                match &mut resident {
                    Some(resident) => {
                        let made = resident.steps(&mut functions, objective, &mut optimizer, &mut rng, left).unwrap();
                        assert!(made.failure.is_none(), "{}: {:?}", self.name, made.failure);
                        outcomes.extend(made.outcomes);
                    }
                    None => {
                        let action = action.as_mut();
                        let made =
                            stepper.step(action, &mut functions, objective, &mut optimizer, &mut rng, self.batch);
                        outcomes.push(made.unwrap().0);
                    }
                }
            }
            After { before, parameters: functions.parameters().trained.to_host().unwrap(), outcomes }
        })
    }

    /// One step has the processor's gradient, loss and eigenvalues; ten go where its steps go; a recorded step has the
    /// bits of one that is not.
    fn agrees(&self, device: Device) {
        for kind in KINDS {
            let name = format!("{} {kind:?}", self.name);
            let descent = Rule::Sgd { momentum: 0.0, weight_decay: 0.0 };
            let [here, there] = [Device::Cpu, device].map(|at| self.steps(at, kind, descent, 1.0, 1, true));
            let (want, got) = (here.moved(), there.moved());
            for (i, (w, g)) in want.iter().zip(&got).enumerate() {
                assert!((w - g).abs() < 2e-4 * largest(&want) + 1e-6, "{name}, gradient {i}: {g} for {w}");
            }
            let (want, got) = (&here.outcomes[0], &there.outcomes[0]);
            assert!((want.loss - got.loss).abs() < 1e-4 * want.loss.abs().max(1e-3), "{name}: {got:?} for {want:?}");
            for (w, g) in want.eigenvalues.iter().zip(&got.eigenvalues) {
                assert!((w - g).abs() < 1e-4 * w.abs().max(1e-2), "{name}: {got:?} for {want:?}");
            }

            let [here, there] = [Device::Cpu, device].map(|at| self.steps(at, kind, Rule::ADAM, 1e-3, 10, true));
            let far = largest(&here.moved());
            for (want, got) in here.parameters.iter().zip(&there.parameters) {
                assert!((want - got).abs() < 2e-2 * far, "{name}: {got} for {want} after ten steps, moved {far}");
            }

            let recorded = self.steps(device, kind, Rule::ADAM, 1e-3, 40, true);
            assert_eq!(recorded.bits(), self.steps(device, kind, Rule::ADAM, 1e-3, 40, false).bits(), "{name}");
        }
    }
}

/// The functions that a kind wants, of this architecture.
fn networks(architecture: &str) -> impl Fn(Kind, usize) -> Functions {
    move |kind, inputs| kind.functions(architecture, inputs, K, &Rng::new(2)).unwrap()
}

#[test]
fn sampled_functions() {
    let (device, _held) = device!();
    let x = random((200, 2));
    for samples in [5, 130] {
        let f = LowRankOperator::new(smooth(samples, &x, 1).remove_axis(ndarray::Axis(2))).unwrap();
        let action = || Box::new(OperatorAction::new(&f, x.view()).unwrap()) as Box<dyn Action + '_>;
        let name = format!("{samples} functions");
        Case { name: &name, action: &action, functions: &networks(NETWORKS), batch: 48 }.agrees(device);
    }
}

#[test]
fn a_stored_matrix() {
    let (device, _held) = device!();
    let x = random((200, 2));
    let kernel = Kernel::parse("poly(2) + laplacian(2)").unwrap();
    let stored = DenseOperator::new(gram::<f64>(&kernel, x.view()));
    let action = || Box::new(OperatorAction::new(&stored, x.view()).unwrap()) as Box<dyn Action + '_>;
    Case { name: "a stored matrix", action: &action, functions: &networks(NETWORKS), batch: 48 }.agrees(device);
}

#[test]
fn kernels_of_matrices() {
    let (device, _held) = device!();
    let x = random((150, 2));
    let f = smooth(40, &x, 3);
    let action = || Box::new(MatrixValued::new(f.view(), x.view()).unwrap()) as Box<dyn Action + '_>;
    // An odd batch, whose halves are of different size.
    let functions = networks("dense(16) sincos dense(3)");
    Case { name: "three outputs", action: &action, functions: &functions, batch: 33 }.agrees(device);
}
