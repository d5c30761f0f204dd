//! What predictions are worth: one measure, one function, whoever predicts.
//!
//! | file | measures |
//! |---|---|
//! | `numbers` | RMSE and R² of numbers, also of rows that come a few at a time |
//! | `intervals` | log density, coverage and width of normal predictions |
//! | `class_report` | accuracy, log loss, precision, recall and confusion of named classes |
//! | `probabilities` | accuracy, NLL, Brier score and calibration errors of probabilities of classes |
//! | `detection` | AUROC and AUPR of a score that tells rows from outside |
//! | `bootstrap` | intervals of all of them |

mod bootstrap;
mod class_report;
mod detection;
mod intervals;
mod numbers;
mod probabilities;

pub use bootstrap::Estimate;
pub use class_report::{ClassMeasures, ClassReport};
pub use detection::Detection;
#[doc(hidden)]
pub use intervals::interval_factor;
pub use intervals::{IntervalReport, NumberCases, NumberMeasure};
pub use numbers::{Errors, RunningErrors};
pub use probabilities::{Cases, Measure, Scores};
