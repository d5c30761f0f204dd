//! The first GPU, for tests that are ignored unless they are asked for, and training steps on it.
#![allow(dead_code, reason = "each suite uses a part")]

use mercer::compute::{Device, Math, Rule};
use mercer::net::{Optimizer, Schedule};
use mercer::rng::Rng;
use mercer::spectrum::neural::{
    FunctionOperator, Functions, Kind, Nested, Nesting, NeuralEf, Omm, Outcome, Ritz, Spin, Stepper,
};
use std::sync::{Mutex, MutexGuard};

/// The number of functions that are trained.
pub const K: usize = 3;
pub const NETWORKS: &str = "dense(16) sincos dense(16) sincos dense(1)";
/// Every objective; from [`PLAIN`] on, those whose steps solve a small dense problem.
pub const KINDS: [Kind; 7] = [
    Kind::NeuralEf(NeuralEf::Published),
    Kind::NeuralEf(NeuralEf::Joint),
    Kind::Nested(Nested { nesting: Some(Nesting::Sequential) }),
    Kind::Nested(Nested { nesting: Some(Nesting::Joint) }),
    Kind::Omm(Omm),
    Kind::Spin(Spin { decay: 0.9 }),
    Kind::Ritz(Ritz),
];
pub const PLAIN: usize = 5;
/// The place of Ritz, the last. It has one output only; on images its gradients on both devices are 1e-3 of the largest apart.
pub const RITZ: usize = KINDS.len() - 1;

/// Whether its steps keep moving averages, which a shared trunk does not allow.
pub fn has_averages(kind: &Kind) -> bool {
    matches!(kind, Kind::Spin(Spin { decay }) if *decay > 0.0)
}

/// The device, for one test at a time: they share its stream and its memory. A device that cannot be opened is a failure.
pub fn cuda() -> (Device, MutexGuard<'static, ()>) {
    static ONE: Mutex<()> = Mutex::new(());
    let guard = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    (Device::Cuda(0).open().unwrap_or_else(|error| panic!("{error}")), guard)
}

/// Runs `work` while the device appears to have `bytes` of memory beyond those in use; after it, also where it panics, all of it.
pub fn with_memory<T>(bytes: u64, work: impl FnOnce() -> T) -> T {
    struct Limit;
    impl Drop for Limit {
        fn drop(&mut self) {
            mercer::compute::cuda::gpu(0).unwrap().limit_memory(None);
        }
    }
    /// More than the tests use, and less than a device has.
    const MUCH: u64 = 4 << 30;
    let gpu = mercer::compute::cuda::gpu(0).unwrap();
    let _limit = Limit;
    gpu.limit_memory(Some(MUCH));
    let used = MUCH - gpu.memory().0;
    gpu.limit_memory(Some(used + bytes));
    work()
}

/// A problem: an operator, functions for it, and how they are trained.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    pub operator: &'a dyn FunctionOperator,
    pub functions: &'a dyn Fn(Kind, usize, Device) -> Functions,
    pub kind: Kind,
    pub rule: Rule,
    pub rate: f64,
    pub batch: usize,
}

impl<'a> Case<'a> {
    /// Plain gradient descent at rate one: a step is the gradient.
    pub fn descent(
        operator: &'a dyn FunctionOperator,
        functions: &'a dyn Fn(Kind, usize, Device) -> Functions,
        kind: Kind,
        batch: usize,
    ) -> Case<'a> {
        let rule = Rule::Sgd { momentum: 0.0, weight_decay: 0.0 };
        Case { operator, functions, kind, rule, rate: 1.0, batch }
    }

    /// The same by Adam.
    pub fn adam(self) -> Case<'a> {
        Case { rule: Rule::ADAM, rate: 1e-3, ..self }
    }

    /// Ready for the first step on `device`.
    pub fn stepper(&self, device: Device, math: Math) -> Stepper<'a> {
        let functions = (self.functions)(self.kind, self.operator.inputs(), device);
        let objective = self.kind.objective(&functions, K).unwrap();
        let (parameters, schedule) = (functions.network().parameters(), Schedule::constant(self.rate));
        let optimizer = Optimizer::new(device, self.rule, schedule, None, parameters).unwrap();
        Stepper::new(self.operator, functions, objective, optimizer, Rng::new(7), self.batch, math).unwrap()
    }

    /// What `steps` steps on `device` leave behind, as one recorded graph or call by call.
    pub fn steps(&self, device: Device, steps: usize, math: Math, graph: bool) -> After {
        let stepper = self.stepper(device, math);
        After::of(if graph { stepper } else { stepper.without_graph().unwrap() }, steps)
    }

    /// The same number of steps on the CPU and on `device`, in f32.
    pub fn both(&self, device: Device, steps: usize) -> [After; 2] {
        [Device::Cpu, device].map(|at| self.steps(at, steps, Math::F32, true))
    }

    /// Ten steps on `device` end within a fiftieth of the farthest that a parameter moved on the CPU.
    pub fn first_steps_agree(&self, device: Device, what: &str) {
        let [here, there] = self.both(device, 10);
        let far = largest(&here.moved());
        for (want, got) in here.parameters.iter().zip(&there.parameters) {
            assert!((want - got).abs() < 2e-2 * far, "{what}: {got} for {want} after ten steps, moved {far}");
        }
    }
}

/// What steps leave behind: parameters and outcomes.
pub struct After {
    pub before: Vec<f32>,
    pub parameters: Vec<f32>,
    pub outcomes: Vec<Outcome>,
}

impl After {
    pub fn of(mut stepper: Stepper<'_>, steps: usize) -> After {
        let before = stepper.functions().parameters().trained.to_host().unwrap();
        let mut outcomes = vec![];
        while outcomes.len() < steps {
            let made = stepper.steps(steps - outcomes.len()).unwrap();
            assert!(made.failure.is_none(), "{:?}", made.failure);
            outcomes.extend(made.outcomes);
        }
        After { before, parameters: stepper.functions().parameters().trained.to_host().unwrap(), outcomes }
    }

    /// How far the parameters went; after a step of plain gradient descent at rate one, the gradient.
    pub fn moved(&self) -> Vec<f32> {
        self.before.iter().zip(&self.parameters).map(|(before, after)| before - after).collect()
    }

    /// These steps moved within `tolerance` of `there`, relative to the farthest; losses (those below `least` count as
    /// `least`) and eigenvalues agree to 1e-4.
    pub fn agrees(&self, there: &After, tolerance: f32, least: f64, what: &str) {
        let (want, got) = (self.moved(), there.moved());
        let far = largest(&want);
        for (i, (want, got)) in want.iter().zip(&got).enumerate() {
            assert!((want - got).abs() < tolerance * far + 1e-6, "{what}, {i}: {got} for {want} of at most {far}");
        }
        for (want, got) in self.outcomes.iter().zip(&there.outcomes) {
            assert!((want.loss - got.loss).abs() < 1e-4 * want.loss.abs().max(least), "{what}: {got:?} for {want:?}");
            for (w, g) in want.eigenvalues.iter().zip(&got.eigenvalues) {
                assert!((w - g).abs() < 1e-4 * w.abs().max(1e-2), "{what}: {got:?} for {want:?}");
            }
        }
    }

    pub fn bits(&self) -> (Vec<u32>, Vec<u64>) {
        let numbers = self.outcomes.iter().flat_map(|o| o.eigenvalues.iter().chain([&o.loss]));
        (self.parameters.iter().map(|v| v.to_bits()).collect(), numbers.map(|v| v.to_bits()).collect())
    }
}

fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |a, b| a.max(b.abs()))
}

/// How far values in double precision may be from those of the CPU: tanh, sigmoid and softplus are sums of error functions on a GPU, right to 2e-10,
/// and series on the CPU where their inputs are narrow.
pub fn double_bound(expression: &str) -> f64 {
    if ["tanh", "sigmoid", "softplus"].iter().any(|name| expression.contains(name)) { 2e-10 } else { 1e-12 }
}
