//! The baselines: the network alone, and its scores divided by a temperature.

use super::cost::{Sizes, Work};
use super::fit::{Fit, Rows};
use super::method::{NetworkKind, PRIOR, Recipe, Span};
use super::passes::Hidden;
use super::{Laplace, Prior, Structure};
use crate::bundle::Bundle;
use crate::classifier::Classifier;
use crate::options::{Caps, Opt};
use crate::{FitContext, Result, fail_if};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The network alone. Example: [the module](super).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Map;

/// `softmax(z/T)`, T with the least loss on other rows. Example: [the module](super).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Temperature;

/// Networks with their parameters, and those that are known by their functions.
fn both() -> Caps {
    Caps { networks: true, functions: true, numbers: true, classes: true, ..Caps::default() }
}

impl Recipe for Map {
    fn name(&self) -> &'static str {
        "map"
    }

    fn about(&self) -> &'static str {
        "the network alone"
    }

    fn can(&self) -> Caps {
        both()
    }

    fn options(&self) -> Vec<&'static Opt> {
        vec![&PRIOR]
    }

    fn has_posterior(&self) -> bool {
        false
    }

    /// The noise of a number is that on validation rows.
    fn looks_at_validation(&self, laplace: &Laplace, number: bool) -> bool {
        laplace.prior == Prior::Validation && number
    }

    fn instead(&self) -> &'static str {
        "use fewer rows"
    }

    fn work(&self, sizes: &Sizes) -> Result<Work> {
        Ok(Work { bytes: 0.0, fit: sizes.n * sizes.pass, predict: sizes.pass })
    }

    fn fit(&self, rows: &Rows, _: &FitContext) -> Result<Fit> {
        Ok(Fit::alone(rows.passes.forward(rows.x, Hidden::No)?.0))
    }

    fn unpack(&self, _: &Bundle, _: &Classifier) -> Result<Option<Arc<dyn Structure>>> {
        Ok(None)
    }

    fn span(&self) -> Option<Span> {
        Some(Span::Empty)
    }
}

impl Recipe for Temperature {
    fn name(&self) -> &'static str {
        "temperature"
    }

    fn about(&self) -> &'static str {
        "the scores of classes divided by a temperature"
    }

    fn can(&self) -> Caps {
        Caps { numbers: false, ..both() }
    }

    fn options(&self) -> Vec<&'static Opt> {
        vec![]
    }

    fn check(&self, kind: NetworkKind) -> Result<()> {
        fail_if!(kind.number, "the temperature scales logits of classes; the network predicts a number");
        Ok(())
    }

    fn has_posterior(&self) -> bool {
        false
    }

    fn looks_at_validation(&self, _: &Laplace, _: bool) -> bool {
        true
    }

    fn tempers(&self, _: &Laplace, _: bool) -> bool {
        true
    }

    fn instead(&self) -> &'static str {
        Map.instead()
    }

    fn work(&self, sizes: &Sizes) -> Result<Work> {
        Map.work(sizes)
    }

    fn fit(&self, rows: &Rows, context: &FitContext) -> Result<Fit> {
        Map.fit(rows, context)
    }

    fn unpack(&self, _: &Bundle, _: &Classifier) -> Result<Option<Arc<dyn Structure>>> {
        Ok(None)
    }

    fn span(&self) -> Option<Span> {
        Some(Span::Empty)
    }
}
