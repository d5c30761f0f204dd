//! The first GPU, for tests that skip themselves where there is none, and what training steps leave behind.

use mercer::compute::Device;
use mercer::spectrum::neural::{Outcome, Stepper};
use std::sync::{Mutex, MutexGuard};

/// The device, for one test at a time: they share its stream and its memory.
pub fn cuda() -> Option<(Device, MutexGuard<'static, ()>)> {
    static ONE: Mutex<()> = Mutex::new(());
    let guard = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    Device::Cuda(0).open().ok().map(|device| (device, guard))
}

/// The device, held; without one, says so and ends the test.
macro_rules! device {
    () => {
        match crate::cuda::cuda() {
            Some(held) => held,
            None => {
                eprintln!("skipped: no CUDA device");
                return;
            }
        }
    };
}

/// What steps leave behind: parameters and outcomes.
pub struct After {
    pub before: Vec<f32>,
    pub parameters: Vec<f32>,
    pub outcomes: Vec<Outcome>,
}

impl After {
    /// What `steps` steps of `stepper` leave behind.
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

    pub fn bits(&self) -> (Vec<u32>, Vec<u64>) {
        let numbers = self.outcomes.iter().flat_map(|o| o.eigenvalues.iter().chain([&o.loss]));
        (self.parameters.iter().map(|v| v.to_bits()).collect(), numbers.map(|v| v.to_bits()).collect())
    }
}
