//! Rounds of a recursive feature machine: a fit under a metric, then the metric of the fit's gradients; how many, and which metrics.

use super::alpha::splits;
use super::metric::{Metric, MetricForm};
use super::targets::Encoding;
use super::{
    FeatureRidge, Fit, FittedFeatureRidge, FittedRidge, KernelSearch, Learner, Predict, RecursiveFeatureMachine, Ridge,
    Saved, TriedMetric,
};
use crate::compute::Device;
use crate::data::Target;
use crate::kernel::{Expression, Kernel};
use crate::model::Bundle;
use crate::operator::Combination;
use crate::rng::Rng;
use crate::spectrum::Origin;
use crate::{Error, FitContext, Result, Silent};
use ndarray::{Array2, ArrayView2, Axis};

/// Rounds at most, where their number is chosen.
pub(super) const MOST_ROUNDS: usize = 5;

/// Parts of the rows, of which one is left out.
const FOLDS: usize = 5;

/// Rows up to which every part is left out once; above, one part has hundreds of rows.
const EVERY_FOLD: usize = 2000;

/// Landmarks of the machines that are compared, above [`EVERY_FOLD`] rows.
const LANDMARKS: usize = 1000;

/// Rows whose gradients are taken, at most: their mean is known to about a percent.
const GRADIENTS: usize = 10_000;

/// Ridge regression under a metric: on all points, or on features of landmarks.
pub(super) enum Model {
    Ridge(Box<FittedRidge>),
    Features(Box<FittedFeatureRidge>),
}

impl Model {
    pub fn predict(&self) -> &dyn Predict {
        match self {
            Model::Ridge(model) => &**model,
            Model::Features(model) => &**model,
        }
    }

    pub fn origin_mut(&mut self) -> &mut Origin {
        match self {
            Model::Ridge(model) => &mut model.reference.origin,
            Model::Features(model) => &mut model.functions.origin,
        }
    }

    /// f as a combination of kernels at centres.
    fn combination(&self) -> Result<Combination<'_>> {
        match self {
            Model::Ridge(model) => Ok(Combination {
                kernel: &model.kernel,
                centres: model.reference.points(),
                coefficients: model.coefficients.view(),
            }),
            Model::Features(model) => {
                let functions = &model.functions.functions;
                let (kernel, centres) = functions.features.centres().ok_or_else(|| {
                    Error::input("a linear kernel has the same gradient everywhere: there is no metric to learn")
                })?;
                Ok(Combination { kernel, centres, coefficients: functions.coefficients.view() })
            }
        }
    }

    pub fn pack<'a>(&'a self, bundle: &mut Bundle<'a>) -> Result<()> {
        match self {
            Model::Ridge(model) => {
                bundle.set("model", FittedRidge::KIND);
                model.pack(bundle)
            }
            Model::Features(model) => {
                bundle.set("model", FittedFeatureRidge::KIND);
                model.pack(bundle)
            }
        }
    }

    pub fn unpack(bundle: &Bundle, device: Device) -> Result<Model> {
        match bundle.text("model")? {
            FittedRidge::KIND => FittedRidge::unpack(bundle, device).map(|model| Model::Ridge(model.into())),
            FittedFeatureRidge::KIND => {
                FittedFeatureRidge::unpack(bundle, device).map(|model| Model::Features(model.into()))
            }
            other => Err(Error::input(format!("holds a machine made of '{other}', which is not known here"))),
        }
    }
}

/// A machine at work on points.
#[derive(Clone, Copy)]
pub(super) struct Work<'a> {
    pub machine: &'a RecursiveFeatureMachine,
    /// `[n, d]`
    pub x: ArrayView2<'a, f64>,
    pub y: &'a Target,
    pub context: &'a FitContext<'a>,
}

/// A fit under a metric.
pub(super) struct Round {
    pub metric: Metric,
    pub model: Model,
    /// The lengthscale over the median distance, where it is searched.
    factor: f64,
}

impl Round {
    /// Predictions `[m, ·]` at points `[m, d]`.
    fn scores(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        self.model.predict().scores(self.metric.map(x).view())
    }
}

impl Work<'_> {
    /// The fit under M = I: ridge regression.
    pub fn first(&self) -> Result<Round> {
        self.fit(Metric::identity(self.x.ncols()), None)
    }

    /// The fit under the metric of the gradients of `round`.
    pub fn next(&self, round: &Round, form: MetricForm) -> Result<Round> {
        let g = self.gradients(round)?;
        self.fit(Metric::of_gradients(g.view(), form, self.context.device)?, Some(round.factor))
    }

    /// The fit after so many rounds.
    pub fn after(&self, rounds: usize, form: MetricForm) -> Result<Round> {
        (0..rounds).try_fold(self.first()?, |round, _| self.next(&round, form))
    }

    /// `E[∇f ∇fᵀ]` `[d, d]`
    pub fn gradients(&self, round: &Round) -> Result<Array2<f64>> {
        let (n, d) = self.x.dim();
        let f = round.model.combination()?;
        Combination::require(&self.context.budget, f.centres.nrows(), d)?;
        self.context.progress.step("gradients", 0, 1, "");
        let z = match n <= GRADIENTS {
            true => round.metric.map(self.x),
            false => {
                let rows = Rng::new(self.context.seed).fork(0x6167_6f70).sample(n, GRADIENTS);
                round.metric.map(self.x.select(Axis(0), &rows).view())
            }
        };
        Ok(round.metric.pull_back(f.gradient_outer_product(z.view())?.view()))
    }

    fn fit(&self, metric: Metric, factor: Option<f64>) -> Result<Round> {
        let RecursiveFeatureMachine { alpha, rank, class_weights, .. } = self.machine;
        let z = metric.map(self.x);
        let (kernel, factor) = self.kernel(z.view(), factor)?;
        let (alpha, class_weights) = (*alpha, class_weights.clone());
        let model = match Learner::choose(&kernel, z.dim(), *rank, self.context).0 {
            Learner::Ridge(solver) => {
                let ridge = Ridge { alpha, solver, centred: true, class_weights, ..Ridge::new(kernel) };
                Model::Ridge(ridge.learn(z.view(), self.y, self.context)?.into())
            }
            Learner::Features(map) => {
                let fitted = FeatureRidge { map, alpha, class_weights }.learn(z.view(), self.y, self.context)?;
                Model::Features(fitted.into())
            }
        };
        Ok(Round { metric, model, factor })
    }

    /// The kernel for points `z` `[n, d]`. A lengthscale `auto` is found by the left-out error: at powers of two times the median distance,
    /// and then, from round to round, about the last one.
    fn kernel(&self, z: ArrayView2<f64>, last: Option<f64>) -> Result<(Kernel, f64)> {
        let (expression, seed) = (&self.machine.kernel, self.context.seed);
        if !expression.is_automatic() {
            return Ok((expression.resolve(z, seed)?, 1.0));
        }
        let octaves = |about: f64, octaves: &[f64]| -> Vec<f64> { octaves.iter().map(|o| about * o.exp2()).collect() };
        match last {
            Some(last) => self.best_of(z, &octaves(last, &[-0.5, 0.0, 0.5])),
            None => {
                let (_, near) = self.best_of(z, &octaves(1.0, &[-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0]))?;
                self.best_of(z, &octaves(near, &[-0.5, 0.0, 0.5]))
            }
        }
    }

    /// The kernel whose lengthscale is the best of these multiples of the median distance.
    fn best_of(&self, z: ArrayView2<f64>, factors: &[f64]) -> Result<(Kernel, f64)> {
        let RecursiveFeatureMachine { kernel, alpha, class_weights, .. } = self.machine;
        let kernels: Vec<Kernel> =
            factors.iter().map(|f| kernel.resolve_scaled(z, self.context.seed, *f)).collect::<Result<_>>()?;
        let candidates: Vec<Expression> =
            kernels.iter().map(|kernel| Expression::parse(&kernel.to_string())).collect::<Result<_>>()?;
        let search =
            KernelSearch { alpha: *alpha, class_weights: class_weights.clone(), ..KernelSearch::new(candidates) };
        let quiet = FitContext { progress: &Silent, interrupt: None, ..*self.context };
        let best = search.best(z, self.y, &quiet)?.kernel;
        let place = kernels.iter().position(|kernel| *kernel == best).unwrap_or(0);
        Ok((best, factors[place]))
    }

    /// The metric's form and the number of rounds with the least error on left-out rows, and a note on an interrupt.
    pub fn choose(&self) -> Result<(MetricForm, usize, Vec<TriedMetric>, Option<String>)> {
        let forms = self.machine.metric.map_or(vec![MetricForm::Diagonal, MetricForm::Full], |form| vec![form]);
        if let (Some(rounds), [form]) = (self.machine.rounds, &forms[..]) {
            return Ok((*form, rounds, vec![], None));
        }
        let n = self.x.nrows();
        let folds = FOLDS.min(n);
        let looked_at = if n <= EVERY_FOLD { folds } else { 1 };
        let (mut sums, mut seen, mut note, mut keeps): (Vec<TriedMetric>, _, _, _) = (vec![], 0, None, None);
        for (fold, (rest, out)) in splits(n, folds, self.context.seed).take(looked_at).enumerate() {
            let stage = self.context.stage("fold", fold + 1, looked_at);
            let context = FitContext { progress: &stage, ..*self.context };
            let (tried, whole) = Work { context: &context, ..*self }.errors(&forms, &rest, &out)?;
            keeps.get_or_insert_with(|| self.context.keeps_best());
            // A part that was cut short counts only where there is no other.
            if sums.is_empty() {
                (sums, seen) = (tried, out.len());
            } else if whole {
                sums.iter_mut().zip(tried).for_each(|(sum, tried)| sum.error += tried.error);
                seen += out.len();
            }
            if !whole {
                note = Some(format!(
                    "the choice of the metric was interrupted in part {} of {looked_at} of the rows",
                    fold + 1
                ));
                break;
            }
        }
        if let Some(keeps) = keeps {
            keeps.cut_short();
        }
        sums.iter_mut().for_each(|tried| tried.error /= seen as f64);
        let allowed = sums.iter().filter(|tried| self.machine.rounds.is_none_or(|rounds| tried.rounds == rounds));
        let best = allowed.min_by(|a, b| a.error.total_cmp(&b.error)).or(sums.first());
        let best = best.ok_or_else(|| Error::Numerical("no metric gives a finite error".into()))?;
        Ok((best.form, best.rounds, sums.clone(), note))
    }

    /// The summed squared error on the rows `out` of machines fitted to the rows `rest`, of every form after every number of rounds; fewer
    /// after an interrupt. Also whether it is all of them.
    fn errors(&self, forms: &[MetricForm], rest: &[usize], out: &[usize]) -> Result<(Vec<TriedMetric>, bool)> {
        let (x, y) = (self.x.select(Axis(0), rest), self.y.select(rest));
        let (new, truth) = (self.x.select(Axis(0), out), self.y.select(out));
        let truth = Encoding::encode(&truth, out.len(), -1.0, 1.0)?.1;
        let weights = self.machine.class_weights.of_rows(self.y)?;
        let weights: Vec<f64> = out.iter().map(|&i| weights.as_ref().map_or(1.0, |w| w[i])).collect();
        let error = |round: &Round| -> Result<f64> {
            let off = round.scores(new.view())? - &truth;
            Ok(off.rows().into_iter().zip(&weights).map(|(e, w)| w * e.dot(&e)).sum())
        };
        let rank = self.machine.rank.or((x.nrows() > EVERY_FOLD).then_some(LANDMARKS));
        let machine = RecursiveFeatureMachine { rank, ..self.machine.clone() };
        let most = self.machine.rounds.unwrap_or(MOST_ROUNDS);
        let total = 1 + forms.len() * most;
        let staged = |number: usize, fit: &dyn Fn(&Work) -> Result<Round>| {
            let stage = self.context.stage("fit", number, total);
            let context = FitContext { progress: &stage, interrupt: None, ..*self.context };
            fit(&Work { machine: &machine, x: x.view(), y: &y, context: &context })
        };
        // Every form starts from the same fit.
        let plain = staged(1, &|work| work.first())?;
        let mut tried = vec![TriedMetric { form: forms[0], rounds: 0, error: error(&plain)? }];
        let _keeps = self.context.keeps_best();
        for (f, &form) in forms.iter().enumerate() {
            let mut last: Option<Round> = None;
            for rounds in 1..=most {
                if self.context.interrupted() {
                    return Ok((tried, false));
                }
                let round = staged(1 + f * most + rounds, &|work| work.next(last.as_ref().unwrap_or(&plain), form))?;
                tried.push(TriedMetric { form, rounds, error: error(&round)? });
                last = Some(round);
            }
        }
        Ok((tried, true))
    }
}
