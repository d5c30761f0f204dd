//! Settings and limits for fitting, passed down explicitly.

use crate::Group;
use crate::budget::Budget;
use crate::compute::Device;
use crate::precision::Precision;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

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
    /// Asks from outside (by Ctrl-C, for example) to end early with the best result so far.
    pub interrupt: Option<&'a Interrupt>,
    /// The processes that compute together. An interrupt of one ends the work of all at the same step, where it can be ended on several.
    pub group: Group<'a>,
}

/// One process, the CPU, f64, 70 % of the free memory, seed 0, no progress updates.
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
            group: Group::SINGLE,
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

    /// Whether the user asked to end early. Collective: where one rank was asked, all are.
    pub fn interrupted(&self) -> bool {
        let Some(interrupt) = self.interrupt else { return false };
        if self.group.is_single() {
            return interrupt.requested();
        }
        let own = [u8::from(interrupt.requested() || interrupt.agreed.load(Ordering::SeqCst))];
        // Where a rank is lost, what follows says so.
        let any = self.group.all_gather(&own).is_ok_and(|all| all.iter().any(|rank| rank[..] == [1]));
        interrupt.agreed.store(any, Ordering::SeqCst);
        any
    }

    /// Says that, for as long as the returned value lives, there is a result that an interrupt does not lose.
    /// Example: [`Interrupt`].
    pub fn keeps_best(&self) -> KeepsBest<'_> {
        if let Some(interrupt) = self.interrupt {
            interrupt.keepers.fetch_add(1, Ordering::SeqCst);
        }
        KeepsBest { interrupt: self.interrupt, alone: self.group.is_single() }
    }
}

/// A request to end early with the best result so far. An iteration has one; a dense factorisation has none until it ends.
///
/// ```
/// use mercer::{FitContext, Interrupt};
/// let interrupt = Interrupt::new();
/// let context = FitContext { interrupt: Some(&interrupt), ..Default::default() };
/// let keeps = context.keeps_best(); // an iteration that has a first result
/// assert!(interrupt.request());
/// assert!(context.interrupted() && keeps.cut_short() && !context.interrupted());
/// drop(keeps);
/// assert!(!interrupt.request()); // nothing would be kept: the program may as well end
/// ```
#[derive(Debug, Default)]
pub struct Interrupt {
    requested: AtomicBool,
    /// Whether all ranks know of the request.
    agreed: AtomicBool,
    /// How many parts of the work have a result that they would return.
    keepers: AtomicUsize,
}

impl Interrupt {
    /// Not requested.
    pub const fn new() -> Interrupt {
        Interrupt { requested: AtomicBool::new(false), agreed: AtomicBool::new(false), keepers: AtomicUsize::new(0) }
    }

    /// Asks to end early. False where the work has no result yet that it could return.
    pub fn request(&self) -> bool {
        self.requested.store(true, Ordering::SeqCst);
        self.keepers.load(Ordering::SeqCst) > 0
    }

    /// Whether an early end was asked for.
    pub fn requested(&self) -> bool {
        self.requested.load(Ordering::SeqCst)
    }
}

/// Work that has a result which an interrupt does not lose. Example: [`Interrupt`].
#[must_use = "it lasts for as long as the value lives"]
pub struct KeepsBest<'a> {
    interrupt: Option<&'a Interrupt>,
    /// Whether this is the only process.
    alone: bool,
}

impl KeepsBest<'_> {
    /// Whether this work was asked to end early. The request is answered by that: what follows goes on, until it is asked itself. On several ranks,
    /// only a request that [`FitContext::interrupted`] has found counts.
    pub fn cut_short(&self) -> bool {
        let Some(interrupt) = self.interrupt else { return false };
        if self.alone {
            return interrupt.requested.swap(false, Ordering::SeqCst);
        }
        let agreed = interrupt.agreed.swap(false, Ordering::SeqCst);
        if agreed {
            interrupt.requested.store(false, Ordering::SeqCst);
        }
        agreed
    }
}

impl Drop for KeepsBest<'_> {
    fn drop(&mut self) {
        if let Some(interrupt) = self.interrupt {
            interrupt.keepers.fetch_sub(1, Ordering::SeqCst);
        }
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
    /// `done` of `total` steps of `what`, each of about the same length; `note` describes the current state in a few words.
    fn step(&self, what: &str, done: usize, total: usize, note: &str);

    /// The same for an iteration that ends when its residual is small enough, however many steps that takes: `excess` says how
    /// many times it is above that.
    fn iteration(&self, what: &str, done: usize, total: usize, excess: f64, note: &str) {
        let _ = excess;
        self.step(what, done, total, note);
    }

    /// What the user should know while the work goes on.
    fn warning(&self, text: &str) {
        let _ = text;
    }
}

/// What is reported of a step such as a dense factorisation.
pub(crate) const ONE_STEP: &str = "one step, which cannot be divided";

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

    fn iteration(&self, what: &str, done: usize, total: usize, excess: f64, note: &str) {
        self.outer.iteration(&format!("{}, {what}", self.name), done, total, excess, note);
    }

    fn warning(&self, text: &str) {
        self.outer.warning(text);
    }
}

/// Ignores progress updates. Example: [`crate::apply::conjugate_gradients`].
pub struct Silent;

impl Progress for Silent {
    fn step(&self, _: &str, _: usize, _: usize, _: &str) {}
}
