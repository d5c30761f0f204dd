//! Training runs and single batches, for the suites of neural methods.
#![allow(dead_code, reason = "each suite uses a part")]

use mercer::Interrupt;
use mercer::compute::{Control, Device, Math, Rule, Small, Tensor, small};
use mercer::rng::Rng;
use mercer::spectrum::neural::{
    FunctionOperator, Functions, Kind, Objective, Points, Settings, Step, Stop, Trained, train,
};
use mercer::{FitContext, Progress, Result, Silent};
use ndarray::Array2;

/// Trains `k` functions of this architecture by `kind`.
pub fn trained(
    kind: Kind,
    architecture: &str,
    operator: &dyn FunctionOperator,
    k: usize,
    settings: &Settings,
    context: &FitContext,
) -> Result<Trained> {
    let functions = kind.functions(architecture, operator.inputs(), k, context.device, &Rng::new(2))?;
    let objective = kind.objective(&functions, k)?;
    train(operator, functions, objective, k, settings, context)
}

/// The bits of the trained parameters.
pub fn parameters(functions: &Functions) -> Vec<u32> {
    functions.parameters().trained.to_host().unwrap().iter().map(|v| v.to_bits()).collect()
}

/// Every bit of the result: parameters, raw eigenvalues, losses, validations.
pub fn bits(trained: &Trained) -> (Vec<u32>, Vec<u64>) {
    let record = &trained.record;
    let numbers = record.raw_eigenvalues.iter().chain(record.loss.iter().flatten());
    let numbers = numbers.chain(record.validation.iter().flatten());
    (parameters(&trained.functions), numbers.map(|v| v.to_bits()).collect())
}

/// A run of these settings that is interrupted and resumed has the bits of one that is not.
pub fn resumes_with_the_same_bits(
    settings: Settings,
    what: &str,
    run: impl Fn(&Settings, &dyn Progress, Option<&Interrupt>) -> Trained,
) {
    let (folder, steps) = (tempfile::tempdir().unwrap(), settings.steps);
    let whole = run(&settings, &Silent, None);
    let settings = Settings { checkpoint: Some(folder.path().join("checkpoint")), resume: true, ..settings };
    let flag = Interrupt::new();
    let part = run(&settings, &Stopper(&flag), Some(&flag));
    assert_eq!(part.record.stop, Stop::Interrupted);
    assert!((1..steps).contains(&part.record.steps), "{what}: {}", part.record.steps);
    let resumed = run(&settings, &Silent, None);
    assert_eq!(resumed.record.steps, steps);
    assert_eq!(bits(&whole), bits(&resumed), "{what}");
}

/// Interrupts once some steps are done.
pub struct Stopper<'a>(pub &'a Interrupt);

impl Progress for Stopper<'_> {
    fn step(&self, _: &str, done: usize, _: usize, _: &str) {
        if done >= 1 {
            self.0.request();
        }
    }
}

/// What an operator makes of one batch: the points, ψ and Kψ there, C, R, and R without its bias.
pub struct Batch {
    pub x: Tensor,
    pub psi: Tensor,
    pub image: Tensor,
    pub covariance: Array2<f64>,
    pub r: Array2<f64>,
    pub unbiased: Array2<f64>,
}

impl Batch {
    /// The batch of `size` points that `operator` draws with `rng`.
    pub fn draw(operator: &dyn FunctionOperator, functions: &mut Functions, rng: &mut Rng, size: usize) -> Batch {
        let k = functions.count();
        let mut batches = operator.batches(functions, size, Math::F32).unwrap();
        let mut control = Control::new(Device::Cpu, 1, k).unwrap();
        control.start(Rule::ADAM, 0, std::iter::repeat(0.0));
        batches.draw(rng);
        batches.bring().unwrap();
        let empty = || Tensor::zeros(Device::Cpu, &[0]).unwrap();
        let (mut points, mut psi, mut image) = (Points::empty(functions).unwrap(), empty(), empty());
        batches.begin(&control, &mut points).unwrap();
        functions.forward(&points.x, &mut psi).unwrap();
        batches.apply(&control, &points, functions, &psi, &mut image).unwrap();
        let form = |a: &Tensor, b: &Tensor| {
            let mut form = Small::zeros(Device::Cpu, [k, k]).unwrap();
            small::form(a, b, 0..psi.len() / k, &mut form).unwrap();
            form
        };
        let (c, r, mut room) = (form(&psi, &psi), form(&psi, &image), Small::zeros(Device::Cpu, [k, k]).unwrap());
        let unbiased = batches.unbiased(&psi, &c, &r, &mut room).unwrap().to_host().unwrap();
        Batch { x: points.x, psi, image, covariance: c.to_host().unwrap(), r: r.to_host().unwrap(), unbiased }
    }

    /// ψ `[k, B]` of functions with one output, in double precision.
    pub fn values(&self) -> Array2<f64> {
        let values = self.psi.to_host().unwrap().into_iter().map(f64::from).collect();
        Array2::from_shape_vec((self.psi.shape()[0], self.psi.shape()[1]), values).unwrap()
    }

    /// The objective's loss and gradient `[P]` here.
    pub fn gradient(&self, objective: &mut dyn Objective, functions: &mut Functions) -> (f64, Vec<f32>) {
        let [covariance, r] = [&self.covariance, &self.r].map(|form| Small::from_host(Device::Cpu, form).unwrap());
        let mut control = Control::new(Device::Cpu, 1, objective.eigenvalues(functions.count())).unwrap();
        let mut gradient = Tensor::zeros(Device::Cpu, &[0]).unwrap();
        let values = (&self.x, &self.psi, &self.image);
        let mut step = Step::alone(values, (&covariance, &r), &mut control, functions, &mut gradient);
        objective.step(&mut step).unwrap();
        let report = control.report(1).unwrap();
        assert_eq!(report.failure, None);
        (report.record[0], gradient.to_host().unwrap())
    }
}

/// What `see` makes of the functions at the parameters `θ + h·d`; θ is put back.
pub fn moved<T>(functions: &mut Functions, d: &[f32], h: f32, see: impl FnOnce(&mut Functions) -> T) -> T {
    let here = functions.parameters().trained.to_host().unwrap();
    let there: Vec<f32> = here.iter().zip(d).map(|(t, d)| t + h * d).collect();
    functions.parameters_mut().trained.copy_from_host(&there).unwrap();
    let seen = see(functions);
    functions.parameters_mut().trained.copy_from_host(&here).unwrap();
    seen
}
