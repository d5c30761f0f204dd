//! The Gauss–Newton matrix in full, over the last layer.

use super::Structure;
use super::cost::{self, Sizes, Work};
use super::fit::{Fit, Rows};
use super::functions::{Basis, Functions};
use super::method::Recipe;
use crate::bundle::Bundle;
use crate::classifier::Classifier;
use crate::{FitContext, Result};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// H in full, over the last layer. Example: [the module](super).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastLayer;

impl Recipe for LastLayer {
    fn name(&self) -> &'static str {
        "last-layer"
    }

    fn about(&self) -> &'static str {
        "the Gauss–Newton matrix in full, over the last layer"
    }

    fn work(&self, &Sizes { n, c, pass, hidden, .. }: &Sizes) -> Result<Work> {
        let [bytes, algebra] = cost::functions(hidden * c);
        let fit = n * (pass + (c * hidden).powi(2) / 2.0) + algebra;
        Ok(Work { bytes, fit, predict: pass + c * hidden * hidden })
    }

    fn fit(&self, rows: &Rows, context: &FitContext) -> Result<Fit> {
        let square = rows.passes.square_of_last_layer()?;
        Functions::fit(Basis::LastLayer, square, rows.passes, rows.x, context).map(Fit::of)
    }

    fn unpack(&self, bundle: &Bundle, _: &Classifier) -> Result<Option<Arc<dyn Structure>>> {
        Ok(Some(Arc::new(Functions::unpack(bundle, Basis::LastLayer)?)))
    }
}
