//! What fitting posteriors takes, estimated before it starts, and what is left out of a comparison.

use super::compare::{Comparison, FunctionRows, Sample, Samples};
use super::{Candidates, compare};
use crate::classifier::Classifier;
use crate::data::Dataset;
use crate::laplace::{Cost, Laplace, Prior};
use crate::linalg::matmul;
use crate::{FitContext, Result};
use ndarray::Array2;
use std::sync::Arc;
use std::time::Instant;

/// Seconds that a comparison spends on a method at most, as estimated.
const PATIENCE: f64 = 600.0;
/// Rows that a pass through a network is timed at.
const FEW: usize = 256;

/// What a posterior takes. Example: [`Plan`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimated {
    /// The method.
    pub name: &'static str,
    /// Bytes and multiply-adds.
    pub cost: Cost,
    /// Seconds of the fit and of all predictions that measure it.
    pub seconds: f64,
    /// Why a comparison leaves it out.
    pub left_out: Option<LeftOut>,
}

/// Why a comparison leaves a posterior out. Example: [`Plan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// The memory has no room for it.
    Memory,
    /// It takes too long; it is fitted where it is asked for.
    Time,
}

/// Posteriors that will be fitted, and what each takes.
///
/// ```
/// use mercer::classifier::Classifier;
/// use mercer::laplace::NetworkKind;
/// use mercer::learn::{LeftOut, Samples, posteriors};
/// use mercer::{FitContext, operator::Budget, options::Options};
/// use std::sync::Arc;
/// let (fit, validation) = mercer::data::digits().with_classes()?.split(0.3, 0)?;
/// let network = Arc::new(Classifier::new("dense(100) relu dense(10)", &fit, mercer::Device::Cpu, 0)?);
/// let candidates = posteriors().build("auto", Options::none(), &NetworkKind::of(&network))?;
/// let rows = Samples { fit, validation, test: None, ood: None };
/// // The last layer has 1010 weights: its H takes 33 MB.
/// let context = FitContext { budget: Budget::parse("30MB")?, ..FitContext::default() };
/// let plan = candidates.plan(&network, &rows, &context)?;
/// let last_layer = plan.estimates.iter().find(|estimated| estimated.name == "last-layer").unwrap();
/// assert_eq!(last_layer.left_out, Some(LeftOut::Memory));
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// All candidates, those that are left out among them.
    pub estimates: Vec<Estimated>,
    /// Those that are fitted.
    pub(super) fitted: Vec<Laplace>,
    pub(super) asked: Option<&'static str>,
}

impl Candidates {
    /// What each takes for a network with its parameters, by the time of a pass through it.
    pub fn plan(&self, network: &Arc<Classifier>, rows: &Samples<Dataset>, context: &FitContext) -> Result<Plan> {
        let rate = seconds_of_a_pass(network, &rows.fit)?;
        let [validation, others] =
            [rows.validation.n(), rows.measured().n() + 2 * rows.ood.as_ref().map_or(0, Dataset::n)];
        self.estimated(context, |laplace| {
            let cost = laplace.cost(network, rows.fit.n())?;
            // τ by validation sees these rows once.
            let searched = usize::from(laplace.prior == Prior::Validation);
            let predicted = ((1 + searched) * validation + others) * network.network.multiply_adds();
            Ok((cost, (cost.fit + cost.predict * predicted as f64) * rate))
        })
    }

    /// What each takes for a network that is known by its functions, by the time of a product of matrices.
    pub fn plan_functions(&self, rows: &Samples<FunctionRows>, context: &FitContext) -> Result<Plan> {
        let rate = seconds_of_a_product();
        self.estimated(context, |laplace| {
            let cost = laplace.cost_of_functions(&rows.fit.network, rows.validation.network.n());
            Ok((cost, cost.fit * rate))
        })
    }

    fn estimated(&self, context: &FitContext, of: impl Fn(&Laplace) -> Result<(Cost, f64)>) -> Result<Plan> {
        let estimate = |laplace: &Laplace| {
            let (cost, seconds) = of(laplace)?;
            let compares = self.asked.is_none();
            let left_out = match (context.budget.allows(cost.bytes), seconds > PATIENCE) {
                (false, _) if compares => Some(LeftOut::Memory),
                (_, true) if compares => Some(LeftOut::Time),
                _ => None,
            };
            Ok(Estimated { name: laplace.method.name(), cost, seconds, left_out })
        };
        let estimates = self.all.iter().map(estimate).collect::<Result<Vec<_>>>()?;
        let kept = self.all.iter().zip(&estimates).filter(|(_, estimated)| estimated.left_out.is_none());
        let fitted = kept.map(|(laplace, _)| *laplace).collect();
        Ok(Plan { estimates, fitted, asked: self.asked })
    }
}

impl Plan {
    /// Fits the posteriors of a network, and compares them.
    pub fn fit(&self, network: &Arc<Classifier>, rows: &Samples<Dataset>, context: &FitContext) -> Result<Comparison> {
        compare::compared(self, rows, context, |laplace, choices, context| {
            laplace.fit_on(network, &rows.fit, &rows.validation, choices, context)
        })
    }

    /// Fits the posteriors of a network that is known by its functions, and compares them.
    pub fn fit_functions(&self, rows: &Samples<FunctionRows>, context: &FitContext) -> Result<Comparison> {
        compare::compared(self, rows, context, |laplace, choices, context| {
            let parts = choices.each_ref().map(|some| rows.validation.select(some));
            let parts = parts.iter().map(|part| part.known().map(Some)).collect::<Result<Vec<_>>>()?;
            let (network, y) = rows.fit.known()?;
            laplace.fit_functions_on(network, y, &parts, context)
        })
    }
}

/// Seconds for a multiply-add of the network, measured on a few rows.
fn seconds_of_a_pass(network: &Classifier, data: &Dataset) -> Result<f64> {
    let rows = data.x.rows().slice(0..data.n().min(FEW));
    network.logits(rows)?;
    let start = Instant::now();
    network.logits(rows)?;
    let work = (rows.n() * network.network.multiply_adds()).max(1);
    Ok(start.elapsed().as_secs_f64() / work as f64)
}

/// Seconds for a multiply-add of a product of matrices, measured on small ones.
fn seconds_of_a_product() -> f64 {
    const ORDER: usize = 256;
    let a = Array2::from_shape_fn((ORDER, ORDER), |(i, j)| ((i + 3 * j) % 7) as f64);
    matmul(a.view(), a.view());
    let start = Instant::now();
    let product = matmul(a.view(), a.view());
    assert!(product[[0, 0]] >= 0.0);
    start.elapsed().as_secs_f64() / (ORDER * ORDER * ORDER) as f64
}
