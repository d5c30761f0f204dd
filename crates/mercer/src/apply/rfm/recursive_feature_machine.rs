//! Recursive feature machines: kernel regression under a metric learnt from its own gradients.

use crate::apply::class_weights::ClassWeights;
use crate::apply::reference::check_new;
use crate::apply::regression::outcome::{Metrics, Outcome};
use crate::apply::regression::{Estimator, Examples, KERNEL, Objective, RANK, Regression, RegressionTask};
use crate::apply::rfm::metric::{Importances, Metric, MetricForm};
use crate::apply::rfm::metric_rounds::{Model, Work};
use crate::apply::targets::Encoding;
use crate::apply::traits::{not_kept, saved};
use crate::apply::{Alpha, Fit, Predict, Tried, check_points};
use crate::data::Target;
use crate::kernel::Expression;
use crate::options::{Caps, Entry, Kind, Opt};
use crate::rng::Rng;
use crate::spectrum::Origin;
use crate::{FitContext, Result, fail_if};
use ndarray::{Array2, ArrayView2, Axis};
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// Rows below which two halves say nothing.
const FEWEST: usize = 20;

/// A recursive feature machine: kernel ridge regression and classification under a metric M that is learnt from the gradients of its own
/// predictions (Radhakrishnan, Beaglehole, Pandit and Belkin, 2024).
///
/// A round fits `f(x) = Σ_i c_i κ(M^{1/2}x_i, M^{1/2}x)` by ridge regression, and replaces M by the mean of `∇f(x_i) ∇f(x_i)ᵀ` over the points,
/// scaled to the trace of I; the first M is I. Directions along which f changes count more in the next round, and those along which it
/// does not count less. Gradients are exact. With many points, ridge regression is on features of landmarks
/// ([`Learner`](crate::apply::Learner)).
///
/// The number of rounds, and whether M is full or diagonal, are those with the least error on rows that the machine has not seen: each of
/// five parts of the rows in turn, or, above 2000 rows, one of them. No rounds at all, which is ridge regression, are among what is
/// compared, and are chosen unless another number gains more than the standard error of the gain. Lengthscales `median` and `auto` are found anew under
/// every metric, and so is α.
///
/// ```
/// use mercer::apply::{Fit, MetricForm, Predict, RecursiveFeatureMachine};
/// use mercer::{FitContext, data::Target, kernel::Expression};
/// // A function of one direction in ten columns.
/// let mut rng = mercer::rng::Rng::new(0);
/// let x = ndarray::Array2::from_shape_simple_fn((150, 10), || rng.normal());
/// let along = |x: ndarray::ArrayView1<f64>| 0.6 * x[0] + 0.8 * x[1];
/// let y = Target::Values(x.rows().into_iter().map(|x| (2.0 * along(x)).sin()).collect());
/// let kernel = Expression::parse("rbf(lengthscale=median)")?;
/// let machine = RecursiveFeatureMachine { metric: Some(MetricForm::Full), rounds: Some(4), ..RecursiveFeatureMachine::new(kernel) };
/// let fitted = machine.fit(x.view(), &y, &FitContext::default())?;
/// let direction = &fitted.importances().unwrap().directions[0];
/// assert!(direction.share > 0.9 && along(ndarray::ArrayView1::from(&direction.vector)).abs() > 0.98);
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct RecursiveFeatureMachine {
    /// κ, on points as the metric sees them.
    pub kernel: Expression,
    /// α
    pub alpha: Alpha,
    /// The form of M; without it, the one with the least left-out error.
    pub metric: Option<MetricForm>,
    /// How often M is replaced; without it as often, up to five times, as leaves the least left-out error.
    pub rounds: Option<usize>,
    /// Landmarks; without it by the number of points.
    pub rank: Option<usize>,
    /// How much the rows of each class count.
    pub class_weights: ClassWeights,
}

/// A metric that was tried. Example: [`RecursiveFeatureMachine`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TriedMetric {
    /// Its form.
    pub form: MetricForm,
    /// How often it was replaced.
    pub rounds: usize,
    /// The mean squared error on left-out rows.
    pub error: f64,
}

impl RecursiveFeatureMachine {
    /// Under `kernel`, with α by leave-one-out, equal classes, and the metric by left-out rows.
    pub fn new(kernel: Expression) -> Self {
        let (alpha, class_weights) = (Alpha::LeaveOneOut, ClassWeights::Equal);
        RecursiveFeatureMachine { kernel, alpha, metric: None, rounds: None, rank: None, class_weights }
    }
}

static METRIC: Opt = Opt::new(
    "metric",
    "METRIC",
    Kind::Word(|| FORMS.map(|(word, _)| word).to_vec()),
    "the matrix of the metric, a weight for each column or each direction [default: the one with the least left-out error]",
);
static ROUNDS: Opt = Opt::new(
    "rounds",
    "N",
    Kind::Between(0, 100),
    "how often the metric is learnt anew [default: up to 5 times, by the left-out error]",
);

const FORMS: [(&str, MetricForm); 2] = [("diagonal", MetricForm::Diagonal), ("full", MetricForm::Full)];

impl RecursiveFeatureMachine {
    pub(crate) fn entry() -> Entry<RegressionTask> {
        Entry {
            can: Caps { numbers: true, classes: true, weights: true, precision: true, ..Caps::default() },
            ..Entry::<RegressionTask>::new(
                "rfm",
                "Recursive feature machine: ridge regression under a metric that is learnt from the gradients of its predictions",
                [&Objective::OPTIONS[..], &[&RANK, &METRIC, &ROUNDS]].concat(),
                |o, known| {
                    let machine = Machine {
                        objective: Objective::squared(o)?,
                        rank: o.take(&RANK)?,
                        metric: o.take_word(&METRIC, &FORMS)?,
                        rounds: o.take(&ROUNDS)?,
                    };
                    Regression::of_one(known, KERNEL, machine)
                },
            )
        }
    }
}

/// A machine for a kernel that is still to come.
struct Machine {
    objective: Objective,
    rank: Option<usize>,
    metric: Option<MetricForm>,
    rounds: Option<usize>,
}

impl Estimator for Machine {
    fn learn(&self, kernels: &[Expression], examples: &Examples, context: &FitContext) -> Result<Outcome> {
        let Objective { alpha, class_weights, .. } = self.objective.clone();
        let (kernel, metric, rounds, rank) = (kernels[0].clone(), self.metric, self.rounds, self.rank);
        let machine = RecursiveFeatureMachine { kernel, alpha, metric, rounds, rank, class_weights };
        let fitted = machine.fit(examples.x.to_f64().view(), examples.y, context)?;
        let (rank, alpha, tried) = (fitted.rank(), fitted.alpha(), fitted.tried().to_vec());
        let metrics = Metrics { tried: fitted.metrics.clone(), form: fitted.form(), rounds: fitted.rounds };
        Ok(Outcome { rank, metrics: Some(metrics), ..Outcome::new(fitted, alpha, tried) })
    }
}

/// A recursive feature machine that was fitted. Example: [`RecursiveFeatureMachine`].
pub struct FittedRecursiveFeatureMachine {
    /// How often the metric was replaced.
    pub rounds: usize,
    /// What was tried on the way to it.
    pub metrics: Vec<TriedMetric>,
    form: MetricForm,
    /// `M^{1/2}` as a [`Metric`] has it.
    root: Array2<f64>,
    importances: Importances,
    model: Model,
    /// Warnings of the fit; a file does not keep them.
    notes: Vec<String>,
}

impl Fit for RecursiveFeatureMachine {
    type Target = Target;
    type Fitted = FittedRecursiveFeatureMachine;

    fn learn(&self, x: ArrayView2<f64>, y: &Target, context: &FitContext) -> Result<FittedRecursiveFeatureMachine> {
        let start = Instant::now();
        check_points(x)?;
        self.alpha.check(x.nrows())?;
        Encoding::of(y, x.nrows())?;
        let context = &context.beside_classes(y)?;
        fail_if!(
            self.kernel.has_ard(),
            "a machine learns how much each column counts: use lengthscale=auto or median instead of ard in `{}`",
            self.kernel
        );
        let work = Work { machine: self, x, y, context };
        let (form, rounds, metrics, note) = work.choose()?;
        let mut notes: Vec<String> = note.into_iter().collect();
        let (mut last, mut done) = (work.first()?, 0);
        let keeps = context.keeps_best();
        while done < rounds && !context.interrupted() {
            let stage = context.stage("round", done + 1, rounds);
            let context = FitContext { progress: &stage, ..*context };
            (last, done) = (Work { context: &context, ..work }.next(&last, form)?, done + 1);
        }
        if keeps.cut_short() && done < rounds {
            notes.push(format!("interrupted: the metric is that of {done} of {rounds} rounds"));
        }
        let g = work.gradients(&last)?;
        let halves = match x.nrows() >= FEWEST {
            true => work.halves(done, form, &mut notes)?,
            false => None,
        };
        let importances = Importances::new(g.view(), halves, context.device)?;
        let (Metric { form, root }, mut model) = (last.metric, last.model);
        notes.extend(model.predict().notes().iter().cloned());
        let origin = model.origin_mut();
        (origin.method, origin.seconds) = ("rfm".into(), start.elapsed().as_secs_f64());
        Ok(FittedRecursiveFeatureMachine { rounds: done, metrics, form, root, importances, model, notes })
    }
}

impl Work<'_> {
    /// `E[∇f ∇fᵀ]` `[d, d]` of a machine for each half of the rows; none after an interrupt.
    fn halves(&self, rounds: usize, form: MetricForm, notes: &mut Vec<String>) -> Result<Option<[Array2<f64>; 2]>> {
        let n = self.x.nrows();
        let order = Rng::new(self.context.seed).fork(0x6861_6c66).sample(n, n);
        let half = |number: usize, rows: &[usize]| {
            let stage = self.context.stage("half", number, 2);
            let context = FitContext { progress: &stage, interrupt: None, ..*self.context };
            let (x, y) = (self.x.select(Axis(0), rows), self.y.select(rows));
            let work = Work { machine: self.machine, x: x.view(), y: &y, context: &context };
            work.after(rounds, form).and_then(|round| work.gradients(&round))
        };
        let (a, b) = order.split_at(n / 2);
        let first = half(1, a);
        if self.context.interrupted() {
            notes.push("interrupted: how stable the importances are was not measured".into());
            return Ok(None);
        }
        match (first, half(2, b)) {
            (Ok(a), Ok(b)) => Ok(Some([a, b])),
            (Err(e), _) | (_, Err(e)) => {
                notes.push(format!("how stable the importances are was not measured: {e}"));
                Ok(None)
            }
        }
    }
}

impl FittedRecursiveFeatureMachine {
    /// α, given or found.
    pub fn alpha(&self) -> f64 {
        match &self.model {
            Model::Ridge(model) => model.alpha,
            Model::Features(model) => model.alpha,
        }
    }

    /// What was tried on the way to α, under the last metric.
    pub fn tried(&self) -> &[Tried] {
        match &self.model {
            Model::Ridge(model) => &model.tried,
            Model::Features(model) => &model.tried,
        }
    }

    /// Number of landmarks, where there are some.
    pub fn rank(&self) -> Option<usize> {
        match &self.model {
            Model::Ridge(_) => None,
            Model::Features(model) => Some(model.rank()),
        }
    }

    /// The form of the metric.
    pub fn form(&self) -> MetricForm {
        self.form
    }

    /// M `[d, d]`
    pub fn metric(&self) -> Array2<f64> {
        match self.form {
            MetricForm::Diagonal => Array2::from_diag(&self.root.row(0).mapv(|r| r * r)),
            MetricForm::Full => self.root.dot(&self.root),
        }
    }
}

impl Predict for FittedRecursiveFeatureMachine {
    fn origin(&self) -> &Origin {
        self.model.predict().origin()
    }

    fn evaluate(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        check_new(x, self.root.ncols())?;
        let metric = Metric { form: self.form, root: self.root.clone() };
        self.model.predict().evaluate(metric.map(x).view())
    }

    fn decode(&self, scores: ArrayView2<f64>) -> Target {
        self.model.predict().decode(scores)
    }

    fn probabilities(&self, scores: ArrayView2<f64>) -> Option<Array2<f64>> {
        self.model.predict().probabilities(scores)
    }

    fn importances(&self) -> Option<&Importances> {
        Some(&self.importances)
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }
}

saved! {
    FittedRecursiveFeatureMachine, "rfm":
    model: Model = whole(Model::unpack);
    rounds: usize = value("rounds");
    metrics: Vec<TriedMetric> = value("metrics");
    form: MetricForm = value("form");
    root: Array2<f64> = matrix("root", form.shape(model.predict().origin().d));
    importances: Importances = value("importances");
    notes: Vec<String> = known(not_kept, ());
}
