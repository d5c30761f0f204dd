//! The posterior over all functions of a network of another program.

use super::Structure;
use super::cost::{Sizes, Work};
use super::fit::{Fit, Rows};
use super::method::{Recipe, Span};
use crate::bundle::Bundle;
use crate::classifier::Classifier;
use crate::options::Caps;
use crate::{Error, FitContext, Result};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Over all K functions of a network that is known by them: exact, where they are the derivatives by all parameters. Example:
/// [`Laplace::fit_functions`](super::Laplace::fit_functions).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenFunctions;

impl GivenFunctions {
    fn refused<T>(self) -> Result<T> {
        Err(Error::input("the method functions is for a network that is given by its outputs and functions"))
    }
}

impl Recipe for GivenFunctions {
    fn name(&self) -> &'static str {
        "functions"
    }

    fn about(&self) -> &'static str {
        "all functions of a network of another program"
    }

    fn can(&self) -> Caps {
        Caps { functions: true, numbers: true, classes: true, ..Caps::default() }
    }

    fn work(&self, _: &Sizes) -> Result<Work> {
        self.refused()
    }

    fn fit(&self, _: &Rows, _: &FitContext) -> Result<Fit> {
        self.refused()
    }

    fn unpack(&self, _: &Bundle, _: &Classifier) -> Result<Option<Arc<dyn Structure>>> {
        self.refused()
    }

    fn span(&self) -> Option<Span> {
        Some(Span::Whole)
    }
}
