//! Settings and limits for fitting, passed down explicitly.

use crate::compute::Device;
use crate::operator::{Budget, Precision};
use std::sync::atomic::{AtomicBool, Ordering};

/// Settings and limits for fitting: where to compute, how precisely, within which memory. Spectra, estimators and training all
/// take one.
///
/// ```
/// use mercer::{FitContext, operator::Precision};
/// let context = FitContext { precision: Precision::F32, seed: 7, ..FitContext::default() };
/// assert_eq!(context.device, mercer::Device::Cpu);
/// ```
#[derive(Clone, Copy)]
pub struct FitContext<'a> {
    /// Where operators, factorisations and networks are computed.
    pub device: Device,
    /// Precision of kernel values.
    pub precision: Precision,
    /// Host memory that may be used.
    pub budget: Budget,
    /// Seed of everything random.
    pub seed: u64,
    /// The name of the data, which what is fitted keeps; may be empty.
    pub data: &'a str,
    /// Receives progress updates.
    pub progress: &'a dyn Progress,
    /// Set from outside (by Ctrl-C, for example) to end training after the current step with the best result so far.
    pub interrupt: Option<&'a AtomicBool>,
}

/// The CPU, f64, 70 % of the free memory, seed 0, no progress updates.
impl Default for FitContext<'_> {
    fn default() -> Self {
        FitContext {
            device: Device::Cpu,
            precision: Precision::F64,
            budget: Budget::of_free_memory(),
            seed: 0,
            data: "",
            progress: &Silent,
            interrupt: None,
        }
    }
}

impl FitContext<'_> {
    /// Relative rounding error of kernel values in this precision on this device.
    pub fn roundoff(&self) -> f64 {
        self.precision.roundoff(self.device)
    }

    /// Progress of one round of a larger loop: the `number`-th (from 1) of `total`, such as α 3 of 9. What the round itself
    /// reports is then about this part of the loop. Example: [`Stage`].
    pub fn stage(&self, what: &str, number: usize, total: usize) -> Stage<'_> {
        Stage { outer: self.progress, name: format!("{what} {number} of {total}") }
    }

    /// Whether the user asked to end early.
    pub fn interrupted(&self) -> bool {
        self.interrupt.is_some_and(|flag| flag.load(Ordering::Relaxed))
    }
}

/// Receives progress updates.
///
/// ```
/// struct Lines;
/// impl mercer::Progress for Lines {
///     fn step(&self, what: &str, done: usize, total: usize, note: &str) {
///         println!("{what}: {done} of {total}, {note}");
///     }
/// }
/// let context = mercer::FitContext { progress: &Lines, ..Default::default() };
/// ```
pub trait Progress: Sync {
    /// `done` of `total` steps of `what`; `note` describes the current state in a few words.
    fn step(&self, what: &str, done: usize, total: usize, note: &str);
}

/// Progress of one round of a loop, reported as part of it.
///
/// ```
/// use mercer::{FitContext, Progress};
/// # struct Last(std::sync::Mutex<String>);
/// # impl Progress for Last {
/// #     fn step(&self, what: &str, _: usize, _: usize, _: &str) { *self.0.lock().unwrap() = what.into(); }
/// # }
/// # let shown = Last(Default::default());
/// # let context = FitContext { progress: &shown, ..Default::default() };
/// for number in 1..=9 {
///     let stage = context.stage("α", number, 9);
///     let context = FitContext { progress: &stage, ..context };
///     context.progress.step("conjugate gradients", 12, 100, "residual 1e-3"); // a solver
/// }
/// # assert_eq!(*shown.0.lock().unwrap(), "α 9 of 9, conjugate gradients");
/// ```
pub struct Stage<'a> {
    outer: &'a dyn Progress,
    name: String,
}

impl Progress for Stage<'_> {
    fn step(&self, what: &str, done: usize, total: usize, note: &str) {
        self.outer.step(&format!("{}, {what}", self.name), done, total, note);
    }
}

/// Ignores progress updates. Example: [`crate::apply::conjugate_gradients`].
pub struct Silent;

impl Progress for Silent {
    fn step(&self, _: &str, _: usize, _: usize, _: &str) {}
}
