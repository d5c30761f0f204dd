//! The posterior of a network of which only functions are known.

use super::fit::{Marginal, needed, temperature};
use super::function_fitted::{FittedFunctionLaplace, Weights};
use super::functions::dense_gram;
use super::likelihood::{Likelihood, profile};
use super::method::Span;
use super::network_functions::{NetworkFunctions, parts};
use super::predictive::probit;
use super::search::search;
use super::{Laplace, NetworkKind, Prior, Searched};
use crate::data::Target;
use crate::linalg::{eigh, matmul};
use crate::spectrum::Origin;
use crate::{Error, FitContext, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView2, s};
use std::sync::Arc;
use std::time::Instant;

/// Rows that the network has not seen, with their targets.
pub type Validation<'a, 'b> = Option<(&'a NetworkFunctions<'b>, &'a Target)>;

impl Laplace {
    /// Fits the posterior of a network of any program, from its outputs and from functions Ψ that stand for its derivatives:
    /// `Σ(x) = Ψ(x) [Σ_i Ψ_iᵀ Λ_i Ψ_i + τI]⁻¹ Ψ(x)ᵀ`, by algebra of K×K matrices. The targets `y` `[n]` are numbers where the network has one
    /// output, else classes, one for each output.
    ///
    /// ```
    /// use mercer::data::Target;
    /// use mercer::laplace::{GivenFunctions, Laplace, NetworkFunctions};
    /// use ndarray::{Array2, Array3};
    /// // g(x) = 2x, whose derivative by the slope is x.
    /// let x = Array2::from_shape_fn((50, 1), |(i, _)| i as f64 / 25.0 - 1.0);
    /// let (z, j) = (&x * 2.0, x.clone().insert_axis(ndarray::Axis(2)));
    /// let y = Target::Values(z.iter().enumerate().map(|(i, z)| z + 0.1 * (7.0 * i as f64).sin()).collect());
    /// let network = NetworkFunctions::jacobians(z.view(), j.view())?;
    /// let laplace = Laplace::new(GivenFunctions);
    /// let fitted = laplace.fit_functions(&network, &y, Some((&network, &y)), &Default::default())?;
    /// let deviations = network.deviations_of(&fitted)?.unwrap();
    /// assert!((deviations[25] - fitted.noise.sqrt()).abs() < 1e-12 && deviations[0] > deviations[25]); // x = 0 has noise alone
    /// # Ok::<(), mercer::Error>(())
    /// ```
    pub fn fit_functions(
        &self,
        network: &NetworkFunctions,
        y: &Target,
        validation: Validation,
        context: &FitContext,
    ) -> Result<FittedFunctionLaplace> {
        self.fit_functions_on(network, y, &[validation], context).map(|mut fits| fits.remove(0))
    }

    /// One fit for each set of validation rows, with what is found on such rows found on these: predictions of other rows compare methods
    /// fairly. The posterior's weights serve all fits.
    pub fn fit_functions_on(
        &self,
        network: &NetworkFunctions,
        y: &Target,
        validations: &[Validation],
        context: &FitContext,
    ) -> Result<Vec<FittedFunctionLaplace>> {
        let start = Instant::now();
        let (n, c, k) = (network.n(), network.outputs(), network.functions());
        let recipe = self.method.recipe();
        let Some(span) = recipe.span() else {
            return Err(Error::input(format!(
                "the method {} needs the network itself, not its functions",
                recipe.name()
            )));
        };
        recipe.check(NetworkKind { number: c == 1, functions: true })?;
        fail_if!(!self.predictive.is_possible(), "draws must be one at least, and a million at most");
        fail_if!(
            self.prior == Prior::Likelihood && network.square().is_none(),
            "the marginal likelihood needs the norm of the parameters, which functions do not tell; find the prior precision on validation \
             rows"
        );
        context.budget.require(
            format!("the posterior over {k} functions"),
            self.cost_of_functions(network, 0).bytes,
            "give fewer functions, or the values of their leading eigenfunctions",
        )?;
        let classes = class_names(y, c)?;
        let likelihood = likelihood(y, &classes, n)?;
        let weights = match span {
            Span::Empty => None,
            Span::Whole => Some(weights(network, None, context)?),
            Span::Leading(count) => Some(weights(network, Some(count), context)?),
        };
        let kernel = format!("{k} functions of a network with {c} outputs");
        let method = format!("laplace ({})", self.method.name());
        let origin = Origin::new(method, kernel, (n, network.width()), context, start);
        let untuned = FittedFunctionLaplace {
            classes,
            method: self.method,
            predictive: self.predictive,
            found: Searched { value: 1.0, loss: 0.0, at_end: false },
            temperature: 1.0,
            noise: 1.0,
            weights: weights.map(Arc::new),
            origin: Origin { outputs: c, ..origin },
            notes: vec![],
        };
        validations.iter().map(|rows| self.tuned_functions(untuned.clone(), (network, &likelihood), *rows)).collect()
    }

    /// Finds the precision of the prior, the noise and the temperature of `fitted`: on validation rows, or from the rows that it was fitted to.
    fn tuned_functions(
        &self,
        mut fitted: FittedFunctionLaplace,
        (network, likelihood): (&NetworkFunctions, &Likelihood),
        validation: Validation,
    ) -> Result<FittedFunctionLaplace> {
        let (c, k) = (network.outputs(), network.functions());
        let validated = match validation {
            Some((network, y)) => {
                fail_if!(
                    (network.outputs(), network.functions()) != (c, k),
                    "the validation rows have {} outputs and {} functions, the others {c} and {k}",
                    network.outputs(),
                    network.functions()
                );
                Some((network, self::likelihood(y, &fitted.classes, network.n())?))
            }
            None => None,
        };
        let rows = |what: &str| needed(validated.as_ref(), what);
        match (fitted.weights.as_deref(), self.prior) {
            (Some(weights), Prior::Validation) => {
                let (network, likelihood) = rows("the prior precision")?;
                (fitted.found, fitted.noise) = self.by_validation_of_functions(weights, network, likelihood)?;
            }
            (Some(Weights { eigenvalues, .. }), Prior::Likelihood) => {
                let (z, square) = (network.all_outputs()?, network.square().expect("it was checked"));
                let marginal = Marginal { likelihood, z: z.view(), eigenvalues: eigenvalues.to_vec(), square };
                (fitted.found, fitted.noise) = marginal.largest()?;
            }
            (Some(_), Prior::Given { precision, noise }) => {
                fitted.found.value = precision;
                fitted.noise = if c == 1 { noise } else { 1.0 };
            }
            _ if c == 1 => {
                fitted.noise = match &validated {
                    Some((network, rows)) => rows.mean_square(network.all_outputs()?.view()),
                    None => likelihood.mean_square(network.all_outputs()?.view()),
                };
            }
            _ => {}
        }
        if self.method.recipe().tempers(self, c == 1) {
            let (network, likelihood) = rows("the temperature")?;
            let found = temperature(&network.scores_of(&fitted)?, likelihood)?;
            fitted.notes.extend(found.note_of_end("temperature"));
            fitted.temperature = found.value;
        }
        if let Some(weights) = &fitted.weights {
            let note = fitted.found.note_of_precision(fitted.found.value * fitted.noise / weights.mean_square);
            fitted.notes.extend(note);
        }
        fail_if!(
            !(fitted.found.value > 0.0 && fitted.found.loss.is_finite() && fitted.noise > 0.0);
            Error::Numerical("the loss is not finite for any precision of the prior; look at the rows and their targets".into())
        );
        Ok(fitted)
    }

    /// τ with the least loss on rows, and for numbers the noise σ²: the variance is `σ²(1 + q)` with `q = Ψ(H + s)⁻¹Ψᵀ`, `s = σ²τ`.
    fn by_validation_of_functions(
        &self,
        weights: &Weights,
        network: &NetworkFunctions,
        likelihood: &Likelihood,
    ) -> Result<(Searched, f64)> {
        let z = network.all_outputs()?;
        // In units of the mean variance of the functions, so that their scale does not matter.
        let shifts = |values: &[f64]| values.iter().map(|v| v * weights.mean_square).collect::<Vec<f64>>();
        if let Likelihood::Numbers(y) = likelihood {
            let profiled = |q: &Array2<f64>| profile(y, z.view(), q.view());
            let found = search(|values| {
                Ok(weights.variances(network, &shifts(values))?.iter().map(|q| profiled(q).loss).collect())
            })?;
            let shift = found.value * weights.mean_square;
            let noise = profiled(&weights.variances(network, &[shift])?[0]).noise;
            return Ok((Searched { value: shift / noise, ..found }, noise));
        }
        let loss = |variances: Array2<f64>| {
            let scores = probit(z.view(), variances.view());
            match self.tempered {
                true => temperature(&scores, likelihood).map(|found| found.loss),
                false => Ok(likelihood.mean_loss(scores.view())),
            }
        };
        let found = search(|values| weights.variances(network, &shifts(values))?.into_iter().map(loss).collect())?;
        Ok((Searched { value: found.value * weights.mean_square, ..found }, 1.0))
    }
}

/// The names of the classes of C outputs; none where there is one output, a number.
fn class_names(y: &Target, c: usize) -> Result<Vec<String>> {
    if c == 1 {
        return Ok(vec![]);
    }
    let Target::Classes { names, .. } = y.as_classes()? else { unreachable!("classes") };
    let place = |name: &String| name.parse::<usize>().is_ok_and(|place| place < c);
    match names.len() == c {
        true => Ok(names),
        // Some classes have no row: whole numbers say which.
        false if names.iter().all(place) => Ok((0..c).map(|c| c.to_string()).collect()),
        false => Err(Error::input(format!(
            "the network has {c} outputs and the targets {} classes; number the classes from 0 to {}, in the order of the outputs",
            names.len(),
            c - 1
        ))),
    }
}

/// The targets `[n]` as the network sees them.
fn likelihood(y: &Target, classes: &[String], n: usize) -> Result<Likelihood> {
    fail_if!(y.len() != n, "there are {} targets and outputs of {n} rows", y.len());
    if classes.is_empty() {
        let Target::Values(values) = y else {
            return Err(Error::input("the network puts out one number, but the targets are classes"));
        };
        return Ok(Likelihood::Numbers(values.clone()));
    }
    let Target::Classes { labels, names } = y.as_classes()? else { unreachable!("classes") };
    if let Some(i) = labels.iter().position(|&label| label >= names.len()) {
        let (row, label, last) = (i + 1, labels[i], names.len().saturating_sub(1));
        return Err(Error::input(format!(
            "row {row} (counted from 1) has the class {label}, but the classes are numbered from 0 to {last}; correct the label"
        )));
    }
    let place = |name: &String| {
        classes.iter().position(|class| class == name).ok_or_else(|| {
            Error::input(format!("the class `{name}` is not one of the network's ({})", classes.join(", ")))
        })
    };
    let places = names.iter().map(place).collect::<Result<Vec<_>>>()?;
    Ok(Likelihood::Classes(labels.iter().map(|&label| places[label]).collect()))
}

/// The posterior over all functions, or over `count` eigenfunctions: with `ΨᵀΨ = U diag(μ) Uᵀ` they are the leading columns of ΨU, and
/// `H = Σ_i Ψ_iᵀ Λ_i Ψ_i = Q diag(λ) Qᵀ` in their span.
fn weights(network: &NetworkFunctions, count: Option<usize>, context: &FitContext) -> Result<Weights> {
    fail_if!(count == Some(0), "at least one eigenfunction is needed");
    let (n, c) = (network.n(), network.outputs());
    let mut squares = 0.0;
    let leading = match count {
        Some(count) => {
            let gram = summed(network, None, context, |psi, _| matmul(psi.t(), psi.view()))?;
            let (μ, u) = eigh(context.device, gram.view())?;
            let kept = μ.iter().take(count).take_while(|value| **value > 1e-12 * μ[0] && **value > 0.0).count();
            fail_if!(kept == 0, "the functions are zero at all rows");
            Some(u.slice(s![.., ..kept]).to_owned())
        }
        None => None,
    };
    let h = summed(network, leading.as_ref(), context, |psi, z| {
        squares += psi.iter().map(|v| v * v).sum::<f64>();
        dense_gram(psi, z, c > 1)
    })?;
    fail_if!(squares == 0.0, "the functions are zero at all rows");
    let (λ, q) = eigh(context.device, h.view())?;
    let map = leading.map_or_else(|| q.clone(), |u| matmul(u.view(), q.view()));
    let eigenvalues = Array1::from_iter(λ.into_iter().map(|λ| λ.max(0.0)));
    Ok(Weights { eigenvalues, map, mean_square: squares / (n * c) as f64 })
}

/// The sum of `of(ψ, z)` `[k, k]` over batches of rows, for functions `ψ` `[b·C, k]`, mapped by `map` `[K, k]` where it is given, and outputs `z`
/// `[b, C]`.
fn summed(
    network: &NetworkFunctions,
    map: Option<&Array2<f64>>,
    context: &FitContext,
    mut of: impl FnMut(&Array2<f64>, ArrayView2<f64>) -> Array2<f64>,
) -> Result<Array2<f64>> {
    let order = map.map_or(network.functions(), |map| map.ncols());
    let mut gram = Array2::zeros((order, order));
    for rows in network.batches() {
        context.progress.step("functions", rows.start, network.n(), "rows");
        let (z, psi) = parts(network.rows(rows)?.view(), network.outputs());
        let psi = map.map_or_else(|| psi.clone(), |map| matmul(psi.view(), map.view()));
        gram += &of(&psi, z.view());
    }
    Ok(gram)
}
