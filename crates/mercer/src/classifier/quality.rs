//! The scores of a classifier: of classes or of numbers.

use crate::measures::{Errors, Scores};
use serde::{Deserialize, Serialize};

/// [`Scores`] of classes or [`Errors`] of numbers. Example: [the module](crate::classifier).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Quality {
    /// Of classes.
    Classes(Scores),
    /// Of numbers.
    Numbers(Errors),
}

impl Quality {
    /// The scores of classes, where it is that.
    pub fn classes(self) -> Option<Scores> {
        if let Quality::Classes(scores) = self { Some(scores) } else { None }
    }
}
