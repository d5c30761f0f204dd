//! Rounds of a recursive feature machine: a fit under a metric, then the metric of the fit's gradients; how many, and which metrics.

use crate::apply::alpha::splits;
use crate::apply::rfm::metric::{Metric, MetricForm};
use crate::apply::targets::Encoding;
use crate::apply::{
    FeatureRidge, Fit, FittedFeatureRidge, FittedRidge, FoundKernel, KernelSearch, Learner, Predict,
    RecursiveFeatureMachine, Ridge, Saved, TriedMetric,
};
use crate::bundle::Bundle;
use crate::compute::Device;
use crate::data::Target;
use crate::kernel::{Expression, Kernel};
use crate::operator::Combination;
use crate::rng::Rng;
use crate::spectrum::Origin;
use crate::{Error, FitContext, Result, Silent};
use ndarray::{Array2, ArrayView2, Axis};

/// Rounds at most, where their number is chosen.
pub(crate) const MOST_ROUNDS: usize = 5;

/// Parts of the rows, of which one is left out.
const FOLDS: usize = 5;

/// Left-out rows that are enough to compare metrics on: so many parts are left out in turn, and no more.
const LEFT_OUT: usize = 600;

/// Rows up to which the machines that are compared see all points; above, [`LANDMARKS`] stand for them.
const ALL_POINTS: usize = 2000;

/// Landmarks of the machines that are compared, above [`ALL_POINTS`] rows.
const LANDMARKS: usize = 1000;

/// Standard errors that the gain over no rounds must exceed: the best of ten metrics gains one by chance.
const CERTAIN: f64 = 2.0;

/// Rows whose gradients are taken, at most: their mean is known to about a percent.
const GRADIENTS: usize = 10_000;

/// Ridge regression under a metric: on all points, or on features of landmarks.
pub(crate) enum Model {
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
pub(crate) struct Work<'a> {
    pub machine: &'a RecursiveFeatureMachine,
    /// `[n, d]`
    pub x: ArrayView2<'a, f64>,
    pub y: &'a Target,
    pub context: &'a FitContext<'a>,
}

/// A fit under a metric.
pub(crate) struct Round {
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

    /// The kernel for points `z` `[n, d]`, and its lengthscale over the median distance. A lengthscale `auto` is found by the left-out error: first as
    /// [`KernelSearch`] finds it for the plain kernel, and then, from round to round, about the last one.
    fn kernel(&self, z: ArrayView2<f64>, last: Option<f64>) -> Result<(Kernel, f64)> {
        let (expression, seed) = (&self.machine.kernel, self.context.seed);
        if !expression.is_automatic() {
            return Ok((expression.resolve(z, seed)?, 1.0));
        }
        let Some(last) = last else {
            let found = self.search(z, vec![expression.clone()])?;
            return Ok((found.kernel, found.factor));
        };
        self.best_of(z, &[-0.5, 0.0, 0.5].map(|octave: f64| last * octave.exp2()))
    }

    /// The best of some kernels for points `z` `[n, d]`.
    fn search(&self, z: ArrayView2<f64>, candidates: Vec<Expression>) -> Result<FoundKernel> {
        let RecursiveFeatureMachine { alpha, class_weights, .. } = self.machine;
        let search =
            KernelSearch { alpha: *alpha, class_weights: class_weights.clone(), ..KernelSearch::new(candidates) };
        let quiet = FitContext { progress: &Silent, interrupt: None, ..*self.context };
        search.best(z, self.y, &quiet)
    }

    /// The kernel whose lengthscale is the best of these multiples of the median distance.
    fn best_of(&self, z: ArrayView2<f64>, factors: &[f64]) -> Result<(Kernel, f64)> {
        let resolve = |factor: &f64| self.machine.kernel.resolve_scaled(z, self.context.seed, *factor);
        let kernels: Vec<Kernel> = factors.iter().map(resolve).collect::<Result<_>>()?;
        let candidates: Vec<Expression> =
            kernels.iter().map(|kernel| Expression::parse(&kernel.to_string())).collect::<Result<_>>()?;
        let best = self.search(z, candidates)?.kernel;
        let place = kernels.iter().position(|kernel| *kernel == best).unwrap_or(0);
        Ok((best, factors[place]))
    }

    /// The metric's form and the number of rounds with the least error on left-out rows, and a note on an interrupt. No rounds, where they may be
    /// chosen, unless another number gains more over them than [`CERTAIN`] standard errors of the gain: chance must not decide.
    pub fn choose(&self) -> Result<(MetricForm, usize, Vec<TriedMetric>, Option<String>)> {
        let forms = self.machine.metric.map_or(vec![MetricForm::Diagonal, MetricForm::Full], |form| vec![form]);
        if let (Some(rounds), [form]) = (self.machine.rounds, &forms[..]) {
            return Ok((*form, rounds, vec![], None));
        }
        let n = self.x.nrows();
        let folds = FOLDS.min(n);
        let looked_at = LEFT_OUT.div_ceil((n / folds).max(1)).min(folds);
        let (mut all, mut note, mut keeps): (Vec<LeftOut>, _, _) = (vec![], None, None);
        let mut lengths = vec![self.machine.rounds.unwrap_or(MOST_ROUNDS); forms.len()];
        for (fold, (rest, out)) in splits(n, folds, self.context.seed).take(looked_at).enumerate() {
            let stage = self.context.stage("fold", fold + 1, looked_at);
            let context = FitContext { progress: &stage, ..*self.context };
            let (tried, whole) =
                Work { context: &context, ..*self }.errors(&forms, &lengths, fold == 0, &rest, &out)?;
            keeps.get_or_insert_with(|| self.context.keeps_best());
            // A part that was cut short counts only where there is no other.
            if all.is_empty() {
                // The other parts look at the rounds that the first one did.
                let rounds_of = |form: &MetricForm| tried.iter().filter(|t| t.form == *form).map(|t| t.rounds).max();
                lengths = forms.iter().map(|form| rounds_of(form).unwrap_or(0)).collect();
                all = tried;
            } else if whole {
                all.iter_mut().zip(tried).for_each(|(all, tried)| all.squares.extend(tried.squares));
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
        let best = best_metric(&all, self.machine.rounds)
            .ok_or_else(|| Error::Numerical("no metric gives a finite error".into()))?;
        Ok((best.form, best.rounds, all.iter().map(LeftOut::tried).collect(), note))
    }

    /// The squared errors on the rows `out` of machines fitted to the rows `rest`, of every form after every number of rounds up to that in `lengths`;
    /// fewer after an interrupt, and, where a form `may_end`, once its error has risen twice in a row. Also whether it was not interrupted.
    fn errors(
        &self,
        forms: &[MetricForm],
        lengths: &[usize],
        may_end: bool,
        rest: &[usize],
        out: &[usize],
    ) -> Result<(Vec<LeftOut>, bool)> {
        let (x, y) = (self.x.select(Axis(0), rest), self.y.select(rest));
        let (new, truth) = (self.x.select(Axis(0), out), self.y.select(out));
        let truth = Encoding::encode(&truth, out.len(), -1.0, 1.0)?.1;
        let weights = self.machine.class_weights.of_rows(self.y)?;
        let weights: Vec<f64> = out.iter().map(|&i| weights.as_ref().map_or(1.0, |w| w[i])).collect();
        let left_out = |form, rounds, round: &Round| -> Result<LeftOut> {
            let off = round.scores(new.view())? - &truth;
            let squares = off.rows().into_iter().zip(&weights).map(|(e, w)| w * e.dot(&e)).collect();
            Ok(LeftOut { form, rounds, squares })
        };
        let rank = self.machine.rank.or((x.nrows() > ALL_POINTS).then_some(LANDMARKS));
        let machine = RecursiveFeatureMachine { rank, ..self.machine.clone() };
        let total = 1 + lengths.iter().sum::<usize>();
        // A number of rounds that was asked for is looked at whatever the errors before it are.
        let may_end = may_end && self.machine.rounds.is_none();
        let staged = |number: usize, fit: &dyn Fn(&Work) -> Result<Round>| {
            let stage = self.context.stage("fit", number, total);
            let context = FitContext { progress: &stage, interrupt: None, ..*self.context };
            fit(&Work { machine: &machine, x: x.view(), y: &y, context: &context })
        };
        // Every form starts from the same fit.
        let plain = staged(1, &|work| work.first())?;
        let mut tried = vec![left_out(forms[0], 0, &plain)?];
        let _keeps = self.context.keeps_best();
        for (f, (&form, &most)) in forms.iter().zip(lengths).enumerate() {
            let (mut last, mut errors): (Option<Round>, Vec<f64>) = (None, vec![]);
            let before = 1 + lengths[..f].iter().sum::<usize>();
            for rounds in 1..=most {
                if self.context.interrupted() {
                    return Ok((tried, false));
                }
                let round = staged(before + rounds, &|work| work.next(last.as_ref().unwrap_or(&plain), form))?;
                let found = left_out(form, rounds, &round)?;
                errors.push(mean(&found.squares));
                (last, _) = (Some(round), tried.push(found));
                if may_end && matches!(errors[..], [.., a, b, c] if a < b && b < c) {
                    break;
                }
            }
        }
        Ok((tried, true))
    }
}

/// The errors of machines on rows that they have not seen.
struct LeftOut {
    form: MetricForm,
    rounds: usize,
    /// The weighted squared error of each row.
    squares: Vec<f64>,
}

impl LeftOut {
    fn tried(&self) -> TriedMetric {
        TriedMetric { form: self.form, rounds: self.rounds, error: mean(&self.squares) }
    }

    /// The mean of how much less the error of each row is than under `other`, and the standard error of this mean.
    fn gain_over(&self, other: &LeftOut) -> (f64, f64) {
        let gains: Vec<f64> = self.squares.iter().zip(&other.squares).map(|(own, other)| other - own).collect();
        let gain = mean(&gains);
        let variance = gains.iter().map(|g| (g - gain) * (g - gain)).sum::<f64>() / (gains.len() - 1).max(1) as f64;
        (gain, (variance / gains.len() as f64).sqrt())
    }
}

/// The one with the least error of those with `rounds`; where they are free, of those that gain more over no rounds than [`CERTAIN`] standard errors, and
/// no rounds.
fn best_metric(all: &[LeftOut], rounds: Option<usize>) -> Option<&LeftOut> {
    let plain = all.iter().find(|tried| tried.rounds == 0);
    let gains = |tried: &LeftOut| {
        let (gain, error) = plain.map_or((f64::INFINITY, 0.0), |plain| tried.gain_over(plain));
        tried.rounds == 0 || gain > CERTAIN * error
    };
    all.iter()
        .filter(|tried| rounds.map_or_else(|| gains(tried), |rounds| tried.rounds == rounds))
        .filter(|tried| mean(&tried.squares).is_finite())
        .min_by(|a, b| mean(&a.squares).total_cmp(&mean(&b.squares)))
        .or(all.first())
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_must_be_better_than_chance_allows() {
        let machine = |rounds, squares: &[f64]| LeftOut { form: MetricForm::Full, rounds, squares: squares.to_vec() };
        let plain = machine(0, &[1.0, 1.0, 1.0, 1.0]);
        // Gains .1 on every row, and 1.6 on one row and −.3 on the others: means .1 and .175, standard errors 0 and .475.
        let (steady, lucky) = (machine(1, &[0.9, 0.9, 0.9, 0.9]), machine(2, &[-0.6, 1.3, 1.3, 1.3]));
        let chosen = |all: &[LeftOut], rounds| best_metric(all, rounds).map(|best| best.rounds);
        assert!((lucky.gain_over(&plain).1 - 0.475).abs() < 1e-12);
        let all = [plain, steady, lucky];
        assert_eq!(chosen(&all, None), Some(1));
        assert_eq!(chosen(&all, Some(2)), Some(2));
        let [plain, _, lucky] = all;
        assert_eq!(chosen(&[plain, lucky], None), Some(0));
        // Where no error is finite, no rounds.
        assert_eq!(chosen(&[machine(0, &[f64::NAN]), machine(1, &[f64::NAN])], None), Some(0));
    }
}
